//! The key-encryption key (KEK) and its sources.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{Read, Write};
use std::os::fd::{AsFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Gid, Pid, getegid, geteuid, getgroups};
use openssl::rand::rand_bytes;
use zeroize::{Zeroize, Zeroizing};

use crate::error::{Doing, KeyError};
use crate::secret::{SecretBytes, wipe_stack};

/// Hexadecimal digits of a key.
const DIGITS: usize = 64;
/// How long a command for a key may take; somebody may have to type a passphrase. `pg_ctl` waits as long for a server.
const COMMAND_LIMIT: Duration = Duration::from_mins(1);
/// After this time, a message says what is waited for.
const COMMAND_NOTICE: Duration = Duration::from_secs(5);
/// Interval between checks whether a command that has closed its output has ended.
const END_INTERVAL: Duration = Duration::from_millis(10);

/// A key-encryption key, which wraps data-encryption keys. Wiped when dropped; not printable.
pub struct Kek(SecretBytes<32>);

/// Where to read a key-encryption key from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KekSource {
    /// A file that only its owner, or a trusted group, can read (`is_private`).
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
        self.read_within(COMMAND_LIMIT)
    }

    /// The same with another time limit for a command.
    pub fn read_within(&self, limit: Duration) -> Result<Kek, KeyError> {
        let kek = self.read_unwiped(limit);
        wipe_stack();
        kek
    }

    #[inline(never)]
    fn read_unwiped(&self, limit: Duration) -> Result<Kek, KeyError> {
        match self {
            Self::File(path) => from_file(path),
            Self::Command(command) => from_command(command, limit),
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

fn from_command(command: &OsString, limit: Duration) -> Result<Kek, KeyError> {
    let failed = |error: std::io::Error| KeyError::Command(format!("cannot be run: {error}"));
    let mut child = Command::new("/bin/sh")
        .arg("-c")
        .arg(command)
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let deadline = Instant::now() + limit;
    let output = match child.stdout.take() {
        Some(stdout) => from_reader(
            Timed { stdout, deadline, notice: NoticeState::Due },
            Path::new("the command's output"),
        ),
        None => Err(KeyError::Malformed),
    };
    let Some(status) = end_of(&mut child, deadline).map_err(failed)? else {
        end_tree(Pid::from_raw(child.id().cast_signed()));
        child.wait().map_err(failed)?;
        return Err(KeyError::Command(format!(
            "gave no key within {} s, and was ended",
            limit.as_secs_f64()
        )));
    };
    if !status.success() {
        return Err(KeyError::Command(format!("ended with {status}")));
    }
    output
}

/// How a child ended; `None` if it still runs at the deadline.
fn end_of(child: &mut Child, deadline: Instant) -> std::io::Result<Option<ExitStatus>> {
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() >= deadline {
            return Ok(status);
        }
        std::thread::sleep(END_INTERVAL);
    }
}

/// Ends a process and its descendants. The command has no process group of its own: it could then not read a passphrase from
/// the terminal.
fn end_tree(process: Pid) {
    // A stopped process starts no others meanwhile. Errors mean that it has just ended.
    let _ = kill(process, Signal::SIGSTOP);
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    for child in children.unwrap_or_default().split_whitespace().filter_map(|number| number.parse().ok()) {
        end_tree(Pid::from_raw(child));
    }
    let _ = kill(process, Signal::SIGKILL);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoticeState {
    Due,
    Given,
}

/// The output of a command until a deadline.
struct Timed {
    stdout: ChildStdout,
    deadline: Instant,
    notice: NoticeState,
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            let wait = if self.notice == NoticeState::Due { left.min(COMMAND_NOTICE) } else { left };
            let timeout = PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.stdout.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(0) if left <= wait => return Err(std::io::ErrorKind::TimedOut.into()),
                Ok(0) => {
                    self.notice = NoticeState::Given;
                    // Standard error may be closed.
                    drop(writeln!(
                        std::io::stderr(),
                        "ciphertoll-tde: waiting for the command for the key-encryption key, for at most {} s more",
                        left.saturating_sub(wait).as_secs()
                    ));
                }
                Ok(_) => return self.stdout.read(bytes),
                Err(error) => return Err(error.into()),
            }
        }
    }
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
