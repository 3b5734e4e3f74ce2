//! Names of cells and strata, made of the factors that vary.

use crate::RunReport;
use crate::number::plural;
use ciphertoll_model::{Auth, Cell, Engine, Factor, Pace, Plan, ServerLevel, Stratum, Treatment};
use ciphertoll_stats::RunFacts;

/// The factors that vary in a stratum, including the compared one.
pub(crate) fn row_factors(plan: &Plan, stratum: &Stratum) -> Vec<Factor> {
    let cells: Vec<&Cell> = stratum
        .treatments
        .iter()
        .chain([&stratum.baseline])
        .filter_map(|&index| plan.cells.get(index))
        .collect();
    let compared = stratum.factor.unwrap_or_else(|| plan.baseline.factor());
    varying(&cells, compared)
}

/// The factors that vary among `cells`, and `compared`.
pub(crate) fn varying(cells: &[&Cell], compared: Factor) -> Vec<Factor> {
    let varies = |factor: &Factor| *factor == compared || differ(cells, *factor);
    Factor::ALL.into_iter().filter(varies).collect()
}

/// The heading of a column of row names.
pub(crate) fn factors(rows: &[Factor]) -> String {
    rows.iter().map(|factor| factor.label()).collect::<Vec<_>>().join(", ")
}

/// The name of a row: `tls1.3-p256`, or `tls1.3-p256 shared` if the TLS context varies as well.
pub(crate) fn row_label(cell: &Cell, factors: &[Factor]) -> String {
    let levels: Vec<String> = factors.iter().filter_map(|factor| cell.level(*factor)).collect();
    levels.join(" ")
}

/// `connect at 1 client`, or `point-select at 8 clients and 500/s`.
pub(crate) fn load(cell: &Cell) -> String {
    format!("{} at {}", cell.workload, concurrency(cell))
}

/// `1 client`, or `8 clients and 500/s`.
pub(crate) fn concurrency(cell: &Cell) -> String {
    format!("{}{}", plural(u64::from(cell.clients.count()), "client"), pace(cell))
}

/// ` and 500/s`; empty in a closed loop.
pub(crate) fn pace(cell: &Cell) -> String {
    match cell.pace {
        Pace::Closed => String::new(),
        Pace::PerSecond(_) => format!(" and {}", cell.pace),
        Pace::OfBaselineCapacity(_) => format!(" and {} of the baseline's capacity", cell.pace),
    }
}

/// The levels that distinguish a stratum from others, without the load. Empty if nothing varies.
pub(crate) fn context(plan: &Plan, stratum: &Stratum, rows: &[Factor]) -> Vec<String> {
    let Some(baseline) = plan.cells.get(stratum.baseline) else { return Vec::new() };
    let named = |factor: Factor| {
        let level = level_in_full(baseline, factor)?;
        Some(if matches!(factor, Factor::Server | Factor::Path) {
            level
        } else {
            format!("{} {level}", factor.label())
        })
    };
    context_factors(plan, stratum, rows).into_iter().filter_map(named).collect()
}

/// The factors whose levels are in [`context`].
pub(crate) fn context_factors(plan: &Plan, stratum: &Stratum, rows: &[Factor]) -> Vec<Factor> {
    let Some(baseline) = plan.cells.get(stratum.baseline) else { return Vec::new() };
    let cells: Vec<&Cell> = plan.cells.iter().collect();
    let tells_apart = |factor: &Factor| {
        !matches!(factor, Factor::Workload | Factor::Clients | Factor::Pace)
            && !rows.contains(factor)
            && differ(&cells, *factor)
    };
    // The default authentication is not named.
    let Treatment { auth, server, .. } = &baseline.treatment;
    let usual = |factor: &Factor| *factor == Factor::Auth && *auth == Auth::default_of(server.engine);
    Factor::ALL.into_iter().filter(|factor| tells_apart(factor) && !usual(factor)).collect()
}

/// `connect at 1 client, mariadb-10.11, scale 1000`.
pub(crate) fn stratum(plan: &Plan, stratum: &Stratum, rows: &[Factor]) -> String {
    let load = plan.cells.get(stratum.baseline).map(load);
    load.into_iter().chain(context(plan, stratum, rows)).collect::<Vec<_>>().join(", ")
}

/// `MariaDB 10.11.14`, or `stock (MariaDB 10.11.14)`. A server that imitates another one says so.
pub(crate) fn server(report: &RunReport<'_>, server: &ServerLevel) -> String {
    server_of(&report.facts, server)
}

pub(crate) fn server_of(facts: &RunFacts<'_>, server: &ServerLevel) -> String {
    let engine = server.engine.display_name();
    let full = match facts.server_version(&server.short_name()) {
        Some(version) => format!("{engine} {}", number_of(version)),
        None => engine.to_owned(),
    };
    // The server whose protocol this one imitates.
    let imitated = (server.engine == Engine::FerretDb).then(|| Engine::MongoDb.display_name());
    match (&server.label, imitated) {
        (Some(label), Some(other)) => format!("{label} ({full}, not {other})"),
        (Some(label), None) => format!("{label} ({full})"),
        (None, Some(other)) => format!("{full} (not {other})"),
        (None, None) => full,
    }
}

/// `10.11.19` of `10.11.19-MariaDB-0+deb12u1`, `15.18` of `15.18 (Debian 15.18-0+deb12u1)`. The JSON has the full version.
fn number_of(version: &str) -> &str {
    version.split(['-', ' ']).next().unwrap_or(version)
}

/// The name of the baseline in a column heading.
pub(crate) fn divisor(baseline: &str) -> String {
    const LONGEST: usize = 8;
    if baseline.chars().count() <= LONGEST { baseline.to_owned() } else { "baseline".to_owned() }
}

/// [`Cell::level`] with the number of rows of a relative scale: `0.5cache (277883 rows)`.
pub(crate) fn level_in_full(cell: &Cell, factor: Factor) -> Option<String> {
    let level = cell.level(factor)?;
    let has_rows = factor == Factor::Scale && cell.relative.is_some();
    Some(if has_rows { format!("{level} ({} rows)", cell.scale) } else { level })
}

/// Whether `cells` have more than one level of `factor`. Cells that it does not apply to are ignored.
pub(crate) fn differ(cells: &[&Cell], factor: Factor) -> bool {
    let mut levels = cells.iter().filter_map(|cell| cell.level(factor));
    let first = levels.next();
    levels.any(|other| Some(other) != first)
}
