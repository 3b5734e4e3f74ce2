//! How fast YCSB's records come into a server that has none: by ciphertoll's loader, by pymongo's `insert_many` in one
//! process with batches of the same size, and by `go-ycsb load` with as many threads as the loader has connections. All
//! come by the unix socket, as the loader does.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use ciphertoll_lab::Server;
use ciphertoll_load::driver::{self, PreparedDriver, Task};
use ciphertoll_model::{Auth, Endpoint, Engine, ServerLevel, Workload, ycsb};

use crate::arm::{Place, Tools, go_ycsb, number_after};

/// What pymongo is driven by.
const INSERT_MANY: &str = include_str!("insert_many.py");

/// Who loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loader {
    /// The lab's own.
    Ciphertoll,
    /// pymongo's `insert_many`.
    Pymongo,
    /// `go-ycsb load`, which inserts one record at a time.
    GoYcsb,
}

/// What loading once has shown.
#[derive(Clone, Copy, Debug)]
pub struct Loaded {
    /// Records per second.
    pub rate_per_s: f64,
}

impl Loader {
    /// All, ours first.
    pub const ALL: [Self; 3] = [Self::Ciphertoll, Self::Pymongo, Self::GoYcsb];

    /// For the table of results.
    pub fn label(self) -> &'static str {
        match self {
            Self::Ciphertoll => "ciphertoll",
            Self::Pymongo => "pymongo",
            Self::GoYcsb => "go-ycsb",
        }
    }

    /// Whether it can be run here.
    pub fn is_here(self, tools: &Tools) -> bool {
        match self {
            Self::Ciphertoll => true,
            Self::Pymongo => tools.pymongo.is_some(),
            Self::GoYcsb => tools.go_ycsb.is_some(),
        }
    }

    /// Removes what there is and loads as many records as the place has. The clock of pymongo and of ciphertoll begins
    /// before they connect, go-ycsb's with its first answer.
    pub fn run(self, place: &Place<'_>) -> Result<Loaded> {
        place.server.drop_documents()?;
        let records = f64::from(place.rows.rows());
        let rate_per_s = match self {
            Self::Ciphertoll => {
                let begun = Instant::now();
                place.server.load_documents(place.rows, &mut |_| (), &|| false)?;
                records / begun.elapsed().as_secs_f64()
            }
            Self::Pymongo => records / insert_many(place)?,
            Self::GoYcsb => {
                let url = socket_url(&socket(place)?);
                go_ycsb::load_records(place, &url, place.server.loading_connections())?
            }
        };
        Ok(Loaded { rate_per_s })
    }
}

/// How long pymongo took, in seconds.
fn insert_many(place: &Place<'_>) -> Result<f64> {
    let driver = place.tools.pymongo.as_ref().context("there is no pymongo")?;
    let script = place.private.join("insert_many.py");
    std::fs::write(&script, INSERT_MANY).context("cannot write a script")?;
    let account = place.server.account(Auth::default_of(place.server.engine()));
    let mut command = Command::new(interpreter(driver, place));
    command
        .arg("-I")
        .arg(script)
        .arg(socket_url(&socket(place)?))
        .arg(account.user)
        .arg(account.password_file);
    command.args([place.server.database(), ycsb::COLLECTION, &place.rows.rows().to_string()]);
    command.arg(Server::LOADING_BATCH.to_string());
    let output = command.stdin(Stdio::null()).output().context("cannot run Python")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("pymongo failed: {}: {}", output.status, said.lines().last().unwrap_or_default());
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    number_after(&printed, "seconds:").context("pymongo's script printed no time")
}

/// The Python that has pymongo: the program that its driver runs on.
fn interpreter(driver: &PreparedDriver, place: &Place<'_>) -> PathBuf {
    let task = Task { workload: Workload::FindOne, scale: place.rows };
    PathBuf::from(driver.command(&place.program, &task).get_program())
}

/// The server's socket under a name by which drivers know that it is one.
fn socket(place: &Place<'_>) -> Result<PathBuf> {
    let Endpoint::Unix(socket) = place.server.unix_endpoint() else { bail!("there is no unix socket") };
    let link = place.private.join("server.sock");
    match symlink(socket, &link) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).context("cannot make a link to the socket")
        }
        _ => Ok(link),
    }
}

/// As drivers write it: the path is a host, whose slashes would begin something else.
fn socket_url(socket: &Path) -> String {
    format!("mongodb://{}/", socket.display().to_string().replace('/', "%2F"))
}

/// Loads what go-ycsb finds documents in, where it is here.
pub fn prepare_go_ycsb(place: &Place<'_>) -> Result<()> {
    if place.tools.go_ycsb.is_some() { go_ycsb::load_own(place) } else { Ok(()) }
}

/// Makes the built-in driver on pymongo ready, for which packages may be installed into `cache`.
pub fn prepare_pymongo(cache: &Path) -> Result<PreparedDriver, driver::Error> {
    driver::find("pymongo")?.prepare(cache)
}

/// The engine of documents that there is a server of: `MongoDB`, else `FerretDB`. The error says how to get one.
pub fn engine_here() -> Result<Engine, ciphertoll_lab::Error> {
    let found = |engine| ciphertoll_lab::find(&ServerLevel::of(engine)).map(|_| engine);
    found(Engine::MongoDb).or_else(|_| found(Engine::FerretDb))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_written_as_a_host() {
        assert_eq!(socket_url(Path::new("/run/a/server.sock")), "mongodb://%2Frun%2Fa%2Fserver.sock/");
    }

    #[test]
    fn pymongos_records_are_as_large_as_ours() {
        let line = |wanted: &str| INSERT_MANY.lines().any(|line| line == wanted);
        assert!(line(&format!("FIELDS = {}", ycsb::FIELDS)));
        assert!(line(&format!("FIELD_BYTES = {}", ycsb::FIELD_BYTES)));
    }
}
