//! The cost model: what a connect, a query and a byte cost in each configuration of a run, and from that the cost of loads
//! that were not measured. [docs/measure/method.md](../../../../docs/measure/method.md) derives it.
//!
//! Every term is a [`WeightedSum`] of measured means, so that its uncertainty and that of everything computed from it
//! follow from those of the cells.

mod break_even;
mod fit;
mod load;
mod predict;
mod session;
mod sum;
mod terms;

use std::collections::BTreeMap;

use ciphertoll_model::{Legacy, Metric, ServerLevel, Treatment, labelled};
use serde::Serialize;

pub use break_even::{BreakEven, Side};
pub use load::{Cores, Load, SessionQueries};
pub(crate) use predict::MODEL_ERROR;
pub use predict::{Limit, Prediction, Throughput, Timed};
pub use session::{ByClients, RowCosts, SessionCosts};
pub use sum::{MIN_BLOCKS, Means, MeasuredMean, Source, Uncertain, WeightedSum};
pub use terms::{NamedTerm, Term};

labelled! {
    /// Whose CPU time.
    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Role {
        Client = "client",
        /// A tunnel's ends, a proxy.
        Middle = "middle",
        Server = "server",
        Total = "total",
    }
}

labelled! {
    /// What a prediction needs and the run did not measure.
    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum MissingTerm {
        Connect = "the cost of a connect (workload connect)",
        /// Its time was measured, and at a URL its rate is limited.
        ConnectCpu = "the CPU time of a connect, which was too short to be measured (--max-rate 500; at a URL, the server's with --server-host ssh:HOST)",
        /// The client's was measured: the server is at a URL.
        ServerCpu = "the server's CPU time (at a URL, add --server-host ssh:HOST)",
        ConnectTime = "the time of a connect of one client (workload connect with 1 client)",
        Query = "the cost of a query (workload connect-query or point-select)",
        QueryTime = "the time of a query of one client (workload connect-query or point-select with 1 client)",
        Rows = "the cost of long results (workloads bulk-read+bytes=1k, 16k and 256k with 1 client)",
        RoundTrips = "the round trips (workload connect-query over an emulated link)",
        /// Not in the model.
        RowsOverLink = "the waits of long results for TCP's window over a link, which the model does not have",
        Memory = "the server's memory per connection (workload point-select with 1 and 8 clients; not measured for PostgreSQL)",
        /// It was measured in fewer than [`MIN_BLOCKS`].
        Intervals = "intervals: a cost has one from 4 blocks on (more blocks, or a quieter machine)",
        /// It is not positive.
        Precision = "precision: a cost is smaller than its noise (more blocks, or a quieter machine)",
    }
}

/// The cost model of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct CostModel {
    pub means: Means,
    /// In the plan's order.
    pub profiles: Vec<Profile>,
    /// Processors of the machine of the run, if known.
    pub cpus: Option<u16>,
}

/// What one configuration costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// With a local link.
    pub treatment: Treatment,
    /// Why what its connections negotiated is legacy, if it is.
    pub negotiated_legacy: Option<Legacy>,
    /// CPU time, µs; roles without CPU time are absent.
    pub cpu: BTreeMap<Role, SessionCosts>,
    /// Time of one client on a local link, ns.
    pub latency: SessionCosts,
    pub round_trips: Option<RoundTripCosts>,
    pub utilisation: Utilisation,
    /// Resident memory by role, bytes.
    pub memory: BTreeMap<Role, MemoryCosts>,
}

/// Measured round trips: time over an emulated link beyond that on a local link ÷ the link's round trip.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoundTripCosts {
    /// Of a connect.
    pub connect: WeightedSum,
    /// Of each query.
    pub query: WeightedSum,
    /// Largest error of the links that the fit did not use, as a share of the measured time.
    pub error: f64,
}

/// The share of the machine's CPU time that clients, server and the processes between them used in trials with enough clients to saturate it.
/// The rest is the kernel's and waiting for wake-ups.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Utilisation {
    pub connect: f64,
    pub query: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryCosts {
    /// With one connection.
    pub base: WeightedSum,
    pub per_connection: WeightedSum,
}

impl Role {
    pub(crate) fn cpu_metric(self) -> Metric {
        match self {
            Self::Client => Metric::CpuUsPerOpClient,
            Self::Middle => Metric::CpuUsPerOpMiddle,
            Self::Server => Metric::CpuUsPerOpServer,
            Self::Total => Metric::CpuUsPerOpTotal,
        }
    }
}

impl MissingTerm {
    /// Whether a calibration of this server measures it. At a URL the link cannot be changed.
    pub fn is_calibrated(self, server: &ServerLevel) -> bool {
        match self {
            Self::RowsOverLink | Self::Precision | Self::Memory => false,
            Self::RoundTrips => server.url.is_none(),
            _ => true,
        }
    }
}

impl std::fmt::Display for MissingTerm {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.label())
    }
}

#[cfg(test)]
mod tests;
