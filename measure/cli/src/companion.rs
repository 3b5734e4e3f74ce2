//! A child process that is started before this one gives up its rights, and does what a confined process cannot.

use std::io::{self, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ciphertoll_model::ExitCode;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd as _;

use crate::failure::Failure;
use crate::program::program;

/// Of a question and of an answer.
const MAX_BYTES: usize = 4 << 20;

/// It waits for one line on its stdin, writes one document to its stdout, and ends. It also ends if this process does: then its stdin
/// ends.
pub(crate) struct Companion(Child);

impl Companion {
    /// Starts one of this program's hidden commands, in a process group of its own: Ctrl-C is for this process.
    pub(crate) fn start(command: &str, arguments: &[String]) -> Result<Self, Failure> {
        Command::new(program()?)
            .arg(command)
            .args(arguments)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .map(Self)
            .map_err(|error| Failure::new(ExitCode::HostResource, format!("cannot start a process: {error}")))
    }

    /// Its answer to a line. A confined process may call it.
    pub(crate) fn ask(mut self, question: &str, limit: Duration) -> io::Result<String> {
        let end = Instant::now() + limit;
        // The end of its stdin ends the question.
        if let Some(mut stdin) = self.0.stdin.take() {
            stdin.write_all(question.as_bytes())?;
            stdin.write_all(b"\n")?;
        }
        let mut stdout = self.0.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut answer = Vec::new();
        loop {
            let left = PollTimeout::try_from(end.saturating_duration_since(Instant::now()))
                .unwrap_or(PollTimeout::ZERO);
            if poll(&mut [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)], left)? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let mut part = [0; 16 << 10];
            match stdout.read(&mut part)? {
                0 => break,
                length => answer.extend_from_slice(&part[..length]),
            }
            if answer.len() > MAX_BYTES {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
        }
        String::from_utf8(answer).map_err(|_| io::ErrorKind::InvalidData.into())
    }
}

/// In the child: the question. `None` if the parent ended without one.
pub(crate) fn question() -> io::Result<Option<String>> {
    let mut text = String::new();
    io::stdin().lock().take(MAX_BYTES as u64).read_to_string(&mut text)?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}
