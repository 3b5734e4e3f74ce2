//! What loads cost that were not measured: predictions, the terms behind them, and advice.

mod advice;
mod advice_report;
mod advice_words;
mod page_model;
mod predictions;
mod terms;
mod today;

use ciphertoll_model::{Auth, Cell, Clients, Factor, Metric, Pace, Scale, ServerLevel, Treatment, Workload};
use ciphertoll_stats::cost::{Cores, CostModel, Load, MissingTerm};
use ciphertoll_stats::{Estimate, RunFacts};

use crate::names;
use crate::number::{plural, quantity, significant, uncertainty, uncertainty_in};
use crate::view::TableEntry;
use crate::view::repeat::quoted;

pub(crate) use page_model::PageModel;
pub(crate) use predictions::{ServerPredictions, by_server};

pub use advice::{advice, advice_json};
pub use advice_report::AdviceReport;
pub use predictions::{predictions, predictions_json};
pub use terms::{terms, terms_json};

/// The input of reports from the cost model of a run.
#[derive(Clone, Copy, Debug)]
pub struct CostReport<'a> {
    /// Name of the run's directory.
    pub run: &'a str,
    pub facts: &'a RunFacts<'a>,
    pub model: &'a CostModel,
    pub load: &'a Load,
}

impl<'a> CostReport<'a> {
    /// The servers of the run, in order.
    fn servers(&self) -> Vec<&'a ServerLevel> {
        let mut servers: Vec<&ServerLevel> = Vec::new();
        for profile in &self.model.profiles {
            if !servers.contains(&&profile.treatment.server) {
                servers.push(&profile.treatment.server);
            }
        }
        servers
    }

    fn server_name(&self, server: &ServerLevel) -> String {
        names::server_of(self.facts, server)
    }

    /// Configurations by the factors that vary among those of their server. The default authentication is not named.
    fn labels(&self, server: &ServerLevel) -> impl Fn(&Treatment) -> String + use<> {
        let all = self.model.profiles.iter().filter(|profile| profile.treatment.server == *server);
        let cells: Vec<Cell> = all.map(|profile| cell(&profile.treatment)).collect();
        let cells: Vec<&Cell> = cells.iter().collect();
        let varying: Vec<Factor> = names::varying(&cells, Factor::Path);
        move |treatment| {
            let usual = treatment.auth == Auth::default_of(treatment.server.engine);
            let named = |factor: &&Factor| !(**factor == Factor::Auth && usual);
            let cell = cell(treatment);
            let named: Vec<Factor> = varying.iter().filter(named).copied().collect();
            names::row_label(&cell, &named)
        }
    }
}

/// A cell of the configuration, whose load does not matter.
pub(crate) fn cell(treatment: &Treatment) -> Cell {
    Cell {
        treatment: treatment.clone(),
        workload: Workload::Connect,
        clients: Clients::ONE,
        scale: Scale::DEFAULT,
        relative: None,
        pace: Pace::Closed,
    }
}

/// `500 connects/s, 3 queries each, 45 ms round trip, 200 clients, results of 1000 bytes, 8 cores for the server`.
pub(crate) fn load_in_words(load: &Load) -> String {
    let queries = match load.queries.mean() {
        0.0 => "no query each".to_owned(),
        1.0 => "1 query each".to_owned(),
        several => format!("{} queries each", short(several)),
    };
    let rate = match load.connects_per_s {
        Some(rate) => format!("{} connects/s", short(rate)),
        None => "as many connects as possible".to_owned(),
    };
    let cores = match load.cores {
        Cores::Shared(cores) => format!("{} cores for clients and server", short(cores)),
        Cores::Separate { server, clients: None } => format!("{} cores for the server", short(server)),
        Cores::Separate { server, clients: Some(clients) } => {
            format!("{} cores for the server, {} for clients", short(server), short(clients))
        }
    };
    let link = match load.rtt_ns {
        0.0 => "local connections".to_owned(),
        rtt_ns => format!("{} round trip", quantity(Metric::LatencyNsMean, rtt_ns)),
    };
    let clients = load.clients.map(|clients| plural(u64::from(clients.get()), "client"));
    let rows = (load.row_bytes > 0).then(|| format!("results of {} bytes", load.row_bytes));
    let parts = [Some(rate), Some(queries), Some(link), clients, rows, Some(cores)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// A number that a user typed or a server counted: three significant digits, without trailing zeros.
pub(crate) fn short(value: f64) -> String {
    if value.fract() == 0.0 {
        return format!("{value:.0}");
    }
    significant(value).trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A value over its interval, in the unit of a metric.
fn in_unit_of(metric: Metric, estimate: &Estimate) -> TableEntry {
    TableEntry::new([quantity(metric, estimate.value), uncertainty(metric, estimate)])
}

fn plain_number(estimate: &Estimate) -> TableEntry {
    TableEntry::new([significant(estimate.value), uncertainty_in(1.0, estimate)])
}

fn entry(metric: Metric, found: &Result<Estimate, MissingTerm>) -> TableEntry {
    found.as_ref().map_or_else(|_| TableEntry::absent(), |estimate| in_unit_of(metric, estimate))
}

/// What measures missing terms.
pub(crate) fn calibration(server: &ServerLevel) -> String {
    match &server.url {
        Some(url) => {
            let host = url.host().map(|host| format!(" --server-host ssh:{host}")).unwrap_or_default();
            format!("ciphertoll run calibrate --url {}{host}", quoted(&server.to_string()))
        }
        None => format!("ciphertoll run calibrate --server {server}"),
    }
}

/// How to measure what a run of this server lacks, or to do without it.
pub(crate) fn remedy(missing: MissingTerm, server: &ServerLevel) -> Option<String> {
    if missing.is_calibrated(server) {
        Some(format!("To measure what is missing: {}", calibration(server)))
    } else if missing == MissingTerm::RoundTrips {
        Some("A server at a URL is measured over its own link: leave out --rtt.".to_owned())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_measured_at_a_url_is_not_asked_for() {
        let remedy = |missing, server: &str| remedy(missing, &server.parse().unwrap()).unwrap_or_default();
        let url = "st=postgres://a@db.example/x";
        assert!(remedy(MissingTerm::RoundTrips, "postgres").ends_with("calibrate --server postgres"));
        assert!(remedy(MissingTerm::RoundTrips, url).ends_with("leave out --rtt."));
        assert!(remedy(MissingTerm::ServerCpu, url).ends_with("--server-host ssh:db.example"));
        assert_eq!(remedy(MissingTerm::Precision, "postgres"), "");
    }

    #[test]
    fn a_printed_calibration_can_be_pasted() {
        let command = |server: &str| calibration(&server.parse().unwrap());
        assert_eq!(command("mariadb"), "ciphertoll run calibrate --server mariadb");
        assert_eq!(
            command("st=postgres://a@db.example/x?sslmode=verify-ca&sslrootcert=/ca.pem"),
            "ciphertoll run calibrate --url \
             'st=postgres://a@db.example/x?sslmode=verify-ca&sslrootcert=/ca.pem' --server-host ssh:db.example"
        );
    }
}
