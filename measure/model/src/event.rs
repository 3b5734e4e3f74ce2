//! Events: everything that happens in a run. The record stores them; progress display and reports only read them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::absence::Absence;
use crate::cell::{Arm, CellId, Skipped};
use crate::environment::{ConnectedHost, Environment};
use crate::factor::{AtRest, LinkShape, Path};
use crate::labelled;
use crate::metric::Metric;
use crate::primitive::{KeyExchangeTime, SignatureTime};
use crate::profile::Profile;
use crate::trial::{Leg, LegCount};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimestampedEvent {
    /// Milliseconds since 1970-01-01 UTC.
    pub at_unix_ms: u64,
    #[serde(flatten)]
    pub event: Event,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// The first event of every record.
    RunStarted {
        /// The writer's [`crate::SCHEMA_VERSION`].
        schema_version: u32,
        tool_version: String,
    },
    /// A run continues; an incomplete block begins again.
    RunResumed {
        tool_version: String,
    },
    EnvironmentSeen {
        environment: Environment,
    },
    /// A slow preparation begins, before measuring.
    Preparing {
        /// In a few words.
        what: String,
    },
    /// A server is ready. Version and TLS library are as it reports them.
    ServerReady {
        /// Its name in cell ids.
        server: String,
        version: String,
        tls_library: Option<String>,
        /// Settings that differ from the server's defaults.
        settings: BTreeMap<String, String>,
        /// Time to start it.
        elapsed_ms: u64,
    },
    /// A cell cannot be measured; the run continues without it.
    CellSkipped {
        skipped: Skipped,
    },
    /// CPU times of the cryptographic primitives that the plan's connects use, measured before the first block.
    /// Primitives that could not be measured are absent.
    PrimitivesMeasured {
        /// By key type.
        #[serde(default)]
        signatures: BTreeMap<String, SignatureTime>,
        /// By group.
        #[serde(default)]
        key_exchanges: BTreeMap<String, KeyExchangeTime>,
    },
    /// A load host was connected, or the host of a server. Again if it was lost.
    HostConnected {
        host: ConnectedHost,
    },
    /// A link was made and calibrated.
    LinkMade {
        link: LinkShape,
        /// What the link itself adds to a round trip, which was subtracted.
        overhead_ns: u64,
        /// The median round trip of connects over it.
        round_trip_ns_p50: u64,
        congestion_control: String,
        /// How it is emulated. Older records have rings.
        #[serde(default)]
        by: LinkKind,
        #[serde(default = "mtu_of_old_links")]
        mtu_bytes: u32,
    },
    /// A tunnel was tested before the first block. From then on, it is set up for each trial.
    TunnelTried {
        path: Path,
        /// Version of its program; empty if unknown.
        version: String,
        /// What its ends negotiated.
        leg: Leg,
        /// Time to set it up, without any emulated delay.
        elapsed_ms: u64,
    },
    /// A proxy was tested before the first block. From then on, it is started for each trial.
    ProxyTried {
        path: Path,
        /// Version of its program; empty if unknown.
        version: String,
        /// What it negotiated with the server, as the server reports it.
        leg: Leg,
        /// Time from its start until a client had reached the server through it.
        elapsed_ms: u64,
    },
    /// A server's files were searched for data written to its tables: before the first block, and after each restart
    /// of the server.
    AtRestProven {
        server: String,
        /// What encrypts its files. Also [`AtRest::None`], if it is the baseline: this proves that the search finds
        /// plaintext.
        at_rest: AtRest,
        /// Files that were read completely.
        files: u64,
        bytes: u64,
        /// Files that contain the data as plaintext.
        files_with_marker: u64,
        /// The kernel's name of its cipher, if the kernel encrypts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kernel_cipher: Option<String>,
    },
    /// The capacity of a baseline in a closed loop, which relative paces refer to.
    CapacityFound {
        cell: CellId,
        per_s: f64,
    },
    /// A block begins. Block 0 is calibration and does not count.
    BlockStarted {
        block: u32,
    },
    TrialStarted {
        block: u32,
        cell: CellId,
        arm: Arm,
        /// 1, or 2 if the first attempt was voided.
        attempt: u32,
    },
    TrialFinished {
        block: u32,
        cell: CellId,
        arm: Arm,
        observation: Box<Observation>,
    },
    /// A trial did not measure what it was to measure; its numbers are dropped.
    TrialVoided {
        block: u32,
        cell: CellId,
        arm: Arm,
        /// 1, or 2 if the first attempt was voided.
        attempt: u32,
        reason: VoidReason,
    },
    BlockFinished {
        block: u32,
    },
    /// A configuration was profiled, after the last block.
    Profiled {
        cell: CellId,
        profile: Profile,
    },
    /// The data so far were analysed to decide whether to stop.
    Looked {
        /// Blocks analysed.
        blocks: u32,
        decision: LookDecision,
    },
    /// A warning without consequences.
    Warned {
        message: String,
    },
    Finished {
        ending: Ending,
    },
}

