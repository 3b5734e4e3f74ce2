//! Finds what only the end of a session undoes: its connection cannot be handed on.

use crate::postgres::{
    codec::{
        kind,
        parameters::Parameters,
        text_rules::{StringSyntax, TextEncoding},
    },
    relay::framer::Piece,
    sql::{
        effects::{Effects, TextReader},
        unresettable::Scanner,
    },
};

const FUNCTION_CALL: &str = "a function that was called by its number";
const CUSTOM_SETTING: &str = "a custom setting";
/// A part of a character may look like a quote or a backslash.
const UNREADABLE: &str = "texts in a client encoding that cannot be read byte by byte";
/// Functions of the server for large objects, which libpq calls by number. Their state ends with the transaction.
const LARGE_OBJECT_FUNCTIONS: [u32; 16] =
    [715, 764, 765, 767, 952, 953, 954, 955, 956, 957, 958, 964, 1004, 3170, 3171, 3172];

/// Observes the messages of one client.
#[derive(Debug, Default)]
pub(crate) struct SessionEndObserver {
    reason: Option<&'static str>,
    custom_settings: CustomSettings,
    payload: Payload,
}

/// Whether custom settings matter. Their names exist until the session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum CustomSettings {
    /// They are followed elsewhere.
    #[default]
    Ignored,
    Observed,
}

/// What comes next in the client's current message.
#[derive(Debug, Default)]
enum Payload {
    #[default]
    Other,
    /// The name of a statement, then its text.
    Statement(StringSyntax),
    Text(StringSyntax),
    /// A text that arrives in pieces.
    Partial(Box<PartialText>),
    /// The number of a function, as far as it has arrived.
    Function(Vec<u8>),
}

#[derive(Debug)]
struct PartialText {
    scanner: Scanner,
    effects: TextReader,
}

impl SessionEndObserver {
    pub(crate) fn new(custom_settings: CustomSettings) -> Self {
        Self { custom_settings, ..Self::default() }
    }

    /// Why the connection must be closed. A text that has not ended is not known.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        self.reason
    }

    /// The client starts a message.
    #[inline]
    pub(crate) fn begin(&mut self, kind: u8, parameters: &Parameters) {
        if self.reason.is_some() {
            return;
        }
        let string_syntax = parameters.string_syntax();
        match kind {
            kind::QUERY | kind::PARSE if parameters.encoding() == TextEncoding::Ambiguous => {
                self.reads_ambiguous();
            }
            kind::QUERY => self.payload = Payload::Text(string_syntax),
            kind::PARSE => self.payload = Payload::Statement(string_syntax),
            kind::FUNCTION_CALL => self.payload = Payload::Function(Vec::new()),
            _ => {}
        }
    }

    /// The server reads texts in an encoding whose characters may contain quotes.
    #[cold]
    pub(crate) fn reads_ambiguous(&mut self) {
        self.reason.get_or_insert(UNREADABLE);
        self.payload = Payload::Other;
    }

    /// Continues with the current message.
    #[inline]
    pub(crate) fn read(&mut self, piece: Piece<'_>) {
        if !matches!(self.payload, Payload::Other) {
            self.read_payload(piece);
        }
    }

    fn read_payload(&mut self, Piece { mut bytes, is_last }: Piece<'_>) {
        if let Payload::Statement(string_syntax) = self.payload {
            let Some(end) = memchr::memchr(0, bytes) else {
                if is_last {
                    self.payload = Payload::Other;
                }
                return;
            };
            bytes = &bytes[end + 1..];
            self.payload = Payload::Text(string_syntax);
        }
        let end = memchr::memchr(0, bytes);
        let has_ended = end.is_some() || is_last;
        let text = &bytes[..end.unwrap_or(bytes.len())];
        match &mut self.payload {
            Payload::Other | Payload::Statement(_) => {}
            Payload::Function(number) => {
                number.extend(bytes.iter().take(size_of::<u32>() - number.len()));
                if let Some(number) = number.first_chunk() {
                    if !LARGE_OBJECT_FUNCTIONS.contains(&u32::from_be_bytes(*number)) {
                        self.reason = Some(FUNCTION_CALL);
                    }
                    self.payload = Payload::Other;
                } else if is_last {
                    self.payload = Payload::Other;
                }
            }
            Payload::Text(string_syntax) if has_ended => {
                let string_syntax = *string_syntax;
                self.payload = Payload::Other;
                if !Scanner::is_plain(text) {
                    let custom = || Effects::of(text, string_syntax).may_define_custom();
                    self.end_text(Scanner::of(text), custom);
                }
            }
            Payload::Text(string_syntax) => {
                let mut partial =
                    PartialText { scanner: Scanner::default(), effects: TextReader::new(*string_syntax) };
                partial.read(text);
                self.payload = Payload::Partial(Box::new(partial));
            }
            Payload::Partial(partial) => {
                partial.read(text);
                if has_ended {
                    let (found, effects) = (partial.scanner.found(), partial.effects.end());
                    self.payload = Payload::Other;
                    self.end_text(found, || effects.may_define_custom());
                }
            }
        }
    }

    fn end_text(&mut self, found: Option<&'static str>, may_define_custom: impl FnOnce() -> bool) {
        self.reason = found;
        if found.is_none() && self.custom_settings == CustomSettings::Observed && may_define_custom() {
            self.reason = Some(CUSTOM_SETTING);
        }
    }
}

