//! Differences that the documentation of the proxy lists.

/// What the grammar avoids, what the comparison leaves out, and what it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Documented {
    /// Counted: behind the server's last message the proxy says that the connection was lost.
    Lost,
    /// Counted: of several errors of a statement whose tables have changed or are locked, the proxy shows that of the tables.
    FirstError,
    /// Counted: a statement that was prepared without a database cannot be prepared again when there is one.
    NoDatabase,
    /// Counted: answers that come before the client has asked for them by a `Sync` or `Flush`.
    Early,
    /// Counted: that the columns of a statement have changed, if the client has not asked for an answer.
    Late,
    /// Left out: whether a fetch without a cursor finds its statement.
    NoCursor,
    /// Left out: process and connection numbers, `pg_backend_pid()`, `CONNECTION_ID()`.
    Numbers,
    /// Left out: when `ParameterStatus` comes. The values are compared at the end of each answer.
    Reports,
    /// Left out: MySQL's reports of changed session state, which the policy `tracked` switches on.
    SessionState,
    /// Left out: what MySQL says at the end of a client's stream.
    EndOfStream,
    /// Left out: the numbers of MySQL's prepared statements, which the proxy assigns.
    Statements,
    /// Avoided: `RESET` of a setting of the login restores the server's default.
    LoginSettings,
    /// Avoided: `FOUND_ROWS()` and `ROW_COUNT()` of earlier commands, and `lastval()`.
    LastResults,
    /// Avoided: a change of the user behind commands that are not answered, or behind a `COM_SET_OPTION`.
    ChangeOfUser,
    /// Avoided: `setseed()`, the name of the temporary schema, loaded libraries, and that the process has listened: they
    /// survive `DISCARD ALL`.
    Process,
    /// Avoided: `ALTER ROLE … SET` and `ALTER DATABASE … SET`, which new server connections follow only.
    Defaults,
    /// Avoided: a statement without a name that was executed at once, without a `Describe`, is used again.
    Undescribed,
    /// Avoided: `SET TRANSACTION` behind a `Describe` in one transaction, and the first temporary table behind a constant `now`.
    ReadAgain,
    /// Avoided: an object that an administrator creates in a schema which comes earlier in the search path.
    Shadowed,
}

impl Documented {
    pub(crate) const ALL: [Self; 19] = [
        Self::Lost,
        Self::FirstError,
        Self::NoDatabase,
        Self::Early,
        Self::Late,
        Self::NoCursor,
        Self::Numbers,
        Self::Reports,
        Self::SessionState,
        Self::EndOfStream,
        Self::Statements,
        Self::LoginSettings,
        Self::LastResults,
        Self::ChangeOfUser,
        Self::Process,
        Self::Defaults,
        Self::Undescribed,
        Self::ReadAgain,
        Self::Shadowed,
    ];

    /// Where the documentation says so.
    pub(crate) fn place(self) -> &'static str {
        match self {
            Self::Lost => "What a client sees: \"its client gets the server's last message, or …\"",
            Self::FirstError => "What a client can tell: an execute that is refused",
            Self::NoDatabase => "What a client can tell: a statement prepared without a default database",
            Self::Early | Self::Late => "What a client can tell: messages without `Sync` or `Flush`",
            Self::NoCursor => "What a client can tell: a fetch without a cursor",
            Self::Numbers => "What a client sees: Cancel",
            Self::Reports => "What a client sees: Settings of the login",
            Self::SessionState => "Fewer resets: \"clients see this setting as `ON`\"",
            Self::EndOfStream => "What a client can tell: the end of a client's stream",
            Self::Statements => "More clients than connections: \"The proxy assigns their numbers\"",
            Self::LoginSettings => "What a client sees: \"`RESET` restores the server's default\"",
            Self::LastResults => {
                "More clients than connections: \"such state is lost when the client moves\""
            }
            Self::ChangeOfUser => {
                "Downstream logins: \"Not supported: behind commands that are not answered\"; COM_SET_OPTION"
            }
            Self::Process => "What survives `DISCARD ALL`",
            Self::Undescribed => "What a client can tell: a statement without a name",
            Self::ReadAgain => {
                "What a client can tell: a `Describe` in a new transaction; the first temporary table"
            }
            Self::Shadowed => "What a client can tell: a table created in an earlier schema",
            Self::Defaults => "a server process reads them when it starts",
        }
    }
}
