//! Which effects of a statement outlive its transaction, as far as its text shows: settings, the default
//! database, and state that is bound to the connection.
//!
//! This scans tokens; it does not parse SQL. A false positive pins a client to its connection. Effects of
//! stored routines are not seen. It must not be relied on to isolate clients.

mod parts;

use std::sync::LazyLock;

use crate::mysql::sql::lexer::{Lexer, Token};
use crate::words::WordSet;
use parts::ClientEncoding;

pub(crate) use crate::mysql::sql::lexer::Escapes;
pub use parts::{
    Assignments, DefaultDatabase, InsertId, NextTransaction, ReadsDiagnostics, Savepoints, StatementCount,
};

/// Settings changed by one statement; more pin the connection.
const MAX_SETTINGS: usize = 16;
/// No setting has a longer name.
const MAX_NAME_BYTES: usize = 64;

/// The settings that define the encoding of a session's texts.
pub const CHARACTER_SETS: [&str; 3] =
    ["character_set_client", "character_set_results", "collation_connection"];
/// How transactions start. MariaDB uses other names, see `ServerProduct::name`.
const TRANSACTIONS: [&str; 2] = ["transaction_isolation", "transaction_read_only"];

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Effects {
    /// Settings whose values may have changed.
    pub settings: Vec<String>,
    pub database: DefaultDatabase,
    /// Whether the statement configures the next transaction only.
    pub next_transaction: NextTransaction,
    /// Why the connection is pinned: state that no other connection can have.
    pub pin: Option<&'static str>,
    /// What becomes of savepoints.
    pub savepoints: Savepoints,
    /// Whether the responses show `LAST_INSERT_ID()`.
    pub insert_id: InsertId,
    pub reads_diagnostics: ReadsDiagnostics,
    /// How many statements the text has. A single statement that fails has no effect.
    pub count: StatementCount,
    pub assignments: Assignments,
}

impl Effects {
    /// Whether no effect outlives the transaction.
    pub fn is_none(&self) -> bool {
        let Self { settings, database, next_transaction, pin, savepoints, insert_id, .. } = self;
        settings.is_empty()
            && *database == DefaultDatabase::Unchanged
            && *next_transaction == NextTransaction::Unchanged
            && *savepoints == Savepoints::Unchanged
            && *insert_id <= InsertId::Reported
            && pin.is_none()
    }

    /// The effects of a complete text.
    pub fn of(text: &[u8], escapes: Escapes) -> Self {
        let mut reader = TextReader::new(escapes);
        reader.read(text);
        reader.end()
    }

    /// Adds the effects of another command.
    pub fn merge(&mut self, other: &Self) {
        for name in &other.settings {
            self.sets(name);
        }
        self.pin = self.pin.or(other.pin);
        self.insert_id.add(other.insert_id);
        if other.database == DefaultDatabase::MayDiffer {
            self.database = DefaultDatabase::MayDiffer;
        }
        if other.next_transaction == NextTransaction::Configured {
            self.next_transaction = NextTransaction::Configured;
        }
    }

    pub(crate) fn sets(&mut self, name: &str) {
        if self.settings.iter().any(|known| known == name) {
            return;
        }
        if self.settings.len() < MAX_SETTINGS {
            self.settings.push(name.to_owned());
        } else {
            self.pins("many settings");
        }
    }

    pub(crate) fn pins(&mut self, what: &'static str) {
        self.pin.get_or_insert(what);
    }
}

/// Scans a text in pieces, cut anywhere.
#[derive(Debug)]
pub struct TextReader {
    lexer: Lexer,
    scanner: EffectsScanner,
    encoding: ClientEncoding,
    second_bytes: SecondBytes,
    /// The last byte read.
    last: u8,
}

/// Whether the text has a backslash or a backquote that is the second byte of a character in some character sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SecondBytes {
    None,
    Possible,
}

/// The state after the tokens read so far.
#[derive(Debug, Default)]
struct EffectsScanner {
    effects: Effects,
    statement: StatementState,
    /// Whether this is not the first statement.
    is_later: bool,
    verb: Verb,
    function: Function,
}

