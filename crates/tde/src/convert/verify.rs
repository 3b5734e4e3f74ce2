//! Reads the target back and compares it with the source.

use std::collections::HashSet;
use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use super::files::{CHUNK_BYTES, Done, Side, fault};
use super::plan::{Plan, PlannedFile};
use super::{ConvertError, Direction, JOURNAL, Result, Verified, failed, open};
use crate::unit::is_zero;
use crate::{Engine, Place, Storage, UNIT_BYTES};

/// Samples of plaintext from each encrypted file.
const SAMPLES: u64 = 64;
const SAMPLE_BYTES: usize = 16;
/// A sample with fewer different bytes could be anywhere.
const SAMPLE_VARIETY: u32 = 8;
/// Where a sample is looked for at each position.
const SEARCHED_BYTES: usize = 256;
/// What each page of WAL begins with, in clear.
const WAL_HEADER_BYTES: usize = 16;

type Sample = [u8; SAMPLE_BYTES];

/// Compares files, and counts what was compared.
pub(super) struct Verifier<'a> {
    direction: Direction,
    engine: &'a mut Engine,
    pub(super) counted: Verified,
}

/// The same piece of a file: plaintext, as the target gives it, and the ciphertext of either side.
struct Pieces {
    source: Vec<u8>,
    target: Vec<u8>,
    /// The last bytes of the piece before, then the piece.
    stored: Vec<u8>,
}

impl<'a> Verifier<'a> {
    pub(super) fn new(direction: Direction, engine: &'a mut Engine) -> Self {
        Self::continuing(direction, engine, Verified::default())
    }

    /// Adds to what was counted.
    pub(super) fn continuing(direction: Direction, engine: &'a mut Engine, counted: Verified) -> Self {
        Self { direction, engine, counted }
    }

    /// A file of the target: read from the disk, equal to the source, and without its plaintext if it is encrypted.
    pub(super) fn verify(&mut self, file: &PlannedFile, done: &mut Done<'_>) -> Result<()> {
        let to = file.to.as_path();
        let differs = |why: String| ConvertError::Differs { path: to.to_owned(), why };
        let written = open(to)?;
        // What is on disk, not what was written a moment ago. Advice: where it is not taken, the cache is read.
        let _ = posix_fadvise(written.as_fd(), 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        let mut source = Side::source(file, self.direction)?;
        let mut target = Side::target(file.place, written, self.direction);
        let size = target.stored().size().map_err(failed("read", to))?;
        if size != file.bytes {
            return Err(differs(format!(
                "it has {size} bytes, and {} has {}",
                file.from.display(),
                file.bytes
            )));
        }
        let samples = self.samples(file, &mut source)?;
        let seen = Filter::of(&samples);
        let overlap = SAMPLE_BYTES - 1;
        let piece = || vec![0; CHUNK_BYTES];
        let mut pieces = Pieces { source: piece(), target: piece(), stored: vec![0; overlap + CHUNK_BYTES] };
        let mut at = 0;
        while at < file.bytes {
            let count = CHUNK_BYTES.min((file.bytes - at) as usize);
            let read = source
                .read(self.engine, &mut pieces.source[..count], at)
                .map_err(failed("read", &file.from))?;
            let again =
                target.read(self.engine, &mut pieces.target[..count], at).map_err(failed("read", to))?;
            if (read, again) != (count, count) || pieces.source[..count] != pieces.target[..count] {
                return Err(differs(format!(
                    "its plaintext differs from {}, from byte {at} on",
                    file.from.display()
                )));
            }
            if file.place.is_encrypted() {
                let (stored, path) = match self.direction {
                    Direction::Encrypt => (target.stored(), to),
                    Direction::Decrypt => (source.stored(), file.from.as_path()),
                };
                let held = stored.read_at(&mut pieces.stored[overlap..overlap + count], at);
                held.map_err(failed("read", path))?;
                self.encrypted_piece(&pieces, count, at).map_err(&differs)?;
                if seen.finds(&pieces.stored[..overlap + count], &samples) {
                    return Err(differs("it contains plaintext of the source".to_owned()));
                }
                pieces.stored.copy_within(count..count + overlap, 0);
            }
            at += count as u64;
            done(at)?;
        }
        self.counted.files += 1;
        self.counted.encrypted += u64::from(file.place.is_encrypted());
        self.counted.bytes += file.bytes;
        self.counted.samples += samples.len() as u64;
        Ok(())
    }

    /// No page that is not zero may be stored as it is.
    fn encrypted_piece(&mut self, pieces: &Pieces, count: usize, at: u64) -> std::result::Result<(), String> {
        let stored = &pieces.stored[SAMPLE_BYTES - 1..][..count];
        let pages = pieces.source[..count].chunks(UNIT_BYTES).zip(stored.chunks(UNIT_BYTES));
        for ((plain, stored), number) in pages.zip(at / UNIT_BYTES as u64..) {
            // A few bytes at a file's end can be the same by chance.
            if plain.len() < SAMPLE_BYTES || is_zero(plain) {
                continue;
            }
            if plain == stored {
                return Err(format!("its page {number} is not encrypted"));
            }
            self.counted.pages += 1;
        }
        Ok(())
    }

    /// Bytes of the source that must not be in the target, from all over the file. None where the target is in clear.
    fn samples(&mut self, file: &PlannedFile, source: &mut Side) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        if self.direction == Direction::Decrypt || !file.place.is_encrypted() {
            return Ok(samples);
        }
        let mut bytes = [0; SEARCHED_BYTES];
        let step = (file.bytes / SAMPLES).max(1);
        for at in (0..file.bytes).step_by(step as usize) {
            let count = source.read(self.engine, &mut bytes, at).map_err(failed("read", &file.from))?;
            let found = bytes[..count]
                .windows(SAMPLE_BYTES)
                .zip(at..)
                .find(|(window, at)| is_sample(file.place, window, *at));
            if let Some((window, _)) = found {
                samples.extend(<Sample>::try_from(window));
            }
        }
        Ok(samples)
    }
}

fn is_sample(place: Place, window: &[u8], at: u64) -> bool {
    let unit = UNIT_BYTES as u64;
    let is_in_header = place == Place::Wal
        && (at % unit < WAL_HEADER_BYTES as u64 || at % unit > unit - SAMPLE_BYTES as u64);
    !is_in_header && variety(window) >= SAMPLE_VARIETY
}

/// How many different bytes there are.
fn variety(window: &[u8]) -> u32 {
    let mut seen = [0_u64; 4];
    for &byte in window {
        seen[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }
    seen.iter().map(|bits| bits.count_ones()).sum()
}

/// Which first two bytes samples have: almost every position is passed over by them.
struct Filter(Vec<bool>);

impl Filter {
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

/// Nothing may be in the target that is not of the source, but the journal.
pub(super) fn no_other_files(plan: &Plan) -> Result<()> {
    let files = plan.files.iter().chain(&plan.last).map(|file| &file.to);
    let links = plan.links.iter().map(|link| &link.to);
    let directories = plan.directories.iter().map(|directory| &directory.to);
    let expected: HashSet<&PathBuf> = files.chain(links).chain(directories).collect();
    for directory in &plan.directories {
        let unreadable = |error| fault("read", &directory.to, error);
        for entry in fs::read_dir(&directory.to).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
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
