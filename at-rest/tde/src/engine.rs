//! File operations on plaintext, stored as ciphertext.
//!
//! All memory is allocated in [`EncryptionEngine::new`]. A set-associative cache of fixed size keeps the ciphers of the
//! files in use. On a miss, the file's key is derived again, which takes as long as encrypting two pages.

use zeroize::Zeroizing;

use crate::cipher::PageCipher;
use crate::error::{Errno, KeyError};
use crate::kdf::derive;
use crate::key_file::DataKeys;
use crate::seal::{self, CONTROL_BYTES, SECTOR_BYTES, SealState, Sector, VersionText};
use crate::secret::wipe_stack;
use crate::storage::{Storage, WriteSource};
use crate::unit::{begins_history, transform};
use crate::units::Units;
use crate::xts::CipherOperation;
use crate::{CipherKind, FileClass, UNIT_BYTES};

/// Units per write call.
const CHUNK_UNITS: usize = 32;
/// Buffer alignment for direct I/O.
const ALIGNMENT: usize = 4096;
/// Attempts to read an authentic `pg_control`: a server may be writing it at the same time.
const CONTROL_READS: usize = 100;
/// The same for a page.
const PAGE_READS: usize = 1000;
/// Geometry of the cipher cache: sets, and entries per set.
const SETS: usize = 64;
const WAYS: usize = 4;

/// An open file: its class, and its last position in the cipher cache.
#[derive(Clone, Copy, Debug)]
pub struct OpenFile {
    class: FileClass,
    subject: [u8; 33],
    set: usize,
    way: usize,
}

pub struct EncryptionEngine {
    keys: DataKeys,
    ciphers: CipherCache,
    buffer: Buffer,
}

struct CipherCache {
    entries: Vec<CacheEntry>,
    /// The entry of each set to replace next.
    next: [usize; SETS],
}

struct CacheEntry {
    subject: Option<[u8; 33]>,
    cipher: PageCipher,
}

/// Holds units while they are encrypted and written; aligned for direct I/O.
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl OpenFile {
    pub fn new(class: FileClass) -> Self {
        let subject = class.subject();
        Self { class, subject, set: spread(&subject), way: 0 }
    }

    pub fn class(&self) -> FileClass {
        self.class
    }

    /// Whether a file of this size has only whole units, so that a larger size changes no ciphertext.
    pub fn is_whole(&self, size: u64) -> bool {
        size.is_multiple_of(self.class.unit_bytes() as u64)
    }
}

impl EncryptionEngine {
    pub fn new(keys: DataKeys) -> Result<Self, KeyError> {
        let ciphers = CipherCache::new(keys.cipher_kind())?;
        Ok(Self { keys, ciphers, buffer: Buffer::new() })
    }

    /// Empties the cipher cache.
    ///
    /// AWS-LC detects processor features in its own initialiser. A key schedule made before that, in another initialiser,
    /// has the layout for no special instructions and cannot be used with the ones detected later.
    pub fn forget_keys(&mut self) {
        self.ciphers.entries.iter_mut().for_each(|entry| entry.subject = None);
    }

