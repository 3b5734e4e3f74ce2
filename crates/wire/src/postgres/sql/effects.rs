//! Which effects of a command outlive its transaction, as far as its text shows: settings, prepared
//! statements, and state that is bound to the connection.
//!
//! This scans tokens; it does not parse SQL. A false positive pins a client to its connection. Effects of
//! functions are not seen. It must not be relied on to isolate clients.

use crate::postgres::codec::text_rules::StringSyntax;
use crate::postgres::sql::{
    data_access,
    lexer::{Lexer, MAX_TOKEN_BYTES, Token, TokenText, append},
};

/// Settings changed in one transaction; more pin the connection.
const MAX_SETTINGS: usize = 16;
/// Limit of prepared statements that a text deallocates by name; more pin the connection.
const MAX_DEALLOCATED: usize = 256;
/// Servers truncate longer names.
const MAX_NAME_BYTES: usize = 63;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Effects {
    /// Settings whose values may have changed.
    pub settings: Vec<Vec<u8>>,
    /// Why the connection is pinned: state that no other connection can have.
    pub pin: Option<&'static str>,
    pub deallocated: Deallocated,
    /// Whether the text has a `DISCARD ALL`.
    pub discard: Discard,
    pub remains: Remains,
}

/// What a session may leave behind for the next client of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Remains {
    /// The words of all texts are plain data access and transaction control.
    #[default]
    Nothing,
    /// Only the statement without a name, which a `Close` removes.
    UnnamedStatement,
    /// Anything: a reset is needed.
    Anything,
}

/// Prepared statements that were deallocated.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Deallocated {
    #[default]
    None,
    Named(Vec<Vec<u8>>),
    All,
}

/// Whether a client has discarded its session state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Discard {
    #[default]
    None,
    All,
}

impl Effects {
    /// Whether no effect is known that outlives the transaction, whatever [`Self::remains`].
    pub fn is_none(&self) -> bool {
        let Self { settings, pin, deallocated, discard, remains: _ } = self;
        settings.is_empty() && pin.is_none() && *deallocated == Deallocated::None && *discard == Discard::None
    }

    /// Whether this command may change how the server reads later texts, unlike it has reported.
    pub(crate) fn may_change_strings(&self) -> bool {
        self.pin.is_some() || self.discard == Discard::All
    }

    /// The effects of a complete text.
    pub fn of(text: &[u8], string_syntax: StringSyntax) -> Self {
        let mut reader = TextReader::new(string_syntax);
        reader.read(text);
        reader.end()
    }

    /// Adds the settings and the pin of another command. What it deallocates and discards depends on its success.
    pub fn merge(&mut self, other: &Self) {
        for name in &other.settings {
            self.sets(name);
        }
        self.pin = self.pin.or(other.pin);
    }

    fn sets(&mut self, name: &[u8]) {
        if self.settings.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            return;
        }
        if name.eq_ignore_ascii_case(StringSyntax::SETTING) {
            // Statements prepared before it would change their meaning if prepared again.
            self.pins("standard_conforming_strings");
        }
        if name.len() >= MAX_TOKEN_BYTES {
            self.pins("a setting with a long name");
        } else if self.settings.len() < MAX_SETTINGS {
            self.settings.push(name.to_vec());
        } else {
            self.pins("many settings");
        }
    }

    fn pins(&mut self, what: &'static str) {
        self.pin.get_or_insert(what);
    }

    fn deallocate(&mut self, name: &[u8]) {
        let is_known = |names: &Vec<Vec<u8>>| names.iter().any(|known| known == name);
        match &mut self.deallocated {
            Deallocated::All => {}
            Deallocated::None if name.len() <= MAX_NAME_BYTES => {
                self.deallocated = Deallocated::Named(vec![name.to_vec()]);
            }
            Deallocated::Named(names) if is_known(names) => {}
            Deallocated::Named(names) if names.len() < MAX_DEALLOCATED && name.len() <= MAX_NAME_BYTES => {
                names.push(name.to_vec());
            }
            Deallocated::None | Deallocated::Named(_) => {
                // A pinned client needs no statement prepared again.
                self.deallocated = Deallocated::All;
                self.pins("many prepared statements deallocated at once");
            }
        }
    }
}

/// A text that arrives. Most arrive whole.
#[derive(Debug)]
pub(crate) enum ArrivingText {
    Begins(StringSyntax),
    Partial(Box<TextReader>),
}

impl ArrivingText {
    /// Continues the text. Returns its effects if these bytes are its last.
    pub(crate) fn read(&mut self, bytes: &[u8], is_last: bool) -> Option<Effects> {
        match self {
            Self::Begins(string_syntax) if is_last => return Some(Effects::of(bytes, *string_syntax)),
            Self::Begins(_) if bytes.is_empty() => return None,
            Self::Begins(string_syntax) => *self = Self::Partial(Box::new(TextReader::new(*string_syntax))),
            Self::Partial(_) => {}
        }
        let Self::Partial(reader) = self else { return None };
        reader.read(bytes);
        is_last.then(|| reader.end())
    }
}

