//! The TLS session of one connection, by rustls's interface without buffers, which spares two copies of each record.

use std::io;
use std::mem;
use std::sync::Arc;

use ciphertoll_vocabulary::{TlsLibrary, TlsVersion};
use ciphertoll_wire::tls::NamedGroup;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{AlertDescription, CertificateError, CipherSuite, ClientConfig, HandshakeKind, ProtocolVersion};
use socket2::Socket;

use crate::Error;
use crate::buffer::Buffer;
use crate::tls::certificate;
use crate::tls::handshake_size::HandshakeSize;
use crate::tls::memory::MemoryBuffers;
use crate::tls::observed::ObservedHandshake;
use crate::tls::session::{Decrypted, Filled, Handshake, Negotiated, TlsSession};

pub(super) struct RustlsSession {
    connection: UnbufferedClientConnection,
    memory: MemoryBuffers,
    observed: ObservedHandshake,
    /// Data that arrived with the end of the handshake.
    early: Buffer,
    /// The peer's `close_notify` arrived, perhaps together with data, and was not yet reported to the caller.
    has_closed: bool,
    version: TlsVersion,
}

type Traffic<'a> = WriteTraffic<'a, ClientConnectionData>;

/// Where a session is after everything received has been processed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Handshaking,
    /// Data can be sent.
    Open,
    Closed,
}

impl RustlsSession {
    pub(super) fn new(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        alpn: Option<&[u8]>,
        version: TlsVersion,
    ) -> Result<Self, rustls::Error> {
        let protocols = alpn.map(<[u8]>::to_vec).into_iter().collect();
        Ok(Self {
            connection: UnbufferedClientConnection::new_with_alpn(config, name, protocols)?,
            memory: MemoryBuffers::default(),
            observed: ObservedHandshake::default(),
            early: Buffer::default(),
            has_closed: false,
            version,
        })
    }
}

impl TlsSession for RustlsSession {
    fn fill(&mut self, socket: &Socket) -> io::Result<Filled> {
        let (filled, new) = self.memory.fill(socket)?;
        self.observed.received(new);
        Ok(filled)
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.memory.incoming.append(bytes);
        self.observed.received(bytes);
    }

    fn outgoing(&mut self) -> &mut Vec<u8> {
        &mut self.memory.outgoing
    }

    fn handshake(&mut self) -> Result<Handshake, Error> {
        let progress = self.advance(|_, _| Ok(()));
        self.observed.sent(&self.memory.outgoing);
        if progress? == Progress::Handshaking {
            return Ok(Handshake::NeedInput);
        }
        self.memory.meter.complete();
        Ok(Handshake::Done)
    }

    fn decrypt(&mut self, into: &mut Buffer) -> Result<Decrypted, Error> {
        // Replies such as a KeyUpdate are sent with the next output.
        if !self.early.is_empty() {
            into.append(mem::take(&mut self.early).unread());
        }
        mem::swap(&mut self.early, into);
        let progress = self.advance(|_, _| Ok(()));
        mem::swap(&mut self.early, into);
        progress?;
        Ok(if mem::take(&mut self.has_closed) { Decrypted::Closed } else { Decrypted::All })
    }

    fn encrypt(&mut self, plain: &[u8]) -> Result<(), Error> {
        let encrypt = |traffic: &mut Traffic<'_>, outgoing: &mut [u8]| traffic.encrypt(plain, outgoing);
        match self.advance(|traffic, outgoing| append_encrypted(outgoing, plain.len(), traffic, encrypt))? {
            Progress::Open => Ok(()),
            Progress::Handshaking | Progress::Closed => {
                Err(Error::Tls("nothing more can be encrypted".to_owned()))
            }
        }
    }

    fn close_notify(&mut self) {
        let notify = |traffic: &mut Traffic<'_>, outgoing: &mut [u8]| traffic.queue_close_notify(outgoing);
        // A failed session is closed without a `close_notify`.
        let _ = self.advance(|traffic, outgoing| append_encrypted(outgoing, 0, traffic, notify));
    }

