//! An observation for a ticket: the pairs, what to change, how all is encrypted, and what failed.

use std::fmt::Write as _;

use ciphertoll_observe::{AddressLabels, Observation};

use super::words::{headline, limits, place, rest, title, tone};
use super::{pairs, sections};
use crate::markdown::{escaped, grid, listed};
use crate::view::{Section, Sentence, Tone, capital, clean};

/// A comment on a code host holds about 65,000 characters.
const MOST_ROWS: usize = 25;

/// The observation as a short Markdown comment.
pub fn observation_markdown(observation: &Observation) -> String {
    // Writing to a string cannot fail.
    let mut text = format!("### {}\n\n{}.\n", escaped(&title(observation)), escaped(&headline(observation)));
    let Section { table, notes, .. } = pairs::section(observation, MOST_ROWS);
    if let Some(table) = table {
        let _ = write!(text, "\n{}{}", grid(&table), noted(&notes));
    }
    text += &findings(observation);
    let details = [
        sections::clients(observation, MOST_ROWS),
        sections::encryption(observation, MOST_ROWS),
        sections::certificates(observation, MOST_ROWS),
        sections::accepted(observation, MOST_ROWS),
        sections::logins(observation, MOST_ROWS),
        sections::users(observation, MOST_ROWS),
        sections::failures(observation, MOST_ROWS),
    ];
    for Section { heading, table, notes } in details.into_iter().flatten() {
        let table = table.as_ref().map(grid).unwrap_or_default();
        let _ = write!(text, "\n**{}**\n\n{table}{}", escaped(&heading), noted(&notes));
    }
    let limits = limits(observation);
    if !limits.is_empty() {
        let _ = write!(text, "\n**Limits**\n\n{}", listed(&limits));
    }
    text
}

/// Below a table.
fn noted(notes: &[Sentence]) -> String {
    if notes.is_empty() { String::new() } else { format!("\n{}", listed(notes)) }
}

/// Each with what to do, the worst first.
fn findings(observation: &Observation) -> String {
    if observation.findings.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n**What to change**\n\n");
    let labels = AddressLabels::of(observation);
    for finding in observation.findings.iter().take(MOST_ROWS) {
        let mark = match tone(finding) {
            Tone::Neutral => String::new(),
            tone => format!("{} ", escaped(tone.mark())),
        };
        let place = escaped(&place(labels.label(&finding.client), labels.label(&finding.server)));
        let (seen, todo) = (escaped(&clean(&finding.seen)), escaped(&capital(&clean(&finding.todo))));
        let _ = writeln!(text, "- {mark}**{place}**: {seen}.\n  {todo}.");
    }
    let shown = observation.findings.len().min(MOST_ROWS);
    text + &listed(rest(observation.findings.len(), shown, "finding").as_slice())
}
