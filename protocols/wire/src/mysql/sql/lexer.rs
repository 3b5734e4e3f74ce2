//! Splits a statement's text into tokens, as servers do. Comments and quotes are recognized; there is no
//! grammar.

use arrayvec::ArrayVec;

/// Words are compared up to this length.
const MAX_WORD_BYTES: usize = 128;

/// How backslashes in quotes are treated ("`NO_BACKSLASH_ESCAPES`").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Escapes {
    /// A backslash escapes the next byte.
    #[default]
    Backslash,
    /// A backslash is an ordinary byte.
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// In lower case.
    Word(&'a [u8]),
    /// In backticks.
    Name(&'a [u8]),
    /// In double quotes: a name or a string, depending on the session.
    NameOrString(&'a [u8]),
    /// In single quotes.
    Literal,
    /// `@` before a name: a user variable.
    UserVariable,
    /// `@@`.
    SystemVariable,
    Sign(u8),
    /// The start of a comment that servers execute.
    Executed,
    /// A quote whose end depends on the session.
    Ambiguous,
    /// A quoted name that is too long.
    TooLong,
}

/// Reads a text in pieces, cut anywhere.
#[derive(Debug)]
pub(crate) struct Lexer {
    escapes: Escapes,
    state: LexerState,
    /// One byte more than is compared, so that longer words are recognized as such.
    word: ArrayVec<u8, { MAX_WORD_BYTES + 1 }>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LexerState {
    Plain,
    Word,
    Backticks,
    Single(BackslashParity),
    Double(BackslashParity),
    At,
    Dash,
    Dashes,
    LineComment,
    Slash,
    /// After `/*`.
    Comment,
    /// After `/*M`.
    CommentOfMariaDb,
    /// After `/*+`: some servers parse hints with quotes there, others a comment.
    Hint,
    InComment,
    /// After a `*` in a comment.
    Star,
}

/// Whether the number of backslashes before the next byte of a quote is even.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BackslashParity {
    Even,
    Odd,
}

impl BackslashParity {
    fn after(self, byte: u8) -> Self {
        if byte == b'\\' && self == Self::Even { Self::Odd } else { Self::Even }
    }
}

impl Lexer {
    pub(crate) fn new(escapes: Escapes) -> Self {
        Self { escapes, state: LexerState::Plain, word: ArrayVec::new() }
    }

    pub(crate) fn read(&mut self, text: &[u8], emit: &mut impl FnMut(Token<'_>)) {
        let mut rest = text;
        loop {
            rest = match self.state {
                LexerState::Plain => behind_blanks(rest),
                LexerState::Word => self.word_run(rest),
                _ => self.long_run(rest),
            };
            let Some((byte, after)) = rest.split_first() else { return };
            self.byte(*byte, emit);
            rest = after;
        }
    }

    /// Keeps the bytes that continue a word. Returns the others.
    #[inline]
    fn word_run<'a>(&mut self, mut text: &'a [u8]) -> &'a [u8] {
        while let [byte, rest @ ..] = text
            && let lower = OF_WORDS[usize::from(*byte)]
            && lower != 0
        {
            if !self.word.is_full() {
                self.word.push(lower);
            }
            text = rest;
        }
        text
    }

    /// Reads bytes that only continue a name, a string or a comment. Returns the others.
    #[inline(never)]
    fn long_run<'a>(&mut self, text: &'a [u8]) -> &'a [u8] {
        let bytes = match self.state {
            LexerState::Backticks => memchr::memchr(b'`', text),
            LexerState::Single(BackslashParity::Even) => memchr::memchr2(b'\'', b'\\', text),
            LexerState::Double(BackslashParity::Even) => memchr::memchr2(b'"', b'\\', text),
            LexerState::LineComment => memchr::memchr(b'\n', text),
            _ => return text,
        };
        let (run, rest) = text.split_at(bytes.unwrap_or(text.len()));
        if matches!(self.state, LexerState::Backticks | LexerState::Double(_)) {
            self.keep(run);
        }
        rest
    }

    /// Keeps as much as there is room for.
    fn keep(&mut self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(self.word.remaining_capacity())];
        // There is room.
        let _ = self.word.try_extend_from_slice(bytes);
    }

    /// Ends the text.
    pub(crate) fn end(&mut self, emit: &mut impl FnMut(Token<'_>)) {
        match self.state {
            LexerState::Word => emit(Token::Word(&self.word)),
            LexerState::Slash => emit(Token::Sign(b'/')),
            LexerState::Dash | LexerState::Dashes => emit(Token::Sign(b'-')),
            LexerState::At => emit(Token::UserVariable),
            // An unterminated quote.
            LexerState::Backticks | LexerState::Single(_) | LexerState::Double(_) => emit(Token::Ambiguous),
            _ => {}
        }
        self.state = LexerState::Plain;
    }

    #[inline]
    fn byte(&mut self, byte: u8, emit: &mut impl FnMut(Token<'_>)) {
        match self.state {
            LexerState::Plain => self.plain(byte, emit),
            LexerState::Word if may_be_blank(byte) => {
                // Behind another byte that is not ASCII, it is the rest of a character.
                if self.word.last().is_some_and(u8::is_ascii) {
                    emit(Token::Ambiguous);
                }
                self.keep(&[byte]);
            }
            LexerState::Word => {
                emit(Token::Word(&self.word));
                self.plain(byte, emit);
            }
            LexerState::Single(parity) => self.single(parity, byte, emit),
            LexerState::Double(parity) => self.double(parity, byte, emit),
            // A run ends here, see `long_run`.
            LexerState::Backticks => self.name_ends(|name| Token::Name(name), emit),
            LexerState::LineComment => self.state = LexerState::Plain,
            _ => self.rare(byte, emit),
        }
    }

    fn single(&mut self, parity: BackslashParity, byte: u8, emit: &mut impl FnMut(Token<'_>)) {
        let is_escaped = parity == BackslashParity::Odd && self.escapes == Escapes::Backslash;
        if byte == b'\'' && !is_escaped {
            self.state = LexerState::Plain;
            emit(Token::Literal);
        } else {
            self.state = LexerState::Single(parity.after(byte));
        }
    }

    /// Names have no escapes, but a string may.
    fn double(&mut self, parity: BackslashParity, byte: u8, emit: &mut impl FnMut(Token<'_>)) {
        let is_escaped = parity == BackslashParity::Odd && self.escapes == Escapes::Backslash;
        if byte == b'"' && is_escaped {
            emit(Token::Ambiguous);
        }
        if byte == b'"' && !is_escaped {
            // A string may have any length.
            self.word.truncate(MAX_WORD_BYTES);
            self.name_ends(|name| Token::NameOrString(name), emit);
        } else {
            self.state = LexerState::Double(parity.after(byte));
            self.keep(&[byte]);
        }
    }

    fn name_ends(&mut self, token: fn(&[u8]) -> Token<'_>, emit: &mut impl FnMut(Token<'_>)) {
        self.state = LexerState::Plain;
        if self.word.len() > MAX_WORD_BYTES {
            emit(Token::TooLong);
        }
        emit(token(&self.word));
    }

    /// The rare states.
    fn rare(&mut self, byte: u8, emit: &mut impl FnMut(Token<'_>)) {
        match (self.state, byte) {
            (LexerState::Dash, b'-') => self.state = LexerState::Dashes,
            // A second dash is a sign if no blank follows.
            (LexerState::Dashes, b'\n') | (LexerState::Star, b'/') => self.state = LexerState::Plain,
            (LexerState::Dashes, ..=b' ' | 0x7f) => self.state = LexerState::LineComment,
            (LexerState::Dashes, _) if may_be_blank(byte) => {
                emit(Token::Ambiguous);
                self.state = LexerState::LineComment;
            }
            (LexerState::Slash, b'*') => self.state = LexerState::Comment,
            (LexerState::Comment, b'M') => self.state = LexerState::CommentOfMariaDb,
            (LexerState::Comment, b'+') => self.state = LexerState::Hint,
            (LexerState::Hint, b'\'' | b'"' | b'`') => emit(Token::Ambiguous),
            (LexerState::Hint, b'*') => self.state = LexerState::Star,
            (LexerState::Hint, _) => {}
            (LexerState::Comment | LexerState::CommentOfMariaDb, b'!') => {
                // Its content is read as if it were outside the comment.
                emit(Token::Executed);
                self.state = LexerState::Plain;
            }
            (
                LexerState::Comment | LexerState::CommentOfMariaDb | LexerState::InComment | LexerState::Star,
                b'*',
            ) => {
                self.state = LexerState::Star;
            }
            (
                LexerState::Comment | LexerState::CommentOfMariaDb | LexerState::InComment | LexerState::Star,
                _,
            ) => {
                self.state = LexerState::InComment;
            }
            (LexerState::At, b'@') => {
                emit(Token::SystemVariable);
                self.state = LexerState::Plain;
            }
            (LexerState::At, _) => {
                emit(Token::UserVariable);
                self.plain(byte, emit);
            }
            (LexerState::Slash, _) => {
                emit(Token::Sign(b'/'));
                self.plain(byte, emit);
            }
            (LexerState::Dash | LexerState::Dashes, _) => {
                emit(Token::Sign(b'-'));
                self.plain(byte, emit);
            }
            _ => self.plain(byte, emit),
        }
    }

    fn plain(&mut self, byte: u8, emit: &mut impl FnMut(Token<'_>)) {
        self.state = match byte {
            b'\'' => LexerState::Single(BackslashParity::Even),
            b'"' => LexerState::Double(BackslashParity::Even),
            b'`' => LexerState::Backticks,
            b'-' => LexerState::Dash,
            b'#' => LexerState::LineComment,
            b'/' => LexerState::Slash,
            b'@' => LexerState::At,
            _ if is_of_word(byte) => LexerState::Word,
            _ => LexerState::Plain,
        };
        match self.state {
            LexerState::Word => {
                if may_be_blank(byte) {
                    emit(Token::Ambiguous);
                }
                self.word.clear();
                self.word.push(byte.to_ascii_lowercase());
            }
            LexerState::Backticks | LexerState::Double(_) => self.word.clear(),
            // With `MSSQL` in the `sql_mode`, it begins a quoted name. Otherwise no statement has one.
            LexerState::Plain if byte == b'[' => emit(Token::Ambiguous),
            LexerState::Plain if !is_blank(byte) => emit(Token::Sign(byte)),
            _ => {}
        }
    }
}

/// Some of these are blanks in single-byte character sets. In UTF-8 no character starts with them.
pub(crate) fn may_be_blank(byte: u8) -> bool {
    matches!(byte, 0x80..=0xa0 | 0xff)
}

fn is_of_word(byte: u8) -> bool {
    continues_word(byte) || may_be_blank(byte)
}

fn is_blank(byte: u8) -> bool {
    byte <= b' ' || byte == 0x7f
}

#[inline]
fn behind_blanks(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| !is_blank(*byte));
    &text[end.unwrap_or(text.len())..]
}

/// A byte that is part of a word in every character set.
fn continues_word(byte: u8) -> bool {
    OF_WORDS[usize::from(byte)] != 0
}

/// The lower case of each such byte, and 0 for the others.
static OF_WORDS: [u8; 256] = {
    let mut of_words = [0; 256];
    let mut byte = u8::MAX;
    while byte > 0 {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0xa1..=0xfe) {
            of_words[byte as usize] = byte.to_ascii_lowercase();
        }
        byte -= 1;
    }
    of_words
};
