//! ciphertoll-proxy. Clients need no password on its Unix socket, where it checks the kernel-verified peer UID; over TCP they
//! must know the password of the proxy's own server login.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ciphertoll_host::user::RunAs;
use ciphertoll_model::{Endpoint, PoolMode, SocketAuth};
use ciphertoll_record::Context;
use nix::unistd::geteuid;
use serde::Deserialize;

use super::setup::{ProxyCommand, ProxyContext, ProxyStart};
use crate::error::Error;
use crate::servers::engine::{SidecarPassword, UrlSyntax};
use crate::tls::newer_openssl::ClientOpenSsl;

pub(super) fn command(
    file: &Path,
    context: &ProxyContext<'_>,
    start: &ProxyStart<'_>,
    endpoint: &Endpoint,
) -> Result<ProxyCommand, Error> {
    let listen = match endpoint {
        Endpoint::Unix(path) => format!("unix:{}", path.display()),
        Endpoint::Tcp(address) => format!("tcp:{address}"),
        Endpoint::Host { host, port, .. } => format!("tcp:{host}:{port}"),
    };
    let mut arguments = vec!["--listen".to_owned(), listen, "--server".to_owned(), url(start)];
    arguments.extend(["--pool-size".to_owned(), start.pool_size().to_string()]);
    // Session mode is the default. Versions without other modes do not have the flag.
    if start.proxy.mode == PoolMode::Transaction {
        arguments.extend(["--mode", start.proxy.mode.label()].map(ToOwned::to_owned));
    }
    if matches!((start.admission, endpoint), (SocketAuth::Password, Endpoint::Unix(_))) {
        arguments.extend(["--unix-auth", "password"].map(ToOwned::to_owned));
    }
    // The clients run as ourselves, the proxy as another user.
    if matches!((context.workspace.run_as, endpoint), (RunAs::Other(_), Endpoint::Unix(_))) {
        arguments.extend(["--allow-uid".to_owned(), geteuid().to_string()]);
    }
    // The server does not report the group of a connection, so the sidecar is asked for it.
    if let Some(group) = start.proxy.group {
        arguments.extend(["--tls-groups", group.label(), "--admin"].map(ToOwned::to_owned));
        arguments.push(format!("unix:{}", admin_socket(context.run).display()));
    }
    arguments.extend_from_slice(start.arguments);
    let openssl = ClientOpenSsl::for_library(start.proxy.upstream_tls().parameters.library)?;
    let (file, own) = openssl.start(file);
    let mut command = ProxyCommand::new(file, own.into_iter().chain(arguments).collect());
    if !context.password.expose().is_empty() {
        match start.server.server_engine().properties().sidecar_password {
            SidecarPassword::Variable(name) => {
                command.secrets.insert(name.to_owned(), start.account.password_file.clone());
            }
            SidecarPassword::Unsupported => {}
            SidecarPassword::PgPass => {
                let passwords = context.write("pgpass", &format!("*:*:*:*:{}\n", context.password_text()))?;
                command.environment.insert("PGPASSFILE".to_owned(), passwords.display().to_string());
            }
        }
    }
    Ok(command)
}

fn admin_socket(run: &Path) -> PathBuf {
    run.join("admin.sock")
}

/// How many server connections it has opened, by the group of their key exchange.
#[derive(Debug, Default, Deserialize)]
struct SidecarStatus {
    groups: BTreeMap<String, u64>,
}

/// The group of its server connections, if all that it has opened have the same; otherwise all groups, with a comma between
/// them. Read from the status that it serves over HTTP.
pub(super) fn group(run: &Path) -> Result<String, Error> {
    /// More than the status of one user and one database takes.
    const MAX_BYTES: u64 = 1 << 20;
    const LIMIT: Duration = Duration::from_secs(10);
    let path = admin_socket(run);
    let exchange = || -> io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(&path)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.write_all(b"GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.take(MAX_BYTES).read_to_end(&mut answer)?;
        Ok(answer)
    };
    let answer = exchange().context("read the status of the proxy at", &path)?;
    let status = parse(&answer).unwrap_or_default();
    Ok(status.groups.into_keys().collect::<Vec<_>>().join(","))
}

/// The body of a response with status 200; `None` for anything else.
fn parse(answer: &[u8]) -> Option<SidecarStatus> {
    let text = std::str::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let body = head.starts_with("HTTP/1.1 200 ").then_some(body)?;
    serde_json::from_str(body).ok()
}

/// The server URL with the lab's own CA; full verification is the default.
fn url(start: &ProxyStart<'_>) -> String {
    let UrlSyntax { scheme, ca_option, .. } = start.server.server_engine().properties().url_syntax;
    let (user, behind, database) = (&start.account.user, start.behind, start.server.database());
    format!("{scheme}://{user}@{behind}/{database}?{ca_option}={}", start.server.ca_file().display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_from_the_status() {
        let answer = |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{body}");
        let groups = |answer: &str| parse(answer.as_bytes()).map(|status| status.groups);
        let known = groups(&answer(r#"{"version":"1","groups":{"p256":1,"x25519mlkem768":4}}"#)).unwrap();
        assert_eq!(known.into_iter().collect::<Vec<_>>(), [("p256".into(), 1), ("x25519mlkem768".into(), 4)]);
        for unknown in
            [answer("{}"), answer("no JSON"), "HTTP/1.1 503 Service\r\n\r\n{}".to_owned(), String::new()]
        {
            assert_eq!(groups(&unknown), None, "{unknown}");
        }
    }
}
