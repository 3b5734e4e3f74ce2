//! What the status flags tell of a session, and what of a transaction they do not tell.

use crate::mysql::{
    codec::ok::{AUTOCOMMIT, NO_BACKSLASH_ESCAPES, OkPacket},
    relay::observer::{ResponseEnd, Statuses},
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

    /// These flags in place of those of a status.
    pub fn in_status(self, status: u16) -> u16 {
        status & !(AUTOCOMMIT | NO_BACKSLASH_ESCAPES) | self.0
    }

    /// The flags of a client's session on a connection with these flags, which gets the settings that `is_set` names.
    #[must_use]
    pub fn with_settings_of(self, client: Self, is_set: impl Fn(&str) -> bool) -> Self {
        let flag = |name, flag| if is_set(name) { flag } else { 0 };
        let own = flag("autocommit", AUTOCOMMIT) | flag("sql_mode", NO_BACKSLASH_ESCAPES);
        Self(self.0 & !own | client.0 & own)
    }

    /// The flags that differ in any of these statuses.
    #[inline]
    pub(super) fn differences(self, statuses: Statuses) -> Self {
        Self::of(statuses.differences(self.0))
    }

    pub(super) fn differences_of(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }

    pub(super) fn is_none(self) -> bool {
        self.0 == 0
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
