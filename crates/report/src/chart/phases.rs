//! The breakdown of connect time: a bar for each path, a part for each phase.

use ciphertoll_model::{Engine, Metric, Phase};
use ciphertoll_stats::CellAnalysis;

use super::{Figure, TOTAL_WHISKER, highest, in_words, level, whiskers};
use crate::number::{measured_in, scale};
use crate::svg::{
    Anchor, Drawing, Scale, Swatch, WIDTH, across, group, hatch, rect, text, tooltip, whisker, width_of,
};
use crate::view::{StratumView, phases};

const HEIGHT: f64 = 19.0;

pub(super) fn figure(stratum: &StratumView<'_>, id: &str) -> Option<Figure> {
    // The table decides whether there is anything to show.
    let section = phases::section(stratum)?;
    let unit = scale(Metric::LatencyNsMean, highest(stratum, &[Metric::LatencyNsMean]));
    let axis = Scale::linear((0.0, highest(stratum, &[Metric::LatencyNsMean]) / unit.0), (0.0, WIDTH - 8.0));
    let mut drawing = Drawing::default();
    for cell in stratum.cells() {
        let Some(total) = level(cell, Metric::LatencyNsMean) else { continue };
        drawing.caption(&stratum.row_label(cell), &measured_in(unit, total), "");
        let top = drawing.advance(HEIGHT + 13.0);
        bar(&mut drawing, cell, top, &axis, unit);
        let (low, high) = (axis.at(total.low() / unit.0), axis.at(total.high() / unit.0));
        drawing.mark(whisker(low, high, top + HEIGHT + 5.0, "total"));
    }
    drawing.behind(across(&axis, 0.0, drawing.bottom(), unit.1.trim()));
    drawing.advance(16.0);
    let engine = stratum.cell().treatment.server.engine;
    let phases = Phase::in_order_of(engine).into_iter().filter(|phase| happens(stratum, *phase));
    drawing.key(phases.map(|phase| swatch(phase, engine)));
    let heading = "Breakdown of connect time".to_owned();
    let description = format!(
        "Stacked bars, one for each path, of the mean duration of each phase. Totals: {}.",
        in_words(stratum, Metric::LatencyNsMean)
    );
    let id = format!("{id}-phases");
    let totals = stratum.cells().filter_map(|cell| level(cell, Metric::LatencyNsMean));
    Some(Figure {
        picture: drawing.finish(&id, &format!("{heading}, {}", stratum.name()), &description),
        id,
        heading,
        reading: format!("Mean duration of each phase, in order; {}.", whiskers(totals, TOTAL_WHISKER)),
        numbers: section.table?,
        notes: section.notes,
    })
}

fn happens(stratum: &StratumView<'_>, phase: Phase) -> bool {
    stratum.cells().any(|cell| level(cell, Metric::of_phase(phase)).is_some())
}

fn bar(drawing: &mut Drawing, cell: &CellAnalysis, top: f64, axis: &Scale, unit: (f64, &str)) {
    const GAP: f64 = 1.5;
    /// Bold letters are wider.
    const BOLD: f64 = 1.08;
    let mut spent = 0.0;
    let engine = cell.cell.treatment.server.engine;
    for phase in Phase::in_order_of(engine) {
        let metric = Metric::of_phase(phase);
        let Some(estimate) = level(cell, metric) else { continue };
        let left = axis.at(spent / unit.0);
        spent += estimate.value;
        // Even the shortest phase is visible.
        let width = (axis.at(spent / unit.0) - left - GAP).max(0.8);
        let (class, name) = look(phase);
        let mut part = group("mark")
            .child(tooltip(format!("{}: {}", phases::title(phase, engine), measured_in(unit, estimate))))
            .child(rect(left, top, width, HEIGHT, class));
        if is_hatched(phase) {
            part = part.child(hatch(left, top, width, HEIGHT, "hatch"));
        } else if width_of(name) * BOLD < width {
            part = part.child(text(left + width / 2.0, top + 13.5, Anchor::Middle, "inside", name));
        }
        drawing.mark(part);
    }
}

fn swatch(phase: Phase, engine: Engine) -> Swatch {
    let (class, _) = look(phase);
    let mut swatch = Swatch::filled(class, phases::title(phase, engine));
    if is_hatched(phase) {
        swatch.marks.push(hatch(0.0, 0.0, 13.0, 12.0, "hatch"));
    }
    swatch
}

/// The class of a phase and its short name.
fn look(phase: Phase) -> (&'static str, &'static str) {
    match phase {
        Phase::Dns => ("phase-ready", "DNS"),
        Phase::TcpConnect => ("phase-net", "TCP"),
        Phase::ServerGreeting => ("phase-greeting", "greeting"),
        Phase::TlsContext => ("phase-context", "context"),
        Phase::TlsRequest => ("phase-request", "request"),
        Phase::TlsHandshake => ("phase-handshake", "handshake"),
        Phase::Auth => ("phase-auth", "auth"),
        Phase::Ready => ("phase-ready", "ready"),
        Phase::FirstQuery => ("phase-query", "query"),
        Phase::Close => ("phase-net", "close"),
    }
}

/// Hatched next to a phase of nearly the same colour.
fn is_hatched(phase: Phase) -> bool {
    matches!(phase, Phase::ServerGreeting | Phase::TlsRequest | Phase::Ready | Phase::Close)
}
