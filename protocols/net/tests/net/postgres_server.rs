//! The PostgreSQL server's side of one connection, on the sockets of [`crate::server`].

use ciphertoll_wire::postgres::message::MAX_LOGIN_PAYLOAD_BYTES;
use ciphertoll_wire::postgres::server::{
    Authentication, Field, FrontendMessage, Report, Startup, TlsAnswer, read_frontend, read_startup,
    write_authentication, write_command_complete, write_copy_in_response, write_data_row, write_error,
    write_parameter_status, write_ready_for_query, write_row_description, write_tls_answer,
};
use ciphertoll_wire::postgres::{CopyStart, Severity, TransactionStatus, ValueFormat};
use ciphertoll_wire::scram::{Binding, Mechanism, ServerFirst, Verifier};
use openssl::hash::MessageDigest;
use openssl::ssl::SslAcceptor;

use crate::drivers::{DATABASE, PASSWORD, USER};
use crate::server::Peer;

pub(crate) const ITERATIONS: u32 = 4096;
pub(crate) const REFUSED_ROW: &[u8] = b"refused\n";

const LIMIT_BYTES: usize = 1 << 20;

/// How a client must show who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    Trust,
    Scram(Mechanism),
}

/// When TLS begins.
pub(crate) enum Tls {
    Never,
    Requested(SslAcceptor),
    AtOnce(SslAcceptor),
}

pub(crate) struct PostgresPeer {
    pub(crate) peer: Peer,
    input: Vec<u8>,
}

impl PostgresPeer {
    pub(crate) fn new(peer: Peer) -> Self {
        Self { peer, input: Vec::new() }
    }

    /// The whole login.
    pub(crate) fn log_in(mut self, tls: &Tls, proof: Proof) -> Self {
        match tls {
            Tls::Never => {}
            Tls::Requested(acceptor) => {
                self.answer_tls_request(TlsAnswer::Yes);
                self.peer.start_tls(acceptor).unwrap();
            }
            Tls::AtOnce(acceptor) => self.peer.start_tls(acceptor).unwrap(),
        }
        self.await_startup();
        if let Proof::Scram(mechanism) = proof {
            self.scram(mechanism);
        }
        let mut out = Vec::new();
        write_authentication(&mut out, &Authentication::Ok).unwrap();
        // Apart from what follows, so that some time passes between consent and readiness.
        self.peer.send(&out);
        out.clear();
        write_parameter_status(&mut out, b"server_version", b"17.5").unwrap();
        write_ready_for_query(&mut out, TransactionStatus::Idle);
        self.peer.send(&out);
        self
    }

    pub(crate) fn answer_tls_request(&mut self, answer: TlsAnswer) {
        self.take(|input| {
            read_startup(input).unwrap().map(|message| assert_eq!(message, Startup::TlsRequest))
        });
        assert!(self.input.is_empty(), "the client does not wait for the answer");
        let mut out = Vec::new();
        write_tls_answer(&mut out, answer);
        self.peer.send(&out);
    }

    /// Answers queries until the client says goodbye: a COPY with the rows it was sent, all else with a row of 7.
    pub(crate) fn serve(&mut self) {
        loop {
            let sql = self.take(|input| {
                Some(match read_frontend(input, LIMIT_BYTES).unwrap()? {
                    FrontendMessage::Query(sql) => Some(sql.to_vec()),
                    FrontendMessage::Terminate => None,
                    other => panic!("{other:?}"),
                })
            });
            let mut out = Vec::new();
            match sql {
                None => return,
                Some(sql) if sql.starts_with(b"COPY") => self.take_copy(&mut out),
                Some(_) => {
                    write_row_description(&mut out, &[Field::text(b"column")]).unwrap();
                    write_data_row(&mut out, &[Some(b"7")]).unwrap();
                    write_command_complete(&mut out, b"SELECT 1").unwrap();
                }
            }
            write_ready_for_query(&mut out, TransactionStatus::Idle);
            self.peer.send(&out);
        }
    }

    fn take_copy(&mut self, out: &mut Vec<u8>) {
        write_copy_in_response(out, &CopyStart { format: ValueFormat::Text, columns: 1 }).unwrap();
        self.peer.send(out);
        out.clear();
        let mut data = Vec::new();
        while let Some(piece) = self.take(|input| {
            Some(match read_frontend(input, LIMIT_BYTES).unwrap()? {
                FrontendMessage::CopyData(piece) => Some(piece.to_vec()),
                FrontendMessage::CopyDone => None,
                other => panic!("{other:?}"),
            })
        }) {
            data.extend(piece);
        }
        if data.ends_with(REFUSED_ROW) {
            let report = Report { severity: Severity::Error, sqlstate: *b"22P02", message: b"no such row" };
            return write_error(out, &report).unwrap();
        }
        let rows = data.split(|byte| *byte == b'\n').count() - 1;
        write_command_complete(out, format!("COPY {rows}").as_bytes()).unwrap();
    }

    fn await_startup(&mut self) {
        self.take(|input| {
            read_startup(input).unwrap().map(|message| {
                let Startup::Login(message) = message else { panic!("{message:?}") };
                assert_eq!(message.parameter("user"), Some(USER.as_bytes()));
                assert_eq!(message.parameter("database"), Some(DATABASE.as_bytes()));
            })
        });
    }

    fn scram(&mut self, mechanism: Mechanism) {
        let hash = match mechanism {
            Mechanism::Sha256 => None,
            Mechanism::Sha256Plus => {
                let certificate = self.peer.tls().certificate().unwrap();
                Some(certificate.digest(MessageDigest::sha256()).unwrap())
            }
        };
        let binding = hash.as_deref().map_or(Binding::None, Binding::ServerEndPoint);
        self.request(&Authentication::Sasl { mechanisms: vec![mechanism.name().as_bytes()] });
        let (chosen, first) = self.take(|input| {
            Some(match read_frontend(input, MAX_LOGIN_PAYLOAD_BYTES).unwrap()? {
                FrontendMessage::Auth(response) => {
                    let (chosen, first) = response.sasl_initial().unwrap();
                    (Mechanism::from_name(chosen), first.unwrap().to_vec())
                }
                other => panic!("{other:?}"),
            })
        });
        assert_eq!(chosen, Some(mechanism));
        let verifier = Verifier::of(PASSWORD, ITERATIONS).unwrap();
        let exchange = ServerFirst::answer(&verifier, mechanism, binding, &first).unwrap();
        self.request(&Authentication::SaslContinue(exchange.message()));
        let last = self.take(|input| {
            Some(match read_frontend(input, MAX_LOGIN_PAYLOAD_BYTES).unwrap()? {
                FrontendMessage::Auth(response) => response.sasl().to_vec(),
                other => panic!("{other:?}"),
            })
        });
        self.request(&Authentication::SaslFinal(&exchange.judge(&last).unwrap()));
    }

    fn request(&mut self, request: &Authentication<'_>) {
        let mut out = Vec::new();
        write_authentication(&mut out, request).unwrap();
        self.peer.send(&out);
    }

    /// Reads on until `parse` has what it wants.
    fn take<T>(&mut self, parse: impl Fn(&mut &[u8]) -> Option<T>) -> T {
        loop {
            let mut input = self.input.as_slice();
            if let Some(taken) = parse(&mut input) {
                let left = input.len();
                self.input.drain(..self.input.len() - left);
                return taken;
            }
            assert!(self.peer.read_more(&mut self.input).unwrap() > 0, "the client is gone");
        }
    }
}
