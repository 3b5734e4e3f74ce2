//! Which of today's clients the settings of a configuration would lock out.

use ciphertoll_model::{ClientCertificate, Engine, Path, ProxyProgram, TlsVersion, Treatment};
use serde::Serialize;

/// How clients of a running server are connected: shares of its connections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConnectionShares {
    /// Absent if the server does not say.
    pub without_tls: Option<f64>,
    /// Empty if the server does not say.
    pub by_version: Vec<(TlsVersion, f64)>,
}

/// Clients that the settings refuse.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RefusedClients {
    #[serde(flatten)]
    pub kind: RefusedKind,
    /// Of today's connections, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "clients", rename_all = "snake_case")]
pub enum RefusedKind {
    WithoutTls,
    /// Whose newest version is older than this one.
    OlderThan {
        version: TlsVersion,
    },
    WithoutCertificate,
}

impl ConnectionShares {
    fn older_than(&self, version: TlsVersion) -> Option<f64> {
        let older = self.by_version.iter().filter(|(of, _)| *of < version).map(|(_, share)| share);
        // Without any TLS, no version is refused.
        let is_known = !self.by_version.is_empty() || self.without_tls == Some(1.0);
        is_known.then(|| older.sum())
    }
}

/// The oldest version that the settings of a path with this one accept.
pub(super) fn oldest_accepted(version: TlsVersion) -> TlsVersion {
    version.max(TlsVersion::Tls12)
}

/// Those of the printed settings; empty for a configuration without a template.
pub fn refused_clients(treatment: &Treatment, today: Option<&ConnectionShares>) -> Vec<RefusedClients> {
    let (version, certificate) = match treatment.path {
        _ if matches!(treatment.server.engine, Engine::MongoDb | Engine::FerretDb) => return Vec::new(),
        Path::Tls(tls) => (tls.parameters.version, tls.client_certificate),
        Path::Proxy(proxy) if proxy.program == ProxyProgram::SIDECAR => {
            (proxy.version, ClientCertificate::None)
        }
        _ => return Vec::new(),
    };
    let oldest = oldest_accepted(version);
    let without =
        RefusedClients { kind: RefusedKind::WithoutTls, share: today.and_then(|today| today.without_tls) };
    let older = RefusedClients {
        kind: RefusedKind::OlderThan { version: oldest },
        share: today.and_then(|today| today.older_than(oldest)),
    };
    let certificate = (certificate == ClientCertificate::Demanded)
        .then_some(RefusedClients { kind: RefusedKind::WithoutCertificate, share: None });
    [without, older].into_iter().chain(certificate).collect()
}

#[cfg(test)]
mod tests {
    use ciphertoll_model::{AtRest, Auth, Driver, Link};

    use super::*;

    fn refused(path: &str, today: &ConnectionShares) -> Vec<(RefusedKind, Option<f64>)> {
        let treatment = Treatment {
            server: "postgres".parse().unwrap(),
            path: path.parse().unwrap(),
            auth: Auth::Trust,
            ctx: None,
            driver: Driver::Native,
            link: Link::Local,
            at_rest: AtRest::None,
        };
        refused_clients(&treatment, Some(today)).iter().map(|refused| (refused.kind, refused.share)).collect()
    }

    #[test]
    fn plaintext_and_older_versions_are_counted() {
        let by_version =
            vec![(TlsVersion::Tls13, 0.25), (TlsVersion::Tls12, 0.5), (TlsVersion::Tls10, 0.125)];
        let today = ConnectionShares { without_tls: Some(0.125), by_version };
        assert_eq!(
            refused("tls1.3-p256", &today),
            [
                (RefusedKind::WithoutTls, Some(0.125)),
                (RefusedKind::OlderThan { version: TlsVersion::Tls13 }, Some(0.625))
            ]
        );
        assert_eq!(
            refused("tls1.2-p256", &today)[1],
            (RefusedKind::OlderThan { version: TlsVersion::Tls12 }, Some(0.125))
        );
        assert_eq!(refused("proxy", &today).len(), 2);
        assert_eq!(refused("tls1.3-p256+mtls", &today)[2], (RefusedKind::WithoutCertificate, None));
        assert_eq!(refused("wireguard", &today), []);
    }

    #[test]
    fn what_the_server_does_not_say_is_unknown() {
        let today = ConnectionShares::default();
        assert!(refused("tls1.3-p256", &today).iter().all(|(_, share)| share.is_none()));
        let plain = ConnectionShares { without_tls: Some(1.0), ..today };
        assert_eq!(refused("tls1.3-p256", &plain)[1].1, Some(0.0));
    }
}
