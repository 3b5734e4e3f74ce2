//! Statements whose constants depend on settings are prepared again with the settings that the server first read them with.

use crate::postgres::{
    codec::parameters::Parameters,
    error::Error,
    relay::session_follower::{FollowedModel, own_messages::put_set},
    sql::effects::REPORTED_OF_CONSTANTS,
};

pub(super) const READ_WITH_UNKNOWN: &str = "a prepared statement with a constant that depends on a setting";

/// How long a setting has its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SettingScope {
    Session,
    Transaction,
}

/// Whether constants are read alike with these settings.
pub(super) fn read_alike(one: &Parameters, other: &Parameters) -> bool {
    let is_same = |name: &&str| one.get(name.as_bytes()) == other.get(name.as_bytes());
    one.digest() == other.digest() || REPORTED_OF_CONSTANTS.iter().all(is_same)
}

/// The commands that change `present` settings into `wanted`, as far as constants depend on them. `None` if one is not
/// known.
pub(super) fn settings_between(
    present: &Parameters,
    wanted: &Parameters,
    scope: SettingScope,
) -> Option<Vec<String>> {
    if read_alike(present, wanted) {
        return Some(Vec::new());
    }
    let scope = match scope {
        SettingScope::Session => "SESSION",
        SettingScope::Transaction => "LOCAL",
    };
    let of = |parameters: &Parameters, name: &str| parameters.get(name.as_bytes()).map(<[u8]>::to_vec);
    let mut commands = Vec::new();
    for name in REPORTED_OF_CONSTANTS {
        if of(present, name) != of(wanted, name) {
            let value = String::from_utf8(of(wanted, name)?).ok()?;
            // Quotes and backslashes mean different things under different settings, and no value has them.
            if !value.is_ascii() || value.contains(['\'', '\\', '\0']) {
                return None;
            }
            commands.push(format!("SET {scope} {name} TO '{value}'"));
        }
    }
    Some(commands)
}

/// Appends these commands.
pub(super) fn put_settings(
    commands: &[String],
    out: &mut Vec<u8>,
    model: &mut FollowedModel,
) -> Result<(), Error> {
    commands.iter().try_for_each(|sql| put_set(sql, out, model))
}
