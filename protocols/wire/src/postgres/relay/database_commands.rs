//! Commands that a server refuses while a database has other connections: `DROP DATABASE`, `ALTER DATABASE …
//! RENAME` and `… SET TABLESPACE`, and `CREATE DATABASE` for its template. A proxy must close its idle
//! connections first.
//!
//! Only the first statement of each text is scanned, until it cannot be such a command. Servers run all of
//! them except `RENAME` outside transaction blocks only.

use crate::{
    postgres::{
        codec::{kind, text_rules::StringSyntax},
        relay::framer::Piece,
        sql::lexer::{Lexer, MAX_TOKEN_BYTES, Token},
    },
    relay::Vacate,
};

/// The template that `CREATE DATABASE` copies by default.
const DEFAULT_TEMPLATE: &[u8] = b"template1";
/// Servers truncate longer names.
const MAX_NAME_BYTES: usize = 63;
/// Limit of tokens kept per command; none needs as many.
const MAX_TOKENS: usize = 64;

/// Scans a client's commands on one connection. Observes the relay's messages.
#[derive(Debug, Default)]
pub(crate) struct DatabaseCommandScanner {
    reader: CommandReader,
}

#[derive(Debug, Default)]
enum CommandReader {
    #[default]
    Nothing,
    /// Within the statement name of a `Parse`.
    StatementName,
    /// Before the first byte of a text.
    AtText,
    Text(Box<Lexer>, DatabaseCommand),
}

/// A partial command.
#[derive(Debug, Default)]
struct DatabaseCommand {
    verb: Verb,
    tokens: Vec<CommandToken>,
    state: CommandState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Verb {
    #[default]
    None,
    Alter,
    Create,
    Drop,
}

impl Verb {
    /// Of `alter`, `create` and `drop`.
    const FIRST_LETTERS: [u8; 3] = *b"acd";
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum CommandState {
    #[default]
    Begins,
    /// The next word is the object type.
    HasVerb,
    IsOfDatabase,
    /// It is another command, or it has ended.
    Over,
}

#[derive(Debug, PartialEq, Eq)]
enum CommandToken {
    Word(Vec<u8>),
    Name(Vec<u8>),
    Literal(Option<Vec<u8>>),
    Sign(u8),
    Unclear,
}

impl DatabaseCommandScanner {
    /// The client starts a message.
    #[inline]
    pub(crate) fn begin(&mut self, kind: u8) {
        self.reader = match kind {
            kind::QUERY => CommandReader::AtText,
            kind::PARSE => CommandReader::StatementName,
            _ => CommandReader::Nothing,
        };
    }

    /// Continues with the current message. Appends to `vacates` the databases that must have no connections.
    #[inline]
    pub(crate) fn read(&mut self, piece: Piece<'_>, vacates: &mut Vec<Vacate>) {
        if !matches!(self.reader, CommandReader::Nothing) {
            self.read_text(piece, vacates);
        }
    }

    fn read_text(&mut self, Piece { mut bytes, is_last }: Piece<'_>, vacates: &mut Vec<Vacate>) {
        if let CommandReader::StatementName = self.reader {
            let Some(end) = bytes.iter().position(|byte| *byte == 0) else { return };
            bytes = &bytes[end + 1..];
            self.reader = CommandReader::AtText;
        }
        if let (CommandReader::AtText, Some(first)) = (&self.reader, bytes.first()) {
            self.reader = CommandReader::for_text(*first);
        }
        let CommandReader::Text(lexer, command) = &mut self.reader else { return };
        let end = bytes.iter().position(|byte| *byte == 0);
        for byte in &bytes[..end.unwrap_or(bytes.len())] {
            lexer.read(std::slice::from_ref(byte), &mut |token| command.token(token));
            if command.state == CommandState::Over {
                break;
            }
        }
        let has_ended = end.is_some() || is_last;
        if has_ended {
            lexer.end(&mut |token| command.token(token));
        }
        if has_ended || command.state == CommandState::Over {
            vacates.extend(command.vacates());
            self.reader = CommandReader::Nothing;
        }
    }
}

impl CommandReader {
    /// Most texts begin with a letter of another command, and need no lexer.
    fn for_text(first: u8) -> Self {
        if first.is_ascii_alphabetic() && !Verb::FIRST_LETTERS.contains(&first.to_ascii_lowercase()) {
            return Self::Nothing;
        }
        Self::Text(Box::new(Lexer::new(StringSyntax::Standard)), DatabaseCommand::default())
    }
}

impl DatabaseCommand {
    fn token(&mut self, token: Token<'_>) {
        self.state = match (self.state, token) {
            // Empty statements are skipped.
            (CommandState::Begins, Token::Sign(b';')) => CommandState::Begins,
            (CommandState::Over, _) | (_, Token::Sign(b';')) => CommandState::Over,
            (CommandState::Begins, Token::Word(word)) => {
                self.verb = match word {
                    b"alter" => Verb::Alter,
                    b"create" => Verb::Create,
                    b"drop" => Verb::Drop,
                    _ => Verb::None,
                };
                if self.verb == Verb::None { CommandState::Over } else { CommandState::HasVerb }
            }
            (CommandState::HasVerb, Token::Word(b"database")) => CommandState::IsOfDatabase,
            (CommandState::IsOfDatabase, token) => {
                if self.tokens.len() < MAX_TOKENS {
                    self.tokens.push(CommandToken::of(token));
                }
                CommandState::IsOfDatabase
            }
            _ => CommandState::Over,
        };
    }

