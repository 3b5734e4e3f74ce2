//! WAL pages can be read under any segment name; other data cannot be written to a segment.

use ciphertoll_tde::{Errno, FileClass, OpenFile, UNIT_BYTES};

use crate::files::{Memory, engine};

fn page(address: u64, fill: u8) -> Vec<u8> {
    let mut page = vec![fill; UNIT_BYTES];
    page[..8].copy_from_slice(&[0x10, 0xD1, 0, 0, 1, 0, 0, 0]);
    page[8..16].copy_from_slice(&address.to_le_bytes());
    page
}

fn opened(path: &str) -> OpenFile {
    OpenFile::new(FileClass::of(path.as_bytes()))
}

#[test]
fn a_segment_can_be_read_under_another_name_and_at_another_offset() {
    let mut engine = engine();
    let storage = Memory::default();
    let written = [page(0x0100_0000, 5), page(0x0100_2000, 5)].concat();
    engine.write_at(&mut opened("pg_wal/xlogtemp.7"), &storage, &written.as_slice(), 0).expect("written");
    {
        let held = storage.bytes.borrow();
        assert_eq!(held[..16], written[..16], "the header is clear");
        assert_ne!(held[16..UNIT_BYTES], held[UNIT_BYTES + 16..], "the address is in the tweak");
        assert!(!held[16..].windows(16).any(|window| window == [5; 16]));
    }
    let mut segment = opened("pg_wal/000000010000000000000009");
    let mut odd = vec![0; 5000];
    assert_eq!(engine.read_at(&mut segment, &storage, &mut odd, 4321), Ok(5000));
    assert_eq!(odd, written[4321..9321]);
    let moved = Memory::default();
    moved.bytes.replace(storage.bytes.borrow()[UNIT_BYTES..].to_vec());
    let mut read = vec![0; UNIT_BYTES];
    engine.read_at(&mut segment, &moved, &mut read, 0).expect("read");
    assert_eq!(read, written[UNIT_BYTES..]);
}

#[test]
fn partial_pages_can_be_appended() {
    let mut engine = engine();
    let storage = Memory::default();
    let mut segment = opened("pg_wal/000000010000000000000001");
    // A recycled segment: its old pages have other addresses.
    let old = page(0x0500_0000, 9);
    engine.write_at(&mut segment, &storage, &old.as_slice(), 0).expect("written");
    let new = page(0x0100_0000, 4);
    for (from, to) in [(0, 40), (40, 1000), (1000, 1001), (1001, 8000)] {
        let count = engine.write_at(&mut segment, &storage, &&new[from..to], from as u64);
        assert_eq!(count, Ok(to - from));
    }
    let mut read = vec![0; UNIT_BYTES];
    engine.read_at(&mut segment, &storage, &mut read, 0).expect("read");
    assert_eq!(read[..8000], new[..8000]);
    assert_eq!(read[8000..], old[8000..]);
}

#[test]
fn history_files_stay_plaintext_and_are_refused_in_segments() {
    let mut engine = engine();
    let storage = Memory::default();
    let text = b"1\t0/3000000\tno recovery target specified\n".as_slice();
    engine.write_at(&mut opened("pg_wal/xlogtemp.7"), &storage, &text, 0).expect("written");
    assert_eq!(*storage.bytes.borrow(), text);
    let mut segment = opened("pg_wal/000000010000000000000001");
    assert_eq!(engine.write_at(&mut segment, &storage, &text, 0), Err(Errno::IO));
}

/// PostgreSQL copies the old history in pieces of a page. Of the second one, the second byte may be part of a letter.
#[test]
fn a_long_history_file_stays_plaintext_as_a_whole() {
    let mut engine = engine();
    for high in [0xD0, 0xD1] {
        let (storage, mut file) = (Memory::default(), opened("pg_wal/xlogtemp.7"));
        let mut text = b"1\t0/3000000\tno recovery target specified\n".repeat(500);
        text[UNIT_BYTES + 1] = high;
        text[2 * UNIT_BYTES + 1] = high;
        for (number, piece) in text.chunks(UNIT_BYTES).enumerate() {
            let offset = (number * UNIT_BYTES) as u64;
            assert_eq!(engine.write_at(&mut file, &storage, &piece, offset), Ok(piece.len()));
        }
        assert!(*storage.bytes.borrow() == text, "{high:x}");
        let mut read = vec![0; text.len()];
        assert_eq!(engine.read_at(&mut file, &storage, &mut read, 0), Ok(text.len()));
        assert!(read == text, "{high:x}");
    }
}

#[test]
fn zeros_stay_zeros() {
    let mut engine = engine();
    let storage = Memory::default();
    let zeros = vec![0; 4 * UNIT_BYTES];
    engine.write_at(&mut opened("pg_wal/xlogtemp.7"), &storage, &zeros.as_slice(), 0).expect("written");
    assert_eq!(*storage.bytes.borrow(), zeros);
}
