//! Which password of a command a server connection was opened with.

use std::sync::Arc;

use crate::credentials::PasswordCell;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PasswordUse {
    /// 0 if it comes from elsewhere.
    pub(super) version: u64,
    /// The connect waits until the command has ended.
    pub(super) is_waiting: bool,
}

impl PasswordUse {
    pub(super) fn of(cell: Option<Arc<PasswordCell>>) -> Self {
        Self { version: cell.map_or(0, |cell| cell.version()), is_waiting: false }
    }
}
