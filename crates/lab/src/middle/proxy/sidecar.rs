//! ciphertoll-proxy. Clients need no password on its Unix socket, where it checks the kernel-verified peer UID; over TCP they
//! must know the password of the proxy's own server login.

use std::path::PathBuf;

use ciphertoll_model::{Endpoint, PoolMode};
use nix::unistd::geteuid;

use super::setup::{ProxyCommand, ProxyContext, ProxyStart, SocketAuth};
use crate::error::Error;
use crate::host::user::RunAs;
use crate::servers::engine::{SidecarPassword, UrlSyntax};

pub(super) fn command(
    file: PathBuf,
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
    arguments.extend_from_slice(start.arguments);
    let mut command = ProxyCommand::new(file, arguments);
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

/// The server URL with the lab's own CA; full verification is the default.
fn url(start: &ProxyStart<'_>) -> String {
    let UrlSyntax { scheme, ca_option, .. } = start.server.server_engine().properties().url_syntax;
    let (user, behind, database) = (&start.account.user, start.behind, start.server.database());
    format!("{scheme}://{user}@{behind}/{database}?{ca_option}={}", start.server.ca_file().display())
}
