//! The tunnel of a cell: set up anew for each trial, so that trials do not influence each other and its set-up time is
//! measured in every trial.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_host::accounting::CpuMeter;
use ciphertoll_host::processors::ProcessorSplit;
use ciphertoll_lab::tunnel::{RunningTunnel, TunnelStart};
use ciphertoll_lab::{Lab, Server};
use ciphertoll_link::LinkProcess;
use ciphertoll_model::{Cell, Endpoint, Event, Link, Plan, Tunnel, VoidReason};

use super::instance::{Instance, skip};
use super::links::Links;
use crate::bench::{Emit, TrialError, TunnelCpu, TunnelUse};

/// Time in which a process that was killed during a trial has ended.
const DYING: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

#[derive(Default)]
pub(super) struct Tunnels {
    up: Option<RunningTunnel>,
    count: usize,
    sent_bytes_before: u64,
}

/// What every tunnel and proxy of a run is started with.
pub(super) struct StartContext<'a> {
    pub(super) lab: &'a Lab,
    pub(super) logs: &'a Path,
    pub(super) apart: Option<&'a ProcessorSplit>,
}

impl Tunnels {
    /// Tries every tunnel of the plan once. Cells of a tunnel that does not work are skipped with the reason.
    pub(super) fn try_all(
        &mut self,
        plan: &Plan,
        context: &StartContext<'_>,
        instances: &[Instance],
        links: &mut Links,
        emit: &mut Emit<'_>,
    ) {
        let mut attempts = Attempts::new();
        for cell in &plan.cells {
            let Some(tunnel) = cell.treatment.path.as_tunnel() else { continue };
            let Some(instance) = instances.iter().find(|instance| instance.serves(cell)) else { continue };
            attempts.require(tunnel, cell, emit, |emit| {
                self.try_one(tunnel, cell, context, &instance.server, links, emit)
            });
        }
    }

    fn try_one(
        &mut self,
        tunnel: Tunnel,
        cell: &Cell,
        context: &StartContext<'_>,
        server: &Server,
        links: &mut Links,
        emit: &mut Emit<'_>,
    ) -> Result<(), String> {
        let networks = links.process();
        let has_networks = networks.as_ref().is_some_and(|networks| networks.clients().is_some());
        if tunnel.joins_networks() && !has_networks {
            return Err(format!("{} joins two networks, and none could be created", tunnel.display_name()));
        }
        let started = self.start(tunnel, cell.treatment.link, context, server, networks);
        let running = started.map_err(|error| error.to_string())?;
        emit(Event::TunnelTried {
            path: cell.treatment.path,
            version: running.version(tunnel, context.lab.scratch().path()),
            leg: running.leg().clone(),
            elapsed_ms: running.setup_time().as_millis() as u64,
        });
        Ok(())
    }

    fn start(
        &mut self,
        tunnel: Tunnel,
        link: Link,
        context: &StartContext<'_>,
        server: &Server,
        networks: Option<&mut LinkProcess>,
    ) -> Result<RunningTunnel, ciphertoll_lab::Error> {
        self.count += 1;
        let name = format!("t{}", self.count);
        let StartContext { lab, logs, apart } = *context;
        lab.start_tunnel(TunnelStart { tunnel, server, link, networks, name: &name, apart, logs })
    }

    pub(super) fn set_up(
        &mut self,
        cell: &Cell,
        context: &StartContext<'_>,
        server: &Server,
        links: &mut Links,
    ) -> Result<(), TrialError> {
        self.down();
        let Some(tunnel) = cell.treatment.path.as_tunnel() else { return Ok(()) };
        let started = self.start(tunnel, cell.treatment.link, context, server, links.process());
        self.up = Some(started.map_err(|error| broken(&error))?);
        Ok(())
    }

    pub(super) fn down(&mut self) {
        self.up = None;
    }

    pub(super) fn endpoint(&self) -> Option<Endpoint> {
        self.up.as_ref().map(RunningTunnel::endpoint)
    }

    pub(super) fn cpu_meters(&self) -> Vec<CpuMeter> {
        self.up.as_ref().and_then(RunningTunnel::cpu_meters).unwrap_or_default()
    }

    /// Excludes the bytes sent so far from the trial.
    pub(super) fn forget(&mut self) -> Result<(), TrialError> {
        let Some(up) = &mut self.up else { return Ok(()) };
        self.sent_bytes_before =
            alive(up).and_then(RunningTunnel::sent_bytes).map_err(|error| broken(&error))?;
        Ok(())
    }

    /// Its use by the trial. Fails if one of its ends has stopped.
    pub(super) fn used(&mut self) -> Result<Option<TunnelUse>, TrialError> {
        let Some(up) = &mut self.up else { return Ok(None) };
        let sent_bytes = alive(up).and_then(RunningTunnel::sent_bytes).map_err(|error| broken(&error))?;
        Ok(Some(TunnelUse {
            leg: up.leg().clone(),
            set_up_ns: up.setup_time().as_nanos() as u64,
            cpu: if up.cpu_meters().is_some() { TunnelCpu::OfEnds } else { TunnelCpu::OfTheKernel },
            sent_bytes: sent_bytes.saturating_sub(self.sent_bytes_before),
        }))
    }

    /// Fails if it ends within [`DYING`].
    pub(super) fn check_survived(&mut self) -> Result<(), TrialError> {
        let Some(up) = &mut self.up else { return Ok(()) };
        check_for_a_while(|| up.check()).map_err(|error| broken(&error))
    }
}

/// Call it if the load has failed: a killed process closes its connections some milliseconds before it exits.
pub(super) fn check_for_a_while(
    mut check: impl FnMut() -> Result<(), ciphertoll_lab::Error>,
) -> Result<(), ciphertoll_lab::Error> {
    let deadline = Instant::now() + DYING;
    while Instant::now() < deadline {
        check()?;
        thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

/// What was tried before the run, each once, and whether it works.
pub(super) struct Attempts<K>(Vec<(K, Result<(), String>)>);

impl<K: PartialEq> Attempts<K> {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// Tries `key` unless it was tried before. If it does not work, `cell` is skipped with the reason.
    pub(super) fn require(
        &mut self,
        key: K,
        cell: &Cell,
        emit: &mut Emit<'_>,
        attempt: impl FnOnce(&mut Emit<'_>) -> Result<(), String>,
    ) {
        let known = self.0.iter().position(|(before, _)| *before == key);
        let at = known.unwrap_or_else(|| {
            emit(Event::Preparing { what: format!("trying {}", cell.treatment.path) });
            let works = attempt(emit);
            self.0.push((key, works));
            self.0.len() - 1
        });
        if let Err(reason) = &self.0[at].1 {
            skip(cell, reason, emit);
        }
    }
}

fn alive(up: &mut RunningTunnel) -> Result<&RunningTunnel, ciphertoll_lab::Error> {
    up.check()?;
    Ok(up)
}

fn broken(error: &ciphertoll_lab::Error) -> TrialError {
    TrialError::Void(VoidReason::Tunnel { message: error.to_string() })
}
