//! Plaintext read and written through ciphertext: what a server's file calls become.
//!
//! Everything is allocated when the engine is made. Ciphers of the files in use are kept in a table of fixed size; where
//! that is too small for them, a file's key is derived anew, which takes as long as two pages.

use crate::cipher::PageCipher;
use crate::error::{Errno, KeyError};
use crate::kdf::derive;
use crate::key_file::DataKeys;
use crate::secret::wipe_stack;
use crate::storage::Storage;
use crate::unit::{Direction, transform};
use crate::{Place, Strength, UNIT_BYTES};

/// Units that are encrypted before they are written together.
const CHUNK_UNITS: usize = 32;
/// Direct I/O takes buffers at multiples of this.
const ALIGNMENT: usize = 4096;
/// The table of ciphers: as many sets, and in each as many files.
const SETS: usize = 64;
const WAYS: usize = 4;

/// A file that was opened: what it is, and its bed in the table of ciphers.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    place: Place,
    subject: [u8; 33],
    set: usize,
    way: usize,
}

/// What is to be written. It is copied once, so that what changes meanwhile, as pages in shared memory may, is encrypted
/// as it was at one moment.
pub trait Source {
    /// How many bytes.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Copies what begins at `at` into all of `bytes`.
    fn copy_to(&self, at: usize, bytes: &mut [u8]);
}

impl Source for &[u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    fn copy_to(&self, at: usize, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self[at..at + bytes.len()]);
    }
}

/// Keys, ciphers and a buffer.
pub struct Engine {
    keys: DataKeys,
    ciphers: Ciphers,
    buffer: Buffer,
}

struct Ciphers {
    beds: Vec<Bed>,
    /// Who leaves next, of each set.
    next: [usize; SETS],
}

struct Bed {
    subject: Option<[u8; 33]>,
    cipher: PageCipher,
}

/// Where units are encrypted before they are written: aligned as direct I/O wants it.
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Opened {
    /// Of a place; it may be open several times.
    pub fn new(place: Place) -> Self {
        let subject = place.subject();
        Self { place, subject, set: spread(&subject), way: 0 }
    }

    /// What it is.
    pub fn place(&self) -> Place {
        self.place
    }
}

impl Engine {
    /// All that will be needed.
    pub fn new(keys: DataKeys) -> Result<Self, KeyError> {
        let ciphers = Ciphers::new(keys.strength())?;
        Ok(Self { keys, ciphers, buffer: Buffer::new() })
    }

    /// Derives every file's key anew when it is next wanted.
    ///
    /// AWS-LC looks at the processor in an initialiser of its own. A key that was taken before that, in somebody else's,
    /// was laid out for no instructions, and would be used by those that were found since.
    pub fn forget_keys(&mut self) {
        self.ciphers.beds.iter_mut().for_each(|bed| bed.subject = None);
    }

