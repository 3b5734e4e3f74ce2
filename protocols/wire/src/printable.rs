//! A peer's text, made safe to show.

/// At most `limit` characters, without control characters.
pub(crate) fn printable(text: &[u8], limit: usize) -> String {
    // A character has up to four bytes; the rest of a longer text would not be shown.
    let text = &text[..text.len().min(limit.saturating_mul(4))];
    String::from_utf8_lossy(text)
        .chars()
        .take(limit)
        .map(|character| if character.is_control() { char::REPLACEMENT_CHARACTER } else { character })
        .collect()
}
