//! Pages that another process overwrites while they are read: bytes that are the same in both versions must be right.

use std::cell::Cell;

use ciphertoll_tde::{EncryptionEngine, Errno, FileClass, OpenFile, Storage, UNIT_BYTES};

use crate::files::{Memory, engine};

/// A process that is killed after a number of writes.
struct Killed {
    memory: Memory,
    writes: Cell<u32>,
}

impl Storage for Killed {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, Errno> {
        self.memory.read_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
        let left = self.writes.get().checked_sub(1).ok_or(Errno::IO)?;
        self.writes.set(left);
        self.memory.write_at(bytes, offset)
    }

    fn size(&self) -> Result<u64, Errno> {
        self.memory.size()
    }

    fn set_size(&self, size: u64) -> Result<(), Errno> {
        // After its death, it does not truncate the file either.
        if self.writes.get() == 0 { Err(Errno::IO) } else { self.memory.set_size(size) }
    }
}

/// Where both versions begin to differ: 8 mod 16, as a flush of WAL may end.
const CHANGED_FROM: usize = 4344;

/// Two versions of the ciphertext of a page. The first reads return a mix: the new version up to a position, and the old one
/// behind it.
struct Torn {
    old: Vec<u8>,
    new: Vec<u8>,
    mixed_reads: Cell<u32>,
}

impl Storage for Torn {
    fn read_at(&self, bytes: &mut [u8], _offset: u64) -> Result<usize, Errno> {
        bytes.copy_from_slice(&self.new);
        if let Some(left) = self.mixed_reads.get().checked_sub(1) {
            self.mixed_reads.set(left);
            // Different each time, as with a real writer.
            let torn_at = CHANGED_FROM + 16 * (left as usize % 100);
            bytes[torn_at..].copy_from_slice(&self.old[torn_at..]);
        }
        Ok(bytes.len())
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> Result<usize, Errno> {
        Err(Errno::IO)
    }

    fn size(&self) -> Result<u64, Errno> {
        Ok(UNIT_BYTES as u64)
    }

    fn set_size(&self, _size: u64) -> Result<(), Errno> {
        Err(Errno::IO)
    }
}

fn page(fill: u8) -> Vec<u8> {
    let mut page: Vec<u8> = (0..UNIT_BYTES).map(|at| (at * 7) as u8).collect();
    page[..8].copy_from_slice(&[0x10, 0xD1, 0, 0, 1, 0, 0, 0]);
    page[CHANGED_FROM..].fill(fill);
    page
}

fn torn(engine: &mut EncryptionEngine, file: &mut OpenFile, mixed_reads: u32) -> Torn {
    let mut stored = |fill| {
        let storage = Memory::default();
        engine.write_at(file, &storage, &page(fill).as_slice(), 0).expect("written");
        storage.bytes.into_inner()
    };
    Torn { old: stored(0), new: stored(0x5A), mixed_reads: Cell::new(mixed_reads) }
}

/// A buffer that is 8 mod 16, as a standby reads WAL into.
fn read(engine: &mut EncryptionEngine, file: &mut OpenFile, storage: &Torn) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0_u8; UNIT_BYTES + 64];
    let start = buffer.as_ptr().align_offset(32) + 8;
    let bytes = &mut buffer[start..start + UNIT_BYTES];
    engine.read_at(file, storage, bytes, 0).map(|count| bytes[..count].to_vec())
}

#[test]
fn a_page_that_is_overwritten_while_it_is_read_is_read_again() {
    let mut engine = engine();
    for path in ["pg_wal/000000010000000000000001", "base/5/16384", "pg_xact/0000"] {
        let mut file = OpenFile::new(FileClass::of(path.as_bytes()));
        for mixed_reads in [0, 1, 2, 7] {
            let storage = torn(&mut engine, &mut file, mixed_reads);
            let read = read(&mut engine, &mut file, &storage).expect("read");
            assert!(read == page(0x5A), "{path}, {mixed_reads} mixed reads");
        }
    }
}

#[test]
fn a_page_that_never_stays_the_same_is_an_error_and_not_garbage() {
    let mut engine = engine();
    let mut file = OpenFile::new(FileClass::of(b"pg_wal/000000010000000000000001"));
    let storage = torn(&mut engine, &mut file, u32::MAX);
    assert_eq!(read(&mut engine, &mut file, &storage), Err(Errno::IO));
}

/// What was written before, and synced, is still there: also if its end had joined the unit before it.
#[test]
fn a_server_that_is_killed_while_it_appends_to_a_state_file_loses_nothing_older() {
    let mut engine = engine();
    let path = b"pg_replslot/slot/xid-1-lsn-0-1.spill".as_slice();
    for size in (505..545).chain(1020..1045) {
        for appended in [1, 15, 100, 512, 2000] {
            for writes in 0..6 {
                let mut file = OpenFile::new(FileClass::of(path));
                let storage = Killed { memory: Memory::default(), writes: Cell::new(u32::MAX) };
                let old: Vec<u8> = (0..size).map(|at| at as u8 ^ 0x5A).collect();
                assert_eq!(engine.write_at(&mut file, &storage, &old.as_slice(), 0), Ok(size));
                storage.writes.set(writes);
                // It may fail.
                let _ = engine.write_at(&mut file, &storage, &vec![7; appended].as_slice(), size as u64);
                let mut read = vec![0; size];
                let held = engine.read_at(&mut file, &storage, &mut read, 0);
                assert!(held == Ok(size) && read == old, "{size} bytes, {appended} more, {writes} writes");
            }
        }
    }
}
