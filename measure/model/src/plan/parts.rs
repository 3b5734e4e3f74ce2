//! What a plan consists of.

use serde::{Deserialize, Serialize};

use super::Baseline;
use crate::cell::{Arm, Cell, Skipped};
use crate::duration::Span;
use crate::factor::{ConnectionUse, Driver, Factor, Link, Pace, ServerLevel, TlsVersion, Workload};
use crate::hosts::{LoadHosts, ServerHost};
use crate::is_default;
use crate::noise::{LatenessLimit, NoiseLimits, StealLimit};
use crate::pinning::CpuPinning;
use crate::profile::Profiling;
use crate::settings::Settings;
use crate::storage::Storage;

/// The maximum number of blocks, and the last analysis.
pub const MAX_BLOCKS: u32 = 30;
/// With fewer blocks there are no verdicts.
pub const MIN_BLOCKS_FOR_VERDICTS: u32 = 6;
/// After how many blocks the data are analysed. Few times, as each one is a chance to stop on luck.
pub const LOOKS: [u32; 5] = [6, 10, 15, 20, 30];

/// The default rate limit of connects to a server at a URL.
pub const SAFE_CONNECTS_PER_S: u32 = 20;
/// The default rate limit of operations on open connections to a server at a URL.
pub const SAFE_OPERATIONS_PER_S: u32 = 1_000;
/// The default limit of the bytes of results of a server at a URL.
const SAFE_BYTES_PER_S: u32 = 16 << 20;
/// The default maximum of clients of a server at a URL.
pub const SAFE_CLIENTS: u16 = 4;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The writer's [`crate::SCHEMA_VERSION`].
    pub schema_version: u32,
    pub name: String,
    pub seed: u64,
    /// What cells are compared with.
    pub baseline: Baseline,
    /// What cells are compared with in addition: with one authentication, driver or kind of encryption at rest, if
    /// several are measured in a comparison of paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub also: Option<Baseline>,
    /// Every cell, in the order of reports. Visits refer to them by index.
    pub cells: Vec<Cell>,
    /// The comparisons: cells that share a baseline cell.
    pub strata: Vec<Stratum>,
    /// What was requested and is not measured.
    pub skipped: Vec<Skipped>,
    /// Workloads that drivers do differently, so that these drivers are not compared by them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unlike: Vec<Unlike>,
    /// The trials by block; block 0 is calibration.
    pub blocks: Vec<Block>,
    /// After how many blocks the data are analysed.
    pub looks: Vec<u32>,
    /// Warm-up and window; see [`Plan::timing_of`].
    pub timing: Timing,
    /// Longer timing of operations over a long link.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub longer: Vec<LongerTrials>,
    /// No block begins after this time.
    pub budget: Option<Span>,
    pub verdicts: Verdicts,
    /// Half-widths of "the same".
    pub margins: Margins,
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_steal: StealLimit,
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_lateness: LatenessLimit,
    #[serde(default)]
    pub pin: CpuPinning,
    /// Whether each configuration is profiled after the last block.
    #[serde(default, skip_serializing_if = "is_default")]
    pub profile: Profiling,
    #[serde(default, skip_serializing_if = "is_default")]
    pub storage: Storage,
    /// Additional settings of private servers, by engine.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    pub settings: Settings,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// The statement of [`Workload::Query`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// Rate limit of operations on a server at a URL; see [`Plan::rate_limit_per_s`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rate: Option<u32>,
    /// The same without [`Plan::max_rate`], for operations on open connections. Absent in records of earlier builds, which
    /// had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_operations: Option<u32>,
    /// Hosts that the clients are divided over; this machine if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub load_hosts: Vec<LoadHosts>,
    /// The host of the servers at URLs, where their CPU time is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_host: Option<ServerHost>,
}

/// A limitation of a server, found before the plan was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub server: String,
    pub what: Refused,
    pub reason: String,
}

type CellConstraint<'a> = dyn Fn(&Cell) -> Option<String> + 'a;

/// What is known of servers and drivers before the plan is made.
#[derive(Clone, Copy, Default)]
pub struct Limitations<'a> {
    pub refusals: &'a [Refusal],
    /// Workloads that drivers do differently.
    pub unlike: &'a [Unlike],
    /// Why a cell's driver does not support it.
    pub obstacle: Option<&'a CellConstraint<'a>>,
}

