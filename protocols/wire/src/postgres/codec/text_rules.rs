//! How a server reads texts, as far as the settings that it reports say.

/// How backslashes in plain string literals are read (`standard_conforming_strings`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StringSyntax {
    /// `on`: a backslash is an ordinary byte.
    Standard,
    /// `off`: a backslash escapes the next byte.
    Escaped,
    /// The server has not reported it, or may have changed it since.
    #[default]
    Unknown,
}

/// What the bytes of a text may be (`client_encoding`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TextEncoding {
    /// ASCII bytes are ASCII characters.
    #[default]
    AsciiSafe,
    /// Characters can contain ASCII bytes, such as a backslash.
    Ambiguous,
}

impl StringSyntax {
    pub const SETTING: &'static [u8] = b"standard_conforming_strings";

    pub(crate) fn of(value: &[u8]) -> Self {
        match value {
            b"on" => Self::Standard,
            b"off" => Self::Escaped,
            _ => Self::Unknown,
        }
    }
}

impl TextEncoding {
    pub(crate) const SETTING: &'static [u8] = b"client_encoding";

    pub(crate) fn of(value: &[u8]) -> Self {
        const AMBIGUOUS: [&[u8]; 7] =
            [b"SJIS", b"SHIFT_JIS_2004", b"BIG5", b"GBK", b"GB18030", b"UHC", b"JOHAB"];
        let is_ambiguous = AMBIGUOUS.iter().any(|name| value.eq_ignore_ascii_case(name));
        if is_ambiguous { Self::Ambiguous } else { Self::AsciiSafe }
    }
}
