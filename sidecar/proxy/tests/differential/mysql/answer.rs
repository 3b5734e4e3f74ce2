//! Packets as they are compared, and what they tell of the server's session.

use super::command::Command;
use super::connection::{Connection, Packet};

/// `ER_NET_READ_ERROR`, for no command: see `Documented::EndOfStream`.
const END_OF_STREAM: u16 = 1158;
const IN_TRANSACTION: u16 = 1;
const AUTOCOMMIT: u16 = 2;
/// MariaDB keeps it after the transaction if `autocommit` has been switched off within.
const IN_READ_ONLY_TRANSACTION: u16 = 0x2000;
/// MariaDB prepares a statement again after DDL; on another connection it is new.
const METADATA_CHANGED: u16 = 0x0400;
const SESSION_STATE_CHANGED: u16 = 0x4000;
/// An OK or EOF packet at the end of rows is shorter than any row that begins with this byte.
const END: u8 = 0xfe;
const LONGEST_END_BYTES: usize = 200;
/// Errors whose texts contain the number of a statement: it is unknown, or has no cursor.
const OF_STATEMENTS: [u16; 2] = [1243, 1421];
/// MariaDB counts on from earlier statements of its connection.
const AT_ROW: &str = " at row ";
const HANDLER: &[u8] = b"prepared statement handler";
/// The account that logs in directly, and that of the proxy.
const HOSTS: [&str; 2] = ["'@'localhost'", "'@'%'"];

/// It is for the next transaction only.
const NEXT: &str = "SET TRANSACTION";

/// Whether a client may have a connection between two commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    Nothing,
    /// The documentation lets it, or it is not known.
    Maybe,
    Transaction,
}

struct Status {
    flags: u16,
    warnings: u16,
    /// Where the flags are.
    at: usize,
}

/// The status in an OK or EOF packet.
fn status(payload: &[u8]) -> Option<Status> {
    let word = |at: usize| Some(u16::from_le_bytes([*payload.get(at)?, *payload.get(at + 1)?]));
    match payload.first()? {
        // EOF: warnings come first.
        &END if payload.len() == 5 => Some(Status { flags: word(3)?, warnings: word(1)?, at: 3 }),
        0 | &END if payload.len() < LONGEST_END_BYTES => {
            let at = after_number(payload, after_number(payload, 1)?)?;
            Some(Status { flags: word(at)?, warnings: word(at + 2)?, at })
        }
        _ => None,
    }
}

/// The place behind a length-encoded number.
fn after_number(payload: &[u8], at: usize) -> Option<usize> {
    Some(
        at + match payload.get(at)? {
            0xfc => 3,
            0xfd => 4,
            0xfe => 9,
            _ => 1,
        },
    )
}

/// Whether a client has used what holds a connection for longer than an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lasting {
    None,
    /// A cursor, data of parameters, or a prepared `SET TRANSACTION`: their ends are not followed here.
    Some,
}

pub(crate) fn lasting(commands: &[Command], before: Lasting) -> Lasting {
    let lasts = |command: &Command| match command {
        Command::Execute { flags, .. } => *flags != 0,
        Command::LongData { .. } => true,
        Command::Prepare { sql, .. } => sql.contains(NEXT),
        _ => false,
    };
    if commands.iter().any(lasts) { Lasting::Some } else { before }
}

/// What the last answer tells of the client's session.
pub(crate) fn holds(commands: &[Command], packets: &[Packet], before: Holds, lasting: Lasting) -> Holds {
    // An error or another packet without flags: the server's state is not known here.
    let unknown = if before == Holds::Transaction { Holds::Transaction } else { Holds::Maybe };
    // Definitions of parameters may end with flags, which the proxy does not read.
    let tells_nothing = matches!(
        commands.last(),
        Some(Command::Close(_) | Command::LongData { .. } | Command::Prepare { .. })
    );
    let status = packets.last().and_then(|packet| status(&packet.payload)).filter(|_| !tells_nothing);
    let Some(Status { flags, warnings, .. }) = status else { return unknown };
    if flags & IN_TRANSACTION != 0 {
        Holds::Transaction
    } else if warnings > 0 || flags & AUTOCOMMIT == 0 || lasting == Lasting::Some || has_next(commands) {
        Holds::Maybe
    } else {
        Holds::Nothing
    }
}