/// The kind of statement, as far as its functions depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Verb {
    #[default]
    Other,
    /// `COMMIT` or `ROLLBACK`.
    Ends,
    /// The same, after a `NO`.
    EndsNo,
    /// Its response reports the effect on `LAST_INSERT_ID()`.
    Changes,
}

/// A word that is a function's name if a parenthesis follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Function {
    #[default]
    None,
    Pins(&'static str),
    LastInsertId,
    /// After `LAST_INSERT_ID(`.
    Argument,
}

/// The state within a statement.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum StatementState {
    /// Before the first word.
    #[default]
    Begin,
    /// Only words that matter everywhere are still of interest.
    Other,
    Set(SetItem),
    /// `SET STATEMENT … FOR`: the statement itself follows.
    Wrapper,
    Create,
    Drop,
    Flush,
    Show,
    /// After `ANALYZE`, which may execute a statement.
    Analyze,
    /// After `BEGIN`.
    Block,
    /// After `ROLLBACK`, with what was known of savepoints before it.
    Rollback(Savepoints),
}

/// An assignment of a `SET`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct SetItem {
    scope: Scope,
    /// The scope of the preceding assignment: some servers apply it to the next one.
    before: Scope,
    prefix: Prefix,
    state: SetItemState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Scope {
    #[default]
    None,
    Session,
    Global,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Prefix {
    #[default]
    None,
    /// `@@`.
    System,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum SetItemState {
    #[default]
    Name,
    /// After the name.
    Named(Vec<u8>),
    /// After the name of a user variable.
    UserVariable,
    /// In the value, at this depth of parentheses.
    Value { depth: u32 },
}

impl TextReader {
    /// `escapes`: how the session treats backslashes.
    pub fn new(escapes: Escapes) -> Self {
        Self {
            lexer: Lexer::new(escapes),
            scanner: EffectsScanner::default(),
            encoding: ClientEncoding::Known,
            second_bytes: SecondBytes::None,
            last: 0,
        }
    }

    /// The text comes behind a change of the client's character set to one that is not known yet.
    pub(crate) fn behind_character_set(&mut self) {
        self.encoding = ClientEncoding::Unknown;
    }

    pub fn read(&mut self, text: &[u8]) {
        let Self { lexer, scanner, second_bytes, last, .. } = self;
        lexer.read(text, &mut |token| scanner.token(&token));
        if *second_bytes == SecondBytes::None {
            let before = |at: usize| if at == 0 { *last } else { text[at - 1] };
            if memchr::memchr2_iter(b'\\', b'`', text).any(|at| !before(at).is_ascii()) {
                *second_bytes = SecondBytes::Possible;
            }
        }
        *last = text.last().copied().unwrap_or(*last);
    }

    /// Ends the text and returns its effects.
    pub fn end(mut self) -> Effects {
        let Self { lexer, scanner, .. } = &mut self;
        lexer.end(&mut |token| scanner.token(&token));
        let mut effects = std::mem::take(&mut scanner.effects);
        let sets = |name: &String| name == CHARACTER_SETS[0];
        let is_unknown = self.encoding == ClientEncoding::Unknown || effects.settings.iter().any(sets);
        if is_unknown && self.second_bytes == SecondBytes::Possible {
            effects.pins("a text behind a change of its character set");
        }
        effects
    }
}

impl EffectsScanner {
    fn token(&mut self, token: &Token<'_>) {
        if matches!(token, Token::Sign(b';')) {
            self.is_later = true;
            (self.statement, self.verb, self.function) = (StatementState::Begin, Verb::Other, Function::None);
            return;
        }
        if self.is_later && self.statement == StatementState::Begin {
            self.effects.count = StatementCount::Several;
            if self.effects.settings.iter().any(|name| name == "sql_mode") {
                // It may change how the following statements are parsed.
                self.effects.pins("several statements, of which one sets sql_mode");
            }
        }
        self.function(token);
        match token {
            Token::Executed => self.effects.pins("a comment that is executed"),
            Token::Ambiguous => self.effects.pins("a quote that can be read in two ways"),
            Token::UserVariable => self.effects.pins("a user variable"),
            Token::TooLong => self.effects.pins("a name that is too long"),
            _ => {}
        }
        let statement = std::mem::take(&mut self.statement);
        self.statement = match (statement, token) {
            (StatementState::Set(item), _) => self.set(item, token),
            // Quoted names do not matter here.
            (statement, Token::Word(word)) => self.word(statement, word),
            (StatementState::Begin, Token::Sign(b'(')) => StatementState::Begin,
            (StatementState::Begin, _) => {
                self.effects.pins(UNKNOWN);
                StatementState::Other
            }
            (statement, _) => statement,
        };
    }

    /// Detects calls of functions with lasting effects.
    fn function(&mut self, token: &Token<'_>) {
        let before = std::mem::take(&mut self.function);
        match (before, token) {
            (Function::Pins(what), Token::Sign(b'(')) => self.effects.pins(what),
            (Function::LastInsertId, Token::Sign(b'(')) => self.function = Function::Argument,
            (Function::Argument, Token::Sign(b')')) => {}
            (Function::Argument, _) if self.verb != Verb::Changes => {
                self.effects.pins("LAST_INSERT_ID of a value");
            }
            (Function::Argument, _) => self.effects.insert_id.add(InsertId::ReportedUnlessZero),
            _ => {}
        }
        match token {
            Token::Word(name) => self.function_name(name),
            Token::Name(name) | Token::NameOrString(name) => self.function_name(&name.to_ascii_lowercase()),
            _ => {}
        }
    }

    /// A name in lower case.
    fn function_name(&mut self, name: &[u8]) {
        match name {
            b"get_lock" => self.function = Function::Pins("GET_LOCK"),
            b"service_get_read_locks" | b"service_get_write_locks" => {
                self.function = Function::Pins("a lock of the locking service");
            }
            b"found_rows" => self.function = Function::Pins("FOUND_ROWS"),
            b"row_count" => self.function = Function::Pins("ROW_COUNT"),
            b"last_insert_id" => self.function = Function::LastInsertId,
            b"sql_calc_found_rows" => self.effects.pins("SQL_CALC_FOUND_ROWS"),
            // No connection can be given another one's, see `MASTER_GTID_WAIT`.
            b"last_gtid" => self.effects.pins("last_gtid"),
            b"warning_count" | b"error_count" => self.effects.reads_diagnostics = ReadsDiagnostics::Yes,
            _ => {}
        }
    }

    fn word(&mut self, statement: StatementState, word: &[u8]) -> StatementState {
        self.verb = match (self.verb, word) {
            // The server closes the connection.
            (Verb::Ends, b"release") => {
                self.effects.pins("RELEASE");
                Verb::Ends
            }
            (Verb::Ends, b"no") => Verb::EndsNo,
            (Verb::EndsNo, _) => Verb::Ends,
            (Verb::Changes, b"returning") => {
                self.effects.insert_id.add(InsertId::NotReported);
                Verb::Changes
            }
            (Verb::Changes, b"duplicate") => {
                self.effects.insert_id.add(InsertId::ReportedIfZero);
                Verb::Changes
            }
            (verb, _) => verb,
        };
        match (statement, word) {
            (StatementState::Begin, _) => self.first(word),
            (StatementState::Wrapper, b"for") => StatementState::Begin,
            (StatementState::Show, b"warnings" | b"errors" | b"count") => {
                self.effects.reads_diagnostics = ReadsDiagnostics::Yes;
                StatementState::Other
            }
            (StatementState::Create, b"or" | b"replace") => StatementState::Create,
            (StatementState::Create, b"temporary") => {
                self.effects.pins("a temporary table");
                StatementState::Other
            }
            // Behind a format.
            (StatementState::Analyze, b"insert" | b"update" | b"replace") => {
                self.effects.insert_id = InsertId::NotReported;
                StatementState::Other
            }
            // `CREATE OR REPLACE DATABASE` drops the default database, and does not choose it again.
            (StatementState::Create | StatementState::Drop, b"database" | b"schema") => {
                self.effects.database = DefaultDatabase::MayDiffer;
                StatementState::Other
            }
            (StatementState::Flush, b"table" | b"tables") => {
                self.effects.pins("FLUSH TABLES");
                StatementState::Other
            }
            (StatementState::Block, b"not") => {
                self.effects.pins("a block");
                StatementState::Other
            }
            (StatementState::Rollback(before), b"to") => {
                self.effects.savepoints = before;
                StatementState::Other
            }
            (StatementState::Wrapper, b"sql_mode") => {
                self.effects.pins("SET STATEMENT with sql_mode");
                StatementState::Wrapper
            }
            (
                StatementState::Create | StatementState::Drop | StatementState::Block | StatementState::Show,
                _,
            ) => StatementState::Other,
            (other, _) => other,
        }
    }

    /// The state after the first word.
    fn first(&mut self, word: &[u8]) -> StatementState {
        let pin = match word {
            b"set" => return StatementState::Set(SetItem::default()),
            b"create" => return StatementState::Create,
            b"drop" => return StatementState::Drop,
            b"flush" => return StatementState::Flush,
            b"begin" => return StatementState::Block,
            b"use" => {
                self.effects.database = DefaultDatabase::MayDiffer;
                return StatementState::Other;
            }
            b"insert" | b"update" | b"replace" => {
                self.verb = Verb::Changes;
                self.effects.insert_id.add(InsertId::Reported);
                return StatementState::Other;
            }
            b"load" => {
                self.effects.insert_id = InsertId::NotReported;
                return StatementState::Other;
            }
            b"analyze" => return StatementState::Analyze,
            b"show" => return StatementState::Show,
            b"rollback" => {
                self.verb = Verb::Ends;
                let before = self.effects.savepoints;
                self.effects.savepoints.release();
                return StatementState::Rollback(before);
            }
            b"commit" => {
                self.verb = Verb::Ends;
                self.effects.savepoints.release();
                return StatementState::Other;
            }
            b"savepoint" | b"call" => {
                self.effects.savepoints.set();
                return StatementState::Other;
            }
            word if HARMLESS.contains(word) => return StatementState::Other,
            b"lock" => "LOCK TABLES",
            b"handler" => "HANDLER",
            b"prepare" | b"execute" | b"deallocate" => "PREPARE",
            b"xa" => "XA",
            _ => UNKNOWN,
        };
        self.effects.pins(pin);
        StatementState::Other
    }

    /// The state after the next token of a `SET`.
    fn set(&mut self, mut item: SetItem, token: &Token<'_>) -> StatementState {
        match (&mut item.state, token) {
            (SetItemState::Name, Token::Word(word)) => return self.set_word(item, word),
            (SetItemState::Name, Token::Name(name)) => {
                item.state = SetItemState::Named(name.to_ascii_lowercase());
            }
            (SetItemState::Name, Token::SystemVariable) => item.prefix = Prefix::System,
            (SetItemState::Name, Token::UserVariable) => item.state = SetItemState::UserVariable,
            (SetItemState::Name, Token::Sign(b'.')) if item.scope != Scope::None => {}
            (SetItemState::Named(name), Token::Sign(b'=')) => {
                let name = std::mem::take(name);
                self.setting(&item, &name);
                item.state = SetItemState::Value { depth: 0 };
            }
            (SetItemState::UserVariable, Token::Sign(b'=')) => item.state = SetItemState::Value { depth: 0 },
            (SetItemState::Value { depth }, Token::Sign(b'(')) => *depth = depth.saturating_add(1),
            (SetItemState::Value { depth }, Token::Sign(b')')) => *depth = depth.saturating_sub(1),
            (SetItemState::Value { depth: 0 }, Token::Sign(b',')) => {
                self.effects.assignments = Assignments::Several;
                let before = if item.scope == Scope::None { item.before } else { item.scope };
                item = SetItem { before, ..SetItem::default() };
            }
            // Behind the `:` of `:=` the `=` follows; the name of a user variable may have several tokens.
            (SetItemState::Named(_), Token::Sign(b':'))
            | (SetItemState::UserVariable | SetItemState::Value { .. }, _) => {}
            (SetItemState::Name | SetItemState::Named(_), _) => {
                self.effects.pins("a setting with an unusual name");
                return StatementState::Other;
            }
        }
        StatementState::Set(item)
    }

    /// A word where a setting's name may be.
    fn set_word(&mut self, mut item: SetItem, word: &[u8]) -> StatementState {
        let is_plain = item.prefix == Prefix::None;
        match word {
            b"session" | b"local" => item.scope = Scope::Session,
            b"global" | b"persist" | b"persist_only" => item.scope = Scope::Global,
            b"names" | b"character" | b"charset" | b"char" if is_plain => {
                for name in CHARACTER_SETS {
                    self.effects.sets(name);
                }
                item.state = SetItemState::Value { depth: 0 };
            }
            b"transaction" if is_plain => {
                match item.scope {
                    Scope::None => self.effects.next_transaction = NextTransaction::Configured,
                    Scope::Session => TRANSACTIONS.iter().for_each(|name| self.effects.sets(name)),
                    Scope::Global => {}
                }
                return StatementState::Other;
            }
            b"statement" if is_plain => return StatementState::Wrapper,
            b"password" | b"role" | b"default" | b"resource" if is_plain => {
                self.effects.pins(match word {
                    b"password" => "SET PASSWORD",
                    b"resource" => "SET RESOURCE GROUP",
                    _ => "SET ROLE",
                });
                return StatementState::Other;
            }
            name => item.state = SetItemState::Named(name.to_vec()),
        }
        StatementState::Set(item)
    }

    fn setting(&mut self, item: &SetItem, name: &[u8]) {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let name = match str::from_utf8(name) {
            Ok(name) if name.len() <= MAX_NAME_BYTES && name.bytes().all(|byte| plain(&byte)) => name,
            _ => return self.effects.pins("a setting with an unusual name"),
        };
        match (item.scope, item.prefix, item.before) {
            (Scope::Global, _, _) => return,
            (Scope::None, Prefix::None, Scope::Global) => {
                return self.effects.pins("a setting that may be of all sessions");
            }
            _ => {}
        }
        match name {
            "transaction_isolation" | "tx_isolation" | "transaction_read_only" | "tx_read_only" => {
                if item.scope == Scope::None && item.prefix == Prefix::System {
                    return self.effects.next_transaction = NextTransaction::Configured;
                }
                self.effects.sets(TRANSACTIONS[usize::from(name.ends_with("read_only"))]);
            }
            // The same setting by another name, or a part of it.
            "character_set_connection" => self.effects.sets("collation_connection"),
            "character_set_server" => self.effects.sets("collation_server"),
            "storage_engine" => self.effects.sets("default_storage_engine"),
            "tmp_memory_table_size" => self.effects.sets("tmp_table_size"),
            "max_join_size" => {
                self.effects.sets(name);
                self.effects.sets("sql_big_selects");
            }
            // With it, the server may close the connection after a transaction.
            "completion_type" => self.effects.pins("completion_type"),
            _ if is_of_connection(name) => {
                self.effects.pins("a setting that is the connection's own");
            }
            _ => self.effects.sets(name),
        }
    }
}

const UNKNOWN: &str = "a statement of an unknown kind";

/// Statements whose only lasting effects are those of the words in them, or of their transaction.
static HARMLESS: LazyLock<WordSet> = LazyLock::new(|| {
    WordSet::of(
        "alter check checksum delete desc describe do explain get grant help kill optimize purge \
         release rename repair resignal revoke select signal start stop table truncate unlock values with \
         change",
    )
});

/// Settings that affect only this connection's next statement, that read back another value than was set, or that other
/// commands set, too.
fn is_of_connection(name: &str) -> bool {
    const NAMES: [&str; 15] = [
        "timestamp",
        "insert_id",
        "last_insert_id",
        "identity",
        "rand_seed1",
        "rand_seed2",
        "sql_log_bin",
        "sql_log_off",
        "server_id",
        "skip_replication",
        "profiling",
        // It may be a string of digits, and be set to no number.
        "default_master_connection",
        // A change of the default database sets them, too.
        "character_set_database",
        "collation_database",
        // It depends on the time zone, and on the moment at which that is set.
        "system_versioning_asof",
    ];
    const BEGINNINGS: [&str; 5] = ["gtid_", "pseudo_", "debug", "wsrep_", "binlog_"];
    NAMES.contains(&name) || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests;
