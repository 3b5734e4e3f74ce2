//! The link of a run: one link, reconfigured from cell to cell.

use ciphertoll_link::{LinkCalibration, LinkProcess};
use ciphertoll_model::LatenessLimit;
use ciphertoll_model::{Cell, Event, Link, LinkKind, LinkShape, Path, Plan, TrialSpec, VoidReason};

use crate::failure::internal;
use crate::layer::{Layer, Route, Uses};
use crate::surroundings::instance::skip;
use crate::surroundings::networks::{Networks, broken, is_down};
use crate::trial::{Emit, TestbedError, TrialError, TrialRequest};

/// Packets may be late on average by the plan's share of the round trip or by this, the wake-up delay of a thread on a shared
/// machine.
const MAX_LATE_NS: u64 = 500_000;
/// The median TCP connect may deviate from the round trip by this multiple of the allowed share …
const CONNECTS_PER_PACKETS: f64 = 10.0;
/// … or by this, because both ends must wake up.
const MAX_CONNECT_OFF_NS: u64 = 1_000_000;
/// On shorter links the machine's own part of a connect is too large.
const SHORTEST_RTT_NS: u64 = 5_000_000;

/// The use of a link by a trial, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkUse {
    pub rtt_ns: u64,
    /// The kind of link: not every kind delays TCP's handshake.
    pub by: LinkKind,
    pub packets: u64,
    /// Packets dropped because its buffer was full, without the configured loss.
    pub dropped: u64,
    /// Mean delay beyond the configured one.
    pub late_ns_mean: u64,
    /// CPU time of its process in the window; absent if its clock could not be read.
    pub cpu_ns: Option<u64>,
}

pub(crate) struct LinkLayer {
    /// How links are made; the best available way if absent.
    kind: Option<LinkKind>,
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

impl LinkLayer {
    pub(crate) fn new(kind: Option<LinkKind>) -> Self {
        Self { kind, shape: None, reported: Vec::new(), window: LinkWindow::default() }
    }

    /// Replaces a link that is down.
    fn remake(&mut self, route: &mut Route) -> Result<(), TrialError> {
        self.shape = None;
        // Of the same kind, so that trials stay comparable.
        let Some(kind) = route.networks.take_down() else { return Ok(()) };
        let site = &mut route.site;
        let process = LinkProcess::start(&site.program, Some(kind))
            .map_err(|error| TrialError::Fatal(internal(error.to_string())))?;
        route.networks = Networks::of(process, &mut site.lab, &site.program).map_err(TrialError::Fatal)?;
        route.is_new_network = true;
        Ok(())
    }

    /// What it has carried since the last call.
    fn carried(&self, link: Link, route: &mut Route) -> Result<Option<LinkUse>, TrialError> {
        let (Some(process), Some(shape)) = (route.networks.process(), link.shape()) else { return Ok(None) };
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
}

impl<M: Uses<LinkUse>> Layer<M> for LinkLayer {
    /// Creates the link if the plan has long ones, and places future servers at its end. If no link can be created, the cells
    /// that need one are skipped with the reason.
    fn prepare(&mut self, plan: &Plan, route: &mut Route, emit: &mut Emit<'_>) -> Result<(), TestbedError> {
        let linked = |cell: &&Cell| cell.treatment.link.shape().is_some();
        if !plan.cells.iter().any(|cell| linked(&cell)) {
            return Ok(());
        }
        emit(Event::Preparing { what: "creating networks and a link between them".to_owned() });
        let site = &mut route.site;
        match LinkProcess::start(&site.program, self.kind) {
            Ok(process) => {
                warn_of_kind(&process, emit);
                for cell in plan.cells.iter().filter(linked) {
                    let lacks = cell.treatment.link.shape().and_then(|shape| process.missing_feature(shape));
                    if let Some(lacks) = lacks {
                        skip(cell, &lacks, emit);
                    }
                }
                route.networks = Networks::of(process, &mut site.lab, &site.program)?;
            }
            Err(error) => {
                let reason = error.to_string();
                plan.cells.iter().filter(linked).for_each(|cell| skip(cell, &reason, emit));
            }
        }
        Ok(())
    }

