//! What of a command's text outlives its transaction, as far as the text tells: settings, prepared statements, and state
//! that only its own connection has.
//!
//! This is a reading of words, and not of SQL. Where it sees too much, a client keeps a connection that others could
//! have had; what functions do out of sight it does not see. It must not be relied on to keep clients apart.

/// Settings of one transaction; more are state that is kept where it is.
const MAX_SETTINGS: usize = 16;
/// Of a word, what is told apart; `pg_try_advisory_lock_shared` has 27 bytes, and a setting's name at most 63, twice.
const MAX_WORD_BYTES: usize = 128;

/// What outlives a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Effects {
    /// Settings that may have other values now.
    pub settings: Vec<Vec<u8>>,
    /// State that cannot be had on another connection, and what it is.
    pub pin: Option<&'static str>,
    /// Prepared statements that are no more.
    pub forgets: Forgets,
    /// `DISCARD ALL` was said.
    pub discards: Discards,
}

/// Prepared statements that are no more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Forgets {
    /// None.
    #[default]
    None,
    /// These.
    Named(Vec<Vec<u8>>),
    /// All.
    All,
}

/// Whether a client has given up all that its session had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Discards {
    /// It has not.
    #[default]
    Nothing,
    /// It has.
    All,
}

impl Effects {
    /// Whether nothing is known to outlive the transaction.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The effects of a text that is there as a whole.
    pub fn of(text: &[u8]) -> Self {
        let mut effects = Self::default();
        let mut reader = TextReader::default();
        reader.read(text, &mut effects);
        reader.end(&mut effects);
        effects
    }

    /// Takes over what another command does.
    pub fn merge(&mut self, other: &Self) {
        for name in &other.settings {
            self.sets(name);
        }
        self.pin = self.pin.or(other.pin);
        match &other.forgets {
            Forgets::None => {}
            Forgets::Named(names) => names.iter().for_each(|name| self.forgets(name)),
            Forgets::All => self.forgets = Forgets::All,
        }
        if other.discards == Discards::All {
            self.discards = Discards::All;
        }
    }

    fn sets(&mut self, name: &[u8]) {
        if self.settings.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            return;
        }
        if self.settings.len() < MAX_SETTINGS {
            self.settings.push(name.to_vec());
        } else {
            self.pins("many settings");
        }
    }

    fn pins(&mut self, what: &'static str) {
        self.pin.get_or_insert(what);
    }

    fn forgets(&mut self, name: &[u8]) {
        match &mut self.forgets {
            Forgets::All => {}
            Forgets::None => self.forgets = Forgets::Named(vec![name.to_vec()]),
            Forgets::Named(names) => names.push(name.to_vec()),
        }
    }
}

/// Reads a text in pieces, however it is cut.
#[derive(Debug, Default)]
pub struct TextReader {
    place: Place,
    word: Vec<u8>,
    statement: Statement,
}

/// Where in a text one is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Place {
    #[default]
    Plain,
    /// In a word, or a name of parts.
    Word,
    /// In `"…"`: a name as it is.
    Name,
    /// In `'…'`.
    Literal,
    Dash,
    LineComment,
    Slash,
    /// In `/*`s, so many deep, behind this byte.
    Comment {
        depth: u32,
        last: u8,
    },
    /// In the tag of a dollar quote.
    Tag(Vec<u8>),
    /// In a dollar quote that ends with this, of which so many bytes have come.
    Dollar {
        end: Vec<u8>,
        matched: usize,
    },
}

/// What the words of a statement so far make of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Statement {
    /// Its first word is still to come.
    #[default]
    Begin,
    /// Nothing more is to be learnt but of words that matter everywhere.
    Other,
    Set,
    SetSession,
    /// Behind a name: `SET TIME`, whose next word is `ZONE`, `SET SESSION CHARACTERISTICS`.
    SetDone,
    Reset,
    Prepare,
    Deallocate,
    Discard,
    Declare,
    /// Behind `WITH` in a `DECLARE`.
    With,
    Create,
    Into,
}

impl TextReader {
    /// Reads the next piece.
    pub fn read(&mut self, text: &[u8], effects: &mut Effects) {
        for byte in text {
            self.byte(*byte, effects);
        }
    }

