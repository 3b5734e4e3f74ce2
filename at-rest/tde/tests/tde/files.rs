//! A file written through the engine has the same content as a plain file after any operations.

use std::cell::RefCell;

use ciphertoll_tde::{
    CipherKind, DataKeys, EncryptionEngine, Errno, FileClass, OpenFile, Storage, UNIT_BYTES,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A file in memory, with an optional size limit.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) bytes: RefCell<Vec<u8>>,
    pub(crate) most: Option<usize>,
}

impl Storage for Memory {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let held = self.bytes.borrow();
        let rest = held.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(bytes.len());
        bytes[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
        let mut held = self.bytes.borrow_mut();
        let start = offset as usize;
        let end = (start + bytes.len()).min(self.most.unwrap_or(usize::MAX));
        let count = end.checked_sub(start).filter(|&count| count > 0).ok_or(Errno::NO_SPACE)?;
        if held.len() < end {
            held.resize(end, 0);
        }
        held[start..end].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn size(&self) -> Result<u64, Errno> {
        Ok(self.bytes.borrow().len() as u64)
    }

    fn set_size(&self, size: u64) -> Result<(), Errno> {
        self.bytes.borrow_mut().resize(size as usize, 0);
        Ok(())
    }
}

pub(crate) fn engine() -> EncryptionEngine {
    EncryptionEngine::new(DataKeys::generate(CipherKind::Aes256).expect("keys")).expect("an engine")
}

/// The expected content.
#[derive(Default)]
struct Model(Vec<u8>);

impl Model {
    fn write(&mut self, bytes: &[u8], offset: usize) {
        let end = offset + bytes.len();
        if self.0.len() < end {
            self.0.resize(end, 0);
        }
        self.0[offset..end].copy_from_slice(bytes);
    }

