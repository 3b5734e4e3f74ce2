use serde::{Deserialize, Serialize};

/// Which members of a replica set may be read from (MongoDB driver specification "Server Selection").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadPreference {
    /// Only the primary.
    #[default]
    Primary,
    /// The primary; a secondary if there is no primary.
    PrimaryPreferred,
    /// Only secondaries.
    Secondary,
    /// A secondary; the primary if there is no secondary.
    SecondaryPreferred,
    /// The member with the lowest latency.
    Nearest,
}

impl ReadPreference {
    /// Every preference.
    pub const ALL: [Self; 5] =
        [Self::Primary, Self::PrimaryPreferred, Self::Secondary, Self::SecondaryPreferred, Self::Nearest];

    /// As URLs and commands write it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::PrimaryPreferred => "primaryPreferred",
            Self::Secondary => "secondary",
            Self::SecondaryPreferred => "secondaryPreferred",
            Self::Nearest => "nearest",
        }
    }
}
