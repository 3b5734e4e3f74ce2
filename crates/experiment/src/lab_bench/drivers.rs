//! Other people's clients: found, compiled where need be, and what they cannot do left out.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ciphertoll_load::driver::{self, DriverRequirements, PreparedDriver, Task};
use ciphertoll_model::{Cell, Driver, DriverName, Event, Plan, TrialSpec};

use super::instance::skip;
use crate::bench::Emit;

/// Time beyond set-up, warm-up and window before our own load process counts as stuck.
const NATIVE_GRACE: Duration = Duration::from_secs(5);

/// The drivers of a run, beside our own.
#[derive(Default)]
pub(super) struct Drivers(BTreeMap<DriverName, PreparedDriver>);

/// What to start for a trial, and how long it may take to end.
pub(super) struct Client {
    pub(super) command: Command,
    pub(super) grace: Duration,
}

impl Drivers {
    /// Finds every driver of the plan and makes it ready; says of each cell that cannot be measured why.
    pub(super) fn prepare(plan: &Plan, cache: &Path, emit: &mut Emit<'_>) -> Self {
        let mut drivers = Self::default();
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
                if let Some(what) = driver.installs(cache) {
                    emit(Event::Preparing { what: format!("installing {what}") });
                }
                driver.prepare(cache).map(Some)
            });
            match ready {
                Ok(ready) => drivers.0.extend(ready.map(|ready| (name.clone(), ready))),
                Err(error) => cells().for_each(|cell| skip(cell, &error.to_string(), emit)),
            }
        }
        drivers
    }

    /// What makes the load of `cell`; `program` is ciphertoll itself.
    pub(super) fn client(&self, cell: &Cell, spec: &TrialSpec, program: &Path) -> Client {
        if let Driver::Named(name) = &cell.treatment.driver
            && let Some(ready) = self.0.get(name)
        {
            let task = Task { workload: cell.workload, scale: cell.scale };
            return Client { command: ready.command(program, &task), grace: ready.grace(spec) };
        }
        let mut command = Command::new(program);
        command.arg("__load");
        Client { command, grace: NATIVE_GRACE }
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
