//! The words and signs of a statement's text, as servers read it: comments and quotes are known, nothing else.

/// Of a word, what is told apart.
const MAX_WORD_BYTES: usize = 128;

/// How backslashes in quotes are taken ("`NO_BACKSLASH_ESCAPES`").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Escapes {
    /// They take the next byte as it is.
    #[default]
    Backslash,
    /// They are bytes like others.
    None,
}

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// In lower case.
    Word(&'a [u8]),
    /// In backticks.
    Name(&'a [u8]),
    /// In double quotes: a name or a text, as the session takes it.
    Either(&'a [u8]),
    /// In single quotes.
    Literal,
    /// `@` before a name.
    Own,
    /// `@@`.
    System,
    Sign(u8),
    /// A comment begins that servers execute.
    Executed,
    /// A quote ends for some sessions, and goes on for others.
    Ambiguous,
    /// A name in quotes is longer than any.
    TooLong,
}

/// Reads a text in pieces, however it is cut.
#[derive(Debug)]
pub(super) struct Lexer {
    escapes: Escapes,
    place: Place,
    word: Vec<u8>,
}

/// Where in a text one is.
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
    /// Behind `/*`.
    Comment,
    /// Behind `/*M`.
    CommentOfMariaDb,
    /// Behind `/*+`: some servers read hints there, with quotes, and for others it is a comment.
    Hint,
    InComment,
    /// Behind a `*` in a comment.
    Star,
}

/// What is before the next byte of a quote.
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

    /// Reads the next piece.
    pub(super) fn read(&mut self, text: &[u8], heard: &mut impl FnMut(Token<'_>)) {
        for byte in text {
            self.byte(*byte, heard);
        }
    }

    /// The text has ended.
    pub(super) fn end(&mut self, heard: &mut impl FnMut(Token<'_>)) {
        match self.place {
            Place::Word => heard(Token::Word(&self.word)),
            Place::Slash => heard(Token::Sign(b'/')),
            Place::Dash | Place::Dashes => heard(Token::Sign(b'-')),
            Place::At => heard(Token::Own),
            // Whatever the server makes of that.
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

    /// A name knows no escapes, and a text may.
    fn double(&mut self, backslashes: Backslashes, byte: u8, heard: &mut impl FnMut(Token<'_>)) {
        let is_escaped = backslashes == Backslashes::Odd && self.escapes == Escapes::Backslash;
        if byte == b'"' && is_escaped {
            heard(Token::Ambiguous);
        }
        if byte == b'"' && !is_escaped {
            // A text may be of any length.
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

    /// What is seldom in a text.
    fn rare(&mut self, byte: u8, heard: &mut impl FnMut(Token<'_>)) {
        match (self.place, byte) {
            (Place::Dash, b'-') => self.place = Place::Dashes,
            // Two alone are signs.
            (Place::Dashes, b'\n') | (Place::Star, b'/') => self.place = Place::Plain,
            (Place::Dashes, ..=b' ' | 0x7f) => self.place = Place::LineComment,
            (Place::Dashes, 0x80..=0xa0) => {
                // In character sets of one byte some of these are blanks; in UTF-8 no character begins so.
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
                // What is in it is read on as if it were not in a comment.
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

    /// One more than is told apart, so that what is longer is known to be.
    fn keep(&mut self, byte: u8) {
        if self.word.len() <= MAX_WORD_BYTES {
            self.word.push(byte);
        }
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..)
}
