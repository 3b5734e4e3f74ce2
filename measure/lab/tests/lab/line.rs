//! A relay to a server on this machine that delays and captures the data.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// One-way delay, far longer than the processing of client and server, so that round trips are distinct.
pub(crate) const DELAY: Duration = Duration::from_millis(40);

/// The relay's address for clients, and the captured data.
pub(crate) struct Line {
    pub(crate) address: SocketAddr,
    passed: Arc<Mutex<Vec<Direction>>>,
    thread: JoinHandle<()>,
}

/// The direction of a piece, from the client's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToServer,
    ToClient,
}

impl Line {
    /// A relay for one connection to `server` with a one-way `delay`.
    pub(crate) fn to(server: SocketAddr, delay: Duration) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let passed = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&passed);
        let thread = thread::spawn(move || {
            let (client, _) = listener.accept().expect("a client");
            let server = TcpStream::connect(server).expect("a server");
            for socket in [&client, &server] {
                socket.set_nodelay(true).expect("an option");
            }
            let ends = [(&client, &server, Direction::ToServer), (&server, &client, Direction::ToClient)];
            thread::scope(|scope| {
                for (from, to, direction) in ends {
                    let (pieces, due) = mpsc::channel();
                    let log = &log;
                    scope.spawn(move || read(from, delay, &pieces, direction, log));
                    scope.spawn(move || write(to, due, direction, log));
                }
            });
        });
        Self { address, passed, thread }
    }

    /// Round trips before the client's last message, once it has closed the connection.
    pub(crate) fn round_trips(self) -> usize {
        self.thread.join().expect("the line holds");
        let passed = self.passed.lock().expect("whole").clone();
        let last = passed.iter().rposition(|direction| *direction == Direction::ToServer);
        let goodbye = passed[..last.expect("the client said something")]
            .iter()
            .rposition(|direction| *direction == Direction::ToClient);
        let mut runs = passed[..=goodbye.expect("the server answered")].to_vec();
        runs.dedup();
        runs.iter().filter(|direction| **direction == Direction::ToClient).count()
    }
}

type Piece = (Instant, Vec<u8>);

fn read(
    mut from: &TcpStream,
    delay: Duration,
    pieces: &Sender<Piece>,
    direction: Direction,
    log: &Mutex<Vec<Direction>>,
) {
    let mut buffer = vec![0; 1 << 16];
    // Either end may close the connection.
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        if direction == Direction::ToServer {
            log.lock().expect("whole").push(direction);
        }
        if pieces.send((Instant::now() + delay, buffer[..bytes].to_vec())).is_err() {
            return;
        }
    }
}

fn write(mut to: &TcpStream, due: Receiver<Piece>, direction: Direction, log: &Mutex<Vec<Direction>>) {
    for (when, piece) in due {
        thread::sleep(when.saturating_duration_since(Instant::now()));
        if direction == Direction::ToClient {
            log.lock().expect("whole").push(direction);
        }
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    // The end of the stream is delayed too.
    let _ = to.shutdown(Shutdown::Write);
}
