//! Read preferences in commands ("Server Selection").

use ciphertoll_vocabulary::ReadPreference;

use crate::mongodb::{codec::bson::writer::BsonWriter, member_role::MemberRole};

const KEY: &str = "$readPreference";

/// The read preference that commands must have for a directly connected server of this role, if any. A
/// member that is not the primary refuses reads without one.
pub(crate) fn required_by(role: MemberRole, preference: ReadPreference) -> Option<ReadPreference> {
    match (role, preference) {
        (MemberRole::Standalone | MemberRole::Primary, _) | (MemberRole::Router, ReadPreference::Primary) => {
            None
        }
        (
            MemberRole::Secondary | MemberRole::Hidden | MemberRole::Arbiter | MemberRole::Unready,
            ReadPreference::Primary,
        ) => Some(ReadPreference::PrimaryPreferred),
        (_, preference) => Some(preference),
    }
}

/// Writes the preference as an element of a command.
pub(crate) fn write(preference: ReadPreference, command: &mut BsonWriter<'_>) {
    command.document(KEY, |document| document.string("mode", preference.label()));
}
