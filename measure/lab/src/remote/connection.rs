//! Connections to a server at a URL.

use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::{
    AddressFamily, DocumentsLogin, LoginMechanism, QueryLanguage, ServerUrl, TlsDemand, TlsVersion, UrlPlace,
    Verification,
};
use ciphertoll_net::blocking::Client;
use ciphertoll_net::{Address, Instead, tls};
use ciphertoll_wire::session::{Login, ServerInfo};
use ciphertoll_wire::{Secret, mongodb, session};

use crate::error::Error;
use crate::servers::engine::{LoginRequest, UrlSyntax};
use crate::servers::engines;

/// Time that a server gets to forget a connection that was just closed.
const ROOM_TIME_LIMIT: Duration = Duration::from_secs(5);
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Time limit of a login, unless the URL has one.
pub(super) const LOGIN_LIMIT: Duration = Duration::from_secs(10);
/// Time limit for an answer to TLS if the server may not support it: a server that waits for a message of its protocol does
/// not answer at all.
const TLS_TIME_LIMIT: Duration = Duration::from_secs(3);
/// The round trip is the shortest of this many `hello` commands.
const HELLOS: usize = 3;
const HELLO: &str = r#"{"hello": 1}"#;

/// All TLS versions (`None`: no TLS) that the URL permits, the most secure first.
pub(super) fn tls_versions(url: &ServerUrl) -> Vec<Option<TlsVersion>> {
    let encrypted = [Some(TlsVersion::Tls13), Some(TlsVersion::Tls12)];
    match (&url.place, url.tls.demand) {
        (UrlPlace::Socket(_), _) | (_, TlsDemand::Never) => vec![None],
        (UrlPlace::Host { .. }, TlsDemand::Unsaid | TlsDemand::Both) => [&encrypted[..], &[None]].concat(),
        (UrlPlace::Host { .. }, TlsDemand::Always(_)) => encrypted.to_vec(),
    }
}

/// Whether the client refused the server's certificate.
pub(super) fn is_unverified(error: &ciphertoll_net::Error) -> bool {
    matches!(error, ciphertoll_net::Error::Tls(reason) if reason.contains("does not verify"))
}

pub(super) fn unverified(name: &str, url: &ServerUrl, reason: String) -> Error {
    let UrlSyntax { ca_option, without_name, unverified, .. } =
        engines::of(url.engine()).properties().url_syntax;
    let is_name = reason.contains("mismatch");
    let is_time = reason.contains("has expired") || reason.contains("not yet valid");
    let remedy = if is_time {
        format!("renew it on the server, or verify nothing: {unverified}")
    } else if is_name {
        let host = url.host().unwrap_or_default();
        format!("the URL names {host}: write a name of the certificate, or do not verify it: {without_name}")
    } else {
        let less = match url.tls.verification() {
            Verification::Full => format!("{without_name} (no name) or {unverified} (nothing)"),
            Verification::Authority | Verification::Off => unverified.to_owned(),
        };
        let verb =
            if url.tls.ca_file.is_some() { "name another CA file" } else { "name the CA that signed it" };
        format!("{verb} by {ca_option}=FILE in the URL, or verify less: {less}")
    };
    Error::Unverified { name: name.to_owned(), reason, remedy }
}

#[derive(Clone, Copy)]
pub(super) struct UrlLogin<'a> {
    pub(super) url: &'a ServerUrl,
    pub(super) password: &'a Secret,
}

