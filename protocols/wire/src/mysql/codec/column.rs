//! `Protocol::ColumnDefinition41`; only its layout matters here.

use crate::mysql::codec::reader::put_lenenc_bytes;

/// The length of the fixed fields: collation, length, type, flags, decimals, filler.
const FIXED_BYTES: u8 = 12;
const TYPE_VAR_STRING: u8 = 0xfd;

/// Appends the payload of a text column's definition, for the server side.
pub fn encode_text_column(out: &mut Vec<u8>, name: &[u8], character_set: u8) {
    put_lenenc_bytes(out, b"def");
    for empty in [&b""[..]; 3] {
        put_lenenc_bytes(out, empty);
    }
    put_lenenc_bytes(out, name);
    put_lenenc_bytes(out, b"");
    out.push(FIXED_BYTES);
    out.extend_from_slice(&[character_set, 0]);
    out.extend_from_slice(&u32::from(u16::MAX).to_le_bytes());
    out.push(TYPE_VAR_STRING);
    out.extend_from_slice(&[0; 5]);
}
