//! What the connections that `observe` saw cost, and what a configuration saves of it.

use ciphertoll_model::{Metric, ServerLevel, Treatment};
use ciphertoll_stats::Estimate;
use ciphertoll_stats::advice::Today;
use ciphertoll_stats::cost::Profile;
use serde::Serialize;

use super::advice_report::AdviceReport;
use crate::lists::listed;
use crate::number::{is_certain, measured, percent, significant, uncertainty_in};

/// A smaller share of connections is not worth a word.
const MIN_SHARE: f64 = 0.005;

/// Today's connections beside a configuration.
pub(super) struct Comparison<'a> {
    today: Today<'a>,
    /// `None` without a rate, or if the run lacks a term.
    cores: Option<Estimate>,
    saved_cores: Option<Estimate>,
    saved_connect_ns: Option<Estimate>,
    is_today: bool,
}

#[derive(Serialize)]
pub(super) struct TodayDocument {
    paths: Vec<PathDocument>,
    /// The share of connections for which the run has no configuration.
    unknown_share: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cores: Option<Estimate>,
    /// By the first choice; below 0 it costs more.
    #[serde(skip_serializing_if = "Option::is_none")]
    saved_cores: Option<Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    saved_connect_ns: Option<Estimate>,
}

#[derive(Serialize)]
struct PathDocument {
    path: String,
    share: f64,
}

impl<'a> Comparison<'a> {
    /// `None` without an observation, and if the run has no configuration for what was observed.
    pub(super) fn of(report: &AdviceReport<'a>, server: &ServerLevel, with: &Profile) -> Option<Self> {
        let (model, load) = (report.costs.model, report.costs.load);
        let today = Today::of(model, server, report.observed)?;
        let known = |found: Option<Result<Estimate, _>>| found.and_then(Result::ok);
        Some(Self {
            cores: known(today.cores(model, load)),
            saved_cores: known(today.cores_saved_by(with, model, load)),
            saved_connect_ns: today.connect_saved_by(with, model, load).ok(),
            is_today: matches!(today.parts(), [(only, _)] if only.treatment == with.treatment),
            today,
        })
    }

    /// `Now, as tls1.3-p256 (97 %) and plain (3 %): 0.9 cores ±12 %. proxy would save 0.8 cores ±15 % and 11 ms ±7 % per
    /// connect.`
    pub(super) fn sentence(&self, name: &str, label: &impl Fn(&Treatment) -> String) -> Option<String> {
        let parts = self.today.parts().iter().filter(|(_, share)| *share >= MIN_SHARE);
        let parts: Vec<_> = parts
            .map(|(profile, share)| format!("{} ({})", label(&profile.treatment), percent(*share)))
            .collect();
        let unknown = match self.today.unknown_share() {
            MIN_SHARE.. => format!(
                ", and {} of connections like these because the run has no such configuration",
                percent(self.today.unknown_share())
            ),
            _ => String::new(),
        };
        let cost = format!("Now, as {}{unknown}: {}.", listed(&parts), in_cores(self.cores.as_ref()?));
        if self.is_today {
            return Some(cost);
        }
        let cores = self.saved_cores.map(|saved| (saved, in_cores(&saved.abs())));
        let connect = self
            .saved_connect_ns
            .map(|saved| (saved, format!("{} per connect", measured(Metric::LatencyNsMean, &saved.abs()))));
        let known = [cores, connect].into_iter().flatten();
        let known = known.filter(|(saved, _)| saved.is_known_to_differ() && is_certain(saved));
        let (saved, lost): (Vec<_>, Vec<_>) = known.partition(|(saved, _)| saved.value > 0.0);
        let words = |parts: Vec<(Estimate, String)>| {
            listed(&parts.into_iter().map(|(_, words)| words).collect::<Vec<_>>())
        };
        Some(match (saved.is_empty(), lost.is_empty()) {
            (true, true) => format!("{cost} {name} is not known to cost more or less."),
            (false, true) => format!("{cost} {name} would save {}.", words(saved)),
            (true, false) => format!("{cost} {name} would cost {} more.", words(lost)),
            (false, false) => {
                format!("{cost} {name} would save {}, and cost {} more.", words(saved), words(lost))
            }
        })
    }

    pub(super) fn document(&self) -> TodayDocument {
        let path = |(profile, share): &(&Profile, f64)| PathDocument {
            path: profile.treatment.path.to_string(),
            share: *share,
        };
        TodayDocument {
            paths: self.today.parts().iter().map(path).collect(),
            unknown_share: self.today.unknown_share(),
            cores: self.cores,
            saved_cores: self.saved_cores,
            saved_connect_ns: self.saved_connect_ns,
        }
    }
}

/// `0.8 cores ±15 %`, or `0.8 cores (0.5–1.2)`.
fn in_cores(estimate: &Estimate) -> String {
    let value = significant(estimate.value);
    match uncertainty_in(1.0, estimate) {
        none if none.is_empty() || estimate.interval().is_none() => format!("{value} cores"),
        relative if relative.starts_with('±') => format!("{value} cores {relative}"),
        limits => format!("{value} cores ({limits})"),
    }
}
