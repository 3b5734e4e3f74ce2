//! The console's part of the PostgreSQL protocol.

use ciphertoll_wire::postgres::server::{
    Authentication, Field, Report, write_authentication, write_backend_key_data, write_command_complete,
    write_data_row, write_error, write_message, write_parameter_status, write_ready_for_query,
    write_row_description,
};
use ciphertoll_wire::postgres::{Error, Severity, TransactionStatus, ValueFormat};

use super::table::ConsoleTable;

/// PgBouncer's, so that drivers and tools recognize its console.
const PARAMETERS: [(&str, &str); 7] = [
    ("server_version", "1.25.2/bouncer"),
    ("client_encoding", "UTF8"),
    ("server_encoding", "UTF8"),
    ("DateStyle", "ISO"),
    ("TimeZone", "GMT"),
    ("standard_conforming_strings", "on"),
    ("is_superuser", "on"),
];

/// `NoticeResponse`.
const NOTICE: u8 = b'N';

pub(super) const HELP: &str = "\n\tSHOW HELP|CONFIG|DATABASES|POOLS|CLIENTS|SERVERS|USERS|VERSION\n\
    \tSHOW PEERS|PEER_POOLS\n\
    \tSHOW FDS|SOCKETS|ACTIVE_SOCKETS|LISTS|MEM|STATE\n\
    \tSHOW DNS_HOSTS|DNS_ZONES\n\
    \tSHOW STATS|STATS_TOTALS|STATS_AVERAGES|TOTALS\n\
    \tRELOAD\n\
    \tPAUSE [<db>]\n\
    \tRESUME [<db>]\n\
    \tDISABLE <db>\n\
    \tENABLE <db>\n\
    \tRECONNECT [<db>]\n\
    \tKILL [<db>]\n\
    \tKILL_CLIENT <client_id>\n\
    \tSHUTDOWN\n\
    \tSHUTDOWN WAIT_FOR_SERVERS|WAIT_FOR_CLIENTS\n\
    \tWAIT_CLOSE [<db>]";

/// Appends the end of a login.
pub(super) fn write_greeting(out: &mut Vec<u8>, process_id: u32, secret: [u8; 4]) -> Result<(), Error> {
    write_authentication(out, &Authentication::Ok)?;
    for (name, value) in PARAMETERS {
        write_parameter_status(out, name.as_bytes(), value.as_bytes())?;
    }
    write_backend_key_data(out, process_id, &secret)?;
    write_ready_for_query(out, TransactionStatus::Idle);
    Ok(())
}

pub(super) fn write_table(out: &mut Vec<u8>, table: &ConsoleTable) -> Result<(), Error> {
    let fields: Vec<Field<'_>> = table
        .columns
        .iter()
        .map(|(name, kind)| {
            let (type_oid, type_bytes) = kind.oid();
            Field {
                name: name.as_bytes(),
                table_oid: 0,
                attribute: 0,
                type_oid,
                type_bytes,
                type_modifier: -1,
                format: ValueFormat::Text,
            }
        })
        .collect();
    write_row_description(out, &fields)?;
    for row in &table.rows {
        let cells = row.iter().zip(&table.columns).map(|(cell, (_, kind))| cell.text(*kind));
        let cells: Vec<Option<String>> = cells.collect();
        let cells: Vec<Option<&[u8]>> = cells.iter().map(|cell| cell.as_deref().map(str::as_bytes)).collect();
        write_data_row(out, &cells)?;
    }
    Ok(())
}

/// Appends the end of a successful command.
pub(super) fn write_done(out: &mut Vec<u8>, tag: &str) -> Result<(), Error> {
    write_command_complete(out, tag.as_bytes())?;
    write_ready_for_query(out, TransactionStatus::Idle);
    Ok(())
}

/// Appends a notice with a detail, which PgBouncer uses for its help.
pub(super) fn write_notice(out: &mut Vec<u8>, message: &str, detail: Option<&str>) -> Result<(), Error> {
    let mut fields = Vec::new();
    for (kind, text) in [(b'S', "NOTICE"), (b'C', "00000"), (b'M', message)] {
        fields.extend([&[kind], text.as_bytes(), &[0]].concat());
    }
    if let Some(detail) = detail {
        fields.extend([b"D", detail.as_bytes(), &[0]].concat());
    }
    fields.push(0);
    write_message(out, NOTICE, &fields)
}

pub(super) fn write_failure(
    out: &mut Vec<u8>,
    severity: Severity,
    sqlstate: [u8; 5],
    message: &str,
) -> Result<(), Error> {
    // A NUL would end the text.
    let message = message.replace('\0', "?");
    write_error(out, &Report { severity, sqlstate, message: message.as_bytes() })
}

/// Appends the state in which the next command is awaited.
pub(super) fn write_ready(out: &mut Vec<u8>) {
    write_ready_for_query(out, TransactionStatus::Idle);
}
