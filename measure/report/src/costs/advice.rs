//! The advised configuration for a load: its cost, its saving, when another one costs less, and its settings.

use std::fmt::Write as _;

use ciphertoll_model::{Metric, Path, ServerLevel, TlsVersion, Treatment};
use ciphertoll_stats::advice::{Advice, Choice, Excluded, Need, Rank, SettingsFile, settings};
use ciphertoll_stats::cost::{BreakEven, MissingTerm, Profile, Role, Side};
use ciphertoll_stats::{Estimate, Interval};
use serde::Serialize;

use super::predictions::{LoadDocument, PredictionDocument};
use super::{CostReport, calibration, entry, in_unit_of, load_in_words, plain_number};
use crate::lists::grouped;
use crate::number::{measured, significant};
use crate::view::{Column, ColumnKind, Table};
use crate::{Style, terminal};

/// The input of the report of an advice.
#[derive(Clone, Copy, Debug)]
pub struct AdviceReport<'a> {
    pub costs: CostReport<'a>,
    pub needs: &'a [Need],
    /// Price of a core per month, in the user's currency.
    pub core_price: Option<f64>,
    /// How the load was read from a server, if it was.
    pub load_source: Option<&'a str>,
    /// How most connections of that server are encrypted.
    pub current: Option<CurrentTransport>,
}

/// How most connections of a running server are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CurrentTransport {
    Plain,
    Tls(TlsVersion),
}

/// The advice for a terminal of `width` columns.
pub fn advice(report: &AdviceReport<'_>, style: Style, width: u16) -> String {
    let mut text = String::new();
    if let Some(source) = report.load_source {
        text += &paragraphs(&[source.to_owned()], width);
    }
    let needs = report.needs.iter().map(|need| need.label()).filter(|need| *need != Need::Verify.label());
    let needs: Vec<&str> =
        ["encryption between hosts", "a verified server"].into_iter().chain(needs).collect();
    let first = format!("What to do, from {}: {}", report.costs.run, load_in_words(report.costs.load));
    let second = format!("Needs: {}.", needs.join(", "));
    text += &paragraphs(&[first, second], width);
    for server in report.costs.servers() {
        let _ = writeln!(text, "\n{}", report.costs.server_name(server));
        text += &match ciphertoll_stats::advice::advise(
            report.costs.model,
            server,
            report.needs,
            report.costs.load,
        ) {
            Ok(advice) => of_server(report, server, &advice, (style, width)),
            Err(term) => {
                let missing =
                    format!("No advice: the run lacks {term}. To measure it: {}", calibration(server));
                paragraphs(&[missing], width)
            }
        };
    }
    text
}

fn paragraphs(all: &[String], width: u16) -> String {
    let lines = all.iter().flat_map(|text| terminal::wrap(text, usize::from(width)));
    lines.fold(String::new(), |text, line| text + &line + "\n")
}

fn of_server(
    report: &AdviceReport<'_>,
    server: &ServerLevel,
    advice: &Advice<'_>,
    (style, width): (Style, u16),
) -> String {
    let label = report.costs.labels(server);
    let mut text = match advice.choices.first() {
        None => paragraphs(&["No configuration of the run fulfils these needs.".to_owned()], width),
        Some(first) => {
            let sentences = sentences(report, advice, first, &label);
            paragraphs(&sentences, width)
                + "\n"
                + &terminal::table(&table(report, advice, &label), style, width)
        }
    };
    text += &paragraphs(&excluded(&advice.excluded, &label), width);
    let files = advice.choices.first().map(|first| settings(&first.profile.treatment)).unwrap_or_default();
    for SettingsFile { place, text: content } in &files {
        let _ = write!(text, "\n# ---- {place}\n{content}");
    }
    text
}

/// The first choice, its saving, and from when on another one costs less.
fn sentences(
    report: &AdviceReport<'_>,
    advice: &Advice<'_>,
    first: &Choice<'_>,
    label: &impl Fn(&Treatment) -> String,
) -> Vec<String> {
    let name = label(&first.profile.treatment);
    let mut sentences: Vec<String> = compared_with_now(report, first, label).into_iter().collect();
    sentences.push(format!("Use {name}: {} per session.", cpu(&first.cpu_us)));
    let rate = report.costs.load.connects_per_s;
    let in_cores = |microseconds: &Estimate| {
        rate.map_or(String::new(), |rate| {
            let price = report.core_price.map_or(String::new(), |price| {
                format!(", {} per month", significant(microseconds.value * rate * 1e-6 * price))
            });
            format!(" ({} cores{price})", significant(microseconds.value * rate * 1e-6))
        })
    };
    for choice in advice.choices.iter().skip(1) {
        let Some(saving) = &choice.saving_us else { continue };
        let other = label(&choice.profile.treatment);
        sentences.push(match choice.rank {
            Rank::AsCheap => format!("{other} is not known to cost more or less: {name} is simpler."),
            Rank::CostsMore => {
                let pays = choice.break_even.map_or(String::new(), |found| until(&found, &other));
                format!("It saves {}{} compared with {other}{pays}.", cpu(saving), in_cores(saving))
            }
        });
    }
    if let Some((plain, prediction)) = &advice.plain {
        let total =
            prediction.cpu_us.iter().find_map(|(role, found)| (*role == Role::Total).then(|| found.ok())?);
        if let Some(total) = total {
            let more = first.cpu_us.value / total.value;
            let name_of_plain = label(&plain.treatment);
            sentences.push(format!(
                "Compared with {name_of_plain} ({}): {} ×.",
                cpu(&total),
                significant(more)
            ));
        }
    }
    sentences
}

