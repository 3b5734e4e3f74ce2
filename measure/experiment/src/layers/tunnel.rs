//! The tunnel of a cell: set up anew for each trial, so that trials do not influence each other and its set-up time is
//! measured in every trial.

use ciphertoll_lab::tunnel::{RunningTunnel, TunnelStart};
use ciphertoll_model::{Cell, Event, Leg, Plan, TrialSpec, Tunnel, VoidReason};

use crate::checks::negotiated;
use crate::layer::{Layer, Route, Uses, succeeded};
use crate::surroundings::attempts::{Attempts, check_for_a_while};
use crate::trial::{Emit, TestbedError, TrialError, TrialRequest};

/// The use of a tunnel by a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelUse {
    /// The parameters that its ends negotiated.
    pub leg: Leg,
    pub set_up_ns: u64,
    /// Whose CPU time it took.
    pub cpu: TunnelCpu,
    /// Encrypted bytes that its client end sent during the trial.
    pub sent_bytes: u64,
}

/// Whose CPU time a tunnel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelCpu {
    /// Its processes take it, and it is known.
    OfEnds,
    /// The kernel takes it, and it is unknown.
    OfTheKernel,
}

#[derive(Default)]
pub(crate) struct TunnelLayer {
    up: Option<RunningTunnel>,
    count: usize,
    sent_bytes_before: u64,
}

impl TunnelLayer {
    fn try_one(
        &mut self,
        tunnel: Tunnel,
        cell: &Cell,
        route: &mut Route,
        emit: &mut Emit<'_>,
    ) -> Result<(), String> {
        let has_networks = route.networks.process().is_some_and(|networks| networks.clients().is_some());
        if tunnel.joins_networks() && !has_networks {
            return Err(format!("{} joins two networks, and none could be created", tunnel.display_name()));
        }
        let started = self.start(tunnel, cell, route).map_err(|error| error.to_string())?;
        let Some(running) = started else { return Ok(()) };
        emit(Event::TunnelTried {
            path: cell.treatment.path,
            version: running.version(tunnel, route.site.lab.scratch().path()),
            leg: running.leg().clone(),
            elapsed_ms: running.setup_time().as_millis() as u64,
        });
        Ok(())
    }

    /// `None` if no server was started for `cell`.
    fn start(
        &mut self,
        tunnel: Tunnel,
        cell: &Cell,
        route: &mut Route,
    ) -> Result<Option<RunningTunnel>, ciphertoll_lab::Error> {
        self.count += 1;
        let Route { site, networks, instances, .. } = route;
        let Some(instance) = instances.iter().find(|instance| instance.serves(cell)) else { return Ok(None) };
        let started = site.lab.start_tunnel(TunnelStart {
            tunnel,
            server: &instance.server,
            link: cell.treatment.link,
            networks: networks.process(),
            name: &format!("t{}", self.count),
            apart: site.apart.as_ref(),
            logs: &site.logs,
        })?;
        Ok(Some(started))
    }
}

impl<M: Uses<TunnelUse>> Layer<M> for TunnelLayer {
    /// Tries every tunnel of the plan once. Cells of a tunnel that does not work are skipped with the reason.
    fn prepare(&mut self, plan: &Plan, route: &mut Route, emit: &mut Emit<'_>) -> Result<(), TestbedError> {
        let mut attempts = Attempts::new();
        for cell in &plan.cells {
            let Some(tunnel) = cell.treatment.path.as_tunnel() else { continue };
            if route.instance(cell).is_some() {
                attempts.require(tunnel, cell, emit, |emit| self.try_one(tunnel, cell, route, emit));
            }
        }
        Ok(())
    }

    fn leave(&mut self, _: &mut Route) -> Result<(), TrialError> {
        self.up = None;
        Ok(())
    }

    fn up(&mut self, cell: &Cell, route: &mut Route, _: &mut Emit<'_>) -> Result<(), TrialError> {
        let Some(tunnel) = cell.treatment.path.as_tunnel() else { return Ok(()) };
        let started = self.start(tunnel, cell, route).map_err(|error| broken(&error))?;
        let Some(up) = started else { return Ok(()) };
        route.between = Some(up.endpoint());
        route.middle.extend(up.cpu_meters().unwrap_or_default());
        self.up = Some(up);
        Ok(())
    }

    /// Excludes the bytes sent so far from the trial.
    fn before(&mut self, _: &TrialRequest<'_>, _: &mut TrialSpec, _: &mut Route) -> Result<(), TrialError> {
        let Some(up) = &mut self.up else { return Ok(()) };
        self.sent_bytes_before =
            alive(up).and_then(RunningTunnel::sent_bytes).map_err(|error| broken(&error))?;
        Ok(())
    }

    /// Fails if one of its ends has stopped.
    fn after(
        &mut self,
        _: &TrialRequest<'_>,
        trial: Option<&mut M>,
        _: &mut Route,
    ) -> Result<(), TrialError> {
        let Some(up) = &mut self.up else { return Ok(()) };
        if !succeeded(trial.as_deref()) {
            check_for_a_while(|| up.check()).map_err(|error| broken(&error))?;
        }
        let sent_bytes = alive(up).and_then(RunningTunnel::sent_bytes).map_err(|error| broken(&error))?;
        if let Some(trial) = trial {
            *trial.slot() = Some(TunnelUse {
                leg: up.leg().clone(),
                set_up_ns: up.setup_time().as_nanos() as u64,
                cpu: if up.cpu_meters().is_some() { TunnelCpu::OfEnds } else { TunnelCpu::OfTheKernel },
                sent_bytes: sent_bytes.saturating_sub(self.sent_bytes_before),
            });
        }
        Ok(())
    }

    fn down(&mut self, _: &mut Route) -> Result<(), TestbedError> {
        self.up = None;
        Ok(())
    }
}

fn alive(up: &mut RunningTunnel) -> Result<&RunningTunnel, ciphertoll_lab::Error> {
    up.check()?;
    Ok(up)
}

fn broken(error: &ciphertoll_lab::Error) -> TrialError {
    TrialError::Void(VoidReason::Tunnel { message: error.to_string() })
}

/// The tunnel must have the planned cipher and carry all operations.
pub(crate) fn check(cell: &Cell, used: Option<&TunnelUse>, operations: u64) -> Result<(), VoidReason> {
    let Some(tunnel) = cell.treatment.path.as_tunnel() else { return Ok(()) };
    let Some(TunnelUse { leg, sent_bytes, .. }) = used else {
        return Err(VoidReason::Tunnel { message: "there was none".to_owned() });
    };
    let observed = leg.suite.as_deref().unwrap_or("no reported cipher");
    if let Some(planned) = tunnel.cipher().filter(|planned| *planned != observed) {
        return Err(negotiated(planned, observed));
    }
    // Every operation sends at least one byte.
    if *sent_bytes < operations {
        let message = format!("it carried {sent_bytes} bytes for {operations} operations");
        return Err(VoidReason::Tunnel { message });
    }
    Ok(())
}
