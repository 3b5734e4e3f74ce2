//! Which members of a replica set may be read from ("Server Selection").

use crate::mongodb::{codec::bson::writer::BsonWriter, member_role::MemberRole};

const KEY: &str = "$readPreference";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReadPreference {
    /// The primary only.
    #[default]
    Primary,
    /// The primary; if there is none, a secondary.
    PrimaryPreferred,
    /// Secondaries only.
    Secondary,
    /// A secondary; if there is none, the primary.
    SecondaryPreferred,
    /// The member with the shortest round trip.
    Nearest,
}

impl ReadPreference {
    pub const ALL: [Self; 5] =
        [Self::Primary, Self::PrimaryPreferred, Self::Secondary, Self::SecondaryPreferred, Self::Nearest];

    /// The name in URLs and commands.
    pub fn label(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::PrimaryPreferred => "primaryPreferred",
            Self::Secondary => "secondary",
            Self::SecondaryPreferred => "secondaryPreferred",
            Self::Nearest => "nearest",
        }
    }

    /// The read preference that commands must have for a directly connected server of this role, if any. A
    /// member that is not the primary refuses reads without one.
    pub(crate) fn for_role(self, role: MemberRole) -> Option<Self> {
        match (role, self) {
            (MemberRole::Standalone | MemberRole::Primary, _) | (MemberRole::Router, Self::Primary) => None,
            (
                MemberRole::Secondary | MemberRole::Hidden | MemberRole::Arbiter | MemberRole::Unready,
                Self::Primary,
            ) => Some(Self::PrimaryPreferred),
            (_, preference) => Some(preference),
        }
    }

    /// Writes it as an element of a command.
    pub(crate) fn write(self, command: &mut BsonWriter<'_>) {
        command.document(KEY, |preference| preference.string("mode", self.label()));
    }
}
