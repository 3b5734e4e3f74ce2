//! The external servers of a run: checked before it, and not changed except for requested tables.

use std::time::Instant;

use ciphertoll_lab::remote::DATABASE;
use ciphertoll_lab::{Lab, Passwords, Remote, Tables};
use ciphertoll_model::{Cell, ErrorKind, Event, ExitCode, Plan, ServerUrl};

use super::instance::skip;
use super::observe::Unobserved;
use crate::bench::{BenchError, Emit, Measured, TrialError};
use crate::interrupt::Interrupt;

#[derive(Default)]
pub(super) struct Remotes(Vec<Remote>);

impl Remotes {
    /// Connects to each server once and creates the tables that its cells need. The cells of an unreachable server are
    /// skipped. If no server is left, the run fails with the last error.
    pub(super) fn prepare(
        plan: &Plan,
        lab: &Lab,
        passwords: &Passwords,
        interrupt: &Interrupt,
        emit: &mut Emit<'_>,
    ) -> (Self, Option<ciphertoll_lab::Error>) {
        let (mut all, mut last_failure) = (Vec::new(), None);
        for (name, url) in urls(plan) {
            let began = Instant::now();
            emit(Event::Preparing { what: format!("connecting to {name}") });
            let opened = lab
                .open_remote(&name, &url, passwords)
                .and_then(|remote| with_tables(remote, plan, interrupt, emit));
            match opened {
                Ok(remote) => {
                    emit(Event::ServerReady {
                        server: name,
                        version: remote.version().to_owned(),
                        tls_library: None,
                        settings: remote.facts().clone(),
                        elapsed_ms: began.elapsed().as_millis() as u64,
                    });
                    all.push(remote);
                }
                Err(error) => {
                    let cells = plan.cells.iter().filter(|cell| is_at(cell, &name));
                    cells.for_each(|cell| skip(cell, &error.to_string(), emit));
                    last_failure = Some(error);
                }
            }
        }
        (Self(all), last_failure)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Remote> {
        self.0.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn of(&self, cell: &Cell) -> Option<&Remote> {
        self.0.iter().find(|remote| is_at(cell, remote.name()))
    }

    /// Forgets all of them; the passwords go with the lab's scratch directory.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

fn is_at(cell: &Cell, name: &str) -> bool {
    let server = &cell.treatment.server;
    server.url.is_some() && server.short_name() == name
}

fn urls(plan: &Plan) -> Vec<(String, ServerUrl)> {
    let servers = plan.servers().into_iter();
    servers.filter_map(|server| Some((server.short_name(), server.url.as_deref()?.clone()))).collect()
}

/// Creates the tables of all its cells. A table has one size, so cells that need another are skipped.
fn with_tables(
    mut remote: Remote,
    plan: &Plan,
    interrupt: &Interrupt,
    emit: &mut Emit<'_>,
) -> Result<Remote, ciphertoll_lab::Error> {
    let mut tables = Tables::default();
    for cell in plan.cells.iter().filter(|cell| is_at(cell, remote.name())) {
        // Plans of earlier versions may have plaintext for a URL that requires TLS.
        if let Some(reason) = cell.impossibility() {
            skip(cell, &reason, emit);
            continue;
        }
        if let Some(Err(error)) = cell.treatment.path.as_tls().map(ciphertoll_lab::check_client) {
            skip(cell, &error.to_string(), emit);
            continue;
        }
        match tables.merged_with(cell.workload.dataset(cell.treatment.server.engine), cell.scale) {
            Some(merged) => tables = merged,
            None => skip(cell, "an external server has its tables in one size only", emit),
        }
    }
    if tables != Tables::default() {
        let mut say = |what: &str| emit(Event::Preparing { what: what.to_owned() });
        let what = if tables.ycsb.is_some() { "loading" } else { "creating" };
        say(&format!("{what} {tables} in {}'s database {}", remote.name(), DATABASE));
        remote.prepare(&tables, &mut say, &|| interrupt.ending().is_some())?;
    }
    Ok(remote)
}

/// Stops the run at once if an external server is full.
pub(super) fn stop_where_it_is_full(
    remote: &Remote,
    measured: Result<Measured, Unobserved>,
) -> Result<Measured, TrialError> {
    let fatal = |message: &str| {
        let name = remote.name();
        TrialError::Fatal(BenchError {
            message: format!(
                "{name} has no room for more connections, so that the run was stopped: {message}"
            ),
            exit_code: ExitCode::ServerRefused,
        })
    };
    match measured {
        Err(Unobserved::NoRoom { message }) => Err(fatal(&message)),
        Err(Unobserved::Failed(error)) => Err(error),
        Ok(measured) => {
            let mut errors = measured.load.errors.iter();
            match errors.find(|error| error.kind == ErrorKind::TooManyConnections) {
                Some(error) => Err(fatal(&error.message)),
                None => Ok(measured),
            }
        }
    }
}