    /// Reads plaintext at an offset, as `pread` does.
    pub fn read_at(
        &mut self,
        file: &mut OpenFile,
        storage: &impl Storage,
        bytes: &mut [u8],
        offset: u64,
    ) -> Result<usize, Errno> {
        if self.seals() {
            match file.class {
                FileClass::Control => return self.read_control(file, storage, bytes, offset),
                FileClass::Version => return read_version(storage, bytes, offset),
                _ => {}
            }
        }
        if is_history(file.class, storage, None)? {
            return storage.read_at(bytes, offset);
        }
        let Self { keys, ciphers, buffer } = self;
        let buffer = buffer.aligned();
        let mut units = Units::new(ciphers.of(keys, file)?, file.class);
        let unit = units.bytes;
        if file.class.joins_tail() {
            return units.read_joined(storage, bytes, offset, buffer);
        }
        let is_whole = offset.is_multiple_of(unit) && (bytes.len() as u64).is_multiple_of(unit);
        if is_whole && file.class.is_read_in_place(bytes) {
            let count = storage.read_at(bytes, offset)?;
            units.run(CipherOperation::Decrypt, offset / unit, &mut bytes[..count])?;
            return Ok(count);
        }
        let (buffer, again) = buffer.split_at_mut(CHUNK_UNITS / 2 * UNIT_BYTES);
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (number, skipped) = (at / unit, (at % unit) as usize);
            let wanted = (skipped + bytes.len() - done).next_multiple_of(unit as usize).min(buffer.len());
            let read = &mut buffer[..wanted];
            let count = read_twice(storage, read, &mut again[..wanted], number * unit)?;
            if count <= skipped {
                break;
            }
            units.run(CipherOperation::Decrypt, number, &mut buffer[..count])?;
            let copied = (count - skipped).min(bytes.len() - done);
            bytes[done..done + copied].copy_from_slice(&buffer[skipped..skipped + copied]);
            done += copied;
            if count < wanted {
                break;
            }
        }
        Ok(done)
    }

    /// Writes plaintext at an offset, as `pwrite` does.
    pub fn write_at(
        &mut self,
        file: &mut OpenFile,
        storage: &impl Storage,
        bytes: &impl WriteSource,
        offset: u64,
    ) -> Result<usize, Errno> {
        if self.seals() {
            match file.class {
                FileClass::Control => return self.write_control(file, storage, bytes, offset),
                FileClass::Version => return write_version(storage, bytes, offset),
                _ => {}
            }
        }
        let is_history = is_history(file.class, storage, Some((bytes, offset)))?;
        let Self { keys, ciphers, buffer } = self;
        let buffer = buffer.aligned();
        if is_history {
            return write_clear(storage, bytes, offset, buffer);
        }
        let mut units = Units::new(ciphers.of(keys, file)?, file.class);
        let unit = units.bytes;
        let whole = offset.is_multiple_of(unit) && (bytes.len() as u64).is_multiple_of(unit);
        if bytes.is_empty() {
            return Ok(0);
        }
        if whole && file.class.is_paged() {
            return units.write_whole(storage, bytes, offset, buffer);
        }
        let mut size = storage.size()?;
        let first = offset - offset % unit;
        if size < first {
            units.lengthen(storage, size, first)?;
            size = first;
        }
        if file.class.joins_tail() {
            return units.write_joined(storage, bytes, offset, size, buffer);
        }
        if whole {
            units.write_whole(storage, bytes, offset, buffer)
        } else {
            units.write_parts(storage, bytes, offset, size)
        }
    }

    /// Decrypts the content of a whole file in place.
    pub(crate) fn decrypt_file(&mut self, file: &mut OpenFile, content: &mut [u8]) -> Result<(), Errno> {
        let Self { keys, ciphers, .. } = self;
        Units::new(ciphers.of(keys, file)?, file.class).run(CipherOperation::Decrypt, 0, content)
    }

    /// Decrypts a unit in place, as it is stored. Of a unit that was written partially, the whole blocks are right.
    pub(crate) fn decrypt_unit(
        &mut self,
        file: &mut OpenFile,
        number: u64,
        unit: &mut [u8],
    ) -> Result<(), Errno> {
        let Self { keys, ciphers, .. } = self;
        transform(ciphers.of(keys, file)?, file.class, CipherOperation::Decrypt, number, unit)
    }

    /// Sets the size, as `ftruncate` does.
    pub fn set_size(&mut self, file: &mut OpenFile, storage: &impl Storage, size: u64) -> Result<(), Errno> {
        let old = storage.size()?;
        if self.seals() && matches!(file.class, FileClass::Control | FileClass::Version) {
            // Sealed files are written as a whole, so their size is fixed, or 0.
            return if size == 0 || size == old { storage.set_size(size) } else { Err(Errno::IO) };
        }
        if is_history(file.class, storage, None)? {
            return storage.set_size(size);
        }
        let mut units = Units::new(self.ciphers.of(&self.keys, file)?, file.class);
        if size > old { units.lengthen(storage, old, size) } else { units.shorten(storage, old, size) }
    }
}

/// `pg_control` and `PG_VERSION`, which are sealed as a whole.
impl EncryptionEngine {
    /// The null cipher does not seal: the files then equal those of an unencrypted cluster.
    pub fn seals(&self) -> bool {
        self.keys.cipher_kind().encrypts()
    }

    /// Whether `pg_control` is sealed with these keys.
    pub fn control_seal(&self, storage: &impl Storage) -> Result<SealState, Errno> {
        let mut sector = [0; SECTOR_BYTES];
        match storage.read_at(&mut sector, 0)? {
            0 => Ok(SealState::Absent),
            SECTOR_BYTES => match seal::control_seal(&self.keys.control_mac(), &sector) {
                SealState::Sealed if !ends_with_zeros(storage)? => Ok(SealState::Forged),
                seal => Ok(seal),
            },
            _ => Ok(SealState::Forged),
        }
    }

