//! Commands that end another connection or its command: `COM_PROCESS_KILL`, and `KILL` in a `COM_QUERY`. The
//! connection identifiers in them are those that the proxy gave its clients; the server does not know them.

use std::ops::Range;

use crate::mysql::{
    codec::{
        capabilities::Capabilities,
        command::NO_ATTRIBUTES,
        packet::{self, Header},
    },
    error::Error,
    sql::lexer::{Escapes, Lexer, Token},
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
pub struct KillCommand {
    /// The KILLs, in order.
    pub statements: Vec<KillStatement>,
    payload: Vec<u8>,
    /// Where the text starts in the payload; `None` for `COM_PROCESS_KILL`.
    text: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KillStatement {
    /// The connection identifier.
    pub number: u32,
    pub target: KillTarget,
    /// The range in the payload, up to the end of the connection identifier.
    statement: Range<usize>,
    /// Where the connection identifier starts.
    digits: usize,
}

/// What a KILL ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillTarget {
    Connection,
    /// Only its current command.
    Query,
}

/// What is sent in place of a KILL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillReplacement {
    /// The same KILL with this connection identifier.
    Number(u32),
    /// A statement without effect.
    Nothing,
}

/// The result of scanning a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KillScan {
    Other,
    /// Not enough of the command has arrived.
    Unfinished,
    Kill(KillCommand),
}

impl KillCommand {
    /// The statements of the command; `None` for `COM_PROCESS_KILL`.
    pub(crate) fn text(&self) -> Option<&[u8]> {
        self.payload.get(self.text?..)
    }

    /// Appends the same command with a replacement for each KILL.
    pub fn encode(
        &self,
        capabilities: Capabilities,
        mut replacement: impl FnMut(&KillStatement) -> KillReplacement,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let mut payload = Vec::new();
        let mut at = 0;
        for kill in &self.statements {
            payload.extend_from_slice(&self.payload[at..kill.statement.start]);
            match (replacement(kill), self.text) {
                (KillReplacement::Number(number), Some(_)) => {
                    payload.extend_from_slice(&self.payload[kill.statement.start..kill.digits]);
                    payload.extend_from_slice(number.to_string().as_bytes());
                }
                (KillReplacement::Number(number), None) => {
                    payload.push(COM_PROCESS_KILL);
                    payload.extend_from_slice(&number.to_le_bytes());
                }
                (KillReplacement::Nothing, Some(_)) => payload.extend_from_slice(DO_NOTHING),
                (KillReplacement::Nothing, None) => {
                    payload.push(COM_QUERY);
                    payload.extend_from_slice(attributes(capabilities));
                    payload.extend_from_slice(DO_NOTHING);
                }
            }
            at = kill.statement.end;
        }
        payload.extend_from_slice(&self.payload[at..]);
        packet::write(out, 0, |out| out.extend_from_slice(&payload))
    }
}

/// Scans a command. `input` starts with its payload and may be shorter or longer.
#[inline]
pub(crate) fn scan(header: Header, input: &[u8], capabilities: Capabilities) -> KillScan {
    let here = &input[..input.len().min(header.length)];
    match here.first() {
        Some(&COM_QUERY) if header.length <= MAX_TEXT_BYTES => text(header, here, capabilities),
        Some(&COM_PROCESS_KILL) if header.length == PROCESS_KILL_BYTES => match here {
            &[_, a, b, c, d] => KillScan::Kill(KillCommand {
                statements: vec![KillStatement {
                    number: u32::from_le_bytes([a, b, c, d]),
                    target: KillTarget::Connection,
                    statement: 0..PROCESS_KILL_BYTES,
                    digits: 1,
                }],
                payload: here.to_vec(),
                text: None,
            }),
            _ => KillScan::Unfinished,
        },
        _ => KillScan::Other,
    }
}

fn attributes(capabilities: Capabilities) -> &'static [u8] {
    if capabilities.contains(Capabilities::QUERY_ATTRIBUTES) { &NO_ATTRIBUTES } else { &[] }
}

fn text(header: Header, here: &[u8], capabilities: Capabilities) -> KillScan {
    let attributes = attributes(capabilities);
    let start = 1 + attributes.len();
    if header.length <= start {
        return KillScan::Other;
    }
    if let Some(begun) = here.get(1..start)
        && begun != attributes
    {
        return KillScan::Other;
    }
    if here.len() < header.length {
        return KillScan::Unfinished;
    }
    let is_kill = |word: &[u8]| word.eq_ignore_ascii_case(b"kill");
    if !here[start..].windows(4).any(is_kill) {
        return KillScan::Other;
    }
    // If a quote may end in two places, the text is left unchanged.
    match (find(&here[start..], Escapes::Backslash), find(&here[start..], Escapes::None)) {
        (Some(found), Some(same)) if found == same && !found.is_empty() => {
            let statements = found.into_iter().map(|kill| kill.behind(start)).collect();
            KillScan::Kill(KillCommand { statements, payload: here.to_vec(), text: Some(start) })
        }
        _ => KillScan::Other,
    }
}

impl KillStatement {
    /// The same KILL, with `bytes` inserted before it.
    fn behind(self, bytes: usize) -> Self {
        let statement = self.statement.start + bytes..self.statement.end + bytes;
        Self { statement, digits: self.digits + bytes, ..self }
    }
}

