//! What [`Effects`](super::Effects) consists of.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DefaultDatabase {
    #[default]
    Unchanged,
    MayDiffer,
}

/// The configuration of the next transaction (`SET TRANSACTION`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NextTransaction {
    #[default]
    Unchanged,
    Configured,
}

/// The savepoints of the current transaction. Without autocommit a savepoint can be the first statement of a
/// transaction, and no status flag reports it. Savepoints of functions and triggers end with them; those of procedures
/// do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Savepoints {
    #[default]
    Unchanged,
    /// There may be one afterwards, also if the text fails.
    MayRemain,
    /// The text ends the transaction, and its savepoints.
    Released,
    /// The same, but if the text fails, there may be one.
    ReleasedAtEnd,
}

impl Savepoints {
    pub(super) fn set(&mut self) {
        *self = Self::MayRemain;
    }

    pub(super) fn release(&mut self) {
        *self = match *self {
            Self::Unchanged | Self::Released => Self::Released,
            Self::MayRemain | Self::ReleasedAtEnd => Self::ReleasedAtEnd,
        };
    }
}

/// How the value of `LAST_INSERT_ID()` after a text is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum InsertId {
    #[default]
    Unchanged,
    /// A response reports it, unless it is an ERR.
    Reported,
    /// The same, unless it reports 0: `LAST_INSERT_ID(0)`.
    ReportedUnlessZero,
    /// A response may report another value, unless it reports 0: that of an older row.
    ReportedIfZero,
    /// The server must be asked.
    NotReported,
}

impl InsertId {
    /// Adds what is known of another part of the text, or of another text.
    pub(super) fn add(&mut self, other: Self) {
        *self = match (*self, other) {
            (one, other) if one <= Self::Reported || one == other => other.max(one),
            (one, other) if other <= Self::Reported => one,
            _ => Self::NotReported,
        };
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StatementCount {
    /// One, or none.
    #[default]
    One,
    Several,
}

/// How many assignments a `SET` has. If one of several fails, others may have been made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Assignments {
    /// One, or none.
    #[default]
    One,
    Several,
}

/// Whether it is known that each ASCII byte of a text is a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientEncoding {
    Known,
    Unknown,
}

/// Whether a text reads the diagnostics of the command before it, and leaves them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadsDiagnostics {
    #[default]
    No,
    Yes,
}
