//! Exit codes. A test compares them with their table in the documentation.

/// An exit code with a documented meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitCode {
    /// Done; for `compare`: no regression.
    Done = 0,
    /// A bug in ciphertoll.
    Internal = 1,
    /// The command line or a file it names is wrong.
    Usage = 2,
    /// `compare` found a regression.
    Regression = 3,
    /// `compare` could not tell.
    Inconclusive = 4,
    /// Nothing of the plan could run.
    NothingRan = 5,
    /// Some of the plan ran, some was skipped or voided.
    DoneInPart = 6,
    /// The server refused: unreachable, password, TLS or certificate.
    ServerRefused = 7,
    /// A record is unreadable, locked or newer than this version.
    RecordUnusable = 8,
    /// This machine lacks something (disk, port, permission), or a load host is not reached.
    HostResource = 9,
    /// `tde verify` found something that is not ciphertext of its place.
    NotEncrypted = 10,
    /// Ctrl-C; what was measured is kept.
    Interrupted = 130,
    /// SIGTERM; what was measured is kept.
    Terminated = 143,
}

impl ExitCode {
    /// Every code, ascending.
    pub const ALL: [Self; 13] = [
        Self::Done,
        Self::Internal,
        Self::Usage,
        Self::Regression,
        Self::Inconclusive,
        Self::NothingRan,
        Self::DoneInPart,
        Self::ServerRefused,
        Self::RecordUnusable,
        Self::HostResource,
        Self::NotEncrypted,
        Self::Interrupted,
        Self::Terminated,
    ];

    /// The number the process exits with.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The meaning in a few words, as in the documentation's table.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done; no regression",
            Self::Internal => "internal error: a bug in ciphertoll",
            Self::Usage => "wrong command line, or a wrong file that it names",
            Self::Regression => "regression (compare)",
            Self::Inconclusive => "inconclusive (compare)",
            Self::NothingRan => "nothing could run",
            Self::DoneInPart => "done in part: some cells were skipped or voided",
            Self::ServerRefused => "server refused: unreachable, password, TLS or certificate",
            Self::RecordUnusable => "record unreadable, locked or newer than this version",
            Self::HostResource => "host resource: disk, port or permission; a load host that is not reached",
            Self::NotEncrypted => "not everything is encrypted (tde verify)",
            Self::Interrupted => "interrupted by Ctrl-C; what was measured is kept",
            Self::Terminated => "terminated by SIGTERM; what was measured is kept",
        }
    }
}
