//! What a configuration must fulfil.

use ciphertoll_model::{
    Ctx, Legacy, OpenVpnCipher, Path, Resumption, TlsLibrary, TlsPath, TlsStart, Treatment, Tunnel,
    Verification, labelled,
};

labelled! {
    /// What a configuration must fulfil, in addition to what [`insufficient`] requires of all.
    pub enum Need {
        /// The client side verifies the server's certificate and name, or the key of the tunnel's other end. Always required.
        Verify = "verify",
        /// Nothing between the client and the server sees plaintext.
        EndToEnd = "end-to-end",
        /// The server's files are encrypted.
        AtRest = "at-rest",
        /// No process besides client and server.
        NoNewProcess = "no-new-process",
        /// Nothing beyond the URL changes for the client.
        NoDriverChange = "no-driver-change",
    }
}

impl Need {
    /// Why `treatment` does not fulfil it, if so.
    pub fn unmet(self, treatment: &Treatment) -> Option<&'static str> {
        let Treatment { path, at_rest, .. } = treatment;
        match self {
            Self::Verify => insufficient(treatment),
            Self::EndToEnd => match path {
                Path::Proxy(_) => Some("the proxy sees plaintext on the clients' host"),
                Path::Tunnel(_) => Some("the ends of the tunnel see plaintext"),
                _ => None,
            },
            Self::AtRest => (!at_rest.encrypts()).then_some("the server's files are not encrypted"),
            Self::NoNewProcess => match path {
                Path::Proxy(_) => Some("it needs a proxy"),
                // In the kernel.
                Path::Tunnel(Tunnel::WireGuard) => None,
                Path::Tunnel(_) => Some("it needs a tunnel's processes"),
                _ => None,
            },
            Self::NoDriverChange => driver_change(treatment),
        }
    }
}

/// Why a configuration is never advised, if so: connections between hosts are not encrypted or weakly encrypted, or the server
/// is not verified.
pub fn insufficient(treatment: &Treatment) -> Option<&'static str> {
    let url = treatment.server.url.as_ref();
    match treatment.path {
        Path::Plain | Path::Compressed(_) | Path::Tunnel(Tunnel::OpenVpn(OpenVpnCipher::None)) => {
            Some("not encrypted")
        }
        Path::Unix => Some("not encrypted, and only for clients on the server's host"),
        path if path.legacy().is_some() => path.legacy().map(Legacy::reason),
        Path::Tls(_) if url.is_some_and(|url| url.tls.verification() != Verification::Full) => {
            Some("the URL does not verify the server's certificate and name")
        }
        Path::Proxy(proxy) => proxy.program.definition().insufficient,
        Path::Tls(_) | Path::Tunnel(_) => None,
    }
}

/// What a client would need that a URL cannot say.
fn driver_change(treatment: &Treatment) -> Option<&'static str> {
    if treatment.ctx == Some(Ctx::Shared) {
        return Some("the client must keep one TLS context");
    }
    let Path::Tls(TlsPath { resumption, start, parameters, .. }) = treatment.path else {
        return None;
    };
    if parameters.suite.is_some() || parameters.group.is_some() {
        return Some("the client must offer only this cipher suite or group");
    }
    match (resumption, start, parameters.library) {
        (Resumption::Always | Resumption::BySessionId, _, _) => Some("the client must resume TLS sessions"),
        (_, TlsStart::Eager, _) => Some("the client must send its first message before the server's answer"),
        (_, _, TlsLibrary::Rustls) => Some("the client must use rustls"),
        (_, _, TlsLibrary::OpenSsl35) => Some("the client must use OpenSSL 3.5 or newer"),
        // `sslnegotiation=direct` is in the URL.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use ciphertoll_model::{AtRest, Auth, Driver, Link, ServerLevel};

    use super::*;

    fn treatment(path: &str) -> Treatment {
        Treatment {
            server: "postgres".parse::<ServerLevel>().unwrap(),
            path: path.parse().unwrap(),
            auth: Auth::Trust,
            ctx: None,
            driver: Driver::Native,
            link: Link::Local,
            at_rest: AtRest::None,
        }
    }

    #[test]
    fn each_need_is_met_by_some_paths_only() {
        for (need, met, unmet) in [
            (Need::Verify, "tls1.3-p256", "proxysql"),
            (Need::Verify, "pgbouncer", "odyssey"),
            (Need::Verify, "proxy", "plain"),
            (Need::EndToEnd, "tls1.2-p256", "proxy"),
            (Need::EndToEnd, "tls1.3-p256+resume", "ssh-aes256-gcm"),
            (Need::NoNewProcess, "wireguard", "stunnel"),
            (Need::NoNewProcess, "tls1.3-p256", "proxy"),
            (Need::NoDriverChange, "tls1.3-p256+direct", "tls1.3-p256+resume"),
            (Need::NoDriverChange, "proxy", "tls1.3-p256+eager"),
            (Need::NoDriverChange, "tls1.3-p256", "tls1.3-p256+client=rustls"),
            (Need::NoDriverChange, "tls1.3-p256", "tls1.3-p256+group=x25519"),
        ] {
            assert_eq!(need.unmet(&treatment(met)), None, "{need:?} {met}");
            assert!(need.unmet(&treatment(unmet)).is_some(), "{need:?} {unmet}");
        }
        let shared = Treatment { ctx: Some(Ctx::Shared), ..treatment("tls1.3-p256") };
        assert!(Need::NoDriverChange.unmet(&shared).is_some());
        let encrypted = Treatment { at_rest: AtRest::Native, ..treatment("plain") };
        assert_eq!(Need::AtRest.unmet(&encrypted), None);
        assert!(Need::AtRest.unmet(&treatment("plain")).is_some());
    }

    #[test]
    fn insufficient_paths_are_known() {
        for path in [
            "plain",
            "unix",
            "openvpn-none",
            "plain+compress=zlib",
            "tls1.0-p256",
            "tls1.1-rsa2048",
            "tls1.2-rsa1024",
            "tls1.2-rsa4096+suite=DHE-RSA-AES256-SHA",
            "tls1.2-rsa2048+suite=AES256-GCM-SHA384",
            "pgbouncer+tls=1.2-rsa1024",
            "ssh-aes256-cbc",
            "openvpn-aes256-cbc",
            "proxysql",
            "odyssey",
        ] {
            assert!(insufficient(&treatment(path)).is_some(), "{path}");
        }
        for path in ["tls1.3", "tls1.2-rsa2048", "proxy", "pgbouncer", "ssh-aes256-gcm", "openvpn-aes256-gcm"]
        {
            assert_eq!(insufficient(&treatment(path)), None, "{path}");
        }
    }

    #[test]
    fn a_server_that_its_url_does_not_verify_is_insufficient() {
        let at = |mode: &str| {
            let url = format!("postgres://app@db.example/shop?sslmode={mode}&sslrootcert=ca.pem");
            let server = ServerLevel::at("there", url.parse().unwrap()).unwrap();
            insufficient(&Treatment { server, ..treatment("tls1.3") })
        };
        assert_eq!(at("verify-full"), None);
        assert!(at("verify-ca").is_some());
    }
}
