//! Settings as a `SET` statement has them.

use crate::mysql::sql::effects::CHARACTER_SETS;

/// The `SET` statement for these settings, whose values must be safe to quote ([`quotable`]).
/// `None` means NULL.
pub fn setting<'a>(settings: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> Option<String> {
    let settings: Vec<_> = settings.collect();
    let names = set_names(&settings);
    let is_left = |name: &str| names.is_none() || !CHARACTER_SETS.contains(&name);
    let left = settings.iter().filter(|(name, _)| is_left(name));
    let written = left.map(|(name, value)| format!("{name}={}", write_value(*value)));
    let written: Vec<String> = names.clone().into_iter().chain(written).collect();
    (!written.is_empty()).then(|| format!("SET {}", written.join(",")))
}

/// All settings of the character set in one: so `character_set_results` gets the collation, too, which it does not show,
/// and which clients see in the definitions of columns.
fn set_names(settings: &[(&str, Option<&str>)]) -> Option<String> {
    let value_of = |wanted: &str| settings.iter().find(|(name, _)| *name == wanted)?.1;
    let [client, results, collation] = CHARACTER_SETS.map(value_of);
    let (client, collation) = (client.filter(|client| results == Some(client))?, collation?);
    let is_of_set =
        collation.strip_prefix(client).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
    is_of_set.then(|| format!("NAMES '{client}' COLLATE '{collation}'"))
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
