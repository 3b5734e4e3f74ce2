//! A peer's text, made safe to show.

/// Neither a control character, nor one that ends a line or changes the direction of the text after it.
#[must_use]
pub fn is_printable(character: char) -> bool {
    let changes_layout = matches!(
        character,
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    !character.is_control() && !changes_layout
}

/// At most `limit` characters; those that are not printable are replaced.
pub(crate) fn printable(text: &[u8], limit: usize) -> String {
    // A character has up to four bytes; the rest of a longer text would not be shown.
    let text = &text[..text.len().min(limit.saturating_mul(4))];
    String::from_utf8_lossy(text)
        .chars()
        .take(limit)
        .map(|character| if is_printable(character) { character } else { char::REPLACEMENT_CHARACTER })
        .collect()
}
