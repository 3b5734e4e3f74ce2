//! Connections of OpenSSL in memory, with generated certificates.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
};

use ciphertoll_wire::tls::ConnectionSide;
use openssl::{
    asn1::Asn1Time,
    hash::MessageDigest,
    pkey::{PKey, Private},
    rsa::Rsa,
    ssl::{
        HandshakeError, MidHandshakeSslStream, Ssl, SslContext, SslContextBuilder, SslMethod, SslStream,
        SslVerifyMode, SslVersion,
    },
    x509::{X509, X509NameBuilder},
};

/// One end of a connection in memory.
#[derive(Debug, Default)]
struct End {
    incoming: VecDeque<u8>,
    outgoing: Vec<u8>,
}

impl Read for End {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.incoming.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.incoming.read(buffer)
    }
}

impl Write for End {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A handshake that is complete, awaits the peer, or has failed.
enum Handshaking {
    Done(SslStream<End>),
    Waiting(MidHandshakeSslStream<End>),
    Failed(MidHandshakeSslStream<End>),
}

impl Handshaking {
    fn of(result: Result<SslStream<End>, HandshakeError<End>>) -> Self {
        match result {
            Ok(stream) => Self::Done(stream),
            Err(HandshakeError::WouldBlock(waiting)) => Self::Waiting(waiting),
            Err(HandshakeError::Failure(failed)) => Self::Failed(failed),
            Err(error) => panic!("handshake: {error:?}"),
        }
    }

    fn advance(self) -> Self {
        match self {
            Self::Done(mut stream) => {
                // Reads the session tickets.
                let _ = stream.ssl_read(&mut [0; 1]);
                Self::Done(stream)
            }
            Self::Waiting(waiting) => Self::of(waiting.handshake()),
            Self::Failed(_) => self,
        }
    }

    fn end(&mut self) -> &mut End {
        match self {
            Self::Done(stream) => stream.get_mut(),
            Self::Waiting(stream) | Self::Failed(stream) => stream.get_mut(),
        }
    }
}

/// A connection: its bytes in the order in which they cross.
pub(crate) struct Conversation {
    pub(crate) flights: Vec<(ConnectionSide, Vec<u8>)>,
    pub(crate) is_established: bool,
}

impl Conversation {
    /// Moves what one end has sent to the other.
    fn deliver(&mut self, from: ConnectionSide, sender: &mut End, receiver: &mut End) {
        let flight = std::mem::take(&mut sender.outgoing);
        receiver.incoming.extend(&flight);
        if !flight.is_empty() {
            self.flights.push((from, flight));
        }
    }
}

/// The bytes of a request and of an answer, which has three records.
pub(crate) const REQUEST_BYTES: usize = 100;
pub(crate) const ANSWER_BYTES: usize = 40_000;

/// A handshake, then requests and answers if it succeeds.
pub(crate) fn converse(server: &SslContext, client: &SslContext, requests: usize) -> Conversation {
    let mut client = Handshaking::of(Ssl::new(client).unwrap().connect(End::default()));
    let mut server = Handshaking::of(Ssl::new(server).unwrap().accept(End::default()));
    let mut conversation = Conversation { flights: Vec::new(), is_established: false };
    for _ in 0..6 {
        conversation.deliver(ConnectionSide::Client, client.end(), server.end());
        server = server.advance();
        conversation.deliver(ConnectionSide::Server, server.end(), client.end());
        client = client.advance();
    }
    let (Handshaking::Done(mut client), Handshaking::Done(mut server)) = (client, server) else {
        return conversation;
    };
    conversation.is_established = true;
    for _ in 0..requests {
        client.write_all(&[1; REQUEST_BYTES]).unwrap();
        conversation.deliver(ConnectionSide::Client, client.get_mut(), server.get_mut());
        server.read_exact(&mut [0; REQUEST_BYTES]).unwrap();
        server.write_all(&vec![2; ANSWER_BYTES]).unwrap();
        conversation.deliver(ConnectionSide::Server, server.get_mut(), client.get_mut());
        client.read_exact(&mut vec![0; ANSWER_BYTES]).unwrap();
    }
    conversation
}

pub(crate) fn rsa_key() -> PKey<Private> {
    PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap()
}

/// A self-signed certificate, large enough for several records.
pub(crate) fn server_context(configure: impl FnOnce(&mut SslContextBuilder)) -> SslContext {
    let key = rsa_key();
    let mut context = SslContext::builder(SslMethod::tls_server()).unwrap();
    context.set_private_key(&key).unwrap();
    context.set_certificate(&certificate(&key)).unwrap();
    for _ in 0..40 {
        context.add_extra_chain_cert(certificate(&key)).unwrap();
    }
    configure(&mut context);
    context.build()
}

pub(crate) fn certificate(key: &PKey<Private>) -> X509 {
    let mut name = X509NameBuilder::new().unwrap();
    name.append_entry_by_text("CN", "server").unwrap();
    let name = name.build();
    let mut certificate = X509::builder().unwrap();
    certificate.set_version(2).unwrap();
    certificate.set_subject_name(&name).unwrap();
    certificate.set_issuer_name(&name).unwrap();
    certificate.set_pubkey(key).unwrap();
    certificate.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
    certificate.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
    certificate.sign(key, MessageDigest::sha256()).unwrap();
    certificate.build()
}

/// A client without verification: the tests check what is negotiated.
pub(crate) fn client_context(configure: impl FnOnce(&mut SslContextBuilder)) -> SslContext {
    let mut context = SslContext::builder(SslMethod::tls_client()).unwrap();
    context.set_verify(SslVerifyMode::NONE);
    configure(&mut context);
    context.build()
}

pub(crate) fn only(version: SslVersion) -> impl Fn(&mut SslContextBuilder) {
    move |context| {
        context.set_min_proto_version(Some(version)).unwrap();
        context.set_max_proto_version(Some(version)).unwrap();
    }
}
