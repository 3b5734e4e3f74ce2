//! Caveats of encryption at rest, and whether the files are encrypted.

use ciphertoll_model::{AtRest, CryptoInstruction, Storage};
use ciphertoll_stats::SearchedFiles;

use super::{Sentence, clean};
use crate::RunReport;
use crate::number::plural;

pub(crate) fn sentences(report: &RunReport<'_>) -> Vec<Sentence> {
    let mut sentences: Vec<Sentence> =
        report.facts.searched_files.values().map(|files| Sentence::neutral(search_result(files))).collect();
    if report.plan.storage == Storage::Tmpfs {
        let said = "The private servers' files were in memory (tmpfs): no rate or latency includes a disk.";
        sentences.push(Sentence::neutral(said));
    }
    let has = |level: fn(&AtRest) -> bool| {
        report.plan.cells.iter().map(|cell| cell.treatment.at_rest).any(|found| level(&found))
    };
    if has(|level| matches!(level, AtRest::Tde(_)) && !level.encrypts()) {
        sentences.push(Sentence::caution(
            "tde+cipher=null is not encrypted: it shows only the cost of the library without its cipher.",
        ));
    }
    let by_library = has(|level| matches!(level, AtRest::Tde(_)) && level.encrypts());
    if by_library {
        sentences.push(Sentence::neutral(
            "tde encrypts pages between the server's buffers and the page cache: a page that stays in the buffers costs \
             nothing, a page that is read again from the page cache is decrypted again. Its CPU is the server's.",
        ));
    }
    let layered = has(|level| *level == AtRest::Gocryptfs);
    if layered {
        sentences.push(Sentence::neutral(
            "gocryptfs keeps decrypted pages in the page cache: a page that is read again from there costs nothing. If the \
             server itself encrypts, it would be decrypted again. The CPU of gocryptfs is in middle CPU.",
        ));
    }
    if by_library || layered {
        sentences.extend(without_instructions(report));
    }
    if has(|level| *level == AtRest::Fscrypt) {
        sentences.push(Sentence::neutral(
            "fscrypt keeps decrypted pages in the page cache as well. It uses its own file system in a file, which is part of \
             its cost. CPU time of kernel threads is in no CPU figure, only in rates and latencies.",
        ));
        sentences.extend(slow_kernel(report));
    }
    sentences
}

fn without_instructions(report: &RunReport<'_>) -> Option<Sentence> {
    let environment = report.facts.environment?;
    (!environment.crypto_instructions.contains(&CryptoInstruction::Aes)).then(|| {
        Sentence::caution(
            "The kernel reports no AES instructions on this processor: encryption at rest costs several times as much as with \
             them.",
        )
    })
}

/// A kernel cipher that does not use the AES instructions.
fn slow_kernel(report: &RunReport<'_>) -> Option<Sentence> {
    let cipher = report.facts.searched_files.values().find_map(|files| files.kernel_cipher)?;
    ["generic", "fixed-time"].iter().any(|slow| cipher.contains(slow)).then(|| {
        let said = format!(
            "The kernel encrypts with {}, which does not use AES instructions: fscrypt costs several times as much as with \
             them.",
            clean(cipher)
        );
        Sentence::caution(said)
    })
}

fn search_result(searched: &SearchedFiles<'_>) -> String {
    let SearchedFiles { server, at_rest, files, bytes, files_with_marker, .. } = searched;
    let all = format!("{} ({} MB)", plural(*files, "file"), bytes.div_ceil(1_000_000));
    let found = match files_with_marker {
        0 => format!("the written marker was found in none of {all}"),
        found => format!("the written marker was found unencrypted in {found} of {all}"),
    };
    clean(&format!("{server}, at rest: {at_rest}: {found}."))
}
