//! Ports where no server of the login's protocol listens.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ciphertoll_net::Address;
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::postgres::{ChannelBinding, PostgresLogin, PostgresTlsMode};
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{Secret, mongodb, mysql};

const LIMIT: Duration = Duration::from_secs(1);

fn logins() -> [(&'static str, &'static str, Login); 3] {
    let password = || Secret::new(Vec::new());
    let postgres = PostgresLogin {
        startup: Vec::new(),
        user: "app".to_owned(),
        password: password(),
        database: None,
        encryption: PostgresTlsMode::Plain,
        channel_binding: ChannelBinding::Disabled,
    };
    [
        ("MySQL", "greeting", Login::MySql(Arc::new(mysql::MySqlLogin::new("app", password())))),
        ("PostgreSQL", "answer", Login::Postgres(Arc::new(postgres))),
        ("MongoDB", "answer", Login::MongoDb(Arc::new(mongodb::MongoDbLogin::new("app", password())))),
    ]
}

fn refusal(at: SocketAddr, login: Login) -> String {
    let Err(error) = Client::connect_within(&Address::Tcp(at), login, None, LIMIT) else { panic!("a login") };
    error.to_string()
}

/// A listener that sends `first` to each of two clients, and then what it answers to their first bytes.
fn listener(first: &'static [u8], answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut clients = Vec::new();
        for client in listener.incoming().take(2) {
            let mut client = client.unwrap();
            client.write_all(first).unwrap();
            clients.push(thread::spawn(move || {
                let mut bytes = [0; 8];
                if !answer.is_empty() && client.read_exact(&mut bytes).is_ok() {
                    client.write_all(answer).unwrap();
                }
                // Until the client has gone.
                let _ = client.read_to_end(&mut Vec::new());
            }));
        }
        for client in clients {
            client.join().unwrap();
        }
    });
    at
}

#[test]
fn a_listener_that_never_answers() {
    for (protocol, first, login) in logins() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let said = refusal(listener.local_addr().unwrap(), login);
        let expected = format!("this port does not speak {protocol}: it sent no {first} within 1 s");
        assert_eq!(said, expected);
    }
}

#[test]
fn servers_that_speak_first() {
    for (first, instead) in [
        (&b"SSH-2.0-OpenSSH_9.2\r\n"[..], "it answered like SSH: SSH-2.0-OpenSSH_9.2"),
        (b"220 mail.example ESMTP\r\n", "it answered like a mail server: 220 mail.example ESMTP"),
    ] {
        for (protocol, _, login) in logins() {
            let said = refusal(listener(first, b""), login);
            assert_eq!(said, format!("this port does not speak {protocol}: {instead}"));
        }
    }
}

#[test]
fn servers_that_wait_for_their_clients() {
    for (protocol, _, login) in logins() {
        let said = refusal(listener(b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"), login);
        let instead = "it answered like HTTP: HTTP/1.1 400 Bad Request";
        assert_eq!(said, format!("this port does not speak {protocol}: {instead}"));
    }
}
