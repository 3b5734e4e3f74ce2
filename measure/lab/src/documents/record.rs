//! YCSB's records. A record depends on its number only, so that every load creates the same records in any order.

use ciphertoll_model::ycsb;
use ciphertoll_wire::mongodb::bson::{RawDocumentBuf, cstr, raw::CStr};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const SEED: u64 = 0x7011;
const VALUES_BYTES: usize = ycsb::FIELDS as usize * ycsb::FIELD_BYTES as usize;
pub(super) const FIELD_NAMES: [&CStr; ycsb::FIELDS as usize] = [
    cstr!("field0"),
    cstr!("field1"),
    cstr!("field2"),
    cstr!("field3"),
    cstr!("field4"),
    cstr!("field5"),
    cstr!("field6"),
    cstr!("field7"),
    cstr!("field8"),
    cstr!("field9"),
];

/// Estimated size of a record, to allocate buffers once.
pub(super) const RECORD_BYTES: usize = VALUES_BYTES + 256;

/// Appends a record in BSON.
pub(super) fn write(out: &mut Vec<u8>, number: u64) {
    // One call for all characters: a call per character would take longer than the server's work.
    let mut values = [0_u8; VALUES_BYTES];
    StdRng::seed_from_u64(SEED ^ number).fill(&mut values[..]);
    for byte in &mut values {
        *byte = printable(*byte);
    }
    let mut record = RawDocumentBuf::new();
    record.append(cstr!("_id"), ycsb::key(number));
    for (name, value) in FIELD_NAMES.iter().zip(values.chunks(ycsb::FIELD_BYTES as usize)) {
        // Always ASCII.
        record.append(name, std::str::from_utf8(value).unwrap_or_default());
    }
    out.extend_from_slice(record.as_bytes());
}

/// Maps a byte to a character from space to tilde; each has two or three of the 256 values.
fn printable(byte: u8) -> u8 {
    const CHARACTERS: u16 = (b'~' - b' ') as u16 + 1;
    b' ' + ((u16::from(byte) * CHARACTERS) >> 8) as u8
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ciphertoll_wire::mongodb::bson::RawDocument;
    use ciphertoll_wire::mongodb::document::validate;

    use super::*;

    fn written(number: u64) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, number);
        out
    }

    #[test]
    fn a_record_has_the_fields_of_ycsb() {
        let bytes = written(0);
        let record = RawDocument::from_bytes(&bytes).unwrap();
        validate(record).unwrap();
        assert_eq!(record.get_str("_id").unwrap(), "user6284781860667377211");
        assert_eq!(record.iter().count(), 11);
        for field in 0..10 {
            let value = record.get_str(format!("field{field}")).unwrap();
            assert!(value.len() == 100 && value.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{value}");
        }
        assert!(bytes.len() <= RECORD_BYTES);
    }

    /// The records are part of a template's format.
    #[test]
    fn records_are_reproducible_and_distinct() {
        assert_eq!(written(500), written(500));
        let first = |number| {
            let bytes = written(number);
            RawDocument::from_bytes(&bytes).unwrap().get_str("field0").unwrap().to_owned()
        };
        assert_ne!(first(1), first(2));
        let known = r"fb}SA*r48]2LsAbV]R&p6;A`X%tm/Bwhd1lZ\=z99&iX`%ri<]Fs ?1+2:||p9t_V;I'Mdp!2loYgK- sz\=0t`qx{OOxR<Qr:BX";
        assert_eq!(first(0), known);
    }

    #[test]
    fn printable_characters_are_equally_likely() {
        let mut counts = BTreeMap::new();
        for byte in 0..=255 {
            *counts.entry(printable(byte)).or_insert(0) += 1;
        }
        assert!(counts.keys().copied().eq(b' '..=b'~'));
        assert!(counts.values().all(|count| (2..=3).contains(count)), "{counts:?}");
    }
}