/// The KILLs in a text; `None` if the end of a quote is ambiguous.
fn find(text: &[u8], escapes: Escapes) -> Option<Vec<KillStatement>> {
    let (mut lexer, mut finder) = (Lexer::new(escapes), KillFinder::default());
    for (at, byte) in text.iter().enumerate() {
        // A word ends before the first byte that is not part of it.
        lexer.read(std::slice::from_ref(byte), &mut |token| finder.token(&token, at));
    }
    lexer.end(&mut |token| finder.token(&token, text.len()));
    finder.token(&Token::Sign(b';'), text.len());
    (!finder.is_ambiguous).then_some(finder.found)
}

/// Finds `KILL [HARD | SOFT] [CONNECTION | QUERY] number`.
#[derive(Debug, Default)]
struct KillFinder {
    state: FinderState,
    /// Whether the end of a quote is ambiguous.
    is_ambiguous: bool,
    found: Vec<KillStatement>,
}

#[derive(Debug, Default)]
enum FinderState {
    /// At the start of a statement.
    #[default]
    Begin,
    /// After `KILL` and its modifiers.
    Kill {
        start: usize,
        target: KillTarget,
    },
    /// After the connection identifier, which must be the statement's last token.
    Number(KillStatement),
    Other,
}

impl KillFinder {
    fn token(&mut self, token: &Token<'_>, end: usize) {
        self.state = match (std::mem::take(&mut self.state), token) {
            (state, Token::Executed) => state,
            (state, Token::Ambiguous) => {
                self.is_ambiguous = true;
                state
            }
            (FinderState::Number(kill), Token::Sign(b';')) => {
                self.found.push(kill);
                FinderState::Begin
            }
            (_, Token::Sign(b';')) => FinderState::Begin,
            (FinderState::Begin, Token::Word(b"kill")) => {
                FinderState::Kill { start: end - b"kill".len(), target: KillTarget::Connection }
            }
            (FinderState::Kill { start, target }, Token::Word(b"hard" | b"soft")) => {
                FinderState::Kill { start, target }
            }
            (FinderState::Kill { start, .. }, Token::Word(b"connection")) => {
                FinderState::Kill { start, target: KillTarget::Connection }
            }
            (FinderState::Kill { start, .. }, Token::Word(b"query")) => {
                FinderState::Kill { start, target: KillTarget::Query }
            }
            (FinderState::Kill { start, target }, Token::Word(word)) => {
                number(word).map_or(FinderState::Other, |number| {
                    FinderState::Number(KillStatement {
                        number,
                        target,
                        statement: start..end,
                        digits: end - word.len(),
                    })
                })
            }
            _ => FinderState::Other,
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

    fn scan_all(payload: &[u8], capabilities: Capabilities) -> KillScan {
        scan(Header { length: payload.len(), sequence: 0 }, payload, capabilities)
    }

    fn rewritten(payload: &[u8], capabilities: Capabilities) -> Option<(u32, Vec<u8>)> {
        let KillScan::Kill(command) = scan_all(payload, capabilities) else { return None };
        let mut out = Vec::new();
        command.encode(capabilities, |_| KillReplacement::Number(42), &mut out).unwrap();
        Some((command.statements[0].number, out[4..].to_vec()))
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
        let KillScan::Kill(command) = scan_all(text, Capabilities::default()) else {
            panic!("expected two KILLs")
        };
        let targets: Vec<_> = command.statements.iter().map(|kill| (kill.number, kill.target)).collect();
        assert_eq!(targets, [(70, KillTarget::Query), (71, KillTarget::Connection)]);
        let mut out = Vec::new();
        let replacement = |kill: &KillStatement| {
            if kill.number == 70 { KillReplacement::Number(7) } else { KillReplacement::Nothing }
        };
        command.encode(Capabilities::default(), replacement, &mut out).unwrap();
        let expected = b"\x03SELECT 'a''b'; KILL QUERY 7 ;/* KILL 5; */ DO 0; DO 1 -- KILL 6\n; KILL ID 7";
        assert_eq!(str::from_utf8(&out[4..]), str::from_utf8(expected));
        assert_eq!(command.text(), Some(&text[1..]));
        out.clear();
        let KillScan::Kill(command) = scan_all(b"\x0c\x07\0\0\0", Capabilities::QUERY_ATTRIBUTES) else {
            panic!("expected a KILL")
        };
        command.encode(Capabilities::QUERY_ATTRIBUTES, |_| KillReplacement::Nothing, &mut out).unwrap();
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
            assert_eq!(scan_all(text, Capabilities::default()), KillScan::Other, "{text:?}");
        }
        let long = [&b"\x03KILL 7"[..], &[b' '; MAX_TEXT_BYTES]].concat();
        assert_eq!(scan_all(&long, Capabilities::default()), KillScan::Other);
    }

    #[test]
    fn only_a_possible_kill_waits_for_more_input() {
        for capabilities in [Capabilities::default(), Capabilities::QUERY_ATTRIBUTES] {
            for payload in [&b"\x03\0\x01KILL QUERY 7"[..], b"\x03\0\x01SELECT 7", b"\x03KILL QUERY 7"] {
                let whole = scan_all(payload, capabilities);
                for cut in 1..payload.len() {
                    let header = Header { length: payload.len(), sequence: 0 };
                    match scan(header, &payload[..cut], capabilities) {
                        KillScan::Unfinished => {}
                        KillScan::Other => assert_eq!(whole, KillScan::Other, "{cut}"),
                        KillScan::Kill(kill) => panic!("{cut}: {kill:?}"),
                    }
                }
            }
        }
    }
}
