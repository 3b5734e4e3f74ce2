//! Foreign drivers: finds and compiles them, and skips cells that they do not support.

use std::collections::BTreeMap;
use std::time::Duration;

use ciphertoll_lab::ClientOpenSsl;
use ciphertoll_load::driver::{self, DriverRequirements, PreparedDriver, Task};
use ciphertoll_model::{Cell, Driver, DriverName, Event, Plan, TrialSpec};

use crate::failure::internal;
use crate::layer::{Layer, Route};
use crate::surroundings::instance::skip;
use crate::surroundings::load_command::LoadCommand;
use crate::trial::{Emit, TestbedError, TrialError, TrialRequest};

/// Time beyond set-up, warm-up and window before the native load process counts as stuck.
const NATIVE_GRACE: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(crate) struct DriverLayer(BTreeMap<DriverName, PreparedDriver>);

impl<M> Layer<M> for DriverLayer {
    /// Finds and prepares every driver of the plan, and skips unsupported cells with the reason.
    fn prepare(&mut self, plan: &Plan, route: &mut Route, emit: &mut Emit<'_>) -> Result<(), TestbedError> {
        let cache = route.site.lab.cache().join("drivers");
        for name in names(plan) {
            let cells = || plan.cells.iter().filter(|cell| is_driven_by(cell, &name));
            let ready = driver::find(name.as_str()).and_then(|driver| {
                let mut possible = false;
                for cell in cells() {
                    match driver.impossible(&DriverRequirements::of(cell)) {
                        Some(reason) => skip(cell, &reason, emit),
                        None => possible = true,
                    }
                }
                if !possible {
                    return Ok(None);
                }
                emit(Event::Preparing { what: format!("looking for the driver {name}") });
                if let Some(what) = driver.installs(&cache) {
                    emit(Event::Preparing { what: format!("installing {what}") });
                }
                driver.prepare(&cache).map(Some)
            });
            match ready {
                Ok(ready) => self.0.extend(ready.map(|ready| (name.clone(), ready))),
                Err(error) => cells().for_each(|cell| skip(cell, &error.to_string(), emit)),
            }
        }
        Ok(())
    }

    /// Chooses the program that generates the load.
    fn before(
        &mut self,
        request: &TrialRequest<'_>,
        spec: &mut TrialSpec,
        route: &mut Route,
    ) -> Result<(), TrialError> {
        let (cell, program) = (request.cell, &route.site.program);
        if let Driver::Named(name) = &cell.treatment.driver
            && let Some(ready) = self.0.get(name)
        {
            if spec.repeated_share != 0.0 {
                return Err(TrialError::Fatal(internal(format!("driver {name} does not repeat its work"))));
            }
            let task = Task { workload: cell.workload, scale: cell.scale };
            route.load =
                Some(LoadCommand { command: ready.command(program, &task), grace: ready.grace(spec) });
            return Ok(());
        }
        let library = cell.treatment.path.as_tls().map(|tls| tls.parameters.library).unwrap_or_default();
        // Checked before the run: `Server::prepare_tls`.
        let openssl = ClientOpenSsl::for_library(library).unwrap_or(ClientOpenSsl::Linked);
        let mut command = openssl.command(program);
        command.arg("__load");
        route.load = Some(LoadCommand { command, grace: NATIVE_GRACE });
        Ok(())
    }
}

fn names(plan: &Plan) -> Vec<DriverName> {
    let mut names: Vec<DriverName> = Vec::new();
    for cell in &plan.cells {
        if let Driver::Named(name) = &cell.treatment.driver
            && !names.contains(name)
        {
            names.push(name.clone());
        }
    }
    names
}

fn is_driven_by(cell: &Cell, name: &DriverName) -> bool {
    matches!(&cell.treatment.driver, Driver::Named(named) if named == name)
}