/// The result of a trial: one number per metric, as samples within a trial are not independent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Absent: metrics that do not apply, or have too few samples or too little CPU time.
    pub metrics: BTreeMap<Metric, f64>,
    /// Operations in the window.
    pub operations: u64,
    pub window_ns: u64,
    pub legs: Vec<LegCount>,
    /// Doubts about the numbers that do not void the trial.
    pub flags: Vec<Flag>,
    /// Why metrics that apply are absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub absent: BTreeMap<Metric, Absence>,
    /// Absent if the clients ran on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Box<HostsUse>>,
}

/// What the load hosts of a trial did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostsUse {
    /// The time that all windows had in common ÷ the window.
    pub overlap: f64,
    /// The true overlap differs by at most this.
    pub overlap_uncertainty: f64,
    /// In the order in which the user named them; those without clients are left out.
    pub hosts: Vec<HostUse>,
}

/// What one load host did in the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostUse {
    pub host: String,
    pub clients: u16,
    pub operations: u64,
    /// User and system CPU time of the load process.
    pub client_cpu_ns: u64,
    pub client_rss_peak_bytes: u64,
    /// Open loop: how late the load process was although a client was free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_lag_ns_p99: Option<u64>,
    /// Busy time of all processors of its machine.
    pub machine_busy_ns: u64,
    pub machine_steal_ns: u64,
    pub processors: u16,
    /// How far its monotonic clock is ahead of the coordinator's.
    pub clock_ahead_ns: i64,
    pub clock_uncertainty_ns: u64,
    /// How long after the first window its own opened.
    pub opened_after_ns: u64,
}

/// A doubt about a trial that does not void it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case", tag = "flag")]
pub enum Flag {
    /// The two halves of the window differ.
    Unsteady {
        /// Rate of the second half ÷ rate of the first.
        second_half_ratio: f64,
    },
    /// Other processes used CPU time of the machine.
    CpuElsewhere {
        /// Their share of the machine's busy time. Negative in records older than `cpu_overlap`.
        share: f64,
    },
    /// The roles' CPU times exceed the machine's busy time: clocks disagree, or something was counted twice.
    CpuOverlap {
        /// The excess as a share of the machine's busy time.
        share: f64,
    },
    /// The median is 38–46 ms on a local path: Nagle's algorithm met a delayed ACK.
    DelayedAck,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "gate")]