    fn read_control(
        &mut self,
        file: &mut OpenFile,
        storage: &impl Storage,
        bytes: &mut [u8],
        offset: u64,
    ) -> Result<usize, Errno> {
        let Some(mut sector) = self.authentic_control(storage)? else { return Ok(0) };
        let Self { keys, ciphers, .. } = self;
        let content = seal::open_control(ciphers.of(keys, file)?, &mut sector)?;
        let offset = usize::try_from(offset).map_err(|_| Errno::IO)?;
        let count = CONTROL_BYTES.saturating_sub(offset).min(bytes.len());
        for (byte, at) in bytes[..count].iter_mut().zip(offset..) {
            *byte = content.get(at).copied().unwrap_or(0);
        }
        Ok(count)
    }

    /// `None` if the file is empty, because `initdb` has just created it.
    fn authentic_control(&self, storage: &impl Storage) -> Result<Option<Sector>, Errno> {
        let key = self.keys.control_mac();
        for _ in 0..CONTROL_READS {
            let mut sector = [0; SECTOR_BYTES];
            let bytes = storage.read_at(&mut sector, 0)?;
            let seal = seal::control_seal(&key, &sector);
            match bytes {
                0 => return Ok(None),
                SECTOR_BYTES if seal == SealState::Sealed && ends_with_zeros(storage)? => {
                    return Ok(Some(sector));
                }
                _ => std::thread::yield_now(),
            }
        }
        Err(Errno::IO)
    }

    fn write_control(
        &mut self,
        file: &mut OpenFile,
        storage: &impl Storage,
        bytes: &impl WriteSource,
        offset: u64,
    ) -> Result<usize, Errno> {
        if offset != 0 || bytes.len() != CONTROL_BYTES {
            return Err(Errno::IO);
        }
        let mut plaintext = [0; CONTROL_BYTES];
        bytes.copy_to(0, &mut plaintext);
        let key = self.keys.control_mac();
        let Self { keys, ciphers, buffer } = self;
        let sector = seal::seal_control(ciphers.of(keys, file)?, &key, &plaintext)?;
        let stored = &mut buffer.aligned()[..CONTROL_BYTES];
        stored.fill(0);
        stored[..SECTOR_BYTES].copy_from_slice(&sector);
        write_all(storage, stored)?;
        Ok(CONTROL_BYTES)
    }
}

/// Whether a sealed `pg_control` has its size and only zeros behind the authentic sector, as it is written.
fn ends_with_zeros(storage: &impl Storage) -> Result<bool, Errno> {
    // One byte more than there should be.
    let mut rest = [0; CONTROL_BYTES - SECTOR_BYTES + 1];
    let bytes = storage.read_at(&mut rest, SECTOR_BYTES as u64)?;
    Ok(bytes == rest.len() - 1 && rest.iter().all(|&byte| byte == 0))
}

/// Reads until two reads agree. A page that another process overwrites meanwhile is read as a mix of both versions. As
/// plaintext, bytes that are the same in both would be right; as ciphertext, a block of 16 bytes that is mixed decrypts to
/// garbage. A standby reads WAL that is being received, and a base backup reads tables that are being written.
fn read_twice(
    storage: &impl Storage,
    bytes: &mut [u8],
    again: &mut [u8],
    offset: u64,
) -> Result<usize, Errno> {
    let mut count = storage.read_at(bytes, offset)?;
    for _ in 0..PAGE_READS {
        let second = storage.read_at(again, offset)?;
        if second == count && bytes[..count] == again[..count] {
            return Ok(count);
        }
        count = second;
        bytes[..count].copy_from_slice(&again[..count]);
    }
    Err(Errno::IO)
}

fn read_version(storage: &impl Storage, bytes: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut stored = [0; 16];
    let held = storage.read_at(&mut stored, 0)?;
    if held == 0 {
        return Ok(0);
    }
    let text = VersionText::opened(&stored[..held]).ok_or(Errno::IO)?;
    let rest = usize::try_from(offset).ok().and_then(|offset| text.as_bytes().get(offset..)).unwrap_or(&[]);
    let count = rest.len().min(bytes.len());
    bytes[..count].copy_from_slice(&rest[..count]);
    Ok(count)
}

fn write_version(storage: &impl Storage, bytes: &impl WriteSource, offset: u64) -> Result<usize, Errno> {
    let mut plaintext = [0; 16];
    let plaintext = plaintext.get_mut(..bytes.len()).filter(|_| offset == 0).ok_or(Errno::IO)?;
    bytes.copy_to(0, plaintext);
    let text = VersionText::sealed(plaintext).ok_or(Errno::IO)?;
    write_all(storage, text.as_bytes())?;
    Ok(bytes.len())
}