impl UrlLogin<'_> {
    /// If the server has too many connections, tries again for a while: it may still count one that we have just closed.
    pub(super) fn connect(
        self,
        version: Option<TlsVersion>,
        database: Option<&str>,
        family: Option<AddressFamily>,
    ) -> Result<Client, ciphertoll_net::Error> {
        let deadline = Instant::now() + ROOM_TIME_LIMIT;
        loop {
            match self.connect_as(version, family, self.login(version, database), self.login_limit()) {
                Err(error) if error.is_too_many_connections() && Instant::now() < deadline => {
                    thread::sleep(RETRY_INTERVAL);
                }
                connected => return connected,
            }
        }
    }

    fn connect_as(
        self,
        version: Option<TlsVersion>,
        family: Option<AddressFamily>,
        login: Login,
        limit: Duration,
    ) -> Result<Client, ciphertoll_net::Error> {
        let context = self.context(version)?;
        Client::connect_within(&self.address(family), login, context.as_ref(), limit)
    }

    fn login_limit(self) -> Duration {
        self.url.connect_timeout.unwrap_or(LOGIN_LIMIT)
    }

    pub(super) fn address(self, family: Option<AddressFamily>) -> Address {
        match &self.url.place {
            UrlPlace::Host { host, port } => Address::Host { name: host.clone(), port: *port, family },
            UrlPlace::Socket(path) => Address::Unix(path.clone()),
        }
    }

    pub(super) fn context(
        self,
        version: Option<TlsVersion>,
    ) -> Result<Option<tls::Context>, ciphertoll_net::Error> {
        version.map(|version| tls::Context::build(&self.tls_settings(version))).transpose()
    }

    pub(super) fn login(self, version: Option<TlsVersion>, database: Option<&str>) -> Login {
        let Self { url, password } = self;
        if url.engine().query_language() == QueryLanguage::Documents {
            return document_login(url, password, version, database);
        }
        engines::of(url.engine()).login(&LoginRequest {
            user: &url.user,
            password,
            database,
            over_unix_socket: matches!(url.place, UrlPlace::Socket(_)),
            with_tls: version.is_some(),
            startup: &url.startup,
        })
    }

    fn tls_settings(self, version: TlsVersion) -> tls::Settings {
        let Self { url, .. } = self;
        let anchors = url.tls.ca_file.clone().map_or(tls::TrustAnchors::System, tls::TrustAnchors::File);
        let peer = tls::PeerName::from(url.host().unwrap_or_default());
        tls::Settings {
            verification: url.tls.verification(),
            identity: url.tls.identity.clone(),
            ..tls::Settings::new(tls::TlsParameters::new(version), anchors, peer)
        }
    }

    /// Sends `hello` without a login; returns the answer and the round trip.
    pub(super) fn greet(
        self,
        version: Option<TlsVersion>,
        limit: Duration,
    ) -> Result<(mongodb::MongoDbServerInfo, Duration), ciphertoll_net::Error> {
        let mut login = mongodb::MongoDbLogin::new("", Secret::new(Vec::new()));
        login.mechanism = mongodb::Mechanism::None;
        login.tls = encryption(version);
        let mut client =
            self.connect_as(version, None, Login::MongoDb(login.into()), limit.min(self.login_limit()))?;
        let mut round_trip = Duration::MAX;
        for _ in 0..HELLOS {
            let sent = Instant::now();
            client.execute(HELLO)?;
            round_trip = round_trip.min(sent.elapsed());
        }
        let server = match client.server() {
            ServerInfo::MongoDb(server) => server.clone(),
            ServerInfo::MySql(_) | ServerInfo::Postgres(_) => return Err(wrong_protocol()),
        };
        client.close()?;
        Ok((server, round_trip))
    }
}

