//! Types that the relays of both protocols share. A relay stands between a client and a server and forwards
//! their bytes.

/// How much of the client's input a relay may forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientInput {
    /// Bytes to forward, from the front. A partial message header may remain.
    pub pass_bytes: usize,
    pub goodbye: Goodbye,
}

/// The database that must have no other connections, or the server refuses a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Vacate {
    Database(Vec<u8>),
    /// Its name could not be parsed, so it may be any.
    Any,
}

/// What happens to a session whose client sends nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// It ends.
    Now,
    /// It ends when the server has answered what the client has sent.
    WhenAnswered,
    /// What the server answers depends on its client's end: it ends when the server, told the same, has closed the
    /// connection.
    WhenClosed,
}

/// Whether the client ends its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goodbye {
    /// The session continues.
    None,
    /// The client closes the connection. Its later bytes are ignored.
    Said,
    /// The client stays and logs in again: a `COM_CHANGE_USER` follows, which is not forwarded.
    ChangeUser,
}

/// What a session is doing, as far as its relay can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionProgress {
    /// No answer is owed, and no transaction is open.
    Idle,
    /// No answer is owed; a transaction is open, which may have failed.
    InTransaction,
    /// An answer is owed, or a command is incomplete.
    Busy,
    Unknown,
}

/// Whether an error of the server may mean that it has lost its role: that it accepts no writes any more, or shuts down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RoleDoubt {
    #[default]
    None,
    Raised,
}
