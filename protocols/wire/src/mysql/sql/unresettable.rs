//! Finds texts that may leave state that `COM_RESET_CONNECTION` does not undo and that no other command restores. Only
//! the end of the session undoes it, so its connection cannot be handed on.
//!
//! The bytes are searched as they are, with literals and comments, and so with the texts of `PREPARE` and `EXECUTE
//! IMMEDIATE` and with executable comments. A false positive costs a connection. Not seen: what stored routines,
//! triggers and views do.

use crate::mysql::sql::lexer;
use crate::text_search::{self, Findings, Meaning, NameSet, TakeWords, WORD_BYTES, is_space};

/// Names, or parts of them, and what else matters together with other parts of a text.
static NAMES: NameSet<Meaning<Mark>, 11> = NameSet::of([
    // The texts of statements remain (MariaDB).
    ("profiling", 0, Meaning::Leaves("profiles of statements")),
    // The traces of statements remain (MySQL).
    ("optimizer_trace", 7, Meaning::Leaves("a trace of the optimizer")),
    ("ps_setup_", 0, Meaning::Leaves(THREAD)),
    ("ps_trace_thread", 3, Meaning::Leaves(THREAD)),
    ("instrumented", 0, Meaning::Leaves(THREAD)),
    ("audit_log_read", 7, Meaning::Leaves("a position in the audit log")),
    ("spider_direct_sql", 0, Meaning::Leaves(SPIDER)),
    ("spider_bg_direct_sql", 0, Meaning::Leaves(SPIDER)),
    ("performance_schema", 8, Meaning::Marks(Mark::PerformanceSchema)),
    // A reset restores the variables, but not the socket. The time limit of reads is set again for each command.
    ("net_write_timeout", 0, Meaning::Marks(Mark::SocketLimit)),
    ("net_retry_count", 0, Meaning::Marks(Mark::SocketLimit)),
]);

const THREAD: &str = "the instrumentation of the thread";
const SPIDER: &str = "a connection of Spider";
const ROLE: &str = "SET ROLE";
const GROUP: &str = "SET RESOURCE GROUP";
const AUTHORIZATION: &str = "SET SESSION AUTHORIZATION";
const BINLOG: &str = "BINLOG";
const XA: &str = "XA PREPARE";
/// A reset can restore it, see `SocketLimits`.
pub(crate) const SOCKET_LIMIT: &str = "a limit of the socket";
const COMPUTED: &str = "a text that is computed";

pub(crate) type Scanner = text_search::Scanner<Words>;

/// What words and signs show, in literals and comments, too.
#[derive(Debug, Clone, Default)]
pub(crate) struct Words {
    expected: Expected,
    /// The last sign that is not white space.
    sign: u8,
    marks: u32,
}

/// What would have a meaning next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Expected {
    #[default]
    Nothing,
    /// After `SET`, or a comma in its list.
    Set,
    /// After `SET ROLE`: a name. The column of an `UPDATE` has an equals sign.
    Role,
    /// After `SET RESOURCE`.
    Group,
    /// After `SET SESSION`.
    Authorization,
    /// After `BINLOG`: a literal or a variable.
    Events,
    /// After `PREPARE`: a name.
    Statement,
    /// After `XA`: `PREPARE`.
    Xa,
    /// After that name: `FROM`.
    From,
    /// After `EXECUTE`.
    Immediate,
    /// After `PREPARE … FROM` or `EXECUTE IMMEDIATE`: a literal, or anything that is computed.
    Text,
}

/// What is somewhere in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Role,
    Group,
    Authorization,
    Binlog,
    /// `SET` and a comment.
    SetComment,
    /// A word that may follow it.
    AfterSet,
    PerformanceSchema,
    Update,
    /// A literal that is executed.
    Executed,
    Computed,
    /// A backslash, two literals in a row, or `||`.
    Parts,
    /// `XA PREPARE`. A reset rolls back what is not prepared.
    Xa,
    /// A limit of the connection's socket.
    SocketLimit,
    /// `SET`, with which drivers do not ask for a limit's value.
    Set,
}

impl Words {
    fn has(&self, mark: Mark) -> bool {
        self.marks >> mark as u16 & 1 == 1
    }
}

impl Findings for Words {
    type Mark = Mark;
    const UNUSUAL: u8 = b';';

    fn find_names(bytes: &[u8], meets: impl FnMut(usize)) {
        NAMES.find(bytes, meets);
    }

    fn meaning(index: usize) -> Meaning<Mark> {
        NAMES.meaning(index)
    }

    fn mark(&mut self, mark: Mark) {
        self.marks |= 1 << mark as u16;
    }

    /// No `SET`, `PREPARE`, `BINLOG` and the like.
    fn begins_plainly(letters: [u8; 4]) -> bool {
        // The beginnings of SELECT, INSERT, UPDATE, DELETE, REPLACE, WITH, VALUES, START, COMMIT and ROLLBACK.
        matches!(
            &letters,
            b"sele" | b"inse" | b"upda" | b"dele" | b"repl" | b"with" | b"valu" | b"star" | b"comm" | b"roll"
        )
    }

