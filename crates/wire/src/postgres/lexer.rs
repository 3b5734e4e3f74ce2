//! Splits a statement's text into tokens, as servers do ("Lexical Structure"). Comments, quotes and names are
//! recognized; there is no grammar.

use super::Parameters;

/// Longer names and strings are cut. A server's own names have at most 63 bytes.
pub(super) const MAX_TOKEN_BYTES: usize = 128;

/// How backslashes in plain string literals are read (`standard_conforming_strings`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strings {
    /// `on`: a backslash is an ordinary byte.
    #[default]
    Standard,
    /// `off`: a backslash escapes the next byte.
    Escaped,
    /// The server has not reported it, or may have changed it since.
    Unknown,
}

impl Strings {
    pub const SETTING: &'static [u8] = b"standard_conforming_strings";

    /// The value that the server has reported.
    pub fn of(parameters: &Parameters) -> Self {
        match parameters.get(Self::SETTING) {
            Some(b"on") => Self::Standard,
            Some(b"off") => Self::Escaped,
            _ => Self::Unknown,
        }
    }
}

/// A token. White space and comments are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A key word or a name without quotes, in lower case.
    Word(&'a [u8]),
    /// A name in double quotes.
    Name(&'a [u8]),
    /// A string constant: its text, if it is short and has no escapes.
    Literal(Option<&'a [u8]>),
    Sign(u8),
    /// A construct whose end depends on unknown settings.
    Unclear(&'static str),
}

/// Reads a text in pieces, cut anywhere.
#[derive(Debug)]
pub(super) struct Lexer {
    strings: Strings,
    place: Place,
    /// The word, name or literal that is being read.
    text: Vec<u8>,
    /// Whether `text` is the complete value of the literal.
    literal: Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Text {
    Whole,
    /// It has escapes or is dollar-quoted.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Plain,
    Word,
    /// After `U&`.
    UnicodeMark,
    Name(NameKind),
    /// After the closing quote of a name, unless another quote follows.
    AfterName(NameKind),
    Literal(Quote),
    /// In a literal, after a backslash that escapes the next byte, or may do so.
    Escape(Quote),
    /// After the closing quote of a literal, which may continue.
    AfterLiteral(Quote, Gap),
    /// After a dash that follows a literal.
    DashAfterLiteral(Quote, Gap),
    CommentAfterLiteral(Quote),
    Dash,
    LineComment,
    Slash,
    /// In nested comments of this depth, after the byte `last`.
    Comment {
        depth: u32,
        last: u8,
    },
    /// After a `$` that may start a dollar quote or a parameter.
    Dollar,
    Parameter,
    /// In the tag of a dollar quote.
    Tag(Vec<u8>),
    /// In a dollar quote with this end tag, of which `matched` bytes have been read.
    DollarQuote {
        end: Vec<u8>,
        matched: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameKind {
    Plain,
    /// `U&"…"`
    Unicode,
}

/// The kind of a string literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quote {
    /// `'…'`, `N'…'` and `U&'…'`: a backslash escapes nothing.
    Standard,
    /// `E'…'`, and `'…'` if `standard_conforming_strings` is `off`.
    Escaped,
    /// `'…'` if that setting is unknown.
    Unknown,
    /// `B'…'` and `X'…'`: a doubled quote ends one literal and starts another.
    Bits,
}

/// What was read between a literal's closing quote and the next byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gap {
    None,
    Blank,
    /// A line end: if a quote follows, the literal continues.
    NewLine,
}

const UNKNOWN_STRINGS: &str = "a literal that ends elsewhere if standard_conforming_strings has changed";
const UNICODE_NAME: &str = "a name with Unicode escapes";
const LONG_TAG: &str = "a dollar quote with a long tag";

impl Lexer {
    pub(super) fn new(strings: Strings) -> Self {
        Self { strings, place: Place::Plain, text: Vec::new(), literal: Text::Whole }
    }

    pub(super) fn read(&mut self, text: &[u8], heard: &mut impl FnMut(Token<'_>)) {
        for byte in text {
            self.byte(*byte, heard);
        }
    }

    /// Ends the text. The server refuses unterminated constructs.
    pub(super) fn end(&mut self, heard: &mut impl FnMut(Token<'_>)) {
        match std::mem::replace(&mut self.place, Place::Plain) {
            Place::Word => heard(Token::Word(&self.text)),
            Place::AfterName(kind) => self.name_ends(kind, heard),
            Place::AfterLiteral(..) | Place::CommentAfterLiteral(_) => self.literal_ends(heard),
            _ => {}
        }
    }

    #[inline]
    fn byte(&mut self, byte: u8, heard: &mut impl FnMut(Token<'_>)) {
        match self.place {
            Place::Plain => self.plain(byte, heard),
            Place::Word if is_of_word(byte) => self.keep(byte.to_ascii_lowercase()),
            Place::Word => self.word_ends(byte, heard),
            Place::Literal(quote) => self.in_literal(quote, byte),
            Place::LineComment if is_line_end(byte) => self.place = Place::Plain,
            Place::LineComment => {}
            Place::Name(kind) if byte == b'"' => self.place = Place::AfterName(kind),
            Place::Name(_) => self.keep(byte),
            Place::AfterLiteral(quote, gap) => self.after_literal(quote, gap, byte, heard),
            _ => self.rare(byte, heard),
        }
    }

    fn plain(&mut self, byte: u8, heard: &mut impl FnMut(Token<'_>)) {
        self.place = match byte {
            b'\'' => return self.begin_literal(self.plain_quote()),
            b'"' => {
                self.text.clear();
                Place::Name(NameKind::Plain)
            }
            b'-' => Place::Dash,
            b'/' => Place::Slash,
            b'$' => Place::Dollar,
            _ if begins_word(byte) => {
                self.text.clear();
                self.text.push(byte.to_ascii_lowercase());
                Place::Word
            }
            _ => {
                if !is_space(byte) {
                    heard(Token::Sign(byte));
                }
                Place::Plain
            }
        };
    }

    /// A word has ended before this byte. It may be the prefix of a literal.
    fn word_ends(&mut self, byte: u8, heard: &mut impl FnMut(Token<'_>)) {
        match (self.text.as_slice(), byte) {
            (b"e", b'\'') => self.begin_literal(Quote::Escaped),
            (b"b" | b"x", b'\'') => self.begin_literal(Quote::Bits),
            (b"n", b'\'') => self.begin_literal(self.plain_quote()),
            (b"u", b'&') => self.place = Place::UnicodeMark,
            (word, _) => {
                heard(Token::Word(word));
                self.plain(byte, heard);
            }
        }
    }

    fn plain_quote(&self) -> Quote {
        match self.strings {
            Strings::Standard => Quote::Standard,
            Strings::Escaped => Quote::Escaped,
            Strings::Unknown => Quote::Unknown,
        }
    }

    fn begin_literal(&mut self, quote: Quote) {
        self.text.clear();
        self.literal = Text::Whole;
        self.place = Place::Literal(quote);
    }

    fn in_literal(&mut self, quote: Quote, byte: u8) {
        match (byte, quote) {
            (b'\'', _) => self.place = Place::AfterLiteral(quote, Gap::None),
            (b'\\', Quote::Escaped | Quote::Unknown) => {
                self.literal = Text::Other;
                self.place = Place::Escape(quote);
            }
            _ => self.keep(byte),
        }
    }

    /// After a closing quote: a literal continues if another quote follows at once, or on a later line.
    fn after_literal(&mut self, quote: Quote, gap: Gap, byte: u8, heard: &mut impl FnMut(Token<'_>)) {
        match (byte, gap) {
            (b'\'', Gap::None) if quote != Quote::Bits => {
                self.keep(byte);
                self.place = Place::Literal(quote);
            }
            (b'\'', Gap::NewLine) => self.place = Place::Literal(quote),
            (b'-', _) => self.place = Place::DashAfterLiteral(quote, gap),
            _ if is_line_end(byte) => self.place = Place::AfterLiteral(quote, Gap::NewLine),
            (_, Gap::None) if is_space(byte) => self.place = Place::AfterLiteral(quote, Gap::Blank),
            _ if is_space(byte) => {}
            _ => {
                self.literal_ends(heard);
                self.plain(byte, heard);
            }
        }
    }

    fn literal_ends(&mut self, heard: &mut impl FnMut(Token<'_>)) {
        let is_whole = self.literal == Text::Whole && self.text.len() < MAX_TOKEN_BYTES;
        heard(Token::Literal(is_whole.then_some(self.text.as_slice())));
    }

    fn name_ends(&mut self, kind: NameKind, heard: &mut impl FnMut(Token<'_>)) {
        if kind == NameKind::Unicode {
            heard(Token::Unclear(UNICODE_NAME));
        }
        heard(Token::Name(&self.text));
    }

    /// The rare states.
    fn rare(&mut self, byte: u8, heard: &mut impl FnMut(Token<'_>)) {
        match std::mem::replace(&mut self.place, Place::Plain) {
            Place::Escape(quote) => self.escaped(quote, byte, heard),
            Place::AfterName(kind) if byte == b'"' => {
                self.keep(byte);
                self.place = Place::Name(kind);
            }
            Place::AfterName(kind) => {
                self.name_ends(kind, heard);
                self.plain(byte, heard);
            }
            Place::DashAfterLiteral(quote, _) if byte == b'-' => {
                self.place = Place::CommentAfterLiteral(quote);
            }
            Place::DashAfterLiteral(..) => {
                self.literal_ends(heard);
                heard(Token::Sign(b'-'));
                self.plain(byte, heard);
            }
            Place::CommentAfterLiteral(quote) if is_line_end(byte) => {
                self.place = Place::AfterLiteral(quote, Gap::NewLine);
            }
            place @ Place::CommentAfterLiteral(_) => self.place = place,
            Place::UnicodeMark => self.after_mark(byte, heard),
            Place::Dash if byte == b'-' => self.place = Place::LineComment,
            Place::Slash if byte == b'*' => self.place = Place::Comment { depth: 1, last: 0 },
            Place::Comment { depth, last } => self.in_comment(depth, last, byte),
            place => self.dollar(place, byte, heard),
        }
    }

    /// The byte after a backslash.
    fn escaped(&mut self, quote: Quote, byte: u8, heard: &mut impl FnMut(Token<'_>)) {
        self.place = Place::Literal(quote);
        if quote == Quote::Unknown && byte == b'\'' {
            // Read as if it were the end, which is likely.
            heard(Token::Unclear(UNKNOWN_STRINGS));
            self.place = Place::AfterLiteral(quote, Gap::None);
        }
    }

    /// After `U&`.
    fn after_mark(&mut self, byte: u8, heard: &mut impl FnMut(Token<'_>)) {
        match byte {
            b'\'' => {
                self.begin_literal(Quote::Standard);
                self.literal = Text::Other;
            }
            b'"' => {
                self.text.clear();
                self.place = Place::Name(NameKind::Unicode);
            }
            _ => {
                heard(Token::Word(b"u"));
                heard(Token::Sign(b'&'));
                self.plain(byte, heard);
            }
        }
    }

    fn in_comment(&mut self, depth: u32, last: u8, byte: u8) {
        self.place = match (last, byte) {
            (b'*', b'/') if depth == 1 => Place::Plain,
            (b'*', b'/') => Place::Comment { depth: depth - 1, last: 0 },
            (b'/', b'*') => Place::Comment { depth: depth.saturating_add(1), last: 0 },
            _ => Place::Comment { depth, last: byte },
        };
    }

    /// Dollar quotes, and signs that could have started something else.
    fn dollar(&mut self, place: Place, byte: u8, heard: &mut impl FnMut(Token<'_>)) {
        match place {
            Place::Dollar if byte == b'$' => self.begin_dollar_quote(b"$$".to_vec()),
            Place::Dollar if begins_word(byte) => self.place = Place::Tag(vec![b'$', byte]),
            Place::Dollar | Place::Parameter if byte.is_ascii_digit() => self.place = Place::Parameter,
            Place::Parameter => self.plain(byte, heard),
            Place::Tag(mut tag) if byte == b'$' => {
                tag.push(byte);
                self.begin_dollar_quote(tag);
            }
            Place::Tag(mut tag) if is_of_word(byte) => {
                if tag.len() >= MAX_TOKEN_BYTES {
                    return heard(Token::Unclear(LONG_TAG));
                }
                tag.push(byte);
                self.place = Place::Tag(tag);
            }
            Place::DollarQuote { end, mut matched } => {
                // The end tag starts with `$`, which occurs again only as its last byte.
                matched =
                    if end.get(matched) == Some(&byte) { matched + 1 } else { usize::from(byte == b'$') };
                if matched == end.len() {
                    heard(Token::Literal(None));
                } else {
                    self.place = Place::DollarQuote { end, matched };
                }
            }
            place => {
                heard(Token::Sign(match place {
                    Place::Dash => b'-',
                    Place::Slash => b'/',
                    _ => b'$',
                }));
                self.plain(byte, heard);
            }
        }
    }

    fn begin_dollar_quote(&mut self, end: Vec<u8>) {
        self.place = Place::DollarQuote { end, matched: 0 };
    }

    #[inline]
    fn keep(&mut self, byte: u8) {
        if self.text.len() < MAX_TOKEN_BYTES {
            self.text.push(byte);
        }
    }
}

fn begins_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | 0x80..)
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..)
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// Includes NUL, the end of the text.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | 0)
}
