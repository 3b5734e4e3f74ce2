//! CPU time per operation by role.

use ciphertoll_model::Metric;
use ciphertoll_stats::CellAnalysis;

use super::{Figure, TOTAL_WHISKER, highest, in_words, level, table_of, whiskers};
use crate::number::{measured_in, scale};
use crate::svg::{
    Anchor, Drawing, Scale, Swatch, WIDTH, across, group, rect, text, tooltip, whisker, width_of,
};
use crate::view::StratumView;

const ROLES: [(Metric, &str, &str); 3] = [
    (Metric::CpuUsPerOpClient, "role-client", "client"),
    (Metric::CpuUsPerOpMiddle, "role-middle", "middle"),
    (Metric::CpuUsPerOpServer, "role-server", "server"),
];
const HEIGHT: f64 = 19.0;
const REST: &str = "too little of each role to measure";
const REST_CLASS: &str = "role-rest";
/// If the total is more than this multiple of its parts, the chart shows a rest.
const REST_FROM: f64 = 1.02;

pub(super) fn figure(stratum: &StratumView<'_>, id: &str) -> Option<Figure> {
    let total = Metric::CpuUsPerOpTotal;
    stratum.cells().find_map(|cell| level(cell, total))?;
    let unit = scale(total, highest(stratum, &[total]));
    let axis = Scale::linear((0.0, highest(stratum, &[total]) / unit.0), (0.0, WIDTH - 8.0));
    let mut drawing = Drawing::default();
    for cell in stratum.cells() {
        let Some(sum) = level(cell, total) else { continue };
        drawing.caption(&stratum.row_label(cell), &measured_in(unit, sum), "");
        let top = drawing.advance(HEIGHT + 13.0);
        bar(&mut drawing, cell, top, &axis, unit);
        let (low, high) = (axis.at(sum.low() / unit.0), axis.at(sum.high() / unit.0));
        drawing.mark(
            group("mark").child(tooltip(format!("total: {}", measured_in(unit, sum)))).child(whisker(
                low,
                high,
                top + HEIGHT + 5.0,
                "total",
            )),
        );
    }
    drawing.behind(across(&axis, 0.0, drawing.bottom(), unit.1.trim()));
    drawing.advance(16.0);
    let seen = ROLES.iter().filter(|(metric, ..)| stratum.cells().any(|cell| level(cell, *metric).is_some()));
    let has_rest = |cell: &CellAnalysis| {
        let parts = ROLES.iter().filter_map(|role| level(cell, role.0)).map(|part| part.value);
        let spent: f64 = parts.sum();
        level(cell, total).is_some_and(|total| total.value > spent * REST_FROM)
    };
    let rest = stratum.cells().any(has_rest).then(|| Swatch::filled(REST_CLASS, REST));
    drawing.key(seen.map(|&(_, class, name)| Swatch::filled(class, name)).chain(rest));
    let heading = "CPU per operation".to_owned();
    let description = format!(
        "Stacked bars, one for each path, of the CPU time of client, middle and server. Totals: {}.",
        in_words(stratum, total)
    );
    let id = format!("{id}-cpu");
    let totals = stratum.cells().filter_map(|cell| level(cell, total));
    Some(Figure {
        picture: drawing.finish(&id, &format!("{heading}, {}", stratum.name()), &description),
        id,
        heading,
        reading: format!("CPU time of all roles; {}.", whiskers(totals, TOTAL_WHISKER)),
        numbers: table_of(stratum, &[ROLES[0].0, ROLES[1].0, ROLES[2].0, total]),
        notes: Vec::new(),
    })
}

fn bar(drawing: &mut Drawing, cell: &CellAnalysis, top: f64, axis: &Scale, unit: (f64, &str)) {
    let mut spent = 0.0;
    for (metric, class, name) in ROLES {
        let Some(estimate) = level(cell, metric) else { continue };
        let left = axis.at(spent / unit.0);
        spent += estimate.value;
        let width = (axis.at(spent / unit.0) - left - 1.5).max(0.8);
        let mut part = group("mark")
            .child(tooltip(format!("{name}: {}", measured_in(unit, estimate))))
            .child(rect(left, top, width, HEIGHT, class));
        if width_of(name) < width {
            part = part.child(text(left + 6.0, top + 13.5, Anchor::Start, "inside", name));
        }
        drawing.mark(part);
    }
    // The total includes roles whose time is too short to measure alone.
    if let Some(total) = level(cell, Metric::CpuUsPerOpTotal).filter(|total| total.value > spent * REST_FROM)
    {
        let (left, right) = (axis.at(spent / unit.0), axis.at(total.value / unit.0));
        drawing.mark(group("mark").child(tooltip(REST.to_owned())).child(rect(
            left,
            top,
            (right - left - 1.5).max(0.8),
            HEIGHT,
            REST_CLASS,
        )));
    }
}
