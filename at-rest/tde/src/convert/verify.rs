//! Compares the target with the source.

use std::collections::HashSet;
use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use super::error::{ConvertError, Result, open};
use super::files::{CHUNK_BYTES, ConversionFile, ReportBytes};
use super::plan::{ConversionDirection, ConversionPlan, JOURNAL, PlannedFile};
use crate::error::Doing;
use crate::unit::is_zero;
use crate::{EncryptionEngine, FileClass, Storage, UNIT_BYTES};

/// Plaintext samples per encrypted file.
const SAMPLES: u64 = 64;
const SAMPLE_BYTES: usize = 16;
/// Minimum number of different bytes in a sample; others could occur by chance.
const SAMPLE_VARIETY: u32 = 8;
/// How many bytes are searched for a suitable sample at each position.
const SEARCHED_BYTES: usize = 256;
/// The unencrypted part of a WAL page header.
const WAL_HEADER_BYTES: usize = 16;

type Sample = [u8; SAMPLE_BYTES];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerificationCounts {
    /// Files whose plaintext equals that of the source.
    pub files: u64,
    /// How many of them are encrypted in the source or the target.
    pub encrypted: u64,
    /// Total size of all files.
    pub bytes: u64,
    /// Non-zero pages whose ciphertext differs from their plaintext.
    pub pages: u64,
    /// Plaintext samples that do not occur in the encrypted file.
    pub samples: u64,
}

pub(super) struct Verifier<'a> {
    direction: ConversionDirection,
    engine: &'a mut EncryptionEngine,
    pub(super) counts: VerificationCounts,
}

/// The same piece of a file: plaintext of source and target, and the ciphertext.
struct Pieces {
    source: Vec<u8>,
    target: Vec<u8>,
    /// Ciphertext: the last bytes of the previous piece, then the piece.
    stored: Vec<u8>,
}

impl<'a> Verifier<'a> {
    pub(super) fn new(direction: ConversionDirection, engine: &'a mut EncryptionEngine) -> Self {
        Self::continuing(direction, engine, VerificationCounts::default())
    }

    /// Adds to existing counts.
    pub(super) fn continuing(
        direction: ConversionDirection,
        engine: &'a mut EncryptionEngine,
        counts: VerificationCounts,
    ) -> Self {
        Self { direction, engine, counts }
    }

    /// Checks that a file equals its source and that its ciphertext contains no plaintext.
    pub(super) fn verify(&mut self, file: &PlannedFile, done: &mut ReportBytes<'_>) -> Result<()> {
        let to = file.to.as_path();
        let differs = |why: String| ConvertError::Differs { path: to.to_owned(), why };
        let written = open(to)?;
        // Drops the page cache, to read the file from disk. This is only advice to the kernel.
        let _ = posix_fadvise(written.as_fd(), 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        let mut source = ConversionFile::source(file, self.direction)?;
        let mut target = ConversionFile::target(file.class, written, self.direction);
        let size = target.stored().size().doing("read", to)?;
        if size != file.bytes {
            return Err(differs(format!(
                "it has {size} bytes, and {} has {}",
                file.from.display(),
                file.bytes
            )));
        }
        let samples = self.samples(file, &mut source)?;
        let seen = SampleFilter::of(&samples);
        let overlap = SAMPLE_BYTES - 1;
        let piece = || vec![0; CHUNK_BYTES];
        let mut pieces = Pieces { source: piece(), target: piece(), stored: vec![0; overlap + CHUNK_BYTES] };
        let mut at = 0;
        while at < file.bytes {
            let count = CHUNK_BYTES.min((file.bytes - at) as usize);
            let (plain, back) = (&mut pieces.source[..count], &mut pieces.target[..count]);
            let read = source.read(self.engine, plain, at).doing("read", &file.from)?;
            let again = target.read(self.engine, back, at).doing("read", to)?;
            if (read, again) != (count, count) || plain != back {
                return Err(differs(format!(
                    "its plaintext differs from {}, from byte {at} on",
                    file.from.display()
                )));
            }
            if file.class.is_encrypted() {
                let (stored, path) = match self.direction {
                    ConversionDirection::Encrypt => (target.stored(), to),
                    ConversionDirection::Decrypt => (source.stored(), file.from.as_path()),
                };
                let held = stored.read_at(&mut pieces.stored[overlap..overlap + count], at);
                held.doing("read", path)?;
                self.check_encrypted(&pieces, count, at).map_err(&differs)?;
                if seen.finds(&pieces.stored[..overlap + count], &samples) {
                    return Err(differs("it contains plaintext of the source".to_owned()));
                }
                pieces.stored.copy_within(count..count + overlap, 0);
            }
            at += count as u64;
            done(at)?;
        }
        self.counts.files += 1;
        self.counts.encrypted += u64::from(file.class.is_encrypted());
        self.counts.bytes += file.bytes;
        self.counts.samples += samples.len() as u64;
        Ok(())
    }

    /// Checks that no non-zero page is stored unencrypted.
    fn check_encrypted(&mut self, pieces: &Pieces, count: usize, at: u64) -> std::result::Result<(), String> {
        let stored = &pieces.stored[SAMPLE_BYTES - 1..][..count];
        let pages = pieces.source[..count].chunks(UNIT_BYTES).zip(stored.chunks(UNIT_BYTES));
        for ((plain, stored), number) in pages.zip(at / UNIT_BYTES as u64..) {
            // A few bytes at the end of a file can be equal by chance.
            if plain.len() < SAMPLE_BYTES || is_zero(plain) {
                continue;
            }
            if plain == stored {
                return Err(format!("its page {number} is not encrypted"));
            }
            self.counts.pages += 1;
        }
        Ok(())
    }

    /// Takes samples of the source's plaintext from the whole file. None if the target is not encrypted.
    fn samples(&mut self, file: &PlannedFile, source: &mut ConversionFile) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        if self.direction == ConversionDirection::Decrypt || !file.class.is_encrypted() {
            return Ok(samples);
        }
        let mut bytes = [0; SEARCHED_BYTES];
        let step = (file.bytes / SAMPLES).max(1);
        for at in (0..file.bytes).step_by(step as usize) {
            let count = source.read(self.engine, &mut bytes, at).doing("read", &file.from)?;
            let found = bytes[..count]
                .windows(SAMPLE_BYTES)
                .zip(at..)
                .find(|(window, at)| is_sample(file.class, window, *at));
            if let Some((window, _)) = found {
                samples.extend(<Sample>::try_from(window));
            }
        }
        Ok(samples)
    }
}

