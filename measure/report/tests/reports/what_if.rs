//! The what-if panel predicts what `predict` prints, for several loads: the same fields and notes, the same values within
//! 1 % (their last digit), and intervals of the same width within 12 %.

use std::collections::BTreeMap;

use ciphertoll_model::{
    Cell, Ending, Engine, Event, Metric, Observation, Path, Plan, Spec, TlsVersion, Workload,
};
use ciphertoll_report::{CostReport, Style, html, predictions};
use ciphertoll_stats::cost::{Cores, CostModel, Load, SessionQueries};

use crate::browser::seen_at;
use crate::fixture::{Run, leg, prologue, quick};
use crate::html::text_of;
use crate::simulated::Noise;

/// Two servers. One has every term of three paths, and TLS 1.2 without links and with three blocks only; the other has
/// connects and queries, but not of all paths.
const SPEC: &str = r#"
name = "calibrate"
[[grid]]
server = ["mariadb"]
path = ["plain", "tls1.3-p256", "proxy"]
workload = ["connect", "connect-query+queries=20", "point-select"]
clients = [1, 8]
[[grid]]
server = ["mariadb"]
path = ["plain", "tls1.3-p256", "proxy"]
workload = ["connect-query"]
clients = [1]
[[grid]]
server = ["mariadb"]
path = ["plain", "tls1.3-p256", "proxy"]
workload = ["connect-query", "point-select"]
clients = [1]
link = ["10ms", "45ms"]
[[grid]]
server = ["mariadb"]
path = ["tls1.2-p256"]
workload = ["connect", "point-select"]
clients = [1, 8]
[[grid]]
server = ["postgres"]
path = ["plain", "tls1.3-p256"]
workload = ["connect", "point-select"]
clients = [1]
[[grid]]
server = ["postgres"]
path = ["tls1.2-p256", "proxy"]
workload = ["connect", "connect-query"]
clients = [1]
"#;

/// Blocks in which TLS 1.2 was measured: too few for an interval.
const FEW_BLOCKS: u32 = 3;

/// Connects per second, queries per connection, round-trip time in ms, cores.
const LOADS: [[f64; 4]; 9] = [
    [500.0, 3.0, 0.0, 8.0],
    [500.0, 3.0, 45.0, 8.0],
    [900_000.0, 3.0, 0.0, 2.0],
    [100_000.0, 20.0, 10.0, 2.0],
    [40.0, 0.0, 0.0, 1.0],
    [40.0, 0.0, 170.5, 16.0],
    [1.0, 0.5, 0.25, 1024.0],
    [1_234.5, 1.0, 45.0, 8.0],
    [12.0, 10_000.0, 1.0, 3.0],
];

/// A run that measured every term of the cost model.
pub(crate) fn calibrated() -> Run {
    calibrated_until(u32::MAX, Ending::Complete)
}

/// The same run, ended after this many blocks.
pub(crate) fn calibrated_until(blocks: u32, ending: Ending) -> Run {
    let plan = Plan::new(&Spec::from_toml(SPEC).unwrap(), 42).unwrap();
    let mut run = Run { events: Vec::new(), analysis: ciphertoll_stats::analyse(&plan, &[]), plan };
    prologue(&mut run);
    let mut noise = Noise::new(11);
    for block in run.plan.blocks.clone().into_iter().take_while(|block| block.number <= blocks) {
        run.push(Event::BlockStarted { block: block.number });
        for visit in block.visits {
            let cell = run.plan.cells[visit.cell].clone();
            if version(&cell) == Some(TlsVersion::Tls12) && block.number > FEW_BLOCKS {
                continue;
            }
            let observation = Box::new(observation(&cell, &mut noise));
            let cell = cell.id();
            run.push(Event::TrialFinished { block: block.number, cell, arm: visit.arm, observation });
        }
        run.push(Event::BlockFinished { block: block.number });
    }
    run.end(ending);
    run.analysis = ciphertoll_stats::analyse(&run.plan, &run.events);
    run
}

fn version(cell: &Cell) -> Option<TlsVersion> {
    cell.treatment.path.as_tls().map(|tls| tls.parameters.version)
}

/// CPU time of client, proxy and server, µs, and the round trips of a connect.
struct Costs {
    connect: [f64; 3],
    query: [f64; 3],
    connect_trips: f64,
    /// As a factor of the usual scatter: some intervals are wide.
    noise: f64,
}