    fn negotiated(&self) -> Option<Negotiated> {
        let kind = self.connection.handshake_kind()?;
        let certificates = self.connection.peer_certificates()?;
        let [certificate, ..] = certificates else { return None };
        let group = self.connection.negotiated_key_exchange_group();
        let group = group.map(|group| NamedGroup(u16::from(group.name())));
        let version = match self.connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => TlsVersion::Tls13.label(),
            Some(ProtocolVersion::TLSv1_2) => TlsVersion::Tls12.label(),
            _ => "older than tls1.2",
        };
        let key = certificate::key_label(certificate)?;
        let (chain, signature) = match kind {
            HandshakeKind::Resumed => (None, None),
            _ => (u8::try_from(certificates.len()).ok(), self.observed.signature(version, &key)),
        };
        Some(Negotiated {
            library: TlsLibrary::Rustls,
            version,
            suite: suite_label(self.connection.negotiated_cipher_suite()?.suite()),
            group: group.map(NamedGroup::label),
            key,
            resumed: kind == HandshakeKind::Resumed,
            chain,
            hello_retry: kind == HandshakeKind::FullWithHelloRetryRequest,
            signature,
            unused_shares: self.observed.unused_shares(group),
        })
    }

    fn handshake_size(&self) -> Option<HandshakeSize> {
        self.memory.meter.size()
    }

    fn alpn(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    fn server_end_point(&self) -> Result<Vec<u8>, Error> {
        let certificate = self.connection.peer_certificates().and_then(<[_]>::first);
        let certificate = certificate.ok_or_else(certificate::absent)?;
        let digest =
            certificate::end_point_digest(certificate).ok_or_else(certificate::signed_without_digest)?;
        Ok(digest.of(certificate))
    }
}

impl RustlsSession {
    /// Processes everything received, and lets `write` append to the output once data can be sent.
    fn advance(
        &mut self,
        write: impl Fn(&mut Traffic<'_>, &mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<Progress, Error> {
        loop {
            let MemoryBuffers { incoming, outgoing, meter } = &mut self.memory;
            let UnbufferedStatus { mut discard, state } =
                self.connection.process_tls_records(incoming.unread_mut());
            let step = match state {
                Ok(ConnectionState::ReadTraffic(mut records)) => loop {
                    match records.next_record() {
                        Some(Ok(record)) => {
                            discard += record.discard;
                            self.early.append(record.payload);
                        }
                        Some(Err(error)) => break Err(error),
                        None => break Ok(None),
                    }
                },
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    let before = outgoing.len();
                    append_encoded(outgoing, &mut data)?;
                    meter.written(&outgoing[before..], incoming.unread().len());
                    Ok(None)
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    Ok(None)
                }
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    write(&mut traffic, outgoing)?;
                    Ok(Some(Progress::Open))
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.has_closed = true;
                    Ok(None)
                }
                Ok(ConnectionState::BlockedHandshake) => Ok(Some(Progress::Handshaking)),
                Ok(_) => Ok(Some(Progress::Closed)),
                Err(error) => Err(error),
            };
            incoming.consume(discard);
            meter.read(discard);
            match step {
                Ok(None) => {}
                Ok(Some(progress)) => return Ok(progress),
                Err(error) => return Err(self.fail(&error)),
            }
        }
    }

    /// Appends the alert to the output.
    fn fail(&mut self, error: &rustls::Error) -> Error {
        let MemoryBuffers { incoming, outgoing, .. } = &mut self.memory;
        let status = self.connection.process_tls_records(incoming.unread_mut());
        if let Ok(ConnectionState::EncodeTlsData(mut data)) = status.state {
            // The original error matters more than a failure here.
            let _ = append_encoded(outgoing, &mut data);
        }
        self.explain(error)
    }

    /// The reason in one line, or the verifier's if the certificate was rejected.
    fn explain(&self, error: &rustls::Error) -> Error {
        let offered = self.version.label();
        Error::Tls(match error {
            rustls::Error::InvalidCertificate(error) => {
                format!("the server's certificate does not verify: {}", verifier_reason(error))
            }
            rustls::Error::AlertReceived(alert) => {
                format!("alert {} (offered {offered})", alert_words(*alert))
            }
            other => format!("{other} (offered {offered})"),
        })
    }
}

