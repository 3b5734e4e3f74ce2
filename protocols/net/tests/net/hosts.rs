//! Servers by name: looked up at each connect, and timed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

use ciphertoll_net::blocking::Client;
use ciphertoll_net::{Address, AddressFamily, Error, Fault, Phase, SourceAddresses};

const V4: Option<AddressFamily> = Some(AddressFamily::V4);
const V6: Option<AddressFamily> = Some(AddressFamily::V6);

use crate::drivers::{Driver, LoopClient, dialer, login};
use crate::server::{Goodbye, Listener, Server, nobody};

fn host(name: &str, port: u16, family: Option<AddressFamily>) -> Address {
    Address::Host { name: name.to_owned(), port, family }
}

fn log_in(listener: &Listener) -> Goodbye {
    listener.accept().log_in(None).goodbye()
}

/// The family that a blocking client has found at `name`, the server listening here.
fn family_found(name: &str, ip: IpAddr, asked: Option<AddressFamily>) -> Option<AddressFamily> {
    let server = Server::on(TcpListener::bind((ip, 0)).unwrap(), log_in);
    let client = Client::connect(&host(name, server.port(), asked), login_plain(), None).unwrap();
    let family = client.peer_family();
    client.close().unwrap();
    assert_eq!(server.join(), Goodbye::Orderly);
    family
}

fn login_plain() -> ciphertoll_wire::session::Login {
    login(ciphertoll_wire::mysql::MySqlTlsMode::Plain)
}

/// The phases of a connect that took time, and where the server saw it come from.
fn phases(name: &str, sources: Option<SourceAddresses>) -> (Vec<Phase>, IpAddr) {
    let server = Server::tcp(|listener| {
        let (peer, from) = listener.accept_from();
        assert_eq!(peer.log_in(None).goodbye(), Goodbye::Orderly);
        from.unwrap().ip()
    });
    let dialer = dialer(&host(name, server.port(), V4), None);
    let mut sources = sources;
    let mut client = LoopClient::connect(&dialer, sources.as_mut()).unwrap();
    client.server.encode_goodbye(client.channel.output());
    client.channel.close().unwrap();
    let phases = Phase::ALL.into_iter().filter(|phase| !client.phases.of(*phase).is_zero());
    (phases.collect(), server.join())
}

#[test]
fn looking_a_name_up_is_a_phase_of_its_own() {
    let connect = [Phase::TcpConnect, Phase::ServerGreeting, Phase::Auth];
    assert_eq!(phases("localhost", None).0, [&[Phase::Dns], &connect[..]].concat());
    assert_eq!(phases("127.0.0.1", None).0, connect, "there is nothing to look up");
}

/// A server that was there before may know its clients by their addresses.
#[test]
fn sources_are_not_spread_to_a_name() {
    for name in ["localhost", "127.0.0.1"] {
        assert_eq!(phases(name, Some(SourceAddresses::lane(0))).1, Ipv4Addr::LOCALHOST);
    }
}

/// `localhost` often is `::1` first, where nobody listens here.
#[test]
fn a_blocking_client_finds_the_family_that_works() {
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    for (name, asked) in [("localhost", None), ("localhost", V4), ("127.0.0.1", None)] {
        assert_eq!(family_found(name, here, asked), V4, "{name} {asked:?}");
    }
    let here = IpAddr::V6(Ipv6Addr::LOCALHOST);
    if TcpListener::bind((here, 0)).is_ok() {
        assert_eq!(family_found("::1", here, None), V6);
    }
}

#[test]
fn a_blocking_client_knows_the_family_of_an_address() {
    let server = Server::tcp(log_in);
    let client = Client::connect(&server.address, login_plain(), None).unwrap();
    assert_eq!(client.peer_family(), V4);
    client.close().unwrap();
    server.join();
    let server = Server::unix(log_in);
    let client = Client::connect(&server.address, login_plain(), None).unwrap();
    assert_eq!(client.peer_family(), None);
    client.close().unwrap();
    server.join();
}

#[test]
fn nobody_listens_at_a_name() {
    let (_taken, address) = nobody();
    for driver in Driver::ALL {
        for family in [None, V4] {
            let error = driver.refusal(&host("localhost", address.port(), family), None);
            assert!(matches!(error, Error::Socket { doing: "cannot connect", .. }), "{driver:?}: {error:?}");
        }
    }
}

/// `invalid` is nobody's (RFC 6761, 6.4).
#[test]
fn a_name_that_nobody_has() {
    for driver in Driver::ALL {
        let error = driver.refusal(&host("nobody.invalid", 3306, None), None);
        assert!(matches!(error, Error::Unresolved { .. }), "{error:?}");
        assert_eq!(error.fault(), Fault::Server);
        assert!(error.to_string().starts_with("cannot resolve nobody.invalid: "), "{error}");
        let error = driver.refusal(&host("127.0.0.1", 3306, V6), None);
        assert_eq!(error.to_string(), "cannot resolve 127.0.0.1: it has no IPv6 address");
    }
}
