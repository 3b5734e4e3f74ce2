//! Verifies one encrypted file.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use super::facts::{ClusterFacts, opened};
use super::finding::{FindingKind, VerifyEnd, VerifyFinding, VerifyResult};
use super::page;
use super::randomness::is_not_random;
use super::state::StateKind;
use super::wal::{self, NamedPlace, PageAge};
use super::walk::{ListedFile, bytes_of};
use crate::cluster::DiskFile;
use crate::error::Doing;
use crate::unit::is_zero;
use crate::{EncryptionEngine, Errno, FileClass, KeyError, OpenFile, Storage, UNIT_BYTES};

/// Bytes per read: a multiple of every unit size.
const CHUNK_BYTES: usize = 256 << 10;
/// Larger files of state are verified unit by unit only.
const MOST_STATE_BYTES: u64 = 256 << 20;
/// How often a unit that looks wrong is read again, and the pause before: a server may be writing it.
pub(super) const ATTEMPTS: u32 = 10;
pub(super) const PAUSE: Duration = Duration::from_millis(5);
/// After that many findings, units of the same file are read again only once.
const PATIENT_FINDINGS: u64 = 4;

/// Called with the result so far, the offset up to which the file is done, and the bytes that were read for it.
pub(super) type WatchFile<'a> = dyn FnMut(&VerifyResult, u64, u64) -> ControlFlow<()> + 'a;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JudgedPiece {
    /// A unit, by its number.
    Unit(u64),
    /// A file of state.
    File,
}

/// What a unit is found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judgement {
    Sound,
    Zeros,
    /// A WAL page from before its file was recycled.
    Older,
    /// Recovery will replace it.
    ToRecover,
    Wrong(FindingKind),
    /// The file was removed, renamed or truncated.
    Gone,
}

pub(super) struct FileVerifier<'a> {
    listed: &'a ListedFile,
    path: PathBuf,
    facts: ClusterFacts,
    engine: &'a mut EncryptionEngine,
    result: &'a mut VerifyResult,
    opened: OpenFile,
    place: Option<NamedPlace>,
    /// Findings in this file.
    wrong: u64,
    /// Offsets of WAL pages of earlier segments, since the last current one.
    older: Vec<u64>,
}

impl<'a> FileVerifier<'a> {
    pub(super) fn new(
        listed: &'a ListedFile,
        path: PathBuf,
        facts: ClusterFacts,
        engine: &'a mut EncryptionEngine,
        result: &'a mut VerifyResult,
    ) -> Self {
        let name = listed.below.file_name().unwrap_or_default().as_encoded_bytes();
        let place =
            (listed.class == FileClass::Wal).then(|| NamedPlace::of(name, facts.segment_bytes)).flatten();
        let opened = OpenFile::new(listed.class);
        Self { listed, path, facts, engine, result, opened, place, wrong: 0, older: Vec::new() }
    }

    /// A file that cannot be opened becomes a finding.
    pub(super) fn run(mut self, start: u64, watch: &mut WatchFile<'_>) -> Result<VerifyEnd, KeyError> {
        let file = match opened(&self.path) {
            Ok(Some(file)) => file,
            Ok(None) => {
                self.result.counts.gone += 1;
                return Ok(VerifyEnd::Complete);
            }
            Err(KeyError::Io { .. }) => {
                self.found(0, self.listed.bytes, FindingKind::Unreadable);
                return Ok(VerifyEnd::Complete);
            }
            Err(error) => return Err(error),
        };
        let size = file.size().doing("read", &self.path)?;
        let is_state = matches!(self.listed.class, FileClass::State(_) | FileClass::Map { .. });
        let whole = if is_state && (1..=MOST_STATE_BYTES).contains(&size) {
            self.confirmed(&file, JudgedPiece::File)?
        } else {
            Judgement::Sound
        };
        if whole == Judgement::Gone {
            self.result.counts.gone += 1;
            return Ok(VerifyEnd::Complete);
        }
        if self.units(&file, start, size, watch)? == VerifyEnd::Interrupted {
            return Ok(VerifyEnd::Interrupted);
        }
        if let Judgement::Wrong(kind) = whole
            && self.wrong == 0
        {
            self.found(0, size, kind);
        }
        let counts = &mut self.result.counts;
        if matches!(self.listed.class, FileClass::Temporary(_)) {
            counts.temporary_files += 1;
        } else {
            counts.encrypted_files += 1;
        }
        let last = size.checked_sub(1).map_or(0, |last| last % CHUNK_BYTES as u64 + 1);
        let interrupted = watch(self.result, size.max(self.listed.bytes), last).is_break();
        Ok(if interrupted { VerifyEnd::Interrupted } else { VerifyEnd::Complete })
    }

