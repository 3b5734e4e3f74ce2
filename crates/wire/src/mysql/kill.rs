//! Commands that end what another connection does: `COM_PROCESS_KILL`, and `KILL` in a `COM_QUERY`. Whom they name is what
//! one between has greeted that client with, which is no number of the server's.

use super::{Capabilities, Error, command::NO_ATTRIBUTES, packet, packet::Header};

const COM_QUERY: u8 = 0x03;
const COM_PROCESS_KILL: u8 = 0x0c;
const PROCESS_KILL_BYTES: usize = 1 + size_of::<u32>();
/// Longer than such a statement is: what is longer is not looked at.
const MAX_STATEMENT_BYTES: usize = 64;

/// One such command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kill {
    /// Whose command or connection shall end.
    pub number: u32,
    /// What shall end.
    pub target: Target,
    /// The payload up to the number, and behind it.
    head: Vec<u8>,
    tail: Vec<u8>,
    written: Written,
}

/// What a KILL ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The connection.
    Connection,
    /// What it does, and no more.
    Query,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Digits,
    Bytes,
}

/// What a command is that has begun.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Anything else.
    Other,
    /// That cannot be told yet.
    Unfinished,
    Kill(Kill),
}

impl Kill {
    /// Appends the same command with another number.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) -> Result<(), Error> {
        packet::write(out, 0, |out| {
            out.extend_from_slice(&self.head);
            match self.written {
                Written::Digits => out.extend_from_slice(number.to_string().as_bytes()),
                Written::Bytes => out.extend_from_slice(&number.to_le_bytes()),
            }
            out.extend_from_slice(&self.tail);
        })
    }
}

/// Looks at a command whose payload is here up to the end of `input`, or beyond its own.
#[inline]
pub(super) fn look(header: Header, input: &[u8], capabilities: Capabilities) -> Seen {
    let here = &input[..input.len().min(header.length)];
    match here.first() {
        Some(&COM_QUERY) if header.length <= MAX_STATEMENT_BYTES => statement(header, here, capabilities),
        Some(&COM_PROCESS_KILL) if header.length == PROCESS_KILL_BYTES => match here {
            &[_, a, b, c, d] => Seen::Kill(Kill {
                number: u32::from_le_bytes([a, b, c, d]),
                target: Target::Connection,
                head: vec![COM_PROCESS_KILL],
                tail: Vec::new(),
                written: Written::Bytes,
            }),
            _ => Seen::Unfinished,
        },
        _ => Seen::Other,
    }
}

fn statement(header: Header, here: &[u8], capabilities: Capabilities) -> Seen {
    let attributes: &[u8] =
        if capabilities.contains(Capabilities::QUERY_ATTRIBUTES) { &NO_ATTRIBUTES } else { &[] };
    let start = 1 + attributes.len();
    if header.length <= start {
        return Seen::Other;
    }
    if let Some(begun) = here.get(1..start)
        && begun != attributes
    {
        return Seen::Other;
    }
    match here.get(start) {
        Some(b'k' | b'K') if here.len() == header.length => kill(here, start).map_or(Seen::Other, Seen::Kill),
        Some(b'k' | b'K') | None => Seen::Unfinished,
        Some(_) => Seen::Other,
    }
}

/// `KILL [HARD | SOFT] [CONNECTION | QUERY] number`.
fn kill(payload: &[u8], start: usize) -> Option<Kill> {
    let text = str::from_utf8(&payload[start..]).ok()?;
    let statement = text.trim_end_matches(|c: char| c.is_ascii_whitespace() || c == ';');
    let mut words = statement.split_ascii_whitespace();
    let number = words.next_back()?;
    let known = |word: &str, names: &[&str]| names.iter().any(|name| word.eq_ignore_ascii_case(name));
    let mut words = words.peekable();
    if !known(words.next()?, &["KILL"]) {
        return None;
    }
    words.next_if(|word| known(word, &["HARD", "SOFT"]));
    let target = match words.next_if(|word| known(word, &["CONNECTION", "QUERY"])) {
        Some(word) if known(word, &["QUERY"]) => Target::Query,
        _ => Target::Connection,
    };
    if words.next().is_some() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let at = start + statement.len() - number.len();
    Some(Kill {
        number: number.parse().ok()?,
        target,
        head: payload[..at].to_vec(),
        tail: payload[at + number.len()..].to_vec(),
        written: Written::Digits,
    })
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
        kill.encode(42, &mut out).unwrap();
        Some((kill.number, out[4..].to_vec()))
    }

    #[test]
    fn a_kill_keeps_all_but_its_number() {
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
    fn other_statements_are_others() {
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
        ] {
            assert_eq!(seen(text, Capabilities::default()), Seen::Other, "{text:?}");
        }
        let long = [&b"\x03KILL 7"[..], &[b' '; 80]].concat();
        assert_eq!(seen(&long, Capabilities::default()), Seen::Other);
    }

    #[test]
    fn no_more_is_waited_for_than_may_be_one() {
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
