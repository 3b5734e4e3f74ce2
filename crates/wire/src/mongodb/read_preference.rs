//! Which members of a replica set may be read from ("Server Selection").

use super::{Role, bson::Writer};

const KEY: &str = "$readPreference";

/// Which members of a replica set may be read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReadPreference {
    /// The one that takes writes.
    #[default]
    Primary,
    /// That one; where there is none, another.
    PrimaryPreferred,
    /// Any but that one.
    Secondary,
    /// Any but that one; where there is none, that one.
    SecondaryPreferred,
    /// Whichever answers first.
    Nearest,
}

impl ReadPreference {
    /// Every preference.
    pub const ALL: [Self; 5] =
        [Self::Primary, Self::PrimaryPreferred, Self::Secondary, Self::SecondaryPreferred, Self::Nearest];

    /// As it is written in URLs and in commands.
    pub fn label(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::PrimaryPreferred => "primaryPreferred",
            Self::Secondary => "secondary",
            Self::SecondaryPreferred => "secondaryPreferred",
            Self::Nearest => "nearest",
        }
    }

    /// What commands must say to a server that was gone to directly; nothing where it answers without. A member that is
    /// not the primary refuses what does not say that it will do.
    pub(super) fn told_to(self, role: Role) -> Option<Self> {
        match (role, self) {
            (Role::Standalone | Role::Primary, _) | (Role::Router, Self::Primary) => None,
            (Role::Secondary | Role::Hidden | Role::Arbiter | Role::Unready, Self::Primary) => {
                Some(Self::PrimaryPreferred)
            }
            (_, preference) => Some(preference),
        }
    }

    /// As an element of a command.
    pub(super) fn write(self, command: &mut Writer<'_>) {
        command.document(KEY, |preference| preference.string("mode", self.label()));
    }
}
