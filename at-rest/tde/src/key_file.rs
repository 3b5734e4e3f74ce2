//! The key file: the wrapped data-encryption keys of a cluster, in 160 bytes.
//!
//! ```text
//!   0  8  magic               32  8  check value: identifies the key-encryption key
//!   8  2  version, 3          40 60  key of relations and other files: nonce, ciphertext, tag
//!  10  1  cipher            100 60  key of WAL: nonce, ciphertext, tag
//!  11  1  0
//!  12 16  cluster: random; an input of the check value
//!  28  4  generation: number of rotations
//! ```
//! Keys are wrapped with AES-256-GCM. The associated data are the first 40 bytes and the key's purpose, so that any change
//! of the file is detected, including an exchange of keys within the file or between clusters. Numbers are little-endian.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use openssl::memcmp;
use openssl::rand::rand_bytes;
use openssl::symm::{Cipher, decrypt_aead, encrypt_aead};
use zeroize::Zeroizing;

use crate::CipherKind;
use crate::error::{Doing, KeyError};
use crate::kdf::derive;
use crate::kek::Kek;
use crate::secret::{SecretBytes, wipe_stack};

pub const KEY_FILE_BYTES: usize = 160;
/// The version of the format of key files and clusters. Every other one is refused.
pub const KEY_FILE_VERSION: u16 = 3;

const MAGIC: &[u8; 8] = b"CTOLLTDE";
const HEADER_BYTES: usize = 40;
const NONCE_BYTES: usize = 12;
const KEY_BYTES: usize = 32;
const WRAPPED_BYTES: usize = NONCE_BYTES + KEY_BYTES + 16;

type Key = [u8; KEY_BYTES];

/// The data-encryption keys, from which the keys of files are derived. Wiped when dropped; not printable.
pub struct DataKeys {
    cipher_kind: CipherKind,
    /// The key of relations and other files; the key of WAL; the key of temporary files, which is never stored.
    keys: SecretBytes<{ 3 * KEY_BYTES }>,
}

/// The content of a key file. It is not secret without the key-encryption key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFile {
    cipher_kind: CipherKind,
    cluster: [u8; 16],
    generation: u32,
    check: [u8; 8],
    relations: [u8; WRAPPED_BYTES],
    wal: [u8; WRAPPED_BYTES],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// Fails if a key file exists: overwriting it would make its cluster unreadable.
    Never,
    /// Replaces an existing key file atomically.
    Atomically,
}

impl DataKeys {
    pub fn generate(cipher_kind: CipherKind) -> Result<Self, KeyError> {
        let mut keys = Self::empty(cipher_kind)?;
        rand_bytes(&mut *keys.keys)?;
        Ok(keys)
    }

    fn empty(cipher_kind: CipherKind) -> Result<Self, KeyError> {
        Ok(Self { cipher_kind, keys: SecretBytes::new().map_err(KeyError::Memory)? })
    }

    pub fn cipher_kind(&self) -> CipherKind {
        self.cipher_kind
    }

    pub(crate) fn relations(&self) -> &Key {
        self.each()[0]
    }

    pub(crate) fn wal(&self) -> &Key {
        self.each()[1]
    }

    pub(crate) fn temporary(&self) -> &Key {
        self.each()[2]
    }

    fn each(&self) -> [&Key; 3] {
        let (keys, _) = self.keys.as_chunks();
        [&keys[0], &keys[1], &keys[2]]
    }
}

impl KeyFile {
    /// Creates the key file of a new cluster, with new data-encryption keys.
    pub fn create(cipher_kind: CipherKind, kek: &Kek) -> Result<Self, KeyError> {
        let mut file = Self { cipher_kind, ..Self::EMPTY };
        rand_bytes(&mut file.cluster)?;
        file.wrap(&DataKeys::generate(cipher_kind)?, kek)
    }

    pub fn unwrap(&self, kek: &Kek) -> Result<DataKeys, KeyError> {
        let keys = self.unwrap_keys(kek);
        wipe_stack();
        keys
    }

    #[inline(never)]
    fn unwrap_keys(&self, kek: &Kek) -> Result<DataKeys, KeyError> {
        if !memcmp::eq(&self.check, &check_value(kek, &self.cluster)) {
            return Err(KeyError::WrongKey);
        }
        let mut keys = DataKeys::empty(self.cipher_kind)?;
        let (relations, others) = keys.keys.split_at_mut(KEY_BYTES);
        let (wal, temporary) = others.split_at_mut(KEY_BYTES);
        unwrap_key(kek, &self.associated(b"relations"), &self.relations, relations)?;
        unwrap_key(kek, &self.associated(b"wal"), &self.wal, wal)?;
        rand_bytes(temporary)?;
        Ok(keys)
    }