/// Scans a text in pieces, cut anywhere.
#[derive(Debug)]
pub struct TextReader {
    lexer: Lexer,
    scanner: EffectsScanner,
}

/// The state after the tokens read so far.
#[derive(Debug, Default)]
struct EffectsScanner {
    effects: Effects,
    statement: StatementState,
    name: Name,
    /// Whether the last word was `INSERT` or `MERGE`, so that a following `INTO` creates nothing.
    adds_rows: bool,
}

/// A name that may have further parts.
#[derive(Debug, Default)]
struct Name {
    /// Its parts, separated by dots.
    text: TokenText,
    quoting: Quoting,
    state: NameState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Quoting {
    /// Without quotes: it may be a key word.
    #[default]
    Bare,
    /// At least one part is quoted.
    Quoted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum NameState {
    #[default]
    None,
    Part,
    /// After a dot.
    Dot,
}

/// The state within a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum StatementState {
    /// Before the first word.
    #[default]
    Begin,
    /// Only words that matter everywhere are still of interest.
    Other,
    Set,
    SetSession,
    /// After a name: `SET TIME`, whose next word is `ZONE`, `SET SESSION CHARACTERISTICS`.
    SetDone,
    Reset,
    Prepare,
    Deallocate,
    Discard,
    Declare,
    /// After `WITH` in a `DECLARE`.
    With,
    /// The explained statement may be executed.
    Explain,
    Create,
    Into,
}

impl TextReader {
    /// `string_syntax`: how the server will read string literals.
    pub fn new(string_syntax: StringSyntax) -> Self {
        Self { lexer: Lexer::new(string_syntax), scanner: EffectsScanner::default() }
    }

    pub fn read(&mut self, text: &[u8]) {
        let Self { lexer, scanner } = self;
        lexer.read(text, &mut |token| scanner.token(token));
    }

    /// Ends the text and returns its effects.
    pub fn end(&mut self) -> Effects {
        let Self { lexer, scanner } = self;
        lexer.end(&mut |token| scanner.token(token));
        scanner.end_name(None);
        std::mem::take(&mut scanner.effects)
    }
}

impl EffectsScanner {
    fn token(&mut self, token: Token<'_>) {
        match token {
            Token::Word(word) => self.part(word, Quoting::Bare),
            Token::Name(name) => self.part(name, Quoting::Quoted),
            Token::Sign(b'.') if self.name.state == NameState::Part => self.name.state = NameState::Dot,
            token => {
                self.end_name(Some(token));
                match token {
                    Token::Sign(b';') => self.statement = StatementState::Begin,
                    Token::Unclear(reason) => {
                        self.effects.remains = Remains::Anything;
                        self.effects.pins(reason);
                    }
                    _ => {}
                }
            }
        }
    }

    /// A name, or another part of one.
    fn part(&mut self, part: &[u8], quoting: Quoting) {
        if self.name.state == NameState::Dot {
            append(&mut self.name.text, b".");
        } else {
            self.end_name(None);
            self.name.quoting = Quoting::Bare;
            self.name.text.clear();
        }
        append(&mut self.name.text, part);
        self.name.state = NameState::Part;
        if quoting == Quoting::Quoted {
            self.name.quoting = Quoting::Quoted;
        }
    }

    /// The name is complete; `next` follows it.
    fn end_name(&mut self, next: Option<Token<'_>>) {
        if self.name.state == NameState::None {
            return;
        }
        self.name.state = NameState::None;
        if !self.is_data_access(next) {
            self.effects.remains = Remains::Anything;
        }
        let (name, is_bare) = (self.name.text.as_slice(), self.name.quoting == Quoting::Bare);
        self.adds_rows = is_bare && matches!(name, b"insert" | b"merge");
        let (statement, effects) = (self.statement, &mut self.effects);
        self.statement =
            if is_bare { self::next(statement, name, effects) } else { named(statement, name, effects) };
        // A quoted name may be a column.
        if is_bare || next == Some(Token::Sign(b'(')) || name.contains(&b'.') {
            anywhere(name, effects);
        }
    }

