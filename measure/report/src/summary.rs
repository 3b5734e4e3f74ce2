//! The end of a run in at most 25 lines: what encryption costs, what to do, how sure, and what to type next.

use ciphertoll_model::Ending;
use ciphertoll_model::plan::MIN_BLOCKS_FOR_VERDICTS;
use ciphertoll_stats::assemble::TrialCounts;
use ciphertoll_stats::headline_metrics;

use crate::number::{effect, plural};
use crate::terminal::Canvas;
use crate::view::{self, Sentence, StratumView, Table, advice, decision, matrix, verdicts};
use crate::{RunReport, Style};

/// A terminal of 80 × 25 shows all of it.
pub(crate) const MOST_LINES: usize = 25;
/// What the parts around the table need.
const LINES_AFTER_TABLE: usize = 11;

/// The summary for a terminal of `width` columns; ends in a newline.
pub fn summary(report: &RunReport<'_>, style: Style, width: u16) -> String {
    let canvas = Canvas::new(style, width);
    let strata = view::strata(report);
    let mut lines = canvas.heading(&verdicts::title(report));
    let banner = verdicts::banner(report, &strata);
    lines.extend(banner.iter().take(1).flat_map(|sentence| canvas.plain_sentence(sentence)));
    let mut findings = view::key_exchange::sentences(report, &strata);
    findings.extend(view::profile::sentences(report));
    let findings: Vec<String> =
        findings.iter().flat_map(|sentence| canvas.plain_sentence(sentence)).collect();
    let room = MOST_LINES.saturating_sub(lines.len() + LINES_AFTER_TABLE.max(5 + findings.len()));
    lines.extend(costs(&canvas, report, &strata, room));
    let published = view::published::of_report(report).map(|study| study.answer);
    lines.extend(published.iter().flat_map(|sentence| canvas.plain_sentence(sentence)));
    lines.extend(findings);
    let mut end = canvas.plain_sentence(&Sentence::neutral(how_sure(report, &strata)));
    end.extend(next_steps(report).iter().map(|line| canvas.faint(line)));
    let room = MOST_LINES.saturating_sub(lines.len() + end.len());
    lines.extend(what_to_do(&canvas, report, &strata, room));
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

/// The matrix in its short form, as many rows as fit, or sentences if it does not fit into the width.
fn costs(canvas: &Canvas, report: &RunReport<'_>, strata: &[StratumView<'_>], room: usize) -> Vec<String> {
    let table = matrix::short(strata).and_then(|table| shortened(canvas, &table, room));
    if let Some(lines) = table {
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

/// As many rows and columns as fit.
fn shortened(canvas: &Canvas, table: &Table, room: usize) -> Option<Vec<String>> {
    let (mut lines, columns) = canvas.first_columns(table)?;
    let headings = lines.len() - table.rows.len();
    let rows = room.checked_sub(headings + 1).filter(|rows| *rows > 0)?.min(table.rows.len());
    lines.truncate(headings + rows);
    let left_out = [(table.rows.len() - rows, "more configuration"), (columns, "more load")];
    let left_out: Vec<String> = left_out
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| plural(count as u64, what))
        .collect();
    if !left_out.is_empty() {
        lines.push(format!("… and {}", left_out.join(", ")));
    }
    Some(lines)
}

/// The decisions of the cost model, or the advice from the verdicts if the run lacks its terms. Savings that do
/// not fit are left out, the last ones first.
fn what_to_do(
    canvas: &Canvas,
    report: &RunReport<'_>,
    strata: &[StratumView<'_>],
    room: usize,
) -> Vec<String> {
    let decisions = decision::decisions(report);
    let mut choices: Vec<Vec<String>> = Vec::new();
    let mut savings: Vec<(usize, Vec<String>)> = Vec::new();
    if let Some(found) = advice::advice(strata).filter(|_| decisions.is_empty()) {
        choices.push(
            canvas.plain_sentence(&Sentence::neutral(format!("Switch on {}. {}", found.choice, found.why))),
        );
        let saving = found.saving.map(|saving| canvas.group_sentence(&Sentence::neutral(saving)));
        savings.extend(saving.map(|lines| (0, lines)));
    }
    for (number, found) in decisions.iter().enumerate() {
        let place = found.server.as_ref().map_or(String::new(), |server| format!("{server}: "));
        choices.push(canvas.plain_sentence(&Sentence::neutral(format!("{place}{}", found.choice))));
        let sentences = found.savings.iter().map(|saving| Sentence::neutral(saving.as_str()));
        savings.extend(sentences.map(|saving| (number, canvas.group_sentence(&saving))));
    }
    let lines_of = |savings: &[(usize, Vec<String>)]| {
        let lines = choices.iter().chain(savings.iter().map(|(_, lines)| lines)).map(Vec::len);
        1 + lines.sum::<usize>()
    };
    while !savings.is_empty() && lines_of(&savings) > room {
        savings.pop();
    }
    let mut lines = Vec::new();
    for (number, choice) in choices.iter().enumerate() {
        lines.extend(choice.iter().cloned());
        let of_choice = savings.iter().filter(|(of, _)| *of == number);
        lines.extend(of_choice.flat_map(|(_, lines)| lines.iter().cloned()));
    }
    if !lines.is_empty() {
        lines.insert(0, canvas.bold(WHAT_TO_DO));
    }
    lines.truncate(room);
    lines
}

/// `21 of 134 trials were disturbed or repeated; differences below 9 % are not claimed (noise floor).`
fn how_sure(report: &RunReport<'_>, strata: &[StratumView<'_>]) -> String {
    let TrialCounts { attempts, voided, flagged } = report.facts.trials.counts();
    let trials = match (voided, flagged) {
        _ if attempts == 0 => "no trial counts yet".to_owned(),
        (0, 0) => format!("none of {attempts} trials was disturbed"),
        (0, _) => format!("{flagged} of {attempts} trials were disturbed"),
        _ => format!("{} of {attempts} trials were disturbed, {voided} of them repeated", voided + flagged),
    };
    let floor = strata.iter().filter_map(|stratum| {
        let metric = headline_metrics(stratum.cell()).first()?;
        stratum.noise_floor_of(*metric)
    });
    let floor = floor.max_by(f64::total_cmp);
    let floor = floor.map_or(String::new(), |floor| {
        format!("; differences below {} are not claimed (noise floor)", effect(floor))
    });
    let verdicts = if report.analysis.blocks_completed < MIN_BLOCKS_FOR_VERDICTS {
        format!("; no verdicts and no advice before {MIN_BLOCKS_FOR_VERDICTS} blocks")
    } else {
        String::new()
    };
    format!("How sure: {trials}{floor}{verdicts}.")
}

fn next_steps(report: &RunReport<'_>) -> [String; 3] {
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
            "Your load: ciphertoll run calibrate, then ciphertoll advise calibrate --connects 500/s"
                .to_owned()
        },
    ]
}
