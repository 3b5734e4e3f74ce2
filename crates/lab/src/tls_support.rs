//! What a server and this machine's TLS library can do of what a path says; the rest is left out with the reason.

use ciphertoll_model::{Engine, Group, QueryLanguage, Resumption, Suite, TlsPath, TlsStart, TlsVersion};
use ciphertoll_net::tls;

use crate::error::Error;
use crate::fetch::FETCHABLE;
use crate::find::version_numbers;

/// The first `PostgreSQL` that takes more than one group (`ssl_groups`).
const SEVERAL_GROUPS: u32 = 18;
/// The first `PostgreSQL` that looks for TLS in the first bytes, or right behind the request for it.
const TLS_AT_ONCE: u32 = 17;
/// The last MySQL seen to leave `ChaCha20` out of the suites that it takes in TLS 1.2 unless told otherwise.
const MYSQL_WITHOUT_CHACHA20: [u32; 3] = [8, 0, 33];
/// The first MySQL that has only versions of TLS that are not forbidden.
const MYSQL_WITHOUT_OLD_TLS: [u32; 3] = [8, 0, 28];
/// The first OpenSSL with ML-KEM.
const ML_KEM: [u32; 2] = [3, 5];

/// The first Go with it.
const ML_KEM_OF_GO: [u32; 2] = [1, 24];

/// Who answers.
#[derive(Clone, Copy)]
pub(crate) struct Answerer<'a> {
    pub(crate) engine: Engine,
    /// Of the build: `10.11.19`.
    pub(crate) release: &'a str,
    /// As the server tells it: `OpenSSL 3.0.19 …`.
    pub(crate) tls_library: Option<&'a str>,
}

/// Fails where the client's library or the server cannot do what `path` says.
pub(crate) fn check(path: TlsPath, answerer: Answerer<'_>) -> Result<(), Error> {
    if let Some(error) = tls::Context::lacks(&offered(path)) {
        return Err(Error::TlsUnavailable(error.to_string()));
    }
    check_version(path.version, answerer)?;
    if let Some(suite) = path.suite {
        check_suite(suite, path.version, answerer)?;
    }
    check_start(path.start, answerer)?;
    check_resumption(path.resumption, answerer.engine)?;
    match path.group {
        Some(group) => check_group(group, answerer),
        None => Ok(()),
    }
}

fn check_resumption(resumption: Resumption, engine: Engine) -> Result<(), Error> {
    let reason = match (engine, resumption) {
        (Engine::Postgres, Resumption::Always | Resumption::BySessionId) => {
            "PostgreSQL never resumes: it gives no tickets and keeps no session ids"
        }
        (Engine::FerretDb, Resumption::BySessionId) => {
            "FerretDB resumes by tickets only: Go's crypto/tls keeps no sessions"
        }
        _ => return Ok(()),
    };
    Err(Error::TlsUnavailable(reason.to_owned()))
}

fn check_start(start: TlsStart, answerer: Answerer<'_>) -> Result<(), Error> {
    let Answerer { engine, release, .. } = answerer;
    if engine.query_language() == QueryLanguage::Documents {
        let reason = "MongoDB's protocol begins with TLS in any case: there is nothing to be sent ahead";
        return match start {
            TlsStart::Requested => Ok(()),
            TlsStart::Direct | TlsStart::Eager => Err(Error::TlsUnavailable(reason.to_owned())),
        };
    }
    let at_once = |engine, release: &str| {
        let major = version_numbers(release).first().copied();
        engine == Engine::Postgres && major.is_some_and(|major| major >= TLS_AT_ONCE)
    };
    let possible = match start {
        TlsStart::Requested => true,
        TlsStart::Direct => at_once(engine, release),
        TlsStart::Eager => engine != Engine::Postgres || at_once(engine, release),
    };
    if possible {
        return Ok(());
    }
    let fetchable = FETCHABLE.iter().find(|one| at_once(one.engine, one.version));
    let fetch =
        fetchable.map(|one| format!(": fetch {} by `ciphertoll servers fetch {}`", one.version, one.name));
    let cure = format!(
        "{} does from version {TLS_AT_ONCE}{}",
        Engine::Postgres.display_name(),
        fetch.unwrap_or_default()
    );
    let server = format!("{} {release}", engine.display_name());
    Err(Error::TlsUnavailable(match start {
        TlsStart::Eager => format!("{server} takes nothing behind a request for TLS; {cure}"),
        TlsStart::Requested | TlsStart::Direct => {
            format!("{server} does not take TLS from the first byte; {cure}")
        }
    }))
}