/// `Now: tls1.2-p256 costs 0.9 cores; proxy would save 0.8 of them.`
fn compared_with_now(
    report: &AdviceReport<'_>,
    first: &Choice<'_>,
    label: &impl Fn(&Treatment) -> String,
) -> Option<String> {
    let CostReport { model, load, .. } = report.costs;
    let (current, rate) = (report.current?, load.connects_per_s?);
    let is_current = |profile: &&Profile| {
        let Treatment { path, auth, driver, .. } = &profile.treatment;
        let is_path = match (current, path) {
            (CurrentTransport::Plain, Path::Plain) => true,
            (CurrentTransport::Tls(version), Path::Tls(tls)) => tls.version == version,
            _ => false,
        };
        is_path && (auth, driver) == (&first.profile.treatment.auth, &first.profile.treatment.driver)
    };
    let now = model.profiles.iter().find(is_current)?;
    let cpu = |profile| model.session_cpu(profile, Role::Total, load).ok();
    let cores = |sum| model.means.value(sum).value * rate * 1e-6;
    let (used, saved) = (cpu(now)?, cpu(now)? - &cpu(first.profile)?);
    let cost = format!("Now: {} costs {} cores", label(&now.treatment), significant(cores(&used)));
    if now.treatment == first.profile.treatment {
        return Some(format!("{cost}, and no other configuration is known to cost less."));
    }
    let name = label(&first.profile.treatment);
    Some(match cores(&saved) {
        saved if saved > 0.0 => format!("{cost}; {name} would save {} of them.", significant(saved)),
        saved => format!("{cost}; {name} would cost {} more.", significant(-saved)),
    })
}

fn cpu(estimate: &Estimate) -> String {
    format!("{} of CPU time", measured(Metric::CpuUsPerOpTotal, estimate))
}

/// Up to how many queries per connection the first choice costs less.
fn until(found: &BreakEven, other: &str) -> String {
    match found {
        BreakEven::Always(_) => ", at any number of queries per connection".to_owned(),
        BreakEven::At { interval: None, .. } => {
            ", for short-lived connections: no difference per query is known".to_owned()
        }
        BreakEven::At { queries, interval: Some(Interval { low, high }), below } => {
            let limits = format!(" ({}–{})", significant(*low), significant(*high));
            let (direction, there) = match below {
                Side::First => ("up to", "above"),
                Side::Second => ("from", "below"),
            };
            format!(
                ", {direction} {}{limits} queries per connection; {there} that, {other} costs less",
                significant(*queries)
            )
        }
        BreakEven::Unknown => String::new(),
    }
}

fn table(report: &AdviceReport<'_>, advice: &Advice<'_>, label: &impl Fn(&Treatment) -> String) -> Table {
    let rate = report.costs.load.connects_per_s;
    let mut headings = vec!["CPU per\nsession", "connect", "query"];
    headings.extend(rate.map(|_| "cores"));
    headings.extend(rate.and(report.core_price).map(|_| "per month"));
    let columns = headings.iter().map(|heading| Column::new(ColumnKind::Level, heading));
    let times = |estimate: &Estimate, factor: f64| Estimate {
        value: estimate.value * factor,
        ci_low: estimate.ci_low.map(|limit| limit * factor),
        ci_high: estimate.ci_high.map(|limit| limit * factor),
        ..*estimate
    };
    let row = |choice: &Choice<'_>| {
        let mut entries = vec![
            in_unit_of(Metric::CpuUsPerOpTotal, &choice.cpu_us),
            entry(Metric::LatencyNsMean, &choice.prediction.connect_ns),
            entry(Metric::LatencyNsMean, &choice.prediction.query_ns),
        ];
        if let Some(rate) = rate {
            let cores = times(&choice.cpu_us, rate * 1e-6);
            entries.push(plain_number(&cores));
            entries.extend(report.core_price.map(|price| plain_number(&times(&cores, price))));
        }
        (label(&choice.profile.treatment), entries)
    };
    let plain = advice.plain.iter().filter_map(|(profile, prediction)| {
        let cpu_us = prediction.cpu_us.iter().find(|(role, _)| *role == Role::Total)?.1.ok()?;
        let reference = Choice {
            profile,
            prediction: prediction.clone(),
            cpu_us,
            saving_us: None,
            break_even: None,
            rank: Rank::AsCheap,
        };
        let (name, entries) = row(&reference);
        Some((format!("({name}: not encrypted)"), entries))
    });
    let rows: Vec<_> = advice.choices.iter().map(row).chain(plain).collect();
    Table::new("configuration", columns, rows)
}