fn is_sample(class: FileClass, window: &[u8], at: u64) -> bool {
    let unit = UNIT_BYTES as u64;
    let is_in_header = class == FileClass::Wal
        && (at % unit < WAL_HEADER_BYTES as u64 || at % unit > unit - SAMPLE_BYTES as u64);
    !is_in_header && variety(window) >= SAMPLE_VARIETY
}

/// The number of different bytes.
fn variety(window: &[u8]) -> u32 {
    let mut seen = [0_u64; 4];
    for &byte in window {
        seen[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }
    seen.iter().map(|bits| bits.count_ones()).sum()
}

/// The first two bytes of all samples: a fast filter for most positions.
struct SampleFilter(Vec<bool>);

impl SampleFilter {
    fn of(samples: &[Sample]) -> Self {
        let mut first = vec![false; if samples.is_empty() { 0 } else { 1 << 16 }];
        for sample in samples {
            first[usize::from(u16::from_le_bytes([sample[0], sample[1]]))] = true;
        }
        Self(first)
    }

    fn finds(&self, bytes: &[u8], samples: &[Sample]) -> bool {
        let is_first = |window: &[u8]| self.0[usize::from(u16::from_le_bytes([window[0], window[1]]))];
        !samples.is_empty()
            && bytes
                .windows(SAMPLE_BYTES)
                .any(|window| is_first(window) && samples.iter().any(|sample| sample == window))
    }
}

/// Fails if the target contains a file that is not in the source, except the journal.
pub(super) fn check_no_other_files(plan: &ConversionPlan) -> Result<()> {
    let files = plan.listing.files.iter().chain(&plan.last).map(|file| &file.to);
    let links = plan.listing.links.iter().map(|link| &link.to);
    let directories = plan.listing.directories.iter().map(|directory| &directory.to);
    let expected: HashSet<&PathBuf> = files.chain(links).chain(directories).collect();
    for directory in &plan.listing.directories {
        for entry in fs::read_dir(&directory.to).doing("read", &directory.to)? {
            let entry = entry.doing("read", &directory.to)?;
            if entry.file_name() != JOURNAL && !expected.contains(&entry.path()) {
                return Err(ConvertError::Differs {
                    path: entry.path(),
                    why: "it is not in the source".to_owned(),
                });
            }
        }
    }
    Ok(())
}
