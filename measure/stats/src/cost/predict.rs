//! What a load costs in one configuration.

use std::num::NonZeroU32;

use ciphertoll_model::labelled;

use super::session::SMALL_ROW_BYTES;
use super::sum::{Means, Uncertain, WeightedSum};
use super::{Cores, CostModel, Load, MissingTerm, Profile, Role};
use crate::estimate::Estimate;

/// The model's own error in CPU time and in time on a local link, as a share with the meaning of a standard deviation. Chosen, and
/// in keeping with the median error of such predictions in [docs/trust.md](../../../../docs/trust.md), 5 to 7 %.
pub(crate) const MODEL_ERROR: f64 = 0.06;
/// The same for CPU time over a link, which is measured on local ones: processors sleep more, and caches are cold. It was 21 %
/// higher than predicted on average (geometric mean of 13 predictions).
const LINK_CPU_ERROR: f64 = 0.20;
/// The same for what a link adds, which is a whole number of round trips. The median error was 0.4 %.
const LINK_ERROR: f64 = 0.01;
/// A result that fits into TCP's initial window of ten segments (RFC 6928).
const INITIAL_WINDOW_BYTES: u32 = 14_600;

/// What a load costs in one configuration. Each value has its interval, or says what the run lacks.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Time of a connect, of a query, and of a session of connect and queries, without waiting for processors, ns.
    pub connect_ns: Result<Estimate, MissingTerm>,
    pub query_ns: Result<Estimate, MissingTerm>,
    pub session_ns: Result<Estimate, MissingTerm>,
    /// The most sessions per second.
    pub throughput: Result<Throughput, MissingTerm>,
    /// CPU time per session, µs, of roles with any.
    pub cpu_us: Vec<(Role, Result<Estimate, MissingTerm>)>,
    /// Processors used, if the load has a rate.
    pub cores: Vec<(Role, Result<Estimate, MissingTerm>)>,
    /// Resident memory with all clients connected, bytes; empty if the load has no number of clients.
    pub memory_bytes: Vec<(Role, Result<Estimate, MissingTerm>)>,
}

/// The most sessions per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throughput {
    pub sessions_per_s: Estimate,
    pub limit: Limit,
}

labelled! {
    /// What limits the throughput.
    pub enum Limit {
        /// Each client waits for its response.
        Clients = "clients",
        SharedCores = "shared_cores",
        ServerCores = "server_cores",
        ClientCores = "client_cores",
    }
}

/// What a time is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timed {
    Connect,
    /// Not a connection's first.
    Query,
    /// A connect and its queries.
    Session,
}

impl CostModel {
    /// What `load` costs in a configuration.
    pub fn predict(&self, profile: &Profile, load: &Load) -> Prediction {
        Predictor { means: &self.means, profile, load }.predict()
    }

    /// The CPU time of a session, µs, as a sum that can be subtracted from that of another configuration.
    pub fn session_cpu(
        &self,
        profile: &Profile,
        role: Role,
        load: &Load,
    ) -> Result<WeightedSum, MissingTerm> {
        Predictor { means: &self.means, profile, load }.cpu(role)
    }
}

impl CostModel {
    /// The model's own error in CPU time, as a share with the meaning of a standard deviation.
    pub(crate) fn cpu_error(load: &Load) -> f64 {
        if load.rtt_ns > 0.0 { LINK_CPU_ERROR } else { MODEL_ERROR }
    }

    /// What `first` takes less than `other`, for a repetition of the measurement. Both are wrong by `error`, a share.
    pub(crate) fn predicted_saving(&self, first: &WeightedSum, other: &WeightedSum, error: f64) -> Estimate {
        let value = |sum| self.means.value(sum).value;
        let error = error * value(first).hypot(value(other));
        self.means.value(&(other.clone() - first)).predicted_difference(error)
    }

    /// A time without waiting for processors, ns, as a sum that can be subtracted from that of another configuration.
    pub fn time(&self, profile: &Profile, of: Timed, load: &Load) -> Result<WeightedSum, MissingTerm> {
        let predictor = Predictor { means: &self.means, profile, load };
        let Time { local, link } = match of {
            Timed::Connect => predictor.connect_time(),
            Timed::Query => predictor.query_time(),
            Timed::Session => predictor.session_time(),
        }?;
        Ok(local + &link)
    }
}

struct Predictor<'a> {
    means: &'a Means,
    profile: &'a Profile,
    load: &'a Load,
}

