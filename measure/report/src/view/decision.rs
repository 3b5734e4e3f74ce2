//! What to do after a run: the encrypted configuration with the lowest cost, from how many queries per connection on another
//! one costs less, and what it saves.

use ciphertoll_model::plan::MIN_BLOCKS_FOR_VERDICTS;
use ciphertoll_model::{
    Baseline, Factor, LinkShape, Metric, Plan, ServerLevel, ServerUrl, Treatment, Verification,
};
use ciphertoll_stats::advice::{Advice, Choice, Question, Rank, Saving, Worth, advise};
use ciphertoll_stats::cost::{
    BreakEven, Cores, CostModel, Load, Profile, Role, SessionQueries, Side, WeightedSum,
};
use ciphertoll_stats::{Estimate, Interval};

use super::advice;
use super::repeat::quoted;
use crate::costs::{cell, short};
use crate::lists::distinct;
use crate::number::{is_certain, measured, significant};
use crate::{RunReport, names, subject};

/// Queries of a short-lived and of a long-lived connection.
const FEW_QUERIES: f64 = 1.0;
const MANY_QUERIES: f64 = 10_000.0;

/// What to do about one server.
#[derive(Debug)]
pub(crate) struct Decision {
    /// Its name, if the run has several.
    pub(crate) server: Option<String>,
    /// `Use ciphertoll-proxy for connections with up to 61 (55–70) queries, and TLS 1.3 with a P-256 certificate for longer ones.`
    pub(crate) choice: String,
    /// What that saves, one sentence each.
    pub(crate) savings: Vec<String>,
}

/// One for each server whose encrypted configurations the run can compare; none if paths are not what the run compares, or
/// before there are verdicts.
pub(crate) fn decisions(report: &RunReport<'_>) -> Vec<Decision> {
    let has_verdicts = report.analysis.blocks_completed >= MIN_BLOCKS_FOR_VERDICTS;
    if !has_verdicts || !matches!(report.plan.baseline, Baseline::Path(_)) {
        return Vec::new();
    }
    let model = CostModel::fit(report.plan, &report.facts);
    let servers = report.plan.servers();
    let several = servers.len() > 1;
    let decision = |server: &&ServerLevel| {
        let name = several.then(|| names::server(report, server));
        let decided =
            Comparer { plan: report.plan, model: &model, server, core_price: report.core_price }.decide();
        Some(Decision { server: name, ..decided.or_else(|| nothing_to_switch_on(report, server))? })
    };
    servers.iter().filter_map(decision).collect()
}

/// What measures a path that can be advised, if the run measured TLS paths and none of them can.
fn nothing_to_switch_on(report: &RunReport<'_>, server: &ServerLevel) -> Option<Decision> {
    let cells = report.analysis.cells().into_iter().filter(|cell| cell.blocks_used > 0);
    let cells = cells.filter(|cell| cell.cell.treatment.server == *server);
    let with_tls = cells.filter(|cell| cell.cell.treatment.path.server_tls().is_some());
    let reasons: Option<Vec<&str>> = with_tls.map(advice::never_advised).collect();
    let reasons = distinct(reasons?);
    (!reasons.is_empty()).then(|| Decision {
        server: None,
        choice: format!(
            "Switch on none of the measured TLS paths ({}). {}",
            reasons.join("; "),
            measure_modern(server)
        ),
        savings: Vec::new(),
    })
}

/// What measures today's TLS on `server`.
fn measure_modern(server: &ServerLevel) -> String {
    let is_verified = |url: &ServerUrl| url.tls.verification() == Verification::Full;
    let command = match &server.url {
        Some(url) if !is_verified(url) => {
            return "Measure it with a URL that verifies the server's certificate and name: docs/measure/url.md".to_owned();
        }
        Some(_) => format!("ciphertoll run --url {} --path tls1.3", quoted(&server.to_string())),
        None => format!("ciphertoll run --server {} --path plain,tls1.3-p256", quoted(&server.to_string())),
    };
    format!("To measure a modern one: {command}")
}

struct Comparer<'a> {
    plan: &'a Plan,
    model: &'a CostModel,
    server: &'a ServerLevel,
    core_price: Option<f64>,
}

