//! The encryption units of a file.
//!
//! A unit is at least as long as a block of the cipher: a shorter tail of a file joins the unit before it. Only a file that
//! is shorter as a whole is encrypted with a key stream. Relations, WAL and transaction status have no short tails.

use crate::cipher::PageCipher;
use crate::error::Errno;
use crate::storage::{Storage, WriteSource};
use crate::unit::transform;
use crate::xts::{BLOCK_BYTES, CipherOperation, MOST_UNIT_BYTES};
use crate::{FileClass, UNIT_BYTES};

/// The last unit of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastUnit {
    pub(crate) number: u64,
    /// Its offset.
    pub(crate) start: u64,
    /// 0 only for an empty file.
    pub(crate) length: usize,
}

/// The units before a change.
struct OldUnits<'a> {
    last: LastUnit,
    /// The plaintext of the last one, if it may be overwritten.
    kept: Option<&'a [u8; MOST_UNIT_BYTES]>,
}

impl LastUnit {
    pub(crate) fn of(class: FileClass, size: u64) -> Self {
        let unit = class.unit_bytes() as u64;
        let mut number = size.saturating_sub(1) / unit;
        let tail = size - number * unit;
        if class.joins_tail() && number > 0 && tail < BLOCK_BYTES as u64 {
            number -= 1;
        }
        let start = number * unit;
        Self { number, start, length: (size - start) as usize }
    }

    /// The length of a unit of the same file.
    fn length_of(self, unit: u64, number: u64) -> usize {
        match number.cmp(&self.number) {
            std::cmp::Ordering::Less => unit as usize,
            std::cmp::Ordering::Equal => self.length,
            std::cmp::Ordering::Greater => 0,
        }
    }
}

/// Splits off the last unit if it is longer than the others. `bytes` end with the file, or with a whole unit.
fn split_tail(class: FileClass, bytes: &mut [u8]) -> (&mut [u8], &mut [u8]) {
    let last = LastUnit::of(class, bytes.len() as u64);
    let at = if last.length > class.unit_bytes() { last.start as usize } else { bytes.len() };
    bytes.split_at_mut(at)
}

/// The encryption units of a file, with its cipher.
pub(crate) struct Units<'a> {
    cipher: &'a mut PageCipher,
    class: FileClass,
    pub(crate) bytes: u64,
}

impl<'a> Units<'a> {
    pub(crate) fn new(cipher: &'a mut PageCipher, class: FileClass) -> Self {
        Self { cipher, class, bytes: class.unit_bytes() as u64 }
    }

    /// Transforms all units of `bytes`, starting with unit `number` of the file.
    pub(crate) fn run(
        &mut self,
        operation: CipherOperation,
        number: u64,
        bytes: &mut [u8],
    ) -> Result<(), Errno> {
        let (whole, last) = split_tail(self.class, bytes);
        let mut next = number;
        for unit in whole.chunks_mut(self.class.unit_bytes()) {
            transform(self.cipher, self.class, operation, next, unit)?;
            next += 1;
        }
        if last.is_empty() { Ok(()) } else { transform(self.cipher, self.class, operation, next, last) }
    }

    pub(crate) fn write_whole(
        &mut self,
        storage: &impl Storage,
        bytes: &impl WriteSource,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Errno> {
        let mut done = 0;
        while done < bytes.len() {
            let count = (bytes.len() - done).min(buffer.len());
            let chunk = &mut buffer[..count];
            bytes.copy_to(done, chunk);
            let at = offset + done as u64;
            let written = self
                .run(CipherOperation::Encrypt, at / self.bytes, chunk)
                .and_then(|()| storage.write_at(chunk, at));
            match written {
                // A partially written unit could not be decrypted: report it as not written.
                Ok(written) if written < count => {
                    done += written - written % self.bytes as usize;
                    return if done == 0 { Err(Errno::NO_SPACE) } else { Ok(done) };
                }
                Ok(_) => done += count,
                Err(error) => return if done == 0 { Err(error) } else { Ok(done) },
            }
        }
        Ok(done)
    }

    /// Reads, changes and rewrites each unit that is overwritten partially.
    pub(crate) fn write_parts(
        &mut self,
        storage: &impl Storage,
        bytes: &impl WriteSource,
        offset: u64,
        size: u64,
    ) -> Result<usize, Errno> {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (number, from) = (at / self.bytes, (at % self.bytes) as usize);
            let count = (bytes.len() - done).min(self.bytes as usize - from);
            let old = size.saturating_sub(number * self.bytes).min(self.bytes) as usize;
            let mut unit = [0; UNIT_BYTES];
            if from > 0 || from + count < old {
                self.read_unit(storage, number, &mut unit[..old])?;
            }
            bytes.copy_to(done, &mut unit[from..from + count]);
            let new = old.max(from + count);
            match self.write_unit(storage, number, &mut unit[..new]) {
                Ok(()) => done += count,
                Err(error) => return if done == 0 { Err(error) } else { Ok(done) },
            }
        }
        Ok(done)
    }

