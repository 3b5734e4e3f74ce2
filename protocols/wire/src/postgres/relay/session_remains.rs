//! What the texts of a short session may leave on its connection, for session pooling. A longer session is not read to
//! its end: anything may remain.

use crate::postgres::{
    codec::{kind, text_rules::StringSyntax},
    relay::framer::Piece,
    sql::effects::{ArrivingText, Remains},
};

/// Texts that are read. After more of them, a separate reset costs little in comparison.
const MAX_TEXTS: u32 = 16;

/// Observes the messages of one client. [`Remains::Anything`] is final.
#[derive(Debug)]
pub(crate) struct RemainsObserver {
    remains: Remains,
    texts: u32,
    payload: Payload,
}

/// What comes next in the client's current message.
#[derive(Debug)]
enum Payload {
    /// Nothing that matters.
    Other,
    /// The name of a statement, then its text.
    Statement(StringSyntax),
    Text(ArrivingText),
}

impl Default for RemainsObserver {
    /// Reads nothing, so anything may remain.
    fn default() -> Self {
        Self { remains: Remains::Anything, texts: 0, payload: Payload::Other }
    }
}

impl RemainsObserver {
    pub(crate) fn observing() -> Self {
        Self { remains: Remains::Nothing, ..Self::default() }
    }

    /// What remains. The text of a message that has not ended is not known.
    pub(crate) fn remains(&self) -> Remains {
        if matches!(self.payload, Payload::Other) { self.remains } else { Remains::Anything }
    }

    fn raise(&mut self, remains: Remains) {
        self.remains = self.remains.max(remains);
        self.payload = Payload::Other;
    }

    /// The client starts a message.
    #[inline]
    pub(crate) fn begin(&mut self, kind: u8, string_syntax: StringSyntax) {
        if self.remains == Remains::Anything {
            return;
        }
        match kind {
            kind::QUERY | kind::PARSE if self.texts == MAX_TEXTS => self.raise(Remains::Anything),
            kind::QUERY => self.payload = Payload::Text(ArrivingText::Begins(string_syntax)),
            kind::PARSE => self.payload = Payload::Statement(string_syntax),
            kind::FUNCTION_CALL => self.raise(Remains::Anything),
            // They use what a `Parse` has named, or end with the transaction.
            _ => return,
        }
        self.texts += 1;
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
            match bytes {
                [0, text @ ..] => {
                    self.remains = self.remains.max(Remains::UnnamedStatement);
                    self.payload = Payload::Text(ArrivingText::Begins(string_syntax));
                    bytes = text;
                }
                [] if !is_last => return,
                // It has a name, and so outlives its transaction.
                _ => return self.raise(Remains::Anything),
            }
        }
        let Payload::Text(text) = &mut self.payload else { return };
        let end = memchr::memchr(0, bytes);
        let has_ended = end.is_some() || is_last;
        if let Some(effects) = text.read(&bytes[..end.unwrap_or(bytes.len())], has_ended) {
            self.raise(effects.remains);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::codec::command::{encode_parse, encode_query};
    use crate::postgres::codec::message::HEADER_BYTES;

    /// What remains after this message, whose payload arrives in pieces of this many bytes.
    fn after(observer: &mut RemainsObserver, message: &[u8], piece_bytes: usize) -> Remains {
        observer.begin(message[0], StringSyntax::Standard);
        let payload = &message[HEADER_BYTES..];
        let mut left = payload.len();
        observer.read(Piece { bytes: b"", is_last: left == 0 });
        for bytes in payload.chunks(piece_bytes) {
            left -= bytes.len();
            observer.read(Piece { bytes, is_last: left == 0 });
        }
        observer.remains()
    }

    fn query(sql: &str) -> Vec<u8> {
        let mut out = Vec::new();
        encode_query(&mut out, sql).unwrap();
        out
    }

    fn parse(name: &str, sql: &str) -> Vec<u8> {
        let mut out = Vec::new();
        encode_parse(&mut out, name, sql, &[25, 25]).unwrap();
        out
    }

    #[test]
    fn plain_data_access_leaves_nothing() {
        let cases = [
            (query("SELECT 1; COMMIT"), Remains::Nothing),
            (query(""), Remains::Nothing),
            (query("SET a = 1"), Remains::Anything),
            (query("LISTEN a"), Remains::Anything),
            (query("SELECT 1; SELECT pg_advisory_lock(1)"), Remains::Anything),
            (query("SELECT 1 INTO TEMP a"), Remains::Anything),
            (parse("", "SELECT $1, $2"), Remains::UnnamedStatement),
            (parse("a", "SELECT $1, $2"), Remains::Anything),
            (parse("", "CREATE TEMP TABLE a ()"), Remains::Anything),
            (b"P\0\0\0\x04".to_vec(), Remains::Anything),
            (b"F\0\0\0\x04".to_vec(), Remains::Anything),
            (b"S\0\0\0\x04".to_vec(), Remains::Nothing),
        ];
        for (message, expected) in cases {
            for piece_bytes in 1..=message.len() {
                let mut observer = RemainsObserver::observing();
                let remains = after(&mut observer, &message, piece_bytes);
                assert_eq!(remains, expected, "{}", String::from_utf8_lossy(&message));
                let remains = after(&mut observer, &query("SELECT 1"), piece_bytes);
                assert_eq!(remains, expected, "what remains is not forgotten");
            }
        }
    }

    #[test]
    fn what_was_not_read_may_leave_anything() {
        let mut observer = RemainsObserver::observing();
        observer.begin(kind::QUERY, StringSyntax::Standard);
        observer.read(Piece { bytes: b"SELECT", is_last: false });
        assert_eq!(observer.remains(), Remains::Anything, "the text has not ended");
        assert_eq!(after(&mut RemainsObserver::default(), &query("SELECT 1"), 9), Remains::Anything);

        let mut observer = RemainsObserver::observing();
        for _ in 0..MAX_TEXTS {
            assert_eq!(after(&mut observer, &query("SELECT 1"), 9), Remains::Nothing);
        }
        assert_eq!(after(&mut observer, b"S\0\0\0\x04", 9), Remains::Nothing);
        assert_eq!(after(&mut observer, &query("SELECT 1"), 9), Remains::Anything, "a long session");
    }
}
