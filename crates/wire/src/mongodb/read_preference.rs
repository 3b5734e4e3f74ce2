//! Read preferences in commands ("Server Selection").

use ciphertoll_vocabulary::ReadPreference;

use super::{Role, bson::Writer};

const KEY: &str = "$readPreference";

/// The preference that commands to this server must carry; none if it answers without. A member that is not the primary
/// refuses commands without a preference that permits it.
pub(super) fn required_by(role: Role, preference: ReadPreference) -> Option<ReadPreference> {
    match (role, preference) {
        (Role::Standalone | Role::Primary, _) | (Role::Router, ReadPreference::Primary) => None,
        (Role::Secondary | Role::Hidden | Role::Arbiter | Role::Unready, ReadPreference::Primary) => {
            Some(ReadPreference::PrimaryPreferred)
        }
        (_, preference) => Some(preference),
    }
}

/// Writes the preference as an element of a command.
pub(super) fn write(preference: ReadPreference, command: &mut Writer<'_>) {
    command.document(KEY, |document| document.string("mode", preference.label()));
}
