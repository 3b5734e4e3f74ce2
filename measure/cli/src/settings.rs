//! Checks the names of server settings before a record is made: the server programs can do so without a data directory.

use std::path::Path;
use std::process::{Command, Stdio};

use ciphertoll_model::{AtRest, Engine, ExitCode, Spec};

use crate::failure::Failure;
use crate::request::servers;

/// How the servers report an unknown setting.
const UNKNOWN: [&str; 3] = ["unrecognized configuration parameter", "unknown variable", "unknown option"];

/// Fails if a private server does not know a setting of `spec`. A server that cannot be asked is left to the run.
pub(crate) fn check_settings(spec: &Spec) -> Result<(), Failure> {
    // Encryption by the server itself loads plugins, whose settings are unknown without them.
    if spec.grids.iter().any(|grid| grid.at_rest.iter().any(|level| matches!(level, AtRest::Native))) {
        return Ok(());
    }
    for server in servers(spec) {
        let settings = spec.settings.of(server.engine);
        if server.url.is_some() || settings.is_empty() {
            continue;
        }
        let Ok(build) = ciphertoll_lab::find(server) else { continue };
        let settings = settings.iter().map(|(name, value)| format!("{name}={value}"));
        let Some(mut command) = command(server.engine, &build.server_program, settings) else { continue };
        if let Some(error) = unknown_setting(&mut command) {
            return Err(Failure::new(ExitCode::ServerRefused, format!("{server}: {error}")));
        }
    }
    Ok(())
}

/// The command that parses settings and exits.
fn command(engine: Engine, program: &Path, settings: impl Iterator<Item = String>) -> Option<Command> {
    // `-C` must come first to be permitted for root. The files are not read, but must be named without a data directory.
    const POSTGRES: [&str; 2] = ["-C", "max_connections"];
    const POSTGRES_FILES: [&str; 4] =
        ["config_file=/dev/null", "hba_file=/dev/null", "ident_file=/dev/null", "data_directory=/"];
    let mut command = Command::new(program);
    match engine {
        Engine::Postgres => {
            command.args(POSTGRES);
            let files = POSTGRES_FILES.into_iter().map(ToOwned::to_owned);
            files.chain(settings).for_each(|setting| _ = command.args(["-c", &setting]));
        }
        Engine::MariaDb | Engine::MySql => {
            command.args(["--no-defaults", "--verbose", "--help"]);
            command.args(settings.map(|setting| format!("--{setting}")));
        }
        Engine::MongoDb | Engine::FerretDb => return None,
    }
    Some(command)
}

fn unknown_setting(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output().ok()?;
    if output.status.success() {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| UNKNOWN.iter().any(|unknown| line.contains(unknown)))?;
    UNKNOWN.iter().find_map(|unknown| line.find(unknown)).map(|at| line[at..].to_owned())
}
