//! Predictions of the cost model compared with measurements: situations that the fitted run did not contain are predicted,
//! then measured.

use std::fs;
use std::num::NonZeroU32;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
use ciphertoll_model::duration::Span;
use ciphertoll_model::{
    Arm, Baseline, Bytes, Cell, Clients, Engine, Grid, Link, LinkShape, Metric, Queries, ServerLevel, Size,
    Spec, Workload,
};
use ciphertoll_record::Record;
use ciphertoll_stats::advice::{Optimize, Question, Worth, advise};
use ciphertoll_stats::assemble::Visited;
use ciphertoll_stats::cost::{
    BreakEven, Cores, CostModel, Load, MeasuredMean, Prediction, Profile, Role, SessionQueries,
};
use ciphertoll_stats::{Estimate, Interval, RunFacts};

use crate::ciphertoll_program;

/// A prediction and the measurement that it was for.
pub struct Compared {
    pub server: String,
    pub path: String,
    /// Workload, clients and link.
    pub situation: String,
    pub quantity: &'static str,
    pub predicted: Estimate,
    pub measured: f64,
}

impl Compared {
    /// The measured value ÷ the predicted one, minus 1.
    pub fn error(&self) -> f64 {
        self.measured / self.predicted.value - 1.0
    }

    pub fn is_inside(&self) -> bool {
        (self.predicted.low()..=self.predicted.high()).contains(&self.measured)
    }
}

/// Calibrates `server` and measures the situations into records in `directory`, unless they are there, and compares.
pub fn compare_server(server: &ServerLevel, directory: &Path) -> Result<Vec<Compared>> {
    let calibration = calibration(server, directory)?;
    let situations =
        measured(&situations(server, &format!("situations-{}", server.short_name())), directory)?;
    let facts = RunFacts::of(&calibration.plan, &calibration.events);
    let model = CostModel::fit(&calibration.plan, &facts);
    compare(&model, &situations)
}

/// The CPU time of the advised configuration for short connections ÷ that for long ones, measured around their break-even.
pub struct BreakEvenCheck {
    pub server: String,
    /// The advised paths for connections with few and with many queries.
    pub paths: [String; 2],
    pub queries: f64,
    pub interval: Interval,
    /// Queries per connection, what `advise` chooses there, and the measured ratio of CPU times: below 1, the first path costs less.
    pub measured: Vec<(u16, String, Estimate)>,
}

/// Measures both configurations at half, at and at twice their break-even.
pub fn check_break_even(server: &ServerLevel, directory: &Path) -> Result<Option<BreakEvenCheck>> {
    let calibration = calibration(server, directory)?;
    let facts = RunFacts::of(&calibration.plan, &calibration.events);
    let model = CostModel::fit(&calibration.plan, &facts);
    let cpus = f64::from(model.cpus.context("the record has no environment")?);
    let load =
        |queries| Load { queries: SessionQueries::of_mean(queries), ..Load::simple(Cores::Shared(cpus)) };
    let first = |queries: f64| -> Result<&Profile> {
        let load = load(queries);
        // However little it saves.
        let worth = Worth { cores: 0.0, time_ns: 0.0 };
        let question = Question { optimize: Optimize::Cpu, worth, ..Question::about(&load) };
        let advice = advise(&model, server, &question).map_err(|term| anyhow!("lacks {term}"))?;
        Ok(advice.choices.first().context("there is no choice")?.profile)
    };
    let (short, long) = (first(1.0)?, first(100_000.0)?);
    let found = model.break_even(short, long, &load(1.0)).map_err(|term| anyhow!("lacks {term}"))?;
    // Without an interval there is no difference per query to measure.
    let BreakEven::At { queries, interval: Some(interval), .. } = found else { return Ok(None) };
    let counts = [queries / 2.0, queries, queries * 2.0]
        .map(|count| count.round().clamp(1.0, f64::from(Queries::MAX)) as u16);
    let paths = [short.treatment.path, long.treatment.path];
    let grid = |count: &u16| Grid {
        server: vec![server.clone()],
        path: paths.to_vec(),
        workload: Queries::new(*count)
            .map(|queries| Workload::ConnectQuery { queries })
            .into_iter()
            .collect(),
        clients: Clients::new(8).into_iter().collect(),
        ..Grid::default()
    };
    let spec = Spec {
        name: format!("break-even-{}", server.short_name()),
        size: Size::Small,
        blocks: Some(10),
        trial_time: Some(Span::from_millis(1_000)),
        baseline: Some(Baseline::Path(paths[1])),
        grids: counts.iter().map(grid).collect(),
        ..Spec::quick(&[])
    };
    let record = measured(&spec, directory)?;
    let analysis = ciphertoll_stats::analyse(&record.plan, &record.events);
    let ratio = |count: &u16| {
        let is_it = |cell: &Cell| matches!(cell.workload, Workload::ConnectQuery { queries } if queries.count() == *count);
        let all = &analysis.comparisons;
        let comparison = all.iter().find(|found| found.arm == Arm::Main && is_it(&found.cell.cell))?;
        let chosen = first(f64::from(*count)).ok()?.treatment.path.to_string();
        Some((*count, chosen, comparison.ratios.get(&Metric::CpuUsPerOpTotal)?.ratio))
    };
    Ok(Some(BreakEvenCheck {
        server: server.short_name(),
        paths: paths.map(|path| path.to_string()),
        queries,
        interval,
        measured: counts.iter().filter_map(ratio).collect(),
    }))
}

