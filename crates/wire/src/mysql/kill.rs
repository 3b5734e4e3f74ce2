//! Commands that end another connection or its command: `COM_PROCESS_KILL`, and `KILL` in a `COM_QUERY`. The
//! connection identifiers in them are those that the proxy gave its clients; the server does not know them.

use std::ops::Range;

use super::{
    Capabilities, Error,
    command::NO_ATTRIBUTES,
    lexer::{Escapes, Lexer, Token},
    packet,
    packet::Header,
};

const COM_QUERY: u8 = 0x03;
const COM_PROCESS_KILL: u8 = 0x0c;
const PROCESS_KILL_BYTES: usize = 1 + size_of::<u32>();
/// Longer texts are not scanned.
const MAX_TEXT_BYTES: usize = 1 << 14;
/// Gets an OK, as a KILL does.
const DO_NOTHING: &[u8] = b"DO 0";

/// A command that has at least one KILL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kill {
    /// The KILLs, in order.
    pub named: Vec<Named>,
    payload: Vec<u8>,
    /// Where the text starts in the payload; `None` for `COM_PROCESS_KILL`.
    text: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The connection identifier.
    pub number: u32,
    pub target: Target,
    /// The range in the payload, up to the end of the connection identifier.
    statement: Range<usize>,
    /// Where the connection identifier starts.
    digits: usize,
}

/// What a KILL ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Connection,
    /// Only its current command.
    Query,
}

/// What is sent in place of a KILL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instead {
    /// The same KILL with this connection identifier.
    Number(u32),
    /// A statement without effect.
    Nothing,
}

/// The result of scanning a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Other,
    /// Not enough of the command has arrived.
    Unfinished,
    Kill(Kill),
}

impl Kill {
    /// The statements of the command; `None` for `COM_PROCESS_KILL`.
    pub(super) fn text(&self) -> Option<&[u8]> {
        self.payload.get(self.text?..)
    }

    /// Appends the same command with a replacement for each KILL.
    pub fn encode(
        &self,
        capabilities: Capabilities,
        mut instead: impl FnMut(&Named) -> Instead,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let mut payload = Vec::new();
        let mut at = 0;
        for named in &self.named {
            payload.extend_from_slice(&self.payload[at..named.statement.start]);
            match (instead(named), self.text) {
                (Instead::Number(number), Some(_)) => {
                    payload.extend_from_slice(&self.payload[named.statement.start..named.digits]);
                    payload.extend_from_slice(number.to_string().as_bytes());
                }
                (Instead::Number(number), None) => {
                    payload.push(COM_PROCESS_KILL);
                    payload.extend_from_slice(&number.to_le_bytes());
                }
                (Instead::Nothing, Some(_)) => payload.extend_from_slice(DO_NOTHING),
                (Instead::Nothing, None) => {
                    payload.push(COM_QUERY);
                    payload.extend_from_slice(attributes(capabilities));
                    payload.extend_from_slice(DO_NOTHING);
                }
            }
            at = named.statement.end;
        }
        payload.extend_from_slice(&self.payload[at..]);
        packet::write(out, 0, |out| out.extend_from_slice(&payload))
    }
}

/// Scans a command. `input` starts with its payload and may be shorter or longer.
#[inline]
pub(super) fn look(header: Header, input: &[u8], capabilities: Capabilities) -> Seen {
    let here = &input[..input.len().min(header.length)];
    match here.first() {
        Some(&COM_QUERY) if header.length <= MAX_TEXT_BYTES => text(header, here, capabilities),
        Some(&COM_PROCESS_KILL) if header.length == PROCESS_KILL_BYTES => match here {
            &[_, a, b, c, d] => Seen::Kill(Kill {
                named: vec![Named {
                    number: u32::from_le_bytes([a, b, c, d]),
                    target: Target::Connection,
                    statement: 0..PROCESS_KILL_BYTES,
                    digits: 1,
                }],
                payload: here.to_vec(),
                text: None,
            }),
            _ => Seen::Unfinished,
        },
        _ => Seen::Other,
    }
}

fn attributes(capabilities: Capabilities) -> &'static [u8] {
    if capabilities.contains(Capabilities::QUERY_ATTRIBUTES) { &NO_ATTRIBUTES } else { &[] }
}