    /// Recreates a link that went down. Configures the link for `cell`, and reports a new configuration.
    fn up(&mut self, cell: &Cell, route: &mut Route, emit: &mut Emit<'_>) -> Result<(), TrialError> {
        if route.networks.are_down() {
            let message = "the link went down: recreating it and restarting its servers".to_owned();
            emit(Event::Warned { message });
            self.remake(route)?;
        }
        let (Some(process), Some(shape)) = (route.networks.process(), cell.treatment.link.shape()) else {
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

    /// Excludes the packets so far from the trial.
    fn before(
        &mut self,
        request: &TrialRequest<'_>,
        _: &mut TrialSpec,
        route: &mut Route,
    ) -> Result<(), TrialError> {
        self.window = LinkWindow::default();
        self.carried(request.cell.treatment.link, route).map(drop)
    }

    fn window_opens(&mut self, route: &mut Route) {
        self.window = LinkWindow { opened_ns: route.networks.cpu_ns(), closed_ns: None };
    }

    fn window_closes(&mut self, route: &mut Route) {
        self.window.closed_ns = route.networks.cpu_ns();
    }

    /// A link that goes down ends the trial, because messages over it would never arrive.
    fn check(&mut self, route: &mut Route) -> Result<(), TrialError> {
        if route.networks.are_down() { Err(is_down()) } else { Ok(()) }
    }

    fn after(
        &mut self,
        request: &TrialRequest<'_>,
        trial: Option<&mut M>,
        route: &mut Route,
    ) -> Result<(), TrialError> {
        if route.networks.are_down() {
            return Err(is_down());
        }
        let carried = self.carried(request.cell.treatment.link, route)?;
        if let Some(trial) = trial {
            *trial.slot() = carried;
        }
        Ok(())
    }

    fn down(&mut self, route: &mut Route) -> Result<(), TestbedError> {
        route.networks.take_down();
        Ok(())
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

/// A link without enough CPU is longer than configured.
pub(crate) fn check_lateness(used: Option<LinkUse>, max_lateness: LatenessLimit) -> Result<(), VoidReason> {
    let Some(LinkUse { rtt_ns, packets, dropped, late_ns_mean, .. }) = used else { return Ok(()) };
    let tolerated_ns = (rtt_ns as f64 * max_lateness.fraction()).max(MAX_LATE_NS as f64);
    let message = if packets == 0 {
        "it carried no packet".to_owned()
    } else if dropped > 0 {
        format!("it dropped {dropped} packets because its buffer was full")
    } else if late_ns_mean as f64 > tolerated_ns {
        format!("its packets were {:.2} ms late on average", late_ns_mean as f64 * 1e-6)
    } else {
        return Ok(());
    };
    Err(VoidReason::Link { message })
}

/// TCP's handshake must take one round trip of the link: `took_ns` is the median. Not checked for links without a single
/// round-trip time, nor if the handshake ends on this machine.
pub(crate) fn check_connect_time(
    cell: &Cell,
    used: Option<LinkUse>,
    took_ns: Option<u64>,
    max_lateness: LatenessLimit,
) -> Result<(), VoidReason> {
    let (Some(used), Some(took_ns)) = (used, took_ns) else { return Ok(()) };
    let crosses = match cell.treatment.path {
        Path::Plain | Path::Compressed(_) | Path::Tls(_) => used.by != LinkKind::Relay,
        Path::Unix | Path::Tunnel(_) | Path::Proxy(_) => false,
    };
    let is_one_number =
        cell.treatment.link.shape() == Some(LinkShape::of_rtt_us((used.rtt_ns / 1_000) as u32));
    if !crosses || !is_one_number || used.rtt_ns < SHORTEST_RTT_NS {
        return Ok(());
    }
    let share = (max_lateness.fraction() * CONNECTS_PER_PACKETS).min(1.0);
    let tolerated_ns = ((used.rtt_ns as f64 * share) as u64).max(MAX_CONNECT_OFF_NS);
    if took_ns.abs_diff(used.rtt_ns) <= tolerated_ns {
        return Ok(());
    }
    let [connect, round_trip] = [took_ns, used.rtt_ns].map(|ns| format!("{:.1} ms", ns as f64 * 1e-6));
    let message = format!("the median TCP connect took {connect}, but its round trip is {round_trip}");
    Err(VoidReason::Link { message })
}
