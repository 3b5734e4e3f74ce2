//! Scans the tokens of a text for its effects.

use crate::postgres::codec::text_rules::StringSyntax;
use crate::postgres::sql::{
    data_access,
    effects::{
        Discard, Effects, MAX_NAME_BYTES, NameUse, NamedStatements, ReadingChange, Remains, SetConfig,
        StatementVerb,
    },
    lexer::{Lexer, Token, TokenText, append},
};

mod settings;

use settings::{by_its_name, sets_config, sets_unknown, setting};

/// The schema of temporary tables, and how the names of its own schemas begin.
const TEMPORARY_SCHEMA: &[u8] = b"pg_temp";

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

impl Effects {
    /// The effects of a complete text.
    pub fn of(text: &[u8], string_syntax: StringSyntax) -> Self {
        let mut reader = TextReader::new(string_syntax);
        reader.read(text);
        reader.end()
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
    last_word: LastWord,
    /// The name of a setting, while `last_word` is `ConfigName`.
    set_config: TokenText,
    /// Whether the verb of the first statement was read.
    has_verb: bool,
    queries: Queries,
    /// The number of open parentheses.
    depth: u32,
    /// Whether the text has the word `UPDATE`.
    updates: bool,
    /// Whether the statement is an `ALTER` or a `CREATE`, in which `SET` and `RESET` define custom settings.
    is_definition: bool,
    #[cfg(test)]
    thoroughness: Thoroughness,
}

#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Thoroughness {
    #[default]
    Usual,
    /// No name is passed over.
    EveryName,
}

/// Whether the statement has the word `SELECT` so far, outside of parentheses that are closed. Behind it, `INSERT` and `MERGE`
/// may be names of columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Queries {
    #[default]
    None,
    /// Within this number of open parentheses.
    Within(u32),
}

/// The last word, as far as the next one depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum LastWord {
    #[default]
    Other,
    /// `INSERT` or `MERGE`, not behind a `SELECT`: a following `INTO` creates nothing.
    AddsRows,
    /// `AS` in a definition: an `EXECUTE` may follow.
    As,
    /// `EXECUTE` where a prepared statement may be executed: its name follows.
    Execute,
    /// `SET` or `RESET`: the name of a setting may follow.
    Set,
    SetConfig,
    /// `set_config` and its parenthesis: the name of a setting follows.
    ConfigArguments,
    /// The name as a literal: a comma follows.
    ConfigName,
}

impl LastWord {
    fn of(bare: Option<&[u8]>, queries: Queries) -> Self {
        match bare {
            Some(b"insert" | b"merge") if queries == Queries::None => Self::AddsRows,
            Some(b"set" | b"reset") => Self::Set,
            _ => Self::Other,
        }
    }
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
    /// After `SET search_path`.
    SearchPath,
    /// After `SET LOCAL`.
    SetLocal,
    Reset,
    Prepare,
    /// After `PREPARE TRANSACTION`: a literal follows, unless that is the name of a statement.
    PrepareTransaction,
    Deallocate,
    /// After `DEALLOCATE PREPARE`: a name follows, unless that is the name of a statement.
    DeallocatePrepare,
    Discard,
    Declare,
    /// After `WITH` in a `DECLARE`.
    With,
    /// The explained statement may be executed.
    Explain,
    Create,
    /// After `INTO`: the name of a table that is created.
    Into,
    /// After the `INTO` of a statement that adds rows to a table.
    Target,
}

impl TextReader {
    /// `string_syntax`: how the server will read string literals.
    pub fn new(string_syntax: StringSyntax) -> Self {
        Self { lexer: Lexer::new(string_syntax), scanner: EffectsScanner::default() }
    }