    /// Wraps the same data-encryption keys with another key-encryption key. The cluster itself does not change.
    pub fn rotated(&self, old: &Kek, new: &Kek) -> Result<Self, KeyError> {
        let generation = self.generation.checked_add(1);
        let generation = generation.ok_or(KeyError::Damaged("its generation cannot increase"))?;
        Self { generation, ..self.clone() }.wrap(&self.unwrap(old)?, new)
    }

    pub fn cipher_kind(&self) -> CipherKind {
        self.cipher_kind
    }

    /// A random identifier of the cluster, which rotations keep.
    pub fn cluster(&self) -> &[u8; 16] {
        &self.cluster
    }

    /// The number of rotations.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    const EMPTY: Self = Self {
        cipher_kind: CipherKind::Aes256,
        cluster: [0; 16],
        generation: 0,
        check: [0; 8],
        relations: [0; WRAPPED_BYTES],
        wal: [0; WRAPPED_BYTES],
    };

    fn wrap(mut self, keys: &DataKeys, kek: &Kek) -> Result<Self, KeyError> {
        self.check = check_value(kek, &self.cluster);
        self.relations = wrap_key(kek, &self.associated(b"relations"), keys.relations())?;
        self.wal = wrap_key(kek, &self.associated(b"wal"), keys.wal())?;
        Ok(self)
    }

    fn header(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(MAGIC);
        header[8..10].copy_from_slice(&KEY_FILE_VERSION.to_le_bytes());
        header[10] = match self.cipher_kind {
            CipherKind::Aes256 => 1,
            CipherKind::Null => 3,
        };
        header[12..28].copy_from_slice(&self.cluster);
        header[28..32].copy_from_slice(&self.generation.to_le_bytes());
        header[32..].copy_from_slice(&self.check);
        header
    }

    fn associated(&self, purpose: &[u8]) -> Vec<u8> {
        [&self.header(), purpose].concat()
    }

    pub fn encode(&self) -> [u8; KEY_FILE_BYTES] {
        let mut bytes = [0; KEY_FILE_BYTES];
        bytes[..HEADER_BYTES].copy_from_slice(&self.header());
        bytes[HEADER_BYTES..HEADER_BYTES + WRAPPED_BYTES].copy_from_slice(&self.relations);
        bytes[HEADER_BYTES + WRAPPED_BYTES..].copy_from_slice(&self.wal);
        bytes
    }

    /// The content is authentic only after [`Self::unwrap`].
    pub fn decode(bytes: &[u8]) -> Result<Self, KeyError> {
        let bytes: &[u8; KEY_FILE_BYTES] =
            bytes.try_into().map_err(|_| KeyError::Damaged("it must have 160 bytes"))?;
        if &bytes[..8] != MAGIC {
            return Err(KeyError::Damaged("it does not begin with the magic number of a key file"));
        }
        match u16::from_le_bytes([bytes[8], bytes[9]]) {
            KEY_FILE_VERSION => {}
            version => return Err(KeyError::OtherVersion(format!("version {version}"))),
        }
        let cipher_kind = match (bytes[10], bytes[11]) {
            (1, 0) => CipherKind::Aes256,
            (2, 0) => return Err(KeyError::OtherVersion("the cipher AES-128-XTS".to_owned())),
            (3, 0) => CipherKind::Null,
            _ => return Err(KeyError::Damaged("its cipher is unknown")),
        };
        let generation = u32::from_le_bytes([bytes[28], bytes[29], bytes[30], bytes[31]]);
        let mut file = Self { cipher_kind, generation, ..Self::EMPTY };
        file.cluster.copy_from_slice(&bytes[12..28]);
        file.check.copy_from_slice(&bytes[32..HEADER_BYTES]);
        file.relations.copy_from_slice(&bytes[HEADER_BYTES..HEADER_BYTES + WRAPPED_BYTES]);
        file.wal.copy_from_slice(&bytes[HEADER_BYTES + WRAPPED_BYTES..]);
        Ok(file)
    }

    /// The default path: next to the data directory, because `initdb` requires an empty data directory.
    pub fn path_beside(data_directory: &Path) -> PathBuf {
        // Removes a slash at the end, after which the file would be within the directory.
        let mut path = data_directory.components().collect::<PathBuf>().into_os_string();
        path.push(".tde");
        path.into()
    }

    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(KeyError::Missing(path.to_owned()));
            }
            other => other.doing("read", path)?,
        };
        let mut bytes = Vec::with_capacity(KEY_FILE_BYTES + 1);
        file.take(KEY_FILE_BYTES as u64 + 1).read_to_end(&mut bytes).doing("read", path)?;
        Self::decode(&bytes)
    }

    /// Writes the file atomically: after a crash, either the old or the new file exists. If the path is a symbolic link, the
    /// file that it leads to is replaced: a file that stays behind would still be wrapped by the old key. Fails if the file
    /// to replace is not the one that this one was rotated from, because of another rotation at the same time.
    pub fn store(&self, path: &Path, replace: Replace) -> Result<(), KeyError> {
        let followed = match replace {
            Replace::Atomically if path.is_symlink() => {
                Some(std::fs::canonicalize(path).doing("read", path)?)
            }
            _ => None,
        };
        let path = followed.as_deref().unwrap_or(path);
        let mut draft = path.as_os_str().to_owned();
        draft.push(format!(".{}.tmp", std::process::id()));
        let draft = PathBuf::from(draft);
        let stored = self.store_by(&draft, path, replace);
        if stored.is_err() {
            // An error is ignored: the draft may not exist.
            drop(std::fs::remove_file(&draft));
        }
        stored.doing("write", path)
    }

    /// Locks the key file that this one replaces. `None` if there is none.
    fn lock_previous(&self, path: &Path) -> io::Result<Option<File>> {
        loop {
            // Some network file systems lock only files that are open for writing.
            let open = |writes| OpenOptions::new().read(true).write(writes).open(path);
            let mut file = match open(true).or_else(|_| open(false)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                other => other?,
            };
            file.lock()?;
            let (locked, current) = (file.metadata()?, std::fs::metadata(path)?);
            if (locked.dev(), locked.ino()) != (current.dev(), current.ino()) {
                // It was replaced before it was locked.
                continue;
            }
            let mut bytes = Vec::new();
            (&mut file).take(KEY_FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
            let previous = Self::decode(&bytes).map_err(io::Error::other)?;
            if previous.cluster != self.cluster || previous.generation.checked_add(1) != Some(self.generation)
            {
                return Err(io::Error::other("another rotation has changed it meanwhile; rotate again"));
            }
            return Ok(Some(file));
        }
    }

    fn store_by(&self, draft: &Path, path: &Path, replace: Replace) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
        // Locked until the file is replaced.
        let old = match replace {
            Replace::Atomically => self.lock_previous(path)?,
            Replace::Never => None,
        };
        if let Some(old) = old.as_ref().map(File::metadata).transpose()? {
            // The server must still be able to read its key file if root rotates the key.
            fchown(&file, Some(old.uid()), Some(old.gid()))?;
            file.set_permissions(old.permissions())?;
        }
        file.write_all(&self.encode())?;
        file.sync_all()?;
        match replace {
            Replace::Atomically => std::fs::rename(draft, path)?,
            Replace::Never => {
                // Unlike a rename, a link fails if the file exists.
                std::fs::hard_link(draft, path)?;
                std::fs::remove_file(draft)?;
            }
        }
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }
}