    /// Reads plaintext at an offset, as `pread` does.
    pub fn read_at(
        &mut self,
        file: &mut Opened,
        storage: &impl Storage,
        bytes: &mut [u8],
        offset: u64,
    ) -> Result<usize, Errno> {
        let Self { keys, ciphers, buffer } = self;
        let buffer = buffer.aligned();
        let mut units = Units::new(ciphers.of(keys, file)?, file.place);
        let unit = units.bytes;
        if offset.is_multiple_of(unit) && (bytes.len() as u64).is_multiple_of(unit) {
            let count = storage.read_at(bytes, offset)?;
            units.run(Direction::Decrypt, offset / unit, &mut bytes[..count])?;
            return Ok(count);
        }
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (number, skipped) = (at / unit, (at % unit) as usize);
            let wanted = (skipped + bytes.len() - done).next_multiple_of(unit as usize).min(buffer.len());
            let count = storage.read_at(&mut buffer[..wanted], number * unit)?;
            if count <= skipped {
                break;
            }
            units.run(Direction::Decrypt, number, &mut buffer[..count])?;
            let copied = (count - skipped).min(bytes.len() - done);
            bytes[done..done + copied].copy_from_slice(&buffer[skipped..skipped + copied]);
            done += copied;
            if count < wanted {
                break;
            }
        }
        Ok(done)
    }

    /// Writes plaintext at an offset, as `pwrite` does.
    pub fn write_at(
        &mut self,
        file: &mut Opened,
        storage: &impl Storage,
        bytes: &impl Source,
        offset: u64,
    ) -> Result<usize, Errno> {
        let Self { keys, ciphers, buffer } = self;
        let buffer = buffer.aligned();
        let mut units = Units::new(ciphers.of(keys, file)?, file.place);
        let unit = units.bytes;
        let whole = offset.is_multiple_of(unit) && (bytes.len() as u64).is_multiple_of(unit);
        if bytes.is_empty() {
            return Ok(0);
        }
        if whole && file.place.is_paged() {
            return units.write_whole(storage, bytes, offset, buffer);
        }
        let mut size = storage.size()?;
        let first = offset - offset % unit;
        if size < first {
            units.lengthen(storage, size, first)?;
            size = first;
        }
        if whole {
            units.write_whole(storage, bytes, offset, buffer)
        } else {
            units.write_parts(storage, bytes, offset, size)
        }
    }

    /// Makes a file as long, as `ftruncate` does.
    pub fn set_size(&mut self, file: &mut Opened, storage: &impl Storage, size: u64) -> Result<(), Errno> {
        let old = storage.size()?;
        let mut units = Units::new(self.ciphers.of(&self.keys, file)?, file.place);
        if size > old { units.lengthen(storage, old, size) } else { units.shorten(storage, old, size) }
    }
}

impl Buffer {
    fn new() -> Self {
        let bytes = vec![0; CHUNK_UNITS * UNIT_BYTES + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        Self { bytes, start }
    }

    fn aligned(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + CHUNK_UNITS * UNIT_BYTES]
    }
}

impl Ciphers {
    fn new(strength: Strength) -> Result<Self, KeyError> {
        let bed = || Ok(Bed { subject: None, cipher: PageCipher::new(strength)? });
        let beds = (0..SETS * WAYS).map(|_| bed()).collect::<Result<_, KeyError>>()?;
        Ok(Self { beds, next: [0; SETS] })
    }

    fn of(&mut self, keys: &DataKeys, file: &mut Opened) -> Result<&mut PageCipher, Errno> {
        let set = file.set;
        let beds = self.beds.get_mut(set * WAYS..(set + 1) * WAYS).ok_or(Errno::IO)?;
        if beds.get(file.way).is_none_or(|bed| bed.subject != Some(file.subject)) {
            let kept = beds.iter().position(|bed| bed.subject == Some(file.subject));
            file.way = if let Some(way) = kept {
                way
            } else {
                let way = replace(beds, &mut self.next[set], keys, file);
                wipe_stack();
                way?
            };
        }
        Ok(&mut beds[file.way].cipher)
    }
}

/// Gives a bed of the set to a file, and says which.
#[inline(never)]
fn replace(beds: &mut [Bed], next: &mut usize, keys: &DataKeys, file: &Opened) -> Result<usize, Errno> {
    let way = *next;
    *next = (way + 1) % WAYS;
    let bed = &mut beds[way];
    // Until it has its key, the cipher is nobody's.
    bed.subject = None;
    bed.cipher.set_key(&keys.file_key(file.place, &file.subject))?;
    bed.subject = Some(file.subject);
    Ok(way)
}

/// Which set: numbers of relations follow one another, digests are spread as they are.
fn spread(subject: &[u8; 33]) -> usize {
    let mixed =
        subject.iter().fold(0_u32, |mixed, &byte| mixed.wrapping_mul(31).wrapping_add(u32::from(byte)));
    mixed as usize % SETS
}

