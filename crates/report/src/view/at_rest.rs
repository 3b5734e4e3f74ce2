//! What must be known of files that are encrypted: that they are, and what is not.

use std::collections::BTreeMap;

use ciphertoll_model::{AtRest, CryptoInstruction, Event, Storage};

use super::{Statement, Tone, clean};
use crate::RunReport;
use crate::number::plural;

/// What was looked for in the files, and what a reader of the numbers could miss.
pub(crate) fn statements(report: &RunReport<'_>) -> Vec<Statement> {
    let mut statements: Vec<Statement> =
        proofs(report).map(|proof| Statement::neutral(proof.said())).collect();
    statements.extend(storage(report));
    let has = |level: fn(&AtRest) -> bool| {
        report.plan.cells.iter().map(|cell| cell.treatment.at_rest).any(|found| level(&found))
    };
    if has(|level| matches!(level, AtRest::Tde(_)) && !level.encrypts()) {
        statements.push(Statement::new(
            Tone::Caution,
            "tde+cipher=null is not encrypted: it shows what the library costs without its cipher, and nothing else.",
        ));
    }
    let by_library = has(|level| matches!(level, AtRest::Tde(_)) && level.encrypts());
    if by_library {
        statements.push(Statement::neutral(
            "tde encrypts pages on their way between the server and the system: one that stays in the server's buffers \
             costs nothing, one that is read again from the system's memory is decrypted again. Its CPU is the server's.",
        ));
    }
    let layered = has(|level| *level == AtRest::Gocryptfs);
    if layered {
        statements.push(Statement::neutral(
            "gocryptfs keeps what it has decrypted in the system's memory, in the clear: a page that is read again from there \
             costs nothing, as it would where the server itself encrypts. Its process is the middle's CPU.",
        ));
    }
    if by_library || layered {
        statements.extend(without_instructions(report));
    }
    if has(|level| *level == AtRest::Fscrypt) {
        statements.push(Statement::neutral(
            "fscrypt keeps what it has decrypted in the system's memory, in the clear, too, and lies in a file system of its \
             own, in a file: part of its cost is that file system's. What the kernel's own threads take for it is in no CPU \
             time here, only in rates and times.",
        ));
        statements.extend(slow_kernel(report));
    }
    statements
}

fn without_instructions(report: &RunReport<'_>) -> Option<Statement> {
    let environment = report.environment()?;
    (!environment.crypto_instructions.contains(&CryptoInstruction::Aes)).then(|| {
        Statement::new(
            Tone::Caution,
            "This processor has no AES instructions that the kernel tells of: encryption at rest costs several times here \
             what it costs where there are some.",
        )
    })
}

/// A kernel that was built without the processor's instructions.
fn slow_kernel(report: &RunReport<'_>) -> Option<Statement> {
    let cipher = proofs(report).find_map(|proof| proof.kernel_cipher)?;
    ["generic", "fixed-time"].iter().any(|slow| cipher.contains(slow)).then(|| {
        let said = format!(
            "The kernel encrypts by {}, without AES instructions, whether or not the processor has them: fscrypt costs \
             several times here what it costs where the kernel uses them.",
            clean(cipher)
        );
        Statement::new(Tone::Caution, said)
    })
}

fn storage(report: &RunReport<'_>) -> Option<Statement> {
    let said = "The private servers' files lay in memory (tmpfs): no rate or time here has a disk in it.";
    match report.plan.storage {
        Storage::Disk => None,
        Storage::Tmpfs => Some(Statement::neutral(said)),
    }
}

/// What a search of a server's files came to.
pub(crate) struct SearchedFiles<'a> {
    pub(crate) server: &'a str,
    pub(crate) at_rest: AtRest,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) files_with_marker: u64,
    pub(crate) kernel_cipher: Option<&'a str>,
}

impl SearchedFiles<'_> {
    fn said(&self) -> String {
        let Self { server, at_rest, .. } = self;
        let searched = format!("{} ({} MB)", plural(self.files, "file"), self.bytes.div_ceil(1_000_000));
        let found = match self.files_with_marker {
            0 => format!("what was written into it was in none of its {searched}"),
            found => format!("what was written into it was in {found} of its {searched}, in the clear"),
        };
        clean(&format!("{server}, at rest: {at_rest}: {found}."))
    }
}

/// The last search of each server's files: a server that was started afresh was searched again.
pub(crate) fn proofs<'a>(report: &RunReport<'a>) -> impl Iterator<Item = SearchedFiles<'a>> {
    let mut last = BTreeMap::new();
    for stamped in report.events {
        if let Event::AtRestProven { server, at_rest, files, bytes, files_with_marker, kernel_cipher } =
            &stamped.event
        {
            let found = SearchedFiles {
                server,
                at_rest: *at_rest,
                files: *files,
                bytes: *bytes,
                files_with_marker: *files_with_marker,
                kernel_cipher: kernel_cipher.as_deref(),
            };
            last.insert((server.as_str(), *at_rest), found);
        }
    }
    last.into_values()
}
