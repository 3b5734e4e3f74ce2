//! The plan summary and the dry run.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ciphertoll_model::duration::Span;
use ciphertoll_model::plan::OPERATIONS_WANTED;
use ciphertoll_model::{
    Arm, Cell, ConnectionUse, Factor, LongerTrials, Metric, Plan, ServerLevel, Storage, Stratum, Verdicts,
    Visit, Workload,
};

use crate::lists::{distinct, listed};
use crate::number::{duration, plural, quantity, significant};
use crate::view::{Column, ColumnKind, Table, TableEntry, by_reason, unlike};
use crate::{Style, names, terminal, view};

/// The width of a dry run: it depends on the plan alone.
const WIDTH: u16 = 100;

/// What will be measured and for how long, and what it does to servers; if scales are relative, their rows in between.
pub fn plan_summary(plan: &Plan) -> String {
    let levels =
        |factor: Factor| distinct(plan.cells.iter().filter_map(|cell| cell.level(factor))).join(", ");
    let verdicts = match plan.verdicts {
        Verdicts::Rendered => "",
        Verdicts::Withheld => " (too few blocks for verdicts)",
    };
    let scales: String =
        plan.servers().into_iter().filter_map(|server| relative_scales(plan, server)).collect();
    format!(
        "{} in {}{verdicts}, about {}: {} over {} on {}.\n\
         {}{scales}{}\n",
        plural(plan.cells.len() as u64, "configuration"),
        plural(u64::from(plan.counted_blocks()), "block"),
        duration(plan.expected_duration()),
        levels(Factor::Workload),
        levels(Factor::Path),
        levels(Factor::Server),
        longer_trials(plan).map(|line| line + "\n").collect::<String>(),
        what_is_touched(plan),
    )
}

/// `Trials of connect over 170ms have a window of 13.6 s: 2.00 s is too short for 10 operations per client …`
fn longer_trials(plan: &Plan) -> impl Iterator<Item = String> {
    // A longer warm-up or calibration alone is only part of the expected time.
    let longer = plan.longer.iter().filter(|longer| longer.timing.window != plan.timing.window);
    longer.map(|longer| {
        let LongerTrials { link, workload, operations, timing, .. } = longer;
        let [window, own, each] = [timing.window, plan.timing.window, longer.operation].map(span);
        // Fewer operations mean that the user chose the window.
        let flag = if *operations < OPERATIONS_WANTED { "--trial-time " } else { "" };
        format!(
            "Trials of {workload} over {link} have a window of {window}: {flag}{own} is too short for {operations} \
             operations per client at up to {each} each."
        )
    })
}

/// `850 ms`, `1.36 s`.
fn span(span: Span) -> String {
    quantity(Metric::LatencyNsMean, span.duration().as_nanos() as f64)
}

/// `mariadb: 128 MiB of buffers; 0.5cache is 277883 rows (64 MiB); 0.3 GiB of disk with the templates.` Absent if no scale of
/// this server is relative.
fn relative_scales(plan: &Plan, server: &ServerLevel) -> Option<String> {
    let of_server = plan.cells.iter().filter(|cell| cell.treatment.server == *server);
    let relative: Vec<&Cell> = of_server.clone().filter(|cell| cell.relative.is_some()).collect();
    let buffers = bytes(relative.first()?.buffers_bytes(&plan.settings)?);
    let levels = relative.iter().filter_map(|cell| {
        let size = bytes(cell.tables_bytes()?);
        Some(format!("{} is {} ({size})", cell.scale_level(), plural(u64::from(cell.scale.rows()), "row")))
    });
    let levels = distinct(levels).join(", ");
    let tables = |cell: &Cell| {
        let dataset = cell.workload.dataset(server.engine)?;
        Some(((cell.treatment.at_rest, dataset, cell.scale), cell.tables_bytes()?))
    };
    // Each data set exists twice: as a template and in its server.
    let tables: BTreeMap<_, f64> = of_server.filter_map(tables).collect();
    let disk = bytes(tables.values().sum::<f64>() * 2.0);
    let name = server.short_name();
    Some(format!("{name}: {buffers} of buffers; {levels}; about {disk} of disk with the templates.\n"))
}

