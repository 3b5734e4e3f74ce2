//! Finds texts that may leave state that `DISCARD ALL` does not undo. Only the end of the session undoes it, so its
//! connection cannot be handed on.
//!
//! The bytes are searched as they are, with literals and comments, and so with the texts of `DO`, `EXECUTE` and
//! `PREPARE`. A false positive costs a connection. Not seen: what functions of the database do, and texts that
//! arrive as values.

use arrayvec::ArrayVec;

/// Parts of names, in lower case, with the place of a window: seven bytes that few other words contain.
const NAMES: [(&str, usize, Meaning); 37] = [
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
    ("set_config", 2, Meaning::Marks(Mark::Setter)),
    ("pg_settings", 0, Meaning::Marks(Mark::Setter)),
    ("query_to_xml", 4, Meaning::Marks(Mark::Executor)),
    ("crosstab", 0, Meaning::Marks(Mark::Executor)),
    ("connectby", 2, Meaning::Marks(Mark::Executor)),
    ("xpath_table", 0, Meaning::Marks(Mark::Executor)),
    ("ts_rewrite", 2, Meaning::Marks(Mark::Executor)),
];
/// The length of the longest.
const LONGEST: usize = 35;

const BACKUP: &str = "a backup";
const ORIGIN: &str = "a replication origin";
const SLOT: &str = "a temporary replication slot";
const SEED: &str = "a seed";
const HYPOPG: &str = "a hypothetical index";
const VARIABLES: &str = "variables of pg_variables";
const DEBUGGER: &str = "a debugger";
const ORAFCE: &str = "state of orafce";
const LIBRARY: &str = "LOAD";
const UNICODE: &str = "a name with Unicode escapes";
const COMPUTED: &str = "a text that is computed";
const LANGUAGE: &str = "DO in another language";

#[derive(Debug, Clone, Copy)]
enum Meaning {
    /// The function leaves this.
    Leaves(&'static str),
    /// It matters together with other parts of the text.
    Marks(Mark),
}

/// Reads a text in pieces, cut anywhere.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    /// The first of [`NAMES`] that leaves something, by its index.
    function: Option<usize>,
    /// The end of the pieces before, for names that are cut.
    end: ArrayVec<u8, { LONGEST - 1 }>,
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
        scanner.words.read(text);
        scanner.found()
    }

    pub(crate) fn read(&mut self, bytes: &[u8]) {
        let mut cut: ArrayVec<u8, { 2 * (LONGEST - 1) }> = self.end.iter().copied().collect();
        cut.extend(bytes.iter().copied().take(LONGEST - 1));
        self.names(&cut);
        self.names(bytes);
        self.words.read(bytes);
        let kept = &bytes[bytes.len().saturating_sub(LONGEST - 1)..];
        let surplus = (self.end.len() + kept.len()).saturating_sub(LONGEST - 1);
        self.end.drain(..surplus);
        self.end.extend(kept.iter().copied());
    }

    /// What the text may leave. Its last word counts as complete.
    pub(crate) fn found(&self) -> Option<&'static str> {
        let function = self.function.map(|index| NAMES[index].2);
        if let Some(Meaning::Leaves(reason)) = function {
            return Some(reason);
        }
        let mut words = self.words.clone();
        words.read(b" ");
        words.found()
    }

    /// The names in these bytes.
    fn names(&mut self, bytes: &[u8]) {
        names_in(bytes, |index| match NAMES[index].2 {
            Meaning::Leaves(_) => self.function = Some(self.function.map_or(index, |known| known.min(index))),
            Meaning::Marks(mark) => self.words.mark(mark),
        });
    }
}

/// Whether a complete text is one statement of a common kind without a name of interest: a shortcut for most texts.
/// What its literals and comments may look like besides does not matter: they are not executed.
fn is_plain(text: &[u8]) -> bool {
    if !begins_plainly(text) {
        return false;
    }
    // The end of a statement, or a name with Unicode escapes.
    if let Some(at) = memchr::memchr2(b';', b'&', text)
        && (text[at] == b'&' || !text[at + 1..].trim_ascii_start().is_empty())
    {
        return false;
    }
    let mut is_plain = true;
    names_in(text, |_| is_plain = false);
    is_plain
}