impl PartialText {
    fn read(&mut self, text: &[u8]) {
        self.scanner.read(text);
        self.effects.read(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::codec::command::{encode_parse, encode_query};
    use crate::postgres::codec::message::HEADER_BYTES;

    /// Why the connection must be closed after this message, whose payload arrives in pieces of this many bytes.
    fn after(message: &[u8], piece_bytes: usize, parameters: &Parameters) -> Option<&'static str> {
        let mut observer = SessionEndObserver::new(CustomSettings::Observed);
        observer.begin(message[0], parameters);
        let payload = &message[HEADER_BYTES..];
        let mut left = payload.len();
        observer.read(Piece { bytes: b"", is_last: left == 0 });
        for bytes in payload.chunks(piece_bytes) {
            left -= bytes.len();
            observer.read(Piece { bytes, is_last: left == 0 });
        }
        observer.reason()
    }

    fn parameters(encoding: &[u8]) -> Parameters {
        let mut parameters = Parameters::default();
        parameters.set(b"standard_conforming_strings", b"on").unwrap();
        parameters.set(b"client_encoding", encoding).unwrap();
        parameters
    }

    fn query(sql: &str) -> Vec<u8> {
        let mut out = Vec::new();
        encode_query(&mut out, sql).unwrap();
        out
    }

    #[test]
    fn texts_in_an_ambiguous_encoding_may_leave_anything() {
        let message = b"Q\0\0\0\x20select E'\x95\x5c'; set a.b='1'\0";
        for encoding in ["SJIS", "SHIFT_JIS_2004", "BIG5", "GBK", "GB18030", "UHC", "JOHAB"] {
            assert_eq!(after(message, 7, &parameters(encoding.as_bytes())), Some(UNREADABLE));
        }
        assert_eq!(after(&query("SELECT 'a'"), 7, &parameters(b"EUC_JP")), None);
        assert_eq!(after(b"S\0\0\0\x04", 7, &parameters(b"SJIS")), None, "no text");
    }

    #[test]
    fn messages_are_read_in_any_pieces() {
        let parse = |name: &str, sql: &str| {
            let mut out = Vec::new();
            encode_parse(&mut out, name, sql, &[25, 25]).unwrap();
            out
        };
        let call = |number: u32| [&b"F\0\0\0\x0e"[..], &number.to_be_bytes(), b"\0\0\0\0\0\0"].concat();
        for (message, expected) in [
            (query("SELECT 1; COMMIT"), None),
            (query("SELECT pg_backup_start('a')"), Some("a backup")),
            (parse("a", "SELECT setseed(1)"), Some("a seed")),
            (parse("setseed", "SELECT 1"), None),
            (query("SET work_mem = 1"), None),
            (query("SET app.tenant = 1"), Some(CUSTOM_SETTING)),
            (query("BEGIN; SET LOCAL app.tenant = 1"), Some(CUSTOM_SETTING)),
            (query("ALTER ROLE a SET app.tenant = 1"), Some(CUSTOM_SETTING)),
            (query("ALTER ROLE a SET work_mem = 1"), None),
            (parse("", "SELECT set_config($1, $2, true)"), Some(CUSTOM_SETTING)),
            (query("SELECT set_config('app.tenant', '1', true)"), Some(CUSTOM_SETTING)),
            (query("SELECT set_config('work_mem', '1MB', true)"), None),
            (call(952), None),
            (call(2085), Some(FUNCTION_CALL)),
        ] {
            for piece_bytes in 1..=message.len() {
                let reason = after(&message, piece_bytes, &parameters(b"UTF8"));
                assert_eq!(reason, expected, "{}", String::from_utf8_lossy(&message));
            }
        }
    }
}
