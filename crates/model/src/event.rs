//! Everything that happens in a run. The record stores events, the progress display and the
//! reports only read them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::absence::Absence;
use crate::cell::{Arm, CellId, Skipped};
use crate::environment::Environment;
use crate::factor::{AtRest, LinkShape, Path};
use crate::metric::Metric;
use crate::primitive::{KeyExchangeTime, SignatureTime};
use crate::trial::{Leg, LegCount};

/// An event and when it happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stamped {
    /// Milliseconds since 1970-01-01 UTC.
    pub at_unix_ms: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// The first line of every record.
    RunStarted {
        /// [`crate::SCHEMA_VERSION`] of the writer.
        schema_version: u32,
        /// Version of ciphertoll.
        tool_version: String,
    },
    /// A run that ended early goes on; the block that was cut short begins again.
    RunResumed {
        /// Version of ciphertoll.
        tool_version: String,
    },
    /// The machine.
    EnvironmentSeen {
        /// What it is.
        environment: Environment,
    },
    /// Something slow is done before the clock starts.
    Preparing {
        /// What, in a few words.
        what: String,
    },
    /// A server answers.
    ServerReady {
        /// Its name in cell ids.
        server: String,
        /// Its version, from its own mouth.
        version: String,
        /// Its TLS library, where it tells.
        tls_library: Option<String>,
        /// Settings that differ from the server's defaults.
        settings: BTreeMap<String, String>,
        /// How long it took.
        elapsed_ms: u64,
    },
    /// A cell turned out not to be measurable; the rest goes on.
    CellSkipped {
        /// Which and why.
        skipped: Skipped,
    },
    /// What the cryptographic primitives take that the plan's connects rest on: timed on this machine, before the
    /// first block. What could not be timed is absent.
    PrimitivesMeasured {
        /// By the label of the key.
        #[serde(default)]
        signatures: BTreeMap<String, SignatureTime>,
        /// By the label of the group.
        #[serde(default)]
        key_exchanges: BTreeMap<String, KeyExchangeTime>,
    },
    /// A link was made like this, and found to be so.
    LinkMade {
        /// As it was asked for.
        link: LinkShape,
        /// What of a round trip is this machine's own, and was taken off.
        overhead_ns: u64,
        /// The median round trip of connects over it.
        round_trip_ns_p50: u64,
        /// TCP's congestion control at both ends.
        congestion_control: String,
        /// How it was made. Records from before there was a choice have rings.
        #[serde(default)]
        by: LinkKind,
        /// The largest packet that it takes whole, bytes.
        #[serde(default = "mtu_of_old_links")]
        mtu_bytes: u32,
    },
    /// A tunnel was tried before the first block, and it works; from there on, it is set up afresh for each trial.
    TunnelTried {
        /// The path that goes through it.
        path: Path,
        /// What its program says that it is; empty where it does not.
        version: String,
        /// What its ends agreed on.
        leg: Leg,
        /// How long it took to set up, with nothing but its own ends' work in between.
        elapsed_ms: u64,
    },
    /// A proxy was tried before the first block, and it works; from there on, it is started afresh for each trial.
    ProxyTried {
        /// The path that goes through it.
        path: Path,
        /// What its program says that it is; empty where it does not.
        version: String,
        /// What it agreed on with the server, as the server tells it.
        leg: Leg,
        /// How long it took from its start until a client had got through it to the server.
        elapsed_ms: u64,
    },
    /// What was written into a server's table was looked for in its files, before the first block and wherever it was
    /// started afresh.
    AtRestProven {
        /// Its name in the plan.
        server: String,
        /// What its files lie under: [`AtRest::None`], too, where another level is compared with that, so that it is seen
        /// that the search finds what is there.
        at_rest: AtRest,
        /// Files that were read from beginning to end.
        files: u64,
        /// How much that was.
        bytes: u64,
        /// Those that had it in them, in the clear.
        files_with_marker: u64,
        /// What in the kernel encrypts, in the kernel's own words, where it is the kernel that does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kernel_cipher: Option<String>,
    },
    /// What a baseline can do in a closed loop, which paces in percent refer to.
    CapacityFound {
        /// The baseline's cell, whose pace is a share of this.
        cell: CellId,
        /// Operations a second.
        per_s: f64,
    },
    /// A block begins. Block 0 is calibration and counts for nothing.
    BlockStarted {
        /// Number of the block.
        block: u32,
    },
    /// A trial begins.
    TrialStarted {
        /// Number of the block.
        block: u32,
        /// Which cell.
        cell: CellId,
        /// Which copy of it.
        arm: Arm,
        /// 1, or 2 where the first was voided.
        attempt: u32,
    },
    /// A trial yielded an observation.
    TrialFinished {
        /// Number of the block.
        block: u32,
        /// Which cell.
        cell: CellId,
        /// Which copy of it.
        arm: Arm,
        /// What was observed.
        observation: Box<Observation>,
    },
    /// A trial did not do what its name says; its numbers are dropped.
    TrialVoided {
        /// Number of the block.
        block: u32,
        /// Which cell.
        cell: CellId,
        /// Which copy of it.
        arm: Arm,
        /// 1, or 2 where the first was voided.
        attempt: u32,
        /// Why.
        reason: VoidReason,
    },
    /// A block is complete.
    BlockFinished {
        /// Number of the block.
        block: u32,
    },
    /// The data were looked at, and it was decided to stop or go on.
    Looked {
        /// Blocks seen.
        blocks: u32,
        /// What was decided.
        decision: LookDecision,
    },
    /// Worth a line, changes nothing.
    Warned {
        /// The line.
        message: String,
    },
    /// The run is over.
    Finished {
        /// How.
        ending: Ending,
    },
}