    /// Extends the file. A short last unit grows, which changes its ciphertext.
    pub(crate) fn lengthen(&mut self, storage: &impl Storage, old: u64, new: u64) -> Result<(), Errno> {
        if self.class.joins_tail() {
            let written = self.lay_out(storage, old, new, None);
            storage.set_size(if written.is_ok() { new } else { old })?;
            return written;
        }
        let (number, rest) = (old / self.bytes, (old % self.bytes) as usize);
        if rest > 0 {
            let mut unit = [0; UNIT_BYTES];
            self.read_unit(storage, number, &mut unit[..rest])?;
            let grown = (new - number * self.bytes).min(self.bytes) as usize;
            self.write_unit(storage, number, &mut unit[..grown])?;
        }
        storage.set_size(new)
    }

    pub(crate) fn shorten(&mut self, storage: &impl Storage, old: u64, new: u64) -> Result<(), Errno> {
        if new > 0 && old > new {
            let last = LastUnit::of(self.class, new);
            let before = LastUnit::of(self.class, old).length_of(self.bytes, last.number);
            if last.length != before {
                let mut unit = [0; MOST_UNIT_BYTES];
                self.read_units(storage, last, old, &mut unit)?;
                self.write_unit(storage, last.number, &mut unit[..last.length])?;
            }
        }
        storage.set_size(new)
    }

    /// Reads the plaintext of a unit of another layout, in a file whose size is `size`.
    fn read_units(
        &mut self,
        storage: &impl Storage,
        wanted: LastUnit,
        size: u64,
        unit: &mut [u8; MOST_UNIT_BYTES],
    ) -> Result<(), Errno> {
        let last = LastUnit::of(self.class, size);
        let first = last.length_of(self.bytes, wanted.number);
        self.read_unit(storage, wanted.number, &mut unit[..first])?;
        if wanted.length > first {
            // A tail that joins this unit was the beginning of the next one.
            let mut next = [0; MOST_UNIT_BYTES];
            let length = last.length_of(self.bytes, wanted.number + 1);
            self.read_unit(storage, wanted.number + 1, &mut next[..length])?;
            unit[first..wanted.length].copy_from_slice(&next[..wanted.length - first]);
        }
        Ok(())
    }

    /// Reads a file whose last unit may be longer than the others. How many bytes the file holds after the wanted ones says
    /// where its last unit begins.
    pub(crate) fn read_joined(
        &mut self,
        storage: &impl Storage,
        bytes: &mut [u8],
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Errno> {
        let unit = self.bytes as usize;
        let room = (buffer.len() - BLOCK_BYTES) / unit * unit;
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let mut start = at - at % self.bytes;
            let wanted =
                |start| ((at - start) as usize + bytes.len() - done).next_multiple_of(unit).min(room);
            let mut most = wanted(start) + BLOCK_BYTES;
            let mut count = storage.read_at(&mut buffer[..most], start)?;
            if start > 0 && (1..BLOCK_BYTES).contains(&count) {
                start -= self.bytes;
                most = wanted(start) + BLOCK_BYTES;
                count = storage.read_at(&mut buffer[..most], start)?;
            }
            let is_end = count < most;
            let held = if is_end { count } else { most - BLOCK_BYTES };
            self.run(CipherOperation::Decrypt, start / self.bytes, &mut buffer[..held])?;
            let skipped = (at - start) as usize;
            let copied = held.saturating_sub(skipped).min(bytes.len() - done);
            bytes[done..done + copied].copy_from_slice(&buffer[skipped..skipped + copied]);
            done += copied;
            if is_end || copied == 0 {
                break;
            }
        }
        Ok(done)
    }