/// What a server does not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Anything: it is not installed, and the user did not name it.
    Everything,
    /// A server at a URL: this TLS version, or connections without TLS (`None`).
    Transport(Option<TlsVersion>),
}

/// A comparison: cells that are equal in every factor except the baseline's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stratum {
    /// Index of the baseline cell.
    pub baseline: usize,
    /// Indices of the cells compared with it.
    pub treatments: Vec<usize>,
    /// The compared factor, if it is not the baseline's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<Factor>,
}

impl Stratum {
    /// Whether `cell` is the baseline or one of the treatments.
    pub fn has(&self, cell: usize) -> bool {
        self.baseline == cell || self.treatments.contains(&cell)
    }
}

/// One visit to every cell, in random order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// 0 is calibration.
    pub number: u32,
    pub visits: Vec<Visit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visit {
    /// Index into [`Plan::cells`].
    pub cell: usize,
    pub arm: Arm,
}

/// Duration of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    pub warm_up: Span,
    /// Measured.
    pub window: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdicts {
    /// Six blocks or more are planned.
    Rendered,
    /// There are too few blocks.
    Withheld,
}

/// Half-widths δ within which two cells count as the same, as a share: 0.03 is 3 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Margins {
    /// For rates and CPU per operation.
    pub rate_and_cpu: f64,
    /// For times.
    pub latency: f64,
}

/// A workload that one driver does differently, so that it is not compared with other drivers by that workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unlike {
    pub driver: Driver,
    pub workload: Workload,
    /// The difference, in one line.
    pub reason: String,
}

/// Timing of one workload over one link, if the plan's timing is too short. All cells of the workload and the link
/// share it; the slowest one determines it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LongerTrials {
    pub link: Link,
    pub workload: Workload,
    /// Expected maximum time of an operation.
    pub operation: Span,
    /// Operations per client that the window has room for.
    pub operations: u32,
    /// For blocks that count.
    pub timing: Timing,
    /// For calibration.
    pub calibration: Timing,
}

impl Plan {
    /// How much noise of the machine a valid trial may have.
    pub fn noise_limits(&self) -> NoiseLimits {
        NoiseLimits { steal: self.max_steal, lateness: self.max_lateness }
    }

    /// The number of blocks without calibration.
    pub fn counted_blocks(&self) -> u32 {
        self.blocks.len().saturating_sub(1) as u32
    }

    /// The rate limit for clients of `cell` in a closed loop. A server at a URL has one by default, so that it is not
    /// flooded by accident.
    pub fn rate_limit_per_s(&self, cell: &Cell) -> Option<u32> {
        cell.treatment.server.url.as_ref()?;
        self.max_rate.or_else(|| match (cell.workload.connection_use(), cell.workload) {
            (ConnectionUse::PerOperation, _) => Some(SAFE_CONNECTS_PER_S),
            (ConnectionUse::Pooled, Workload::BulkRead { bytes }) => {
                Some(self.max_operations?.min(SAFE_BYTES_PER_S / bytes.number()).max(1))
            }
            (ConnectionUse::Pooled, _) => self.max_operations,
        })
    }

    /// Baselines whose capacity must be measured first, as cells have a pace relative to it.
    pub fn paced_baselines(&self) -> Vec<usize> {
        let mut baselines: Vec<usize> = self.strata.iter().map(|stratum| stratum.baseline).collect();
        baselines.retain(|&cell| matches!(self.cells[cell].pace, Pace::OfBaselineCapacity(_)));
        baselines.sort_unstable();
        baselines.dedup();
        baselines
    }

    /// The cell that `cell` is compared with; itself for a baseline or a cell without comparison.
    pub fn baseline_of(&self, cell: usize) -> usize {
        self.strata.iter().find(|stratum| stratum.has(cell)).map_or(cell, |stratum| stratum.baseline)
    }

    /// The servers in order of appearance, without duplicates.
    pub fn servers(&self) -> Vec<&ServerLevel> {
        let mut servers = Vec::new();
        for cell in &self.cells {
            if !servers.contains(&&cell.treatment.server) {
                servers.push(&cell.treatment.server);
            }
        }
        servers
    }
}
