//! The key-encryption key (KEK) and its sources.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::{Gid, getegid, geteuid, getgroups};
use openssl::rand::rand_bytes;
use zeroize::{Zeroize, Zeroizing};

use crate::error::{Doing, KeyError};
use crate::secret::{SecretBytes, wipe_stack};

/// Hexadecimal digits of a key.
const DIGITS: usize = 64;

/// A key-encryption key, which wraps data-encryption keys. Wiped when dropped; not printable.
pub struct Kek(SecretBytes<32>);

/// Where to read a key-encryption key from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KekSource {
    /// A file that only its owner, or a trusted group, can read ([`is_private`]).
    File(PathBuf),
    /// The standard output of a shell command.
    Command(OsString),
    /// An open file, which is read from its beginning.
    Descriptor(RawFd),
}

impl Kek {
    pub fn generate() -> Result<Self, KeyError> {
        let mut bytes = SecretBytes::new().map_err(KeyError::Memory)?;
        rand_bytes(&mut *bytes)?;
        Ok(Self(bytes))
    }

    /// Parses 64 hexadecimal digits and an optional newline.
    pub fn parse(text: &[u8]) -> Result<Self, KeyError> {
        let digits = text.strip_suffix(b"\n").unwrap_or(text);
        if digits.len() != DIGITS {
            return Err(KeyError::Malformed);
        }
        let mut bytes = SecretBytes::new().map_err(KeyError::Memory)?;
        for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(Self(bytes))
    }

    /// The text form that [`Self::parse`] reads, with a newline.
    pub fn text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(DIGITS + 1));
        for byte in *self.0 {
            for half in [byte >> 4, byte & 15] {
                text.push(char::from_digit(u32::from(half), 16).unwrap_or('0'));
            }
        }
        text.push('\n');
        text
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl KekSource {
    pub fn read(&self) -> Result<Kek, KeyError> {
        let kek = self.read_unwiped();
        wipe_stack();
        kek
    }

    #[inline(never)]
    fn read_unwiped(&self) -> Result<Kek, KeyError> {
        match self {
            Self::File(path) => from_file(path),
            Self::Command(command) => from_command(command),
            // Opened again, so that each process that inherits the descriptor reads from the beginning.
            Self::Descriptor(descriptor) => {
                let path = PathBuf::from(format!("/proc/self/fd/{descriptor}"));
                from_reader(File::open(&path).doing("read", &path)?, &path)
            }
        }
    }
}

fn digit(byte: u8) -> Result<u8, KeyError> {
    char::from(byte).to_digit(16).map(|digit| digit as u8).ok_or(KeyError::Malformed)
}

fn from_file(path: &Path) -> Result<Kek, KeyError> {
    let file = File::open(path).doing("read", path)?;
    // Metadata of the open file: the path may have been replaced meanwhile.
    let metadata = file.metadata().doing("read", path)?;
    if !is_private(&metadata)? {
        return Err(KeyError::Exposed {
            path: path.to_owned(),
            mode: metadata.mode() & 0o7777,
            owner: metadata.uid(),
            group: metadata.gid(),
        });
    }
    from_reader(file, path)
}

/// Whether a file is accessible only to its owner, or readable also by a trusted group: root or this process's user owns
/// the file, and its group is root's or one of this process. Kubernetes volumes with `fsGroup` and systemd credentials
/// are such files.
fn is_private(file: &Metadata) -> Result<bool, KeyError> {
    let shared = file.mode() & 0o077;
    if shared != 0o040 {
        return Ok(shared == 0);
    }
    let own_groups = getgroups().map_err(|error| KeyError::Groups(error.into()))?;
    let group = Gid::from_raw(file.gid());
    let by_owner = [0, geteuid().as_raw()].contains(&file.uid());
    Ok(by_owner && (group.as_raw() == 0 || group == getegid() || own_groups.contains(&group)))
}

fn from_command(command: &OsString) -> Result<Kek, KeyError> {
    let failed = |error: std::io::Error| KeyError::Command(format!("cannot be run: {error}"));
    let mut child = Command::new("/bin/sh")
        .arg("-c")
        .arg(command)
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let output = child.stdout.take().map(|stdout| from_reader(stdout, Path::new("the command's output")));
    let status = child.wait().map_err(failed)?;
    if !status.success() {
        return Err(KeyError::Command(format!("ended with {status}")));
    }
    output.unwrap_or(Err(KeyError::Malformed))
}

fn from_reader(mut reader: impl Read, path: &Path) -> Result<Kek, KeyError> {
    // One byte more than the maximum, to detect longer input.
    let mut text = Zeroizing::new([0_u8; DIGITS + 2]);
    let mut held = 0;
    while held < text.len() {
        match reader.read(&mut text[held..]) {
            Ok(0) => break,
            Ok(count) => held += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).doing("read", path),
        }
    }
    let key = Kek::parse(&text[..held]);
    text.zeroize();
    key
}