fn text(header: Header, here: &[u8], capabilities: Capabilities) -> Seen {
    let attributes = attributes(capabilities);
    let start = 1 + attributes.len();
    if header.length <= start {
        return Seen::Other;
    }
    if let Some(begun) = here.get(1..start)
        && begun != attributes
    {
        return Seen::Other;
    }
    if here.len() < header.length {
        return Seen::Unfinished;
    }
    let is_kill = |word: &[u8]| word.eq_ignore_ascii_case(b"kill");
    if !here[start..].windows(4).any(is_kill) {
        return Seen::Other;
    }
    // If a quote may end in two places, the text is left unchanged.
    match (find(&here[start..], Escapes::Backslash), find(&here[start..], Escapes::None)) {
        (Some(found), Some(same)) if found == same && !found.is_empty() => {
            let named = found.into_iter().map(|named| named.behind(start)).collect();
            Seen::Kill(Kill { named, payload: here.to_vec(), text: Some(start) })
        }
        _ => Seen::Other,
    }
}

impl Named {
    /// The same KILL, with `bytes` inserted before it.
    fn behind(self, bytes: usize) -> Self {
        let statement = self.statement.start + bytes..self.statement.end + bytes;
        Self { statement, digits: self.digits + bytes, ..self }
    }
}

/// The KILLs in a text; `None` if the end of a quote is ambiguous.
fn find(text: &[u8], escapes: Escapes) -> Option<Vec<Named>> {
    let (mut lexer, mut finder) = (Lexer::new(escapes), Finder::default());
    for (at, byte) in text.iter().enumerate() {
        // A word ends before the first byte that is not part of it.
        lexer.read(std::slice::from_ref(byte), &mut |token| finder.token(&token, at));
    }
    lexer.end(&mut |token| finder.token(&token, text.len()));
    finder.token(&Token::Sign(b';'), text.len());
    (finder.quotes == Quotes::Clear).then_some(finder.found)
}