    /// Whether a statement with the current name, before this token, is plain data access as far as the name shows.
    fn is_data_access(&self, next: Option<Token<'_>>) -> bool {
        let (name, is_bare) = (self.name.text.as_slice(), self.name.quoting == Quoting::Bare);
        if self.statement == StatementState::Begin {
            return is_bare && data_access::is_verb(name);
        }
        if is_bare && name == b"into" {
            return self.adds_rows;
        }
        // The columns of an `INSERT INTO table (…)`.
        let is_target = self.statement == StatementState::Into;
        let is_before_parenthesis = next == Some(Token::Sign(b'('));
        !is_before_parenthesis || is_target || is_bare && data_access::is_plain_before_parenthesis(name)
    }
}

/// The state after the next word.
fn next(statement: StatementState, word: &[u8], effects: &mut Effects) -> StatementState {
    match (statement, word) {
        (StatementState::Begin, _) => first(word, effects),
        (StatementState::Set, b"local" | b"transaction" | b"constraints")
        | (StatementState::Prepare, b"transaction") => StatementState::Other,
        (StatementState::Set, b"session") => StatementState::SetSession,
        (StatementState::Set | StatementState::SetSession | StatementState::Reset, _) => {
            setting(word, effects);
            StatementState::SetDone
        }
        (StatementState::Prepare, _) => {
            effects.pins("PREPARE");
            StatementState::Other
        }
        (StatementState::Deallocate, b"prepare") => StatementState::Deallocate,
        (StatementState::Deallocate, b"all") => {
            effects.deallocated = Deallocated::All;
            StatementState::Other
        }
        (StatementState::Deallocate, name) => {
            effects.deallocate(name);
            StatementState::Other
        }
        (StatementState::Discard, b"all") => {
            effects.discard = Discard::All;
            StatementState::Other
        }
        (StatementState::Declare, b"with") => StatementState::With,
        (StatementState::With, b"hold") => {
            effects.pins("a cursor WITH HOLD");
            StatementState::Other
        }
        (StatementState::With, _) => StatementState::Declare,
        (StatementState::Create | StatementState::Into, b"temp" | b"temporary") => {
            effects.pins("a temporary table");
            StatementState::Other
        }
        (StatementState::Create, b"or" | b"replace" | b"global" | b"local")
        | (StatementState::Explain, b"create") => StatementState::Create,
        (StatementState::Other | StatementState::Into | StatementState::Explain, b"into") => {
            StatementState::Into
        }
        (StatementState::Discard | StatementState::Create | StatementState::Into, _) => StatementState::Other,
        (other, _) => other,
    }
}

/// The state after the first word.
fn first(word: &[u8], effects: &mut Effects) -> StatementState {
    match word {
        b"set" => StatementState::Set,
        b"reset" => StatementState::Reset,
        b"prepare" => StatementState::Prepare,
        b"deallocate" => StatementState::Deallocate,
        b"discard" => StatementState::Discard,
        b"declare" => StatementState::Declare,
        b"create" => StatementState::Create,
        b"explain" => StatementState::Explain,
        b"listen" => {
            effects.pins("LISTEN");
            StatementState::Other
        }
        b"load" => {
            effects.pins("LOAD");
            StatementState::Other
        }
        // The effects of a block are not visible.
        b"do" => {
            effects.pins("DO");
            StatementState::Other
        }
        _ => StatementState::Other,
    }
}

/// A quoted name.
fn named(statement: StatementState, name: &[u8], effects: &mut Effects) -> StatementState {
    match statement {
        StatementState::Set | StatementState::SetSession | StatementState::Reset => {
            effects.sets(name);
            StatementState::SetDone
        }
        StatementState::Deallocate => {
            effects.deallocate(name);
            StatementState::Other
        }
        StatementState::Prepare => {
            effects.pins("PREPARE");
            StatementState::Other
        }
        other => other,
    }
}

/// The setting named after `SET` or `RESET`.
fn setting(word: &[u8], effects: &mut Effects) {
    match word {
        b"time" => effects.sets(b"TimeZone"),
        b"names" => effects.sets(b"client_encoding"),
        b"xml" => effects.sets(b"xmloption"),
        b"schema" => effects.sets(b"search_path"),
        b"characteristics" => effects.pins("SET SESSION CHARACTERISTICS"),
        b"authorization" | b"session" | b"session_authorization" => {
            effects.pins("SET SESSION AUTHORIZATION");
        }
        b"all" => effects.pins("RESET ALL"),
        b"seed" => effects.pins("SET SEED"),
        name => effects.sets(name),
    }
}

/// Words that matter everywhere.
fn anywhere(word: &[u8], effects: &mut Effects) {
    let function = word.rsplit(|byte| *byte == b'.').next().unwrap_or(word);
    match function {
        b"pg_advisory_lock"
        | b"pg_advisory_lock_shared"
        | b"pg_try_advisory_lock"
        | b"pg_try_advisory_lock_shared" => effects.pins("an advisory lock"),
        b"set_config" => effects.pins("set_config"),
        b"setseed" => effects.pins("setseed"),
        b"dblink_connect" | b"dblink_connect_u" => effects.pins("dblink"),
        _ if word.starts_with(b"pg_temp") => effects.pins("a temporary table"),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
