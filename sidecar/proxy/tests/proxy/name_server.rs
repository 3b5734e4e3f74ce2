//! A name server of the test's own (RFC 1035): it knows one name, whose addresses change.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::cluster::free_port;

const PORT: u16 = 53;
const HEADER_BYTES: usize = 12;
/// A response, with recursion desired and available.
const RESPONSE: [u8; 2] = [0x81, 0x80];
const NO_SUCH_NAME: u8 = 3;
const TYPE_A: [u8; 2] = [0, 1];
const CLASS_IN: [u8; 2] = [0, 1];
const TTL_S: [u8; 4] = [0, 0, 0, 1];
/// Where the name is that an answer is for: at the start of the question.
const NAME_OF_QUESTION: [u8; 2] = [0xc0, HEADER_BYTES as u8];

/// Its thread ends with the test's process.
pub(crate) struct NameServer {
    pub(crate) address: Ipv4Addr,
    addresses: Arc<Mutex<Vec<Ipv4Addr>>>,
}

impl NameServer {
    /// At any address of the loopback interface, because a resolver asks port 53; `None` if this user may not do that.
    pub(crate) fn start(name: &str) -> Option<Self> {
        // The number of a port that is free now makes an address that no other test uses.
        let [high, low] = free_port().to_be_bytes();
        let address = Ipv4Addr::new(127, 53, high, low);
        let socket = UdpSocket::bind((address, PORT)).ok()?;
        let addresses = Arc::default();
        let (known, name) = (Arc::clone(&addresses), encoded(name));
        thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((bytes, client)) = socket.recv_from(&mut query) {
                respond(&socket, client, &query[..bytes], &name, &known);
            }
        });
        Some(Self { address, addresses })
    }

    pub(crate) fn set(&self, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| match address.parse() {
            Ok(IpAddr::V4(address)) => address,
            _ => panic!("{address} is not an IPv4 address"),
        });
        *self.addresses.lock().expect("no panic") = addresses.collect();
    }
}

/// The labels of a name, each after its length.
fn encoded(name: &str) -> Vec<u8> {
    let labels = name.split('.').flat_map(|label| [&[label.len() as u8][..], label.as_bytes()].concat());
    labels.chain([0]).collect()
}

fn respond(socket: &UdpSocket, client: SocketAddr, query: &[u8], name: &[u8], known: &Mutex<Vec<Ipv4Addr>>) {
    let Some((header, question)) = query.split_at_checked(HEADER_BYTES) else { return };
    let Some((_, kind)) = question.split_at_checked(name.len()) else { return };
    let Some(kind) = kind.get(..4) else { return };
    let is_known = question[..name.len()].eq_ignore_ascii_case(name);
    let addresses = known.lock().expect("no panic").clone();
    // There are no addresses of IPv6.
    let answers = if is_known && kind == [TYPE_A, CLASS_IN].concat() { addresses } else { Vec::new() };
    let mut flags = RESPONSE;
    if !is_known {
        flags[1] |= NO_SUCH_NAME;
    }
    let count = answers.len() as u8;
    let counts = [0, 1, 0, count, 0, 0, 0, 0];
    let mut response = [&header[..2], &flags, &counts, &question[..name.len() + 4]].concat();
    for address in answers {
        let length = [0, 4];
        response
            .extend([&NAME_OF_QUESTION[..], &TYPE_A, &CLASS_IN, &TTL_S, &length, &address.octets()].concat());
    }
    // The client asks again if it does not arrive.
    let _ = socket.send_to(&response, client);
}
