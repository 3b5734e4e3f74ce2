//! The report as a short Markdown comment for code hosts.

use std::fmt::Write as _;

use crate::RunReport;
use crate::cost_ratio::{cost, noun_of};
use crate::number::{is_certain, ratio, ratio_interval};
use crate::view::decision::{self, Decision};
use crate::view::published::StudyView;
use crate::view::repeat;
use crate::view::{
    Column, ColumnKind, Section, Sentence, StratumView, Table, TableEntry, Tone, advice, caveats,
    connect_cost, crossings, levels, profile, published, round_trips, verdicts,
};
use crate::{sentence, view};

/// The verdicts, a table of ratios, the caveats, the environment and the command.
pub fn markdown(report: &RunReport<'_>) -> String {
    let strata = view::strata(report);
    let mut text = format!("### {}\n", escaped(&verdicts::title(report)));
    // Writing to a string cannot fail.
    let banner = verdicts::banner(report, &strata);
    if !banner.is_empty() {
        let _ = write!(text, "\n{}", quoted(&banner));
    }
    text += &study(report);
    text += &what_to_do(report, &strata);
    for group in verdicts::groups(report, &strata) {
        let heading = group.heading.map(|heading| format!("\n**{}**\n", escaped(&heading)));
        let _ = write!(text, "{}\n{}", heading.unwrap_or_default(), listed(&group.sentences));
    }
    if let Some(table) = table(&strata) {
        let _ = write!(text, "\n{table}");
    }
    let crossings = strata.iter().filter_map(crossings::section);
    let sections = crossings
        .chain(connect_cost::sections(report))
        .chain(profile::sections(report, &strata))
        .chain(round_trips::sections(report));
    for Section { heading, table, notes } in sections {
        let table = table.as_ref().map(grid).unwrap_or_default();
        let _ = write!(text, "\n**{}**\n\n{table}\n{}", escaped(&heading), listed(&notes));
    }
    for section in caveats::sections(report, &strata).iter().rev() {
        let _ = write!(
            text,
            "\n<details>\n<summary>{}</summary>\n\n{}\n</details>\n",
            escaped(&section.heading),
            listed(&section.notes)
        );
    }
    let _ = writeln!(text, "\n{}", escaped(&caveats::footer(report)));
    let _ = writeln!(text, "\n{}", escaped(repeat::WHERE));
    let _ = writeln!(text, "\n{}", fenced(&repeat::command(report)));
    text
}

/// Around the comparison with a study, for pages that quote it (`scripts/studies`).
const STUDY_BEGINS: &str = "<!-- study -->";
const STUDY_ENDS: &str = "<!-- end of study -->";

/// The published study and this run; what is not compared is folded.
fn study(report: &RunReport<'_>) -> String {
    let Some(StudyView { told, answer, compared, conclusions, others, background, .. }) =
        published::of_report(report)
    else {
        return String::new();
    };
    let content = |Section { table, notes, .. }: &Section| {
        let table = table.as_ref().map(grid).unwrap_or_default();
        format!("{table}\n{}", listed(notes))
    };
    let mut text = format!("\n{STUDY_BEGINS}\n");
    for section in [&told].into_iter().chain(&compared).chain([&conclusions]) {
        let _ = write!(text, "\n**{}**\n\n{}", escaped(&section.heading), content(section).trim_start());
    }
    let _ = write!(text, "\n{}", listed(&[answer]));
    for section in others.iter().chain([&background]) {
        let heading = escaped(&section.heading);
        let folded = content(section);
        let _ = write!(
            text,
            "\n<details>\n<summary>{heading}</summary>\n\n{}\n</details>\n",
            folded.trim_start()
        );
    }
    let _ = write!(text, "\n{STUDY_ENDS}\n");
    text
}

/// The decision of the cost model, or the advice from the verdicts if the run lacks its terms.
fn what_to_do(report: &RunReport<'_>, strata: &[StratumView<'_>]) -> String {
    let mut text = String::new();
    let decisions = decision::decisions(report);
    for Decision { server, choice, savings } in &decisions {
        let place = server.as_ref().map_or(String::new(), |server| format!("{}: ", escaped(server)));
        let savings: Vec<Sentence> =
            savings.iter().map(|saving| Sentence::neutral(saving.as_str())).collect();
        let _ = write!(text, "\n{place}**{}**\n\n{}", escaped(choice), listed(&savings));
    }
    if let Some(advice) = advice::advice(strata).filter(|_| decisions.is_empty()) {
        let _ = writeln!(text, "\n**Switch on {}.** {}", escaped(&advice.choice), escaped(&advice.why));
        if let Some(saving) = advice.saving {
            let _ = writeln!(text, "{}", escaped(saving));
        }
    }
    text
}

