//! The link of a run: one link, reconfigured from cell to cell.

use std::path::Path;

use ciphertoll_lab::Lab;
use ciphertoll_link::{Error, LinkCalibration, LinkProcess};
use ciphertoll_model::{Cell, Endpoint, Event, Link, LinkKind, LinkShape, Namespace, Plan, VoidReason};
use ciphertoll_record::{Effect, ProcessIdentity};

use super::failure::{fatal, internal};
use super::instance::skip;
use crate::bench::{BenchError, Emit, LinkUse, TrialError};

/// The link of a run; without a process if every cell is local.
#[derive(Default)]
pub(super) struct Links {
    process: Option<LinkProcess>,
    shape: Option<LinkShape>,
    /// Configurations that were reported already.
    reported: Vec<LinkShape>,
    window: LinkWindow,
}

/// CPU time of its process at the start and end of the window.
#[derive(Clone, Copy, Default)]
struct LinkWindow {
    opened_ns: Option<u64>,
    closed_ns: Option<u64>,
}

impl Links {
    /// Creates the link if the plan has long ones, and places future servers at its end. If no link can be created, the cells
    /// that need one are skipped with the reason.
    pub(super) fn prepare(
        plan: &Plan,
        lab: &mut Lab,
        program: &Path,
        by: Option<LinkKind>,
        emit: &mut Emit<'_>,
    ) -> Result<Self, BenchError> {
        let linked = |cell: &&Cell| cell.treatment.link.shape().is_some();
        if !plan.cells.iter().any(|cell| linked(&cell)) {
            return Ok(Self::default());
        }
        emit(Event::Preparing { what: "creating networks and a link between them".to_owned() });
        match LinkProcess::start(program, by) {
            Ok(process) => {
                note(lab, &process, program)?;
                warn_of_kind(&process, emit);
                for cell in plan.cells.iter().filter(linked) {
                    let lacks = cell.treatment.link.shape().and_then(|shape| process.missing_feature(shape));
                    if let Some(lacks) = lacks {
                        skip(cell, &lacks, emit);
                    }
                }
                move_servers(lab, &process);
                Ok(Self { process: Some(process), ..Self::default() })
            }
            Err(error) => {
                let reason = error.to_string();
                plan.cells.iter().filter(linked).for_each(|cell| skip(cell, &reason, emit));
                Ok(Self::default())
            }
        }
    }

    /// Configures the link for `cell`, and reports a new configuration.
    pub(super) fn set(&mut self, cell: &Cell, emit: &mut Emit<'_>) -> Result<(), TrialError> {
        let (Some(process), Some(shape)) = (&mut self.process, cell.treatment.link.shape()) else {
            return Ok(());
        };
        if self.shape == Some(shape) || shape == LinkShape::of_rtt_us(0) {
            return Ok(());
        }
        self.shape = None;
        let made = process.set(shape).map_err(|error| broken(&error))?;
        self.shape = Some(shape);
        if !self.reported.contains(&shape) {
            self.reported.push(shape);
            let LinkCalibration { overhead_ns, round_trip_ns_p50 } = made;
            emit(Event::LinkMade {
                link: shape,
                overhead_ns,
                round_trip_ns_p50,
                congestion_control: process.congestion_control().to_owned(),
                by: process.kind(),
                mtu_bytes: process.mtu_bytes(),
            });
        }
        Ok(())
    }

    pub(super) fn process(&mut self) -> Option<&mut LinkProcess> {
        self.process.as_mut()
    }

    /// The namespace of load processes for this link.
    pub(super) fn namespace_of_clients(&self, link: Link) -> Option<Namespace> {
        let process = self.process.as_ref()?;
        let namespace = if link.shape().is_some() { process.clients() } else { process.servers() };
        namespace.cloned()
    }

