//! Checks that every run requires: the server user, ports, the TLS library.

use std::error::Error;
use std::os::unix::net::UnixStream;
use std::thread;

use ciphertoll_host::accounting::PortUsage;
use ciphertoll_host::port::free_port;
use ciphertoll_host::user::RunAs;
use ciphertoll_model::ServerKey;
use nix::unistd::{Uid, User};
use openssl::error::ErrorStack;
use openssl::pkey::PKey;
use openssl::ssl::{Ssl, SslContext, SslContextBuilder, SslMethod, SslVerifyMode, SslVersion};
use openssl::x509::X509;
use openssl::x509::store::X509StoreBuilder;

use super::finding::{CheckPurpose, Finding, Need};
use crate::tls::certificates::Authority;

/// `TIME_WAIT` lasts a minute: connect workloads make tens of thousands of connects in that time.
const ENOUGH_PORTS: u32 = 16_384;

pub(super) fn server_user() -> Finding {
    let (purpose, name) = (CheckPurpose::Measure, "server user");
    let finding = match RunAs::choose() {
        Ok(RunAs::Ourselves) => {
            Finding::ok(purpose, name, format!("servers run as you, {}", user_name(Uid::effective())))
        }
        Ok(RunAs::Other(user)) => {
            Finding::ok(purpose, name, format!("you are root: servers run as {}", user_name(user.user_id())))
        }
        Err(error) => {
            Finding::no(purpose, name, error, "run ciphertoll as an ordinary user, or: useradd nobody")
        }
    };
    finding.needed(Need::Always)
}

fn user_name(uid: Uid) -> String {
    match User::from_uid(uid) {
        Ok(Some(user)) => format!("{} ({uid})", user.name),
        _ => format!("user {uid}"),
    }
}

pub(super) fn ports() -> Finding {
    let (purpose, name) = (CheckPurpose::Measure, "ports");
    if free_port(&[]).is_none() {
        let cure = "permit programs to listen on 127.0.0.1, ports 20000 to 32767";
        return Finding::no(purpose, name, "no program can listen on a port of 127.0.0.1", cure)
            .needed(Need::Always);
    }
    let finding = match PortUsage::read_of(std::process::id().cast_signed()) {
        Ok(ports) => check_count(ports.usable),
        Err(error) => Finding::limited(purpose, name, error, "mount /proc"),
    };
    finding.needed(Need::Always)
}

fn check_count(usable: u32) -> Finding {
    const CURE: &str = "sysctl -w net.ipv4.ip_local_port_range='32768 60999'";
    let seen = format!("programs can listen on 127.0.0.1; {usable} ephemeral ports");
    if usable < ENOUGH_PORTS {
        return Finding::limited(CheckPurpose::Measure, "ports", seen, CURE);
    }
    Finding::ok(CheckPurpose::Measure, "ports", seen)
}

pub(super) fn tls() -> Finding {
    const CURE: &str = "install OpenSSL 1.1.1 or later, and permit TLS 1.2 and 1.3 in openssl.cnf (MinProtocol, MaxProtocol)";
    let library = openssl::version::version();
    let versions = [("1.3", SslVersion::TLS1_3), ("1.2", SslVersion::TLS1_2)];
    let mut done = Vec::new();
    let mut failed = Vec::new();
    for (name, version) in versions {
        match handshake(version) {
            Ok(suite) => done.push(format!("TLS {name} ({suite})")),
            Err(reason) => failed.push(format!("TLS {name} fails: {reason}")),
        }
    }
    let all: Vec<String> = done.iter().chain(&failed).cloned().collect();
    let seen = format!("{library}: {}", all.join(", "));
    let (purpose, name) = (CheckPurpose::Measure, "TLS");
    let finding = match (done.is_empty(), failed.is_empty()) {
        (_, true) => Finding::ok(purpose, name, seen),
        (false, false) => Finding::limited(purpose, name, seen, CURE),
        (true, false) => Finding::no(purpose, name, seen, CURE),
    };
    finding.needed(Need::Always)
}

/// Does a handshake with ourselves in exactly `version`; returns the agreed suite.
fn handshake(version: SslVersion) -> Result<String, Box<dyn Error + Send + Sync>> {
    let authority = Authority::generate()?;
    let server = Ssl::new(&*server_context(&authority, version)?)?;
    let mut client = Ssl::new(&*client_context(&authority, version)?)?;
    client.param_mut().set_host("localhost")?;
    let (near, far) = UnixStream::pair()?;
    let accepted = thread::spawn(move || server.accept(far).map(drop));
    let connected = client.connect(near);
    let accepted = accepted.join().map_err(|_| "the server's side panicked")?;
    let stream = connected?;
    accepted?;
    Ok(stream.ssl().current_cipher().map_or("no suite", |suite| suite.name()).to_owned())
}

fn server_context(authority: &Authority, version: SslVersion) -> Result<SslContext, ErrorStack> {
    let certificate = authority.issue(ServerKey::P256)?;
    let mut context = only(SslMethod::tls_server(), version)?;
    let leaf = X509::from_pem(&certificate.certificate_pem)?;
    let key = PKey::private_key_from_pem(&certificate.key_pem)?;
    context.set_certificate(&leaf)?;
    context.set_private_key(&key)?;
    Ok(context.build())
}

fn client_context(authority: &Authority, version: SslVersion) -> Result<SslContext, ErrorStack> {
    let mut trusted = X509StoreBuilder::new()?;
    trusted.add_cert(X509::from_pem(&authority.certificate_pem()?)?)?;
    let mut context = only(SslMethod::tls_client(), version)?;
    context.set_cert_store(trusted.build());
    context.set_verify(SslVerifyMode::PEER);
    Ok(context.build())
}

fn only(method: SslMethod, version: SslVersion) -> Result<SslContextBuilder, ErrorStack> {
    let mut context = SslContextBuilder::new(method)?;
    context.set_min_proto_version(Some(version))?;
    context.set_max_proto_version(Some(version))?;
    Ok(context)
}

#[cfg(test)]
mod tests {
    use super::super::finding::CheckOutcome;
    use super::*;

    #[test]
    fn our_own_library_completes_a_handshake() {
        let suite = handshake(SslVersion::TLS1_3).unwrap();
        assert!(suite.starts_with("TLS_"), "{suite}");
        let finding = tls();
        assert!(finding.verdict == CheckOutcome::Ok && finding.seen.contains("TLS 1.2"), "{finding:?}");
    }

    #[test]
    fn few_ports_are_a_limitation() {
        assert_eq!(check_count(28_232).verdict, CheckOutcome::Ok);
        assert!(matches!(check_count(1_000).verdict, CheckOutcome::Limited { .. }));
    }
}