fn costs(cell: &Cell) -> Costs {
    match cell.treatment.path {
        Path::Plain => {
            Costs { connect: [41.0, 0.0, 163.0], query: [10.0, 0.0, 21.0], connect_trips: 3.0, noise: 1.0 }
        }
        Path::Proxy(_) => {
            Costs { connect: [38.0, 40.0, 52.0], query: [21.0, 24.0, 25.0], connect_trips: 0.0, noise: 14.0 }
        }
        _ => Costs { connect: [690.0, 0.0, 480.0], query: [11.0, 0.0, 22.0], connect_trips: 5.0, noise: 1.0 },
    }
}

fn observation(cell: &Cell, noise: &mut Noise) -> Observation {
    let costs = costs(cell);
    let (connects, queries) = match cell.workload {
        Workload::Connect => (1.0, 0.0),
        Workload::ConnectQuery { queries } => (1.0, f64::from(queries.count())),
        _ => (0.0, 1.0),
    };
    let clients = f64::from(cell.clients.count());
    let mut scatter = || 1.0 + costs.noise * (noise.factor() - 1.0);
    let [client, middle, server] = [0, 1, 2].map(|role| {
        let cost = connects * costs.connect[role] + queries * costs.query[role];
        // With more clients, processors sleep less.
        cost * scatter() / clients.powf(0.1)
    });
    let total = client + middle + server;
    // Half a millisecond more than configured: the shorter link does not fit the longer one.
    let rtt_ns = cell.treatment.link.shape().map_or(0.0, |shape| shape.rtt_ns() as f64 + 5e5);
    let alone_ns = total * 1_100.0 + (connects * costs.connect_trips + queries) * rtt_ns;
    let rate = (clients * 1e9 / alone_ns).min(0.9 * 2e6 / total);
    let mut metrics = BTreeMap::from([
        (Metric::CpuUsPerOpClient, client),
        (Metric::CpuUsPerOpServer, server),
        (Metric::CpuUsPerOpTotal, total),
        (Metric::LatencyNsMean, clients * 1e9 / rate),
        (Metric::RatePerS, rate),
    ]);
    // A connect to the sidecar costs PostgreSQL nothing that can be measured.
    if cell.treatment.server.engine == Engine::Postgres && matches!(cell.treatment.path, Path::Proxy(_)) {
        metrics.remove(&Metric::CpuUsPerOpServer);
    }
    if middle > 0.0 {
        metrics.insert(Metric::CpuUsPerOpMiddle, middle);
    }
    Observation {
        operations: 1_000,
        metrics,
        window_ns: 1_000_000_000,
        legs: vec![leg(cell.treatment.path, 1_000)],
        flags: Vec::new(),
        absent: BTreeMap::new(),
        hosts: None,
    }
}

#[test]
fn the_panel_says_what_predict_prints() {
    let run = calibrated();
    let page = html(&run.report());
    let printed = printed(&run, LOADS[0]);
    assert_eq!(shown(&page), printed, "without the script: the default load");
    for expected in ["±", "no interval", "Not predicted for", "To measure what is missing"] {
        assert!(printed.iter().any(|text| text.contains(expected)), "{expected}: {printed:#?}");
    }
    assert!(self::printed(&run, LOADS[2]).iter().any(|text| text.starts_with("More than it can serve")));
    for load in LOADS {
        let [connects, queries, rtt_ms, cores] = load;
        let fragment =
            format!("#what-if?connects={connects}&queries={queries}&rtt-ms={rtt_ms}&cores={cores}");
        let Some(seen) = seen_at(&page, &fragment) else { return };
        seen.assert_quiet();
        seen.assert_alone();
        let (shown, printed) = (shown(&seen.dom), self::printed(&run, load));
        assert_eq!(shown.len(), printed.len(), "{fragment}: {shown:#?}");
        for (shown, printed) in shown.iter().zip(&printed) {
            assert!(are_alike(shown, printed), "{fragment}: shown {shown}, printed {printed}");
        }
        let command = format!(
            "--connects {connects} --queries-per-connection {queries} --rtt {rtt_ms}ms --cores {cores}<"
        );
        assert!(seen.dom.contains(&command), "{command}");
    }
}

#[test]
fn columns_without_any_number_are_hidden() {
    let Some(seen) = seen_at(&html(&calibrated().report()), "") else { return };
    let hidden = |server: usize| {
        let table = seen.dom.split("<div data-predictions").nth(server).unwrap().split("</table>").next();
        table.unwrap().matches("hidden=\"\"").count()
    };
    // PostgreSQL was measured without the terms of its proxy: a heading and four rows.
    assert_eq!([1, 2].map(hidden), [0, 5]);
}

