//! CPU time per operation by role.

use ciphertoll_model::Metric;
use ciphertoll_stats::CellAnalysis;

use super::bars::{self, BarNames, BarPart, StackedBar};
use super::figure::{Figure, TOTAL_WHISKER, highest, in_words, pictures, table_of, whiskers};
use crate::number::{measured_in, scale};
use crate::svg::Swatch;
use crate::view::{StratumView, absent, level};

const ROLES: [(Metric, &str, &str); 3] = [
    (Metric::CpuUsPerOpClient, "role-client", "client"),
    (Metric::CpuUsPerOpMiddle, "role-middle", "middle"),
    (Metric::CpuUsPerOpServer, "role-server", "server"),
];
const METRICS: [Metric; 4] = [ROLES[0].0, ROLES[1].0, ROLES[2].0, Metric::CpuUsPerOpTotal];
const REST: &str = "too little of each role to measure";
const REST_CLASS: &str = "role-rest";
/// If the total is more than this multiple of its parts, the chart shows a rest.
const REST_FROM: f64 = 1.02;

pub(super) fn figure(stratum: &StratumView<'_>, id: &str) -> Option<Figure> {
    let total = Metric::CpuUsPerOpTotal;
    let unit = scale(total, highest(stratum, &[total]));
    let bars: Vec<StackedBar<'_>> = stratum.cells().filter_map(|cell| bar(stratum, cell, unit)).collect();
    if bars.is_empty() {
        return None;
    }
    let shown = ROLES.map(|(_, class, name)| (class, name)).into_iter().chain([(REST_CLASS, REST)]);
    let seen =
        shown.filter(|(class, _)| bars.iter().any(|bar| bar.parts.iter().any(|part| part.class == *class)));
    let seen: Vec<(&str, &str)> = seen.collect();
    let heading = "CPU per operation".to_owned();
    let description = format!(
        "Stacked bars, one for each path, of the CPU time of client, middle and server. Totals: {}.",
        in_words(stratum, total)
    );
    let id = format!("{id}-cpu");
    let pictures = pictures(&id, &format!("{heading}, {}", stratum.name()), &description, |drawing| {
        bars::draw(drawing, &bars, unit, BarNames::Left);
        drawing.key(seen.iter().map(|(class, name)| Swatch::filled(class, *name)));
    });
    let totals = bars.iter().map(|bar| bar.total);
    Some(Figure {
        pictures,
        id,
        heading,
        reading: format!("CPU time of all roles; {}.", whiskers(totals, TOTAL_WHISKER)),
        numbers: table_of(stratum, &METRICS),
        notes: absent::sentences(stratum, &METRICS),
    })
}

fn bar<'a>(stratum: &StratumView<'a>, cell: &'a CellAnalysis, unit: (f64, &str)) -> Option<StackedBar<'a>> {
    let total = level(cell, Metric::CpuUsPerOpTotal)?;
    let part = |(metric, class, name): (Metric, &'static str, &str)| {
        let estimate = level(cell, metric)?;
        let tooltip = format!("{name}: {}", measured_in(unit, estimate));
        let (size, names) = (estimate.value, vec![name.to_owned()]);
        Some(BarPart { size, class, names, tooltip, is_hatched: false })
    };
    let mut parts: Vec<BarPart> = ROLES.into_iter().filter_map(part).collect();
    // The total includes roles whose time is too short to measure alone.
    let spent: f64 = parts.iter().map(|part| part.size).sum();
    parts.extend((total.value > spent * REST_FROM).then(|| BarPart {
        size: total.value - spent,
        class: REST_CLASS,
        names: Vec::new(),
        tooltip: REST.to_owned(),
        is_hatched: false,
    }));
    Some(StackedBar { label: stratum.row_label(cell), total, parts })
}
