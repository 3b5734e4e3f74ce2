//! What the status flags tell of a session, and what of a transaction they do not tell.

use crate::mysql::{
    codec::ok::{AUTOCOMMIT, NO_BACKSLASH_ESCAPES, OkPacket},
    relay::observer::ResponseEnd,
    sql::{effects::Savepoints, lexer::Escapes},
};

/// Status flags that report settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettingFlags(u16);

impl Default for SettingFlags {
    fn default() -> Self {
        Self(AUTOCOMMIT)
    }
}

impl SettingFlags {
    pub fn of(status: u16) -> Self {
        Self(status & (AUTOCOMMIT | NO_BACKSLASH_ESCAPES))
    }

    /// How the session treats backslashes.
    pub fn escapes(self) -> Escapes {
        if self.0 & NO_BACKSLASH_ESCAPES == 0 { Escapes::Backslash } else { Escapes::None }
    }

    pub(super) fn commits_automatically(self) -> bool {
        self.0 & AUTOCOMMIT != 0
    }
}

/// Without autocommit a savepoint opens a transaction, but `SERVER_STATUS_IN_TRANS` is set only when a storage engine
/// takes part in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct TransactionState {
    savepoints: OpenSavepoints,
    /// The last OK reported a transaction, and any savepoint is of that one.
    was_open: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum OpenSavepoints {
    #[default]
    None,
    MayExist,
}

impl TransactionState {
    /// A command has been answered, whose text does this to savepoints.
    #[inline]
    pub(super) fn record(&mut self, end: ResponseEnd, savepoints: Savepoints) {
        match end {
            ResponseEnd::NoStatus => {}
            ResponseEnd::Err(_) => {
                if matches!(savepoints, Savepoints::MayRemain | Savepoints::ReleasedAtEnd) {
                    self.savepoints = OpenSavepoints::MayExist;
                    // It may be a savepoint of another transaction than the one that was reported.
                    self.was_open = false;
                }
            }
            ResponseEnd::Ok(ok) => {
                let is_open = ok.is_in_transaction();
                match savepoints {
                    Savepoints::Released | Savepoints::ReleasedAtEnd => {
                        self.savepoints = OpenSavepoints::None;
                    }
                    Savepoints::MayRemain => {
                        self.savepoints = OpenSavepoints::MayExist;
                        self.was_open &= is_open;
                    }
                    // If the transaction has ended, so have its savepoints.
                    Savepoints::Unchanged => {}
                }
                self.report(ok);
            }
        }
    }

    /// The server reports the session's status.
    pub(super) fn report(&mut self, ok: OkPacket) {
        let was_open = std::mem::replace(&mut self.was_open, ok.is_in_transaction());
        if !self.was_open && (was_open || ok.commits_automatically()) {
            self.savepoints = OpenSavepoints::None;
        }
    }

    /// Whether a savepoint may exist although no status flag reports a transaction.
    pub(super) fn may_have_savepoint(self) -> bool {
        self.savepoints == OpenSavepoints::MayExist
    }
}