/// Identifies a key-encryption key without revealing it.
fn check_value(kek: &Kek, cluster: &[u8; 16]) -> [u8; 8] {
    let derived = derive(kek.bytes(), b"ciphertoll tde check value", cluster);
    let mut check = [0; 8];
    check.copy_from_slice(&derived[..8]);
    check
}

/// A separate key for wrapping, so that other uses of the key-encryption key do not affect it.
fn wrapping_key(kek: &Kek) -> Zeroizing<Key> {
    let derived = derive(kek.bytes(), b"ciphertoll tde wrapping", b"");
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    key.copy_from_slice(&derived[..KEY_BYTES]);
    key
}

fn wrap_key(kek: &Kek, associated: &[u8], key: &Key) -> Result<[u8; WRAPPED_BYTES], KeyError> {
    let mut wrapped = [0; WRAPPED_BYTES];
    let (nonce, rest) = wrapped.split_at_mut(NONCE_BYTES);
    let (sealed, tag) = rest.split_at_mut(KEY_BYTES);
    rand_bytes(nonce)?;
    let cipher = Cipher::aes_256_gcm();
    sealed.copy_from_slice(&encrypt_aead(cipher, &*wrapping_key(kek), Some(nonce), associated, key, tag)?);
    Ok(wrapped)
}

fn unwrap_key(
    kek: &Kek,
    associated: &[u8],
    wrapped: &[u8; WRAPPED_BYTES],
    key: &mut [u8],
) -> Result<(), KeyError> {
    let (nonce, rest) = wrapped.split_at(NONCE_BYTES);
    let (sealed, tag) = rest.split_at(KEY_BYTES);
    let opened =
        decrypt_aead(Cipher::aes_256_gcm(), &*wrapping_key(kek), Some(nonce), associated, sealed, tag);
    let opened = Zeroizing::new(opened.map_err(|_| KeyError::Damaged("it was changed"))?);
    key.copy_from_slice(&opened);
    Ok(())
}
