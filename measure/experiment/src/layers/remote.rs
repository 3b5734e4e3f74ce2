//! The external servers of a run: checked before it, and not changed except for requested tables.

use std::time::Instant;

use ciphertoll_lab::remote::DATABASE;
use ciphertoll_lab::{Passwords, Remote, Tables};
use ciphertoll_model::{Cell, ErrorKind, Event, ExitCode, Plan, ServerUrl};

use crate::failure::testbed_error;
use crate::interrupt::Interrupt;
use crate::layer::{Layer, Route, Site, Trial};
use crate::surroundings::instance::skip;
use crate::trial::{Emit, TestbedError, TrialError, TrialRequest};

pub(crate) struct RemoteLayer {
    passwords: Passwords,
}

impl RemoteLayer {
    pub(crate) fn new(passwords: Passwords) -> Self {
        Self { passwords }
    }
}

impl<M: Trial> Layer<M> for RemoteLayer {
    /// Connects to each server once and creates the tables that its cells need. The cells of an unreachable server are
    /// skipped. If no server is left, the run fails with the last error.
    fn prepare(&mut self, plan: &Plan, route: &mut Route, emit: &mut Emit<'_>) -> Result<(), TestbedError> {
        let Site { lab, interrupt, .. } = &route.site;
        for (name, url) in urls(plan) {
            let began = Instant::now();
            emit(Event::Preparing { what: format!("connecting to {name}") });
            let opened = lab
                .open_remote(&name, &url, &self.passwords)
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
                    route.remotes.push(remote);
                }
                Err(error) => {
                    let cells = plan.cells.iter().filter(|cell| is_at(cell, &name));
                    cells.for_each(|cell| skip(cell, &error.to_string(), emit));
                    route.last_failure = Some(testbed_error(error));
                }
            }
        }
        Ok(())
    }

    /// Stops the run at once if an external server is full.
    fn after(
        &mut self,
        request: &TrialRequest<'_>,
        trial: Option<&mut M>,
        route: &mut Route,
    ) -> Result<(), TrialError> {
        let Some(remote) = route.remote(request.cell) else { return Ok(()) };
        let mut errors = trial.iter().flat_map(|trial| &trial.load().errors);
        let refused = errors.find(|error| error.kind == ErrorKind::TooManyConnections);
        let Some(message) = route.no_room.as_ref().or(refused.map(|error| &error.message)) else {
            return Ok(());
        };
        let name = remote.name();
        Err(TrialError::Fatal(TestbedError {
            message: format!(
                "{name} has no room for more connections, so that the run was stopped: {message}"
            ),
            exit_code: ExitCode::ServerRefused,
        }))
    }

    /// The passwords go with the lab's scratch directory.
    fn down(&mut self, route: &mut Route) -> Result<(), TestbedError> {
        route.remotes.clear();
        Ok(())
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
