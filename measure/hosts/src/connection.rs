//! The coordinator's end of one transport: a child process whose pipes never block.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mio::unix::pipe::{Receiver, Sender};
use mio::{Interest, Registry, Token};
use zeroize::Zeroizing;

use crate::protocol::MAX_LINE_BYTES;

/// How much of the transport's complaint is quoted.
const MAX_COMPLAINT_BYTES: usize = 400;
/// Time for a transport to end after its stdout has.
const END_TIME_LIMIT: Duration = Duration::from_millis(300);
/// Time for an agent to remove its files after the end of its stdin.
const TIDY_TIME_LIMIT: Duration = Duration::from_secs(5);
const BUFFER_BYTES: usize = 1 << 14;

/// A stream of a connection, and the number that its token adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdin,
    Stdout,
    Stderr,
}

impl Stream {
    const ALL: [Self; 3] = [Self::Stdin, Self::Stdout, Self::Stderr];

    pub(crate) fn token(self, host: usize) -> Token {
        Token(host * Self::ALL.len() + self as usize)
    }

    pub(crate) fn of(token: Token) -> (usize, Self) {
        (token.0 / Self::ALL.len(), Self::ALL[token.0 % Self::ALL.len()])
    }
}

enum Chunk {
    Line(Zeroizing<Vec<u8>>),
    Shared(Arc<Vec<u8>>),
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Line(line) => line,
            Self::Shared(content) => content,
        }
    }
}

/// Killed when dropped, unless it has ended.
pub(crate) struct Connection {
    child: Child,
    stdin: Option<Sender>,
    stdout: Receiver,
    stderr: Option<Receiver>,
    outgoing: VecDeque<Chunk>,
    /// Of the first chunk, already written.
    written: usize,
    incoming: Vec<u8>,
    complaint: Complaint,
    /// When a byte was read or written last.
    pub(crate) moved: Instant,
}

/// The last line on stderr, after the last one with a cause: a failed jump host complains first, and then `ssh` about the
/// connection that the jump host did not make.
#[derive(Default)]
struct Complaint {
    cause: String,
    last: String,
    line: Vec<u8>,
}

