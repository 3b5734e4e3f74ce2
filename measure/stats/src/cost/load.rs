//! The load that a prediction is for.

use std::num::NonZeroU32;

/// The load that a prediction is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Connections opened per second; absent: as many as possible.
    pub connects_per_s: Option<f64>,
    /// Queries on each connection, on average.
    pub queries_per_connection: f64,
    /// Round-trip time between clients and server beyond that of the run's local connections, ns.
    pub rtt_ns: f64,
    /// Concurrent clients; absent: as many as the processors can serve.
    pub clients: Option<NonZeroU32>,
    /// Bytes of each query's result.
    pub row_bytes: u32,
    pub cores: Cores,
}

/// The processors that the load runs on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cores {
    /// Clients and server share them, as in a run on one machine.
    Shared(f64),
    /// The clients' processors are no limit if absent.
    Separate { server: f64, clients: Option<f64> },
}

impl Load {
    /// Sessions of one query, on one machine.
    pub fn simple(cores: Cores) -> Self {
        Self {
            connects_per_s: None,
            queries_per_connection: 1.0,
            rtt_ns: 0.0,
            clients: None,
            row_bytes: 0,
            cores,
        }
    }
}
