//! Compares how fast YCSB records are loaded into an empty server: with ciphertoll's loader, with pymongo's `insert_many`
//! in one process and batches of the same size, and with `go-ycsb load` and as many threads as the loader has connections.
//! All use the unix socket.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use ciphertoll_lab::Server;
use ciphertoll_load::driver::Task;
use ciphertoll_model::{Auth, Endpoint, Engine, ServerLevel, Workload, ycsb};

use crate::arm::tool::{number_after, output};
use crate::arm::{Generator, go_ycsb};
use crate::setup::BenchSetup;

/// The script for pymongo.
const INSERT_MANY: &str = include_str!("insert_many.py");

/// Removes all documents and loads the records again; returns records per second. The times of pymongo and ciphertoll
/// include the connect; that of go-ycsb, which inserts one record at a time, starts at its first response.
pub fn load(loader: Generator, setup: &BenchSetup<'_>) -> Result<f64> {
    setup.server.drop_documents()?;
    let records = f64::from(setup.rows.rows());
    match loader {
        Generator::Native => {
            let begun = Instant::now();
            setup.server.load_documents(setup.rows, &mut |_| (), &|| false)?;
            Ok(records / begun.elapsed().as_secs_f64())
        }
        Generator::Pymongo => Ok(records / insert_many(setup)?),
        Generator::GoYcsb => {
            let url = socket_url(&socket(setup)?);
            go_ycsb::load_records(setup, &url, setup.server.loading_connections())
        }
        _ => bail!("{} loads no documents", loader.label()),
    }
}

/// Returns the duration in seconds.
fn insert_many(setup: &BenchSetup<'_>) -> Result<f64> {
    let driver = setup.tools.pymongo.as_ref().context("pymongo is not installed")?;
    let script = setup.private.join("insert_many.py");
    std::fs::write(&script, INSERT_MANY).context("cannot write a script")?;
    let account = setup.server.account(Auth::default_of(setup.server.engine()));
    // The Python interpreter with pymongo, which runs its driver.
    let task = Task { workload: Workload::FindOne, scale: setup.rows };
    let mut command = Command::new(driver.command(&setup.program, &task).get_program());
    command.arg("-I").arg(script).arg(socket_url(&socket(setup)?));
    command.arg(account.user).arg(account.password_file);
    command.args([setup.server.database(), ycsb::COLLECTION, &setup.rows.rows().to_string()]);
    command.arg(Server::LOADING_BATCH.to_string());
    number_after(&output(&mut command)?, "seconds:").context("pymongo's script printed no time")
}

/// A link to the server's socket. Its name ends with `.sock`, by which drivers recognise sockets.
fn socket(setup: &BenchSetup<'_>) -> Result<PathBuf> {
    let Endpoint::Unix(socket) = setup.server.unix_endpoint() else { bail!("there is no unix socket") };
    let link = setup.private.join("server.sock");
    match symlink(socket, &link) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).context("cannot make a link to the socket")
        }
        _ => Ok(link),
    }
}

/// A connection URL: the path is the host, with escaped slashes.
fn socket_url(socket: &Path) -> String {
    format!("mongodb://{}/", socket.display().to_string().replace('/', "%2F"))
}

/// Loads the collection for go-ycsb, if it is installed.
pub fn prepare_go_ycsb(setup: &BenchSetup<'_>) -> Result<()> {
    if setup.tools.go_ycsb.is_some() { go_ycsb::load_own(setup) } else { Ok(()) }
}

/// The installed document database: MongoDB, otherwise FerretDB. The error says how to install one.
pub fn engine_here() -> Result<Engine, ciphertoll_lab::Error> {
    let found = |engine| ciphertoll_lab::find(&ServerLevel::of(engine)).map(|_| engine);
    found(Engine::MongoDb).or_else(|_| found(Engine::FerretDb))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_of_a_socket_path_are_escaped() {
        assert_eq!(socket_url(Path::new("/run/a/server.sock")), "mongodb://%2Frun%2Fa%2Fserver.sock/");
    }

    #[test]
    fn records_of_the_script_have_the_size_of_ycsb_records() {
        let line = |wanted: &str| INSERT_MANY.lines().any(|line| line == wanted);
        assert!(line(&format!("FIELDS = {}", ycsb::FIELDS)));
        assert!(line(&format!("FIELD_BYTES = {}", ycsb::FIELD_BYTES)));
    }
}
