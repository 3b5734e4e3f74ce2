//! Splits a statement's text into tokens, as servers do ("Lexical Structure"). Comments, quotes and names are
//! recognized; the grammar is not.

use arrayvec::ArrayVec;

use crate::postgres::{codec::text_rules::StringSyntax, sql::relative_times::RelativeTimes};

/// Longer names and strings are cut. A server's own names have at most 63 bytes.
pub(crate) const MAX_TOKEN_BYTES: usize = 128;

pub(crate) type TokenText = ArrayVec<u8, MAX_TOKEN_BYTES>;

/// Appends as much as there is room for.
pub(crate) fn append(text: &mut TokenText, bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(text.remaining_capacity())];
    // There is room.
    let _ = text.try_extend_from_slice(bytes);
}

/// A token. White space and comments are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// A key word or a name without quotes, in lower case.
    Word(&'a [u8]),
    /// A name in double quotes.
    Name(&'a [u8]),
    /// A string constant: its text, if it has no escapes.
    Literal(Option<&'a [u8]>),
    /// A string constant without escapes that is too long to be kept.
    LongLiteral {
        /// Whether it may contain a time that is relative to the current one.
        has_time: bool,
    },
    Sign(u8),
    /// A construct whose end depends on unknown settings.
    Unclear(&'static str),
}

/// Reads a text in pieces, cut anywhere.
#[derive(Debug)]
pub(crate) struct Lexer {
    string_syntax: StringSyntax,
    state: LexerState,
    /// The word, name or literal that is being read.
    text: TokenText,
    /// Whether `text` is the complete value of the literal.
    literal: LiteralText,
    /// The tag of a dollar quote, with its signs.
    tag: Vec<u8>,
    /// What a literal contains that is too long for `text`.
    times: RelativeTimes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LiteralText {
    Whole,
    /// It has escapes or is dollar-quoted.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LexerState {
    Plain,
    Word,
    /// In the digits of a number, of which the first one is a token.
    Number,
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
    Tag,
    /// In a dollar quote. `matched` bytes of its end tag have been read.
    DollarQuote {
        matched: u32,
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
    pub(crate) fn new(string_syntax: StringSyntax) -> Self {
        let times = RelativeTimes::default();
        Self {
            string_syntax,
            state: LexerState::Plain,
            text: TokenText::new(),
            literal: LiteralText::Whole,
            tag: Vec::new(),
            times,
        }
    }

    pub(crate) fn read(&mut self, text: &[u8], emit: &mut impl FnMut(Token<'_>)) {
        let mut rest = text;
        loop {
            rest = match self.state {
                LexerState::Plain => behind(rest, is_space),
                LexerState::Word => self.word_run(rest),
                LexerState::Number => behind(rest, |byte| byte.is_ascii_digit()),
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
            // Longer ones are cut.
            if !self.text.is_full() {
                self.text.push(lower);
            }
            text = rest;
        }
        text
    }

    /// Reads bytes that only continue a quoted name, a literal or a comment. Returns the others.
    #[inline(never)]
    fn long_run<'a>(&mut self, text: &'a [u8]) -> &'a [u8] {
        let bytes = match self.state {
            LexerState::Name(_) => memchr::memchr(b'"', text),
            LexerState::Literal(_) => memchr::memchr2(b'\'', b'\\', text),
            LexerState::LineComment => memchr::memchr2(b'\n', b'\r', text),
            _ => return text,
        };
        let (run, rest) = text.split_at(bytes.unwrap_or(text.len()));
        match self.state {
            LexerState::Name(_) => append(&mut self.text, run),
            LexerState::Literal(_) => self.keep_literal(run),
            _ => {}
        }
        rest
    }

    /// Ends the text. The server refuses unterminated constructs.
    pub(crate) fn end(&mut self, emit: &mut impl FnMut(Token<'_>)) {
        match std::mem::replace(&mut self.state, LexerState::Plain) {
            LexerState::Word => emit(Token::Word(&self.text)),
            LexerState::AfterName(kind) => self.end_name(kind, emit),
            LexerState::AfterLiteral(..) | LexerState::CommentAfterLiteral(_) => self.end_literal(emit),
            _ => {}
        }
    }

    #[inline]
    fn byte(&mut self, byte: u8, emit: &mut impl FnMut(Token<'_>)) {
        match self.state {
            LexerState::Plain | LexerState::Number => self.plain(byte, emit),
            LexerState::Word if is_of_word(byte) => self.keep(byte.to_ascii_lowercase()),
            LexerState::Word => self.end_word(byte, emit),
            LexerState::Literal(quote) => self.in_literal(quote, byte),
            LexerState::LineComment if is_line_end(byte) => self.state = LexerState::Plain,
            LexerState::LineComment => {}
            LexerState::Name(kind) if byte == b'"' => self.state = LexerState::AfterName(kind),
            LexerState::Name(_) => self.keep(byte),
            LexerState::AfterLiteral(quote, gap) => self.after_literal(quote, gap, byte, emit),
            _ => self.rare(byte, emit),
        }
    }

    fn plain(&mut self, byte: u8, emit: &mut impl FnMut(Token<'_>)) {
        self.state = match byte {
            b'\'' => return self.begin_literal(self.plain_quote()),
            b'"' => {
                self.text.clear();
                LexerState::Name(NameKind::Plain)
            }
            b'-' => LexerState::Dash,
            b'/' => LexerState::Slash,
            b'$' => LexerState::Dollar,
            b'0'..=b'9' => {
                emit(Token::Sign(byte));
                LexerState::Number
            }
            _ if begins_word(byte) => {
                self.text.clear();
                self.text.push(byte.to_ascii_lowercase());
                LexerState::Word
            }
            _ => {
                if !is_space(byte) {
                    emit(Token::Sign(byte));
                }
                LexerState::Plain
            }
        };
    }

    /// A word has ended before this byte. It may be the prefix of a literal.
    fn end_word(&mut self, byte: u8, emit: &mut impl FnMut(Token<'_>)) {
        match (self.text.as_slice(), byte) {
            (b"e", b'\'') => self.begin_literal(Quote::Escaped),
            (b"b" | b"x", b'\'') => self.begin_literal(Quote::Bits),
            (b"n", b'\'') => self.begin_literal(self.plain_quote()),
            (b"u", b'&') => self.state = LexerState::UnicodeMark,
            (word, _) => {
                emit(Token::Word(word));
                self.plain(byte, emit);
            }
        }
    }

    fn plain_quote(&self) -> Quote {
        match self.string_syntax {
            StringSyntax::Standard => Quote::Standard,
            StringSyntax::Escaped => Quote::Escaped,
            StringSyntax::Unknown => Quote::Unknown,
        }
    }

    fn begin_literal(&mut self, quote: Quote) {
        self.text.clear();
        self.literal = LiteralText::Whole;
        self.state = LexerState::Literal(quote);
    }

    fn in_literal(&mut self, quote: Quote, byte: u8) {
        match (byte, quote) {
            (b'\'', _) => self.state = LexerState::AfterLiteral(quote, Gap::None),
            (b'\\', Quote::Escaped | Quote::Unknown) => {
                self.literal = LiteralText::Other;
                self.state = LexerState::Escape(quote);
            }
            _ => self.keep_literal(&[byte]),
        }
    }

    /// After a closing quote: a literal continues if another quote follows at once, or on a later line.
    fn after_literal(&mut self, quote: Quote, gap: Gap, byte: u8, emit: &mut impl FnMut(Token<'_>)) {
        match (byte, gap) {
            (b'\'', Gap::None) if quote != Quote::Bits => {
                self.keep_literal(&[byte]);
                self.state = LexerState::Literal(quote);
            }
            (b'\'', Gap::NewLine) => self.state = LexerState::Literal(quote),
            (b'-', _) => self.state = LexerState::DashAfterLiteral(quote, gap),
            _ if is_line_end(byte) => self.state = LexerState::AfterLiteral(quote, Gap::NewLine),
            (_, Gap::None) if is_space(byte) => self.state = LexerState::AfterLiteral(quote, Gap::Blank),
            _ if is_space(byte) => {}
            _ => {
                self.end_literal(emit);
                self.plain(byte, emit);
            }
        }
    }

    fn end_literal(&mut self, emit: &mut impl FnMut(Token<'_>)) {
        emit(match self.literal {
            LiteralText::Whole if self.text.len() < MAX_TOKEN_BYTES => Token::Literal(Some(&self.text)),
            LiteralText::Whole => Token::LongLiteral { has_time: self.times.end() },
            LiteralText::Other => Token::Literal(None),
        });
    }

    fn end_name(&mut self, kind: NameKind, emit: &mut impl FnMut(Token<'_>)) {
        if kind == NameKind::Unicode {
            emit(Token::Unclear(UNICODE_NAME));
        }
        emit(Token::Name(&self.text));
    }

    /// The rare states.
    fn rare(&mut self, byte: u8, emit: &mut impl FnMut(Token<'_>)) {
        match std::mem::replace(&mut self.state, LexerState::Plain) {
            LexerState::Escape(quote) => self.escaped(quote, byte, emit),
            LexerState::AfterName(kind) if byte == b'"' => {
                self.keep(byte);
                self.state = LexerState::Name(kind);
            }
            LexerState::AfterName(kind) => {
                self.end_name(kind, emit);
                self.plain(byte, emit);
            }
            LexerState::DashAfterLiteral(quote, _) if byte == b'-' => {
                self.state = LexerState::CommentAfterLiteral(quote);
            }
            LexerState::DashAfterLiteral(..) => {
                self.end_literal(emit);
                emit(Token::Sign(b'-'));
                self.plain(byte, emit);
            }
            LexerState::CommentAfterLiteral(quote) if is_line_end(byte) => {
                self.state = LexerState::AfterLiteral(quote, Gap::NewLine);
            }
            state @ LexerState::CommentAfterLiteral(_) => self.state = state,
            LexerState::UnicodeMark => self.after_mark(byte, emit),
            LexerState::Dash if byte == b'-' => self.state = LexerState::LineComment,
            LexerState::Slash if byte == b'*' => self.state = LexerState::Comment { depth: 1, last: 0 },
            LexerState::Comment { depth, last } => self.in_comment(depth, last, byte),
            state => self.dollar(state, byte, emit),
        }
    }

    /// The byte after a backslash.
    fn escaped(&mut self, quote: Quote, byte: u8, emit: &mut impl FnMut(Token<'_>)) {
        self.state = LexerState::Literal(quote);
        if quote == Quote::Unknown && byte == b'\'' {
            // Read as if it were the end, which is likely.
            emit(Token::Unclear(UNKNOWN_STRINGS));
            self.state = LexerState::AfterLiteral(quote, Gap::None);
        }
    }

    /// After `U&`.
    fn after_mark(&mut self, byte: u8, emit: &mut impl FnMut(Token<'_>)) {
        match byte {
            b'\'' => {
                self.begin_literal(Quote::Standard);
                self.literal = LiteralText::Other;
            }
            b'"' => {
                self.text.clear();
                self.state = LexerState::Name(NameKind::Unicode);
            }
            _ => {
                emit(Token::Word(b"u"));
                emit(Token::Sign(b'&'));
                self.plain(byte, emit);
            }
        }
    }

    fn in_comment(&mut self, depth: u32, last: u8, byte: u8) {
        self.state = match (last, byte) {
            (b'*', b'/') if depth == 1 => LexerState::Plain,
            (b'*', b'/') => LexerState::Comment { depth: depth - 1, last: 0 },
            (b'/', b'*') => LexerState::Comment { depth: depth.saturating_add(1), last: 0 },
            _ => LexerState::Comment { depth, last: byte },
        };
    }

    /// Dollar quotes, and signs that could have started something else.
    fn dollar(&mut self, state: LexerState, byte: u8, emit: &mut impl FnMut(Token<'_>)) {
        match state {
            LexerState::Dollar if byte == b'$' => {
                self.tag = vec![b'$'];
                self.begin_dollar_quote();
            }
            LexerState::Dollar if begins_word(byte) => {
                self.tag = vec![b'$', byte];
                self.state = LexerState::Tag;
            }
            LexerState::Dollar | LexerState::Parameter if byte.is_ascii_digit() => {
                self.state = LexerState::Parameter;
            }
            LexerState::Parameter => self.plain(byte, emit),
            LexerState::Tag if byte == b'$' => self.begin_dollar_quote(),
            LexerState::Tag if is_of_word(byte) => {
                if self.tag.len() >= MAX_TOKEN_BYTES {
                    return emit(Token::Unclear(LONG_TAG));
                }
                self.tag.push(byte);
                self.state = LexerState::Tag;
            }
            LexerState::DollarQuote { matched } => {
                // The end tag starts with `$`, which occurs again only as its last byte.
                let is_next = self.tag.get(matched as usize) == Some(&byte);
                let matched = if is_next { matched + 1 } else { u32::from(byte == b'$') };
                if matched as usize == self.tag.len() {
                    emit(Token::Literal(None));
                } else {
                    self.state = LexerState::DollarQuote { matched };
                }
            }
            state => {
                emit(Token::Sign(match state {
                    LexerState::Dash => b'-',
                    LexerState::Slash => b'/',
                    _ => b'$',
                }));
                self.plain(byte, emit);
            }
        }
    }

    fn begin_dollar_quote(&mut self) {
        self.tag.push(b'$');
        self.state = LexerState::DollarQuote { matched: 0 };
    }

    /// A part of a literal. What is not kept is searched.
    fn keep_literal(&mut self, bytes: &[u8]) {
        let was_full = self.text.is_full();
        let kept_bytes = bytes.len().min(self.text.remaining_capacity());
        append(&mut self.text, bytes);
        if self.text.is_full() {
            if !was_full {
                self.times = RelativeTimes::default();
                self.times.read(&self.text);
            }
            self.times.read(&bytes[kept_bytes..]);
        }
    }

    #[inline]
    fn keep(&mut self, byte: u8) {
        append(&mut self.text, &[byte]);
    }
}

fn begins_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | 0x80..)
}

const fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..)
}

/// The lower case of each byte of a word, and 0 for the others.
static OF_WORDS: [u8; 256] = {
    let mut of_words = [0; 256];
    let mut byte = u8::MAX;
    while byte > 0 {
        if is_of_word(byte) {
            of_words[byte as usize] = byte.to_ascii_lowercase();
        }
        byte -= 1;
    }
    of_words
};

/// What follows the bytes that `are` such.
#[inline]
fn behind(text: &[u8], are: impl Fn(u8) -> bool) -> &[u8] {
    let end = text.iter().position(|byte| !are(*byte));
    &text[end.unwrap_or(text.len())..]
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// Includes NUL, the end of the text.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | 0)
}