    fn found(&self) -> Option<&'static str> {
        let found = [
            (self.has(Mark::Role) || self.has(Mark::SetComment) && self.has(Mark::AfterSet), ROLE),
            (self.has(Mark::Group), GROUP),
            (self.has(Mark::Authorization), AUTHORIZATION),
            (self.has(Mark::Binlog), BINLOG),
            (self.has(Mark::Xa), XA),
            (self.has(Mark::PerformanceSchema) && self.has(Mark::Update), THREAD),
            (self.has(Mark::Computed) || self.has(Mark::Executed) && self.has(Mark::Parts), COMPUTED),
            // The last one: the others cannot be undone.
            (self.has(Mark::SocketLimit) && self.has(Mark::Set), SOCKET_LIMIT),
        ];
        found.into_iter().find_map(|(is_found, reason)| is_found.then_some(reason))
    }
}

impl Words {
    /// A word with a byte that is a blank in single-byte character sets.
    #[cold]
    fn words_around(&mut self, blank: usize, word: &[u8], before: u8, next: u8) {
        if word.len() == WORD_BYTES {
            // The words behind the blank may have been cut.
            self.mark(Mark::Computed);
        }
        if blank > 0 {
            self.word(&word[..blank], before, b' ');
        }
        self.sign(b' ', 0);
        if blank + 1 < word.len() {
            self.word(&word[blank + 1..], b' ', next);
        }
    }
}

impl TakeWords for Words {
    fn word(&mut self, word: &[u8], before: u8, next: u8) {
        if !word.is_ascii()
            && let Some(blank) = may_be_blank(word)
        {
            return self.words_around(blank, word, before, next);
        }
        // In an executable comment a version may be in front of it.
        let digits = word.iter().take_while(|byte| before == b'!' && byte.is_ascii_digit()).count();
        let word = &word[digits..];
        let is_value = before == next && matches!(before, b'\'' | b'"');
        let expected = std::mem::take(&mut self.expected);
        self.sign = 0;
        if matches!(word, b"role" | b"resource" | b"authorization") {
            self.mark(Mark::AfterSet);
        }
        match (expected, word) {
            (Expected::Role, _) => self.mark(Mark::Role),
            (Expected::Text, _) => self.mark(Mark::Computed),
            (Expected::Set, b"role") => self.expected = Expected::Role,
            (Expected::Set, b"resource") => self.expected = Expected::Group,
            (Expected::Set, b"session") => self.expected = Expected::Authorization,
            (Expected::Group, b"group") => self.mark(Mark::Group),
            (Expected::Authorization, b"authorization") => self.mark(Mark::Authorization),
            (Expected::Statement, _) => self.expected = Expected::From,
            (Expected::From, b"from") | (Expected::Immediate, b"immediate") => self.expected = Expected::Text,
            (Expected::Xa, b"prepare") => self.mark(Mark::Xa),
            (_, b"set") => {
                self.mark(Mark::Set);
                self.expected = Expected::Set;
            }
            (_, b"xa") if !is_value => self.expected = Expected::Xa,
            (_, b"binlog") if !is_value => self.expected = Expected::Events,
            (_, b"prepare") => self.expected = Expected::Statement,
            (_, b"execute") => self.expected = Expected::Immediate,
            (_, b"update") => self.mark(Mark::Update),
            _ => {}
        }
    }

    fn sign(&mut self, sign: u8, last: u8) {
        if matches!(sign, b'\\' | b'|') || matches!(sign, b'\'' | b'"') && self.sign == sign && is_space(last)
        {
            self.mark(Mark::Parts);
        }
        let begins_comment = matches!((last, sign), (b'/', b'*') | (b'-', b'-')) || sign == b'#';
        let is_quote = matches!(sign, b'\'' | b'"');
        let met = match (self.expected, sign) {
            (Expected::Set | Expected::Group | Expected::Authorization, _) if begins_comment => {
                Some(Mark::SetComment)
            }
            (Expected::Role, b'\'' | b'"' | b'`' | b'@') => Some(Mark::Role),
            (Expected::Role, _) if begins_comment => Some(Mark::Role),
            (Expected::Events, b'\'' | b'"' | b'@') => Some(Mark::Binlog),
            (Expected::Events, _) if begins_comment => Some(Mark::Binlog),
            (Expected::Xa, _) if begins_comment => Some(Mark::Xa),
            (Expected::Text, _) if is_quote => Some(Mark::Executed),
            (Expected::Statement | Expected::From | Expected::Immediate, _) if begins_comment => {
                Some(Mark::Computed)
            }
            (Expected::Text, b'/' | b'-') => None,
            (Expected::Text, _) if !is_space(sign) => Some(Mark::Computed),
            _ => None,
        };
        if let Some(mark) = met {
            self.mark(mark);
        }
        let keeps = is_space(sign)
            || matches!(sign, b'/' | b'-')
            || sign == b'`' && matches!(self.expected, Expected::Statement | Expected::From);
        if met.is_some() || !keeps {
            self.expected = Expected::Nothing;
        }
        if sign == b',' && self.has(Mark::Set) {
            // `SET @a = 1, ROLE r` (MariaDB).
            self.expected = Expected::Set;
        }
        if !is_space(sign) {
            self.sign = sign;
        }
    }
}

/// The place of a byte that may be a blank: in UTF-8 no character starts with it.
fn may_be_blank(word: &[u8]) -> Option<usize> {
    let is_first = |at: usize| at == 0 || word[at - 1].is_ascii();
    (0..word.len()).find(|at| lexer::may_be_blank(word[*at]) && is_first(*at))
}

#[cfg(test)]
mod tests;