    /// Writes to a file whose last unit may be longer than the others. There is no gap before `offset`.
    pub(crate) fn write_joined(
        &mut self,
        storage: &impl Storage,
        bytes: &impl WriteSource,
        offset: u64,
        size: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Errno> {
        let end = offset + bytes.len() as u64;
        let is_whole = offset.is_multiple_of(self.bytes) && end.is_multiple_of(self.bytes);
        if is_whole && (size.is_multiple_of(self.bytes) || end <= LastUnit::of(self.class, size).start) {
            return self.write_whole(storage, bytes, offset, buffer);
        }
        let new = size.max(end);
        let written = self.lay_out(storage, size, new, Some((bytes, offset)));
        if written.is_err() && new > size {
            // Without the new layout of the last units, the size must be the old one.
            storage.set_size(size)?;
        }
        written.map(|()| bytes.len())
    }

    /// Writes all units that a new size or new bytes change. If that fails, the old last unit is restored.
    fn lay_out(
        &mut self,
        storage: &impl Storage,
        old_size: u64,
        new_size: u64,
        given: Option<(&dyn WriteSource, u64)>,
    ) -> Result<(), Errno> {
        let (old, new) = (LastUnit::of(self.class, old_size), LastUnit::of(self.class, new_size));
        let grows = new_size > old_size;
        let mut kept = [0; MOST_UNIT_BYTES];
        let keeps = grows && old_size > 0 && (old.length != self.bytes as usize || new.number == old.number);
        if keeps {
            self.read_unit(storage, old.number, &mut kept[..old.length])?;
        }
        let (mut first, mut last) = match given {
            Some((bytes, offset)) => {
                let end = offset + bytes.len() as u64;
                ((offset / self.bytes).min(new.number), ((end - 1) / self.bytes).min(new.number))
            }
            None => (
                new.number,
                if new.length < BLOCK_BYTES || keeps { new.number.min(old.number + 1) } else { 0 },
            ),
        };
        if keeps {
            first = first.min(old.number);
            last = last.max(first);
        }
        let old = OldUnits { last: old, kept: keeps.then_some(&kept) };
        let mut next = first;
        while next <= last.min(new.number) {
            // A tail that no longer joins the last unit is written with it, by one call: of the old bytes, which may be synced,
            // neither part can be decrypted without the other.
            let splits = keeps
                && next == old.last.number
                && old.last.length > self.bytes as usize
                && next < new.number;
            let count = if splits { 2 } else { 1 };
            let written = self.write_laid_out(storage, (next, count), new, &old, given);
            next += count;
            if written.is_err() {
                if keeps {
                    let (number, length) = (old.last.number, old.last.length);
                    let mut unit = kept;
                    self.write_unit(storage, number, &mut unit[..length])?;
                }
                return written;
            }
        }
        Ok(())
    }

    /// Writes one or two units of a new layout, from unit `first`.
    #[expect(clippy::large_stack_arrays, reason = "nothing is allocated within a server's write")]
    fn write_laid_out(
        &mut self,
        storage: &impl Storage,
        (first, count): (u64, u64),
        new: LastUnit,
        old: &OldUnits<'_>,
        given: Option<(&dyn WriteSource, u64)>,
    ) -> Result<(), Errno> {
        let mut bytes = [0; 2 * MOST_UNIT_BYTES];
        let mut end = 0;
        for number in first..first + count {
            let start = end;
            end += new.length_of(self.bytes, number);
            let unit = &mut bytes[start..end];
            self.lay_out_unit(storage, number, unit, old, given)?;
            self.run(CipherOperation::Encrypt, number, unit)?;
        }
        let written = storage.write_at(&bytes[..end], first * self.bytes)?;
        if written == end { Ok(()) } else { Err(Errno::NO_SPACE) }
    }

    /// The plaintext of a unit of a new layout: old content, then the given bytes over it. `unit` holds zeros.
    fn lay_out_unit(
        &mut self,
        storage: &impl Storage,
        number: u64,
        unit: &mut [u8],
        old: &OldUnits<'_>,
        given: Option<(&dyn WriteSource, u64)>,
    ) -> Result<(), Errno> {
        let length = unit.len();
        let start = number * self.bytes;
        let piece = given.and_then(|(bytes, offset)| {
            let from = offset.max(start);
            let end = (offset + bytes.len() as u64).min(start + length as u64);
            (from < end).then_some((
                bytes,
                (from - offset) as usize,
                (from - start) as usize..(end - start) as usize,
            ))
        });
        let is_overwritten = piece.as_ref().is_some_and(|(_, _, range)| range.len() == length);
        if !is_overwritten {
            let last = &old.last;
            match old.kept {
                Some(kept) if number == last.number => {
                    let held = last.length.min(length);
                    unit[..held].copy_from_slice(&kept[..held]);
                }
                Some(kept) if number == last.number + 1 => {
                    let tail = kept.get(self.bytes as usize..last.length).unwrap_or_default();
                    unit[..tail.len()].copy_from_slice(tail);
                }
                _ => {
                    let held = last.length_of(self.bytes, number).min(length);
                    self.read_unit(storage, number, &mut unit[..held])?;
                }
            }
        }
        if let Some((bytes, from, range)) = piece {
            bytes.copy_to(from, &mut unit[range]);
        }
        Ok(())
    }

    fn read_unit(&mut self, storage: &impl Storage, number: u64, unit: &mut [u8]) -> Result<(), Errno> {
        // If the file was truncated concurrently, the missing bytes must not be read as zeros.
        if storage.read_at(unit, number * self.bytes)? != unit.len() {
            return Err(Errno::IO);
        }
        self.run(CipherOperation::Decrypt, number, unit)
    }

    fn write_unit(&mut self, storage: &impl Storage, number: u64, unit: &mut [u8]) -> Result<(), Errno> {
        self.run(CipherOperation::Encrypt, number, unit)?;
        let written = storage.write_at(unit, number * self.bytes)?;
        if written == unit.len() { Ok(()) } else { Err(Errno::NO_SPACE) }
    }
}