impl Connection {
    pub(crate) fn start(mut command: Command, host: usize, registry: &Registry) -> io::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // The coordinator handles Ctrl-C.
            .process_group(0)
            .spawn()?;
        let missing = || io::Error::other("a pipe is missing");
        let mut stdin = Sender::from(child.stdin.take().ok_or_else(missing)?);
        let mut stdout = Receiver::from(child.stdout.take().ok_or_else(missing)?);
        let mut stderr = Receiver::from(child.stderr.take().ok_or_else(missing)?);
        stdin.set_nonblocking(true)?;
        stdout.set_nonblocking(true)?;
        stderr.set_nonblocking(true)?;
        registry.register(&mut stdin, Stream::Stdin.token(host), Interest::WRITABLE)?;
        registry.register(&mut stdout, Stream::Stdout.token(host), Interest::READABLE)?;
        registry.register(&mut stderr, Stream::Stderr.token(host), Interest::READABLE)?;
        Ok(Self {
            child,
            stdin: Some(stdin),
            stdout,
            stderr: Some(stderr),
            outgoing: VecDeque::new(),
            written: 0,
            incoming: Vec::new(),
            complaint: Complaint::default(),
            moved: Instant::now(),
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line, now or as soon as the pipe has room. If the host is gone, the end of stdout says so.
    pub(crate) fn send(&mut self, line: Zeroizing<Vec<u8>>) {
        self.outgoing.push_back(Chunk::Line(line));
        self.write();
    }

    pub(crate) fn send_content(&mut self, content: Arc<Vec<u8>>) {
        self.outgoing.push_back(Chunk::Shared(content));
        self.write();
    }

    /// Writes as much as the pipe takes.
    pub(crate) fn write(&mut self) {
        let Some(stdin) = &mut self.stdin else { return };
        while let Some(chunk) = self.outgoing.front() {
            let rest = &chunk.bytes()[self.written..];
            if rest.is_empty() {
                self.outgoing.pop_front();
                self.written = 0;
                continue;
            }
            match stdin.write(rest) {
                Ok(written) => {
                    self.written += written;
                    self.moved = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.outgoing.clear();
                    self.stdin = None;
                    return;
                }
            }
        }
    }

    /// Reads all that is there and passes each line to `line`. False at the end, or after a line that is too long.
    pub(crate) fn read(&mut self, mut line: impl FnMut(&[u8])) -> bool {
        let mut buffer = [0; BUFFER_BYTES];
        loop {
            match self.stdout.read(&mut buffer) {
                Ok(0) => return false,
                Ok(read) => {
                    self.moved = Instant::now();
                    let from = self.incoming.len();
                    self.incoming.extend_from_slice(&buffer[..read]);
                    self.split(from, &mut line);
                    if self.incoming.len() > MAX_LINE_BYTES {
                        self.complaint.last = format!("it sent a line of more than {MAX_LINE_BYTES} bytes");
                        return false;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
    }

    /// Passes on the complete lines; `from` is where the new bytes begin.
    fn split(&mut self, from: usize, line: &mut impl FnMut(&[u8])) {
        let (mut begins, mut searched) = (0, from);
        while let Some(at) = self.incoming[searched..].iter().position(|&byte| byte == b'\n') {
            let end = searched + at;
            line(&self.incoming[begins..end]);
            begins = end + 1;
            searched = begins;
        }
        self.incoming.drain(..begins);
    }

    pub(crate) fn read_complaint(&mut self) {
        let mut buffer = [0; 4096];
        let Some(stderr) = &mut self.stderr else { return };
        loop {
            match stderr.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => self.complaint.add(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => break,
            }
        }
        self.stderr = None;
    }

    pub(crate) fn close_input(&mut self) {
        self.stdin = None;
    }

    /// How it ended, in one line.
    pub(crate) fn how_it_ended(&mut self) -> String {
        self.stdin = None;
        let until = Instant::now() + END_TIME_LIMIT;
        let status = loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(2)),
                Ok(status) => break status,
                Err(_) => break None,
            }
        };
        self.read_complaint();
        let how = match status {
            None => "it closed the connection".to_owned(),
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("the connection ended with exit code {code}"),
                (None, Some(signal)) => format!("the connection was killed by signal {signal}"),
                (None, None) => "the connection ended".to_owned(),
            },
        };
        match self.complaint.text() {
            complaint if complaint.is_empty() => how,
            complaint => format!("{complaint} ({how})"),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // At the end of stdin the agent removes its files and ends, and then the transport does.
        self.close_input();
        let until = Instant::now() + TIDY_TIME_LIMIT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Complaint {
    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte == b'\n' {
                self.end_line();
            } else if self.line.len() < MAX_COMPLAINT_BYTES {
                self.line.push(byte);
            }
        }
    }

    fn end_line(&mut self) {
        let text = String::from_utf8_lossy(&self.line);
        let printable: String = text.trim().chars().filter(|character| !character.is_control()).collect();
        if !printable.is_empty() {
            if !is_consequence(&printable) {
                self.cause.clone_from(&printable);
            }
            self.last = printable;
        }
        self.line.clear();
    }

    fn text(&mut self) -> String {
        self.end_line();
        match self.cause.as_str() {
            cause if cause.is_empty() || !is_consequence(&self.last) => self.last.clone(),
            cause => format!("{cause}; {}", self.last),
        }
    }
}

/// What `ssh` says about a connection that something else has ended.
fn is_consequence(line: &str) -> bool {
    ["Connection closed by ", "Connection reset by ", "kex_exchange_identification: Connection "]
        .iter()
        .any(|start| line.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_host_is_quoted() {
        let text = |said: &str| {
            let mut complaint = Complaint::default();
            complaint.add(said.as_bytes());
            complaint.text()
        };
        assert_eq!(
            text(
                "ada@jump: Permission denied (publickey).\r\nkex_exchange_identification: Connection closed by \
                  remote host\nConnection closed by UNKNOWN port 65535\n"
            ),
            "ada@jump: Permission denied (publickey).; Connection closed by UNKNOWN port 65535"
        );
        assert_eq!(
            text("Connection closed by UNKNOWN port 65535"),
            "Connection closed by UNKNOWN port 65535"
        );
        assert_eq!(text("a warning\nload1: Permission denied\n"), "load1: Permission denied");
    }
}