impl Predictor<'_> {
    fn predict(&self) -> Prediction {
        let roles = || self.profile.cpu.keys().copied();
        let cpu_us: Vec<_> = roles()
            .map(|role| (role, self.cpu(role).and_then(|sum| positive(self.predicted(&sum)))))
            .collect();
        let cores = self.load.connects_per_s.into_iter().flat_map(|rate| {
            let cores = move |role| {
                (role, self.cpu(role).and_then(|sum| positive(self.predicted(&(sum * (rate * 1e-6))))))
            };
            roles().map(cores)
        });
        let memory = |clients: NonZeroU32| {
            let of = move |role| (role, self.memory(role, clients));
            let middle = self.profile.memory.contains_key(&Role::Middle).then_some(Role::Middle);
            middle.into_iter().chain([Role::Server]).map(of).collect()
        };
        Prediction {
            connect_ns: self.connect_time().and_then(|time| positive(self.timed(&time))),
            query_ns: self.query_time().and_then(|time| positive(self.timed(&time))),
            session_ns: self.session_time().and_then(|time| positive(self.timed(&time))),
            throughput: self.throughput(),
            cpu_us,
            cores: cores.collect(),
            memory_bytes: self.load.clients.map(memory).unwrap_or_default(),
        }
    }

    fn predicted(&self, sum: &WeightedSum) -> Estimate {
        self.means.value(sum).prediction(self.cpu_error())
    }

    fn memory(&self, role: Role, clients: NonZeroU32) -> Result<Estimate, MissingTerm> {
        let costs = self.profile.memory.get(&role).ok_or(MissingTerm::Memory)?;
        let more = costs.per_connection.clone() * f64::from(clients.get() - 1);
        Ok(self.means.value(&(costs.base.clone() + &more)).prediction(MODEL_ERROR))
    }

    fn cpu_error(&self) -> f64 {
        CostModel::cpu_error(self.load)
    }

    /// The CPU time of a session, µs.
    fn cpu(&self, role: Role) -> Result<WeightedSum, MissingTerm> {
        let costs = self.profile.cpu.get(&role).ok_or_else(|| self.missing_cpu())?;
        let concurrency = self.concurrency();
        let connect = costs.connect.at(concurrency).ok_or(MissingTerm::Connect)?;
        Ok(connect + &self.queries_cpu(role, concurrency)?)
    }

    fn missing_cpu(&self) -> MissingTerm {
        if self.profile.cpu.contains_key(&Role::Client) {
            MissingTerm::ServerCpu
        } else if self.profile.latency.connect.is_empty() {
            MissingTerm::Connect
        } else {
            MissingTerm::ConnectCpu
        }
    }

    fn queries_cpu(&self, role: Role, concurrency: f64) -> Result<WeightedSum, MissingTerm> {
        let Load { queries, row_bytes, .. } = *self.load;
        let costs = self.profile.cpu.get(&role).ok_or(MissingTerm::Query)?;
        costs.queries(queries, row_bytes, concurrency).ok_or(if costs.further_query.is_empty() {
            MissingTerm::Query
        } else {
            MissingTerm::Rows
        })
    }

    /// The mean number of clients that do not wait for the link. If times are unknown: all of them.
    fn concurrency(&self) -> f64 {
        let clients = self.load.clients.map_or(f64::INFINITY, |clients| f64::from(clients.get()));
        let near = Load { rtt_ns: 0.0, ..*self.load };
        let Ok(Time { local, .. }) = (Predictor { load: &near, ..*self }).session_time() else {
            return clients;
        };
        let local_ns = self.means.value(&local).value;
        let link_ns = self.session_time().map_or(0.0, |time| self.means.value(&time.link).value);
        match self.load.connects_per_s {
            Some(rate) => (rate * local_ns * 1e-9).min(clients),
            None => clients * (local_ns / (local_ns + link_ns)),
        }
    }

    fn connect_time(&self) -> Result<Time, MissingTerm> {
        let local = self.profile.latency.connect.at(1.0).ok_or(MissingTerm::ConnectTime)?;
        Ok(Time { local, link: self.over_link(|trips| trips.connect.clone())? })
    }

    /// Of a query that is not a connection's first.
    fn query_time(&self) -> Result<Time, MissingTerm> {
        self.check_rows()?;
        let costs = &self.profile.latency;
        let local = costs.further_query.at(1.0).ok_or(MissingTerm::QueryTime)?;
        let local = match self.load.row_bytes {
            ..=SMALL_ROW_BYTES => local,
            bytes => local + &costs.rows.as_ref().ok_or(MissingTerm::Rows)?.of_row(bytes),
        };
        Ok(Time { local, link: self.over_link(|trips| trips.query.clone())? })
    }

    fn session_time(&self) -> Result<Time, MissingTerm> {
        let Load { queries: count, row_bytes, .. } = *self.load;
        let Time { local, link } = self.connect_time()?;
        if count.mean() == 0.0 {
            return Ok(Time { local, link });
        }
        self.check_rows()?;
        let costs = &self.profile.latency;
        let missing = if costs.further_query.is_empty() { MissingTerm::QueryTime } else { MissingTerm::Rows };
        let queries = costs.queries(count, row_bytes, 1.0).ok_or(missing)?;
        let over_link = self.over_link(|trips| trips.query.clone() * count.mean())?;
        Ok(Time { local: local + &queries, link: link + &over_link })
    }

    fn check_rows(&self) -> Result<(), MissingTerm> {
        let waits = self.load.rtt_ns > 0.0 && self.load.row_bytes > INITIAL_WINDOW_BYTES;
        if waits { Err(MissingTerm::RowsOverLink) } else { Ok(()) }
    }

    fn over_link(
        &self,
        trips: impl Fn(&super::RoundTripCosts) -> WeightedSum,
    ) -> Result<WeightedSum, MissingTerm> {
        if self.load.rtt_ns == 0.0 {
            return Ok(WeightedSum::default());
        }
        let measured = self.profile.round_trips.as_ref().ok_or(MissingTerm::RoundTrips)?;
        Ok(trips(measured) * self.load.rtt_ns)
    }

    fn timed(&self, time: &Time) -> Estimate {
        let [local, link] = [&time.local, &time.link].map(|sum| self.means.value(sum).value);
        let link_error = self.profile.round_trips.as_ref().map_or(0.0, |trips| trips.error).max(LINK_ERROR);
        let error = (MODEL_ERROR * local).hypot(link_error * link) / (local + link);
        self.means.value(&(time.local.clone() + &time.link)).prediction(error)
    }

    fn throughput(&self) -> Result<Throughput, MissingTerm> {
        let mut lowest = match self.load.clients {
            Some(clients) => {
                let time = positive(self.timed(&self.session_time()?))?;
                let sessions_per_s = inverse(f64::from(clients.get()) * 1e9, &time);
                Some(Throughput { sessions_per_s, limit: Limit::Clients })
            }
            None => None,
        };
        let (shared, server, client) = match self.load.cores {
            Cores::Shared(cores) => (Some(cores), None, None),
            Cores::Separate { server, clients } => (None, Some(server), clients),
        };
        let limits = [
            (shared, vec![Role::Total], Limit::SharedCores),
            (server, vec![Role::Server], Limit::ServerCores),
            // A proxy runs on the clients' host.
            (client, vec![Role::Client, Role::Middle], Limit::ClientCores),
        ];
        for (cores, roles, limit) in limits {
            let Some(cores) = cores else { continue };
            let used = self.saturated_cpu(&roles)?;
            let used = positive(used.prediction(self.cpu_error()))?;
            let sessions_per_s = inverse(cores * 1e6, &used);
            if lowest.is_none_or(|lowest| sessions_per_s.value < lowest.sessions_per_s.value) {
                lowest = Some(Throughput { sessions_per_s, limit });
            }
        }
        lowest.ok_or(MissingTerm::Connect)
    }

    /// CPU time per session of these roles ÷ the share of CPU time that they get on a saturated machine, µs.
    fn saturated_cpu(&self, roles: &[Role]) -> Result<Uncertain, MissingTerm> {
        let concurrency = self.concurrency();
        let mut sum = WeightedSum::default();
        for role in roles {
            let Some(costs) = self.profile.cpu.get(role) else { continue };
            let connect = costs.connect.at(concurrency).ok_or(MissingTerm::Connect)?;
            let queries = self.queries_cpu(*role, concurrency)?;
            let used = self.profile.utilisation;
            sum = sum + &(connect * used.connect.recip()) + &(queries * used.query.recip());
        }
        Ok(self.means.value(&sum))
    }
}

/// Time on the processors and time that a link adds, ns.
struct Time {
    local: WeightedSum,
    link: WeightedSum,
}

/// No time and no CPU time is 0 or less: then noise dominates it.
fn positive(estimate: Estimate) -> Result<Estimate, MissingTerm> {
    if estimate.value > 0.0 { Ok(estimate) } else { Err(MissingTerm::Precision) }
}

/// `numerator` ÷ a positive estimate.
fn inverse(numerator: f64, of: &Estimate) -> Estimate {
    let limit =
        |limit: Option<f64>| limit.map(|limit| if limit > 0.0 { numerator / limit } else { f64::INFINITY });
    Estimate {
        value: numerator / of.value,
        ci_low: limit(of.ci_high),
        ci_high: limit(of.ci_low),
        blocks: of.blocks,
    }
}
