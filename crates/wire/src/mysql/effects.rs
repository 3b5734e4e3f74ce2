//! Which effects of a statement outlive its transaction, as far as its text shows: settings, the default
//! database, and state that is bound to the connection.
//!
//! This scans tokens; it does not parse SQL. A false positive pins a client to its connection. Effects of
//! stored routines are not seen. It must not be relied on to isolate clients.

use super::lexer::{Lexer, Token};

pub use super::lexer::Escapes;

/// Settings changed by one statement; more pin the connection.
const MAX_SETTINGS: usize = 16;
/// No setting has a longer name.
const MAX_NAME_BYTES: usize = 64;

/// The settings that define the encoding of a session's texts.
pub(super) const CHARACTER_SETS: [&str; 3] =
    ["character_set_client", "character_set_results", "collation_connection"];
/// How transactions start. MariaDB uses other names, see [`super::super::relay::session_restore`].
const TRANSACTIONS: [&str; 2] = ["transaction_isolation", "transaction_read_only"];

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Effects {
    /// Settings whose values may have changed.
    pub settings: Vec<String>,
    pub database: Database,
    /// Whether the statement configures the next transaction only.
    pub once: Once,
    /// Why the connection is pinned: state that no other connection can have.
    pub pin: Option<&'static str>,
    /// How many statements the text has. A single statement that fails has no effect.
    pub count: Count,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Database {
    #[default]
    Same,
    /// It may have changed.
    Other,
}

/// The configuration of the next transaction (`SET TRANSACTION`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Once {
    #[default]
    Nothing,
    NextTransaction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Count {
    /// One, or none.
    #[default]
    One,
    Several,
}

impl Effects {
    /// Whether no effect outlives the transaction.
    pub fn is_none(&self) -> bool {
        Self { count: Count::One, ..self.clone() } == Self::default()
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
        if other.database == Database::Other {
            self.database = Database::Other;
        }
        if other.once == Once::NextTransaction {
            self.once = Once::NextTransaction;
        }
    }

    fn sets(&mut self, name: &str) {
        if self.settings.iter().any(|known| known == name) {
            return;
        }
        if self.settings.len() < MAX_SETTINGS {
            self.settings.push(name.to_owned());
        } else {
            self.pins("many settings");
        }
    }

    pub(super) fn pins(&mut self, what: &'static str) {
        self.pin.get_or_insert(what);
    }
}

/// Scans a text in pieces, cut anywhere.
#[derive(Debug)]
pub struct TextReader {
    lexer: Lexer,
    statements: Statements,
}

/// The state after the tokens read so far.
#[derive(Debug, Default)]
struct Statements {
    effects: Effects,
    statement: Statement,
    /// Whether this is not the first statement.
    earlier: Earlier,
    verb: Verb,
    function: Function,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Earlier {
    #[default]
    None,
    Some,
}

/// The kind of statement, as far as its functions depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Verb {
    #[default]
    Other,
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
enum Statement {
    /// Before the first word.
    #[default]
    Begin,
    /// Only words that matter everywhere are still of interest.
    Other,
    Set(Item),
    /// `SET STATEMENT … FOR`: the statement itself follows.
    Wrapper,
    Create,
    Drop,
    Flush,
    /// After `BEGIN`.
    Block,
}

/// An assignment of a `SET`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Item {
    scope: Scope,
    /// The scope of the preceding assignment: some servers apply it to the next one.
    before: Scope,
    prefix: Prefix,
    place: ItemPlace,
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
enum ItemPlace {
    #[default]
    Name,
    /// After the name.
    Named(Vec<u8>),
    /// After the name of a user variable.
    Own,
    /// In the value, at this depth of parentheses.
    Value { depth: u32 },
}

impl TextReader {
    /// `escapes`: how the session treats backslashes.
    pub fn new(escapes: Escapes) -> Self {
        Self { lexer: Lexer::new(escapes), statements: Statements::default() }
    }

    pub fn read(&mut self, text: &[u8]) {
        let Self { lexer, statements } = self;
        lexer.read(text, &mut |token| statements.token(&token));
    }

    /// Ends the text and returns its effects.
    pub fn end(mut self) -> Effects {
        let Self { lexer, statements } = &mut self;
        lexer.end(&mut |token| statements.token(&token));
        std::mem::take(&mut statements.effects)
    }
}

impl Statements {
    fn token(&mut self, token: &Token<'_>) {
        if matches!(token, Token::Sign(b';')) {
            self.earlier = Earlier::Some;
            (self.statement, self.verb, self.function) = (Statement::Begin, Verb::Other, Function::None);
            return;
        }
        if self.earlier == Earlier::Some && self.statement == Statement::Begin {
            self.effects.count = Count::Several;
            if self.effects.settings.iter().any(|name| name == "sql_mode") {
                // It may change how the following statements are parsed.
                self.effects.pins("several statements, one of them sets sql_mode");
            }
        }
        self.function(token);
        match token {
            Token::Executed => self.effects.pins("a comment that is executed"),
            Token::Ambiguous => self.effects.pins("a quote that can be read in two ways"),
            Token::Own => self.effects.pins("a user variable"),
            Token::TooLong => self.effects.pins("a name that is too long"),
            _ => {}
        }
        let statement = std::mem::take(&mut self.statement);
        self.statement = match (statement, token) {
            (Statement::Set(item), _) => self.set(item, token),
            // Quoted names do not matter here.
            (statement, Token::Word(word)) => self.word(statement, word),
            (Statement::Begin, Token::Sign(b'(')) => Statement::Begin,
            (Statement::Begin, _) => {
                self.effects.pins(UNKNOWN);
                Statement::Other
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
            (Function::Argument, _) if self.verb == Verb::Other => {
                self.effects.pins("LAST_INSERT_ID of a value");
            }
            _ => {}
        }
        if let Token::Word(name) | Token::Name(name) | Token::Either(name) = token {
            match name.to_ascii_lowercase().as_slice() {
                b"get_lock" => self.function = Function::Pins("GET_LOCK"),
                b"service_get_read_locks" | b"service_get_write_locks" => {
                    self.function = Function::Pins("a lock of the locking service");
                }
                b"found_rows" => self.function = Function::Pins("FOUND_ROWS"),
                b"row_count" => self.function = Function::Pins("ROW_COUNT"),
                b"last_insert_id" => self.function = Function::LastInsertId,
                b"sql_calc_found_rows" => self.effects.pins("SQL_CALC_FOUND_ROWS"),
                _ => {}
            }
        }
    }

    fn word(&mut self, statement: Statement, word: &[u8]) -> Statement {
        match (statement, word) {
            (Statement::Begin, _) => self.first(word),
            (Statement::Wrapper, b"for") => Statement::Begin,
            (Statement::Create, b"or" | b"replace") => Statement::Create,
            (Statement::Create, b"temporary") => {
                self.effects.pins("a temporary table");
                Statement::Other
            }
            (Statement::Drop, b"database" | b"schema") => {
                self.effects.database = Database::Other;
                Statement::Other
            }
            (Statement::Flush, b"table" | b"tables") => {
                self.effects.pins("FLUSH TABLES");
                Statement::Other
            }
            (Statement::Block, b"not") => {
                self.effects.pins("a block");
                Statement::Other
            }
            (Statement::Create | Statement::Drop | Statement::Block, _) => Statement::Other,
            (other, _) => other,
        }
    }

    /// The state after the first word.
    fn first(&mut self, word: &[u8]) -> Statement {
        let pin = match word {
            b"set" => return Statement::Set(Item::default()),
            b"create" => return Statement::Create,
            b"drop" => return Statement::Drop,
            b"flush" => return Statement::Flush,
            b"begin" => return Statement::Block,
            b"use" => {
                self.effects.database = Database::Other;
                return Statement::Other;
            }
            b"insert" | b"update" | b"replace" => {
                self.verb = Verb::Changes;
                return Statement::Other;
            }
            word if is_harmless(word) => return Statement::Other,
            b"lock" => "LOCK TABLES",
            b"handler" => "HANDLER",
            b"prepare" | b"execute" | b"deallocate" => "PREPARE",
            b"xa" => "XA",
            _ => UNKNOWN,
        };
        self.effects.pins(pin);
        Statement::Other
    }

    /// The state after the next token of a `SET`.
    fn set(&mut self, mut item: Item, token: &Token<'_>) -> Statement {
        match (&mut item.place, token) {
            (ItemPlace::Name, Token::Word(word)) => return self.set_word(item, word),
            (ItemPlace::Name, Token::Name(name)) => item.place = ItemPlace::Named(name.to_ascii_lowercase()),
            (ItemPlace::Name, Token::System) => item.prefix = Prefix::System,
            (ItemPlace::Name, Token::Own) => item.place = ItemPlace::Own,
            (ItemPlace::Name, Token::Sign(b'.')) if item.scope != Scope::None => {}
            (ItemPlace::Named(name), Token::Sign(b'=')) => {
                let name = std::mem::take(name);
                self.setting(&item, &name);
                item.place = ItemPlace::Value { depth: 0 };
            }
            (ItemPlace::Own, Token::Sign(b'=')) => item.place = ItemPlace::Value { depth: 0 },
            (ItemPlace::Value { depth }, Token::Sign(b'(')) => *depth = depth.saturating_add(1),
            (ItemPlace::Value { depth }, Token::Sign(b')')) => *depth = depth.saturating_sub(1),
            (ItemPlace::Value { depth: 0 }, Token::Sign(b',')) => {
                let before = if item.scope == Scope::None { item.before } else { item.scope };
                item = Item { before, ..Item::default() };
            }
            // Behind the `:` of `:=` the `=` follows; the name of a user variable may have several tokens.
            (ItemPlace::Named(_), Token::Sign(b':')) | (ItemPlace::Own | ItemPlace::Value { .. }, _) => {}
            (ItemPlace::Name | ItemPlace::Named(_), _) => {
                self.effects.pins("a setting with an unusual name");
                return Statement::Other;
            }
        }
        Statement::Set(item)
    }

    /// A word where a setting's name may be.
    fn set_word(&mut self, mut item: Item, word: &[u8]) -> Statement {
        let is_plain = item.prefix == Prefix::None;
        match word {
            b"session" | b"local" => item.scope = Scope::Session,
            b"global" | b"persist" | b"persist_only" => item.scope = Scope::Global,
            b"names" | b"character" | b"charset" | b"char" if is_plain => {
                for name in CHARACTER_SETS {
                    self.effects.sets(name);
                }
                item.place = ItemPlace::Value { depth: 0 };
            }
            b"transaction" if is_plain => {
                match item.scope {
                    Scope::None => self.effects.once = Once::NextTransaction,
                    Scope::Session => TRANSACTIONS.iter().for_each(|name| self.effects.sets(name)),
                    Scope::Global => {}
                }
                return Statement::Other;
            }
            b"statement" if is_plain => return Statement::Wrapper,
            b"password" | b"role" | b"default" | b"resource" if is_plain => {
                self.effects.pins(match word {
                    b"password" => "SET PASSWORD",
                    b"resource" => "SET RESOURCE GROUP",
                    _ => "SET ROLE",
                });
                return Statement::Other;
            }
            name => item.place = ItemPlace::Named(name.to_vec()),
        }
        Statement::Set(item)
    }

    fn setting(&mut self, item: &Item, name: &[u8]) {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let name = match str::from_utf8(name) {
            Ok(name) if name.len() <= MAX_NAME_BYTES && name.bytes().all(|byte| plain(&byte)) => name,
            _ => return self.effects.pins("a setting with an unusual name"),
        };
        match (item.scope, item.prefix, item.before) {
            (Scope::Global, _, _) => return,
            (Scope::None, Prefix::None, Scope::Global) => {
                return self.effects.pins("a setting that may be global");
            }
            _ => {}
        }
        match name {
            "transaction_isolation" | "tx_isolation" | "transaction_read_only" | "tx_read_only" => {
                if item.scope == Scope::None && item.prefix == Prefix::System {
                    return self.effects.once = Once::NextTransaction;
                }
                self.effects.sets(TRANSACTIONS[usize::from(name.ends_with("read_only"))]);
            }
            "character_set_connection" => self.effects.sets("collation_connection"),
            _ if is_of_connection(name) => {
                self.effects.pins("a setting bound to the connection");
            }
            _ => self.effects.sets(name),
        }
    }
}

const UNKNOWN: &str = "a statement of an unknown kind";

/// Statements whose only lasting effects are those of the words in them, or of their transaction.
fn is_harmless(word: &[u8]) -> bool {
    const WORDS: [&[u8]; 36] = [
        b"alter",
        b"analyze",
        b"call",
        b"check",
        b"checksum",
        b"commit",
        b"delete",
        b"desc",
        b"describe",
        b"do",
        b"explain",
        b"get",
        b"grant",
        b"help",
        b"kill",
        b"load",
        b"optimize",
        b"purge",
        b"release",
        b"rename",
        b"repair",
        b"resignal",
        b"revoke",
        b"rollback",
        b"savepoint",
        b"select",
        b"show",
        b"signal",
        b"start",
        b"stop",
        b"table",
        b"truncate",
        b"unlock",
        b"values",
        b"with",
        b"change",
    ];
    WORDS.contains(&word)
}

/// Settings that affect only this connection's next statement, or that read back another value than was set.
fn is_of_connection(name: &str) -> bool {
    const NAMES: [&str; 11] = [
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
    ];
    const BEGINNINGS: [&str; 5] = ["gtid_", "pseudo_", "debug", "wsrep_", "binlog_"];
    NAMES.contains(&name) || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

#[cfg(test)]
#[path = "effects_tests.rs"]
mod tests;