/// Whether the first word is that of a statement that is no `SET`, `LOAD`, `DO` and the like.
fn begins_plainly(text: &[u8]) -> bool {
    let Some(first) = text.trim_ascii_start().first_chunk() else { return false };
    // The beginnings of SELECT, INSERT, UPDATE, DELETE, WITH, VALUES, MERGE, START, COMMIT and ROLLBACK.
    matches!(
        &folded(*first).to_be_bytes(),
        b"sele" | b"inse" | b"upda" | b"dele" | b"with" | b"valu" | b"merg" | b"star" | b"comm" | b"roll"
    )
}

/// A window contains a whole chunk of a text, wherever it begins.
const CHUNK: usize = 4;
const WINDOW: usize = 7;
/// The number of places of a chunk in a window.
const PLACES: usize = WINDOW - CHUNK + 1;

/// Calls `meets` with the index of each of [`NAMES`] that these bytes contain.
fn names_in(bytes: &[u8], mut meets: impl FnMut(usize)) {
    let (chunks, _) = bytes.as_chunks();
    for (index, chunk) in chunks.iter().enumerate() {
        let chunk = folded(*chunk);
        if CHUNK_SET.may_contain(chunk) {
            names_around(bytes, index * CHUNK, chunk, &mut meets);
        }
    }
}

/// The names that have this chunk in their windows, if they are here.
#[cold]
fn names_around(bytes: &[u8], at: usize, chunk: u32, meets: &mut impl FnMut(usize)) {
    for (index, chunks) in CHUNKS.iter().enumerate() {
        for (place, known) in chunks.iter().enumerate() {
            if *known != chunk {
                continue;
            }
            let (name, window, _) = NAMES[index];
            let begin = at.checked_sub(window + place);
            let found = begin.and_then(|begin| bytes.get(begin..begin + name.len()));
            if found.is_some_and(|found| found.eq_ignore_ascii_case(name.as_bytes())) {
                meets(index);
            }
        }
    }
}

/// Makes letters lower case. Other bytes may become equal, too.
const fn folded(chunk: [u8; CHUNK]) -> u32 {
    u32::from_be_bytes(chunk) | u32::from_be_bytes([b' '; CHUNK])
}

/// The chunks at all places of each name's window.
static CHUNKS: [[u32; PLACES]; NAMES.len()] = chunks();

const fn chunks() -> [[u32; PLACES]; NAMES.len()] {
    let mut chunks = [[0; PLACES]; NAMES.len()];
    let mut index = 0;
    while index < NAMES.len() {
        let name = NAMES[index].0.as_bytes();
        let mut place = 0;
        while place < PLACES {
            let at = NAMES[index].1 + place;
            chunks[index][place] = folded([name[at], name[at + 1], name[at + 2], name[at + 3]]);
            place += 1;
        }
        index += 1;
    }
    chunks
}

static CHUNK_SET: ChunkSet = ChunkSet::of(chunks().as_flattened());

/// Folded chunks, and others of the same hash.
struct ChunkSet([u64; Self::WORDS]);

impl ChunkSet {
    const WORDS: usize = 256;
    /// With this factor no chunk of SQL's usual words has the hash of a window's.
    const FACTOR: u32 = 0x3773_0edf;

    const fn of(chunks: &[u32]) -> Self {
        let mut set = Self([0; Self::WORDS]);
        let mut index = 0;
        while index < chunks.len() {
            let (word, bit) = Self::place(chunks[index]);
            set.0[word] |= 1 << bit;
            index += 1;
        }
        set
    }

    const fn may_contain(&self, chunk: u32) -> bool {
        let (word, bit) = Self::place(chunk);
        self.0[word] >> bit & 1 == 1
    }

    /// By the upper bits of a product: all bytes have an effect on them.
    const fn place(chunk: u32) -> (usize, u32) {
        let hash = chunk.wrapping_mul(Self::FACTOR) >> 18;
        ((hash >> 6) as usize, hash & 63)
    }
}