    /// The text has ended.
    pub fn end(&mut self, effects: &mut Effects) {
        if self.place == Place::Word {
            self.word_ends(effects);
        }
        self.place = Place::Plain;
        self.statement = Statement::Begin;
    }

    #[inline]
    fn byte(&mut self, byte: u8, effects: &mut Effects) {
        match &mut self.place {
            Place::Plain => self.plain(byte),
            Place::Word if is_of_word(byte) => self.keep(byte.to_ascii_lowercase()),
            Place::Word => {
                self.word_ends(effects);
                self.place = Place::Plain;
                self.plain(byte);
            }
            Place::Literal if byte == b'\'' => self.place = Place::Plain,
            Place::Name if byte == b'"' => {
                self.word_ends(effects);
                self.place = Place::Plain;
            }
            Place::Name => self.keep(byte),
            Place::LineComment if byte == b'\n' => self.place = Place::Plain,
            Place::Literal | Place::LineComment => {}
            _ => self.rare(byte),
        }
    }

    /// What is seldom in a command.
    fn rare(&mut self, byte: u8) {
        match &mut self.place {
            Place::Dash if byte == b'-' => self.place = Place::LineComment,
            Place::Slash if byte == b'*' => self.place = Place::Comment { depth: 1, last: 0 },
            Place::Comment { depth, last } => match (*last, byte) {
                (b'*', b'/') if *depth == 1 => self.place = Place::Plain,
                (b'*', b'/') => (*depth, *last) = (*depth - 1, 0),
                (b'/', b'*') => (*depth, *last) = (depth.saturating_add(1), 0),
                _ => *last = byte,
            },
            Place::Tag(tag) if byte == b'$' => {
                tag.push(byte);
                self.place = Place::Dollar { end: std::mem::take(tag), matched: 0 };
            }
            Place::Tag(tag) if is_of_word(byte) && tag.len() < MAX_WORD_BYTES => tag.push(byte),
            Place::Dollar { end, matched } => {
                // An end begins with `$`, and has no other but its last byte.
                *matched =
                    if end.get(*matched) == Some(&byte) { *matched + 1 } else { usize::from(byte == b'$') };
                if *matched == end.len() {
                    self.place = Place::Plain;
                }
            }
            _ => {
                self.place = Place::Plain;
                self.plain(byte);
            }
        }
    }