    fn read(&self, offset: usize, count: usize) -> &[u8] {
        let rest = self.0.get(offset..).unwrap_or_default();
        &rest[..rest.len().min(count)]
    }
}

/// Lengths and offsets at unit boundaries, and others.
fn position(random: &mut Pcg64Mcg) -> usize {
    let unit = random.random_range(0..5) * UNIT_BYTES;
    match random.random_range(0..4) {
        0 => unit,
        1 => unit + random.random_range(0..33),
        2 => (unit + UNIT_BYTES) - random.random_range(0..33),
        _ => random.random_range(0..5 * UNIT_BYTES),
    }
}

fn content(random: &mut Pcg64Mcg, length: usize) -> Vec<u8> {
    match random.random_range(0..4) {
        0 => vec![0; length],
        1 => vec![7; length],
        _ => {
            let mut bytes = vec![0; length];
            random.fill(bytes.as_mut_slice());
            bytes
        }
    }
}

fn same_as_plain(seed: u64, engine: &mut EncryptionEngine) {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let names: [&[u8]; 3] = [b"pg_replslot/a.tmp/state", b"pg_replslot/a/state.tmp", b"pg_replslot/a/state"];
    let names = match seed % 4 {
        0 => names,
        2 => [b"base/pgsql_tmp/pgsql_tmp7.0".as_slice(); 3],
        // The server writes a relation in whole pages, and never renames it.
        _ => [b"base/5/16384".as_slice(); 3],
    };
    let mut file = OpenFile::new(FileClass::of(names[0]));
    let (storage, mut model) = (Memory::default(), Model::default());
    for step in 0..30 {
        match random.random_range(0..8) {
            0..=2 => {
                // The server writes relations only in whole pages.
                let whole = !seed.is_multiple_of(2);
                let (mut offset, mut length) = (position(&mut random), position(&mut random));
                if whole {
                    (offset, length) = (offset / UNIT_BYTES * UNIT_BYTES, length / UNIT_BYTES * UNIT_BYTES);
                }
                let bytes = content(&mut random, length);
                let count = engine.write_at(&mut file, &storage, &bytes.as_slice(), offset as u64);
                assert_eq!(count, Ok(bytes.len()), "seed {seed}, step {step}");
                if !bytes.is_empty() {
                    model.write(&bytes, offset);
                }
            }
            3 if seed.is_multiple_of(2) => {
                let length = random.random_range(0..100);
                let bytes = content(&mut random, length);
                let end = model.0.len();
                engine.write_at(&mut file, &storage, &bytes.as_slice(), end as u64).expect("appended");
                model.write(&bytes, end);
            }
            4 => {
                let mut size = position(&mut random);
                if !seed.is_multiple_of(2) {
                    size = size / UNIT_BYTES * UNIT_BYTES;
                }
                engine.set_size(&mut file, &storage, size as u64).expect("resized");
                model.0.resize(size, 0);
            }
            5 => file = OpenFile::new(FileClass::of(names[random.random_range(0..3)])),
            _ => {}
        }
        let (offset, length) = (position(&mut random), position(&mut random));
        let mut bytes = vec![0xEE; length];
        let count = engine.read_at(&mut file, &storage, &mut bytes, offset as u64).expect("read");
        assert!(bytes[..count] == *model.read(offset, length), "seed {seed}, step {step}: {offset}+{length}");
        assert_eq!(storage.size(), Ok(model.0.len() as u64), "seed {seed}, step {step}");
    }
    // No plaintext block except zeros is stored.
    let held = storage.bytes.borrow();
    for (plain, sealed) in model.0.chunks_exact(16).zip(held.chunks_exact(16)) {
        assert!(plain.iter().all(|&byte| byte == 0) || plain != sealed, "seed {seed}: a block in clear");
    }
}

#[test]
fn random_operations_give_the_same_content_as_on_plain_files() {
    let mut engine = engine();
    for seed in 0..1_000 {
        same_as_plain(seed, &mut engine);
    }
}

#[test]
fn more_files_than_cached_ciphers_can_be_used() {
    let mut engine = engine();
    let mut files: Vec<(OpenFile, Memory)> = (0..600)
        .map(|relation| {
            (OpenFile::new(FileClass::of(format!("base/5/{relation}").as_bytes())), Memory::default())
        })
        .collect();
    for (n, (file, storage)) in files.iter_mut().enumerate() {
        engine.write_at(file, storage, &[n as u8; UNIT_BYTES].as_slice(), 0).expect("written");
    }
    let first = files[1].1.bytes.borrow().clone();
    assert_ne!(first, *files[257].1.bytes.borrow(), "another file has another key");
    for (n, (file, storage)) in files.iter_mut().enumerate() {
        let mut page = [0; UNIT_BYTES];
        engine.read_at(file, storage, &mut page, 0).expect("read");
        assert_eq!(page, [n as u8; UNIT_BYTES]);
    }
}

#[test]
fn a_full_disk_takes_whole_pages_only() {
    let mut engine = engine();
    let mut file = OpenFile::new(FileClass::of(b"base/5/1"));
    let storage = Memory { most: Some(2 * UNIT_BYTES + 100), ..Memory::default() };
    let pages = vec![1; 3 * UNIT_BYTES];
    assert_eq!(engine.write_at(&mut file, &storage, &pages.as_slice(), 0), Ok(2 * UNIT_BYTES));
    let last = vec![1; UNIT_BYTES];
    let end = 2 * UNIT_BYTES as u64;
    assert_eq!(engine.write_at(&mut file, &storage, &last.as_slice(), end), Err(Errno::NO_SPACE));
}

#[test]
fn equal_pages_have_different_ciphertext() {
    let mut engine = engine();
    let mut file = OpenFile::new(FileClass::of(b"base/5/1"));
    let storage = Memory::default();
    engine.write_at(&mut file, &storage, &[3; 2 * UNIT_BYTES].as_slice(), 0).expect("written");
    let held = storage.bytes.borrow();
    assert_ne!(held[..UNIT_BYTES], held[UNIT_BYTES..]);
}

/// Files whose last unit is longer, and those that a server writes in small pieces.
const STATE: &[u8] = b"pg_replslot/a/state";

#[test]
fn a_full_disk_leaves_the_last_units_as_they_were() {
    for (size, length) in [(517, 600), (517, 3), (100, 5000), (512, 9), (1030, 10_000)] {
        let mut engine = engine();
        let mut file = OpenFile::new(FileClass::of(STATE));
        let mut storage = Memory::default();
        let content: Vec<u8> = (0..size).map(|n| n as u8 | 1).collect();
        engine.write_at(&mut file, &storage, &content.as_slice(), 0).expect("written");
        for most in size..size + length {
            storage.most = Some(most);
            let added = vec![9; length];
            let failed = engine.write_at(&mut file, &storage, &added.as_slice(), size as u64);
            assert_eq!(failed, Err(Errno::NO_SPACE), "{size} + {length}, {most}");
            assert_eq!(storage.size(), Ok(size as u64), "{size} + {length}, {most}");
            let mut back = vec![0; size];
            assert_eq!(engine.read_at(&mut file, &storage, &mut back, 0), Ok(size));
            assert!(back == content, "{size} + {length}, {most}");
        }
    }
}

/// Copies of a cluster with the same keys would show which bits differ between their tails.
#[test]
fn tails_have_no_key_stream() {
    let mut engine = engine();
    for length in 16..=1600 {
        let stored = [[0x55_u8], [0x56]].map(|byte| {
            let (mut file, storage) = (OpenFile::new(FileClass::of(STATE)), Memory::default());
            engine.write_at(&mut file, &storage, &byte.repeat(length).as_slice(), 0).expect("written");
            storage.bytes.into_inner()
        });
        let difference: Vec<u8> = stored[0].iter().zip(&stored[1]).map(|(one, other)| one ^ other).collect();
        // Of a key stream, the difference would be that of the plaintext everywhere.
        let tail = &difference[length - (length % 512).clamp(1, 16).min(length)..];
        assert!(tail.len() < 4 || tail.iter().any(|&byte| byte != 3), "{length}");
        // All but a partial block between others changes.
        let same = stored[0].iter().zip(&stored[1]).filter(|(one, other)| one == other).count();
        assert!(same < 8 + length / 64, "{length}: {same}");
    }
}

#[test]
fn a_relation_never_ends_with_less_than_a_block() {
    let mut engine = engine();
    let (mut file, storage) = (OpenFile::new(FileClass::of(b"base/5/1")), Memory::default());
    assert_eq!(engine.write_at(&mut file, &storage, &[1; 5].as_slice(), 0), Err(Errno::IO));
    assert_eq!(engine.write_at(&mut file, &storage, &[1; UNIT_BYTES].as_slice(), 0), Ok(UNIT_BYTES));
    let end = UNIT_BYTES as u64;
    assert_eq!(engine.write_at(&mut file, &storage, &[1; 5].as_slice(), end), Err(Errno::IO));
    assert_eq!(engine.set_size(&mut file, &storage, 5), Err(Errno::IO));
    assert_eq!(storage.size(), Ok(end));
}
