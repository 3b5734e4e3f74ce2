//! Which effects of a command outlive its transaction, as far as its text shows: settings, prepared
//! statements, and state that is bound to the connection.
//!
//! This scans tokens; it does not parse SQL. A false positive pins a client to its connection. Effects of
//! functions are not seen. It must not be relied on to isolate clients.

use crate::postgres::sql::lexer::{Lexer, MAX_TOKEN_BYTES, Token};

pub(crate) use crate::postgres::sql::lexer::StringSyntax;

/// Settings changed in one transaction; more pin the connection.
const MAX_SETTINGS: usize = 16;
/// Prepared statements that one text may deallocate by name; more pin the connection.
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
    /// Whether no effect outlives the transaction.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
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

    /// Adds the effects of another command, except `deallocated`, which applies to each command.
    pub fn merge(&mut self, other: &Self) {
        for name in &other.settings {
            self.sets(name);
        }
        self.pin = self.pin.or(other.pin);
        if other.discard == Discard::All {
            self.discard = Discard::All;
        }
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
}

/// A name that may have further parts.
#[derive(Debug, Default)]
struct Name {
    /// Its parts, separated by dots.
    text: Vec<u8>,
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
    pub fn end(mut self) -> Effects {
        let Self { lexer, scanner } = &mut self;
        lexer.end(&mut |token| scanner.token(token));
        scanner.end_name(None);
        self.scanner.effects
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
                    Token::Unclear(reason) => self.effects.pins(reason),
                    _ => {}
                }
            }
        }
    }

    /// A name, or another part of one.
    fn part(&mut self, part: &[u8], quoting: Quoting) {
        if self.name.state == NameState::Dot {
            self.name.text.push(b'.');
        } else {
            self.end_name(None);
            self.name.quoting = Quoting::Bare;
        }
        self.name.text.extend_from_slice(part);
        self.name.text.truncate(MAX_TOKEN_BYTES);
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
        let mut name = std::mem::take(&mut self.name.text);
        let (statement, effects) = (self.statement, &mut self.effects);
        self.statement = match self.name.quoting {
            Quoting::Bare => self::next(statement, &name, effects),
            Quoting::Quoted => named(statement, &name, effects),
        };
        // A quoted name may be a column.
        if self.name.quoting == Quoting::Bare || next == Some(Token::Sign(b'(')) || name.contains(&b'.') {
            anywhere(&name, effects);
        }
        name.clear();
        self.name.text = name;
        self.name.state = NameState::None;
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(text: &str) -> Effects {
        Effects::of(text.as_bytes(), StringSyntax::Standard)
    }

    fn settings(text: &str) -> Vec<String> {
        let effects = of(text);
        assert_eq!((effects.pin, &effects.deallocated), (None, &Deallocated::None), "{text}");
        effects.settings.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    }

    fn pin(text: &str) -> Option<&'static str> {
        of(text).pin
    }

    #[test]
    fn settings_are_found_in_every_notation() {
        for (text, name) in [
            ("SET statement_timeout = 5", "statement_timeout"),
            ("set\n session /* so /* it */ is */ Search_Path to a, b", "search_path"),
            ("SET TIME ZONE 'UTC'", "TimeZone"),
            ("SET NAMES 'UTF8'", "client_encoding"),
            ("SET ROLE app", "role"),
            ("RESET work_mem", "work_mem"),
            ("SET my.own = '1'", "my.own"),
            ("SET \"My Own\" = '1'", "My Own"),
            ("BEGIN; UPDATE t SET a = 1; -- set b\n SET geqo = off", "geqo"),
        ] {
            assert_eq!(settings(text), [name], "{text}");
        }
    }

    #[test]
    fn effects_within_the_transaction_are_ignored() {
        for text in [
            "SELECT 1",
            "UPDATE t SET a = 1 WHERE b = '; SET x = 1'",
            "SET LOCAL work_mem = 1",
            "SET TRANSACTION READ ONLY",
            "INSERT INTO t VALUES ($1, $a$; SET x = 1; listen y$a$, E'it''s; load')",
            "CREATE TABLE temp_table (a int)",
            "SELECT pg_advisory_xact_lock(1)",
            "DECLARE c CURSOR FOR SELECT 1",
            "PREPARE TRANSACTION 'x'",
            "SELECT \"set_config\" FROM t /* ; SET x = 1 */",
            "DISCARD PLANS",
            "",
        ] {
            assert!(of(text).is_none(), "{text}: {:?}", of(text));
        }
    }

    #[test]
    fn connection_bound_state_pins() {
        for text in [
            "CREATE TEMP TABLE t (a int)",
            "create local temporary view v as select 1",
            "SELECT 1 INTO TEMP t",
            "LISTEN news",
            "SELECT pg_catalog.pg_try_advisory_lock(1)",
            "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
            "PREPARE p AS SELECT 1",
            "DO $$ BEGIN END $$",
            "SELECT set_config('a.b', '1', false)",
            "RESET ALL",
            "SET SESSION AUTHORIZATION app",
            "LOAD 'auto_explain'",
            "CREATE TABLE pg_temp.t (a int)",
        ] {
            assert!(pin(text).is_some(), "{text}");
        }
    }

    /// Statements after literals, comments and names that look as if they continued.
    #[test]
    fn statements_after_a_literal_are_read() {
        for text in [
            r"SELECT E'\'x'; LISTEN y",
            "SELECT E'a'\n'\\'b'; LISTEN y",
            "SELECT E'a' -- \\\n -- '\n '\\'b'; LISTEN y",
            r"SELECT E'a''\'b'; LISTEN y",
            r"SELECT N'a\'; LISTEN y",
            r"SELECT 'a\'; LISTEN y",
            r"SELECT U&'\0061\'; LISTEN y",
            r#"SELECT 1 AS "a""'"; LISTEN y"#,
            "SELECT 1 -- '\rFROM t; LISTEN y",
            "SELECT $1$a$ AS $a$; LISTEN y",
            "SELECT a$b$c, 1; LISTEN y; SELECT a$b$c",
            "SELECT $é$ ' $é$; LISTEN y",
            "EXPLAIN ANALYZE CREATE TEMP TABLE t AS SELECT 1",
            "SELECT \"pg_catalog\" . \"set_config\" ('a.b', '1', false)",
            "SELECT \"set_config\"('a.b', '1', false)",
        ] {
            assert!(pin(text).is_some(), "{text}");
        }
        assert_eq!(settings(r#"SET "my" . own = '\'; SET geqo = off"#), ["my.own", "geqo"]);
        assert_eq!(settings(r#"SET "a"".b" = 1"#), ["a\".b"]);
    }

    #[test]
    fn statements_in_a_literal_are_ignored() {
        for text in [
            r"SELECT E'\'; LISTEN y; --'",
            "SELECT E'a'\n'\\'; LISTEN y; --'",
            "SELECT 'a' -- '\n'; LISTEN y; --'",
            "SELECT B'1' '; LISTEN y; --'",
            "SELECT 1 AS \"a\"\"; LISTEN y; --\"",
            "SELECT $1$a$; LISTEN y; $a$",
        ] {
            assert_eq!(pin(text), None, "{text}");
        }
    }

    #[test]
    fn backslashes_follow_the_server_setting() {
        let pin = |text: &str, string_syntax| Effects::of(text.as_bytes(), string_syntax).pin;
        let (behind, within) = (r"SELECT 'a\'; LISTEN y", r"SELECT 'a\'; LISTEN y; --'");
        assert_eq!(pin(behind, StringSyntax::Standard), Some("LISTEN"));
        assert_eq!(pin(within, StringSyntax::Escaped), None);
        assert_eq!(pin(r"SELECT '\''; LISTEN y; --'", StringSyntax::Escaped), Some("LISTEN"));
        for text in [behind, within] {
            assert!(pin(text, StringSyntax::Unknown).is_some(), "{text}");
        }
        assert_eq!(pin(r"SELECT '\\', 'C:\dir', E'\''", StringSyntax::Unknown), None);
        assert_eq!(
            pin("SET standard_conforming_strings = off", StringSyntax::Standard),
            Some("standard_conforming_strings")
        );
    }

    #[test]
    fn unreadable_texts_pin() {
        let long = format!("SELECT ${0}$ ' ${0}$", "a".repeat(200));
        for text in [long.as_str(), "SET U&\"\\0061\" = 1", &format!("SET {}.b = 1", "a".repeat(200))] {
            assert!(pin(text).is_some(), "{text}");
        }
    }

    #[test]
    fn memory_does_not_grow_with_the_text() {
        let names = |count: usize| {
            (0..count).map(|number| format!("DEALLOCATE s{number}")).collect::<Vec<_>>().join(";")
        };
        assert!(
            matches!(of(&names(MAX_DEALLOCATED)).deallocated, Deallocated::Named(names) if names.len() == MAX_DEALLOCATED)
        );
        let many = of(&names(100_000));
        assert_eq!((many.deallocated, many.pin.is_some()), (Deallocated::All, true));
        assert_eq!(of(&"DEALLOCATE a;".repeat(100_000)).deallocated, Deallocated::Named(vec![b"a".to_vec()]));
        let long = of(&format!("DEALLOCATE {}", "a".repeat(64)));
        assert_eq!((long.deallocated, long.pin.is_some()), (Deallocated::All, true));
    }

    #[test]
    fn prepared_statements_are_deallocated_by_name() {
        let named =
            |names: &[&str]| Deallocated::Named(names.iter().map(|name| name.as_bytes().to_vec()).collect());
        let deallocated = |text: &str| of(text).deallocated;
        assert_eq!(deallocated("DEALLOCATE S_1; deallocate prepare \"S 2\""), named(&["s_1", "S 2"]));
        assert_eq!(deallocated("DEALLOCATE a; DEALLOCATE ALL"), Deallocated::All);
        assert_eq!(deallocated("DEALLOCATE a; DEALLOCATE a"), named(&["a"]));
        assert_eq!(of("DISCARD ALL").discard, Discard::All);
    }

    proptest! {
        #[test]
        fn a_text_may_be_cut_anywhere(
            text in "(SET|LISTEN|[a-z_.]{1,9}|[EUBXNu]|[;'\"$/*&\\\\\n\r-]|\\$a\\$| ){0,40}",
            string_syntax in prop::sample::select(vec![StringSyntax::Standard, StringSyntax::Escaped, StringSyntax::Unknown]),
            cuts in proptest::collection::vec(0_usize..100, 0..6),
        ) {
            let mut reader = TextReader::new(string_syntax);
            let mut rest = text.as_bytes();
            for cut in cuts {
                let (piece, behind) = rest.split_at(cut.min(rest.len()));
                reader.read(piece);
                rest = behind;
            }
            reader.read(rest);
            prop_assert_eq!(reader.end(), Effects::of(text.as_bytes(), string_syntax));
        }
    }
}