/// Finds `KILL [HARD | SOFT] [CONNECTION | QUERY] number`.
#[derive(Debug, Default)]
struct Finder {
    place: Place,
    quotes: Quotes,
    found: Vec<Named>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Quotes {
    #[default]
    Clear,
    Ambiguous,
}

#[derive(Debug, Default)]
enum Place {
    /// At the start of a statement.
    #[default]
    Begin,
    /// After `KILL` and its modifiers.
    Kill {
        start: usize,
        target: Target,
    },
    /// After the connection identifier, which must be the statement's last token.
    Number(Named),
    Other,
}

impl Finder {
    fn token(&mut self, token: &Token<'_>, end: usize) {
        self.place = match (std::mem::take(&mut self.place), token) {
            (place, Token::Executed) => place,
            (place, Token::Ambiguous) => {
                self.quotes = Quotes::Ambiguous;
                place
            }
            (Place::Number(named), Token::Sign(b';')) => {
                self.found.push(named);
                Place::Begin
            }
            (_, Token::Sign(b';')) => Place::Begin,
            (Place::Begin, Token::Word(b"kill")) => {
                Place::Kill { start: end - b"kill".len(), target: Target::Connection }
            }
            (Place::Kill { start, target }, Token::Word(b"hard" | b"soft")) => Place::Kill { start, target },
            (Place::Kill { start, .. }, Token::Word(b"connection")) => {
                Place::Kill { start, target: Target::Connection }
            }
            (Place::Kill { start, .. }, Token::Word(b"query")) => {
                Place::Kill { start, target: Target::Query }
            }
            (Place::Kill { start, target }, Token::Word(word)) => {
                number(word).map_or(Place::Other, |number| {
                    Place::Number(Named { number, target, statement: start..end, digits: end - word.len() })
                })
            }
            _ => Place::Other,
        };
    }
}

fn number(word: &[u8]) -> Option<u32> {
    let digits = str::from_utf8(word).ok().filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(payload: &[u8], capabilities: Capabilities) -> Seen {
        look(Header { length: payload.len(), sequence: 0 }, payload, capabilities)
    }

    fn rewritten(payload: &[u8], capabilities: Capabilities) -> Option<(u32, Vec<u8>)> {
        let Seen::Kill(kill) = seen(payload, capabilities) else { return None };
        let mut out = Vec::new();
        kill.encode(capabilities, |_| Instead::Number(42), &mut out).unwrap();
        Some((kill.named[0].number, out[4..].to_vec()))
    }

    #[test]
    fn only_the_connection_identifier_is_replaced() {
        for (text, expected) in [
            (&b"\x03KILL QUERY 2147483655"[..], &b"\x03KILL QUERY 42"[..]),
            (b"\x03kill 2147483655", b"\x03kill 42"),
            (b"\x03KILL CONNECTION  2147483655 ;", b"\x03KILL CONNECTION  42 ;"),
            (b"\x03Kill Hard Query 2147483655\n", b"\x03Kill Hard Query 42\n"),
            (b"\x0c\x07\0\0\x80", b"\x0c\x2a\0\0\0"),
        ] {
            let number = (1 << 31) + 7;
            assert_eq!(
                rewritten(text, Capabilities::default()),
                Some((number, expected.to_vec())),
                "{text:?}"
            );
        }
        let attributes = Capabilities::QUERY_ATTRIBUTES;
        assert_eq!(rewritten(b"\x03\0\x01KILL 7", attributes), Some((7, b"\x03\0\x01KILL 42".to_vec())));
        assert_eq!(rewritten(b"\x03\x01\x01KILL 7", attributes), None);
    }

    #[test]
    fn each_kill_of_a_multi_statement_is_replaced() {
        let text = b"\x03SELECT 'a''b'; KILL QUERY 70 ;/* KILL 5; */ kill 71; DO 1 -- KILL 6\n; KILL ID 7";
        let Seen::Kill(kill) = seen(text, Capabilities::default()) else { panic!("expected two KILLs") };
        let named: Vec<_> = kill.named.iter().map(|named| (named.number, named.target)).collect();
        assert_eq!(named, [(70, Target::Query), (71, Target::Connection)]);
        let mut out = Vec::new();
        let instead = |named: &Named| if named.number == 70 { Instead::Number(7) } else { Instead::Nothing };
        kill.encode(Capabilities::default(), instead, &mut out).unwrap();
        let expected = b"\x03SELECT 'a''b'; KILL QUERY 7 ;/* KILL 5; */ DO 0; DO 1 -- KILL 6\n; KILL ID 7";
        assert_eq!(str::from_utf8(&out[4..]), str::from_utf8(expected));
        assert_eq!(kill.text(), Some(&text[1..]));
        out.clear();
        let Seen::Kill(kill) = seen(b"\x0c\x07\0\0\0", Capabilities::QUERY_ATTRIBUTES) else {
            panic!("expected a KILL")
        };
        kill.encode(Capabilities::QUERY_ATTRIBUTES, |_| Instead::Nothing, &mut out).unwrap();
        assert_eq!(out[4..], *b"\x03\0\x01DO 0");
    }

    #[test]
    fn other_statements_are_left_unchanged() {
        for text in [
            &b"\x03KILL QUERY ID 7"[..],
            b"\x03KILL",
            b"\x03KILL 7 8",
            b"\x03KILL USER 7",
            b"\x03KILL -7",
            b"\x03KILL 99999999999",
            b"\x03killer 7",
            b"\x03SELECT 7",
            b"\x03k",
            b"\x03",
            b"\x02KILL 7",
            b"\x0c\x07\0\0",
            b"\x03KILL \xff",
            b"\x03KILL 7 + 1",
            b"\x03SELECT 'KILL 7'",
            b"\x03SELECT '\\'; KILL 7; -- '",
            b"\x03SELECT \"\\\"; KILL 7; -- \"",
            b"\x03SELECT 1 /* ; KILL 7; */",
            b"\x03SELECT kill FROM t",
        ] {
            assert_eq!(seen(text, Capabilities::default()), Seen::Other, "{text:?}");
        }
        let long = [&b"\x03KILL 7"[..], &[b' '; MAX_TEXT_BYTES]].concat();
        assert_eq!(seen(&long, Capabilities::default()), Seen::Other);
    }

    #[test]
    fn only_a_possible_kill_waits_for_more_input() {
        for capabilities in [Capabilities::default(), Capabilities::QUERY_ATTRIBUTES] {
            for payload in [&b"\x03\0\x01KILL QUERY 7"[..], b"\x03\0\x01SELECT 7", b"\x03KILL QUERY 7"] {
                let whole = seen(payload, capabilities);
                for cut in 1..payload.len() {
                    let header = Header { length: payload.len(), sequence: 0 };
                    match look(header, &payload[..cut], capabilities) {
                        Seen::Unfinished => {}
                        Seen::Other => assert_eq!(whole, Seen::Other, "{cut}"),
                        Seen::Kill(kill) => panic!("{cut}: {kill:?}"),
                    }
                }
            }
        }
    }
}
