//! Text in the C locale: terminals there may show nothing but ASCII.

use std::borrow::Cow;
use std::ffi::OsStr;

/// The text as it is, or in ASCII characters if the locale is `C` or `POSIX`.
pub(crate) fn on_screen(text: &str) -> Cow<'_, str> {
    if is_plain() { Cow::Owned(in_ascii(text)) } else { Cow::Borrowed(text) }
}

/// The first of these variables that is set decides. Without any, the locale is unknown, and text stays as it is.
pub(crate) fn is_plain() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(std::env::var_os);
    set.into_iter().find(|value| !value.is_empty()).is_some_and(|value| is_c(&value))
}

fn is_c(locale: &OsStr) -> bool {
    locale == "C" || locale == "POSIX"
}

fn in_ascii(text: &str) -> String {
    let mut ascii = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            _ if character.is_ascii() => ascii.push(character),
            // Numbers in tables stay aligned at the right: one of the spaces before them makes room.
            '±' => {
                if ascii.ends_with("  ") {
                    ascii.pop();
                }
                ascii.push_str("+-");
            }
            other => ascii.push_str(form(other)),
        }
    }
    ascii
}

fn form(character: char) -> &'static str {
    match character {
        '×' => "x",
        '÷' => "/",
        '▲' => "^",
        '▼' => "v",
        '≈' => "~",
        'µ' => "u",
        '·' => "*",
        '–' | '—' | '−' | '─' => "-",
        '…' => "...",
        '’' | '‘' => "'",
        '“' | '”' => "\"",
        '∞' => "inf",
        '→' => "->",
        '≤' => "<=",
        '≥' => ">=",
        '\u{a0}' => " ",
        '\u{2060}' => "",
        _ => "?",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_units_have_ascii_forms() {
        let text = "· 1.69 ms ▲ 9.49 × (8.53–10.56); ▼ ≈ 24.2 µs ±13 % … é\n  plain    ±5.8 %";
        let ascii = "* 1.69 ms ^ 9.49 x (8.53-10.56); v ~ 24.2 us +-13 % ... ?\n  plain   +-5.8 %";
        assert_eq!(in_ascii(text), ascii);
        assert_eq!(in_ascii(ascii), ascii);
    }

    #[test]
    fn only_the_c_locale_is_plain() {
        for (locale, is_plain) in [("C", true), ("POSIX", true), ("C.UTF-8", false), ("en_GB.UTF-8", false)] {
            assert_eq!(is_c(OsStr::new(locale)), is_plain, "{locale}");
        }
    }
}