    fn plain(&mut self, byte: u8) {
        match byte {
            b';' => self.statement = Statement::Begin,
            b'\'' => self.place = Place::Literal,
            b'"' => {
                self.word.clear();
                self.place = Place::Name;
            }
            b'-' => self.place = Place::Dash,
            b'/' => self.place = Place::Slash,
            b'$' => self.place = Place::Tag(vec![b'$']),
            b'_' | b'a'..=b'z' | b'A'..=b'Z' | 0x80.. => {
                self.word.clear();
                self.place = Place::Word;
                self.keep(byte.to_ascii_lowercase());
            }
            _ => {}
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.word.len() < MAX_WORD_BYTES {
            self.word.push(byte);
        }
    }

    fn word_ends(&mut self, effects: &mut Effects) {
        let word = std::mem::take(&mut self.word);
        self.statement = match self.place {
            Place::Word => next(self.statement, &word, effects),
            _ => named(self.statement, &word, effects),
        };
        if self.place == Place::Word {
            anywhere(&word, effects);
        }
        self.word = word;
    }
}

fn is_of_word(byte: u8) -> bool {
    // A dot joins the parts of a name.
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$' | 0x80..)
}

/// What the next word makes of a statement.
fn next(statement: Statement, word: &[u8], effects: &mut Effects) -> Statement {
    match (statement, word) {
        (Statement::Begin, _) => first(word, effects),
        (Statement::Set, b"local" | b"transaction" | b"constraints")
        | (Statement::Prepare, b"transaction") => Statement::Other,
        (Statement::Set, b"session") => Statement::SetSession,
        (Statement::Set | Statement::SetSession | Statement::Reset, _) => {
            setting(word, effects);
            Statement::SetDone
        }
        (Statement::Prepare, _) => {
            effects.pins("PREPARE");
            Statement::Other
        }
        (Statement::Deallocate, b"prepare") => Statement::Deallocate,
        (Statement::Deallocate, b"all") => {
            effects.forgets = Forgets::All;
            Statement::Other
        }
        (Statement::Deallocate, name) => {
            effects.forgets(name);
            Statement::Other
        }
        (Statement::Discard, b"all") => {
            effects.discards = Discards::All;
            Statement::Other
        }
        (Statement::Declare, b"with") => Statement::With,
        (Statement::With, b"hold") => {
            effects.pins("a cursor WITH HOLD");
            Statement::Other
        }
        (Statement::With, _) => Statement::Declare,
        (Statement::Create | Statement::Into, b"temp" | b"temporary") => {
            effects.pins("a temporary table");
            Statement::Other
        }
        (Statement::Create, b"or" | b"replace" | b"global" | b"local") => Statement::Create,
        (Statement::Other | Statement::Into, b"into") => Statement::Into,
        (Statement::Discard | Statement::Create | Statement::Into, _) => Statement::Other,
        (other, _) => other,
    }
}

/// What the first word makes of a statement.
fn first(word: &[u8], effects: &mut Effects) -> Statement {
    match word {
        b"set" => Statement::Set,
        b"reset" => Statement::Reset,
        b"prepare" => Statement::Prepare,
        b"deallocate" => Statement::Deallocate,
        b"discard" => Statement::Discard,
        b"declare" => Statement::Declare,
        b"create" => Statement::Create,
        b"listen" => {
            effects.pins("LISTEN");
            Statement::Other
        }
        b"load" => {
            effects.pins("LOAD");
            Statement::Other
        }
        // What a block does is out of sight.
        b"do" => {
            effects.pins("DO");
            Statement::Other
        }
        _ => Statement::Other,
    }
}

/// A quoted name, as it is.
fn named(statement: Statement, name: &[u8], effects: &mut Effects) -> Statement {
    match statement {
        Statement::Set | Statement::SetSession | Statement::Reset => {
            effects.sets(name);
            Statement::SetDone
        }
        Statement::Deallocate => {
            effects.forgets(name);
            Statement::Other
        }
        Statement::Prepare => {
            effects.pins("PREPARE");
            Statement::Other
        }
        other => other,
    }
}

/// The setting that is meant by what stands behind `SET` or `RESET`.
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

/// Words that matter wherever they are.
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

    fn settings(text: &str) -> Vec<String> {
        let effects = Effects::of(text.as_bytes());
        assert_eq!((effects.pin, &effects.forgets), (None, &Forgets::None), "{text}");
        effects.settings.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    }

    fn pin(text: &str) -> Option<&'static str> {
        Effects::of(text.as_bytes()).pin
    }

    #[test]
    fn settings_are_named_however_they_are_written() {
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
    fn what_ends_with_the_transaction_is_nothing() {
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
            assert!(Effects::of(text.as_bytes()).is_none(), "{text}: {:?}", Effects::of(text.as_bytes()));
        }
    }

    #[test]
    fn what_only_its_connection_has_is_seen() {
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

    #[test]
    fn prepared_statements_are_forgotten_by_name() {
        let named =
            |names: &[&str]| Forgets::Named(names.iter().map(|name| name.as_bytes().to_vec()).collect());
        let of = |text: &str| Effects::of(text.as_bytes()).forgets;
        assert_eq!(of("DEALLOCATE S_1; deallocate prepare \"S 2\""), named(&["s_1", "S 2"]));
        assert_eq!(of("DEALLOCATE a; DEALLOCATE ALL"), Forgets::All);
        assert_eq!(Effects::of(b"DISCARD ALL").discards, Discards::All);
    }

    proptest! {
        #[test]
        fn a_text_may_be_cut_anywhere(
            text in "(SET|LISTEN|[a-z_.]{1,9}|[;'\"$/*-]|\\$a\\$| ){0,40}",
            cuts in proptest::collection::vec(0_usize..100, 0..6),
        ) {
            let (mut effects, mut reader) = (Effects::default(), TextReader::default());
            let mut rest = text.as_bytes();
            for cut in cuts {
                let (piece, behind) = rest.split_at(cut.min(rest.len()));
                reader.read(piece, &mut effects);
                rest = behind;
            }
            reader.read(rest, &mut effects);
            reader.end(&mut effects);
            prop_assert_eq!(effects, Effects::of(text.as_bytes()));
        }
    }
}