/// What a trial yielded: one number per metric. Samples inside a trial are not independent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The numbers; what does not apply is absent, and so is what has too few samples or too little CPU time.
    pub metrics: BTreeMap<Metric, f64>,
    /// Operations in the window.
    pub operations: u64,
    /// Length of the window.
    pub window_ns: u64,
    /// What was negotiated.
    pub legs: Vec<LegCount>,
    /// What to know about the numbers without dropping them.
    pub flags: Vec<Flag>,
    /// Why numbers that apply are absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub absent: BTreeMap<Metric, Absence>,
}

/// Something to know about a trial that does not void it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case", tag = "flag")]
pub enum Flag {
    /// The two halves of the window disagree.
    Unsteady {
        /// Rate of the second half ÷ rate of the first.
        second_half_ratio: f64,
    },
    /// The roles' CPU does not add up to what the machine was busy for.
    CpuElsewhere {
        /// Share of the machine's busy time that no role accounts for. Negative in records of before there was
        /// `cpu_overlap`.
        share: f64,
    },
    /// The roles' CPU adds up to more than the machine was busy for: two clocks disagree, or count something twice.
    CpuOverlap {
        /// What is too much, as a share of the machine's busy time.
        share: f64,
    },
    /// The median lies at 38–46 ms on a local path: Nagle met a delayed ACK.
    DelayedAck,
}