    /// A reader to compare others with.
    #[cfg(test)]
    pub(super) fn thorough(string_syntax: StringSyntax) -> Self {
        let mut reader = Self::new(string_syntax);
        reader.scanner.thoroughness = Thoroughness::EveryName;
        reader
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
        scanner.end_key_words(None);
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
                self.end_key_words(Some(token));
                self.argument(token);
                match token {
                    Token::Sign(b';') => {
                        self.statement = StatementState::Begin;
                        (self.depth, self.queries) = (0, Queries::None);
                    }
                    Token::Sign(b'(') => self.depth = self.depth.saturating_add(1),
                    Token::Sign(b')') => self.close(),
                    Token::Unclear(reason) => {
                        self.effects.remains = Remains::Anything;
                        self.effects.named = NamedStatements::Any;
                        self.effects.changes_reading(ReadingChange::Constants);
                        self.effects.pins(reason);
                    }
                    Token::Literal(text) => self.literal(text),
                    Token::LongLiteral { has_time: true } => self.literal(None),
                    // The server refuses it as a name.
                    Token::LongLiteral { has_time: false } => self.literal(Some(b"0")),
                    _ => {}
                }
            }
        }
    }

    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        if matches!(self.queries, Queries::Within(depth) if depth > self.depth) {
            self.queries = Queries::None;
        }
    }

    /// Key words that turn out to be the name of a statement, as another token than a name follows.
    fn end_key_words(&mut self, next: Option<Token<'_>>) {
        self.statement = match (self.statement, next) {
            (StatementState::PrepareTransaction, Some(Token::Literal(_) | Token::LongLiteral { .. })) => {
                StatementState::Other
            }
            (StatementState::PrepareTransaction, _) => prepares(b"transaction", &mut self.effects),
            (StatementState::DeallocatePrepare, _) => {
                self.effects.deallocate(b"prepare");
                StatementState::Other
            }
            (statement, _) => statement,
        };
    }

    /// Reads the arguments of `set_config` up to the comma behind the name of the setting.
    fn argument(&mut self, token: Token<'_>) {
        let next = match (self.last_word, token) {
            (LastWord::SetConfig, Token::Sign(b'(')) => LastWord::ConfigArguments,
            (LastWord::ConfigArguments, Token::Literal(Some(name))) => {
                self.set_config.clear();
                append(&mut self.set_config, name);
                LastWord::ConfigName
            }
            (LastWord::ConfigName, Token::Sign(b',')) => {
                sets_config(self.set_config.as_slice(), &mut self.effects);
                LastWord::Other
            }
            (LastWord::ConfigArguments | LastWord::ConfigName, _) => {
                sets_unknown(&mut self.effects);
                LastWord::Other
            }
            (last_word, Token::Unclear(_)) => last_word,
            _ => LastWord::Other,
        };
        self.last_word = next;
    }

    fn literal(&mut self, text: Option<&[u8]>) {
        self.effects.has_constant(text);
        let is_temporary = |text: &[u8]| {
            let names = text.windows(TEMPORARY_SCHEMA.len());
            names.into_iter().any(|name| name.eq_ignore_ascii_case(TEMPORARY_SCHEMA))
        };
        if self.statement == StatementState::SearchPath && text.is_none_or(is_temporary) {
            self.effects.pins("a temporary table");
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
        // As servers do. Where they cut one that is not ASCII depends on the encoding.
        let is_cut = part.len() > MAX_NAME_BYTES && part.is_ascii();
        append(&mut self.name.text, if is_cut { &part[..MAX_NAME_BYTES] } else { part });
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
        if self.is_without_effect(next) {
            return;
        }
        if !self.is_data_access(next) {
            self.effects.remains = Remains::Anything;
        }
        let (name, is_bare) = (self.name.text.as_slice(), self.name.quoting == Quoting::Bare);
        let function = name.rsplit(|byte| *byte == b'.').next();
        let next_word = match name {
            _ if function == Some(b"set_config") => LastWord::SetConfig,
            b"as" if is_bare && self.is_definition => LastWord::As,
            b"execute" if is_bare && self.may_execute() => LastWord::Execute,
            _ => LastWord::of(is_bare.then_some(name), self.queries),
        };
        let last_word = std::mem::replace(&mut self.last_word, next_word);
        if matches!(last_word, LastWord::ConfigArguments | LastWord::ConfigName) {
            sets_unknown(&mut self.effects);
        }
        self.updates |= is_bare && name == b"update";
        if is_bare && name == b"select" && self.queries == Queries::None {
            self.queries = Queries::Within(self.depth);
        }
        if matches!(self.statement, StatementState::Begin | StatementState::Explain) {
            self.is_definition = is_bare && matches!(name, b"alter" | b"create");
        } else if last_word == LastWord::Set && self.is_definition && name.contains(&b'.') {
            self.effects.pins("a custom setting");
            self.effects.calls_set_config = SetConfig::MayDefineCustom;
        }
        if !std::mem::replace(&mut self.has_verb, true) && is_bare {
            self.effects.verb = match name {
                b"select" | b"values" | b"table" => StatementVerb::Query,
                b"insert" | b"update" | b"delete" | b"merge" | b"with" => StatementVerb::Write,
                b"fetch" => StatementVerb::Fetch,
                _ => StatementVerb::Other,
            };
        }
        let (statement, effects) = (self.statement, &mut self.effects);
        if last_word == LastWord::Execute {
            effects.names(NameUse::Executes, name);
        }
        if self.updates && function == Some(b"pg_settings") {
            effects.remains = Remains::Anything;
            effects.pins("an UPDATE of pg_settings");
        }
        let next_statement =
            if is_bare { self::next(statement, name, effects) } else { named(statement, name, effects) };
        let adds_rows = last_word == LastWord::AddsRows && next_statement == StatementState::Into;
        self.statement = if adds_rows { StatementState::Target } else { next_statement };
        // A quoted name may be a column.
        if is_bare || next == Some(Token::Sign(b'(')) || name.contains(&b'.') {
            word_effects(name, effects);
        } else if name.starts_with(TEMPORARY_SCHEMA) {
            effects.pins("a temporary table");
        }
    }

    /// Whether an `EXECUTE` here executes a prepared statement. It is also a privilege, and a part of `CREATE TRIGGER`.
    fn may_execute(&self) -> bool {
        matches!(self.statement, StatementState::Begin | StatementState::Explain)
            || self.last_word == LastWord::As
    }

    /// Whether the current name, before this token, is one of the many that change nothing here: within a statement, behind
    /// no word of interest, and none itself.
    fn is_without_effect(&self, next: Option<Token<'_>>) -> bool {
        #[cfg(test)]
        if self.thoroughness == Thoroughness::EveryName {
            return false;
        }
        self.statement == StatementState::Other
            && self.last_word == LastWord::Other
            && self.name.quoting == Quoting::Bare
            && next != Some(Token::Sign(b'('))
            && !may_matter_within(self.name.text.as_slice())
            && !(self.is_definition && self.name.text.as_slice() == b"as")
    }

    /// Whether a statement with the current name, before this token, is plain data access as far as the name shows.
    fn is_data_access(&self, next: Option<Token<'_>>) -> bool {
        let (name, is_bare) = (self.name.text.as_slice(), self.name.quoting == Quoting::Bare);
        if self.statement == StatementState::Begin {
            return is_bare && data_access::is_verb(name);
        }
        if is_bare && name == b"into" {
            return self.last_word == LastWord::AddsRows;
        }
        // The columns of an `INSERT INTO table (…)`.
        let is_target = matches!(self.statement, StatementState::Into | StatementState::Target);
        let is_before_parenthesis = next == Some(Token::Sign(b'('));
        !is_before_parenthesis || is_target || is_bare && data_access::is_plain_before_parenthesis(name)
    }
}

