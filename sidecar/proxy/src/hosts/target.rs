//! The roles of servers, and those that connections need.

/// What a server has said of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerRole {
    pub kind: RoleKind,
    /// The timeline that a PostgreSQL server writes: each promotion begins a higher one. `None` if it writes none or does
    /// not tell.
    pub timeline: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleKind {
    ReadWrite,
    /// Not a standby, but new transactions are read-only.
    ReadOnlyPrimary,
    Standby,
    /// A member of a cluster that is not in sync with it.
    NotReady,
    /// It answers, and was not asked.
    NotAsked,
}

/// The role that connections need: libpq's `target_session_attrs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetSession {
    #[default]
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    PreferStandby,
}

/// In which order hosts are tried: libpq's `load_balance_hosts`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadBalance {
    /// In the order of the URL.
    #[default]
    Disable,
    Random,
}

impl LoadBalance {
    pub fn label(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Random => "random",
        }
    }
}

impl RoleKind {
    pub fn label(self) -> &'static str {
        match self {
            Self::ReadWrite => "read-write",
            Self::ReadOnlyPrimary => "read-only",
            Self::Standby => "standby",
            Self::NotReady => "not-ready",
            Self::NotAsked => "not-asked",
        }
    }

    /// Whether a server of this kind may write.
    pub fn is_primary(self) -> bool {
        matches!(self, Self::ReadWrite | Self::ReadOnlyPrimary)
    }
}

impl TargetSession {
    pub const ALL: [Self; 6] =
        [Self::Any, Self::ReadWrite, Self::ReadOnly, Self::Primary, Self::Standby, Self::PreferStandby];

    pub fn label(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::ReadWrite => "read-write",
            Self::ReadOnly => "read-only",
            Self::Primary => "primary",
            Self::Standby => "standby",
            Self::PreferStandby => "prefer-standby",
        }
    }

    pub fn from_label(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.label() == text)
    }

    /// Whether a server of this kind may serve clients.
    pub fn accepts(self, kind: RoleKind) -> bool {
        match self {
            Self::Any => true,
            Self::ReadWrite => kind == RoleKind::ReadWrite,
            Self::ReadOnly => matches!(kind, RoleKind::ReadOnlyPrimary | RoleKind::Standby),
            Self::Primary => kind.is_primary(),
            Self::Standby => kind == RoleKind::Standby,
            Self::PreferStandby => kind.is_primary() || kind == RoleKind::Standby,
        }
    }

    /// Whether only one server at a time may have the role.
    pub fn is_of_one_server(self) -> bool {
        matches!(self, Self::ReadWrite | Self::Primary)
    }
}

impl LoadBalance {
    pub fn from_label(text: &str) -> Option<Self> {
        match text {
            "disable" => Some(Self::Disable),
            "random" => Some(Self::Random),
            _ => None,
        }
    }
}
