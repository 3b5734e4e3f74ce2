//! A client connection at the level of packets.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use ciphertoll_wire::mysql::err::ErrPacket;
use ciphertoll_wire::mysql::greeting::Greeting;
use ciphertoll_wire::mysql::ok::OkPacket;
use ciphertoll_wire::mysql::{self, Capabilities, MySqlConnect, MySqlLogin, Terms, command, server};
use ciphertoll_wire::{Secret, Step};

use crate::process::LONG;

/// Capabilities of most clients.
pub(crate) const USUAL: Capabilities = Capabilities::TRANSACTIONS
    .with(Capabilities::MULTI_RESULTS)
    .with(Capabilities::PS_MULTI_RESULTS)
    .with(Capabilities::DEPRECATE_EOF);
pub(crate) const UTF8MB4: u8 = 45;

pub(crate) struct RawClient {
    pub(crate) stream: UnixStream,
    pub(crate) capabilities: Capabilities,
    pub(crate) connection_id: u32,
    /// The challenge of the greeting.
    pub(crate) nonce: Vec<u8>,
}

pub(crate) type Payloads = Vec<Vec<u8>>;

impl RawClient {
    /// Connects without sending anything.
    pub(crate) fn silent(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("the proxy listens");
        stream.set_read_timeout(Some(LONG)).expect("a limit");
        Self { stream, capabilities: Capabilities::default(), connection_id: 0, nonce: Vec::new() }
    }

    /// Logs in with these capabilities. An error is the server's or the proxy's.
    pub(crate) fn log_in(
        socket: &Path,
        user: &str,
        database: Option<&str>,
        capabilities: Capabilities,
        character_set: u8,
    ) -> Result<Self, mysql::Error> {
        Self::log_in_with(socket, user, b"", database, capabilities, character_set)
    }

    pub(crate) fn log_in_with(
        socket: &Path,
        user: &str,
        password: &[u8],
        database: Option<&str>,
        capabilities: Capabilities,
        character_set: u8,
    ) -> Result<Self, mysql::Error> {
        let mut raw = Self::silent(socket);
        let password = Secret::new(password.to_vec());
        let login =
            MySqlLogin { database: database.map(ToOwned::to_owned), ..MySqlLogin::new(user, password) };
        let mut connect = MySqlConnect::pooled(Arc::new(login), Terms { capabilities, character_set });
        let (mut received, mut out) = (Vec::new(), Vec::new());
        loop {
            let mut input = received.as_slice();
            let step = connect.step(&mut input, &mut out);
            let unread = input.len();
            received.drain(..received.len() - unread);
            raw.send(&std::mem::take(&mut out));
            match step? {
                Step::Done => break,
                Step::NeedInput => {
                    let (sequence, payload) = raw.packet().expect("the login goes on");
                    if sequence == 0
                        && let Ok(greeting) = Greeting::parse(&payload)
                    {
                        raw.nonce = greeting.nonce.to_vec();
                    }
                    server::write_payload(&mut received, sequence, &payload).expect("it is short");
                }
                Step::Phase(_) | Step::StartTls | Step::OfferTls => {}
            }
        }
        let server = connect.server().expect("it is known at the end");
        raw.capabilities = server.capabilities;
        raw.connection_id = server.connection_id;
        Ok(raw)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the proxy takes bytes");
    }

    pub(crate) fn command(&mut self, payload: &[u8]) {
        let mut bytes = Vec::new();
        server::write_payload(&mut bytes, 0, payload).expect("it is not too long");
        self.send(&bytes);
    }

    pub(crate) fn query(&mut self, sql: &str) {
        let mut bytes = Vec::new();
        command::encode_query_on(self.capabilities, &mut bytes, sql).expect("a query");
        self.send(&bytes);
    }

    pub(crate) fn packet(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut header = [0; 4];
        self.stream.read_exact(&mut header)?;
        let [low, middle, high, sequence] = header;
        let mut payload = vec![0; u32::from_le_bytes([low, middle, high, 0]) as usize];
        self.stream.read_exact(&mut payload)?;
        Ok((sequence, payload))
    }

    /// One packet: an OK, an EOF or an ERR.
    pub(crate) fn word(&mut self) -> Vec<u8> {
        self.packet().expect("an answer").1
    }

    /// A complete response, which may have several results.
    pub(crate) fn results(&mut self) -> Payloads {
        let mut payloads = Vec::new();
        loop {
            let first = self.word();
            let status = match first.first() {
                Some(0x00) => OkPacket::parse(&first).expect("an OK").status,
                Some(0xff) => 0,
                _ => {
                    let columns = first[0];
                    payloads.push(first);
                    for _ in 0..columns {
                        payloads.push(self.word());
                    }
                    if !self.capabilities.contains(Capabilities::DEPRECATE_EOF) {
                        payloads.push(self.word());
                    }
                    let status = self.rows(&mut payloads);
                    if status & 8 == 0 {
                        return payloads;
                    }
                    continue;
                }
            };
            payloads.push(first);
            if status & 8 == 0 {
                return payloads;
            }
        }
    }

    /// Reads rows up to their end; returns the status flags there.
    pub(crate) fn rows(&mut self, payloads: &mut Payloads) -> u16 {
        loop {
            let row = self.word();
            let status = match row.as_slice() {
                // In an EOF after the warnings; in an OK after two numbers that are 0 here.
                [0xfe, _, _, low, high, ..] if row.len() < 0xff_ffff => {
                    Some(u16::from_le_bytes([*low, *high]))
                }
                [0xff, ..] => Some(0),
                _ => None,
            };
            payloads.push(row);
            if let Some(status) = status {
                return status;
            }
        }
    }

    /// The error number at the end of a response.
    pub(crate) fn error(payloads: &[Vec<u8>]) -> Option<u16> {
        ErrPacket::parse(payloads.last()?).ok().map(|err| err.code)
    }

    /// The single short value of a text result.
    pub(crate) fn value(&mut self, sql: &str) -> String {
        self.query(sql);
        let payloads = self.results();
        assert_eq!(Self::error(&payloads), None, "{sql}: {payloads:?}");
        let row = &payloads[payloads.len() - 2];
        String::from_utf8_lossy(&row[1..]).into_owned()
    }
}
