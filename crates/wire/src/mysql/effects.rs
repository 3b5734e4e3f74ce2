//! What of a statement's text outlives its transaction, as far as the text tells: settings, the default database, and
//! state that only its own connection has.
//!
//! This is a reading of words, and not of SQL. Where it sees too much, a client keeps a connection that others could
//! have had; what routines do out of sight it does not see. It must not be relied on to keep clients apart.

use super::lexer::{Lexer, Token};

pub use super::lexer::Escapes;

/// Settings of one statement; more are state that is kept where it is.
const MAX_SETTINGS: usize = 16;
/// No setting has a longer name.
const MAX_NAME_BYTES: usize = 64;

/// The settings that say how a session's texts are written.
pub(super) const CHARACTER_SETS: [&str; 3] =
    ["character_set_client", "character_set_results", "collation_connection"];
/// How transactions begin; MariaDB's own names for them are others, see [`super::adopt`].
const TRANSACTIONS: [&str; 2] = ["transaction_isolation", "transaction_read_only"];

/// What outlives a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Effects {
    /// Settings that may have other values now.
    pub settings: Vec<String>,
    /// Whether the default database may be another one.
    pub database: Database,
    /// Whether it says how the next transaction is to be, and only that one.
    pub once: Once,
    /// State that cannot be had on another connection, and what it is.
    pub pin: Option<&'static str>,
    /// How many statements the text has: of one that has failed nothing is done.
    pub count: Count,
}

/// The default database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Database {
    /// As before.
    #[default]
    Same,
    /// Perhaps another one.
    Other,
}

/// What is said of the next transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Once {
    /// Nothing.
    #[default]
    Nothing,
    /// How it is to be.
    NextTransaction,
}

/// How many statements a text has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Count {
    /// One, or none.
    #[default]
    One,
    /// More.
    Several,
}

impl Effects {
    /// Whether nothing is known to outlive the transaction.
    pub fn is_none(&self) -> bool {
        Self { count: Count::One, ..self.clone() } == Self::default()
    }

    /// The effects of a text that is there as a whole.
    pub fn of(text: &[u8], escapes: Escapes) -> Self {
        let mut reader = TextReader::new(escapes);
        reader.read(text);
        reader.end()
    }

    /// Takes over what another command does.
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

/// Reads a text in pieces, however it is cut.
#[derive(Debug)]
pub struct TextReader {
    lexer: Lexer,
    statements: Statements,
}

/// What the tokens so far have come to.
#[derive(Debug, Default)]
struct Statements {
    effects: Effects,
    statement: Statement,
    /// Whether a statement has ended before this one.
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

/// What kind of statement it is, as far as that matters for functions in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Verb {
    #[default]
    Other,
    /// What it does to `LAST_INSERT_ID()` is in its answer.
    Changes,
}

/// A word that may be a function's name, if a parenthesis follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Function {
    #[default]
    None,
    Pins(&'static str),
    LastInsertId,
    /// Behind `LAST_INSERT_ID(`.
    Argument,
}

/// What the words of a statement so far make of the next.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Statement {
    /// Its first word is still to come.
    #[default]
    Begin,
    /// Nothing more is to be learnt but of words that matter everywhere.
    Other,
    Set(Item),
    /// `SET STATEMENT … FOR`, behind which the statement itself comes.
    Wrapper,
    Create,
    Drop,
    Flush,
    /// Behind `BEGIN`.
    Block,
}

/// A part of a `SET`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Item {
    scope: Scope,
    /// Whether an item before it was of all sessions: some servers take the next for the like.
    before: Scope,
    prefix: Prefix,
    place: ItemPlace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Scope {
    /// Not said.
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
    /// Behind the name.
    Named(Vec<u8>),
    /// Behind the name of a variable of the client's own.
    Own,
    /// In the value, so many parentheses deep.
    Value { depth: u32 },
}

impl TextReader {
    /// Nothing has been read. `escapes` is how the session takes backslashes.
    pub fn new(escapes: Escapes) -> Self {
        Self { lexer: Lexer::new(escapes), statements: Statements::default() }
    }

    /// Reads the next piece.
    pub fn read(&mut self, text: &[u8]) {
        let Self { lexer, statements } = self;
        lexer.read(text, &mut |token| statements.token(&token));
    }

    /// The text has ended: what it does.
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
                // It may say how what follows is to be read.
                self.effects.pins("several statements, of which one sets sql_mode");
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
            // Of a quoted name nothing depends here.
            (statement, Token::Word(word)) => self.word(statement, word),
            (Statement::Begin, Token::Sign(b'(')) => Statement::Begin,
            (Statement::Begin, _) => {
                self.effects.pins(UNKNOWN);
                Statement::Other
            }
            (statement, _) => statement,
        };
    }

    /// Calls of functions that leave something behind.
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

    /// What the first word makes of a statement.
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

    /// What the next token makes of a `SET`.
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
            // `:=`, of which the rest follows; and the name of a variable of the client's own may be in parts.
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

    /// A setting is made.
    fn setting(&mut self, item: &Item, name: &[u8]) {
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
                    return self.effects.once = Once::NextTransaction;
                }
                self.effects.sets(TRANSACTIONS[usize::from(name.ends_with("read_only"))]);
            }
            "character_set_connection" => self.effects.sets("collation_connection"),
            _ if is_of_connection(name) => {
                self.effects.pins("a setting that is the connection's own");
            }
            _ => self.effects.sets(name),
        }
    }
}

const UNKNOWN: &str = "a statement of an unknown kind";

/// Statements that leave nothing behind but what the words in them tell, or their transactions.
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

/// Settings that say what only this connection is to do next, or that say something else than they were told.
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