impl<'a> Comparer<'a> {
    fn decide(&self) -> Option<Decision> {
        let cores = Cores::Shared(f64::from(self.model.cpus.unwrap_or(1)));
        let advice = |queries| {
            let load = Load { queries: SessionQueries::of_mean(queries), ..Load::simple(cores) };
            advise(self.model, self.server, &Question::about(&load)).ok().map(|advice| (advice, load))
        };
        let (short, load) = advice(FEW_QUERIES)?;
        let (long, _) = advice(MANY_QUERIES)?;
        let (first, lasting) = (short.choices.first()?.profile, long.choices.first()?.profile);
        let choice = if first == lasting {
            format!("Use {}{}.", name(first), tied(&short))
        } else {
            self.by_length((first, lasting), &long, &load)?
        };
        let alternative = if first == lasting { Self::alternative(&short) } else { Some(lasting) };
        let against = alternative.filter(|other| *other != first).into_iter();
        let plain = short.plain.as_ref().map(|(profile, _)| *profile);
        let threshold = alternative.filter(|other| *other != first);
        let threshold = threshold.and_then(|other| self.threshold(first, other, &load));
        let savings = against.chain(plain).filter_map(|other| self.saving(first, other, &load));
        let savings = savings.chain(threshold).collect();
        Some(Decision { server: None, choice, savings })
    }

    /// One configuration for short-lived and another one for long-lived connections.
    fn by_length(
        &self,
        (first, lasting): (&Profile, &Profile),
        long: &Advice<'_>,
        load: &Load,
    ) -> Option<String> {
        let found = self.model.break_even(first, lasting, load).ok()?;
        let is_tied = |choice: &Choice<'_>| choice.profile == first && choice.rank != Rank::CostsMore;
        let why = if long.choices.iter().any(is_tied) {
            ", which is simpler and not known to cost more,"
        } else {
            ""
        };
        let [first, lasting] = [first, lasting].map(name);
        Some(if let BreakEven::At { queries, interval: Some(interval), below: Side::First } = found {
            let limit = break_even(queries, interval);
            format!(
                "Use {first} for connections with up to {limit} queries, and {lasting} for longer-lived ones."
            )
        } else {
            format!("Use {first} for short-lived connections, and {lasting}{why} for long-lived ones.")
        })
    }