/// What words and signs show, in literals and comments, too.
#[derive(Debug, Clone, Default)]
struct Words {
    /// The word that is being read, in lower case; longer words are cut.
    word: ArrayVec<u8, WORD_BYTES>,
    /// The byte directly before it.
    before: u8,
    /// The last byte.
    last: u8,
    place: Place,
    expected: Expected,
    marks: u16,
}

/// More than the words of interest have.
const WORD_BYTES: usize = 10;

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
    /// After `SET`: the name of a setting.
    Setting,
    /// After `LANGUAGE`: its name.
    Language,
    /// After `U`: `&` and a quote.
    UnicodeQuote,
}

/// What is somewhere in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Load,
    Do,
    Execute,
    /// A language other than PL/pgSQL.
    Language,
    SetSeed,
    /// The word alone.
    Seed,
    Setter,
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
    fn mark(&mut self, mark: Mark) {
        self.marks |= 1 << mark as u16;
    }

    fn has(&self, mark: Mark) -> bool {
        self.marks >> mark as u16 & 1 == 1
    }

    fn found(&self) -> Option<&'static str> {
        let sets_any = self.has(Mark::Setter) || self.has(Mark::SetComment);
        let is_computed = self.has(Mark::Do) && (self.has(Mark::Execute) || self.has(Mark::Escape))
            || self.has(Mark::Executor) && (self.has(Mark::Parts) || self.has(Mark::Escape));
        let found = [
            (self.has(Mark::Load), LIBRARY),
            (self.has(Mark::SetSeed) || self.has(Mark::Seed) && sets_any, SEED),
            (self.has(Mark::UnicodeName), UNICODE),
            (self.has(Mark::Do) && self.has(Mark::Language), LANGUAGE),
            (is_computed, COMPUTED),
        ];
        found.into_iter().find_map(|(is_found, reason)| is_found.then_some(reason))
    }

    fn read(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(byte) = rest.first() {
            let length = rest.iter().position(|byte| !is_of_word(*byte)).unwrap_or(rest.len());
            if length == 0 {
                if !self.word.is_empty() {
                    self.end_word(*byte);
                    self.word.clear();
                }
                self.sign(*byte);
                self.last = *byte;
                rest = &rest[1..];
                continue;
            }
            let (word, behind) = rest.split_at(length);
            if self.word.is_empty() {
                self.before = self.last;
            }
            // A word that does not fit is none of those of interest.
            let fits = word.len().min(self.word.remaining_capacity());
            self.word.extend(word[..fits].iter().map(u8::to_ascii_lowercase));
            self.last = word[length - 1];
            rest = behind;
        }
    }

    /// The word is complete; this byte follows it directly.
    fn end_word(&mut self, next: u8) {
        let is_value = self.before == b'\'' && next == b'\'';
        let may_begin = std::mem::replace(&mut self.place, Place::Inner) == Place::Begin && !is_value;
        let expected = std::mem::take(&mut self.expected);
        match self.word.as_slice() {
            b"load" if may_begin => self.expected = Expected::Literal(Mark::Load),
            b"do" if may_begin => self.expected = Expected::Literal(Mark::Do),
            b"set" if may_begin => self.expected = Expected::Setting,
            b"session" | b"local" if expected == Expected::Setting => self.expected = expected,
            b"seed" if expected == Expected::Setting => self.mark(Mark::SetSeed),
            b"seed" => self.mark(Mark::Seed),
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
            [b'0'..=b'9', ..] if self.before == b'$' => self.mark(Mark::Parts),
            _ => {}
        }
    }

    fn sign(&mut self, byte: u8) {
        let begins_comment = matches!((self.last, byte), (b'/', b'*') | (b'-', b'-'));
        let met = match (self.expected, byte) {
            (Expected::Literal(mark), b'\'' | b'$' | b'\\') => Some(mark),
            (Expected::Literal(mark), _) if begins_comment => Some(mark),
            (Expected::Setting, _) if begins_comment => Some(Mark::SetComment),
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
            b'|' if self.last == b'|' => self.mark(Mark::Parts),
            b'-' if self.last == b'-' => self.mark(Mark::Dashes),
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

/// A byte of a key word or a name. A dollar sign may also end a quote.
fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// White space between tokens.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'\x0b' | b'\x0c')
}

#[cfg(test)]
mod tests;
