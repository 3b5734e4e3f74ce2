//! A ClientHello that only asks what a server selects. No key is computed for it, so that the handshake cannot go on.

use crate::tls::extensions::{
    KEY_SHARE, SERVER_NAME, SIGNATURE_ALGORITHMS, SUPPORTED_GROUPS, SUPPORTED_VERSIONS,
};
use crate::tls::group::NamedGroup;
use crate::tls::handshake::{ClientAuthentication, Stage};
use crate::tls::handshake_observer::HandshakeObserver;
use crate::tls::messages::CLIENT_HELLO;
use crate::tls::observer::FlightObserver;
use crate::tls::records::HANDSHAKE;

const TLS_1_0: u16 = 0x0301;
const TLS_1_2: u16 = 0x0303;
const TLS_1_3: u16 = 0x0304;

/// Suites of TLS 1.3.
const SUITES_1_3: [u16; 5] = [0x1302, 0x1303, 0x1301, 0x1304, 0x1305];
/// Suites up to TLS 1.2 without a known weakness but, of the last ones, no forward secrecy: the strongest first.
const SUITES: [u16; 28] = [
    0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc02b, 0xc02f, 0x009f, 0xccaa, 0x009e, 0xc0ad, 0xc0ac, 0xc024, 0xc028,
    0xc00a, 0xc014, 0xc023, 0xc027, 0xc009, 0xc013, 0x006b, 0x0039, 0x0067, 0x0033, 0x009d, 0x009c, 0x003d,
    0x0035, 0x002f,
];
/// Suites with RC4, 3DES, DES, no encryption, keys for export, or no authentication.
const WEAK_SUITES: [u16; 30] = [
    0x00a7, 0x00a6, 0x0001, 0xc012, 0xc008, 0x0016, 0x0013, 0x000a, 0xc011, 0xc007, 0x0005, 0x0004, 0xc018,
    0x006c, 0x0034, 0x006d, 0x003a, 0xc019, 0x0018, 0x0015, 0x0012, 0x0009, 0x0014, 0x0008, 0x0006, 0x0003,
    0xc010, 0xc006, 0x003b, 0x0002,
];
/// Not a suite: it says that the client knows secure renegotiation, which some servers require (RFC 5746).
const RENEGOTIATION_INFO: u16 = 0x00ff;
/// Of every kind of key that a server may have.
const SIGNATURES: [u16; 18] = [
    0x0403, 0x0503, 0x0603, 0x0807, 0x0808, 0x0804, 0x0805, 0x0806, 0x0809, 0x080a, 0x080b, 0x0904, 0x0905,
    0x0906, 0x0401, 0x0501, 0x0601, 0x0201,
];
/// The type of a server name.
const HOST_NAME: u8 = 0;
const EC_POINT_FORMATS: u16 = 11;
const EXTENDED_MASTER_SECRET: u16 = 23;

/// What such a hello offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeHello<'a> {
    /// TLS 1.3 with these groups, and a key share for none: the server answers by a HelloRetryRequest that names the group
    /// which it prefers (RFC 8446, 4.2.8).
    Groups(&'a [NamedGroup]),
    /// Versions up to this one, which is older than TLS 1.3.
    UpTo(u16),
    /// Versions up to TLS 1.2, with weak suites only.
    WeakSuites,
}

impl ProbeHello<'_> {
    /// Appends the hello, in one record. `random` also makes the session ID, which middleboxes expect. `server_name` says which
    /// server is meant, if several have one address (RFC 6066, 3).
    pub fn encode(self, random: [u8; 32], server_name: Option<&str>, out: &mut Vec<u8>) {
        let mut hello = Vec::new();
        let version = match self {
            Self::UpTo(version) => version,
            Self::Groups(_) | Self::WeakSuites => TLS_1_2,
        };
        hello.extend(version.to_be_bytes());
        hello.extend(random);
        let session_id = matches!(self, Self::Groups(_)).then_some(random);
        short_list(&mut hello, session_id.as_ref().map_or(&[], |random| random));
        list(&mut hello, &numbers(self.suites()));
        // No compression.
        short_list(&mut hello, &[0]);
        list(&mut hello, &self.extensions(server_name));
        let mut message = vec![CLIENT_HELLO, 0];
        list(&mut message, &hello);
        out.push(HANDSHAKE);
        out.extend(TLS_1_0.to_be_bytes());
        list(out, &message);
    }

    fn suites(self) -> Vec<u16> {
        match self {
            Self::Groups(_) => SUITES_1_3.to_vec(),
            Self::UpTo(_) => [&SUITES[..], &WEAK_SUITES, &[RENEGOTIATION_INFO]].concat(),
            Self::WeakSuites => [&WEAK_SUITES[..], &[RENEGOTIATION_INFO]].concat(),
        }
    }

    fn extensions(self, server_name: Option<&str>) -> Vec<u8> {
        const CURVES: [NamedGroup; 4] =
            [NamedGroup(0x001d), NamedGroup(0x0017), NamedGroup(0x0018), NamedGroup(0x0019)];
        let mut extensions = Vec::new();
        if let Some(name) = server_name {
            add(&mut extensions, SERVER_NAME, |content| {
                let mut host = vec![HOST_NAME];
                list(&mut host, name.as_bytes());
                list(content, &host);
            });
        }
        let groups = match self {
            Self::Groups(groups) => groups,
            Self::UpTo(_) | Self::WeakSuites => &CURVES,
        };
        add(&mut extensions, SUPPORTED_GROUPS, |content| {
            list(content, &numbers(groups.iter().map(|group| group.0)));
        });
        add(&mut extensions, SIGNATURE_ALGORITHMS, |content| list(content, &numbers(SIGNATURES)));
        if let Self::Groups(_) = self {
            add(&mut extensions, SUPPORTED_VERSIONS, |content| short_list(content, &TLS_1_3.to_be_bytes()));
            add(&mut extensions, KEY_SHARE, |content| list(content, &[]));
        } else {
            // Some servers require it (RFC 7627).
            add(&mut extensions, EXTENDED_MASTER_SECRET, |_| ());
            // Uncompressed points.
            add(&mut extensions, EC_POINT_FORMATS, |content| short_list(content, &[0]));
        }
        extensions
    }
}