    fn units(
        &mut self,
        file: &DiskFile,
        start: u64,
        size: u64,
        watch: &mut WatchFile<'_>,
    ) -> Result<VerifyEnd, KeyError> {
        // The age of WAL pages depends on those before.
        let start = if matches!(self.listed.class, FileClass::Relation { .. }) { start } else { 0 };
        let unit = self.listed.class.unit_bytes();
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut at = start - start % CHUNK_BYTES as u64;
        while at < size {
            let Ok(held) = file.read_at(&mut buffer, at) else {
                self.count(at, CHUNK_BYTES as u64, Judgement::Wrong(FindingKind::Unreadable));
                at += CHUNK_BYTES as u64;
                continue;
            };
            for (stored, number) in buffer[..held].chunks(unit).zip(at / unit as u64..) {
                let mut judged = self.judge_unit(number, stored);
                if matches!(judged, Judgement::Wrong(_)) {
                    judged = self.confirmed(file, JudgedPiece::Unit(number))?;
                }
                if judged == Judgement::Gone {
                    self.result.counts.gone += 1;
                    return Ok(VerifyEnd::Complete);
                }
                self.follow(file, number, judged)?;
                self.count(number * unit as u64, stored.len() as u64, judged);
            }
            if held == 0 {
                break;
            }
            at += held.next_multiple_of(unit) as u64;
            // The end of the file is reported when all is known of it.
            if at < size && watch(self.result, at, held as u64).is_break() {
                return Ok(VerifyEnd::Interrupted);
            }
        }
        Ok(VerifyEnd::Complete)
    }

    /// Reads a piece again until it is sound.
    fn confirmed(&mut self, file: &DiskFile, piece: JudgedPiece) -> Result<Judgement, KeyError> {
        let unit = self.listed.class.unit_bytes() as u64;
        let attempts = if self.wrong < PATIENT_FINDINGS { ATTEMPTS } else { 1 };
        let mut judged = Judgement::Gone;
        for attempt in 0..attempts {
            if attempt > 0 {
                std::thread::sleep(PAUSE);
            }
            let size = file.size().doing("read", &self.path)?;
            let (offset, most) = match piece {
                JudgedPiece::Unit(number) => (number * unit, unit),
                JudgedPiece::File => (0, MOST_STATE_BYTES),
            };
            let mut stored = vec![0; size.saturating_sub(offset).min(most) as usize];
            let Ok(held) = file.read_at(&mut stored, offset) else {
                return Ok(Judgement::Wrong(FindingKind::Unreadable));
            };
            if held == 0 || !self.is_in_place(file) {
                return Ok(Judgement::Gone);
            }
            judged = match piece {
                JudgedPiece::Unit(number) => self.judge_unit(number, &stored[..held]),
                JudgedPiece::File => self.judge_state(&stored[..held]),
            };
            if !matches!(judged, Judgement::Wrong(_)) {
                break;
            }
        }
        Ok(judged)
    }

    /// Whether the path still names this file.
    fn is_in_place(&self, file: &DiskFile) -> bool {
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        match (file.0.metadata(), fs::metadata(&self.path)) {
            (Ok(file), Ok(named)) => identity(file) == identity(named),
            _ => false,
        }
    }

    fn count(&mut self, offset: u64, bytes: u64, judged: Judgement) {
        let counts = &mut self.result.counts;
        match judged {
            Judgement::Sound | Judgement::Older => counts.units += 1,
            Judgement::Zeros => counts.zeros += 1,
            Judgement::ToRecover => counts.to_recover += 1,
            Judgement::Gone => counts.gone += 1,
            Judgement::Wrong(kind) => self.found(offset, bytes, kind),
        }
        self.result.counts.bytes += bytes;
    }

    fn found(&mut self, offset: u64, bytes: u64, kind: FindingKind) {
        self.wrong += 1;
        self.result.add(VerifyFinding { path: self.listed.below.clone(), offset, bytes, kind });
    }

