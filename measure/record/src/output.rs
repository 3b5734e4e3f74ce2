//! Runs a program to its end, but not longer than a limit.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};

use crate::process::ProcessIdentity;

/// What is kept of the output of a program.
const MAX_OUTPUT_BYTES: u64 = 16 << 20;

/// How a program ended, and what it wrote.
#[derive(Debug)]
pub struct LimitedOutput {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl LimitedOutput {
    /// The last non-empty line on stderr, without control characters.
    pub fn complaint(&self) -> String {
        let text = String::from_utf8_lossy(&self.stderr);
        let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        last.trim().chars().filter(|character| !character.is_control()).collect()
    }
}

/// Runs `command` with `input` on stdin. Kills it after `limit`; that is an error of the kind [`io::ErrorKind::TimedOut`].
///
/// Input and output are files in memory and not pipes: a helper that the program leaves behind cannot delay the end.
pub fn output_within(mut command: Command, input: &[u8], limit: Duration) -> io::Result<LimitedOutput> {
    let mut stdin = memory_file()?;
    stdin.write_all(input)?;
    stdin.rewind()?;
    let (mut stdout, mut stderr) = (memory_file()?, memory_file()?);
    let mut child = command
        // Ctrl-C is for this process, which decides what ends.
        .process_group(0)
        .stdin(stdin)
        .stdout(Stdio::from(stdout.try_clone()?))
        .stderr(Stdio::from(stderr.try_clone()?))
        .spawn()?;
    // Not reaped yet, so the process has this id.
    let ended = ProcessIdentity::of(child.id().cast_signed()).and_then(|process| process.wait(limit));
    if !matches!(ended, Ok(true)) {
        child.kill()?;
        child.wait()?;
        ended?;
        return Err(io::Error::new(io::ErrorKind::TimedOut, format!("no end after {} s", limit.as_secs())));
    }
    let status = child.wait()?;
    Ok(LimitedOutput { status, stdout: contents(&mut stdout)?, stderr: contents(&mut stderr)? })
}

fn memory_file() -> io::Result<File> {
    Ok(memfd_create("ciphertoll", MemfdFlags::CLOEXEC)?.into())
}

fn contents(file: &mut File) -> io::Result<Vec<u8>> {
    let mut contents = Vec::new();
    file.rewind()?;
    file.take(MAX_OUTPUT_BYTES).read_to_end(&mut contents)?;
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn input_and_output_pass() {
        let output = output_within(
            shell("cat; echo no >&2; echo 'last line' >&2; exit 3"),
            b"in",
            Duration::from_mins(1),
        );
        let output = output.unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), b"in".as_slice()));
        assert_eq!(output.complaint(), "last line");
    }

    #[test]
    fn a_program_that_hangs_or_leaves_a_child_does_not_delay() {
        let started = Instant::now();
        let hung = output_within(shell("exec sleep 600"), b"", Duration::from_millis(50)).unwrap_err();
        assert_eq!(hung.kind(), io::ErrorKind::TimedOut);
        assert!(
            output_within(shell("sleep 20 & echo done"), b"", Duration::from_mins(1))
                .unwrap()
                .status
                .success()
        );
        assert!(started.elapsed() < Duration::from_secs(19));
    }
}