/// Why a trial's numbers were dropped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "gate")]
pub enum VoidReason {
    /// Another version, key or resumption than the level's.
    #[error("negotiated {observed} where the level says {planned}")]
    Negotiated {
        /// What the level says.
        planned: String,
        /// What was seen.
        observed: String,
    },
    /// Another authentication than the level's.
    #[error("authenticated by {observed} where the level says {planned}")]
    Authenticated {
        /// What the level says.
        planned: String,
        /// What the server asked for.
        observed: String,
    },
    /// An operation failed.
    #[error("{count} operations failed: {message}")]
    OperationErrors {
        /// How many.
        count: u64,
        /// The commonest message.
        message: String,
    },
    /// The load process failed or was killed.
    #[error("the load process failed: {message}")]
    LoadFailed {
        /// What it said, or how it died.
        message: String,
    },
    /// The server went away.
    #[error("the server went away: {message}")]
    ServerDied {
        /// How.
        message: String,
    },
    /// Pages came from disk where the level means the cache.
    #[error("{count} pages were read from disk, where the rows should have been cached")]
    BufferMisses {
        /// How many.
        count: u64,
    },
    /// The hypervisor took the CPU.
    #[error("the hypervisor took {percent:.1} % of the trial's CPU time")]
    Steal {
        /// Steal ÷ CPU time of the trial, percent.
        percent: f64,
    },
    /// The link was not what it should have been.
    #[error("the link: {message}")]
    Link {
        /// How not.
        message: String,
    },
    /// The tunnel was not what it should have been.
    #[error("the tunnel: {message}")]
    Tunnel {
        /// How not.
        message: String,
    },
    /// The proxy was not what it should have been.
    #[error("the proxy: {message}")]
    Proxy {
        /// How not.
        message: String,
    },
    /// Files were not encrypted as the level says.
    #[error("at rest: {message}")]
    AtRest {
        /// How not.
        message: String,
    },
    /// Ports ran short.
    #[error("{percent:.0} % of the local ports were in TIME_WAIT")]
    PortsExhausted {
        /// `TIME_WAIT` ÷ usable ports, percent.
        percent: f64,
    },
    /// More was asked for than the path can do.
    #[error("{unfinished} operations that were due in the window were not done when it had long closed")]
    Overload {
        /// How many.
        unfinished: u64,
    },
    /// The load process began operations later than its schedule said, through no client's being busy.
    #[error(
        "the schedule was not kept: the load process was {:.2} ms late (p99), and a median operation takes \
         {:.2} ms", ms(*.lag_ns_p99), ms(*.service_ns_p50)
    )]
    ScheduleLag {
        /// 99th percentile of the lag.
        lag_ns_p99: u64,
        /// Median service time.
        service_ns_p50: u64,
    },
    /// The clients' processors were the limit, not the server's.
    #[error(
        "the clients' processors were {client_percent:.0} % busy, the server's only {server_percent:.0} %"
    )]
    ClientSaturated {
        /// Client CPU ÷ what its processors have, percent.
        client_percent: f64,
        /// Server CPU ÷ what its processors have, percent.
        server_percent: f64,
    },
    /// Nothing completed in the window.
    #[error("no operation completed in the window; give it more time by --trial-time")]
    NoOperations,
}

impl VoidReason {
    /// Whether the machine had no time for the trial: the same trial a little later may well be sound. So with a window in
    /// which nothing completed: where something is wrong, operations fail.
    pub fn is_noise(&self) -> bool {
        matches!(self, Self::Steal { .. } | Self::ScheduleLag { .. } | Self::Link { .. } | Self::NoOperations)
    }
}

fn ms(nanos: u64) -> f64 {
    nanos as f64 * 1e-6
}

/// How a link is made on this machine, the best first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkKind {
    /// A line of ours between two pairs of interfaces, which it reads by rings of packets.
    #[default]
    Ring,
    /// A line of ours between two tunnel devices.
    Tun,
    /// A queue of the kernel's own that delays.
    Netem,
    /// A process that clients take for the server; no packet is delayed, but what they say to each other is.
    Relay,
}

impl LinkKind {
    /// All, the best first.
    pub const ALL: [Self; 4] = [Self::Ring, Self::Tun, Self::Netem, Self::Relay];

    /// Its name among arguments.
    pub fn label(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Tun => "tun",
            Self::Netem => "netem",
            Self::Relay => "relay",
        }
    }

    /// The kind that has this name.
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

/// That of Ethernet, which links had before their record said so.
fn mtu_of_old_links() -> u32 {
    1_500
}

/// What was decided at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LookDecision {
    /// Not precise enough yet.
    GoOn,
    /// Every headline interval's half-width is at most 2 %.
    StopPrecise,
    /// All planned blocks are done.
    StopPlanned,
    /// The time budget is used up.
    StopBudget,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// As planned.
    Complete,
    /// By Ctrl-C.
    Interrupted,
    /// By SIGTERM.
    Terminated,
    /// By an error that made going on pointless.
    Failed,
}
