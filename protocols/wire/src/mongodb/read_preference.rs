//! Read preferences in commands ("Server Selection").

use bson::spec::ElementType;
use ciphertoll_vocabulary::ReadPreference;

use crate::mongodb::{
    codec::document::{self, put_key, put_text},
    member_role::MemberRole,
};

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
pub(crate) fn write(preference: ReadPreference, out: &mut Vec<u8>) {
    put_key(out, ElementType::EmbeddedDocument, KEY);
    let Ok(()) = document::write(out, |out| {
        put_key(out, ElementType::String, "mode");
        put_text(out, preference.label());
        Ok::<_, std::convert::Infallible>(())
    });
}
