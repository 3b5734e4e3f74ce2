//! What a session may leave on its connection, as far as the texts of its statements show.
//!
//! A text proves that nothing remains only if it opens no table and calls no routine: views, triggers and routines can
//! take locks and set user variables without a word in the text, and without a report by the server.

use crate::mysql::sql::lexer::{Escapes, Lexer, Token};
use crate::mysql::sql::plain_words::{PlainWord, is_transaction_word};

/// What a session may leave behind for the next client of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Remains {
    /// Proved: all statements are transaction control, or compute values of the server's own functions.
    Nothing,
    /// The statements are plain data access. Triggers, views and routines may have left state.
    StateOfRoutines,
    /// A reset is needed.
    #[default]
    Anything,
}

/// Scans a text in pieces, cut anywhere.
#[derive(Debug)]
pub struct RemainsReader {
    lexer: Lexer,
    scanner: RemainsScanner,
}

#[derive(Debug)]
struct RemainsScanner {
    remains: Remains,
    verb: StatementVerb,
    before: Before,
}

/// The kind of statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatementVerb {
    /// Before the first word.
    Begin,
    Transaction,
    Select,
    /// Other data access, or the rest of a statement that is not proved.
    Data,
    /// `INSERT` or `REPLACE`: a table follows `INTO`.
    Insert,
}

/// The preceding token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Before {
    /// None, or a sign.
    #[default]
    Sign,
    /// A word, and what remains if a parenthesis follows.
    Word(Remains),
    /// `AS` or `COLLATE`: any word may follow.
    As,
    From,
    /// `FROM DUAL`, which is not a table.
    Dual,
    Digits,
    Into,
    /// The table after `INTO`: a list of columns may follow.
    Target,
    /// `@@`.
    SystemPrefix,
    SystemVariable,
    /// A string, a quoted name or a name with several parts: no parenthesis may follow.
    Other,
    DotAfter(Dotted),
}

/// What a dot follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dotted {
    Digits,
    SystemVariable,
    Target,
    Name,
}

impl Default for RemainsReader {
    fn default() -> Self {
        let scanner =
            RemainsScanner { remains: Remains::Nothing, verb: StatementVerb::Begin, before: Before::Sign };
        Self { lexer: Lexer::new(Escapes::Backslash), scanner }
    }
}

impl RemainsReader {
    pub fn read(&mut self, text: &[u8]) {
        if text.contains(&b'\\') {
            // Whether it is an escape depends on the session.
            self.scanner.raise(Remains::Anything);
        }
        if self.scanner.remains < Remains::Anything {
            let Self { lexer, scanner } = self;
            lexer.read(text, &mut |token| scanner.token(&token));
        }
    }

    /// What remains at least, after the text so far.
    pub fn at_least(&self) -> Remains {
        self.scanner.remains
    }

    /// Ends the text.
    pub fn end(mut self) -> Remains {
        let Self { lexer, scanner } = &mut self;
        lexer.end(&mut |token| scanner.token(&token));
        if scanner.before == Before::From {
            scanner.raise(Remains::Anything);
        }
        scanner.remains
    }

    /// What a complete text leaves.
    pub fn of(text: &[u8]) -> Remains {
        let mut reader = Self::default();
        reader.read(text);
        reader.end()
    }
}

impl RemainsScanner {
    fn raise(&mut self, remains: Remains) {
        self.remains = self.remains.max(remains);
    }

    fn token(&mut self, token: &Token<'_>) {
        if self.remains == Remains::Anything {
            return;
        }
        let before = std::mem::take(&mut self.before);
        if matches!(before, Before::From | Before::Dual)
            && !matches!((before, token), (Before::From, Token::Word(b"dual")) | (_, Token::Sign(b';')))
        {
            self.raise(Remains::StateOfRoutines);
        }
        self.before = match *token {
            Token::Word(word) => match self.verb {
                StatementVerb::Begin => self.first(word),
                StatementVerb::Transaction => self.transaction_word(word),
                _ => self.word(before, word),
            },
            Token::Sign(sign) => self.sign(before, sign),
            Token::Literal
                if self.verb != StatementVerb::Begin && self.verb != StatementVerb::Transaction =>
            {
                Before::Other
            }
            Token::SystemVariable
                if self.verb != StatementVerb::Begin && self.verb != StatementVerb::Transaction =>
            {
                Before::SystemPrefix
            }
            Token::Name(_) | Token::NameOrString(_) => self.quoted(before, token),
            _ => self.unknown(),
        };
    }

    fn unknown(&mut self) -> Before {
        self.raise(Remains::Anything);
        Before::Other
    }

    fn first(&mut self, word: &[u8]) -> Before {
        self.verb = match word {
            b"select" => StatementVerb::Select,
            b"begin" | b"start" | b"commit" | b"rollback" => StatementVerb::Transaction,
            b"insert" | b"replace" => StatementVerb::Insert,
            b"update" | b"delete" | b"with" | b"show" | b"savepoint" | b"release" => StatementVerb::Data,
            _ => return self.unknown(),
        };
        if matches!(self.verb, StatementVerb::Insert | StatementVerb::Data) {
            self.raise(Remains::StateOfRoutines);
        }
        Before::Word(Remains::Nothing)
    }

