//! Finds texts that may leave state that `COM_RESET_CONNECTION` does not undo and that no other command restores. Only
//! the end of the session undoes it, so its connection cannot be handed on.
//!
//! The bytes are searched as they are, with literals and comments, and so with the texts of `PREPARE` and `EXECUTE
//! IMMEDIATE` and with executable comments. A false positive costs a connection. Not seen: what stored routines,
//! triggers and views do.

use crate::text_search::{CutNames, NameSet, TakeWords, WordReader, folded, is_single_without, is_space};

/// Names, or parts of them, and what else matters together with other parts of a text.
static NAMES: NameSet<Meaning, 9> = NameSet::of([
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
]);

const THREAD: &str = "the instrumentation of the thread";
const SPIDER: &str = "a connection of Spider";
const ROLE: &str = "SET ROLE";
const GROUP: &str = "SET RESOURCE GROUP";
const AUTHORIZATION: &str = "SET SESSION AUTHORIZATION";
const BINLOG: &str = "BINLOG";
const COMPUTED: &str = "a text that is computed";

#[derive(Debug, Clone, Copy)]
enum Meaning {
    /// What has this name leaves this.
    Leaves(&'static str),
    /// It matters together with other parts of the text.
    Marks(Mark),
}

/// Reads a text in pieces, cut anywhere.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    /// The first of [`NAMES`] that leaves something, by its index.
    name: Option<usize>,
    cut: CutNames,
    reader: WordReader,
    words: Words,
}

impl Scanner {
    /// What a complete text may leave.
    pub(crate) fn of(text: &[u8]) -> Option<&'static str> {
        if is_plain(text) {
            return None;
        }
        let mut scanner = Self::default();
        scanner.names(text);
        scanner.reader.read(text, &mut scanner.words);
        scanner.found()
    }

    pub(crate) fn read(&mut self, bytes: &[u8]) {
        let joint = self.cut.join(bytes);
        self.names(&joint);
        self.names(bytes);
        self.reader.read(bytes, &mut self.words);
    }

    /// What the text may leave. Its last word counts as complete.
    pub(crate) fn found(&self) -> Option<&'static str> {
        let name = self.name.map(|index| NAMES.meaning(index));
        if let Some(Meaning::Leaves(reason)) = name {
            return Some(reason);
        }
        let mut words = self.words.clone();
        self.reader.clone().read(b" ", &mut words);
        words.found()
    }

    /// The names in these bytes.
    fn names(&mut self, bytes: &[u8]) {
        NAMES.find(bytes, |index| match NAMES.meaning(index) {
            Meaning::Leaves(_) => self.name = Some(self.name.map_or(index, |known| known.min(index))),
            Meaning::Marks(mark) => self.words.mark(mark),
        });
    }
}

/// Whether a complete text is one statement of a common kind without a name of interest: a shortcut for most texts.
/// What its literals and comments may look like besides does not matter: they are not executed.
fn is_plain(text: &[u8]) -> bool {
    if !begins_plainly(text) || !is_single_without(text, b';') {
        return false;
    }
    let mut is_plain = true;
    NAMES.find(text, |_| is_plain = false);
    is_plain
}

/// Whether the first word is that of a statement that is no `SET`, `PREPARE`, `BINLOG` and the like.
fn begins_plainly(text: &[u8]) -> bool {
    let Some(first) = text.trim_ascii_start().first_chunk() else { return false };
    // The beginnings of SELECT, INSERT, UPDATE, DELETE, REPLACE, WITH, VALUES, START, COMMIT and ROLLBACK.
    matches!(
        &folded(*first).to_be_bytes(),
        b"sele" | b"inse" | b"upda" | b"dele" | b"repl" | b"with" | b"valu" | b"star" | b"comm" | b"roll"
    )
}

/// What words and signs show, in literals and comments, too.
#[derive(Debug, Clone, Default)]
struct Words {
    expected: Expected,
    /// The last sign that is not white space.
    sign: u8,
    marks: u16,
}

/// What would have a meaning next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Expected {
    #[default]
    Nothing,
    /// After `SET`.
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
    /// After that name: `FROM`.
    From,
    /// After `EXECUTE`.
    Immediate,
    /// After `PREPARE … FROM` or `EXECUTE IMMEDIATE`: a literal, or anything that is computed.
    Text,
}

/// What is somewhere in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
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
    /// A backslash, or two literals in a row.
    Parts,
}

impl Words {
    fn mark(&mut self, mark: Mark) {
        self.marks |= 1 << mark as u16;
    }

    fn has(&self, mark: Mark) -> bool {
        self.marks >> mark as u16 & 1 == 1
    }

    fn found(&self) -> Option<&'static str> {
        let found = [
            (self.has(Mark::Role) || self.has(Mark::SetComment) && self.has(Mark::AfterSet), ROLE),
            (self.has(Mark::Group), GROUP),
            (self.has(Mark::Authorization), AUTHORIZATION),
            (self.has(Mark::Binlog), BINLOG),
            (self.has(Mark::PerformanceSchema) && self.has(Mark::Update), THREAD),
            (self.has(Mark::Computed) || self.has(Mark::Executed) && self.has(Mark::Parts), COMPUTED),
        ];
        found.into_iter().find_map(|(is_found, reason)| is_found.then_some(reason))
    }
}

impl TakeWords for Words {
    fn word(&mut self, word: &[u8], before: u8, next: u8) {
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
            (_, b"set") => self.expected = Expected::Set,
            (_, b"binlog") if !is_value => self.expected = Expected::Events,
            (_, b"prepare") => self.expected = Expected::Statement,
            (_, b"execute") => self.expected = Expected::Immediate,
            (_, b"update") => self.mark(Mark::Update),
            _ => {}
        }
    }

    fn sign(&mut self, sign: u8, last: u8) {
        if sign == b'\\' || matches!(sign, b'\'' | b'"') && self.sign == sign && is_space(last) {
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
        if !is_space(sign) {
            self.sign = sign;
        }
    }
}

#[cfg(test)]
mod tests;
