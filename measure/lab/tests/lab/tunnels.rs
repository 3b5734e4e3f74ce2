//! Real tunnels over a simulated link: they work, and a capture on the link sees no plaintext.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ciphertoll_host::exec::Provisions;
use ciphertoll_host::spawn::{Child, Launch};
use ciphertoll_host::user::RunAs;
use ciphertoll_lab::tunnel::{RunningTunnel, TunnelStart};
use ciphertoll_lab::{Error, Server, Tables};
use ciphertoll_link::LinkProcess;
use ciphertoll_model::{
    Auth, Endpoint, Engine, ExitCode, Link, LinkKind, LinkShape, Path as NetworkPath, ServerLevel, Tunnel,
};
use ciphertoll_testing::missing;

use crate::capture::{Capture, MARKER};
use crate::common;
use crate::fixture::Fixture;

const RTT_US: u32 = 2_000;

/// A server behind a link.
struct LinkedServer {
    // Dropped in this order: the link owns the server's network.
    server: Server,
    link: LinkProcess,
    fixture: Fixture,
}

impl LinkedServer {
    fn make() -> Option<Self> {
        let mut fixture = Fixture::of(&ServerLevel::of(Engine::MariaDb))?;
        let mut link = match LinkProcess::start(&common::helper(), Some(LinkKind::Ring)) {
            Ok(link) => link,
            Err(error) => {
                missing(&error);
                return None;
            }
        };
        fixture.lab.move_servers_to(link.servers().expect("a network").clone());
        let mut server = fixture.start(&Tables::default(), None).expect("a server");
        server.prepare_auth(Auth::Trust).expect("an account");
        link.set(LinkShape::of_rtt_us(RTT_US)).expect("a link");
        Some(Self { server, link, fixture })
    }

    fn tunnel(&mut self, tunnel: Tunnel, number: usize) -> Result<RunningTunnel, Error> {
        let Self { server, link, fixture } = self;
        let logs = fixture.log();
        fixture.lab.start_tunnel(TunnelStart {
            tunnel,
            server,
            link: Link::Emulated(LinkShape::of_rtt_us(RTT_US)),
            networks: Some(link),
            name: &format!("u{number}"),
            apart: None,
            logs: logs.parent().expect("a directory"),
        })
    }

    /// The answer to MariaDB's own client at the clients' end of the link.
    fn ask(&self, endpoint: &Endpoint, log: &Path) -> String {
        let Endpoint::Tcp(address) = endpoint else { panic!("a server listens on TCP") };
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let statement = format!("SELECT '{MARKER}'");
        let user = self.server.account(Auth::Trust).user;
        let words = [
            "--no-defaults",
            // Otherwise the client encrypts.
            "--skip-ssl",
            "--protocol",
            "tcp",
            "--host",
            &host,
            "--port",
            &port,
            "--user",
            &user,
        ];
        let launch = Launch {
            what: "mariadb".to_owned(),
            program: "/usr/bin/mariadb".into(),
            arguments: words.into_iter().chain(["-N", "-e", &statement]).map(ToOwned::to_owned).collect(),
            environment: BTreeMap::new(),
            directory: "/".into(),
            run_as: RunAs::Ourselves,
            processors: None,
            namespace: self.link.clients().cloned(),
            provisions: Provisions::default(),
            log: log.to_owned(),
        };
        let mut client =
            Child::spawn(self.fixture.lab.scratch(), &common::helper(), &launch).expect("a client");
        let ended = client.wait(Duration::from_mins(2)).expect("its end");
        assert!(ended.is_some_and(|status| status.success()), "{}", client.output());
        client.output()
    }
}

fn tunnels() -> [Tunnel; 6] {
    ["ssh-aes256-gcm", "ssh-aes256-cbc+N", "openvpn-aes256-gcm", "openvpn-aes256-cbc", "wireguard", "stunnel"]
        .map(|path| path.parse::<NetworkPath>().unwrap().as_tunnel().expect("a tunnel"))
}

/// The reason to skip a tunnel, if this machine does not support it.
fn unavailable(error: &Error) -> bool {
    let is_missing = error.exit_code() == ExitCode::NothingRan;
    if is_missing {
        missing(&error);
    }
    is_missing
}

#[test]
fn a_capture_sees_no_plaintext_of_a_tunnel() {
    let Some(mut linked) = LinkedServer::make() else { return };
    let log = linked.fixture.log().with_file_name("client.log");
    // Without a tunnel, the capture sees the marker.
    let capture = Capture::begin(linked.link.clients().expect("a network"));
    let direct = linked.server.endpoint_over(Link::Emulated(LinkShape::of_rtt_us(RTT_US)));
    assert!(linked.ask(&direct, &log).contains(MARKER));
    let control = capture.end();
    assert!(control.1, "{control:?} in plaintext the marker goes over the link");
    for (number, tunnel) in tunnels().into_iter().enumerate() {
        let running = match linked.tunnel(tunnel, number) {
            Ok(running) => running,
            Err(error) if unavailable(&error) => continue,
            Err(error) => panic!("{tunnel}: {error}"),
        };
        let sent_before = running.sent_bytes().unwrap();
        let capture = Capture::begin(linked.link.clients().expect("a network"));
        assert!(linked.ask(&running.endpoint(), &log).contains(MARKER), "{tunnel}");
        let (bytes, seen) = capture.end();
        assert!(bytes > MARKER.len() * 2, "{tunnel}: {bytes} bytes went over the link");
        assert!(!seen, "{tunnel}: the marker can be read on the way");
        assert!(running.sent_bytes().unwrap() - sent_before > MARKER.len() as u64, "{tunnel}");
        if let Some(cipher) = tunnel.cipher() {
            assert_eq!(running.leg().suite.as_deref(), Some(cipher), "{tunnel}");
        }
    }
}

#[test]
fn a_tunnel_without_encryption_shows_plaintext() {
    let Some(mut linked) = LinkedServer::make() else { return };
    let log = linked.fixture.log().with_file_name("client.log");
    let none = "openvpn-none".parse::<NetworkPath>().unwrap().as_tunnel().unwrap();
    let running = match linked.tunnel(none, 1) {
        Ok(running) => running,
        Err(error) if unavailable(&error) => return,
        Err(error) => panic!("{error}"),
    };
    let capture = Capture::begin(linked.link.clients().expect("a network"));
    assert!(linked.ask(&running.endpoint(), &log).contains(MARKER));
    assert!(capture.end().1, "openvpn-none is what the tunnel alone costs");
    assert_eq!(running.leg().suite.as_deref(), Some("none"));
}

#[test]
fn a_tunnel_leaves_no_files() {
    let Some(mut linked) = LinkedServer::make() else { return };
    for (number, tunnel) in tunnels().into_iter().enumerate() {
        let mut running = match linked.tunnel(tunnel, number) {
            Ok(running) => running,
            Err(error) if unavailable(&error) => continue,
            Err(error) => panic!("{tunnel}: {error}"),
        };
        running.check().unwrap_or_else(|error| panic!("{tunnel}: {error}"));
        let pids = running.pids();
        assert!(running.setup_time() > Duration::ZERO);
        drop(running);
        for pid in pids {
            assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{tunnel}: process {pid} is left");
        }
        let place = linked.fixture.lab.scratch().path().join(format!("u{number}"));
        assert!(!place.exists(), "{tunnel}: {} is left", place.display());
    }
}
