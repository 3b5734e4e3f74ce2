//! Finds texts that may leave state that `DISCARD ALL` does not undo. Only the end of the session undoes it, so its
//! connection cannot be handed on.
//!
//! The bytes are searched as they are, with literals and comments, and so with the texts of `DO`, `EXECUTE` and
//! `PREPARE`. A false positive costs a connection. Not seen: what functions of the database do, and texts that
//! arrive as values.

use crate::text_search::{self, Findings, Meaning, NameSet, TakeWords, is_space};

/// Names of functions, or parts of them, and what else matters together with other parts of a text.
static NAMES: NameSet<Meaning<Mark>, 37> = NameSet::of([
    ("pg_backup_start", 0, Meaning::Leaves(BACKUP)),
    ("pg_start_backup", 8, Meaning::Leaves(BACKUP)),
    ("pg_replication_origin_session_setup", 14, Meaning::Leaves(ORIGIN)),
    ("pg_replication_origin_xact_setup", 14, Meaning::Leaves(ORIGIN)),
    ("pg_create_physical_replication_slot", 10, Meaning::Leaves(SLOT)),
    ("pg_create_logical_replication_slot", 16, Meaning::Leaves(SLOT)),
    ("pg_copy_physical_replication_slot", 8, Meaning::Leaves(SLOT)),
    ("pg_copy_logical_replication_slot", 14, Meaning::Leaves(SLOT)),
    ("setseed", 0, Meaning::Leaves(SEED)),
    // Also `dblink_connect_u`.
    ("dblink_connect", 0, Meaning::Leaves("a connection of dblink")),
    ("isn_weak", 0, Meaning::Leaves("the weak mode of isn")),
    ("sepgsql_setcon", 0, Meaning::Leaves("a security label of sepgsql")),
    ("injection_points_set_local", 0, Meaning::Leaves("a local injection point")),
    // Extensions that are not part of the server.
    ("hypopg_create_index", 0, Meaning::Leaves(HYPOPG)),
    ("hypopg_hide_index", 0, Meaning::Leaves(HYPOPG)),
    ("pgv_set", 0, Meaning::Leaves(VARIABLES)),
    ("pgv_insert", 0, Meaning::Leaves(VARIABLES)),
    ("pg_background_launch", 0, Meaning::Leaves("a background worker of pg_background")),
    ("pldbg_attach", 0, Meaning::Leaves(DEBUGGER)),
    ("pldbg_create_listener", 0, Meaning::Leaves(DEBUGGER)),
    ("plpgsql_oid_debug", 4, Meaning::Leaves(DEBUGGER)),
    ("pl_profiler_", 0, Meaning::Leaves("a profile of plprofiler")),
    ("dbms_alert", 0, Meaning::Leaves(ORAFCE)),
    ("dbms_output", 0, Meaning::Leaves(ORAFCE)),
    ("dbms_pipe", 0, Meaning::Leaves(ORAFCE)),
    ("dbms_random", 0, Meaning::Leaves(ORAFCE)),
    ("dbms_sql", 0, Meaning::Leaves(ORAFCE)),
    ("utl_file", 0, Meaning::Leaves(ORAFCE)),
    ("plvdate", 0, Meaning::Leaves(ORAFCE)),
    ("plvsubst", 0, Meaning::Leaves(ORAFCE)),
    ("set_config", 2, Meaning::Marks(Mark::SetConfig)),
    ("pg_settings", 0, Meaning::Marks(Mark::Setter)),
    ("query_to_xml", 4, Meaning::Marks(Mark::Executor)),
    ("crosstab", 0, Meaning::Marks(Mark::Executor)),
    ("connectby", 2, Meaning::Marks(Mark::Executor)),
    ("xpath_table", 0, Meaning::Marks(Mark::Executor)),
    ("ts_rewrite", 2, Meaning::Marks(Mark::Executor)),
]);

const BACKUP: &str = "a backup";
const ORIGIN: &str = "a replication origin";
const SLOT: &str = "a temporary replication slot";
const SEED: &str = "a seed";
const HYPOPG: &str = "a hypothetical index";
const VARIABLES: &str = "variables of pg_variables";
const DEBUGGER: &str = "a debugger";
const ORAFCE: &str = "state of orafce";
const CUSTOM: &str = "a custom setting";
const LIBRARY: &str = "LOAD";
const UNICODE: &str = "a name with Unicode escapes";
const COMPUTED: &str = "a text that is computed";
const LANGUAGE: &str = "DO in another language";

pub(crate) type Scanner = text_search::Scanner<Words>;

/// What words and signs show, in literals and comments, too.
#[derive(Debug, Clone, Default)]
pub(crate) struct Words {
    place: Place,
    expected: Expected,
    marks: u16,
}

/// Where the next word is, as far as the text before it shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    /// It may be the first word of a statement.
    #[default]
    Begin,
    /// It is not, like the `SET` of an `UPDATE`.
    Inner,
}

/// What would have a meaning next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Expected {
    #[default]
    Nothing,
    /// After `LOAD` or `DO`: a literal.
    Literal(Mark),
    /// After `SET` or `RESET`: the name of a setting.
    Setting,
    /// After the first part of that name: a dot.
    Dot,
    /// After `LANGUAGE`: its name.
    Language,
    /// After `U`: `&` and a quote.
    UnicodeQuote,
}

/// What is somewhere in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Load,
    Do,
    Execute,
    /// A language other than PL/pgSQL.
    Language,
    SetSeed,
    /// The word alone.
    Seed,
    /// What sets the setting that a value names.
    Setter,
    SetConfig,
    /// `SET` and the name of a custom setting.
    SetCustom,
    /// `SET` and a comment.
    SetComment,
    Executor,
    /// `||` or a parameter: an executed text may be made of parts.
    Parts,
    /// A backslash or an escape string.
    Escape,
    UnicodeName,
    /// What may begin a comment.
    Dashes,
}

