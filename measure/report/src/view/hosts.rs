//! Load hosts, and the host of the server.

use ciphertoll_model::{ConnectedHost, HostRole, Metric};
use ciphertoll_stats::HostTotal;

use super::{Column, ColumnKind, Section, Sentence, Table, TableEntry, clean};
use crate::RunReport;
use crate::number::{plural, quantity, significant};

/// More hosts would hide the rest of the report; the JSON document has all.
const MOST_ROWS: usize = 20;

/// Absent if everything ran on one machine.
pub(crate) fn section(report: &RunReport<'_>) -> Option<Section> {
    let hosts = &report.facts.hosts;
    let load: Vec<&ConnectedHost> =
        hosts.iter().copied().filter(|host| host.role == HostRole::Load).collect();
    let server = hosts.iter().find(|host| host.role == HostRole::Server);
    if load.is_empty() && server.is_none() {
        return None;
    }
    let table = (!load.is_empty()).then(|| table(report, &load));
    let more = load.len().saturating_sub(MOST_ROWS);
    let more = (more > 0)
        .then(|| Sentence::neutral(format!("{more} more: ciphertoll report --format json has all.")));
    let notes = more.into_iter().chain(overlap(report)).chain(server.map(|server| {
        Sentence::neutral(format!(
            "The server's CPU was read on {}: {}.",
            clean(&server.name),
            clean(&server.cpu_accounting)
        ))
    }));
    Some(Section { heading: "Hosts".to_owned(), table, notes: notes.collect() })
}

fn table(report: &RunReport<'_>, hosts: &[&ConnectedHost]) -> Table {
    let columns = [
        Column::new(ColumnKind::Text, "machine"),
        Column::new(ColumnKind::Text, "version"),
        Column::new(ColumnKind::Level, "clients"),
        Column::new(ColumnKind::Level, "rate"),
        Column::new(ColumnKind::Level, "CPU/op"),
        Column::new(ColumnKind::Level, "processors\nbusy"),
    ];
    let totals = &report.facts.host_totals.hosts;
    let row = |host: &&ConnectedHost| {
        let node = host.node.as_ref().map(|node| format!(" on {}", clean(node))).unwrap_or_default();
        let machine = format!("{} × {}{node}", host.processors, clean(&host.architecture));
        let about = [TableEntry::text(machine), TableEntry::text(clean(&host.tool_version))];
        let measured = match totals.get(host.name.as_str()) {
            Some(total) => measured(total).to_vec(),
            None => vec![TableEntry::absent(); 4],
        };
        (clean(&host.name), about.into_iter().chain(measured).collect())
    };
    Table::new("load host", columns, hosts.iter().take(MOST_ROWS).map(row).collect::<Vec<_>>())
}

fn measured(total: &HostTotal) -> [TableEntry; 4] {
    let (fewest, most) = total.clients;
    let clients = if fewest == most { most.to_string() } else { format!("{fewest}–{most}") };
    let cpu = total.cpu_us_per_op().map(|cost| quantity(Metric::CpuUsPerOpClient, cost));
    [
        TableEntry::text(clients),
        TableEntry::text(quantity(Metric::RatePerS, total.rate_per_s())),
        cpu.map_or_else(TableEntry::absent, TableEntry::text),
        TableEntry::text(significant(total.processors_busy())),
    ]
}

/// How well the windows coincided.
fn overlap(report: &RunReport<'_>) -> Option<Sentence> {
    let (share, uncertainty) = report.facts.host_totals.least_overlap?;
    let hosts = plural(report.facts.host_totals.hosts.len() as u64, "load host");
    Some(Sentence::neutral(format!(
        "Clients ran on {hosts}; all windows of a trial overlapped by {:.2} % or more (± {:.2} %). Rates, CPU per \
         operation and processors are means over all trials.",
        share * 100.0,
        uncertainty * 100.0
    )))
}