fn has_next(commands: &[Command]) -> bool {
    commands.iter().any(|command| matches!(command, Command::Query(sql) if sql.contains(NEXT)))
}

/// Takes the number of a statement from the answer to its preparation. Numbers of the time before a reset may be given anew.
pub(crate) fn keep_number(connection: &mut Connection, commands: &[Command], packets: &[Packet]) {
    let resets = |command: &Command| matches!(command, Command::ResetConnection | Command::ChangeUser { .. });
    if commands.iter().any(resets) {
        connection.slots.fill(None);
    }
    let Some(Command::Prepare { slot, .. }) = commands.first() else { return };
    connection.slots[*slot] = packets.first().and_then(|packet| match packet.payload[..] {
        [0, a, b, c, d, ..] if packet.payload.len() == 12 => Some(u32::from_le_bytes([a, b, c, d])),
        _ => None,
    });
}

/// What two routes have in common: not the numbers of statements, the server's uptime, and reports of session state.
pub(crate) fn comparable(commands: &[Command], packets: &[Packet]) -> Vec<Packet> {
    let is_preparation = matches!(commands.first(), Some(Command::Prepare { .. }));
    let is_option = matches!(commands.first(), Some(Command::SetOption(_)));
    let is_fetch = matches!(commands.first(), Some(Command::Fetch { .. }));
    let is_change = matches!(commands.first(), Some(Command::ChangeUser { .. }));
    let is_end = |packet: &&Packet| packet.sequence == 0 && packet.error_code() == Some(END_OF_STREAM);
    let packets = packets.iter().filter(|packet| !is_end(packet)).enumerate().map(|(number, packet)| {
        let mut packet = packet.clone();
        // It depends on whether the server asks for another proof.
        if is_change {
            packet.sequence = 0;
        }
        if let (true, Some(Status { at, .. })) = (is_option, status(&packet.payload)) {
            // The number of warnings of the command before: see `Documented::LastResults`.
            let warnings = if at == 3 { 1 } else { at + 2 };
            packet.payload[warnings..warnings + 2].fill(0);
        }
        if number == 0 && is_preparation && packet.payload.len() == 12 && packet.payload[0] == 0 {
            packet.payload[1..5].fill(0);
            return packet;
        }
        if let Some(code) = packet.error_code() {
            if is_fetch && OF_STATEMENTS.contains(&code) {
                // There is no cursor, or after a move no statement: see `Documented::NoCursor`.
                packet.payload.truncate(1);
                return packet;
            }
            if OF_STATEMENTS.contains(&code) {
                packet.payload.retain(|byte| !byte.is_ascii_digit());
            }
            let mut text = String::from_utf8_lossy(&packet.payload[3..]).replace(HOSTS[0], HOSTS[1]);
            if let Some(at) = text.find(AT_ROW) {
                text.truncate(at);
            }
            packet.payload.splice(3.., text.into_bytes());
        } else if packet.payload.windows(HANDLER.len()).any(|part| part == HANDLER) {
            // A row of SHOW WARNINGS with such an error: its length depends on the number, too.
            packet.payload = HANDLER.to_vec();
        } else if packet.payload.starts_with(b"Uptime") {
            packet.payload.truncate(6);
        } else if let Some(Status { flags, at, .. }) = status(&packet.payload) {
            let compared = flags & !(SESSION_STATE_CHANGED | IN_READ_ONLY_TRANSACTION | METADATA_CHANGED);
            packet.payload[at..at + 2].copy_from_slice(&compared.to_le_bytes());
            if flags & SESSION_STATE_CHANGED == 0 {
                return packet;
            }
            let info = packet.payload.get(at + 4).map_or(0, |&length| usize::from(length));
            packet.payload.truncate(if info == 0 { at + 4 } else { at + 5 + info });
        }
        packet
    });
    packets.collect()
}
