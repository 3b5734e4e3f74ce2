//! Splits a statement's text into tokens, as servers do. Comments and quotes are recognized; there is no
//! grammar.

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
pub(super) enum Token<'a> {
    /// In lower case.
    Word(&'a [u8]),
    /// In backticks.
    Name(&'a [u8]),
    /// In double quotes: a name or a string, depending on the session.
    Either(&'a [u8]),
    /// In single quotes.
    Literal,
    /// `@` before a name: a user variable.
    Own,
    /// `@@`.
    System,
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
pub(super) struct Lexer {
    escapes: Escapes,
    place: Place,
    word: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Plain,
    Word,
    Backticks,
    Single(Backslashes),
    Double(Backslashes),
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
enum Backslashes {
    Even,
    Odd,
}

impl Backslashes {
    fn after(self, byte: u8) -> Self {
        if byte == b'\\' && self == Self::Even { Self::Odd } else { Self::Even }
    }
}

impl Lexer {
    pub(super) fn new(escapes: Escapes) -> Self {
        Self { escapes, place: Place::Plain, word: Vec::new() }
    }

    pub(super) fn read(&mut self, text: &[u8], heard: &mut impl FnMut(Token<'_>)) {
        for byte in text {
            self.byte(*byte, heard);
        }
    }

    /// Ends the text.
    pub(super) fn end(&mut self, heard: &mut impl FnMut(Token<'_>)) {
        match self.place {
            Place::Word => heard(Token::Word(&self.word)),
            Place::Slash => heard(Token::Sign(b'/')),
            Place::Dash | Place::Dashes => heard(Token::Sign(b'-')),
            Place::At => heard(Token::Own),
            // An unterminated quote.
            Place::Backticks | Place::Single(_) | Place::Double(_) => heard(Token::Ambiguous),
            _ => {}
        }
        self.place = Place::Plain;
    }

    #[inline]
    fn byte(&mut self, byte: u8, heard: &mut impl FnMut(Token<'_>)) {
        match self.place {
            Place::Plain => self.plain(byte, heard),
            Place::Word if is_of_word(byte) => self.keep(byte.to_ascii_lowercase()),
            Place::Word => {
                heard(Token::Word(&self.word));
                self.plain(byte, heard);
            }
            Place::Single(backslashes) => self.single(backslashes, byte, heard),
            Place::Double(backslashes) => self.double(backslashes, byte, heard),
            Place::Backticks if byte == b'`' => self.name_ends(|name| Token::Name(name), heard),
            Place::Backticks => self.keep(byte),
            Place::LineComment if byte == b'\n' => self.place = Place::Plain,
            Place::LineComment => {}
            _ => self.rare(byte, heard),
        }
    }

    fn single(&mut self, backslashes: Backslashes, byte: u8, heard: &mut impl FnMut(Token<'_>)) {
        let is_escaped = backslashes == Backslashes::Odd && self.escapes == Escapes::Backslash;
        if byte == b'\'' && !is_escaped {
            self.place = Place::Plain;
            heard(Token::Literal);
        } else {
            self.place = Place::Single(backslashes.after(byte));
        }
    }

    /// Names have no escapes, but a string may.
    fn double(&mut self, backslashes: Backslashes, byte: u8, heard: &mut impl FnMut(Token<'_>)) {
        let is_escaped = backslashes == Backslashes::Odd && self.escapes == Escapes::Backslash;
        if byte == b'"' && is_escaped {
            heard(Token::Ambiguous);
        }
        if byte == b'"' && !is_escaped {
            // A string may have any length.
            self.word.truncate(MAX_WORD_BYTES);
            self.name_ends(|name| Token::Either(name), heard);
        } else {
            self.place = Place::Double(backslashes.after(byte));
            self.keep(byte);
        }
    }

    fn name_ends(&mut self, token: fn(&[u8]) -> Token<'_>, heard: &mut impl FnMut(Token<'_>)) {
        self.place = Place::Plain;
        if self.word.len() > MAX_WORD_BYTES {
            heard(Token::TooLong);
        }
        heard(token(&self.word));
    }

    /// The rare states.
    fn rare(&mut self, byte: u8, heard: &mut impl FnMut(Token<'_>)) {
        match (self.place, byte) {
            (Place::Dash, b'-') => self.place = Place::Dashes,
            // A second dash is a sign if no blank follows.
            (Place::Dashes, b'\n') | (Place::Star, b'/') => self.place = Place::Plain,
            (Place::Dashes, ..=b' ' | 0x7f) => self.place = Place::LineComment,
            (Place::Dashes, 0x80..=0xa0) => {
                // Some of these are blanks in single-byte character sets. In UTF-8 no character starts with
                // them.
                heard(Token::Ambiguous);
                self.place = Place::LineComment;
            }
            (Place::Slash, b'*') => self.place = Place::Comment,
            (Place::Comment, b'M') => self.place = Place::CommentOfMariaDb,
            (Place::Comment, b'+') => self.place = Place::Hint,
            (Place::Hint, b'\'' | b'"' | b'`') => heard(Token::Ambiguous),
            (Place::Hint, b'*') => self.place = Place::Star,
            (Place::Hint, _) => {}
            (Place::Comment | Place::CommentOfMariaDb, b'!') => {
                // Its content is read as if it were outside the comment.
                heard(Token::Executed);
                self.place = Place::Plain;
            }
            (Place::Comment | Place::CommentOfMariaDb | Place::InComment | Place::Star, b'*') => {
                self.place = Place::Star;
            }
            (Place::Comment | Place::CommentOfMariaDb | Place::InComment | Place::Star, _) => {
                self.place = Place::InComment;
            }
            (Place::At, b'@') => {
                heard(Token::System);
                self.place = Place::Plain;
            }
            (Place::At, _) => {
                heard(Token::Own);
                self.plain(byte, heard);
            }
            (Place::Slash, _) => {
                heard(Token::Sign(b'/'));
                self.plain(byte, heard);
            }
            (Place::Dash | Place::Dashes, _) => {
                heard(Token::Sign(b'-'));
                self.plain(byte, heard);
            }
            _ => self.plain(byte, heard),
        }
    }

    fn plain(&mut self, byte: u8, heard: &mut impl FnMut(Token<'_>)) {
        self.place = match byte {
            b'\'' => Place::Single(Backslashes::Even),
            b'"' => Place::Double(Backslashes::Even),
            b'`' => Place::Backticks,
            b'-' => Place::Dash,
            b'#' => Place::LineComment,
            b'/' => Place::Slash,
            b'@' => Place::At,
            _ if is_of_word(byte) => Place::Word,
            _ => Place::Plain,
        };
        match self.place {
            Place::Word => {
                self.word.clear();
                self.keep(byte.to_ascii_lowercase());
            }
            Place::Backticks | Place::Double(_) => self.word.clear(),
            Place::Plain if byte > b' ' && byte != 0x7f => heard(Token::Sign(byte)),
            _ => {}
        }
    }

    /// Keeps one byte more than is compared, so that longer words are recognized as such.
    fn keep(&mut self, byte: u8) {
        if self.word.len() <= MAX_WORD_BYTES {
            self.word.push(byte);
        }
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..)
}