fn check_version(version: TlsVersion, answerer: Answerer<'_>) -> Result<(), Error> {
    let Answerer { engine, release, .. } = answerer;
    if version.is_forbidden() && engine.query_language() == QueryLanguage::Documents {
        let server = format!("{} {release}", engine.display_name());
        return Err(Error::TlsUnavailable(format!("{server} has no {version} unless it is made to")));
    }
    let has_none =
        engine == Engine::MySql && version_numbers(release).as_slice() >= &MYSQL_WITHOUT_OLD_TLS[..];
    if version.is_forbidden() && has_none {
        let [major, minor, patch] = MYSQL_WITHOUT_OLD_TLS;
        let server = format!("{} {release}", engine.display_name());
        return Err(Error::TlsUnavailable(format!(
            "{server} has no {version}: it went with {major}.{minor}.{patch}"
        )));
    }
    Ok(())
}

fn check_suite(suite: Suite, version: TlsVersion, answerer: Answerer<'_>) -> Result<(), Error> {
    let Answerer { engine, release, .. } = answerer;
    // Of what paths can ask for: TLS 1.3's, and those with an exchange of keys on curves.
    if engine == Engine::FerretDb && version != TlsVersion::Tls13 && !suite.label().starts_with("ECDHE-") {
        let reason =
            format!("FerretDB {release} does not take {suite}: Go's crypto/tls leaves it out by default");
        return Err(Error::TlsUnavailable(reason));
    }
    let is_left_out = engine == Engine::MySql
        && version == TlsVersion::Tls12
        && suite.label().contains("CHACHA20")
        && version_numbers(release).as_slice() <= &MYSQL_WITHOUT_CHACHA20[..];
    if is_left_out {
        let server = format!("{} {release}", engine.display_name());
        let reason = format!("{server} takes no ChaCha20-Poly1305 in TLS 1.2 (its own ssl_cipher has none)");
        return Err(Error::TlsUnavailable(reason));
    }
    Ok(())
}

fn check_group(group: Group, answerer: Answerer<'_>) -> Result<(), Error> {
    let Answerer { engine, release, tls_library } = answerer;
    let server = format!("{} {release}", engine.display_name());
    let major = version_numbers(release).first().copied().unwrap_or_default();
    if engine == Engine::Postgres && major < SEVERAL_GROUPS && group != Group::P256 {
        return Err(Error::TlsUnavailable(format!(
            "{server} takes P-256 only (ssl_ecdh_curve): more than one group came with version {SEVERAL_GROUPS}"
        )));
    }
    if engine == Engine::FerretDb {
        return check_group_of_go(group, &server, tls_library);
    }
    let version = tls_library.and_then(|library| library.strip_prefix("OpenSSL "));
    let has_ml_kem = version.is_some_and(|version| version_numbers(version).as_slice() >= &ML_KEM[..]);
    if group == Group::X25519MlKem768 && !has_ml_kem {
        let library = tls_library.unwrap_or("a TLS library that it does not tell");
        let [major, minor] = ML_KEM;
        return Err(Error::TlsUnavailable(format!(
            "{server} has {library}: X25519MLKEM768 came with OpenSSL {major}.{minor}"
        )));
    }
    Ok(())
}

fn check_group_of_go(group: Group, server: &str, tls_library: Option<&str>) -> Result<(), Error> {
    let version = tls_library.and_then(|library| library.strip_prefix("Go ")?.split(' ').next());
    let has_ml_kem = version.is_some_and(|version| version_numbers(version).as_slice() >= &ML_KEM_OF_GO[..]);
    if group != Group::X25519MlKem768 || has_ml_kem {
        return Ok(());
    }
    let library = tls_library.unwrap_or("a TLS library that it does not tell");
    let [major, minor] = ML_KEM_OF_GO;
    Err(Error::TlsUnavailable(format!("{server} has {library}: X25519MLKEM768 came with Go {major}.{minor}")))
}

