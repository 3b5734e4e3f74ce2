//! Commands that a server refuses while a database has other connections: `DROP DATABASE`, `ALTER DATABASE …
//! RENAME` and `… SET TABLESPACE`, and `CREATE DATABASE` for its template. A proxy must close its idle
//! connections first.
//!
//! Only the first statement of each text is scanned, until it cannot be such a command. Servers run all of
//! them except `RENAME` outside transaction blocks only. A prepared one is remembered: it may be executed much later.

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

/// Limit of prepared commands that are remembered.
const MAX_PREPARED: usize = 64;

/// Scans a client's commands on one connection. Observes the relay's messages.
#[derive(Debug, Default)]
pub(crate) struct DatabaseCommandScanner {
    reader: CommandReader,
}

/// The prepared statements of a client that are such commands, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PreparedDatabaseCommands {
    by_name: Vec<(Vec<u8>, Vacate)>,
}

impl PreparedDatabaseCommands {
    /// The client has prepared another statement under this name.
    fn remove(&mut self, name: &[u8]) {
        self.by_name.retain(|(known, _)| known != name);
    }

    fn insert(&mut self, name: Vec<u8>, vacate: Vacate) {
        self.remove(&name);
        if self.by_name.len() == MAX_PREPARED {
            self.by_name.remove(0);
        }
        self.by_name.push((name, vacate));
    }

    fn get(&self, name: &[u8]) -> Option<&Vacate> {
        self.by_name.iter().find(|(known, _)| known == name).map(|(_, vacate)| vacate)
    }
}

/// A part of a message up to a zero byte, as far as it has arrived and servers compare it.
#[derive(Debug, Default)]
struct ArrivingName(Vec<u8>);

impl ArrivingName {
    /// Takes it from the front of `bytes`. Returns whether it is complete.
    fn read(&mut self, bytes: &mut &[u8]) -> bool {
        let end = memchr::memchr(0, bytes);
        let part = &bytes[..end.unwrap_or(bytes.len())];
        self.0.extend_from_slice(&part[..part.len().min(MAX_NAME_BYTES - self.0.len())]);
        *bytes = end.map_or(&[], |end| &bytes[end + 1..]);
        end.is_some()
    }
}

#[derive(Debug, Default)]
enum CommandReader {
    #[default]
    Nothing,
    /// Within the statement name of a `Parse`.
    StatementName(ArrivingName),
    /// Before the first byte of a text, which is prepared under this name.
    AtText(Option<Vec<u8>>),
    Text(Box<Lexer>, DatabaseCommand, Option<Vec<u8>>),
    /// Within the portal name of a `Bind`.
    PortalName,
    /// Within its statement name.
    BoundName(ArrivingName),
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
    pub(crate) fn begin(&mut self, kind: u8, prepared: &PreparedDatabaseCommands) {
        self.reader = match kind {
            kind::QUERY => CommandReader::AtText(None),
            kind::PARSE => CommandReader::StatementName(ArrivingName::default()),
            kind::BIND if !prepared.by_name.is_empty() => CommandReader::PortalName,
            _ => CommandReader::Nothing,
        };
    }

    /// Continues with the current message. Appends to `vacates` the databases that must have no connections.
    #[inline]
    pub(crate) fn read(
        &mut self,
        piece: Piece<'_>,
        prepared: &mut PreparedDatabaseCommands,
        vacates: &mut Vec<Vacate>,
    ) {
        if !matches!(self.reader, CommandReader::Nothing) {
            self.read_payload(piece, prepared, vacates);
        }
    }

    fn read_payload(
        &mut self,
        Piece { mut bytes, is_last }: Piece<'_>,
        prepared: &mut PreparedDatabaseCommands,
        vacates: &mut Vec<Vacate>,
    ) {
        match &mut self.reader {
            CommandReader::StatementName(name) => {
                if !name.read(&mut bytes) {
                    return;
                }
                prepared.remove(&name.0);
                self.reader = CommandReader::AtText(Some(std::mem::take(&mut name.0)));
            }
            CommandReader::PortalName => {
                if !ArrivingName::default().read(&mut bytes) {
                    return;
                }
                self.reader = CommandReader::BoundName(ArrivingName::default());
            }
            _ => {}
        }
        if let CommandReader::BoundName(name) = &mut self.reader {
            if name.read(&mut bytes) {
                vacates.extend(prepared.get(&name.0).cloned());
                self.reader = CommandReader::Nothing;
            }
            return;
        }
        self.read_text(Piece { bytes, is_last }, prepared, vacates);
    }

    fn read_text(
        &mut self,
        Piece { bytes, is_last }: Piece<'_>,
        prepared: &mut PreparedDatabaseCommands,
        vacates: &mut Vec<Vacate>,
    ) {
        if let (CommandReader::AtText(name), Some(first)) = (&mut self.reader, bytes.first()) {
            self.reader = CommandReader::for_text(*first, name.take());
        }
        let CommandReader::Text(lexer, command, name) = &mut self.reader else { return };
        let end = memchr::memchr(0, bytes);
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
            let vacate = command.vacates();
            if let (Some(name), Some(vacate)) = (name.take(), &vacate) {
                prepared.insert(name, vacate.clone());
            }
            vacates.extend(vacate);
            self.reader = CommandReader::Nothing;
        }
    }
}

impl CommandReader {
    /// Most texts begin with a letter of another command, and need no lexer.
    fn for_text(first: u8, name: Option<Vec<u8>>) -> Self {
        if first.is_ascii_alphabetic() && !Verb::FIRST_LETTERS.contains(&first.to_ascii_lowercase()) {
            return Self::Nothing;
        }
        Self::Text(Box::new(Lexer::new(StringSyntax::Standard)), DatabaseCommand::default(), name)
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
