//! Plaintext read and written through ciphertext: what a server's file calls become.
//!
//! Everything is allocated when the engine is made. Ciphers of the files in use are kept in a table of fixed size; where
//! that is too small for them, a file's key is derived anew, which takes as long as two pages.

use zeroize::Zeroizing;

use crate::cipher::PageCipher;
use crate::error::{Errno, KeyError};
use crate::kdf::derive;
use crate::key_file::DataKeys;
use crate::seal::{self, CONTROL_BYTES, SECTOR_BYTES, Seal, Sector, VersionText};
use crate::secret::wipe_stack;
use crate::storage::Storage;
use crate::unit::{Direction, transform};
use crate::{Place, Strength, UNIT_BYTES};

/// Units that are encrypted before they are written together.
const CHUNK_UNITS: usize = 32;
/// Direct I/O takes buffers at multiples of this.
const ALIGNMENT: usize = 4096;
/// How often `pg_control` is read before it is said not to be authentic: a server may be writing it.
const CONTROL_READS: usize = 100;
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
        if self.seals() {
            match file.place {
                Place::Control => return self.read_control(file, storage, bytes, offset),
                Place::Version => return read_version(storage, bytes, offset),
                _ => {}
            }
        }
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
        if self.seals() {
            match file.place {
                Place::Control => return self.write_control(file, storage, bytes, offset),
                Place::Version => return write_version(storage, bytes, offset),
                _ => {}
            }
        }
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
        if self.seals() && matches!(file.place, Place::Control | Place::Version) {
            // They are written as a whole, and so have one length, or none.
            return if size == 0 || size == old { storage.set_size(size) } else { Err(Errno::IO) };
        }
        let mut units = Units::new(self.ciphers.of(&self.keys, file)?, file.place);
        if size > old { units.lengthen(storage, old, size) } else { units.shorten(storage, old, size) }
    }
}

/// Files that are sealed as a whole.
impl Engine {
    /// Not without a cipher: what is written then is to be what PostgreSQL would have written.
    fn seals(&self) -> bool {
        self.keys.strength().encrypts()
    }

    /// Whether `pg_control` is sealed with these keys.
    pub fn control_seal(&self, storage: &impl Storage) -> Result<Seal, Errno> {
        let mut sector = [0; SECTOR_BYTES];
        match storage.read_at(&mut sector, 0)? {
            0 => Ok(Seal::Absent),
            SECTOR_BYTES => Ok(seal::control_seal(&self.keys.control_mac(), &sector)),
            _ => Ok(Seal::Forged),
        }
    }

    fn read_control(
        &mut self,
        file: &mut Opened,
        storage: &impl Storage,
        bytes: &mut [u8],
        offset: u64,
    ) -> Result<usize, Errno> {
        let Some(mut sector) = self.authentic_control(storage)? else { return Ok(0) };
        let Self { keys, ciphers, .. } = self;
        let content = seal::open_control(ciphers.of(keys, file)?, &mut sector)?;
        let offset = usize::try_from(offset).map_err(|_| Errno::IO)?;
        let count = CONTROL_BYTES.saturating_sub(offset).min(bytes.len());
        for (byte, at) in bytes[..count].iter_mut().zip(offset..) {
            *byte = content.get(at).copied().unwrap_or(0);
        }
        Ok(count)
    }

    /// `None` while it is being made.
    fn authentic_control(&self, storage: &impl Storage) -> Result<Option<Sector>, Errno> {
        let key = self.keys.control_mac();
        for _ in 0..CONTROL_READS {
            let mut sector = [0; SECTOR_BYTES];
            match storage.read_at(&mut sector, 0)? {
                0 => return Ok(None),
                SECTOR_BYTES if seal::control_seal(&key, &sector) == Seal::Sealed => return Ok(Some(sector)),
                _ => std::thread::yield_now(),
            }
        }
        Err(Errno::IO)
    }

    fn write_control(
        &mut self,
        file: &mut Opened,
        storage: &impl Storage,
        bytes: &impl Source,
        offset: u64,
    ) -> Result<usize, Errno> {
        if offset != 0 || bytes.len() != CONTROL_BYTES {
            return Err(Errno::IO);
        }
        let mut plaintext = [0; CONTROL_BYTES];
        bytes.copy_to(0, &mut plaintext);
        let key = self.keys.control_mac();
        let Self { keys, ciphers, buffer } = self;
        let sector = seal::seal_control(ciphers.of(keys, file)?, &key, &plaintext)?;
        let stored = &mut buffer.aligned()[..CONTROL_BYTES];
        stored.fill(0);
        stored[..SECTOR_BYTES].copy_from_slice(&sector);
        write_all(storage, stored)?;
        Ok(CONTROL_BYTES)
    }
}

fn read_version(storage: &impl Storage, bytes: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut stored = [0; 16];
    let held = storage.read_at(&mut stored, 0)?;
    if held == 0 {
        return Ok(0);
    }
    let text = VersionText::opened(&stored[..held]).ok_or(Errno::IO)?;
    let rest = usize::try_from(offset).ok().and_then(|offset| text.as_bytes().get(offset..)).unwrap_or(&[]);
    let count = rest.len().min(bytes.len());
    bytes[..count].copy_from_slice(&rest[..count]);
    Ok(count)
}

fn write_version(storage: &impl Storage, bytes: &impl Source, offset: u64) -> Result<usize, Errno> {
    let mut plaintext = [0; 16];
    let plaintext = plaintext.get_mut(..bytes.len()).filter(|_| offset == 0).ok_or(Errno::IO)?;
    bytes.copy_to(0, plaintext);
    let text = VersionText::sealed(plaintext).ok_or(Errno::IO)?;
    write_all(storage, text.as_bytes())?;
    Ok(bytes.len())
}

/// What is shorter than a page is written at once, or the disk is full.
fn write_all(storage: &impl Storage, bytes: &[u8]) -> Result<(), Errno> {
    if storage.write_at(bytes, 0)? == bytes.len() { Ok(()) } else { Err(Errno::NO_SPACE) }
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

    fn control_mac(&self) -> Zeroizing<[u8; 32]> {
        let derived = derive(self.relations(), b"ciphertoll tde control", b"mac");
        let mut key = Zeroizing::new([0; 32]);
        key.copy_from_slice(&derived[..32]);
        key
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