/// Whether a word, or a name with dots, may matter within a statement that is of no more interest. Decided by its
/// beginning, which is fast.
fn may_matter_within(name: &[u8]) -> bool {
    let begins_like_one =
        matches!(name, [b'd', b'b', b'l', ..] | [b'p', b'g', b'_', ..] | [b's', b'e', b't', ..]);
    begins_like_one
        || matches!(name, b"insert" | b"into" | b"merge" | b"reset" | b"select" | b"update")
        || name.contains(&b'.')
}

/// The state after the next word.
fn next(statement: StatementState, word: &[u8], effects: &mut Effects) -> StatementState {
    match (statement, word) {
        (StatementState::Begin, _) => first(word, effects),
        (StatementState::Set, b"transaction" | b"constraints") => StatementState::Other,
        (StatementState::Prepare, b"transaction") => StatementState::PrepareTransaction,
        (StatementState::Set, b"local") => StatementState::SetLocal,
        (StatementState::SetLocal, _) => local(word, effects),
        (StatementState::Set, b"session") => StatementState::SetSession,
        (StatementState::Set | StatementState::SetSession | StatementState::Reset, _) => {
            setting(word, effects);
            after_name(word)
        }
        (StatementState::Prepare, name) => prepares(name, effects),
        (StatementState::PrepareTransaction, _) => prepares(b"transaction", effects),
        (StatementState::Deallocate, b"prepare") => StatementState::DeallocatePrepare,
        (StatementState::Deallocate | StatementState::DeallocatePrepare, b"all") => {
            effects.deallocate_all();
            StatementState::Other
        }
        (StatementState::Deallocate | StatementState::DeallocatePrepare, name) => {
            effects.deallocate(name);
            StatementState::Other
        }
        (StatementState::Discard, b"all") => {
            effects.discard = Discard::All;
            StatementState::Other
        }
        // The server analyses its prepared statements anew, and reads their constants with the present settings.
        (StatementState::Discard, b"plans") => {
            effects.discard = Discard::Plans;
            effects.pins("DISCARD PLANS");
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
        (StatementState::Other | StatementState::Into | StatementState::Explain, b"into")
        | (StatementState::Into, b"global" | b"local") => StatementState::Into,
        (
            StatementState::Discard | StatementState::Create | StatementState::Into | StatementState::Target,
            _,
        ) => StatementState::Other,
        (other, _) => other,
    }
}

/// A statement of this name is prepared.
fn prepares(name: &[u8], effects: &mut Effects) -> StatementState {
    effects.names(NameUse::Mentions, name);
    effects.pins("PREPARE");
    StatementState::Other
}

/// The state after the name of a setting.
fn after_name(name: &[u8]) -> StatementState {
    let is_path = name == b"schema" || name.eq_ignore_ascii_case(b"search_path");
    if is_path { StatementState::SearchPath } else { StatementState::SetDone }
}

/// The setting named after `SET LOCAL`.
fn local(name: &[u8], effects: &mut Effects) -> StatementState {
    if name.contains(&b'.') {
        effects.sets_local_custom(name);
    }
    effects.changes_reading(ReadingChange::of_setting(by_its_name(name)));
    after_name(name)
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
            effects.changes_reading(ReadingChange::Constants);
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
            // The only ones of them that are also settings.
            let known = [&b"session_authorization"[..], b"seed"];
            let known = known.into_iter().find(|known| name.eq_ignore_ascii_case(known));
            match known {
                Some(known) => setting(known, effects),
                None => effects.sets(name),
            }
            after_name(name)
        }
        StatementState::SetLocal => local(name, effects),
        StatementState::Deallocate | StatementState::DeallocatePrepare => {
            effects.deallocate(name);
            StatementState::Other
        }
        StatementState::Prepare => prepares(name, effects),
        StatementState::Target => StatementState::Other,
        other => other,
    }
}

/// Words that matter everywhere.
fn word_effects(word: &[u8], effects: &mut Effects) {
    let function = word.rsplit(|byte| *byte == b'.').next().unwrap_or(word);
    match function {
        b"pg_advisory_lock"
        | b"pg_advisory_lock_shared"
        | b"pg_try_advisory_lock"
        | b"pg_try_advisory_lock_shared" => effects.pins("an advisory lock"),
        b"setseed" => effects.pins("setseed"),
        b"dblink_connect" | b"dblink_connect_u" => effects.pins("dblink"),
        b"connectby"
        | b"crosstab"
        | b"crosstab2"
        | b"crosstab3"
        | b"crosstab4"
        | b"query_to_xml"
        | b"query_to_xml_and_xmlschema"
        | b"query_to_xmlschema"
        | b"ts_rewrite"
        | b"ts_stat"
        | b"xpath_table" => {
            effects.pins("a function that executes a text");
        }
        _ if word.starts_with(TEMPORARY_SCHEMA) => effects.pins("a temporary table"),
        _ => {}
    }
}
