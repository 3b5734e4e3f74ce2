//! Compares how fast YCSB records are loaded into an empty server: with ciphertoll's loader, with pymongo's `insert_many`
//! in one process and batches of the same size, and with `go-ycsb load` and as many threads as the loader has connections.
//! All use the unix socket.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use ciphertoll_lab::Server;
use ciphertoll_load::driver::{self, PreparedDriver, Task};
use ciphertoll_model::{Auth, Endpoint, Engine, ServerLevel, Workload, ycsb};

use crate::arm::{ArmSetup, Tools, go_ycsb, number_after};

/// The script for pymongo.
const INSERT_MANY: &str = include_str!("insert_many.py");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loader {
    Ciphertoll,
    Pymongo,
    /// `go-ycsb load`, which inserts one record at a time.
    GoYcsb,
}

#[derive(Clone, Copy, Debug)]
pub struct Loaded {
    pub rate_per_s: f64,
}

impl Loader {
    pub const ALL: [Self; 3] = [Self::Ciphertoll, Self::Pymongo, Self::GoYcsb];

    pub fn label(self) -> &'static str {
        match self {
            Self::Ciphertoll => "ciphertoll",
            Self::Pymongo => "pymongo",
            Self::GoYcsb => "go-ycsb",
        }
    }

    pub fn is_installed(self, tools: &Tools) -> bool {
        match self {
            Self::Ciphertoll => true,
            Self::Pymongo => tools.pymongo.is_some(),
            Self::GoYcsb => tools.go_ycsb.is_some(),
        }
    }

    /// Removes all documents and loads the records again. The times of pymongo and ciphertoll include the connect; that of
    /// go-ycsb starts at its first response.
    pub fn run(self, setup: &ArmSetup<'_>) -> Result<Loaded> {
        setup.server.drop_documents()?;
        let records = f64::from(setup.rows.rows());
        let rate_per_s = match self {
            Self::Ciphertoll => {
                let begun = Instant::now();
                setup.server.load_documents(setup.rows, &mut |_| (), &|| false)?;
                records / begun.elapsed().as_secs_f64()
            }
            Self::Pymongo => records / insert_many(setup)?,
            Self::GoYcsb => {
                let url = socket_url(&socket(setup)?);
                go_ycsb::load_records(setup, &url, setup.server.loading_connections())?
            }
        };
        Ok(Loaded { rate_per_s })
    }
}

/// Returns the duration in seconds.
fn insert_many(setup: &ArmSetup<'_>) -> Result<f64> {
    let driver = setup.tools.pymongo.as_ref().context("pymongo is not installed")?;
    let script = setup.private.join("insert_many.py");
    std::fs::write(&script, INSERT_MANY).context("cannot write a script")?;
    let account = setup.server.account(Auth::default_of(setup.server.engine()));
    let mut command = Command::new(interpreter(driver, setup));
    command
        .arg("-I")
        .arg(script)
        .arg(socket_url(&socket(setup)?))
        .arg(account.user)
        .arg(account.password_file);
    command.args([setup.server.database(), ycsb::COLLECTION, &setup.rows.rows().to_string()]);
    command.arg(Server::LOADING_BATCH.to_string());
    let output = command.stdin(Stdio::null()).output().context("cannot run Python")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("pymongo failed: {}: {}", output.status, said.lines().last().unwrap_or_default());
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    number_after(&printed, "seconds:").context("pymongo's script printed no time")
}

/// The Python interpreter with pymongo, which runs its driver.
fn interpreter(driver: &PreparedDriver, setup: &ArmSetup<'_>) -> PathBuf {
    let task = Task { workload: Workload::FindOne, scale: setup.rows };
    PathBuf::from(driver.command(&setup.program, &task).get_program())
}

/// A link to the server's socket. Its name ends with `.sock`, by which drivers recognise sockets.
fn socket(setup: &ArmSetup<'_>) -> Result<PathBuf> {
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
pub fn prepare_go_ycsb(setup: &ArmSetup<'_>) -> Result<()> {
    if setup.tools.go_ycsb.is_some() { go_ycsb::load_own(setup) } else { Ok(()) }
}

/// Prepares ciphertoll's driver on pymongo, which may install packages into `cache`.
pub fn prepare_pymongo(cache: &Path) -> Result<PreparedDriver, driver::Error> {
    driver::find("pymongo")?.prepare(cache)
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
