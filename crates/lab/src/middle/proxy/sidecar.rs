//! ciphertoll-proxy: nobody is asked for a password on its unix socket, as the kernel says whose process comes; by TCP, a
//! client proves that it knows the password which the proxy itself logs in with.

use std::collections::BTreeMap;

use ciphertoll_model::{Endpoint, Engine, PoolMode};
use nix::unistd::geteuid;

use super::{Admission, Program, ProxyStart, Wiring};
use crate::error::Error;
use crate::programs;
use crate::user::RunAs;

pub(super) fn program(
    wiring: &Wiring<'_>,
    start: &ProxyStart<'_>,
    front: &Endpoint,
) -> Result<Program, Error> {
    let file = programs::find_sidecar(&wiring.lab.helper)?;
    let listen = match front {
        Endpoint::Unix(path) => format!("unix:{}", path.display()),
        Endpoint::Tcp(address) => format!("tcp:{address}"),
        Endpoint::Host { host, port, .. } => format!("tcp:{host}:{port}"),
    };
    let mut arguments = vec!["--listen".to_owned(), listen, "--server".to_owned(), url(start)];
    arguments.extend(["--pool-size".to_owned(), start.pool_size().to_string()]);
    // Where nothing is said it pools sessions: versions that know nothing else do not know the flag.
    if start.proxy.mode == PoolMode::Transaction {
        arguments.extend(["--mode", start.proxy.mode.label()].map(ToOwned::to_owned));
    }
    if matches!((start.admission, front), (Admission::Password, Endpoint::Unix(_))) {
        arguments.extend(["--unix-auth", "password"].map(ToOwned::to_owned));
    }
    // Clients are ours, and it is not.
    if matches!((wiring.lab.run_as, front), (RunAs::Other(_), Endpoint::Unix(_))) {
        arguments.extend(["--allow-uid".to_owned(), geteuid().to_string()]);
    }
    let (mut environment, mut secrets) = (BTreeMap::new(), BTreeMap::new());
    if !wiring.password.expose().is_empty() {
        match start.server.engine() {
            Engine::MariaDb | Engine::MySql => {
                secrets.insert("MYSQL_PWD".to_owned(), start.account.password_file.clone());
            }
            // No proxy speaks its protocol.
            Engine::MongoDb | Engine::FerretDb => {}
            Engine::Postgres => {
                let passwords = wiring.write("pgpass", &format!("*:*:*:*:{}\n", wiring.password_text()))?;
                environment.insert("PGPASSFILE".to_owned(), passwords.display().to_string());
            }
        }
    }
    Ok(Program { file, arguments, environment, secrets })
}

/// Verified in full where nothing is said; the lab's own authority is named.
fn url(start: &ProxyStart<'_>) -> String {
    let (scheme, authority) = match start.server.engine() {
        Engine::MariaDb | Engine::MySql => ("mysql", "ssl-ca"),
        Engine::Postgres => ("postgres", "sslrootcert"),
        Engine::MongoDb | Engine::FerretDb => ("mongodb", "tlsCAFile"),
    };
    let (user, behind, database) = (&start.account.user, start.behind, start.server.database());
    format!("{scheme}://{user}@{behind}/{database}?{authority}={}", start.server.ca_file().display())
}
