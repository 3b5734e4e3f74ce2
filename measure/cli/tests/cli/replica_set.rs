//! A simulated replica set: relays to one server, each of which acts as a member. Like MongoDB's, a secondary refuses reads
//! without a suitable read preference.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ciphertoll_wire::mongodb::bson::{RawArrayBuf, RawDocument, RawDocumentBuf, cstr, rawdoc};
use ciphertoll_wire::mongodb::message::{self, MAX_MESSAGE_BYTES, OpMsg};

pub(crate) const SET: &str = "rs0";
/// What a far member's answers take longer.
const FAR: Duration = Duration::from_millis(200);
/// What is written to or read from the primary only, unless it says otherwise.
const READS: [&str; 2] = ["find", "count"];
/// `NotPrimaryNoSecondaryOk`.
const NO_SECONDARY_OK: i32 = 13435;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Primary,
    Secondary,
    FarSecondary,
}

/// A member, as it is seen from its relay.
struct Member {
    kind: Kind,
    address: SocketAddr,
    names: Vec<String>,
    server: SocketAddr,
    /// Reads that it has let through.
    reads: AtomicUsize,
}

pub(crate) struct ReplicaSet(Vec<Arc<Member>>);

impl ReplicaSet {
    /// One of these kinds, all of them before `server`. Their threads end with the test.
    pub(crate) fn before(server: SocketAddr, kinds: &[Kind]) -> Self {
        let listeners: Vec<TcpListener> =
            kinds.iter().map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port")).collect();
        let addresses: Vec<SocketAddr> =
            listeners.iter().map(|listener| listener.local_addr().expect("an address")).collect();
        let names: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let members = kinds.iter().zip(addresses).zip(listeners).map(|((&kind, address), listener)| {
            let reads = AtomicUsize::new(0);
            let member = Arc::new(Member { kind, address, names: names.clone(), server, reads });
            let own = Arc::clone(&member);
            thread::spawn(move || {
                for client in listener.incoming().flatten() {
                    let member = Arc::clone(&own);
                    thread::spawn(move || member.serve(&client));
                }
            });
            member
        });
        Self(members.collect())
    }

    pub(crate) fn address(&self, kind: Kind) -> SocketAddr {
        self.member(kind).address
    }

    pub(crate) fn reads(&self, kind: Kind) -> usize {
        self.member(kind).reads.load(Ordering::Relaxed)
    }

    fn member(&self, kind: Kind) -> &Member {
        self.0.iter().find(|member| member.kind == kind).expect("a member of that kind")
    }
}

impl Member {
    fn serve(&self, client: &TcpStream) {
        let Ok(server) = TcpStream::connect(self.server) else { return };
        let to_client = Mutex::new(client.try_clone().expect("a second handle"));
        let to_server = Mutex::new(server.try_clone().expect("a second handle"));
        thread::scope(|scope| {
            scope.spawn(|| {
                each_message(client, |whole, message| match self.refusal(&message) {
                    Some(refusal) => send(&to_client, &refusal),
                    None => send(&to_server, whole),
                });
                shut(&to_server);
            });
            each_message(&server, |whole, message| send(&to_client, &self.as_member(whole, &message)));
            shut(&to_client);
        });
    }

    /// The refusal of a secondary for a read without a suitable read preference.
    fn refusal(&self, message: &OpMsg<'_>) -> Option<Vec<u8>> {
        let (command, _) = message.body.iter().next()?.ok()?;
        if !READS.contains(&command.as_str()) {
            return None;
        }
        if self.kind != Kind::Primary && message.body.get("$readPreference").ok()?.is_none() {
            let refusal = rawdoc! {
                "ok": 0,
                "code": NO_SECONDARY_OK,
                "codeName": "NotPrimaryNoSecondaryOk",
                "errmsg": "not primary and secondaryOk=false",
            };
            return Some(reply(message.request_id, &refusal));
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// A message of the server's; its answer to `hello`, as this member would give it.
    fn as_member(&self, whole: &[u8], message: &OpMsg<'_>) -> Vec<u8> {
        if !matches!(message.body.get("isWritablePrimary"), Ok(Some(_))) {
            return whole.to_vec();
        }
        if self.kind == Kind::FarSecondary {
            thread::sleep(FAR);
        }
        reply(message.response_to, &self.hello(message.body))
    }

    fn hello(&self, said: &RawDocument) -> RawDocumentBuf {
        let mut hello = rawdoc! {
            "setName": SET,
            "isWritablePrimary": self.kind == Kind::Primary,
            "secondary": self.kind != Kind::Primary,
            "me": self.address.to_string(),
            "hosts": self.names.iter().map(String::as_str).collect::<RawArrayBuf>(),
        };
        for element in said {
            let (key, value) = element.expect("an element");
            if ![cstr!("isWritablePrimary"), cstr!("setName"), cstr!("hosts")].contains(&key) {
                hello.append(key, value);
            }
        }
        hello
    }
}

/// The message that answers a request with this document.
fn reply(response_to: i32, document: &RawDocument) -> Vec<u8> {
    let length = 21 + i32::try_from(document.as_bytes().len()).expect("a short document");
    let header = [length, 0, response_to, 2013, 0].map(i32::to_le_bytes).concat();
    [&header[..], &[0], document.as_bytes()].concat()
}

/// Hands over every whole message until there are no more.
fn each_message(mut from: &TcpStream, mut take: impl FnMut(&[u8], OpMsg<'_>)) {
    let (mut held, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = from.read(&mut chunk) {
        held.extend_from_slice(chunk.get(..read).unwrap_or_default());
        let mut rest = held.as_slice();
        loop {
            let before = rest;
            let Ok(Some(message)) = message::take(&mut rest, MAX_MESSAGE_BYTES) else { break };
            take(before.get(..before.len() - rest.len()).unwrap_or_default(), message);
        }
        let left = rest.len();
        held.drain(..held.len() - left);
    }
}

fn send(to: &Mutex<TcpStream>, bytes: &[u8]) {
    // A closed connection is detected by the other direction.
    let _ = to.lock().expect("no thread panicked").write_all(bytes);
}

fn shut(stream: &Mutex<TcpStream>) {
    let _ = stream.lock().expect("no thread panicked").shutdown(std::net::Shutdown::Both);
}