    /// The address of a server's `endpoint` for clients behind this link.
    pub(super) fn lead(&mut self, endpoint: Endpoint, link: Link) -> Result<Endpoint, TrialError> {
        let is_long = link.shape().is_some_and(|shape| shape != LinkShape::of_rtt_us(0));
        match (&mut self.process, endpoint) {
            (Some(process), Endpoint::Tcp(address)) if is_long => {
                process.find_address(address.port()).map(Endpoint::Tcp).map_err(|error| broken(&error))
            }
            (_, endpoint) => Ok(endpoint),
        }
    }

    pub(super) fn open_window(&mut self) {
        self.window = LinkWindow { opened_ns: self.cpu_ns(), closed_ns: None };
    }

    pub(super) fn close_window(&mut self) {
        self.window.closed_ns = self.cpu_ns();
    }

    fn cpu_ns(&self) -> Option<u64> {
        self.process.as_ref()?.cpu_ns()
    }

    /// Excludes the packets so far from the trial.
    pub(super) fn forget(&mut self, link: Link) -> Result<(), TrialError> {
        self.window = LinkWindow::default();
        self.carried(link).map(drop)
    }

    pub(super) fn carried(&mut self, link: Link) -> Result<Option<LinkUse>, TrialError> {
        let (Some(process), Some(shape)) = (&mut self.process, link.shape()) else { return Ok(None) };
        if shape == LinkShape::of_rtt_us(0) {
            return Ok(None);
        }
        let carried = process.read_counters().map_err(|error| broken(&error))?;
        let LinkWindow { opened_ns, closed_ns } = self.window;
        Ok(Some(LinkUse {
            rtt_ns: shape.rtt_ns(),
            by: process.kind(),
            packets: carried.packets,
            dropped: carried.dropped,
            late_ns_mean: carried.late_ns_mean,
            // Packets count during the whole trial, CPU only in the window.
            cpu_ns: closed_ns
                .zip(opened_ns)
                .map(|(closed_ns, opened_ns)| closed_ns.saturating_sub(opened_ns)),
        }))
    }

    /// Whether it must be recreated.
    pub(super) fn is_down(&mut self) -> bool {
        self.process.as_mut().is_some_and(LinkProcess::is_down)
    }

    /// Replaces a link that is down. Its servers must be restarted, because their network is gone.
    pub(super) fn remake(&mut self, lab: &mut Lab, program: &Path) -> Result<(), TrialError> {
        self.shape = None;
        // Of the same kind, so that trials stay comparable.
        let Some(kind) = self.process.take().map(|process| process.kind()) else { return Ok(()) };
        let process = LinkProcess::start(program, Some(kind))
            .map_err(|error| TrialError::Fatal(internal(error.to_string())))?;
        note(lab, &process, program).map_err(TrialError::Fatal)?;
        move_servers(lab, &process);
        self.process = Some(process);
        Ok(())
    }

    /// Call this after the servers have ended.
    pub(super) fn down(&mut self) {
        self.process = None;
    }
}

/// Warns if a better kind of link is not available.
fn warn_of_kind(process: &LinkProcess, emit: &mut Emit<'_>) {
    if let Some(reason) = process.fallback_reason() {
        let kind = process.kind();
        let message = format!(
            "long links use {kind}, because a better kind is not available: {reason}; run `ciphertoll doctor` for help"
        );
        emit(Event::Warned { message });
    }
}

fn move_servers(lab: &mut Lab, process: &LinkProcess) {
    if let Some(network) = process.servers() {
        lab.move_servers_to(network.clone());
    }
}

fn broken(error: &Error) -> TrialError {
    TrialError::Void(VoidReason::Link { message: error.to_string() })
}

fn note(lab: &Lab, process: &LinkProcess, program: &Path) -> Result<(), BenchError> {
    // If the process has ended, there is nothing to undo.
    let Ok(identity) = ProcessIdentity::of(process.pid()) else { return Ok(()) };
    let effect = Effect::Process { identity, what: "link".to_owned(), program: program.to_owned() };
    lab.scratch().ledger().note(&effect).map_err(|error| match fatal(error.into()) {
        TrialError::Fatal(error) => error,
        TrialError::Void(_) | TrialError::Interrupted => internal("the ledger".to_owned()),
    })
}
