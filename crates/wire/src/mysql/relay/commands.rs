//! The commands, and how the server responds to each.

use crate::mysql::{codec::change_user, error::Error};

/// What to do with a command.
pub(crate) enum CommandKind {
    Quit,
    ChangeUser,
    NoResponse,
    SetOption,
    WithResponse(ResponseState),
}

/// How the server responds to a command ("Command Phase").
pub(crate) fn command_kind(kind: u8) -> Result<CommandKind, Error> {
    let refused = |command| Err(Error::NotPooled { command });
    let response = match kind {
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
        // COM_STMT_EXECUTE, and MariaDB's COM_STMT_BULK_EXECUTE.
        0x17 | 0xfa => ResponseState::Results(ResultSource::Execute),
        // COM_STMT_FETCH.
        0x1c => ResponseState::Rows(ResultSource::Fetch),
        change_user::HEADER => return Ok(CommandKind::ChangeUser),
        0x12 => return refused("COM_BINLOG_DUMP"),
        0x13 => return refused("COM_TABLE_DUMP"),
        0x15 => return refused("COM_REGISTER_SLAVE"),
        0x1e => return refused("COM_BINLOG_DUMP_GTID"),
        0x20 => return refused("COM_CLONE"),
        0x21 => return refused("COM_SUBSCRIBE_GROUP_REPLICATION_STREAM"),
        _ => return Err(Error::protocol("command", "it is unknown")),
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
}

/// The command that returns results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultSource {
    Query,
    /// Rows may remain in a cursor.
    Execute,
    /// Rows of a cursor.
    Fetch,
}