/// What a server selected for such a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbedSelection {
    pub version: u16,
    pub suite: u16,
    /// In TLS 1.3.
    pub group: Option<NamedGroup>,
}

/// Reads a server's answer to a hello.
#[derive(Debug)]
pub struct ProbeAnswer {
    offered: Vec<u16>,
    flight: FlightObserver,
    handshake: HandshakeObserver,
}

impl ProbeAnswer {
    /// To this hello, as it was sent.
    #[must_use]
    pub fn to(hello: &[u8]) -> Self {
        let mut handshake = HandshakeObserver::new();
        handshake.client(hello, &mut |_| ());
        let offered = handshake.handshake().offer.as_ref().map(|offer| offer.suites.clone());
        Self { offered: offered.unwrap_or_default(), flight: FlightObserver::new(), handshake }
    }

    /// The next bytes, cut anywhere.
    pub fn read(&mut self, bytes: &[u8]) {
        self.flight.feed(bytes);
        self.handshake.server(bytes, &mut |_| ());
    }

    /// Whether nothing that follows matters.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let handshake = self.handshake.handshake();
        handshake.alert.is_some() || handshake.stage == Stage::NotTls || self.accepted().is_some()
    }

    /// Whether the server has sent nothing that answers the hello.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        let handshake = self.handshake.handshake();
        handshake.alert.is_none()
            && handshake.stage != Stage::NotTls
            && self.flight.flight().version.is_none()
    }

    /// What was selected. Up to TLS 1.2 a server may still fail after its ServerHello, for example because it
    /// cannot sign: its answer counts with its last message, or a request for a certificate.
    #[must_use]
    pub fn accepted(&self) -> Option<ProbedSelection> {
        let flight = self.flight.flight();
        let (version, suite) = flight.version.zip(flight.cipher_suite)?;
        let has_followed = self.handshake.handshake().client_certificate != ClientAuthentication::Unknown;
        let is_accepted = (version >= TLS_1_3 || has_followed) && self.offered.contains(&suite);
        is_accepted.then_some(ProbedSelection { version, suite, group: flight.group })
    }
}

fn add(extensions: &mut Vec<u8>, kind: u16, content: impl FnOnce(&mut Vec<u8>)) {
    let mut body = Vec::new();
    content(&mut body);
    extensions.extend(kind.to_be_bytes());
    list(extensions, &body);
}

fn numbers(numbers: impl IntoIterator<Item = u16>) -> Vec<u8> {
    numbers.into_iter().flat_map(u16::to_be_bytes).collect()
}

/// With a length of one byte. Longer lists than that are cut.
fn short_list(out: &mut Vec<u8>, content: &[u8]) {
    let length = u8::try_from(content.len()).unwrap_or(u8::MAX);
    out.push(length);
    out.extend_from_slice(&content[..usize::from(length)]);
}

/// With a length of two bytes. Longer lists than that are cut.
fn list(out: &mut Vec<u8>, content: &[u8]) {
    let length = u16::try_from(content.len()).unwrap_or(u16::MAX);
    out.extend(length.to_be_bytes());
    out.extend_from_slice(&content[..usize::from(length)]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::client_offer::ClientOffer;
    use crate::tls::key_shares;

    fn offer(hello: ProbeHello<'_>) -> (Vec<u8>, ClientOffer) {
        let mut bytes = Vec::new();
        hello.encode([7; 32], None, &mut bytes);
        let mut observer = HandshakeObserver::new();
        observer.client(&bytes, &mut |_| ());
        assert_eq!(observer.handshake().stage, Stage::AwaitServerHello);
        let offer = observer.handshake().offer.as_deref().cloned().unwrap();
        (bytes, offer)
    }

    #[test]
    fn groups_are_asked_for_without_a_key_share() {
        let groups = [NamedGroup(0x11ec), NamedGroup(0x0017)];
        let (bytes, offer) = offer(ProbeHello::Groups(&groups));
        assert_eq!(offer.groups, groups);
        assert_eq!(offer.suites, SUITES_1_3);
        assert_eq!(key_shares(&bytes), Some(Vec::new()));
    }

    #[test]
    fn a_server_name_is_sent_as_a_server_reads_it() {
        let named = |name| {
            let mut bytes = Vec::new();
            ProbeHello::WeakSuites.encode([7; 32], name, &mut bytes);
            bytes
        };
        let (with, without) = (named(Some("db.example")), named(None));
        let extension = [&[0, 0, 0, 15, 0, 13, 0, 0, 10][..], b"db.example"].concat();
        let holds = |bytes: &[u8]| bytes.windows(extension.len()).any(|window| window == extension);
        assert!(holds(&with) && !holds(&without), "{with:?}");
        assert_eq!(with.len(), without.len() + extension.len());
    }

    #[test]
    fn weak_suites_are_offered_last_or_alone() {
        let (_, up_to) = offer(ProbeHello::UpTo(0x0302));
        assert_eq!(up_to.suites[0], SUITES[0]);
        let (_, weak) = offer(ProbeHello::WeakSuites);
        assert!(weak.suites.iter().all(|suite| !SUITES.contains(suite)), "{:?}", weak.suites);
    }
}