/// In MiB or GiB, as in server settings.
fn bytes(bytes: f64) -> String {
    const MIB: f64 = 1024.0 * 1024.0;
    if bytes < 10_240.0 * MIB {
        format!("{:.0} MiB", bytes / MIB)
    } else {
        format!("{:.1} GiB", bytes / (1024.0 * MIB))
    }
}

/// What the run does to servers.
fn what_is_touched(plan: &Plan) -> String {
    let at_urls: Vec<&Cell> = plan.cells.iter().filter(|cell| cell.treatment.server.url.is_some()).collect();
    if at_urls.is_empty() {
        return "Starts private servers; your own servers are not touched.".to_owned();
    }
    let names = distinct(at_urls.iter().map(|cell| cell.treatment.server.short_name())).join(" and ");
    let most = at_urls.iter().map(|cell| cell.clients.count()).max().unwrap_or_default();
    let clients = plural(u64::from(most), "client");
    let has_tables = at_urls.iter().any(|cell| cell.workload.dataset(cell.treatment.server.engine).is_some());
    let tables = if has_tables { "; tables are created in its database ciphertoll" } else { "" };
    let yours =
        format!("Connects to {names} with up to {clients} at a time{}{tables}.", load_limits(plan, &at_urls));
    let host = at_urls.iter().find_map(|cell| cell.treatment.server.url.as_ref()?.host());
    let unmeasured = match (&plan.server_host, host) {
        (None, Some(host)) => format!(" Its CPU time is not measured: add --server-host ssh:{host}."),
        (Some(_), _) | (None, None) => String::new(),
    };
    let private =
        if at_urls.len() == plan.cells.len() { "" } else { " Private servers are started as well." };
    yours + &unmeasured + private
}

/// The most that the run does to servers at URLs: `, at most 20 connects/s, 1000 queries/s and 16.8 MB/s of results`.
fn load_limits(plan: &Plan, at_urls: &[&Cell]) -> String {
    let most = |connection_use| {
        let of_use = at_urls.iter().filter(|cell| cell.workload.connection_use() == connection_use);
        of_use.filter_map(|cell| plan.rate_limit_per_s(cell)).max()
    };
    let result_bytes = at_urls.iter().filter_map(|cell| match cell.workload {
        Workload::BulkRead { bytes } => {
            Some(f64::from(plan.rate_limit_per_s(cell)?) * f64::from(bytes.number()))
        }
        _ => None,
    });
    let is_query = |cell: &&Cell| {
        matches!(cell.workload, Workload::BulkRead { .. } | Workload::PointSelect | Workload::Query)
    };
    let mut pooled = at_urls.iter().filter(|cell| cell.workload.connection_use() == ConnectionUse::Pooled);
    let operations = if pooled.all(is_query) { "queries" } else { "operations" };
    let limits = [
        most(ConnectionUse::PerOperation).map(|per_s| format!("{per_s} connects/s")),
        most(ConnectionUse::Pooled).map(|per_s| format!("{per_s} {operations}/s")),
        result_bytes.reduce(f64::max).map(|bytes| format!("{} MB/s of results", significant(bytes * 1e-6))),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    if limits.is_empty() { String::new() } else { format!(", at most {}", listed(&limits)) }
}

/// The whole plan: totals, configurations, comparisons, skipped configurations, the order of the first block.
pub fn dry_run(plan: &Plan) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for line in plan_summary(plan).lines().flat_map(|line| terminal::wrap(line, usize::from(WIDTH))) {
        let _ = writeln!(text, "{line}");
    }
    let _ = write!(text, "\n{}", totals(plan));
    for part in [cells(plan), strata(plan), skipped(plan), first_block(plan)].into_iter().flatten() {
        let _ = write!(text, "\n{part}");
    }
    text
}

