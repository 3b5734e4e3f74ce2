//! Commands that end another connection or its command: `COM_PROCESS_KILL`, and `KILL` in a `COM_QUERY`. The
//! connection identifiers in them come from the proxy; the server does not know them.

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

/// Scans a command, of whose payload `arrived` has arrived.
#[inline]
pub(crate) fn scan(header: Header, arrived: &[u8], capabilities: Capabilities) -> KillScan {
    match arrived.first() {
        Some(&COM_QUERY) if header.length <= MAX_TEXT_BYTES => text(header, arrived, capabilities),
        Some(&COM_PROCESS_KILL) if header.length == PROCESS_KILL_BYTES => match arrived {
            &[_, a, b, c, d] => KillScan::Kill(KillCommand {
                statements: vec![KillStatement {
                    number: u32::from_le_bytes([a, b, c, d]),
                    target: KillTarget::Connection,
                    statement: 0..PROCESS_KILL_BYTES,
                    digits: 1,
                }],
                payload: arrived.to_vec(),
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

fn text(header: Header, arrived: &[u8], capabilities: Capabilities) -> KillScan {
    let attributes = attributes(capabilities);
    let start = 1 + attributes.len();
    if header.length <= start {
        return KillScan::Other;
    }
    if let Some(begun) = arrived.get(1..start)
        && begun != attributes
    {
        return KillScan::Other;
    }
    if arrived.len() < header.length {
        return KillScan::Unfinished;
    }
    let is_kill = |word: &[u8]| matches!(word[0], b'k' | b'K') && word.eq_ignore_ascii_case(b"kill");
    if !arrived[start..].windows(4).any(is_kill) {
        return KillScan::Other;
    }
    // If a quote may end in two places, the text is left unchanged.
    match (find(&arrived[start..], Escapes::Backslash), find(&arrived[start..], Escapes::None)) {
        (Some(found), Some(same)) if found == same && !found.is_empty() => {
            let statements = found.into_iter().map(|kill| kill.behind(start)).collect();
            KillScan::Kill(KillCommand { statements, payload: arrived.to_vec(), text: Some(start) })
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
mod tests;
