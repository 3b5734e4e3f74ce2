//! The end of a run in at most 25 lines: what encryption costs, what to do, how sure, and what to type next.

use ciphertoll_model::Ending;

use crate::costs::calibration;
use crate::number::plural;
use crate::terminal::Canvas;
use crate::view::headline::headline;
use crate::view::matrix::{Ranked, Rows, Spread};
use crate::view::{self, Sentence, StratumView, Table, advice, certainty, decision, matrix, verdicts};
use crate::{RunReport, Style};

/// A terminal of 80 × 25 shows all of it.
pub(crate) const MOST_LINES: usize = 25;
/// Banners that are shown: how the run ended, and whether it was disturbed.
const BANNERS: usize = 2;
/// The table gets at least as many lines, if it needs them.
const LEAST_TABLE: usize = 9;

/// The summary for a terminal of `width` columns; ends in a newline. The order is that of the page's first screen.
pub fn summary(report: &RunReport<'_>, style: Style, width: u16) -> String {
    let canvas = Canvas::new(style, width);
    let strata = view::strata(report);
    let mut lines = canvas.heading(&verdicts::title(report));
    let banner = verdicts::banner(report, &strata);
    lines.extend(banner.iter().take(BANNERS).flat_map(|sentence| canvas.plain_sentence(sentence)));
    let answer = headline(report, &strata, advice::advice(&strata).as_ref());
    lines.extend(answer.iter().flat_map(|answer| canvas.plain_sentence(&Sentence::neutral(answer.as_str()))));
    let mut end = view::key_exchange::sentences(report, &strata);
    end.extend(view::profile::sentences(report));
    end.extend(view::published::of_report(report).map(|study| study.answer));
    end.push(Sentence::neutral(certainty::how_sure(report, &strata)));
    let mut end: Vec<String> = end.iter().flat_map(|sentence| canvas.plain_sentence(sentence)).collect();
    let machine =
        certainty::machine(report).map(|machine| canvas.plain_sentence(&machine)).unwrap_or_default();
    if lines.len() + LEAST_TABLE + end.len() + machine.len() + NEXT_STEPS <= MOST_LINES {
        end.extend(machine);
    }
    end.extend(next_steps(report).iter().map(|line| canvas.faint(line)));
    let choices = what_to_do(&canvas, report, &strata, Savings::First);
    let room = MOST_LINES.saturating_sub(lines.len() + choices.len() + end.len());
    lines.extend(costs(&canvas, report, &strata, room.max(LEAST_TABLE)));
    let room = MOST_LINES.saturating_sub(lines.len() + end.len());
    let mut to_do = what_to_do(&canvas, report, &strata, Savings::Within(room));
    to_do.truncate(room);
    lines.extend(to_do);
    lines.truncate(MOST_LINES.saturating_sub(end.len()));
    lines.extend(end);
    space_out(&mut lines, &[canvas.bold(WHAT_TO_DO), canvas.faint(&next_steps(report)[0])]);
    let mut text = lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n");
    text.push('\n');
    text
}

const WHAT_TO_DO: &str = "What to do";

/// Puts an empty line before each of `starts`, if there is room for it.
fn space_out(lines: &mut Vec<String>, starts: &[String]) {
    for start in starts {
        if let Some(at) = lines.iter().position(|line| line == start).filter(|_| lines.len() < MOST_LINES) {
            lines.insert(at, String::new());
        }
    }
}

/// The matrix with its legend, or sentences if it does not fit into the width.
fn costs(canvas: &Canvas, report: &RunReport<'_>, strata: &[StratumView<'_>], room: usize) -> Vec<String> {
    if let Some(lines) = matrix_within(canvas, strata, room) {
        return lines;
    }
    let sentences = verdicts::groups(report, strata).into_iter().flat_map(|group| group.sentences);
    let lines: Vec<Vec<String>> = sentences.map(|sentence| canvas.plain_sentence(&sentence)).collect();
    let mut shown = Vec::new();
    for (number, sentence) in lines.iter().enumerate() {
        if shown.len() + sentence.len() >= room {
            shown.push(format!("… and {}", plural((lines.len() - number) as u64, "more comparison")));
            break;
        }
        shown.extend(sentence.iter().cloned());
    }
    shown
}

/// The layouts of the matrix, the most readable first.
const LAYOUTS: [(Rows, Spread); 7] = [
    (Rows::Configurations, Spread::Limits),
    (Rows::Loads, Spread::Limits),
    (Rows::Configurations, Spread::PlusMinus),
    (Rows::Loads, Spread::PlusMinus),
    (Rows::Loads, Spread::LargerSide),
    (Rows::Loads, Spread::Below),
    (Rows::Configurations, Spread::Below),
];

