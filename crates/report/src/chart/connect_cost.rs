//! The breakdown of connect time by key and version: a chart for each server, a bar for each path.

use ciphertoll_model::Metric;

use super::{Figure, TOTAL_WHISKER, whiskers};
use crate::number::{measured, measured_in, percent, quantity, scale, uncertainty};
use crate::svg::{
    Anchor, Drawing, Scale, Swatch, WIDTH, across, group, hatch, rect, text, tooltip, whisker, width_of,
};
use crate::view::connect_cost::{self, Bar, CostPart, ServerCosts};
use crate::view::{Column, ColumnKind, Overflow, Sentence, Table, TableEntry};
use crate::{RunReport, names};

const HEIGHT: f64 = 19.0;
const TIME: Metric = Metric::LatencyNsMean;

/// A chart for each server, each with its own axis, because shares are compared.
pub(crate) fn of_servers(report: &RunReport<'_>, costs: &[ServerCosts<'_>]) -> Vec<Figure> {
    let id = |index: usize| format!("connect-cost-{}", index + 1);
    costs.iter().enumerate().map(|(index, costs)| figure(report, costs, &id(index))).collect()
}

fn figure(report: &RunReport<'_>, costs: &ServerCosts<'_>, id: &str) -> Figure {
    let highest = costs.bars.iter().map(|bar| bar.total.high()).fold(0.0, f64::max);
    let unit = scale(TIME, highest);
    let axis = Scale::linear((0.0, highest / unit.0), (0.0, WIDTH - 8.0));
    let mut drawing = Drawing::default();
    for bar in &costs.bars {
        drawing.caption(&bar.label, &measured_in(unit, bar.total), "");
        let top = drawing.advance(HEIGHT + 13.0);
        drawn(&mut drawing, bar, top, &axis, unit);
        let (low, high) = (axis.at(bar.total.low() / unit.0), axis.at(bar.total.high() / unit.0));
        drawing.mark(whisker(low, high, top + HEIGHT + 5.0, "total"));
    }
    drawing.behind(across(&axis, 0.0, drawing.bottom(), unit.1.trim()));
    drawing.advance(16.0);
    drawing.key(costs.parts().map(swatch));
    let heading = names::server(report, costs.server);
    let concurrency = costs.bars.first().map_or_else(String::new, |bar| names::concurrency(&bar.cell.cell));
    let title = format!("Breakdown of connect time, {heading}, at {concurrency}");
    let mut notes: Vec<Sentence> =
        connect_cost::sentence(report, costs).map(Sentence::neutral).into_iter().collect();
    notes.extend(connect_cost::remarks(costs));
    Figure {
        picture: drawing.finish(id, &title, &in_words(costs)),
        id: id.to_owned(),
        heading,
        reading: format!(
            "Mean time of a connect at {concurrency}, its parts in order, and their shares where there is room; \
             {}.",
            whiskers(costs.bars.iter().map(|bar| bar.total), TOTAL_WHISKER)
        ),
        numbers: table(costs),
        notes,
    }
}

fn drawn(drawing: &mut Drawing, bar: &Bar<'_>, top: f64, axis: &Scale, unit: (f64, &str)) {
    const GAP: f64 = 1.5;
    /// Bold letters are wider.
    const BOLD: f64 = 1.08;
    let mut spent = 0.0;
    for (part, of_part) in &bar.parts {
        let left = axis.at(spent / unit.0);
        spent += of_part;
        // Even the shortest part is visible.
        let width = (axis.at(spent / unit.0) - left - GAP).max(0.8);
        let share = percent(of_part / bar.total.value);
        let (class, name) = look(*part);
        let mut mark = group("mark")
            .child(tooltip(format!("{}: {}, {share}", part.title(), quantity(TIME, *of_part))))
            .child(rect(left, top, width, HEIGHT, class));
        let names = [format!("{name} {share}"), name.to_owned(), share];
        if is_hatched(*part) {
            mark = mark.child(hatch(left, top, width, HEIGHT, "hatch"));
        } else if let Some(name) = names.into_iter().find(|name| width_of(name) * BOLD < width) {
            mark = mark.child(text(left + width / 2.0, top + 13.5, Anchor::Middle, "inside", name));
        }
        drawing.mark(mark);
    }
}

fn swatch(part: CostPart) -> Swatch {
    let mut swatch = Swatch::filled(look(part).0, part.title());
    if is_hatched(part) {
        swatch.marks.push(hatch(0.0, 0.0, 13.0, 12.0, "hatch"));
    }
    swatch
}

/// The class of a part and its short name. Parts of a phase have its colour.
fn look(part: CostPart) -> (&'static str, &'static str) {
    match part {
        CostPart::Network => ("phase-net", "TCP"),
        CostPart::TlsContext => ("phase-context", "context"),
        CostPart::Signature => ("cost-signature", "signature"),
        CostPart::Chain => ("cost-signature", "chain"),
        CostPart::KeyExchange => ("cost-exchange", "key exchange"),
        CostPart::OtherHandshake => ("phase-handshake", "other"),
        CostPart::Authentication => ("phase-auth", "auth"),
        CostPart::Close => ("phase-net", "close"),
    }
}

/// Hatched if another part has the same colour.
fn is_hatched(part: CostPart) -> bool {
    matches!(part, CostPart::Chain | CostPart::Close)
}

/// `tls1.3-p256 612 µs ±1.8 %: signature 13 %, key exchange 20 %; …`: the text alternative of the chart.
fn in_words(costs: &ServerCosts<'_>) -> String {
    let share =
        |part: CostPart, bar: &Bar<'_>| Some(format!("{} {}", part.title(), percent(bar.share(part)?)));
    let words = |bar: &Bar<'_>| {
        let shares: Vec<String> = costs.parts().filter_map(|part| share(part, bar)).collect();
        format!("{} {}: {}", bar.label, measured(TIME, bar.total), shares.join(", "))
    };
    let bars: Vec<String> = costs.bars.iter().map(words).collect();
    format!("Stacked bars, one for each path, of the parts of the mean connect time. {}.", bars.join("; "))
}

fn table(costs: &ServerCosts<'_>) -> Table {
    let parts: Vec<CostPart> = costs.parts().collect();
    let entry = |bar: &Bar<'_>, part: &CostPart| match (bar.parts.get(part), bar.share(*part)) {
        (Some(spent), Some(share)) => TableEntry::new([quantity(TIME, *spent), percent(share)]),
        _ => TableEntry::absent(),
    };
    let row = |bar: &Bar<'_>| {
        let total = TableEntry::new([quantity(TIME, bar.total.value), uncertainty(TIME, bar.total)]);
        let parts = parts.iter().map(|part| entry(bar, part));
        std::iter::once(TableEntry::new([bar.label.clone()])).chain(parts).chain([total]).collect()
    };
    let factors: Vec<&str> = costs.rows.iter().map(|factor| factor.label()).collect();
    let columns = parts.iter().map(|part| Column::new(ColumnKind::Level, part.title()));
    Table {
        columns: std::iter::once(Column::new(ColumnKind::Label, &factors.join(", ")))
            .chain(columns)
            .chain([Column::new(ColumnKind::Level, TIME.title())])
            .collect(),
        rows: costs.bars.iter().map(row).collect(),
        overflow: Overflow::SplitKinds,
    }
}