fn calibration(server: &ServerLevel, directory: &Path) -> Result<Record> {
    let preset = ciphertoll_model::presets::find("calibrate").context("there is no preset calibrate")?;
    let spec = preset.spec(std::slice::from_ref(server), Size::Standard);
    let name = format!("calibration-{}", server.short_name());
    measured(&Spec { name, max_rate: max_rate(server), ..spec }, directory)
}

/// The situations: none of them is a cell of the calibration.
fn situations(server: &ServerLevel, name: &str) -> Spec {
    let resumed: &[&str] = match server.engine {
        Engine::MariaDb | Engine::MySql => &["tls1.3-p256+resume"],
        _ => &[],
    };
    let all = [&["plain", "tls1.2-p256", "tls1.3-p256", "ssh-aes256-gcm", "proxy"], resumed].concat();
    let few = ["plain", "tls1.3-p256", "proxy"];
    let grid = |paths: &[&str], workload: Workload, clients: u16, link: Link| Grid {
        server: vec![server.clone()],
        path: paths.iter().filter_map(|path| path.parse().ok()).collect(),
        workload: vec![workload],
        clients: Clients::new(clients).into_iter().collect(),
        link: vec![link],
        ..Grid::default()
    };
    let session = |count| Workload::ConnectQuery { queries: Queries::new(count).unwrap_or(Queries::ONE) };
    let rows = Workload::BulkRead { bytes: Bytes::new(64 << 10).unwrap_or(Bytes::DEFAULT) };
    let [far, farther] = [80_000, 170_000].map(|rtt_us| Link::Emulated(LinkShape::of_rtt_us(rtt_us)));
    let grids = if server.url.is_none() {
        vec![
            grid(&all, session(5), 4, Link::Local),
            grid(&few, session(30), 32, Link::Local),
            grid(&few, Workload::Connect, 32, Link::Local),
            grid(&all, session(1), 32, farther),
            grid(&few, session(3), 1, far),
            grid(&few, rows, 1, Link::Local),
        ]
    } else {
        // Its own TLS, and neither a link nor a proxy of ours.
        let own_tls = ["plain", "tls1.2", "tls1.3"];
        [session(3), session(5), session(30), rows].map(|load| grid(&own_tls, load, 1, Link::Local)).into()
    };
    Spec {
        name: name.to_owned(),
        size: Size::Small,
        trial_time: Some(Span::from_millis(1_000)),
        max_rate: max_rate(server),
        grids,
        ..Spec::quick(&[])
    }
}

/// A server at a URL is measured as fast as one of ours.
fn max_rate(server: &ServerLevel) -> Option<u32> {
    server.url.is_some().then_some(100_000)
}