pub enum VoidReason {
    /// Another TLS version, key or resumption than the level's.
    #[error("negotiated {observed} instead of {planned}")]
    Negotiated { planned: String, observed: String },
    /// The server requested another authentication than the level's.
    #[error("authenticated by {observed} instead of {planned}")]
    Authenticated { planned: String, observed: String },
    #[error("{count} operations failed: {message}")]
    OperationErrors {
        count: u64,
        /// The most frequent message.
        message: String,
    },
    #[error("the load process failed: {message}")]
    LoadFailed { message: String },
    #[error("the server went away: {message}")]
    ServerDied { message: String },
    /// Pages were read from disk that should have been cached.
    #[error("{count} pages were read from disk, although the rows should be cached")]
    BufferMisses { count: u64 },
    #[error("the hypervisor took {percent:.1} % of the trial's CPU time")]
    Steal {
        /// Steal ÷ CPU time of the trial, percent.
        percent: f64,
    },
    #[error("the link: {message}")]
    Link { message: String },
    #[error("the tunnel: {message}")]
    Tunnel { message: String },
    #[error("the proxy: {message}")]
    Proxy { message: String },
    #[error("at rest: {message}")]
    AtRest { message: String },
    #[error("{percent:.0} % of the local ports were in TIME_WAIT")]
    PortsExhausted {
        /// `TIME_WAIT` ÷ usable ports, percent.
        percent: f64,
    },
    /// The schedule asked for more than the path's capacity.
    #[error("{unfinished} operations due in the window did not complete in time")]
    Overload { unfinished: u64 },
    /// The load process began operations late although a client was free.
    #[error(
        "the load process did not keep its schedule: it was {:.2} ms late (p99), while a median operation takes \
         {:.2} ms", ms(*.lag_ns_p99), ms(*.service_ns_p50)
    )]
    ScheduleLag { lag_ns_p99: u64, service_ns_p50: u64 },
    /// The limit was the clients' processors instead of the server's.
    #[error(
        "the clients' processors were {client_percent:.0} % busy, the server's only {server_percent:.0} %"
    )]
    ClientSaturated {
        /// Client CPU ÷ capacity of its processors, percent.
        client_percent: f64,
        /// Server CPU ÷ capacity of its processors, percent.
        server_percent: f64,
    },
    #[error("no operation completed in the window: increase --trial-time")]
    NoOperations,
    /// Something concerns one load host, or the host of the server.
    #[error("host {host}: {reason}")]
    OnHost { host: String, reason: Box<VoidReason> },
    #[error("the connection was lost: {message}")]
    HostLost { message: String },
    /// Other processes took CPU time of a load host's machine.
    #[error("other processes used {percent:.0} % of its processors")]
    HostBusy {
        /// Their CPU time ÷ that of all processors, percent.
        percent: f64,
    },
    #[error("the windows of the load hosts overlapped by {percent:.1} % (± {uncertainty_percent:.1} %)")]
    WindowsApart {
        /// Common time ÷ window, percent.
        percent: f64,
        uncertainty_percent: f64,
    },
}

impl VoidReason {
    /// Whether the cause is a busy machine or a broken connection, so that a later attempt may succeed. This includes a window without
    /// operations: in case of a real problem, operations would fail.
    pub fn is_noise(&self) -> bool {
        match self {
            Self::OnHost { reason, .. } => reason.is_noise(),
            Self::Steal { .. }
            | Self::ScheduleLag { .. }
            | Self::Link { .. }
            | Self::NoOperations
            | Self::HostLost { .. }
            | Self::HostBusy { .. }
            | Self::WindowsApart { .. } => true,
            _ => false,
        }
    }
}

fn ms(nanos: u64) -> f64 {
    nanos as f64 * 1e-6
}

labelled! {
    /// How a link is emulated, the best kind first, with its name on the command line.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum LinkKind {
        /// Our delay line between two veth pairs, read by packet rings.
        #[default]
        Ring = "ring",
        /// Our delay line between two tun devices.
        Tun = "tun",
        /// The kernel's netem queues: only in records of earlier builds.
        Netem = "netem",
        /// A TCP relay between client and server, which delays bytes instead of packets.
        Relay = "relay",
    }
}

impl LinkKind {
    /// The kinds that are made, the best first.
    pub const MADE: [Self; 3] = [Self::Ring, Self::Tun, Self::Relay];

    pub fn named(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.label() == label)
    }
}

impl fmt::Display for LinkKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.label())?;
        formatter.write_str(if *self == Self::Relay { " (approximate)" } else { "" })
    }
}

/// Ethernet's, which all links had before it was recorded.
fn mtu_of_old_links() -> u32 {
    1_500
}

/// The decision after an analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LookDecision {
    /// Continue: not precise enough.
    GoOn,
    /// Stop: every headline interval's half-width is at most 2 %.
    StopPrecise,
    /// Stop: all planned blocks are done.
    StopPlanned,
    /// Stop: the time budget is used up.
    StopBudget,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    Complete,
    Interrupted,
    Terminated,
    /// After an error that made continuing pointless.
    Failed,
}
