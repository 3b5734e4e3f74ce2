//! The settings that a text names.

use crate::postgres::sql::effects::{Effects, ReadingChange, SetConfig};

/// The setting named after `SET` or `RESET`.
pub(super) fn setting(word: &[u8], effects: &mut Effects) {
    match word {
        b"characteristics" => effects.pins("SET SESSION CHARACTERISTICS"),
        b"authorization" | b"session" | b"session_authorization" => {
            effects.pins("SET SESSION AUTHORIZATION");
        }
        b"all" => {
            effects.changes_reading(ReadingChange::Constants);
            effects.pins("RESET ALL");
        }
        b"seed" => effects.pins("SET SEED"),
        word => effects.sets(by_its_name(word)),
    }
}

/// The setting that follows `SET` as a word of its own.
pub(super) fn by_its_name(word: &[u8]) -> &[u8] {
    match word {
        b"time" => b"TimeZone",
        b"names" => b"client_encoding",
        b"xml" => b"xmloption",
        b"schema" => b"search_path",
        name => name,
    }
}

/// A setting is set whose name is not known.
pub(super) fn sets_unknown(effects: &mut Effects) {
    effects.pins("set_config");
    effects.changes_reading(ReadingChange::Constants);
    effects.calls_set_config = SetConfig::MayDefineCustom;
}

/// What `set_config` does with this setting: what `SET` does, if its name is a plain one.
pub(super) fn sets_config(name: &[u8], effects: &mut Effects) {
    let name = name.to_ascii_lowercase();
    let is_plain = !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    // The value may be that of `pg_temp`; the others are set in other ways.
    let is_special = matches!(name.as_slice(), b"search_path" | b"role" | b"session_authorization" | b"seed");
    if is_plain && !is_special {
        effects.sets(&name);
        return;
    }
    effects.pins("set_config");
    if name.contains(&b'.') {
        effects.calls_set_config = SetConfig::MayDefineCustom;
    }
}
