//! Predictions as data for the script of the page: loads at the knots of a grid, between which it interpolates.

use std::collections::{BTreeMap, BTreeSet};

use ciphertoll_stats::Estimate;
use ciphertoll_stats::cost::{
    Cores, CostModel, Load, MissingTerm, Prediction, Profile, Role, SessionQueries,
};
use serde::{Serialize, Serializer};

use super::{CostReport, calibration, predictions};
use crate::number::WIDEST_PLUS_MINUS;

/// Queries per connection. Values are linear between the knots; only the widths of intervals are not, and those deviate by
/// less than 12 %. The script's fields end at the last ones.
const QUERIES: [f64; 15] =
    [0.0, 0.25, 0.5, 0.75, 1.0, 2.0, 4.0, 10.0, 30.0, 100.0, 300.0, 1e3, 1e4, 1e5, 1e6];
/// Round-trip times, ms.
const RTT_MS: [f64; 15] = [0.0, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0, 2.0, 4.0, 10.0, 30.0, 100.0, 300.0, 1e3, 1e4];

/// What the script of the page predicts from.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PageModel {
    queries: [f64; QUERIES.len()],
    rtt_ms: [f64; RTT_MS.len()],
    widest_plus_minus: f64,
    assumption: &'static str,
    /// In the order of notes.
    terms: Vec<Term>,
    servers: Vec<ServerModel>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Term {
    words: &'static str,
    is_calibrated: bool,
}

#[derive(Serialize)]
struct ServerModel {
    /// The command that measures missing terms.
    calibration: String,
    profiles: Vec<ProfileModel>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProfileModel {
    label: String,
    /// Concurrent clients: an axis of the tables of CPU time, in the logarithm of which values are linear.
    clients: Vec<u16>,
    /// By round-trip time.
    connect_ns: Vec<Entry>,
    query_ns: Vec<Entry>,
    /// By round-trip time and queries.
    session_ns: Vec<Vec<Entry>>,
    local_cpu: CpuModel,
    /// With any round-trip time.
    link_cpu: CpuModel,
}

/// By clients and queries.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CpuModel {
    us: BTreeMap<Role, Vec<Vec<Entry>>>,
    /// The time for which a session occupies one core of a saturated server, s.
    core_seconds: Vec<Vec<Entry>>,
}

/// A value with half of the width of its interval, if it has one.
struct Entry(Result<(f64, Option<f64>), MissingTerm>);

impl Entry {
    fn of(found: &Result<Estimate, MissingTerm>) -> Self {
        Self(found.map(|estimate| (estimate.value, estimate.ci_high.map(|high| high - estimate.value))))
    }

    /// From a rate. Its lower limit is always finite.
    fn inverse(rate: &Result<Estimate, MissingTerm>) -> Self {
        let value = |estimate: Estimate| estimate.value.recip();
        Self(rate.map(|rate| (value(rate), rate.ci_low.map(|low| low.recip() - value(rate)))))
    }
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Ok((value, half_width)) => (rounded(value), half_width.map(rounded)).serialize(serializer),
            Err(missing) => MissingTerm::ALL.iter().position(|term| *term == missing).serialize(serializer),
        }
    }
}

/// To five significant digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

impl PageModel {
    pub(crate) fn of(report: &CostReport<'_>) -> Self {
        let server = |server| {
            let label = report.labels(server);
            let profiles = report.model.profiles.iter().filter(|profile| profile.treatment.server == *server);
            let profile = |profile: &Profile| {
                Grid { model: report.model, profile }.profile_model(label(&profile.treatment))
            };
            ServerModel { calibration: calibration(server), profiles: profiles.map(profile).collect() }
        };
        let servers = report.servers();
        let is_calibrated = |term: MissingTerm| servers.iter().any(|server| term.is_calibrated(server));
        let term = |term: MissingTerm| Term { words: term.label(), is_calibrated: is_calibrated(term) };
        Self {
            queries: QUERIES,
            rtt_ms: RTT_MS,
            widest_plus_minus: WIDEST_PLUS_MINUS,
            assumption: predictions::ASSUMPTION,
            terms: MissingTerm::ALL.map(term).into(),
            servers: report.servers().into_iter().map(server).collect(),
        }
    }
}

/// The loads of one configuration.
#[derive(Clone, Copy)]
struct Grid<'a> {
    model: &'a CostModel,
    profile: &'a Profile,
}

impl Grid<'_> {
    fn predict(self, connects_per_s: f64, queries_per_connection: f64, rtt_ms: f64) -> Prediction {
        let load = Load {
            connects_per_s: Some(connects_per_s),
            queries: SessionQueries::of_mean(queries_per_connection),
            rtt_ns: rtt_ms * 1e6,
            ..Load::simple(Cores::Separate { server: 1.0, clients: None })
        };
        self.model.predict(self.profile, &load)
    }

    fn profile_model(self, label: String) -> ProfileModel {
        let by_rtt = |time: fn(&Prediction) -> &Result<Estimate, MissingTerm>| {
            RTT_MS.map(|rtt_ms| Entry::of(time(&self.predict(1.0, 1.0, rtt_ms)))).into()
        };
        let sessions =
            |rtt_ms| QUERIES.map(|queries| Entry::of(&self.predict(1.0, queries, rtt_ms).session_ns)).into();
        let clients = self.clients();
        ProfileModel {
            label,
            connect_ns: by_rtt(|prediction| &prediction.connect_ns),
            query_ns: by_rtt(|prediction| &prediction.query_ns),
            session_ns: RTT_MS.map(sessions).into(),
            local_cpu: self.cpu(&clients, 0.0),
            link_cpu: self.cpu(&clients, 1.0),
            clients,
        }
    }

    /// The measured numbers of clients.
    fn clients(self) -> Vec<u16> {
        let costs = self.profile.cpu.values().flat_map(|costs| [&costs.connect, &costs.further_query]);
        let measured: BTreeSet<u16> =
            costs.flat_map(|costs| costs.0.iter().map(|(clients, _)| *clients)).collect();
        // With any axis, all entries of a configuration without costs are missing.
        if measured.is_empty() { vec![1] } else { measured.into_iter().collect() }
    }

    fn cpu(self, clients: &[u16], rtt_ms: f64) -> CpuModel {
        let of_clients = |clients: &u16| {
            QUERIES.map(|queries| {
                let local_ns = self.predict(1.0, queries, 0.0).session_ns.map_or(1e9, |time| time.value);
                // This many sessions at a time, unless times are unknown: then the rate does not matter.
                self.predict(f64::from(*clients) * 1e9 / local_ns, queries, rtt_ms)
            })
        };
        let predicted: Vec<_> = clients.iter().map(of_clients).collect();
        let table = |entry: &dyn Fn(&Prediction) -> Entry| {
            predicted.iter().map(|of_clients| of_clients.iter().map(entry).collect()).collect()
        };
        let of_role = |role: Role| {
            table(&|prediction| {
                let found = prediction.cpu_us.iter().find(|(of, _)| *of == role);
                Entry::of(found.map_or(&Err(MissingTerm::Connect), |(_, cpu)| cpu))
            })
        };
        CpuModel {
            us: self.profile.cpu.keys().map(|role| (*role, of_role(*role))).collect(),
            core_seconds: table(&|prediction| {
                Entry::inverse(&prediction.throughput.map(|most| most.sessions_per_s))
            }),
        }
    }
}
