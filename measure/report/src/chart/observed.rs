//! The breakdown of connect time as it was observed: a bar for each pair, a part for each phase.

use ciphertoll_model::{Metric, Phase};
use ciphertoll_observe::{Observation, Pair, PhaseTime};

use super::bars::{self, BarNames, BarPart};
use super::figure::{Figure, pictures};
use super::phases::{is_hatched, look};
use crate::number::significant;
use crate::observed::{
    sections,
    words::{phase_named, place_of},
};
use crate::svg::{Drawing, Scale, across};

/// More bars cannot be compared by eye.
const MOST_BARS: usize = 12;

/// `most` is the largest number of rows of the table.
pub(crate) fn connect_phases(observation: &Observation, most: usize) -> Option<Figure> {
    let section = sections::phases(observation, most)?;
    let connected = observation.pairs.iter().filter(|pair| sum_ms(pair) > 0.0);
    let pairs: Vec<&Pair> = connected.take(MOST_BARS).collect();
    if pairs.is_empty() {
        return None;
    }
    let heading = "Breakdown of connect time".to_owned();
    let totals: Vec<_> = pairs.iter().map(|pair| format!("{} {}", place_of(pair), total(pair))).collect();
    let description = format!(
        "Stacked bars, one for each pair, of the median duration of each phase. {}.",
        totals.join("; ")
    );
    let id = "observed-phases".to_owned();
    let pictures = pictures(&id, &heading, &description, |drawing| draw(drawing, &pairs));
    Some(Figure {
        pictures,
        id,
        heading,
        reading: "Median duration of each phase, in order, as the client sees it. The number is the median of the whole \
                  connect, without the first query; medians of phases need not add up to it."
            .to_owned(),
        numbers: section.table?,
        notes: section.notes,
    })
}

fn draw(drawing: &mut Drawing, pairs: &[&Pair]) {
    let highest = pairs.iter().map(|pair| sum_ms(pair)).fold(0.0, f64::max);
    let axis = Scale::linear((0.0, highest), (0.0, drawing.width() - 8.0));
    for pair in pairs {
        drawing.caption(&place_of(pair), &total(pair), "");
        let top = drawing.advance(bars::HEIGHT + 8.0);
        let mut spent = 0.0;
        for time in &pair.phases {
            let left = axis.at(spent);
            spent += time.ms.median.max(0.0);
            let width = (axis.at(spent) - left - bars::GAP).max(bars::NARROWEST);
            drawing.mark(part(time).drawn(left, top, width, BarNames::Centred));
        }
    }
    drawing.behind(across(&axis, (0.0, drawing.bottom()), drawing.width(), "ms"));
    drawing.advance(16.0);
    let happens =
        |phase: &Phase| pairs.iter().any(|pair| pair.phases.iter().any(|time| known(time) == Some(*phase)));
    let shown = Phase::ALL.into_iter().filter(happens);
    drawing.key(
        shown.map(|phase| bars::swatch(look(phase).0, Metric::of_phase(phase).title(), is_hatched(phase))),
    );
}

fn part(time: &PhaseTime) -> BarPart {
    let phase = known(time);
    let (class, name) = phase.map_or(("phase-net", "other"), look);
    let title = phase.map_or(name, |phase| Metric::of_phase(phase).title());
    BarPart {
        size: time.ms.median,
        class,
        names: vec![name.to_owned()],
        tooltip: format!("{title}: {} ms", significant(time.ms.median)),
        is_hatched: phase.is_some_and(is_hatched),
    }
}

fn known(time: &PhaseTime) -> Option<Phase> {
    phase_named(&time.phase)
}

fn sum_ms(pair: &Pair) -> f64 {
    pair.phases.iter().map(|time| time.ms.median.max(0.0)).sum()
}

fn total(pair: &Pair) -> String {
    pair.connect_ms.map(|times| format!("{} ms", significant(times.median))).unwrap_or_default()
}