    /// WAL is written in order: before a page of this segment, there is none of an earlier segment.
    fn follow(&mut self, file: &DiskFile, number: u64, judged: Judgement) -> Result<(), KeyError> {
        match judged {
            Judgement::Older if self.place.is_some() => self.older.push(number),
            Judgement::Sound if self.listed.class == FileClass::Wal => {
                for number in std::mem::take(&mut self.older) {
                    if self.confirmed(file, JudgedPiece::Unit(number))? == Judgement::Older {
                        let unit = UNIT_BYTES as u64;
                        self.found(number * unit, unit, FindingKind::Outdated);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn judge_unit(&mut self, number: u64, stored: &[u8]) -> Judgement {
        if is_zero(stored) {
            return Judgement::Zeros;
        }
        let judged = match self.listed.class {
            FileClass::Relation { .. } => self.judge_page(number, stored),
            FileClass::Slru { .. } => self.judge_slru(number, stored),
            FileClass::Wal => self.judge_wal(number, stored),
            FileClass::XlogTemp => self.judge_new_wal(number, stored),
            _ if is_not_random(stored) => Err(FindingKind::Plaintext),
            _ => Ok(Judgement::Sound),
        };
        judged.unwrap_or_else(Judgement::Wrong)
    }

    /// Decrypts a unit, of which the end may be missing. Returns its whole blocks.
    fn decrypted(&mut self, number: u64, stored: &[u8]) -> Result<Vec<u8>, FindingKind> {
        let mut plain = stored.to_vec();
        plain.resize(UNIT_BYTES, 0);
        match self.engine.decrypt_unit(&mut self.opened, number, &mut plain) {
            Ok(()) => {}
            Err(Errno(_)) => return Err(FindingKind::Misplaced),
        }
        plain.truncate(stored.len() - stored.len() % 16);
        Ok(plain)
    }

    fn judge_page(&mut self, number: u64, stored: &[u8]) -> Result<Judgement, FindingKind> {
        if page::has_header(stored) || is_not_random(stored) {
            return Err(FindingKind::Plaintext);
        }
        let plain = self.decrypted(number, stored)?;
        let Ok(plain) = <&[u8; UNIT_BYTES]>::try_from(&plain[..]) else {
            // A server whose disk was full leaves part of a page.
            return if page::has_header(&plain) {
                Ok(Judgement::Sound)
            } else {
                Err(FindingKind::Incomplete)
            };
        };
        if !page::has_header(plain) {
            return Err(FindingKind::Misplaced);
        }
        let block = self.listed.class.first_page() + number;
        if !self.facts.has_page_checksums || page::has_checksum(plain, block) {
            return Ok(Judgement::Sound);
        }
        match self.facts.recovers_from {
            Some(start) if page::lsn(plain) >= start => Ok(Judgement::ToRecover),
            _ => Err(FindingKind::Damaged),
        }
    }

    /// Pages of transaction status have no header, but hold many equal numbers.
    fn judge_slru(&mut self, number: u64, stored: &[u8]) -> Result<Judgement, FindingKind> {
        if is_not_random(stored) {
            return Err(FindingKind::Plaintext);
        }
        let plain = self.decrypted(number, stored)?;
        match (is_not_random(&plain), stored.len()) {
            (true, _) => Ok(Judgement::Sound),
            (false, UNIT_BYTES) => Err(FindingKind::Misplaced),
            (false, _) => Err(FindingKind::Incomplete),
        }
    }

    fn judge_wal(&mut self, number: u64, stored: &[u8]) -> Result<Judgement, FindingKind> {
        let segment = if self.facts.segment_bytes > 0 { self.facts.segment_bytes } else { self.listed.bytes };
        let age = if stored.len() == UNIT_BYTES {
            wal::check_place(stored, self.place, number * UNIT_BYTES as u64, segment)?
        } else {
            return Err(FindingKind::Incomplete);
        };
        self.judge_wal_content(number, stored, segment)?;
        Ok(if age == PageAge::Current { Judgement::Sound } else { Judgement::Older })
    }

    fn judge_wal_content(&mut self, number: u64, stored: &[u8], segment: u64) -> Result<(), FindingKind> {
        if is_not_random(&stored[wal::CLEAR_BYTES..]) {
            return Err(FindingKind::Plaintext);
        }
        let plain = self.decrypted(number, stored)?;
        if wal::has_header(&plain, segment) { Ok(()) } else { Err(FindingKind::Misplaced) }
    }

    /// `xlogtemp.PID`: zeros, a copy of WAL pages, or a history.
    fn judge_new_wal(&mut self, number: u64, stored: &[u8]) -> Result<Judgement, FindingKind> {
        if stored.len() < UNIT_BYTES || !wal::has_magic(stored) {
            return if wal::is_history(stored) { Ok(Judgement::Sound) } else { Err(FindingKind::Plaintext) };
        }
        self.judge_wal_content(number, stored, self.facts.segment_bytes)?;
        Ok(Judgement::Sound)
    }

    /// A file of state, as a whole.
    fn judge_state(&mut self, stored: &[u8]) -> Judgement {
        let kind = StateKind::of(bytes_of(&self.listed.below));
        let mut plain = stored.to_vec();
        if self.engine.decrypt_file(&mut self.opened, &mut plain).is_err() {
            return Judgement::Wrong(FindingKind::Misplaced);
        }
        match kind.check(&plain) {
            Ok(()) => Judgement::Sound,
            Err(_) if kind != StateKind::Unknown && kind.check(stored) != Err(FindingKind::Misplaced) => {
                Judgement::Wrong(FindingKind::Plaintext)
            }
            Err(wrong) => Judgement::Wrong(wrong),
        }
    }
}
