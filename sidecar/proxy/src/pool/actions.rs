//! What the pool tells a worker to do.

/// Which connections a client can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acceptable {
    /// Only those that are reset.
    Reset,
    /// Also those whose reset can be sent with the client's first command.
    Any,
}

/// What to do for a client that wants a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolAction<S> {
    /// The client has an idle connection.
    Take(S),
    /// The client has a connection that was not reset. If it cannot use it, [`super::ConnectionPool::wait_for`] follows.
    TakeUnreset(S),
    /// The client waits. Open a connection.
    Open,
    /// The client waits. The worker of this idle or kept connection must release it, after a reset if it is kept.
    Release(S),
    /// The client waits. This idle or kept connection of another key must be closed to make room, and then
    /// [`super::ConnectionPool::eviction_done`] be called.
    Evict(S),
    /// The client waits; no action is needed.
    Wait,
    /// The client waits. Serve those of [`super::ConnectionPool::unserved_key`] first: another user has fewer connections.
    Yield,
}

/// What happened to a released connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released<K, C> {
    /// It was assigned to this client, which has waited.
    Assigned(C),
    Idle,
    /// It must be closed, and one of this key, which is another user's, must be opened. The pool counts both as done. There
    /// may be room for unserved clients of its own user or database.
    Replaced(K),
}
