//! A child process that is started before this one gives up its rights, and does what a confined process cannot.
//!
//! It is a hidden command of the same program. Its input is a pipe, whose end, which the end of this process is, too, ends it.
//! Its output is one document.

use std::io::{self, Read, Write as _};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::Signal;

#[derive(Debug)]
pub struct Companion {
    input: ChildStdin,
    output: ChildStdout,
}

impl Companion {
    /// Starts it, without an environment. To be called on the main thread, and before rights are given up.
    pub fn start(program: &Path, arguments: &[&str]) -> io::Result<Self> {
        let mut command = Command::new(program);
        // Ctrl-C goes to all processes of a group. This one must answer before it ends.
        command.args(arguments).process_group(0).env_clear().current_dir("/");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        // A confined process cannot wait for it: init does.
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => Ok(Self { input, output }),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.input.write_all(bytes)
    }

    /// Ends its input. Returns its output: at most so many bytes, within this time, and unless a signal arrives.
    pub fn answer(self, most: usize, limit: Duration) -> io::Result<Vec<u8>> {
        drop(self.input);
        let answer = read_all(self.output, most, limit)?;
        if answer.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the process that was asked has ended"));
        }
        Ok(answer)
    }
}

/// In the child: it ends when the thread that started it does, whatever it is doing. To be called after a change of user, which
/// undoes it.
pub fn end_with_parent() -> io::Result<()> {
    Ok(prctl::set_pdeathsig(Signal::SIGKILL)?)
}

/// Reads to the end: at most so many bytes, and for at most so long.
fn read_all(mut from: impl Read + AsFd, most: usize, limit: Duration) -> io::Result<Vec<u8>> {
    let (begun, mut all, mut chunk) = (Instant::now(), Vec::new(), [0; 16 << 10]);
    loop {
        let left = limit.saturating_sub(begun.elapsed());
        if left.is_zero() || !is_readable(&from, left)? {
            let late = "the process that was asked does not answer";
            return Err(io::Error::new(io::ErrorKind::TimedOut, late));
        }
        match from.read(&mut chunk)? {
            0 => return Ok(all),
            read if all.len() + read > most => return Err(io::ErrorKind::FileTooLarge.into()),
            read => all.extend(&chunk[..read]),
        }
    }
}

/// Waits until something, or the end, can be read. A signal ends the wait with an error.
pub(crate) fn is_readable(from: &impl AsFd, most: Duration) -> io::Result<bool> {
    // A fraction of a millisecond would be rounded down to zero.
    let timeout =
        PollTimeout::try_from(most.saturating_add(Duration::from_millis(1))).unwrap_or(PollTimeout::MAX);
    Ok(poll(&mut [PollFd::new(from.as_fd(), PollFlags::POLLIN)], timeout)? > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn an_answer_is_read_whole_within_its_bounds() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"[]").unwrap();
        // It is still open.
        let late = read_all(reader.try_clone().unwrap(), 10, Duration::from_millis(50)).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        writer.write_all(b"0123456789").unwrap();
        drop(writer);
        assert_eq!(read_all(&reader, 10, LONG).unwrap(), b"0123456789");
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"01234567890").unwrap();
        let long = read_all(&reader, 10, LONG).unwrap_err();
        assert_eq!(long.kind(), io::ErrorKind::FileTooLarge);
    }
}