impl Words {
    fn has(&self, mark: Mark) -> bool {
        self.marks >> mark as u16 & 1 == 1
    }
}

impl Findings for Words {
    type Mark = Mark;
    // Unicode escapes begin with `U&`.
    const UNUSUAL: u8 = b'&';

    fn find_names(bytes: &[u8], meets: impl FnMut(usize)) {
        NAMES.find(bytes, meets);
    }

    fn meaning(index: usize) -> Meaning<Mark> {
        NAMES.meaning(index)
    }

    fn mark(&mut self, mark: Mark) {
        self.marks |= 1 << mark as u16;
    }

    /// No `SET`, `LOAD`, `DO` and the like.
    fn begins_plainly(letters: [u8; 4]) -> bool {
        // The beginnings of SELECT, INSERT, UPDATE, DELETE, WITH, VALUES, MERGE, START, COMMIT and ROLLBACK.
        matches!(
            &letters,
            b"sele" | b"inse" | b"upda" | b"dele" | b"with" | b"valu" | b"merg" | b"star" | b"comm" | b"roll"
        )
    }

    fn found(&self) -> Option<&'static str> {
        let sets_custom = self.has(Mark::SetConfig) || self.has(Mark::SetComment);
        let sets_any = sets_custom || self.has(Mark::Setter);
        let executes = self.has(Mark::Do) || self.has(Mark::Executor);
        let is_computed = self.has(Mark::Do) && (self.has(Mark::Execute) || self.has(Mark::Escape))
            || self.has(Mark::Executor) && (self.has(Mark::Parts) || self.has(Mark::Escape));
        let found = [
            (self.has(Mark::Load), LIBRARY),
            (self.has(Mark::SetSeed) || self.has(Mark::Seed) && sets_any, SEED),
            (self.has(Mark::UnicodeName), UNICODE),
            (self.has(Mark::Do) && self.has(Mark::Language), LANGUAGE),
            (is_computed, COMPUTED),
            (executes && (sets_custom || self.has(Mark::SetCustom)), CUSTOM),
        ];
        found.into_iter().find_map(|(is_found, reason)| is_found.then_some(reason))
    }
}

impl TakeWords for Words {
    fn word(&mut self, word: &[u8], before: u8, next: u8) {
        let is_value = before == b'\'' && next == b'\'';
        let may_begin = std::mem::replace(&mut self.place, Place::Inner) == Place::Begin && !is_value;
        let expected = std::mem::take(&mut self.expected);
        match word {
            b"load" if may_begin => self.expected = Expected::Literal(Mark::Load),
            b"do" if may_begin => self.expected = Expected::Literal(Mark::Do),
            b"set" | b"reset" if may_begin => self.expected = Expected::Setting,
            b"session" | b"local" if expected == Expected::Setting => self.expected = expected,
            b"seed" if expected == Expected::Setting => self.mark(Mark::SetSeed),
            b"seed" => self.mark(Mark::Seed),
            _ if expected == Expected::Setting => self.expected = Expected::Dot,
            b"execute" => self.mark(Mark::Execute),
            b"language" => {
                if expected == Expected::Literal(Mark::Do) {
                    self.mark(Mark::Do);
                }
                self.expected = Expected::Language;
            }
            b"e" if next == b'\'' => {
                self.mark(Mark::Escape);
                self.expected = expected;
            }
            b"u" if next == b'&' => self.expected = Expected::UnicodeQuote,
            b"begin" | b"then" | b"else" | b"loop" | b"atomic" => self.place = Place::Begin,
            b"plpgsql" => {}
            _ if expected == Expected::Language => self.mark(Mark::Language),
            [b'0'..=b'9', ..] if before == b'$' => self.mark(Mark::Parts),
            _ => {}
        }
    }

    fn sign(&mut self, byte: u8, last: u8) {
        let begins_comment = matches!((last, byte), (b'/', b'*') | (b'-', b'-'));
        let met = match (self.expected, byte) {
            (Expected::Literal(mark), b'\'' | b'$' | b'\\') => Some(mark),
            (Expected::Literal(mark), _) if begins_comment => Some(mark),
            (Expected::Setting, _) if begins_comment => Some(Mark::SetComment),
            (Expected::Dot, b'.') => Some(Mark::SetCustom),
            (Expected::Language, _) if begins_comment => Some(Mark::Language),
            (Expected::UnicodeQuote, b'\'' | b'"') => Some(Mark::UnicodeName),
            _ => None,
        };
        let keeps = match self.expected {
            Expected::UnicodeQuote => byte == b'&',
            Expected::Language if byte == b'\'' => true,
            _ => matches!(byte, b'/' | b'-' | b'"') || is_space(byte),
        };
        if let Some(mark) = met {
            self.mark(mark);
        }
        if met.is_some() || !keeps {
            self.expected = Expected::Nothing;
        }
        match byte {
            b'\\' => self.mark(Mark::Escape),
            b'|' if last == b'|' => self.mark(Mark::Parts),
            b'-' if last == b'-' => self.mark(Mark::Dashes),
            _ => {}
        }
        self.place = match byte {
            // The end of a statement, the begin of an executed text, or the end of a comment.
            b';' | b'\'' | b'$' | b'\\' | b'>' | b'/' => Place::Begin,
            b'\n' | b'\r' if self.has(Mark::Dashes) => Place::Begin,
            byte if is_space(byte) => self.place,
            _ => Place::Inner,
        };
    }
}

#[cfg(test)]
mod tests;