/// Keys never leave [`DataKeys`] but for here.
impl DataKeys {
    fn file_key(&self, place: Place, subject: &[u8; 33]) -> crate::kdf::Derived {
        match place {
            Place::Wal | Place::WalDraft => derive(self.wal(), b"ciphertoll tde wal", subject),
            Place::Temporary(_) => derive(self.temporary(), b"ciphertoll tde temporary", subject),
            _ => derive(self.relations(), b"ciphertoll tde files", subject),
        }
    }
}

/// The units of a file, under its key.
struct Units<'a> {
    cipher: &'a mut PageCipher,
    place: Place,
    bytes: u64,
}

impl<'a> Units<'a> {
    fn new(cipher: &'a mut PageCipher, place: Place) -> Self {
        Self { cipher, place, bytes: place.unit_bytes() as u64 }
    }

    /// All units of `bytes`, the first of which is the `number`th of the file.
    fn run(&mut self, direction: Direction, number: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        for (unit, number) in bytes.chunks_mut(self.place.unit_bytes()).zip(number..) {
            transform(self.cipher, self.place, direction, number, unit)?;
        }
        Ok(())
    }

    fn write_whole(
        &mut self,
        storage: &impl Storage,
        bytes: &impl Source,
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
                .run(Direction::Encrypt, at / self.bytes, chunk)
                .and_then(|()| storage.write_at(chunk, at));
            match written {
                // Half a unit cannot be read again: to the server it was not written.
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

    /// Unit by unit: what is not overwritten is read, and all of it written again.
    fn write_parts(
        &mut self,
        storage: &impl Storage,
        bytes: &impl Source,
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

    /// From one length to a greater one: a short last unit becomes a longer one, which encrypts otherwise.
    fn lengthen(&mut self, storage: &impl Storage, old: u64, new: u64) -> Result<(), Errno> {
        let (number, rest) = (old / self.bytes, (old % self.bytes) as usize);
        if rest > 0 {
            let mut unit = [0; UNIT_BYTES];
            self.read_unit(storage, number, &mut unit[..rest])?;
            let grown = (new - number * self.bytes).min(self.bytes) as usize;
            self.write_unit(storage, number, &mut unit[..grown])?;
        }
        storage.set_size(new)?;
        let last = (new % self.bytes) as usize;
        // Such a rest of zeros is no rest of zeros on disk.
        if (1..16).contains(&last) && (rest == 0 || new / self.bytes != number) {
            let mut unit = [0; 16];
            self.write_unit(storage, new / self.bytes, &mut unit[..last])?;
        }
        Ok(())
    }

    fn shorten(&mut self, storage: &impl Storage, old: u64, new: u64) -> Result<(), Errno> {
        let (number, rest) = (new / self.bytes, (new % self.bytes) as usize);
        if rest > 0 && old > new {
            let mut unit = [0; UNIT_BYTES];
            let held = (old - number * self.bytes).min(self.bytes) as usize;
            self.read_unit(storage, number, &mut unit[..held])?;
            self.write_unit(storage, number, &mut unit[..rest])?;
        }
        storage.set_size(new)
    }

    fn read_unit(&mut self, storage: &impl Storage, number: u64, unit: &mut [u8]) -> Result<(), Errno> {
        // Somebody who cut it off meanwhile is no reason to take zeros for its content.
        if storage.read_at(unit, number * self.bytes)? != unit.len() {
            return Err(Errno::IO);
        }
        self.run(Direction::Decrypt, number, unit)
    }

    fn write_unit(&mut self, storage: &impl Storage, number: u64, unit: &mut [u8]) -> Result<(), Errno> {
        self.run(Direction::Encrypt, number, unit)?;
        let written = storage.write_at(unit, number * self.bytes)?;
        if written == unit.len() { Ok(()) } else { Err(Errno::NO_SPACE) }
    }
}
