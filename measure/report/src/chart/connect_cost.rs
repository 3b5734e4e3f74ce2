//! The breakdown of connect time by key and version: a chart for each server, a bar for each path.

use ciphertoll_model::Metric;

use super::bars::{self, BarNames, BarPart, StackedBar};
use super::figure::{Figure, TOTAL_WHISKER, pictures, whiskers};
use crate::number::{measured, percent, quantity, scale, uncertainty};
use crate::view::connect_cost::{self, Bar, CostPart, ServerCosts};
use crate::view::{Column, ColumnKind, Sentence, Table, TableEntry};
use crate::{RunReport, names};

const TIME: Metric = Metric::LatencyNsMean;

/// A chart for each server, each with its own axis, because shares are compared.
pub(crate) fn of_servers(report: &RunReport<'_>, costs: &[ServerCosts<'_>]) -> Vec<Figure> {
    let id = |index: usize| format!("connect-cost-{}", index + 1);
    costs.iter().enumerate().map(|(index, costs)| figure(report, costs, &id(index))).collect()
}

fn figure<'a>(report: &RunReport<'_>, costs: &ServerCosts<'a>, id: &str) -> Figure {
    let highest = costs.bars.iter().map(|bar| bar.total.high()).fold(0.0, f64::max);
    let unit = scale(TIME, highest);
    let bar = |bar: &Bar<'a>| StackedBar {
        label: bar.label.clone(),
        total: bar.total,
        parts: bar.parts.iter().map(|(part, spent)| bar_part(bar, *part, *spent)).collect(),
    };
    let bars: Vec<StackedBar<'_>> = costs.bars.iter().map(bar).collect();
    let heading = names::server(report, costs.server);
    let concurrency = costs.bars.first().map_or_else(String::new, |bar| names::concurrency(&bar.cell.cell));
    let title = format!("Breakdown of connect time, {heading}, at {concurrency}");
    let mut notes: Vec<Sentence> =
        connect_cost::sentence(report, costs).map(Sentence::neutral).into_iter().collect();
    notes.extend(connect_cost::remarks(costs));
    Figure {
        pictures: pictures(id, &title, &in_words(costs), |drawing| {
            bars::draw(drawing, &bars, unit, BarNames::Centred);
            drawing.key(costs.parts().map(|part| bars::swatch(look(part).0, part.title(), is_hatched(part))));
        }),
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

fn bar_part(bar: &Bar<'_>, part: CostPart, spent: f64) -> BarPart {
    let share = percent(spent / bar.total.value);
    let (class, name) = look(part);
    BarPart {
        size: spent,
        class,
        names: vec![format!("{name} {share}"), name.to_owned(), share.clone()],
        tooltip: format!("{}: {}, {share}", part.title(), quantity(TIME, spent)),
        is_hatched: is_hatched(part),
    }
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
        (bar.label.clone(), parts.chain([total]).collect())
    };
    let titles = parts.iter().map(|part| part.title()).chain([TIME.title()]);
    let columns = titles.map(|title| Column::new(ColumnKind::Level, title));
    Table::new(&names::factors(&costs.rows), columns, costs.bars.iter().map(row))
}
