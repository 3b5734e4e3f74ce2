//! Limits: of the rate, and of a server's connections.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ciphertoll_model::{Clients, Endpoint, ErrorKind, TrialPace, TrialSpec, Workload};
use ciphertoll_wire::mysql::err::ErrPacket;
use ciphertoll_wire::mysql::greeting::Greeting;
use ciphertoll_wire::mysql::ok::OkPacket;
use ciphertoll_wire::mysql::{Capabilities, server};
use tempfile::TempDir;

use crate::{outcome, spec, work_of};

const CLIENTS: u16 = 8;
const LENGTH: Duration = Duration::from_secs(2);

/// A server that accepts every login, up to a number of connections in all.
struct Server {
    endpoint: Endpoint,
    connections: Arc<AtomicUsize>,
    directory: TempDir,
}

impl Server {
    fn with_room_for(room: usize) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let endpoint = Endpoint::Tcp(listener.local_addr().unwrap());
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let is_full = counted.fetch_add(1, Ordering::SeqCst) >= room;
                // A client may disconnect at any time.
                thread::spawn(move || stream.and_then(|stream| serve(stream, is_full)));
            }
        });
        Self { endpoint, connections, directory: TempDir::new().unwrap() }
    }

    fn spec(&self) -> TrialSpec {
        TrialSpec {
            endpoint: self.endpoint.clone(),
            clients: Clients::new(CLIENTS).unwrap(),
            threads: 1,
            warm_up_ns: 0,
            ..spec(self.directory.path())
        }
    }
}

fn serve(mut stream: TcpStream, is_full: bool) -> io::Result<()> {
    let mut out = Vec::new();
    if is_full {
        let packet = ErrPacket { code: 1040, sql_state: *b"08004", message: b"Too many connections" };
        server::write_err(&mut out, 0, &packet).unwrap();
        return stream.write_all(&out);
    }
    let greeting = Greeting {
        version: b"11.8.2-MariaDB",
        connection_id: 1,
        nonce: *b"abcdefghijklmnopqrst",
        capabilities: Capabilities::LONG_PASSWORD
            .with(Capabilities::PROTOCOL_41)
            .with(Capabilities::TRANSACTIONS)
            .with(Capabilities::SECURE_CONNECTION)
            .with(Capabilities::MULTI_RESULTS)
            .with(Capabilities::PLUGIN_AUTH)
            .with(Capabilities::PLUGIN_AUTH_LENENC)
            .with(Capabilities::DEPRECATE_EOF),
        character_set: 45,
        status: 2,
        plugin: b"mysql_native_password",
    };
    server::write_greeting(&mut out, &greeting).unwrap();
    stream.write_all(&out)?;
    let mut received = [0; 4096];
    if stream.read(&mut received)? == 0 {
        return Ok(());
    }
    out.clear();
    server::write_ok(&mut out, 2, &OkPacket::default()).unwrap();
    stream.write_all(&out)?;
    while stream.read(&mut received)? > 0 {}
    Ok(())
}

pub(crate) fn a_limit_is_kept_without_spinning() {
    let server = Server::with_room_for(usize::MAX);
    // All clients on one thread, and a quarter of them with a quarter of the limit on each of four.
    for threads in [1, 4] {
        let unlimited = TrialSpec { threads, window_ns: LENGTH.as_nanos() as u64, ..server.spec() };
        let attempt = || {
            let limited = TrialSpec { max_per_s: Some(10.0), ..unlimited.clone() };
            let (unlimited, limited) = (outcome(&unlimited).unwrap(), outcome(&limited).unwrap());
            let allowed = 20 + u64::from(threads);
            assert!(limited.operations <= allowed, "{} of {allowed}", limited.operations);
            assert_eq!(limited.errors, []);
            // Eight clients that wait for turns of 100 ms wait 800 ms each; that is not the server's latency.
            let is_quiet = limited.client_cpu_ns < unlimited.window_ns / 2;
            let is_quiet = is_quiet && limited.latency.p50_ns < 400_000_000;
            is_quiet && (1..unlimited.operations).contains(&limited.operations)
        };
        // A spinning loop fails every attempt; a busy machine does not.
        assert!((0..5).any(|_| attempt()), "the clients of {threads} threads never waited quietly");
    }
}

pub(crate) fn a_server_at_its_connection_limit_is_left_alone() {
    let open = TrialPace::Open { per_s: 2_000.0 };
    let closed = TrialPace::Closed;
    for (pace, max_per_s) in [(closed, None), (closed, Some(2_000.0)), (open, None)] {
        let server = Server::with_room_for(30);
        // The clients have stopped: it does not wait for the end of the window.
        let result = outcome(&TrialSpec { pace, max_per_s, ..server.spec() }).unwrap();
        let [error] = result.errors.as_slice() else { panic!("{:?}", result.errors) };
        assert_eq!((error.kind, error.count), (ErrorKind::TooManyConnections, 1), "{error:?}");
        assert!(error.message.contains("Too many connections"), "{error:?}");
        // Connects in progress when the first was refused.
        let asked = server.connections.load(Ordering::SeqCst);
        assert!(asked <= 30 + usize::from(CLIENTS), "{pace:?}: it connected {asked} times");
    }
}

pub(crate) fn a_pool_larger_than_the_limit_does_not_start() {
    let server = Server::with_room_for(3);
    let spec = TrialSpec { work: work_of(Workload::PointSelect), ..server.spec() };
    let error = outcome(&spec).unwrap_err();
    assert!(error.is_too_many_connections(), "{error}");
}