/// What a client would offer; to whom does not matter.
fn offered(path: TlsPath) -> tls::Settings {
    tls::Settings {
        library: path.library,
        version: path.version,
        verification: tls::Verification::Full,
        anchors: tls::TrustAnchors::System,
        suite: path.suite,
        group: path.group,
        security_level: path.security_level(),
        resumption: tls::Resumption::Never,
        peer: tls::PeerName::from("localhost"),
        identity: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(path: &str, engine: Engine, release: &str, tls_library: &str) -> Option<String> {
        let path: ciphertoll_model::Path = path.parse().unwrap();
        let answerer = Answerer { engine, release, tls_library: Some(tls_library) };
        check(path.as_tls().unwrap(), answerer).err().map(|error| error.to_string())
    }

    #[test]
    fn tls_at_once_came_with_postgres_17() {
        for path in ["tls1.3-p256+direct", "tls1.3-p256+eager"] {
            let of = |release| reason(path, Engine::Postgres, release, "OpenSSL");
            assert_eq!((of("17.2"), of("18.6")), (None, None));
            let said = of("15.18").unwrap();
            assert!(
                said.contains("PostgreSQL 15.18") && said.contains("`ciphertoll servers fetch postgres-18`"),
                "{said}"
            );
        }
        assert_eq!(reason("tls1.3-p256+eager", Engine::MariaDb, "10.11.19", "OpenSSL"), None);
        assert!(reason("tls1.3-p256+direct", Engine::MariaDb, "18.1", "OpenSSL").is_some());
    }

    #[test]
    fn postgres_never_resumes() {
        let of = |engine| reason("tls1.2-p256+resume", engine, "18.6", "OpenSSL");
        assert!(of(Engine::Postgres).unwrap().contains("never resumes"));
        assert_eq!(of(Engine::MariaDb), None);
    }

    #[test]
    fn postgres_took_one_group_up_to_17() {
        let of = |group: &str, release| {
            let path = format!("tls1.3-p256+group={group}");
            reason(&path, Engine::Postgres, release, "OpenSSL")
        };
        assert_eq!(of("p256", "15.18"), None);
        assert!(of("x25519", "17.2").unwrap().contains("takes P-256 only"));
        assert_eq!(of("x25519", "18.6"), None);
    }

    #[test]
    fn what_gos_tls_lacks_is_said() {
        let of = |path: &str| reason(path, Engine::FerretDb, "1.24.2", "Go 1.26.8 crypto/tls");
        for path in [
            "tls1.3-p256",
            "tls1.2-rsa2048",
            "tls1.3-p256+resume",
            "tls1.2-rsa2048+suite=ECDHE-RSA-AES256-SHA",
            "tls1.3-p256+suite=TLS_CHACHA20_POLY1305_SHA256+group=p521",
        ] {
            assert_eq!(of(path), None, "{path}");
        }
        let said = of("tls1.2-rsa2048+suite=AES256-GCM-SHA384").unwrap();
        assert!(said.contains("FerretDB 1.24.2") && said.contains("Go's crypto/tls"), "{said}");
        assert!(of("tls1.3-p256+direct").unwrap().contains("begins with TLS"));
        let answerer = |tls_library| Answerer { engine: Engine::FerretDb, release: "1.24.2", tls_library };
        let ml_kem = |library| check_group(Group::X25519MlKem768, answerer(library));
        assert!(ml_kem(Some("Go 1.24.3 crypto/tls")).is_ok());
        assert!(ml_kem(Some("Go 1.23.9 crypto/tls")).is_err() && ml_kem(None).is_err());
    }

    #[test]
    fn what_the_clients_library_lacks_is_said() {
        let path = "tls1.2-p256+suite=ECDHE-ECDSA-AES256-SHA+client=rustls";
        let said = reason(path, Engine::MariaDb, "10.11.19", "OpenSSL 3.0.19").unwrap();
        assert!(said.contains("rustls") && said.contains("AES_256_CBC"), "{said}");
    }

    #[test]
    fn mysql_has_chacha20_in_tls_1_3_only() {
        let of = |path: &str| reason(path, Engine::MySql, "8.0.33", "OpenSSL 1.1.1t  7 Feb 2023");
        let said = of("tls1.2-p256+suite=ECDHE-ECDSA-CHACHA20-POLY1305").unwrap();
        assert_eq!(said, "MySQL 8.0.33 takes no ChaCha20-Poly1305 in TLS 1.2 (its own ssl_cipher has none)");
        assert_eq!(of("tls1.3-p256+suite=TLS_CHACHA20_POLY1305_SHA256"), None);
        assert_eq!(of("tls1.2-p256+suite=ECDHE-ECDSA-AES256-GCM-SHA384"), None);
        let newer = "8.4.7";
        assert_eq!(
            reason("tls1.2-rsa2048+suite=ECDHE-RSA-CHACHA20-POLY1305", Engine::MySql, newer, ""),
            None
        );
    }

    #[test]
    fn ml_kem_takes_a_new_library_on_the_servers_side_too() {
        let group = Group::X25519MlKem768;
        let with = |tls_library| {
            check_group(group, Answerer { engine: Engine::MariaDb, release: "11.8.6", tls_library })
        };
        assert!(with(Some("OpenSSL 3.0.19 27 Jan 2026")).is_err() && with(None).is_err());
        assert!(with(Some("OpenSSL 3.5.1")).is_ok());
    }
}