#[test]
fn a_fragment_without_numbers_is_ignored() {
    let run = calibrated();
    let wrong = "#what-if?connects=1e3&queries=<b>&rtt-ms=-1&cores=0";
    let Some(seen) = seen_at(&html(&run.report()), wrong) else { return };
    seen.assert_quiet();
    let (shown, printed) = (shown(&seen.dom), printed(&run, LOADS[0]));
    assert!(shown.iter().zip(&printed).all(|(shown, printed)| are_alike(shown, printed)), "{shown:#?}");
    for part in ["class=\"fields\" hidden", "data-without-script=\"\">"] {
        assert!(!seen.dom.contains(part), "the script shows the fields: {part}");
    }
}

#[test]
fn a_run_without_costs_has_no_panel() {
    let page = html(&quick().report());
    assert!(!page.contains("id=\"what-if") && !page.contains("data-model"));
}

/// Names of servers, then their fields and notes, as `predict` prints them.
fn printed(run: &Run, [connects, queries, rtt_ms, cores]: [f64; 4]) -> Vec<String> {
    let report = run.report();
    let model = CostModel::fit(report.plan, &report.facts);
    let load = Load {
        connects_per_s: Some(connects),
        queries: SessionQueries::of_mean(queries),
        rtt_ns: rtt_ms * 1e6,
        ..Load::simple(Cores::Separate { server: cores, clients: None })
    };
    let costs = CostReport { run: report.run, facts: &report.facts, model: &model, load: &load };
    let text = predictions(&costs, Style::Plain, u16::MAX);
    // The first line names the run and the load. Columns are apart by at least two spaces.
    let fields = text.lines().skip(1).flat_map(|line| line.split("  ")).map(str::trim);
    fields.filter(|field| !field.is_empty() && !field.starts_with('─')).map(str::to_owned).collect()
}

/// Whether two fields say the same: equal words, equal units, and numbers that differ by no more than interpolation does.
fn are_alike(shown: &str, printed: &str) -> bool {
    let parts = |field: &str| -> (Option<char>, Vec<f64>, String) {
        let (number, unit) = field.split_once(' ').unwrap_or((field, ""));
        let kind = number.chars().find(|found| "±–".contains(*found));
        let numbers: Vec<f64> = number.split(['±', '–']).filter_map(|number| number.parse().ok()).collect();
        (kind, numbers, unit.to_owned())
    };
    let ((kind, ours, unit), (printed_kind, theirs, printed_unit)) = (parts(shown), parts(printed));
    let share = if kind.is_some() { 0.12 } else { 0.01 };
    // Small percentages are rounded to one decimal.
    let is_close =
        |(ours, theirs): (&f64, &f64)| (ours - theirs).abs() <= share * theirs + 0.051 * share / 0.12;
    shown == printed
        || (kind == printed_kind && unit == printed_unit && !ours.is_empty() && ours.len() == theirs.len())
            && ours.iter().zip(&theirs).all(is_close)
}

/// The same of the panel of a page.
fn shown(page: &str) -> Vec<String> {
    let panel =
        page.split_once("id=\"what-if-panel\"").unwrap().1.split_once("<p class=\"muted\">In a").unwrap().0;
    let servers =
        panel.split("<div data-predictions").skip(1).map(|server| server.split_once('>').unwrap().1);
    servers.flat_map(of_server).collect()
}

/// A terminal prints each row in lines.
fn of_server(server: &str) -> Vec<String> {
    let texts = |markup: &str| -> Vec<String> { text_of(markup).lines().map(str::to_owned).collect() };
    let (name, rest) = server.split_once("</h3>").unwrap();
    let (table, notes) = rest.split_once("</table>").unwrap();
    let table = table.split_once("</caption>").unwrap().1;
    let mut all = texts(name);
    for row in table.split("</tr>") {
        let cells: Vec<Vec<String>> = row.replace("</th>", "</td>").split("</td>").map(texts).collect();
        let depth = cells.iter().map(Vec::len).max().unwrap_or(0);
        all.extend((0..depth).flat_map(|line| cells.iter().filter_map(move |cell| cell.get(line).cloned())));
    }
    all.extend(texts(notes));
    all
}
