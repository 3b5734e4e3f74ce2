//! A client connection at the level of packets, to a server or a proxy.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use ciphertoll_wire::mysql::Capabilities;

use super::UTF8MB4;
use super::command::{Command, Names};
use super::raw::RawClient;
use crate::session::{Cuts, cut};
use crate::waiting::let_read;

/// A statement that was not prepared.
const SLOTS: usize = 4;
/// What a client sends when it is asked for a file.
const FILE: &[u8] = b"20\tfile\n21\tmore\n";
pub(crate) const ASKS_FOR_FILE: u8 = 0xfb;

pub(crate) struct Connection {
    stream: UnixStream,
    received: Vec<u8>,
    /// The number of the greeting.
    pub(crate) number: u32,
    pub(crate) ended: bool,
    pub(crate) slots: Vec<Option<u32>>,
    sequence: u8,
}

/// `ER_LOCK_WAIT_TIMEOUT`.
pub(crate) const LOCKED: u16 = 1205;

/// A packet, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) sequence: u8,
    pub(crate) payload: Vec<u8>,
}

impl Packet {
    pub(crate) fn is_of_lock_timeout(&self) -> bool {
        let [low, high] = LOCKED.to_le_bytes();
        self.payload.starts_with(&[0xff, low, high])
    }
}

impl Connection {
    pub(crate) fn open(
        socket: &Path,
        user: &str,
        database: Option<&str>,
        capabilities: Capabilities,
    ) -> Result<Self, String> {
        let raw = RawClient::log_in(socket, user, database, capabilities, UTF8MB4)
            .map_err(|error| error.to_string())?;
        raw.stream.set_nonblocking(true).expect("a socket");
        Ok(Self {
            stream: raw.stream,
            received: Vec::new(),
            number: raw.connection_id,
            ended: false,
            slots: vec![None; SLOTS],
            sequence: 0,
        })
    }

    /// Sends commands in parts; `reader` is the process that shall read each part by itself.
    pub(crate) fn send(&mut self, user: &str, commands: &[Command], cuts: &Cuts, reader: u32) {
        let mut bytes = Vec::new();
        let names = Names { user, slots: &self.slots };
        for command in commands {
            command.encode(&names, &mut bytes);
        }
        for (number, part) in cut(&bytes, cuts).into_iter().enumerate() {
            if number > 0 {
                let_read(reader);
            }
            self.write(part);
        }
        if commands.iter().any(|command| matches!(command, Command::HalfClose)) {
            // It may have been closed by the peer.
            let _ = self.stream.shutdown(Shutdown::Write);
        }
    }

    /// Sends the file that the server has just asked for.
    pub(crate) fn send_file(&mut self) {
        let mut bytes = Vec::new();
        for (number, content) in [FILE, b""].into_iter().enumerate() {
            let sequence = self.sequence.wrapping_add(1 + number as u8);
            bytes.extend(&(content.len() as u32).to_le_bytes()[..3]);
            bytes.push(sequence);
            bytes.extend(content);
        }
        self.write(&bytes);
    }

    /// A proof of an empty password.
    pub(crate) fn send_empty(&mut self) {
        self.write(&[0, 0, 0, self.sequence.wrapping_add(1)]);
    }

    fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.read(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A peer that has closed the connection reads nothing.
                Err(_) => return,
            }
        }
    }

    /// Reads what has come.
    pub(crate) fn read(&mut self) {
        let mut chunk = [0; 16_384];
        while !self.ended {
            match self.stream.read(&mut chunk) {
                Ok(0) => self.ended = true,
                Ok(read) => self.received.extend(&chunk[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.ended = true,
            }
        }
    }

    /// A packet that has come.
    pub(crate) fn take(&mut self) -> Option<Packet> {
        let &[low, middle, high, sequence] = self.received.first_chunk::<4>()?;
        let end = u32::from_le_bytes([low, middle, high, 0]) as usize + 4;
        if self.received.len() < end {
            return None;
        }
        let payload = self.received[4..end].to_vec();
        self.received.drain(..end);
        self.sequence = sequence;
        Some(Packet { sequence, payload })
    }

    /// The next packet; `None` at the end of the stream, or when time is up.
    pub(crate) fn next(&mut self, until: Instant) -> Option<Packet> {
        loop {
            if let Some(packet) = self.take() {
                return Some(packet);
            }
            if self.ended {
                return None;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.read();
                return self.take();
            }
            self.wait(left);
        }
    }

    fn wait(&mut self, limit: Duration) {
        self.stream.set_nonblocking(false).expect("a socket");
        self.stream.set_read_timeout(Some(limit)).expect("a time that is not 0");
        let mut chunk = [0; 16_384];
        match self.stream.read(&mut chunk) {
            Ok(0) => self.ended = true,
            Ok(read) => self.received.extend(&chunk[..read]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.ended = true,
        }
        self.stream.set_nonblocking(true).expect("a socket");
    }
}

impl Packet {
    pub(crate) fn error_code(&self) -> Option<u16> {
        match self.payload[..] {
            [0xff, low, high, ..] => Some(u16::from_le_bytes([low, high])),
            _ => None,
        }
    }

    /// Whether a server asks for another proof, as some do after each `COM_CHANGE_USER`.
    pub(crate) fn asks_for_proof(&self) -> bool {
        self.payload.starts_with(b"\xfemysql_native_password\0")
    }

    /// Its kind, and for errors the number and text.
    pub(crate) fn short(&self) -> String {
        let text = String::from_utf8_lossy(&self.payload);
        match (self.error_code(), self.payload.first()) {
            (Some(code), _) => format!("error {code} {}", text.chars().skip(9).collect::<String>()),
            (None, Some(0)) => "OK or row".to_owned(),
            (None, Some(0xfe)) => "end".to_owned(),
            (None, Some(_)) => "packet".to_owned(),
            (None, None) => "empty packet".to_owned(),
        }
    }

    pub(crate) fn text(&self) -> String {
        match self.error_code() {
            Some(_) => format!("#{} {}", self.sequence, self.short()),
            None => format!("#{} {}", self.sequence, self.payload.escape_ascii()),
        }
    }
}