/// Whether `xlogtemp.PID` becomes a history file, by its beginning: what is stored there, or is written to it now.
fn is_history(
    class: FileClass,
    storage: &impl Storage,
    given: Option<(&dyn WriteSource, u64)>,
) -> Result<bool, Errno> {
    let mut start = [0; 2];
    match given {
        _ if class != FileClass::XlogTemp => return Ok(false),
        Some((bytes, 0)) if bytes.len() >= start.len() => bytes.copy_to(0, &mut start),
        _ => drop(storage.read_at(&mut start, 0)?),
    }
    Ok(begins_history(start))
}

fn write_clear(
    storage: &impl Storage,
    bytes: &impl WriteSource,
    offset: u64,
    buffer: &mut [u8],
) -> Result<usize, Errno> {
    let mut done = 0;
    while done < bytes.len() {
        let count = (bytes.len() - done).min(buffer.len());
        bytes.copy_to(done, &mut buffer[..count]);
        match storage.write_at(&buffer[..count], offset + done as u64) {
            Ok(written) => {
                done += written;
                if written < count {
                    break;
                }
            }
            Err(error) => return if done == 0 { Err(error) } else { Ok(done) },
        }
    }
    Ok(done)
}

/// A write of at most a page is complete, or the disk is full.
fn write_all(storage: &impl Storage, bytes: &[u8]) -> Result<(), Errno> {
    if storage.write_at(bytes, 0)? == bytes.len() { Ok(()) } else { Err(Errno::NO_SPACE) }
}

impl Buffer {
    fn new() -> Self {
        let bytes = vec![0; CHUNK_UNITS * UNIT_BYTES + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        Self { bytes, start }
    }

    fn aligned(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + CHUNK_UNITS * UNIT_BYTES]
    }
}

impl CipherCache {
    fn new(cipher_kind: CipherKind) -> Result<Self, KeyError> {
        let entry = || Ok(CacheEntry { subject: None, cipher: PageCipher::new(cipher_kind)? });
        let entries = (0..SETS * WAYS).map(|_| entry()).collect::<Result<_, KeyError>>()?;
        Ok(Self { entries, next: [0; SETS] })
    }

    fn of(&mut self, keys: &DataKeys, file: &mut OpenFile) -> Result<&mut PageCipher, Errno> {
        let set = file.set;
        let entries = self.entries.get_mut(set * WAYS..(set + 1) * WAYS).ok_or(Errno::IO)?;
        if entries.get(file.way).is_none_or(|entry| entry.subject != Some(file.subject)) {
            let kept = entries.iter().position(|entry| entry.subject == Some(file.subject));
            file.way = if let Some(way) = kept {
                way
            } else {
                let way = replace(entries, &mut self.next[set], keys, file);
                wipe_stack();
                way?
            };
        }
        Ok(&mut entries[file.way].cipher)
    }
}

/// Derives the file's key into the next entry of the set, and returns the entry's index.
#[inline(never)]
fn replace(
    entries: &mut [CacheEntry],
    next: &mut usize,
    keys: &DataKeys,
    file: &OpenFile,
) -> Result<usize, Errno> {
    let way = *next;
    *next = (way + 1) % WAYS;
    let entry = &mut entries[way];
    // If setting the key fails, the entry must not be used.
    entry.subject = None;
    entry.cipher.set_key(&keys.file_key(file.class, &file.subject))?;
    entry.subject = Some(file.subject);
    Ok(way)
}

/// The cache set of a subject. Relations often have consecutive numbers, which this spreads.
fn spread(subject: &[u8; 33]) -> usize {
    let mixed =
        subject.iter().fold(0_u32, |mixed, &byte| mixed.wrapping_mul(31).wrapping_add(u32::from(byte)));
    mixed as usize % SETS
}

/// All key derivation from [`DataKeys`].
impl DataKeys {
    fn file_key(&self, class: FileClass, subject: &[u8; 33]) -> crate::kdf::DerivedKey {
        match class {
            FileClass::Wal | FileClass::XlogTemp => derive(self.wal(), b"ciphertoll tde wal", subject),
            FileClass::Temporary(_) => derive(self.temporary(), b"ciphertoll tde temporary", subject),
            _ => derive(self.relations(), b"ciphertoll tde files", subject),
        }
    }

    fn control_mac(&self) -> Zeroizing<[u8; 32]> {
        let derived = derive(self.relations(), b"ciphertoll tde control", b"mac");
        let mut key = Zeroizing::new([0; 32]);
        key.copy_from_slice(&derived[..32]);
        key
    }
}