    /// The database that must have no connections, if it is such a command.
    fn vacates(&self) -> Option<Vacate> {
        let word = |at: usize| match self.tokens.get(at) {
            Some(CommandToken::Word(word)) => word.as_slice(),
            _ => b"",
        };
        match self.verb {
            Verb::None => None,
            Verb::Drop if word(0) == b"if" && word(1) == b"exists" => Some(vacate(self.tokens.get(2)?)),
            Verb::Drop => Some(vacate(self.tokens.first()?)),
            Verb::Alter => match (word(1), word(2)) {
                (b"rename", _) | (b"set", b"tablespace") => Some(vacate(self.tokens.first()?)),
                _ => None,
            },
            Verb::Create if self.tokens.is_empty() => None,
            Verb::Create if self.tokens.len() >= MAX_TOKENS => Some(Vacate::Any),
            Verb::Create => Some(template(&self.tokens[1..])),
        }
    }
}

impl CommandToken {
    fn of(token: Token<'_>) -> Self {
        match token {
            Token::Word(word) => Self::Word(word.to_vec()),
            Token::Name(name) => Self::Name(name.to_vec()),
            Token::Literal(text) => Self::Literal(text.map(<[u8]>::to_vec)),
            Token::LongLiteral { .. } => Self::Literal(None),
            Token::Sign(sign) => Self::Sign(sign),
            Token::Unclear(_) => Self::Unclear,
        }
    }
}

fn vacate(token: &CommandToken) -> Vacate {
    match token {
        CommandToken::Word(name) | CommandToken::Name(name) | CommandToken::Literal(Some(name))
            if name.len() <= MAX_NAME_BYTES =>
        {
            Vacate::Database(name.clone())
        }
        _ => Vacate::Any,
    }
}

/// The template that these options of a `CREATE DATABASE` name: `[WITH] [option [=] value]…`.
fn template(options: &[CommandToken]) -> Vacate {
    let mut tokens = options.iter().peekable();
    let is_word = |token: &CommandToken, word: &[u8]| matches!(token, CommandToken::Word(own) if own == word);
    tokens.next_if(|token| is_word(token, b"with"));
    while let Some(option) = tokens.next() {
        let is_template = is_word(option, b"template");
        if !matches!(option, CommandToken::Word(_)) {
            return Vacate::Any;
        }
        tokens.next_if(|token| is_word(token, b"limit"));
        tokens.next_if_eq(&&CommandToken::Sign(b'='));
        match tokens.next() {
            Some(word) if is_template && is_word(word, b"default") => break,
            Some(name) if is_template => return vacate(name),
            // The lexer splits a number into signs.
            Some(CommandToken::Sign(_)) => {
                while tokens.next_if(|token| matches!(token, CommandToken::Sign(_))).is_some() {}
            }
            _ => {}
        }
    }
    Vacate::Database(DEFAULT_TEMPLATE.to_vec())
}

const _: () = assert!(MAX_NAME_BYTES < MAX_TOKEN_BYTES);

#[cfg(test)]
mod tests;
