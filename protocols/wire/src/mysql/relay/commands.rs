//! The commands, and how the server responds to each.

use crate::mysql::{
    codec::{change_user, packet::Header},
    error::Error,
};

/// Servers take an empty command for this one, and refuse it as unknown.
const COM_SLEEP: u8 = 0x00;
pub(crate) const COM_STMT_EXECUTE: u8 = 0x17;
/// MariaDB's.
pub(crate) const COM_STMT_BULK_EXECUTE: u8 = 0xfa;
/// Offset of the flags in a `COM_STMT_EXECUTE`, after the command byte and the statement identifier.
const EXECUTE_FLAGS_AT: usize = 5;

/// The start of a command: what decides how its response is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CommandStart {
    pub(crate) kind: u8,
    pub(crate) header: Header,
    pub(crate) cursor: CursorRequest,
}

/// Whether a command asks for a cursor. Without it, no response leaves rows for `COM_STMT_FETCH`, whatever the status
/// flags say: MariaDB also sets `SERVER_STATUS_CURSOR_EXISTS` for cursors within stored routines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CursorRequest {
    None,
    Asked,
}

impl CommandStart {
    /// Reads the start of a command; `None` if not enough of it has arrived.
    #[inline]
    pub(crate) fn read(header: Header, payload: &[u8]) -> Option<Self> {
        let kind = if header.length == 0 { COM_SLEEP } else { *payload.first()? };
        let cursor = match payload.get(EXECUTE_FLAGS_AT) {
            _ if kind != COM_STMT_EXECUTE || header.length <= EXECUTE_FLAGS_AT => CursorRequest::None,
            // Some releases of MySQL take any flag for a request.
            Some(flags) if *flags != 0 => CursorRequest::Asked,
            Some(_) => CursorRequest::None,
            None => return None,
        };
        Some(Self { kind, header, cursor })
    }
}

/// What to do with a command.
pub(crate) enum CommandKind {
    Quit,
    ChangeUser,
    NoResponse,
    SetOption,
    WithResponse(ResponseState),
}

/// How the server responds to a command ("Command Phase").
pub(crate) fn command_kind(command: CommandStart) -> Result<CommandKind, Error> {
    let refused = |command| Err(Error::NotPooled { command });
    let response = match command.kind {
        0x01 => return Ok(CommandKind::Quit),
        // COM_STMT_SEND_LONG_DATA and COM_STMT_CLOSE.
        0x18 | 0x19 => return Ok(CommandKind::NoResponse),
        0x1b => return Ok(CommandKind::SetOption),
        // COM_INIT_DB, COM_CREATE_DB, COM_DROP_DB, COM_REFRESH, COM_SHUTDOWN, COM_PROCESS_KILL, COM_DEBUG, COM_PING,
        // COM_STMT_RESET and COM_RESET_CONNECTION.
        0x02 | 0x05 | 0x06 | 0x07 | 0x08 | 0x0c | 0x0d | 0x0e | 0x1a | 0x1f => ResponseState::Ok,
        // COM_QUERY and COM_PROCESS_INFO.
        0x03 | 0x0a => ResponseState::Results(ResultSource::Query),
        // COM_FIELD_LIST.
        0x04 => ResponseState::Fields,
        // COM_STATISTICS.
        0x09 => ResponseState::Text,
        // COM_STMT_PREPARE.
        0x16 => ResponseState::PrepareOk,
        // A bulk execute never opens a cursor.
        COM_STMT_EXECUTE | COM_STMT_BULK_EXECUTE => {
            ResponseState::Results(ResultSource::Execute(command.cursor))
        }
        // COM_STMT_FETCH.
        0x1c => ResponseState::Rows(ResultSource::Fetch),
        change_user::HEADER => return Ok(CommandKind::ChangeUser),
        0x12 => return refused("COM_BINLOG_DUMP"),
        0x13 => return refused("COM_TABLE_DUMP"),
        0x15 => return refused("COM_REGISTER_SLAVE"),
        0x1e => return refused("COM_BINLOG_DUMP_GTID"),
        0x20 => return refused("COM_CLONE"),
        0x21 => return refused("COM_SUBSCRIBE_GROUP_REPLICATION_STREAM"),
        // The server refuses what it does not know either.
        _ => ResponseState::Unknown,
    };
    Ok(CommandKind::WithResponse(response))
}

/// What the next packet of a response is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseState {
    /// An OK or an EOF, which ends the response.
    Ok,
    /// A text, which ends the response.
    Text,
    /// An OK, a file request, or the number of columns.
    Results(ResultSource),
    Columns {
        left: u16,
        of: ResultSource,
    },
    EndOfColumns(ResultSource),
    Rows(ResultSource),
    /// A `COM_STMT_PREPARE_OK`.
    PrepareOk,
    /// This many definitions.
    Definitions {
        left: u32,
    },
    /// Definitions up to an EOF.
    Fields,
    /// An OK that is replaced by an ERR: the client's command was not forwarded.
    Refused,
    /// An ERR, because the command is unknown. Anything else could be the start of another protocol.
    Unknown,
}

/// The command that returns results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultSource {
    Query,
    /// Rows may remain in a cursor if it was asked for.
    Execute(CursorRequest),
    /// Rows of a cursor.
    Fetch,
}
