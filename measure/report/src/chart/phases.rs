//! The breakdown of connect time: a bar for each path, a part for each phase.

use ciphertoll_model::{Metric, Phase};
use ciphertoll_stats::CellAnalysis;

use super::bars::{self, BarNames, BarPart, StackedBar};
use super::figure::{Figure, TOTAL_WHISKER, highest, in_words, pictures, whiskers};
use crate::number::{measured_in, scale};
use crate::view::{StratumView, level, phases};

const TIME: Metric = Metric::LatencyNsMean;

pub(super) fn figure(stratum: &StratumView<'_>, id: &str) -> Option<Figure> {
    // The table decides whether there is anything to show.
    let section = phases::section(stratum)?;
    let unit = scale(TIME, highest(stratum, &[TIME]));
    let bars: Vec<StackedBar<'_>> = stratum.cells().filter_map(|cell| bar(stratum, cell, unit)).collect();
    let engine = stratum.cell().treatment.server.engine;
    let happens = |phase: &Phase| stratum.cells().any(|cell| level(cell, Metric::of_phase(*phase)).is_some());
    let shown: Vec<Phase> = Phase::in_order_of(engine).into_iter().filter(happens).collect();
    let swatch =
        |phase: &Phase| bars::swatch(look(*phase).0, phases::title(*phase, engine), is_hatched(*phase));
    let heading = "Breakdown of connect time".to_owned();
    let description = format!(
        "Stacked bars, one for each path, of the mean duration of each phase. Totals: {}.",
        in_words(stratum, TIME)
    );
    let id = format!("{id}-phases");
    let pictures = pictures(&id, &format!("{heading}, {}", stratum.name()), &description, |drawing| {
        bars::draw(drawing, &bars, unit, BarNames::Centred);
        drawing.key(shown.iter().map(swatch));
    });
    let totals = bars.iter().map(|bar| bar.total);
    Some(Figure {
        pictures,
        id,
        heading,
        reading: format!("Mean duration of each phase, in order; {}.", whiskers(totals, TOTAL_WHISKER)),
        numbers: section.table?,
        notes: section.notes,
    })
}

fn bar<'a>(stratum: &StratumView<'a>, cell: &'a CellAnalysis, unit: (f64, &str)) -> Option<StackedBar<'a>> {
    let engine = cell.cell.treatment.server.engine;
    let part = |phase: Phase| {
        let estimate = level(cell, Metric::of_phase(phase))?;
        let (class, name) = look(phase);
        let tooltip = format!("{}: {}", phases::title(phase, engine), measured_in(unit, estimate));
        let (size, names, is_hatched) = (estimate.value, vec![name.to_owned()], is_hatched(phase));
        Some(BarPart { size, class, names, tooltip, is_hatched })
    };
    let parts = Phase::in_order_of(engine).into_iter().filter_map(part).collect();
    Some(StackedBar { label: stratum.row_label(cell), total: level(cell, TIME)?, parts })
}

/// The class of a phase and its short name.
pub(super) fn look(phase: Phase) -> (&'static str, &'static str) {
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
pub(super) fn is_hatched(phase: Phase) -> bool {
    matches!(phase, Phase::ServerGreeting | Phase::TlsRequest | Phase::Ready | Phase::Close)
}
