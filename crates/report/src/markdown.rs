//! The report as a comment on a change: short, in the Markdown that code hosts read.

use std::fmt::Write as _;

use crate::RunReport;
use crate::number::{is_certain, ratio, ratio_interval};
use crate::view::repeat;
use crate::view::{
    Column, Entry, Part, Section, Statement, StratumView, Table, Tone, advice, caveats, connect_cost,
    crossings, levels, published, round_trips, verdicts,
};
use crate::{names, sentence, view};

/// The verdicts, the tolls in a table, what was left out, where it was measured and the command.
pub fn markdown(report: &RunReport<'_>) -> String {
    let strata = view::strata(report);
    let mut text = format!("### {}\n", escaped(&verdicts::title(report)));
    // Writing to a string cannot fail.
    let banner = verdicts::banner(report, &strata);
    if !banner.is_empty() {
        let _ = write!(text, "\n{}", quoted(&banner));
    }
    if let Some(advice) = advice::advice(&strata) {
        let _ = writeln!(text, "\n**Switch on {}.** {}", escaped(&advice.choice), escaped(&advice.why));
        if let Some(saving) = advice.saving {
            let _ = writeln!(text, "{}", escaped(saving));
        }
    }
    for group in verdicts::groups(report, &strata) {
        let heading = group.heading.map(|heading| format!("\n**{}**\n", escaped(&heading)));
        let _ = write!(text, "{}\n{}", heading.unwrap_or_default(), listed(&group.statements));
    }
    if let Some(table) = table(&strata) {
        let _ = write!(text, "\n{table}");
    }
    let crossings = strata.iter().filter_map(crossings::section);
    let sections = crossings.chain(connect_cost::sections(report)).chain(round_trips::sections(report));
    for Section { heading, table, notes } in sections {
        let table = table.as_ref().map(grid).unwrap_or_default();
        let _ = write!(text, "\n**{}**\n\n{table}\n{}", escaped(&heading), listed(&notes));
    }
    let published = published::section(report);
    for section in published.iter().chain(caveats::sections(report, &strata).iter().rev()) {
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

fn listed(statements: &[Statement]) -> String {
    let item = |statement: &Statement| match statement.tone {
        Tone::Neutral => format!("- {}\n", escaped(&statement.text)),
        tone => format!("- {} {}\n", escaped(tone.mark()), escaped(&statement.text)),
    };
    statements.iter().map(item).collect()
}

fn quoted(statements: &[Statement]) -> String {
    let lines: Vec<String> = statements.iter().map(|statement| escaped(&statement.text)).collect();
    format!("> {}\n", lines.join("\n>\n> "))
}

/// One row for each ratio that a verdict may be given on.
fn table(strata: &[StratumView<'_>]) -> Option<String> {
    let mut rows = String::new();
    for stratum in strata {
        for cell in &stratum.treatments {
            for metric in names::headline(&cell.cell) {
                let Some(toll) = cell.tolls.get(metric).filter(|toll| is_certain(&toll.ratio)) else {
                    continue;
                };
                let word = toll.verdict.map(|verdict| levels::verdict_word(*metric, toll, verdict));
                let _ = writeln!(
                    rows,
                    "| {} | {} | {} | {} × | {} | {} {} |",
                    escaped(&stratum.name()),
                    escaped(&stratum.row_label(cell)),
                    escaped(&format!("{} ÷ {}", sentence::noun(*metric), stratum.baseline_label())),
                    ratio(&toll.ratio),
                    ratio_interval(&toll.ratio),
                    escaped(sentence::tone(*metric, toll).mark()),
                    escaped(word.as_deref().unwrap_or("no verdict")),
                );
            }
        }
    }
    let header = "| load | compared | of | ratio | 95 % interval | verdict |\n| --- | --- | --- | ---: | --- | --- |\n";
    (!rows.is_empty()).then(|| format!("{header}{rows}"))
}

/// A table as it is, its columns' headings in one line.
fn grid(table: &Table) -> String {
    let line = |texts: Vec<String>| format!("| {} |\n", texts.join(" | "));
    let head = |column: &Column| escaped(&column.lines.join(" "));
    let rule = |column: &Column| match column.part {
        Part::Label | Part::Text => "---".to_owned(),
        Part::Level | Part::Toll => "---:".to_owned(),
    };
    let entry = |entry: &Entry| entry.lines.iter().map(|line| escaped(line)).collect::<Vec<_>>().join("<br>");
    let rows = table.rows.iter().map(|row| row.iter().map(entry).collect());
    let above = [table.columns.iter().map(head).collect(), table.columns.iter().map(rule).collect()];
    above.into_iter().chain(rows).map(line).collect()
}

/// As code, whatever is in it.
fn fenced(text: &str) -> String {
    let fence = "`".repeat(text.split(|c| c != '`').map(str::len).max().unwrap_or(0).max(2) + 1);
    format!("{fence}sh\n{text}\n{fence}")
}

/// Text that is shown as it is: no markup, no link, nobody mentioned, one line.
fn escaped(text: &str) -> String {
    // Between an @ and a name this keeps them apart and is not seen.
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

/// A colon only makes a link of an address, and a `!` only an image.
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