    /// The direct TLS connection that the choice is compared with.
    fn alternative(advice: &Advice<'a>) -> Option<&'a Profile> {
        let is_tls = |profile: &&Profile| profile.treatment.path.as_tls().is_some();
        advice.choices.iter().map(|choice| choice.profile).find(is_tls)
    }

    /// What `first` saves or costs per connect and per query, compared with `other`; nothing without intervals.
    fn saving(&self, first: &Profile, other: &Profile, load: &Load) -> Option<String> {
        let saved = |queries: f64| {
            let load = Load { queries: SessionQueries::of_mean(queries), ..*load };
            let cpu = |profile| self.model.session_cpu(profile, Role::Total, &load).ok();
            Some(cpu(other)? - &cpu(first)?)
        };
        let value = |sum: Option<WeightedSum>| {
            Some(self.model.means.value(&sum?).estimate()).filter(|found| found.interval().is_some())
        };
        let (connect, query) = (saved(0.0), saved(2.0).zip(saved(1.0)).map(|(two, one)| two - &one));
        let local = Saving::between(self.model, first, other, load);
        let connect_us = value(connect);
        let of_connect = change([connect_us, local.connect_ns], "connect");
        let parts: Vec<String> = of_connect
            .map(|words| words + &cores(connect_us, self.core_price).unwrap_or_default())
            .into_iter()
            .chain(change([value(query), local.query_ns], "query"))
            .chain(self.over_link(first, other, load))
            .collect();
        (!parts.is_empty()).then(|| format!("Compared with {}: {}.", name(other), parts.join(", ")))
    }

    /// The latency of a connect over the longest link of the run.
    fn over_link(&self, first: &Profile, other: &Profile, load: &Load) -> Option<String> {
        let shapes = self.plan.cells.iter().filter_map(|cell| cell.treatment.link.shape());
        let longest = shapes.filter(|shape| shape.is_pure_delay()).map(LinkShape::rtt_ns).max()?;
        let load = Load { rtt_ns: longest as f64, ..*load };
        let saved = Saving::between(self.model, first, other, &load).connect_ns?;
        let words = difference(&saved, Metric::LatencyNsMean, "latency")?;
        Some(format!("{words} per connect at {} ms", short(load.rtt_ns * 1e-6)))
    }

    /// Below which rate the choice is not worth a change, if it saves too little time to be worth one in any case.
    fn threshold(&self, first: &Profile, other: &Profile, load: &Load) -> Option<String> {
        let Saving { cpu_us, connect_ns, .. } = Saving::between(self.model, first, other, load);
        least_rate(cpu_us?, connect_ns?, &name(other))
    }
}

/// Below which rate what is saved per session and per connect is not worth a change; nothing if the time alone is.
fn least_rate(cpu_us: Estimate, connect_ns: Estimate, other: &str) -> Option<String> {
    let Worth { cores, time_ns } = Worth::default();
    let is_saved = cpu_us.is_known_to_differ() && cpu_us.value > 0.0;
    (is_saved && connect_ns.value < time_ns).then(|| {
        let rate = significant(cores * 1e6 / cpu_us.value);
        format!(
            "Below {rate} connects/s, leave it as it is if you use {other}: it saves less than {} cores, and less than {} ms \
             per connect.",
            short(cores),
            short(time_ns * 1e-6)
        )
    })
}

/// `1.31 ms ±2 % less CPU time and 1.02 ms ±3 % less latency per connect`; nothing without intervals.
fn change([cpu, time]: [Option<Estimate>; 2], what: &str) -> Option<String> {
    let words = [(cpu, Metric::CpuUsPerOpTotal, "CPU time"), (time, Metric::LatencyNsMean, "latency")];
    let known: Vec<String> =
        words.into_iter().filter_map(|(saved, metric, noun)| difference(&saved?, metric, noun)).collect();
    if known.is_empty() {
        return [cpu, time]
            .into_iter()
            .flatten()
            .next()
            .map(|_| format!("no measurable difference per {what}"));
    }
    Some(format!("{} per {what}", known.join(" and ")))
}

/// ` (1.3 cores, 39.0 per month, at 1,000 connects/s)`: the CPU time in the units of a bill; nothing if the difference can
/// be noise.
fn cores(cpu_us: Option<Estimate>, price: Option<f64>) -> Option<String> {
    let saved = cpu_us.filter(|saved| saved.is_known_to_differ() && is_certain(saved))?;
    let cores = saved.value.abs() * 1e-3;
    let money = price.map(|price| format!(", {} per month,", significant(cores * price)));
    Some(format!(" ({} cores{} at 1,000 connects/s)", significant(cores), money.unwrap_or_default()))
}

/// `1.31 ms ±2 % less CPU time`; nothing if the difference can be noise.
fn difference(saved: &Estimate, metric: Metric, noun: &str) -> Option<String> {
    let size = measured(metric, &saved.abs());
    let direction = if saved.value > 0.0 { "less" } else { "more" };
    (saved.is_known_to_differ() && is_certain(saved)).then(|| format!("{size} {direction} {noun}"))
}

/// Which others cost no more.
fn tied(advice: &Advice<'_>) -> String {
    let others = advice.choices.iter().skip(1).filter(|choice| choice.rank != Rank::CostsMore);
    let names: Vec<String> = others.map(|choice| name(choice.profile)).collect();
    if names.is_empty() { String::new() } else { format!("; {} costs no less", names.join(" or ")) }
}

/// `61 (55–70)`.
fn break_even(queries: f64, Interval { low, high }: Interval) -> String {
    let rounded = |queries: f64| if queries < 9.5 { significant(queries) } else { format!("{queries:.0}") };
    format!("{} ({}–{})", rounded(queries), rounded(low), rounded(high))
}

fn name(profile: &Profile) -> String {
    let Treatment { path, .. } = &profile.treatment;
    match path {
        ciphertoll_model::Path::Plain => "plain TCP".to_owned(),
        _ => subject::choice(&cell(&profile.treatment), &[Factor::Path]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_a_rate_it_is_not_worth_a_change_unless_the_time_is() {
        let about = |value: f64| Estimate::new(value, Interval { low: value * 0.9, high: value * 1.1 }, 10);
        let said = least_rate(about(500.0), about(3e5), "TLS 1.3").unwrap();
        assert!(said.starts_with(
            "Below 200 connects/s, leave it as it is if you use TLS 1.3: it saves less than 0.1 cores"
        ));
        assert_eq!(least_rate(about(500.0), about(2e6), "TLS 1.3"), None, "2 ms per connect are");
        assert_eq!(least_rate(about(-500.0), about(3e5), "TLS 1.3"), None, "it saves nothing");
    }
}
