//! A client connection at the level of messages, to a server or a proxy.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::message::{Frontend, Message};
use crate::session::{Cuts, cut};
use crate::waiting::let_read;

pub(crate) struct Connection {
    stream: UnixStream,
    received: Vec<u8>,
    pub(crate) process_id: u32,
    /// The settings that were reported, with their last values.
    pub(crate) settings: BTreeMap<String, String>,
    /// The peer has closed the connection.
    pub(crate) ended: bool,
    /// Messages that came before those of the direct answer.
    pub(crate) early: Vec<Message>,
    /// Messages of direct answers that have not come yet.
    pub(crate) late: Vec<Message>,
    /// The status of the last `ReadyForQuery`.
    pub(crate) status: u8,
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) String);

impl Connection {
    /// Logs in without a password.
    pub(crate) fn open(
        socket: &Path,
        user: &str,
        database: &str,
        settings: &[(String, String)],
        limit: Duration,
    ) -> Result<Self, Refused> {
        let stream = UnixStream::connect(socket).map_err(|error| Refused(error.to_string()))?;
        stream.set_nonblocking(true).expect("a socket");
        let settings_of_login = settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut body = 196_608_u32.to_be_bytes().to_vec();
        for (name, value) in [("user", user), ("database", database)].into_iter().chain(settings_of_login) {
            body.extend([name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat());
        }
        body.push(0);
        let mut bytes = (body.len() as u32 + 4).to_be_bytes().to_vec();
        bytes.extend(body);
        let settings = BTreeMap::new();
        let mut connection = Self {
            stream,
            received: Vec::new(),
            process_id: 0,
            settings,
            ended: false,
            early: Vec::new(),
            late: Vec::new(),
            status: 0,
        };
        connection.write(&bytes);
        let until = Instant::now() + limit;
        loop {
            match connection.next(until) {
                Some(Message { kind: b'R', body }) if body == [0; 4] => {}
                Some(Message { kind: b'K', body }) => {
                    connection.process_id = u32::from_be_bytes([body[0], body[1], body[2], body[3]]);
                }
                Some(Message { kind: b'Z', .. }) => return Ok(connection),
                Some(Message { kind: b'S' | b'N', .. }) => {}
                Some(other) => return Err(Refused(other.short())),
                None if connection.ended => return Err(Refused("the connection was closed".to_owned())),
                None => return Err(Refused("no answer to the login".to_owned())),
            }
        }
    }

    /// Sends messages in parts; `reader` is the process that shall read each part by itself.
    pub(crate) fn send(&mut self, messages: &[Frontend], cuts: &Cuts, reader: u32) {
        let mut bytes = Vec::new();
        for message in messages {
            message.encode(&mut bytes);
        }
        let parts = cut(&bytes, cuts);
        for (number, part) in parts.iter().enumerate() {
            if number > 0 {
                let_read(reader);
            }
            self.write(part);
        }
        if messages.iter().any(|message| matches!(message, Frontend::HalfClose)) {
            // It may have been closed by the peer.
            let _ = self.stream.shutdown(Shutdown::Write);
        }
    }

    /// A peer that has closed the connection reads nothing; its answers tell why.
    fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.read(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
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
                // Unread bytes make the kernel reset the connection.
                Err(_) => self.ended = true,
            }
        }
    }

    /// A message that has come.
    pub(crate) fn take(&mut self) -> Option<Message> {
        let message = Message::take(&mut self.received)?;
        match message.kind {
            b'S' => {
                let mut parts = message.body.split(|&byte| byte == 0).map(String::from_utf8_lossy);
                if let (Some(name), Some(value)) = (parts.next(), parts.next()) {
                    self.settings.insert(name.into_owned(), value.into_owned());
                }
            }
            b'Z' => self.status = message.body[0],
            _ => {}
        }
        Some(message)
    }

    /// The next message; `None` at the end of the stream, or when time is up.
    pub(crate) fn next(&mut self, until: Instant) -> Option<Message> {
        loop {
            if let Some(message) = self.take() {
                return Some(message);
            }
            if self.ended || !self.wait(until) {
                return self.take();
            }
        }
    }

    /// Waits until something has come and reads it.
    pub(crate) fn wait(&mut self, until: Instant) -> bool {
        self.read();
        if self.ended || !self.received.is_empty() && self.has_message() {
            return true;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        self.stream.set_nonblocking(false).expect("a socket");
        self.stream.set_read_timeout(Some(left)).expect("a time that is not 0");
        let mut chunk = [0; 16_384];
        match self.stream.read(&mut chunk) {
            Ok(0) => self.ended = true,
            Ok(read) => self.received.extend(&chunk[..read]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.ended = true,
        }
        self.stream.set_nonblocking(true).expect("a socket");
        true
    }

    fn has_message(&self) -> bool {
        self.received
            .first_chunk::<5>()
            .is_some_and(|&[_, a, b, c, d]| self.received.len() > u32::from_be_bytes([a, b, c, d]) as usize)
    }

    /// Everything up to the next `ReadyForQuery`; `None` if it does not come.
    pub(crate) fn query(&mut self, sql: &str, limit: Duration) -> Option<Vec<Message>> {
        self.send(&[Frontend::Query(sql.to_owned())], &Cuts::new(), 0);
        let until = Instant::now() + limit;
        let mut messages = Vec::new();
        loop {
            let message = self.next(until)?;
            let ends = message.kind == b'Z';
            messages.push(message);
            if ends {
                return Some(messages);
            }
        }
    }
}

/// The columns of the rows, in text; and errors.
pub(crate) fn rows(messages: &[Message]) -> Vec<String> {
    let mut rows = Vec::new();
    for message in messages {
        match message.kind {
            b'E' => rows.push(message.short()),
            b'D' => {
                let (mut rest, mut columns) = (&message.body[2..], Vec::new());
                while let Some((length, after)) = rest.split_first_chunk::<4>() {
                    let length = i32::from_be_bytes(*length);
                    let (value, after) = after.split_at(usize::try_from(length).unwrap_or(0));
                    columns.push(if length < 0 { "NULL".into() } else { String::from_utf8_lossy(value) });
                    rest = after;
                }
                rows.push(columns.join("|"));
            }
            _ => {}
        }
    }
    rows
}
