//! The roles of servers in a replica set.

/// A server's role in its replica set. The order is that of precedence among the fields of `hello`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberRole {
    /// Not a member of a set.
    Standalone,
    /// Neither primary nor secondary at the moment: starting, recovering or removed.
    Unready,
    /// Accepts writes.
    Primary,
    /// Replicates the primary.
    Secondary,
    /// Votes but holds no data.
    Arbiter,
    /// Holds data but is not visible to clients.
    Hidden,
    /// A router of a sharded cluster (`mongos`).
    Router,
}

impl MemberRole {
    /// The role in words, with its article.
    pub fn described(self) -> &'static str {
        match self {
            Self::Standalone => "a standalone server",
            Self::Unready => "currently neither primary nor secondary",
            Self::Primary => "the primary",
            Self::Secondary => "a secondary",
            Self::Arbiter => "an arbiter",
            Self::Hidden => "a hidden member",
            Self::Router => "a router",
        }
    }
}
