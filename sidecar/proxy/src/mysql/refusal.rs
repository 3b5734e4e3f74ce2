//! Refusals as MySQL error packets, with an error number and an SQL state.

use ciphertoll_wire::mysql::err::ErrPacket;
use ciphertoll_wire::mysql::server::{write_err, write_payload};

use crate::refusal::Refusal;

/// Limit for a message; it must fit in one packet.
const MAX_MESSAGE_BYTES: usize = 1024;
const ERR_HEADER: u8 = 0xff;

/// Appends an error packet with this sequence number. The connection ends after it.
pub(super) fn write(refusal: &Refusal, sequence: u8, out: &mut Vec<u8>) {
    // Fails only for a message of more than a gigabyte.
    let _ = write_err(out, sequence, &packet(refusal));
}

/// Appends an error packet for a client that was not greeted: without an SQL state, which it could not read.
pub(super) fn write_unasked(refusal: &Refusal, out: &mut Vec<u8>) {
    let ErrPacket { code, message, .. } = packet(refusal);
    let _ = write_payload(out, 0, &[&[ERR_HEADER], &code.to_le_bytes()[..], message].concat());
}

fn packet(refusal: &Refusal) -> ErrPacket<'_> {
    let (code, sql_state) =
        refusal.number.map_or_else(|| number(refusal.sqlstate), |code| (code, refusal.sqlstate));
    let message = refusal.message.as_bytes();
    ErrPacket { code, sql_state, message: &message[..message.len().min(MAX_MESSAGE_BYTES)] }
}

/// The server's error number for an SQL state, and the SQL state that goes with it ("Server Error Message
/// Reference").
///
/// Never a number of the client's range (2000 to 2999): libmariadb takes an error packet with such a number
/// as malformed.
fn number(sqlstate: [u8; 5]) -> (u16, [u8; 5]) {
    match sqlstate {
        // ER_MALFORMED_PACKET.
        Refusal::PROTOCOL => (1835, *b"HY000"),
        // ER_CONNECT_TO_FOREIGN_DATA_SOURCE.
        Refusal::NO_SERVER => (1429, *b"HY000"),
        // ER_NET_READ_ERROR.
        Refusal::LOST => (1158, *b"08S01"),
        // ER_NOT_SUPPORTED_YET.
        Refusal::UNSUPPORTED => (1235, *b"42000"),
        // ER_ACCESS_DENIED_ERROR.
        Refusal::WHO | Refusal::PASSWORD => (1045, *b"28000"),
        // ER_CON_COUNT_ERROR.
        Refusal::FULL => (1040, *b"08004"),
        // ER_SERVER_SHUTDOWN.
        Refusal::STOPPING => (1053, *b"08S01"),
        // ER_WRONG_VALUE_FOR_VAR.
        Refusal::PARAMETER => (1231, *b"42000"),
        // ER_UNKNOWN_ERROR.
        _ => (1105, *b"HY000"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_packet() {
        let mut out = Vec::new();
        write(&Refusal::new(Refusal::FULL, "no room"), 2, &mut out);
        assert_eq!(out, b"\x10\0\0\x02\xff\x10\x04#08004no room");
        out.clear();
        write(&Refusal::new(*b"XX000", "x".repeat(5000)), 0, &mut out);
        let packet = ErrPacket::parse(&out[4..]).unwrap();
        assert_eq!(
            (packet.code, &packet.sql_state, packet.message.len()),
            (1105, b"HY000", MAX_MESSAGE_BYTES)
        );
    }

    #[test]
    fn no_error_number_is_in_the_client_range() {
        let states = [
            Refusal::PROTOCOL,
            Refusal::NO_SERVER,
            Refusal::LOST,
            Refusal::UNSUPPORTED,
            Refusal::PARAMETER,
            Refusal::WHO,
            Refusal::PASSWORD,
            Refusal::FULL,
            Refusal::STOPPING,
            *b"XX000",
        ];
        for state in states {
            let (code, sql_state) = number(state);
            assert!((1000..2000).contains(&code), "{code}");
            assert!(sql_state.iter().all(u8::is_ascii_alphanumeric), "{sql_state:?}");
        }
    }
}