fn totals(plan: &Plan) -> String {
    let trials = |is: fn(u32) -> bool| -> usize {
        plan.blocks.iter().filter(|block| is(block.number)).map(|block| block.visits.len()).sum()
    };
    let (counted, calibration) = (trials(|number| number > 0), trials(|number| number == 0));
    let servers: Vec<String> = plan.servers().iter().map(ToString::to_string).collect();
    let looks: Vec<String> = plan.looks.iter().map(u32::to_string).collect();
    let budget = plan.budget.map(|budget| format!(", at most {budget}")).unwrap_or_default();
    let storage = match plan.storage {
        Storage::Disk => "",
        Storage::Tmpfs => "tmpfs: in memory",
    };
    let rows = [
        ("experiment", plan.name.clone()),
        ("seed", plan.seed.to_string()),
        ("baseline", plan.baseline.to_string()),
        ("trials", format!("{counted}, and {calibration} for calibration")),
        (
            "trial",
            format!(
                "{} of warm-up, window of {}{}",
                plan.timing.warm_up,
                plan.timing.window,
                view::plan::longer(plan)
            ),
        ),
        ("settings", view::plan::settings(plan)),
        ("storage", storage.to_owned()),
        ("looks", format!("after block {}", listed(&looks))),
        ("server starts", format!("{} ({})", servers.len(), servers.join(", "))),
        ("expected time", format!("{}{budget}, plus server preparation", duration(plan.expected_duration()))),
    ];
    let said = rows.iter().filter(|(_, value)| !value.is_empty());
    said.fold(String::new(), |text, (name, value)| format!("{text}{name:<14} {value}\n"))
}

/// One row for each cell, and the factors that do not vary in one line.
fn cells(plan: &Plan) -> Option<String> {
    let cells: Vec<&Cell> = plan.cells.iter().collect();
    let first = cells.first()?;
    let always = [Factor::Path, Factor::Workload, Factor::Clients];
    let (shown, same): (Vec<Factor>, Vec<Factor>) =
        Factor::ALL.into_iter().partition(|factor| always.contains(factor) || names::differ(&cells, *factor));
    let columns = shown.iter().map(|factor| Column::new(ColumnKind::Text, factor.label()));
    let row = |(number, cell): (usize, &&Cell)| {
        let level = |factor: &Factor| names::level_in_full(cell, *factor);
        let entry = |factor| level(factor).map_or_else(TableEntry::absent, TableEntry::text);
        ((number + 1).to_string(), shown.iter().map(entry).collect())
    };
    let table = Table::new("number", columns, cells.iter().enumerate().map(row));
    let same: Vec<String> = same
        .iter()
        .filter_map(|factor| Some(format!("{} {}", factor.label(), names::level_in_full(first, *factor)?)))
        .collect();
    Some(format!(
        "{}In every configuration: {}.\n",
        terminal::table(&table, Style::Plain, WIDTH),
        same.join(", ")
    ))
}

fn strata(plan: &Plan) -> Option<String> {
    let line = |stratum: &Stratum| {
        let treatments: Vec<String> =
            stratum.treatments.iter().map(|index| (index + 1).to_string()).collect();
        let rows = names::row_factors(plan, stratum);
        let name = names::stratum(plan, stratum, &rows);
        let baseline = stratum.baseline + 1;
        if treatments.is_empty() {
            format!("  {name}: {baseline} is not compared\n")
        } else {
            format!("  {name}: {} with {baseline}, and {baseline} with itself (A/A)\n", listed(&treatments))
        }
    };
    let lines: String = plan.strata.iter().map(line).collect();
    (!lines.is_empty()).then(|| format!("Comparisons:\n{lines}"))
}

fn skipped(plan: &Plan) -> Option<String> {
    let line = |(reason, ids): (String, Vec<String>)| format!("  {reason}:\n    {}\n", ids.join("\n    "));
    let mut lines: String = by_reason(plan, &plan.skipped).into_iter().map(line).collect();
    lines.extend(unlike(plan).into_iter().map(|line| format!("  {line}\n")));
    (!lines.is_empty()).then(|| format!("Not measured:\n{lines}"))
}

fn first_block(plan: &Plan) -> Option<String> {
    let block = plan.blocks.iter().find(|block| block.number > 0)?;
    let visit = |visit: &Visit| match visit.arm {
        Arm::Main => (visit.cell + 1).to_string(),
        Arm::Repeat => format!("{}*", visit.cell + 1),
    };
    let visits: Vec<String> = block.visits.iter().map(visit).collect();
    let wrapped = terminal::wrap(&visits.join(", "), usize::from(WIDTH) - 2);
    Some(format!(
        "Order of the first block (* is the second copy of a baseline):\n  {}\n",
        wrapped.join("\n  ")
    ))
}
