//! The load that a prediction is for.

use std::num::NonZeroU32;

/// The load that a prediction is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Connections opened per second; absent: as many as possible.
    pub connects_per_s: Option<f64>,
    pub queries: SessionQueries,
    /// Round-trip time between clients and server beyond that of the run's local connections, ns.
    pub rtt_ns: f64,
    /// Concurrent clients; absent: as many as the processors can serve.
    pub clients: Option<NonZeroU32>,
    /// Bytes of each query's result.
    pub row_bytes: u32,
    pub cores: Cores,
}

/// Queries on a connection, on average over connections. The first one costs more than the others, so that the mean alone
/// does not give the cost if some connections have no query: it depends on how many have one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionQueries {
    mean: f64,
    /// The share of connections with at least one query.
    first: f64,
}

/// The processors that the load runs on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cores {
    /// Clients and server share them, as in a run on one machine.
    Shared(f64),
    /// The clients' processors are no limit if absent.
    Separate { server: f64, clients: Option<f64> },
}

impl SessionQueries {
    /// If only the mean is known: below 1, some connections have one query and the others none; from 1 on, each has one or
    /// more.
    pub const fn of_mean(mean: f64) -> Self {
        Self { mean, first: mean.min(1.0) }
    }

    /// From how many connections had how many queries. `None` if there are no connections.
    pub fn of_distribution(connections_by_queries: impl IntoIterator<Item = (u64, u64)>) -> Option<Self> {
        let (mut all, mut with_query, mut sum) = (0.0, 0.0, 0.0);
        for (queries, connections) in connections_by_queries {
            let connections = connections as f64;
            all += connections;
            with_query += if queries > 0 { connections } else { 0.0 };
            sum += connections * queries as f64;
        }
        (all > 0.0).then(|| Self { mean: sum / all, first: with_query / all })
    }

    /// Queries per connection.
    pub fn mean(self) -> f64 {
        self.mean
    }

    pub fn first(self) -> f64 {
        self.first
    }

    /// Queries after a connection's first one.
    pub fn further(self) -> f64 {
        self.mean - self.first
    }
}

impl Load {
    /// Sessions of one query, on one machine.
    pub fn simple(cores: Cores) -> Self {
        Self {
            connects_per_s: None,
            queries: SessionQueries::of_mean(1.0),
            rtt_ns: 0.0,
            clients: None,
            row_bytes: 0,
            cores,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_without_a_query_are_not_averaged_away() {
        // Half of the connections have no query, and half have 20: ten on average, and not ten each.
        let observed = SessionQueries::of_distribution([(0, 50), (20, 50)]).unwrap();
        assert_eq!((observed.first(), observed.further(), observed.mean()), (0.5, 9.5, 10.0));
        let assumed = SessionQueries::of_mean(10.0);
        assert_eq!((assumed.first(), assumed.further(), assumed.mean()), (1.0, 9.0, 10.0));
        assert_eq!(SessionQueries::of_mean(0.25), SessionQueries::of_distribution([(0, 3), (1, 1)]).unwrap());
        assert_eq!(SessionQueries::of_distribution([]), None);
        assert_eq!(SessionQueries::of_distribution([(3, 0)]), None);
    }
}
