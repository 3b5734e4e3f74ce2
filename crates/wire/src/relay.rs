//! What one between a client and a server does with their bytes, in either protocol.

/// What of a client's bytes may be passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FromClient {
    /// So many of them, from the front. Less than a message's header may be left.
    pub pass_bytes: usize,
    /// Whether a goodbye follows them.
    pub goodbye: Goodbye,
}

/// A database that must have no other connections, or the server refuses a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Vacate {
    /// This one.
    Database(Vec<u8>),
    /// One whose name could not be read.
    Any,
}

/// Whether a client has said that it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goodbye {
    /// It stays.
    None,
    /// It has; nothing it may send after that is looked at.
    Said,
    /// It stays and logs in anew: what follows is the command that says as whom, which is not passed on.
    Anew,
}
