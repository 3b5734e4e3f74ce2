//! What must be known of files that are encrypted: that they are, and what is not.

use std::collections::BTreeMap;

use ciphertoll_model::{AtRest, CryptoInstruction, Event};

use super::{Statement, Tone, clean};
use crate::RunReport;
use crate::number::plural;

/// What was looked for in the files, and what a reader of the numbers could miss.
pub(crate) fn statements(report: &RunReport<'_>) -> Vec<Statement> {
    let mut statements: Vec<Statement> = proofs(report).into_iter().map(Statement::neutral).collect();
    let layered = report.plan.cells.iter().any(|cell| cell.treatment.at_rest == AtRest::Gocryptfs);
    if !layered {
        return statements;
    }
    statements.push(Statement::neutral(
        "gocryptfs keeps what it has decrypted in the system's memory, in the clear: a page that is read again from there \
         costs nothing, as it would where the server itself encrypts. Its process is the middle's CPU.",
    ));
    let without_aes = report
        .environment()
        .is_some_and(|environment| !environment.crypto_instructions.contains(&CryptoInstruction::Aes));
    if without_aes {
        statements.push(Statement::new(
            Tone::Caution,
            "This processor has no AES instructions that the kernel tells of: encryption at rest costs several times here \
             what it costs where there are some.",
        ));
    }
    statements
}

/// The last search of each server's files: a server that was started afresh was searched again.
fn proofs(report: &RunReport<'_>) -> Vec<String> {
    let mut last: BTreeMap<(&str, AtRest), String> = BTreeMap::new();
    for stamped in report.events {
        if let Event::AtRestProven { server, at_rest, files, bytes, files_with_marker } = &stamped.event {
            let searched = format!("{} ({} MB)", plural(*files, "file"), bytes.div_ceil(1_000_000));
            let found = match files_with_marker {
                0 => format!("what was written into it was in none of its {searched}"),
                found => format!("what was written into it was in {found} of its {searched}, in the clear"),
            };
            last.insert((server, *at_rest), clean(&format!("{server}, at rest: {at_rest}: {found}.")));
        }
    }
    last.into_values().collect()
}