fn append_encoded(
    outgoing: &mut Vec<u8>,
    data: &mut EncodeTlsData<'_, ClientConnectionData>,
) -> Result<(), Error> {
    let before = outgoing.len();
    let Err(EncodeError::InsufficientSize(missing)) = data.encode(&mut []) else { return Ok(()) };
    outgoing.resize(before + missing.required_size, 0);
    data.encode(&mut outgoing[before..]).map_err(|error| Error::Tls(error.to_string())).map(drop)
}

/// Lets `encrypt` append records with so many bytes of data.
fn append_encrypted(
    outgoing: &mut Vec<u8>,
    plain_bytes: usize,
    traffic: &mut Traffic<'_>,
    encrypt: impl Fn(&mut Traffic<'_>, &mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), Error> {
    /// Of a record: header, nonce or type, and tag.
    const OVERHEAD_BYTES: usize = 64;
    const RECORD_BYTES: usize = 1 << 14;
    let before = outgoing.len();
    let records = plain_bytes / RECORD_BYTES + 1;
    outgoing.resize(before + plain_bytes + records * OVERHEAD_BYTES, 0);
    let mut written = encrypt(traffic, &mut outgoing[before..]);
    // With a KeyUpdate before the data.
    if let Err(EncryptError::InsufficientSize(missing)) = written {
        outgoing.resize(before + missing.required_size, 0);
        written = encrypt(traffic, &mut outgoing[before..]);
    }
    outgoing.truncate(before + *written.as_ref().unwrap_or(&0));
    written.map(drop).map_err(|error| Error::Tls(error.to_string()))
}

/// The suite's IANA name; rustls names those of TLS 1.3 differently.
pub(super) fn suite_label(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => other.as_str().unwrap_or("a suite without a name"),
    }
}

/// OpenSSL's wording for cases that both libraries know, so that reports do not depend on the library.
fn verifier_reason(error: &CertificateError) -> String {
    let reason = match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "certificate has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "certificate is not yet valid"
        }
        CertificateError::NotValidForNameContext { expected: ServerName::IpAddress(_), .. } => {
            "IP address mismatch"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "hostname mismatch"
        }
        CertificateError::UnknownIssuer => "unable to get local issuer certificate",
        CertificateError::BadSignature => "certificate signature failure",
        // OpenSSL's.
        CertificateError::Other(reason) => return reason.to_string(),
        other => return other.to_string(),
    };
    reason.to_owned()
}

/// `protocol version` for `ProtocolVersion`.
fn alert_words(alert: AlertDescription) -> String {
    let name = format!("{alert:?}");
    let mut words = String::with_capacity(name.len() + 4);
    let mut after_lowercase = false;
    for letter in name.chars() {
        if letter.is_uppercase() && after_lowercase {
            words.push(' ');
        }
        after_lowercase = letter.is_lowercase();
        words.extend(letter.to_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs::default_provider;

    use super::*;

    #[test]
    fn alerts_in_words() {
        assert_eq!(alert_words(AlertDescription::ProtocolVersion), "protocol version");
        assert_eq!(alert_words(AlertDescription::UnknownCA), "unknown ca");
        assert_eq!(alert_words(AlertDescription::HandshakeFailure), "handshake failure");
    }

    #[test]
    fn suites_have_their_iana_names() {
        for suite in default_provider().cipher_suites {
            let label = suite_label(suite.suite());
            assert!(label.starts_with("TLS_"), "{label}");
        }
    }
}
