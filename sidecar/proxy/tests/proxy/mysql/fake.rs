//! A server with behaviour that a real one does not show: it asks for files, and goes away and comes back.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use ciphertoll_wire::mysql::Capabilities;
use ciphertoll_wire::mysql::auth::native_password;
use ciphertoll_wire::mysql::column::encode_text_column;
use ciphertoll_wire::mysql::greeting::Greeting;
use ciphertoll_wire::mysql::ok::OkPacket;
use ciphertoll_wire::mysql::relay::RELAYED;
use ciphertoll_wire::mysql::server::{self, ClientMessage};

const OFFERED: Capabilities = RELAYED
    .with(Capabilities::LONG_PASSWORD)
    .with(Capabilities::PROTOCOL_41)
    .with(Capabilities::CONNECT_WITH_DB)
    .with(Capabilities::SECURE_CONNECTION)
    .with(Capabilities::PLUGIN_AUTH);
const SETTINGS: &[u8] = b"\x07utf8mb4\x12utf8mb4_general_ci\x07utf8mb4\x00\x0528800\x011\x06SYSTEM";

/// Closes everything when dropped.
pub(crate) struct FakeServer {
    port: u16,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
    listener: Option<(TcpListener, JoinHandle<()>)>,
}

impl FakeServer {
    pub(crate) fn start() -> Self {
        Self::over(TcpListener::bind(("127.0.0.1", 0)).expect("a port is free"))
    }

    /// On the port of one that has ended.
    pub(crate) fn again(port: u16) -> Self {
        Self::over(TcpListener::bind(("127.0.0.1", port)).expect("the port is free"))
    }

    fn over(listener: TcpListener) -> Self {
        let port = listener.local_addr().expect("it is bound").port();
        let sockets = Arc::new(Mutex::new(Vec::new()));
        let (ours, shared) = (listener.try_clone().expect("another handle"), Arc::clone(&sockets));
        let accepting = thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let Ok(kept) = stream.try_clone() else { return };
                shared.lock().expect("no panic").push(kept);
                // Ends when the client disconnects.
                thread::spawn(move || serve(stream));
            }
        });
        Self { port, sockets, listener: Some((ours, accepting)) }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(port: u16) -> String {
        format!("mysql://toll@127.0.0.1:{port}/shop?ssl-mode=DISABLED")
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        if let Some((listener, accepting)) = self.listener.take() {
            // Wakes the accepting thread.
            let _ = nix::sys::socket::shutdown(
                std::os::fd::AsRawFd::as_raw_fd(&listener),
                nix::sys::socket::Shutdown::Both,
            );
            let _ = accepting.join();
        }
        for socket in self.sockets.lock().expect("no panic").drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn serve(mut stream: TcpStream) -> Option<()> {
    let greeting = Greeting {
        version: b"8.0.99-fake",
        connection_id: 7,
        nonce: *b"abcdefghijklmnopqrst",
        capabilities: OFFERED,
        character_set: 45,
        status: 2,
        plugin: native_password::NAME,
    };
    send(&mut stream, |out| server::write_greeting(out, &greeting).ok())?;
    let (_, payload) = packet(&mut stream)?;
    let mut login = Vec::new();
    server::write_payload(&mut login, 1, &payload).ok()?;
    let agreed = match server::read_login(&mut login.as_slice(), 1).ok()?? {
        ClientMessage::Login(login) => login.head.capabilities,
        ClientMessage::TlsRequest(_) => return None,
    };
    let ok = |rows: u64| OkPacket { affected_rows: rows, status: 2, ..OkPacket::default() };
    send(&mut stream, |out| server::write_ok(out, 2, &ok(0)).ok())?;
    loop {
        let (_, payload) = packet(&mut stream)?;
        let text = String::from_utf8_lossy(payload.get(1..)?).into_owned();
        match payload[0] {
            0x01 => return None,
            0x03 if text == "FAIL" => {
                send(&mut stream, |out| {
                    server::write_payload(out, 1, b"\xff\x28\x04#42000failed").ok().map(drop)
                })?;
            }
            // Without an answer.
            0x03 if text == "VANISH" => return stream.shutdown(Shutdown::Both).ok(),
            0x03 if text.starts_with("SELECT @@") => {
                send(&mut stream, |out| result(out, agreed, 7, Some(SETTINGS)))?;
            }
            0x03 if text.starts_with("SELECT") => send(&mut stream, |out| result(out, agreed, 1, None))?,
            0x03 if text.starts_with("LOAD") => {
                send(&mut stream, |out| server::write_payload(out, 1, b"\xfbfile").ok().map(drop))?;
                let (mut bytes, mut number) = (0, 2);
                loop {
                    let (sequence, part) = packet(&mut stream)?;
                    if sequence != number {
                        return None;
                    }
                    number = sequence.wrapping_add(1);
                    if part.is_empty() {
                        break;
                    }
                    bytes += part.len();
                }
                send(&mut stream, |out| server::write_ok(out, number, &ok(bytes as u64)).ok())?;
            }
            _ => send(&mut stream, |out| server::write_ok(out, 1, &ok(0)).ok())?,
        }
    }
}

/// A result of text columns with one row or none.
fn result(out: &mut Vec<u8>, agreed: Capabilities, columns: u8, row: Option<&[u8]>) -> Option<()> {
    let mut sequence = server::write_payload(out, 1, &[columns]).ok()?;
    for _ in 0..columns {
        let mut definition = Vec::new();
        encode_text_column(&mut definition, b"c", 45);
        sequence = server::write_payload(out, sequence, &definition).ok()?;
    }
    let mut end = Vec::new();
    OkPacket { status: 2, ..OkPacket::default() }.encode_end_of_rows(&mut end, agreed);
    if !agreed.contains(Capabilities::DEPRECATE_EOF) {
        sequence = server::write_payload(out, sequence, &end).ok()?;
    }
    if let Some(row) = row {
        sequence = server::write_payload(out, sequence, row).ok()?;
    }
    server::write_payload(out, sequence, &end).ok().map(drop)
}

fn send(stream: &mut TcpStream, write: impl FnOnce(&mut Vec<u8>) -> Option<()>) -> Option<()> {
    let mut out = Vec::new();
    write(&mut out)?;
    stream.write_all(&out).ok()
}

fn packet(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut header = [0; 4];
    stream.read_exact(&mut header).ok()?;
    let [low, middle, high, sequence] = header;
    let mut payload = vec![0; u32::from_le_bytes([low, middle, high, 0]) as usize];
    stream.read_exact(&mut payload).ok()?;
    Some((sequence, payload))
}