pub(crate) fn listed(sentences: &[Sentence]) -> String {
    let item = |sentence: &Sentence| match sentence.tone {
        Tone::Neutral => format!("- {}\n", escaped(&sentence.text)),
        tone => format!("- {} {}\n", escaped(tone.mark()), escaped(&sentence.text)),
    };
    sentences.iter().map(item).collect()
}

fn quoted(sentences: &[Sentence]) -> String {
    let lines: Vec<String> = sentences.iter().map(|sentence| escaped(&sentence.text)).collect();
    format!("> {}\n", lines.join("\n>\n> "))
}

/// One row for each headline ratio.
fn table(strata: &[StratumView<'_>]) -> Option<String> {
    let mut rows = String::new();
    for stratum in strata {
        for comparison in &stratum.treatments {
            for (metric, found) in comparison.headline().filter(|(_, found)| is_certain(&found.ratio)) {
                let cost = cost(metric, &found.ratio);
                let word = found.verdict.map(|verdict| levels::verdict_word(metric, found, verdict));
                let _ = writeln!(
                    rows,
                    "| {} | {} | {} | {} × | {} | {} {} |",
                    escaped(&stratum.name()),
                    escaped(&stratum.row_label(&comparison.cell)),
                    escaped(&format!(
                        "{} ÷ {}",
                        noun_of(metric, stratum.cell().workload),
                        stratum.baseline_label()
                    )),
                    ratio(&cost),
                    ratio_interval(&cost),
                    escaped(sentence::tone(metric, found).mark()),
                    escaped(word.as_deref().unwrap_or("no verdict")),
                );
            }
        }
    }
    let header = "| load | configuration | metric | ratio | 95 % interval | verdict |\n| --- | --- | --- | ---: | --- | --- |\n";
    (!rows.is_empty()).then(|| format!("{header}{rows}"))
}

/// A table with single-line headings.
pub(crate) fn grid(table: &Table) -> String {
    let line = |texts: Vec<String>| format!("| {} |\n", texts.join(" | "));
    let head = |column: &Column| escaped(&column.lines.join(" "));
    let rule = |column: &Column| match column.kind {
        ColumnKind::Label | ColumnKind::Text => "---".to_owned(),
        ColumnKind::Level | ColumnKind::Ratio => "---:".to_owned(),
    };
    let entry =
        |entry: &TableEntry| entry.lines.iter().map(|line| escaped(line)).collect::<Vec<_>>().join("<br>");
    let rows = table.rows.iter().map(|row| row.iter().map(entry).collect());
    let above = [table.columns.iter().map(head).collect(), table.columns.iter().map(rule).collect()];
    above.into_iter().chain(rows).map(line).collect()
}

/// A code block whose fence is longer than any in the text.
fn fenced(text: &str) -> String {
    let fence = "`".repeat(text.split(|c| c != '`').map(str::len).max().unwrap_or(0).max(2) + 1);
    format!("{fence}sh\n{text}\n{fence}")
}

/// Text without effect: no markup, no link, no mention, one line.
pub(crate) fn escaped(text: &str) -> String {
    // Invisible; after an @ it prevents a mention.
    const WORD_JOINER: char = '\u{2060}';
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '|' | '~' | '!' | '$' | ':'
                if needs_backslash(character, text) =>
            {
                escaped.push('\\');
                escaped.push(character);
            }
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '@' => escaped.extend(['@', WORD_JOINER]),
            other if other.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A colon matters only in an address, a `!` only before an image.
fn needs_backslash(character: char, text: &str) -> bool {
    match character {
        ':' => text.contains("://"),
        '!' => text.contains("!["),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        assert_eq!(
            escaped("a|b <script> @team *x* \u{1b}[2J"),
            "a\\|b &lt;script&gt; @\u{2060}team \\*x\\*  \\[2J"
        );
        assert_eq!(escaped("see http://a.example/"), "see http\\://a.example/");
        assert_eq!(escaped("time: 612 µs!"), "time: 612 µs!");
    }

    #[test]
    fn a_fence_is_longer_than_what_is_in_it() {
        assert_eq!(fenced("a"), "```sh\na\n```");
        assert_eq!(fenced("a ```` b"), "`````sh\na ```` b\n`````");
    }
}