    fn transaction_word(&mut self, word: &[u8]) -> Before {
        if word == b"to" {
            // `ROLLBACK TO` a savepoint.
            self.raise(Remains::StateOfRoutines);
            self.verb = StatementVerb::Data;
        } else if !is_transaction_word(word) {
            return self.unknown();
        }
        Before::Word(Remains::Anything)
    }

    fn word(&mut self, before: Before, word: &[u8]) -> Before {
        let plain = PlainWord::of(word);
        if plain == Some(PlainWord::Lasting) {
            return self.unknown();
        }
        match (before, word) {
            (Before::SystemPrefix | Before::DotAfter(Dotted::SystemVariable), _) => {
                return Before::SystemVariable;
            }
            (Before::DotAfter(Dotted::Digits), _) if is_number(word) => return Before::Other,
            (Before::DotAfter(Dotted::Digits), _) => return self.unknown(),
            (Before::DotAfter(Dotted::Target) | Before::Into, _) => return Before::Target,
            (Before::DotAfter(Dotted::Name), _) => return Before::Other,
            (Before::As, _) => return Before::Word(if_called(plain)),
            (_, b"as" | b"collate") => return Before::As,
            (_, b"from") => return Before::From,
            (Before::From, b"dual") => return Before::Dual,
            (_, b"into") if self.verb == StatementVerb::Insert => return Before::Into,
            (_, b"into") => return self.unknown(),
            _ => {}
        }
        if word.iter().all(u8::is_ascii_digit) {
            return Before::Digits;
        }
        if is_number(word) {
            return Before::Other;
        }
        let is_of_values = matches!(plain, Some(PlainWord::Reserved | PlainWord::Function));
        if !is_of_values && !matches!(word, b"end" | b"_utf8mb4" | b"_binary") {
            // A table or a column, or a word that is not needed for values.
            self.raise(Remains::StateOfRoutines);
        }
        Before::Word(if_called(plain))
    }

    fn quoted(&mut self, before: Before, token: &Token<'_>) -> Before {
        match (self.verb, before, token) {
            (StatementVerb::Begin | StatementVerb::Transaction, ..) => self.unknown(),
            (_, Before::Into | Before::DotAfter(Dotted::Target), _) => Before::Target,
            (_, Before::As, _) | (_, _, Token::NameOrString(_)) => Before::Other,
            _ => {
                self.raise(Remains::StateOfRoutines);
                Before::Other
            }
        }
    }

    fn sign(&mut self, before: Before, sign: u8) -> Before {
        match (self.verb, sign, before) {
            (_, b';', _) => self.verb = StatementVerb::Begin,
            (StatementVerb::Transaction, b',', _) => {}
            (StatementVerb::Begin | StatementVerb::Transaction, ..) => return self.unknown(),
            (_, b'(', Before::Word(remains)) => self.raise(remains),
            (_, b'(', Before::Sign | Before::As | Before::From | Before::Target) => {}
            (_, b'(', _) => return self.unknown(),
            (_, b'.', Before::Sign | Before::Digits) => return Before::DotAfter(Dotted::Digits),
            (_, b'.', Before::SystemVariable) => return Before::DotAfter(Dotted::SystemVariable),
            (_, b'.', Before::Target) => return Before::DotAfter(Dotted::Target),
            (_, b'.', _) => {
                self.raise(Remains::StateOfRoutines);
                return Before::DotAfter(Dotted::Name);
            }
            (_, _, Before::DotAfter(Dotted::Name | Dotted::Target)) if sign != b'*' => return self.unknown(),
            (_, _, _) if b"+-*/%,=<>!|&^~)".contains(&sign) => {}
            _ => return self.unknown(),
        }
        Before::Sign
    }
}

/// What remains if a parenthesis follows this word.
fn if_called(word: Option<PlainWord>) -> Remains {
    match word {
        Some(PlainWord::Reserved | PlainWord::Function) => Remains::Nothing,
        Some(PlainWord::DataKeyword | PlainWord::DataFunction) => Remains::StateOfRoutines,
        Some(PlainWord::Lasting) | None => Remains::Anything,
    }
}

/// Whether a word is a number, not a name that may start with a digit.
fn is_number(word: &[u8]) -> bool {
    if !word.first().is_some_and(u8::is_ascii_digit) {
        return false;
    }
    let digits = |bytes: &[u8]| !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    match word {
        [b'0', b'x', digits @ ..] => !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit),
        _ => match word.iter().position(|byte| *byte == b'e') {
            // The exponent may have a sign, which the lexer reads as another token.
            Some(at) => digits(&word[..at]) && (at + 1 == word.len() || digits(&word[at + 1..])),
            None => digits(word),
        },
    }
}

#[cfg(test)]
mod tests;