/// Fails if a document database that may not support TLS does not answer to it. After one timeout, other versions are not
/// tried.
pub(super) fn check_tls_answer(
    url: &ServerUrl,
    version: Option<TlsVersion>,
    before: Option<&ciphertoll_net::Error>,
) -> Result<(), ciphertoll_net::Error> {
    if version.is_none() || !may_lack_tls(url) {
        return Ok(());
    }
    if let Some(ciphertoll_net::Error::OtherProtocol { protocol, instead }) = before {
        return Err(ciphertoll_net::Error::OtherProtocol { protocol, instead: instead.clone() });
    }
    let no_password = Secret::new(Vec::new());
    match (UrlLogin { url, password: &no_password }).greet(version, TLS_TIME_LIMIT) {
        Err(error @ ciphertoll_net::Error::OtherProtocol { .. }) => Err(error),
        // The login reports the reason of another failure.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Whether silence may mean that the server waits for a message without TLS.
fn may_lack_tls(url: &ServerUrl) -> bool {
    url.documents.is_some() && matches!(url.tls.demand, TlsDemand::Unsaid | TlsDemand::Both)
}

/// Whether no other TLS version need be tried: nothing answers there, or a server of another protocol.
pub(super) fn is_final(url: &ServerUrl, version: Option<TlsVersion>, error: &ciphertoll_net::Error) -> bool {
    match error {
        ciphertoll_net::Error::TimedOut { .. }
        | ciphertoll_net::Error::OtherProtocol { instead: Instead::Other { .. }, .. } => true,
        ciphertoll_net::Error::OtherProtocol { .. } => version.is_none() || !may_lack_tls(url),
        _ => false,
    }
}

fn wrong_protocol() -> ciphertoll_net::Error {
    let error = mongodb::Error::Protocol { message: "reply to hello", reason: "it is of another protocol" };
    session::Error::from(error).into()
}

/// The login with the options that a URL of a document database has.
fn document_login(
    url: &ServerUrl,
    password: &Secret,
    version: Option<TlsVersion>,
    database: Option<&str>,
) -> Login {
    let default = mongodb::MongoDbLogin::new(&url.user, password.clone());
    let options: Option<&DocumentsLogin> = url.documents.as_deref().map(|documents| &documents.login);
    let mechanism = options.map_or(LoginMechanism::Negotiated, |login| login.mechanism);
    Login::MongoDb(std::sync::Arc::new(mongodb::MongoDbLogin {
        database: database.map_or_else(|| default.database.clone(), ToOwned::to_owned),
        auth_source: options.map_or_else(|| default.auth_source.clone(), |login| login.auth_source.clone()),
        mechanism: match mechanism {
            LoginMechanism::None => mongodb::Mechanism::None,
            LoginMechanism::Negotiated => mongodb::Mechanism::Negotiated,
            LoginMechanism::ScramSha256 => mongodb::Mechanism::ScramSha256,
            LoginMechanism::ScramSha1 => mongodb::Mechanism::ScramSha1,
            LoginMechanism::X509 => mongodb::Mechanism::X509,
        },
        read_preference: options.map(|login| login.read_preference).unwrap_or_default(),
        tls: encryption(version),
        ..default
    }))
}

fn encryption(version: Option<TlsVersion>) -> mongodb::MongoDbTlsMode {
    if version.is_some() { mongodb::MongoDbTlsMode::Tls } else { mongodb::MongoDbTlsMode::Plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tls_versions_that_the_url_permits_are_tried() {
        let of = |url: &str| tls_versions(&url.parse().unwrap());
        let (tls12, tls13) = (Some(TlsVersion::Tls12), Some(TlsVersion::Tls13));
        assert_eq!(of("postgres://a@h"), [tls13, tls12, None]);
        assert_eq!(of("postgres://a@h?sslmode=require"), [tls13, tls12]);
        assert_eq!(of("postgres://a@h?sslmode=compare&sslrootcert=/ca.pem"), [tls13, tls12, None]);
        assert_eq!(of("mysql://a@h?ssl-mode=DISABLED"), [None]);
        assert_eq!(of("mysql://a@localhost?socket=/s"), [None]);
        assert_eq!(of("mongodb://a@h"), [tls13, tls12, None]);
        assert_eq!(of("mongodb://a@h/?tlsAllowInvalidHostnames=true"), [tls13, tls12]);
        assert_eq!([of("mongodb://h/?tls=false"), of("mongodb://%2Ftmp%2Fs.sock")], [[None], [None]]);
    }

    #[test]
    fn a_login_ends_after_ten_seconds_unless_the_url_says_otherwise() {
        let password = Secret::new(Vec::new());
        for (url, seconds) in
            [("postgres://a@h", 10), ("mysql://a@h", 10), ("postgres://a@h?connect_timeout=25", 25)]
        {
            let login = UrlLogin { url: &url.parse().unwrap(), password: &password };
            assert_eq!(login.login_limit(), Duration::from_secs(seconds), "{url}");
        }
    }

    #[test]
    fn the_remedy_fits_the_reason_for_which_a_certificate_is_refused() {
        for (reason, with, without) in [
            ("it has expired", "renew it on the server", "the CA"),
            ("it is not yet valid", "renew it on the server", "the CA"),
            ("hostname mismatch", "the URL names db.example: write a name of the certificate", "renew"),
            ("self-signed certificate", "name the CA that signed it by sslrootcert=FILE", "renew"),
        ] {
            let url = "postgres://a@db.example?sslmode=verify-full".parse().unwrap();
            let Error::Unverified { remedy, .. } = unverified("there", &url, reason.to_owned()) else {
                panic!("another error");
            };
            assert!(remedy.contains(with) && !remedy.contains(without), "{reason}: {remedy}");
        }
    }
}
