//! Message type bytes ("Message Formats"). Some mean different messages in the two directions.

pub(super) const AUTHENTICATION: u8 = b'R';
pub(super) const BACKEND_KEY_DATA: u8 = b'K';
pub(super) const BIND_COMPLETE: u8 = b'2';
pub(super) const CLOSE_COMPLETE: u8 = b'3';
pub(super) const COMMAND_COMPLETE: u8 = b'C';
pub(super) const COPY_DATA: u8 = b'd';
pub(super) const COPY_DONE: u8 = b'c';
pub(super) const COPY_IN_RESPONSE: u8 = b'G';
pub(super) const COPY_OUT_RESPONSE: u8 = b'H';
pub(super) const DATA_ROW: u8 = b'D';
pub(super) const EMPTY_QUERY_RESPONSE: u8 = b'I';
pub(super) const ERROR_RESPONSE: u8 = b'E';
pub(super) const NEGOTIATE_PROTOCOL_VERSION: u8 = b'v';
pub(super) const NO_DATA: u8 = b'n';
pub(super) const NOTICE_RESPONSE: u8 = b'N';
pub(super) const NOTIFICATION_RESPONSE: u8 = b'A';
pub(super) const PARAMETER_DESCRIPTION: u8 = b't';
pub(super) const PARAMETER_STATUS: u8 = b'S';
pub(super) const PARSE_COMPLETE: u8 = b'1';
pub(super) const PORTAL_SUSPENDED: u8 = b's';
pub(super) const READY_FOR_QUERY: u8 = b'Z';
pub(super) const ROW_DESCRIPTION: u8 = b'T';

pub(super) const BIND: u8 = b'B';
pub(super) const CLOSE: u8 = b'C';
pub(super) const COPY_FAIL: u8 = b'f';
pub(super) const DESCRIBE: u8 = b'D';
pub(super) const EXECUTE: u8 = b'E';
pub(super) const FLUSH: u8 = b'H';
pub(super) const PARSE: u8 = b'P';
pub(super) const PASSWORD: u8 = b'p';
pub(super) const QUERY: u8 = b'Q';
pub(super) const SYNC: u8 = b'S';
pub(super) const TERMINATE: u8 = b'X';