/// The record called like the specification; measured if there is none.
fn measured(spec: &Spec, directory: &Path) -> Result<Record> {
    if let Ok(path) = ciphertoll_record::resolve(directory, &spec.name) {
        return Record::open(&path).with_context(|| format!("cannot read {}", path.display()));
    }
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let file = directory.join(format!("{}.toml", spec.name));
    fs::write(&file, spec.to_toml()).with_context(|| format!("cannot write {}", file.display()))?;
    let status = Command::new(ciphertoll_program()?)
        .arg("run")
        .arg(&file)
        .arg("--run-dir")
        .arg(directory)
        .args(["--json"])
        .stdout(std::process::Stdio::null())
        .status()
        .context("cannot start ciphertoll")?;
    if !matches!(status.code(), Some(0 | 6)) {
        bail!("ciphertoll run {} failed: {status}", file.display());
    }
    let path = ciphertoll_record::resolve(directory, &spec.name)?;
    Ok(Record::open(&path)?)
}

fn compare(model: &CostModel, record: &Record) -> Result<Vec<Compared>> {
    let facts = RunFacts::of(&record.plan, &record.events);
    let cpus = facts.environment.context("the record has no environment")?.cpus;
    let mut all = Vec::new();
    for (index, cell) in record.plan.cells.iter().enumerate() {
        let is_profile = |profile: &&Profile| {
            let (own, other) = (&cell.treatment, &profile.treatment);
            (&own.server, own.path, own.auth) == (&other.server, other.path, other.auth)
        };
        let Some(profile) = model.profiles.iter().find(is_profile) else { continue };
        let prediction = model.predict(profile, &load(cell, cpus));
        let mean = |metric: Metric| {
            let visited = Visited { cell: index, arm: Arm::Main };
            let values =
                facts.trials.observations(visited).filter_map(|found| found.metrics.get(&metric).copied());
            MeasuredMean::of(&values.collect::<Vec<_>>()).map(|mean| mean.value)
        };
        for (quantity, predicted, metric) in quantities(cell, &prediction) {
            let Some(measured) = mean(metric) else { continue };
            all.push(Compared {
                server: cell.treatment.server.short_name(),
                path: cell.treatment.path.to_string(),
                situation: format!("{}, {} clients, {}", cell.workload, cell.clients, cell.treatment.link),
                quantity,
                predicted,
                measured,
            });
        }
    }
    Ok(all)
}

fn load(cell: &Cell, cpus: u16) -> Load {
    let (queries_per_connection, row_bytes) = match cell.workload {
        Workload::ConnectQuery { queries } => (f64::from(queries.count()), 0),
        Workload::BulkRead { bytes } => (1.0, bytes.number()),
        _ => (0.0, 0),
    };
    Load {
        connects_per_s: None,
        queries: SessionQueries::of_mean(queries_per_connection),
        rtt_ns: cell.treatment.link.shape().map_or(0.0, |shape| shape.rtt_ns() as f64),
        clients: NonZeroU32::new(u32::from(cell.clients.count())),
        row_bytes,
        cores: Cores::Shared(f64::from(cpus)),
    }
}

/// What is predicted of a cell, with the metric that measures it.
fn quantities(cell: &Cell, prediction: &Prediction) -> Vec<(&'static str, Estimate, Metric)> {
    let cpu_of =
        |wanted| prediction.cpu_us.iter().find(|(role, _)| *role == wanted).and_then(|(_, cpu)| cpu.ok());
    // The CPU time of a server at a URL is not known.
    let total = cpu_of(Role::Total).map(|cpu| ("CPU, µs", cpu, Metric::CpuUsPerOpTotal));
    let cpu = total.or_else(|| Some(("client's CPU, µs", cpu_of(Role::Client)?, Metric::CpuUsPerOpClient)));
    let mut all = Vec::new();
    if let Workload::BulkRead { .. } = cell.workload {
        all.extend(prediction.query_ns.ok().map(|time| ("latency, ms", time, Metric::LatencyNsMean)));
        return all;
    }
    // Over a link, clients end their operations at the same time, and a window has a whole number of them.
    if cell.clients == Clients::ONE || cell.treatment.link != Link::Local {
        all.extend(prediction.session_ns.ok().map(|time| ("latency, ms", time, Metric::LatencyNsMean)));
    } else {
        let rate = prediction.throughput.ok().map(|most| most.sessions_per_s);
        all.extend(rate.map(|rate| ("sessions/s", rate, Metric::RatePerS)));
    }
    all.extend(cpu);
    all
}