fn excluded(all: &[Excluded<'_>], label: &impl Fn(&Treatment) -> String) -> Vec<String> {
    let by_reason = grouped(all.iter().map(|excluded| (excluded.reason.clone(), label(excluded.treatment))));
    by_reason
        .into_iter()
        .map(|(reason, labels)| format!("Not considered: {} ({reason}).", labels.join(", ")))
        .collect()
}

#[derive(Serialize)]
struct AdviceDocument<'a> {
    schema_version: u32,
    run: &'a str,
    load: LoadDocument,
    needs: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    core_price_per_month: Option<f64>,
    servers: Vec<ServerDocument<'a>>,
}

#[derive(Serialize)]
struct ServerDocument<'a> {
    server: String,
    /// The first one is advised.
    choices: Vec<ChoiceDocument<'a>>,
    excluded: Vec<ExcludedDocument<'a>>,
    settings: Vec<FileDocument>,
    /// What the run lacks for an advice.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<&'static str>,
}

#[derive(Serialize)]
struct ChoiceDocument<'a> {
    #[serde(flatten)]
    prediction: PredictionDocument<'a>,
    cpu_us_per_session_total: Estimate,
    #[serde(skip_serializing_if = "Option::is_none")]
    cores_total: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    price_per_month: Option<f64>,
    /// What the first choice saves per session compared with this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    saving_us: Option<Estimate>,
    /// Queries per connection at which this one and the first choice cost the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    break_even_queries: Option<Estimate>,
}

#[derive(Serialize)]
struct ExcludedDocument<'a> {
    #[serde(flatten)]
    treatment: &'a Treatment,
    reason: &'a str,
}

#[derive(Serialize)]
struct FileDocument {
    place: String,
    text: String,
}

pub fn advice_json(report: &AdviceReport<'_>) -> Result<String, serde_json::Error> {
    let CostReport { run, model, load, .. } = report.costs;
    let of_server = |server| (server, ciphertoll_stats::advice::advise(model, server, report.needs, load));
    let advised: Vec<(&ServerLevel, Result<Advice<'_>, MissingTerm>)> =
        report.costs.servers().into_iter().map(of_server).collect();
    serde_json::to_string_pretty(&AdviceDocument {
        schema_version: ciphertoll_model::SCHEMA_VERSION,
        run,
        load: LoadDocument::of(load),
        needs: report.needs.iter().map(|need| need.label()).collect(),
        core_price_per_month: report.core_price,
        servers: advised
            .iter()
            .map(|(server, found)| match found {
                Ok(advice) => server_document(report, server, advice),
                Err(term) => ServerDocument::lacking(server, *term),
            })
            .collect(),
    })
}

impl ServerDocument<'_> {
    fn lacking(server: &ServerLevel, term: MissingTerm) -> Self {
        Self {
            server: server.short_name(),
            choices: Vec::new(),
            excluded: Vec::new(),
            settings: Vec::new(),
            missing: Some(term.label()),
        }
    }
}

fn server_document<'a>(
    report: &AdviceReport<'_>,
    server: &ServerLevel,
    advice: &'a Advice<'a>,
) -> ServerDocument<'a> {
    let rate = report.costs.load.connects_per_s;
    let choice = |choice: &'a Choice<'a>| {
        let cores_total = rate.map(|rate| choice.cpu_us.value * rate * 1e-6);
        ChoiceDocument {
            prediction: PredictionDocument::of(&choice.profile.treatment, &choice.prediction),
            cpu_us_per_session_total: choice.cpu_us,
            cores_total,
            price_per_month: cores_total.zip(report.core_price).map(|(cores, price)| cores * price),
            saving_us: choice.saving_us,
            break_even_queries: choice.break_even.and_then(|found| match found {
                BreakEven::At { queries, interval, .. } => Some(Estimate {
                    value: queries,
                    ci_low: interval.map(|interval| interval.low),
                    ci_high: interval.map(|interval| interval.high),
                    blocks: choice.cpu_us.blocks,
                }),
                BreakEven::Always(_) | BreakEven::Unknown => None,
            }),
        }
    };
    let excluded = |excluded: &'a Excluded<'a>| ExcludedDocument {
        treatment: excluded.treatment,
        reason: &excluded.reason,
    };
    let files = advice.choices.first().map(|first| settings(&first.profile.treatment)).unwrap_or_default();
    let file = |file: SettingsFile| FileDocument { place: file.place, text: file.text };
    ServerDocument {
        server: server.short_name(),
        choices: advice.choices.iter().map(choice).collect(),
        excluded: advice.excluded.iter().map(excluded).collect(),
        settings: files.into_iter().map(file).collect(),
        missing: None,
    }
}
