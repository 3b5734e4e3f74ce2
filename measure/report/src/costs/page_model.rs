//! The cost model as data for the script of the HTML page, which predicts as [`CostModel::predict`] does.

use std::collections::{BTreeMap, BTreeSet};

use ciphertoll_stats::CONFIDENCE;
use ciphertoll_stats::cost::{
    ByClients, LINK_CPU_ERROR, LINK_ERROR, MIN_BLOCKS, MODEL_ERROR, MissingTerm, NORMAL_95, Profile, Role,
    SessionCosts, Source, WeightedSum,
};
use serde::Serialize;

use super::{CostReport, calibration};
use crate::number::WIDEST_PLUS_MINUS;

/// What the script computes with. Without the costs of long results and of memory, for which it has no fields.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PageModel {
    confidence: f64,
    normal_95: f64,
    model_error: f64,
    link_error: f64,
    link_cpu_error: f64,
    min_blocks: u32,
    widest_plus_minus: f64,
    /// Names of terms with their words, in the order of notes.
    missing_terms: Vec<(MissingTerm, &'static str)>,
    calibrated_terms: Vec<MissingTerm>,
    /// Value, variance and blocks.
    means: Vec<(f64, f64, u32)>,
    servers: Vec<ServerModel>,
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
    cpu: BTreeMap<Role, Costs>,
    latency: Costs,
    round_trips: Option<RoundTrips>,
    utilisation: ciphertoll_stats::cost::Utilisation,
}

/// Each mean by its number, with its weight.
type Sum = Vec<(usize, f64)>;

#[derive(Serialize)]
struct Costs {
    connect: Vec<(u16, Sum)>,
    first: Option<Sum>,
    further: Vec<(u16, Sum)>,
}

#[derive(Serialize)]
struct RoundTrips {
    connect: Sum,
    query: Sum,
    error: f64,
}

impl PageModel {
    pub(crate) fn of(report: &CostReport<'_>) -> Self {
        let sources: BTreeSet<Source> = report.model.profiles.iter().flat_map(sources).collect();
        // A sum in floating point depends on the order: the script adds in that of the sources.
        let sources: Vec<Source> = sources.into_iter().collect();
        let mean = |source: &Source| {
            let mean = report.model.means.get(*source)?;
            Some((mean.value, mean.variance, mean.blocks))
        };
        let server = |server| {
            let label = report.labels(server);
            let profiles = report.model.profiles.iter().filter(|profile| profile.treatment.server == *server);
            let profile = |profile| ProfileModel::of(profile, label(&profile.treatment), &sources);
            ServerModel { calibration: calibration(server), profiles: profiles.map(profile).collect() }
        };
        Self {
            confidence: CONFIDENCE,
            normal_95: NORMAL_95,
            model_error: MODEL_ERROR,
            link_error: LINK_ERROR,
            link_cpu_error: LINK_CPU_ERROR,
            min_blocks: MIN_BLOCKS,
            widest_plus_minus: WIDEST_PLUS_MINUS,
            missing_terms: MissingTerm::ALL.map(|term| (term, term.label())).into(),
            calibrated_terms: MissingTerm::ALL.into_iter().filter(|term| term.is_calibrated()).collect(),
            means: sources.iter().filter_map(mean).collect(),
            servers: report.servers().into_iter().map(server).collect(),
        }
    }
}

/// The means that the costs of a configuration are made of.
fn sources(profile: &Profile) -> Vec<Source> {
    let costs = profile.cpu.values().chain([&profile.latency]);
    let of_costs = costs.flat_map(|costs| {
        let by_clients = costs.connect.0.iter().chain(&costs.further_query.0).map(|(_, sum)| sum);
        by_clients.chain(&costs.first_query)
    });
    let trips = profile.round_trips.iter().flat_map(|trips| [&trips.connect, &trips.query]);
    of_costs.chain(trips).flat_map(WeightedSum::weights).map(|(source, _)| source).collect()
}

impl ProfileModel {
    fn of(profile: &Profile, label: String, sources: &[Source]) -> Self {
        let sum = |sum: &WeightedSum| -> Sum {
            let numbered = |(source, weight)| Some((sources.binary_search(&source).ok()?, weight));
            sum.weights().filter_map(numbered).collect()
        };
        let by_clients =
            |costs: &ByClients| costs.0.iter().map(|(clients, cost)| (*clients, sum(cost))).collect();
        let costs = |costs: &SessionCosts| Costs {
            connect: by_clients(&costs.connect),
            first: costs.first_query.as_ref().map(sum),
            further: by_clients(&costs.further_query),
        };
        Self {
            label,
            cpu: profile.cpu.iter().map(|(role, of_role)| (*role, costs(of_role))).collect(),
            latency: costs(&profile.latency),
            round_trips: profile.round_trips.as_ref().map(|trips| RoundTrips {
                connect: sum(&trips.connect),
                query: sum(&trips.query),
                error: trips.error,
            }),
            utilisation: profile.utilisation,
        }
    }
}