/// The first layout that fits as a whole, or the one that shows most.
fn matrix_within(canvas: &Canvas, strata: &[StratumView<'_>], room: usize) -> Option<Vec<String>> {
    let mut best: Option<Fitted> = None;
    for (rows, spread) in LAYOUTS {
        let fitted = fitted(canvas, strata, &matrix::ranked(strata, rows, spread)?, rows, room);
        if let Some(fitted) = fitted
            && best.as_ref().is_none_or(|best| fitted.value() > best.value())
        {
            best = Some(fitted);
        }
    }
    best.map(|fitted| fitted.lines)
}

struct Fitted {
    lines: Vec<String>,
    /// Compared configurations.
    configurations: usize,
    loads: usize,
}

impl Fitted {
    /// Two compared configurations come before more loads; otherwise what shows more fields is better.
    fn value(&self) -> (usize, usize) {
        (self.configurations.min(2), self.configurations.max(1) * self.loads)
    }
}

/// Leaves out the columns that matter least until the width is enough, then the rows until the lines are.
fn fitted(
    canvas: &Canvas,
    strata: &[StratumView<'_>],
    ranked: &Ranked,
    rows: Rows,
    room: usize,
) -> Option<Fitted> {
    let legend = legend(canvas, strata, &ranked.table);
    let mut columns = ranked.columns.len();
    let mut count = ranked.rows.len();
    while columns > 0 && count > 0 {
        let table = matrix::keep(ranked, count, columns);
        let left_out = left_out(rows, ranked.rows.len() - count, ranked.columns.len() - columns);
        match canvas.fitting(&table) {
            None => columns -= 1,
            Some(lines) if lines.len() + left_out.iter().len() + legend.len() > room => count -= 1,
            Some(lines) => {
                let lines = lines.into_iter().chain(left_out).chain(legend).collect();
                let (configurations, loads) = match rows {
                    Rows::Configurations => (count - 1, columns),
                    Rows::Loads => (columns - 1, count),
                };
                return Some(Fitted { lines, configurations, loads });
            }
        }
    }
    None
}

/// `… and 2 more loads, with smaller differences`.
fn left_out(rows: Rows, lost_rows: usize, lost_columns: usize) -> Option<String> {
    let (configurations, loads) = match rows {
        Rows::Configurations => (lost_rows, lost_columns),
        Rows::Loads => (lost_columns, lost_rows),
    };
    let parts = [(configurations, "more configuration"), (loads, "more load")];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts.map(|(count, what)| plural(count as u64, what)).collect();
    (!parts.is_empty()).then(|| format!("… and {}, with smaller differences", parts.join(", ")))
}

/// `▲ costs more, ▼ costs less; × is latency ÷ that of plain`.
fn legend(canvas: &Canvas, strata: &[StratumView<'_>], table: &Table) -> Vec<String> {
    let marks = matrix::legend(table).into_iter().map(|(tone, meaning)| format!("{} {meaning}", tone.mark()));
    let marks = marks.collect::<Vec<_>>().join(", ");
    let parts: Vec<String> =
        [marks].into_iter().filter(|marks| !marks.is_empty()).chain(matrix::reading(strata)).collect();
    canvas.faint_lines(&parts.join("; "))
}

#[derive(Clone, Copy)]
enum Savings {
    /// The first one of each choice.
    First,
    /// As many as fit into so many lines.
    Within(usize),
}

/// The decisions of the cost model, or the advice from the verdicts if the run lacks its terms. The first saving of
/// each server comes before the second one of any.
fn what_to_do(
    canvas: &Canvas,
    report: &RunReport<'_>,
    strata: &[StratumView<'_>],
    shown: Savings,
) -> Vec<String> {
    let decisions = decision::decisions(report);
    let mut choices: Vec<Vec<String>> = Vec::new();
    // By number of the choice and rank of the saving.
    let mut savings: Vec<((usize, usize), Vec<String>)> = Vec::new();
    if let Some(found) = advice::advice(strata).filter(|_| decisions.is_empty()) {
        choices.push(
            canvas.plain_sentence(&Sentence::neutral(format!("Switch on {}. {}", found.choice, found.why))),
        );
        let saving = found.saving.map(|saving| canvas.group_sentence(&Sentence::neutral(saving)));
        savings.extend(saving.map(|lines| ((0, 0), lines)));
    }
    for (number, found) in decisions.iter().enumerate() {
        let place = found.server.as_ref().map_or(String::new(), |server| format!("{server}: "));
        choices.push(canvas.plain_sentence(&Sentence::neutral(format!("{place}{}", found.choice))));
        let sentences = found.savings.iter().map(|saving| Sentence::neutral(saving.as_str())).enumerate();
        savings.extend(sentences.map(|(rank, saving)| ((number, rank), canvas.group_sentence(&saving))));
    }
    savings.sort_by_key(|((_, rank), _)| *rank);
    let mut room = match shown {
        Savings::First => {
            savings.iter().filter(|((_, rank), _)| *rank == 0).map(|(_, lines)| lines.len()).sum()
        }
        Savings::Within(room) => room.saturating_sub(1 + choices.iter().map(Vec::len).sum::<usize>()),
    };
    savings.retain(|(_, lines)| {
        let fits = lines.len() <= room;
        room = if fits { room - lines.len() } else { 0 };
        fits
    });
    let mut lines = Vec::new();
    for (number, choice) in choices.iter().enumerate() {
        lines.extend(choice.iter().cloned());
        let of_choice = savings.iter().filter(|((of, _), _)| *of == number);
        lines.extend(of_choice.flat_map(|(_, lines)| lines.iter().cloned()));
    }
    if !lines.is_empty() {
        lines.insert(0, canvas.bold(WHAT_TO_DO));
    }
    lines
}

const NEXT_STEPS: usize = 3;

fn next_steps(report: &RunReport<'_>) -> [String; NEXT_STEPS] {
    let run = report.run;
    let calibrate = report.plan.name == "calibrate";
    let is_complete = matches!(report.facts.ending, Some(Ending::Complete));
    [
        format!("Details:   ciphertoll report {run}"),
        format!("Page:      ciphertoll report {run} --format html -o report.html"),
        if !is_complete {
            format!("Continue:  ciphertoll resume {run}")
        } else if calibrate {
            format!("Advice:    ciphertoll advise {run} --connects 500/s --queries-per-connection 3")
        } else {
            let of_url = report.plan.servers().into_iter().find(|server| server.url.is_some());
            let command = of_url.map_or_else(|| "ciphertoll run calibrate".to_owned(), calibration);
            format!("Your load: {command}, then ciphertoll advise calibrate --connects 500/s")
        },
    ]
}
