//! Settings as a `SET` statement has them.

use crate::mysql::sql::effects::CHARACTER_SETS;

/// The name under which a list of settings has the collation of the last `SET NAMES`, if `character_set_results` was not
/// set since.
pub const NAMES: &str = "names";

/// The `SET` statement for these settings, whose values must be safe to quote ([`quotable`]).
/// `None` means NULL.
pub fn setting<'a>(settings: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> Option<String> {
    let settings: Vec<_> = settings.collect();
    let names = set_names(&settings);
    let is_left = |name: &str| name != NAMES && (names.is_none() || !CHARACTER_SETS.contains(&name));
    let left = settings.iter().filter(|(name, _)| is_left(name));
    let written = left.map(|(name, value)| format!("{name}={}", write_value(*value)));
    let written: Vec<String> = names.clone().into_iter().chain(written).collect();
    (!written.is_empty()).then(|| format!("SET {}", written.join(",")))
}

/// All settings of the character set, by a `SET NAMES`: so `character_set_results` gets its collation, which it does not
/// show, and which clients see in the definitions of columns.
fn set_names(settings: &[(&str, Option<&str>)]) -> Option<String> {
    let value_of = |wanted: &str| settings.iter().find(|(name, _)| *name == wanted)?.1;
    let [client, results, collation] = CHARACTER_SETS.map(value_of);
    let results = results?;
    let names = value_of(NAMES)?;
    let rest = names.strip_prefix(results)?;
    if !rest.is_empty() && !rest.starts_with('_') {
        return None;
    }
    let behind = [(CHARACTER_SETS[0], client, results), (CHARACTER_SETS[2], collation, names)];
    let changed = behind.into_iter().filter(|(_, own, of_names)| *own != Some(*of_names));
    let changed: Vec<_> = changed.map(|(name, own, _)| format!(",{name}={}", write_value(own))).collect();
    Some(format!("NAMES '{results}' COLLATE '{names}'{}", changed.concat()))
}

/// A value as a `SET` has it.
pub(crate) fn write_value(value: Option<&str>) -> String {
    match value {
        None => "NULL".to_owned(),
        // Numeric settings accept no quoted text.
        Some(number) if is_number(number) => number.to_owned(),
        Some(text) => format!("'{text}'"),
    }
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.bytes().any(|byte| byte.is_ascii_digit())
        && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        && digits.bytes().filter(|byte| *byte == b'.').count() <= 1
}

/// The text, if it can be quoted without escapes in any character set.
pub fn quotable(value: Vec<u8>) -> Option<String> {
    let quotable = |byte: u8| (byte == b' ' || byte.is_ascii_graphic()) && !b"'\"\\`".contains(&byte);
    String::from_utf8(value).ok().filter(|text| text.bytes().all(quotable))
}

/// A value that can be set again on another connection.
pub fn restorable(value: Option<Vec<u8>>) -> Option<Option<String>> {
    value.map(|value| quotable(value).ok_or(())).transpose().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_character_set_follow_the_last_set_names() {
        for (names, client, results, collation, expected) in [
            (
                Some("utf8mb4_bin"),
                "utf8mb4",
                Some("utf8mb4"),
                "utf8mb4_bin",
                "NAMES 'utf8mb4' COLLATE 'utf8mb4_bin'",
            ),
            (
                None,
                "utf8mb4",
                Some("utf8mb4"),
                "utf8mb4_bin",
                "character_set_client='utf8mb4',character_set_results='utf8mb4',\
                 collation_connection='utf8mb4_bin'",
            ),
            (
                Some("utf8mb4_bin"),
                "utf8mb4",
                Some("utf8mb4"),
                "utf8mb4_general_ci",
                "NAMES 'utf8mb4' COLLATE 'utf8mb4_bin',collation_connection='utf8mb4_general_ci'",
            ),
            (
                Some("latin1_bin"),
                "utf8mb4",
                Some("latin1"),
                "latin1_bin",
                "NAMES 'latin1' COLLATE 'latin1_bin',character_set_client='utf8mb4'",
            ),
            (
                Some("utf8mb4_bin"),
                "utf8mb4",
                None,
                "utf8mb4_bin",
                "character_set_client='utf8mb4',character_set_results=NULL,collation_connection='utf8mb4_bin'",
            ),
        ] {
            let names = names.map(|names| (NAMES, Some(names)));
            let values = CHARACTER_SETS.into_iter().zip([Some(client), results, Some(collation)]);
            let all = names.into_iter().chain(values).chain([("sql_mode", Some(""))]);
            assert_eq!(setting(all), Some(format!("SET {expected},sql_mode=''")));
        }
    }
}
