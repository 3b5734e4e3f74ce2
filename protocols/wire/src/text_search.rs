//! Looks for names in texts, and reads their words: fast, in pieces, without a grammar.

use arrayvec::ArrayVec;

/// A window contains a whole chunk of a text, wherever it begins.
const CHUNK: usize = 4;
const WINDOW: usize = 7;
/// The number of places of a chunk in a window.
const PLACES: usize = WINDOW - CHUNK + 1;

/// The length of the longest name of all sets.
pub(crate) const LONGEST: usize = 35;

/// A name or a part of one in lower case, the place of its window, and its meaning. A window is seven bytes that few
/// other words contain.
pub(crate) type Name<M> = (&'static str, usize, M);

/// Names, which are found in any case and within longer words.
pub(crate) struct NameSet<M, const N: usize> {
    names: [Name<M>; N],
    /// The chunks at all places of each name's window.
    chunks: [[u32; PLACES]; N],
    hashes: ChunkSet,
}

impl<M: Copy, const N: usize> NameSet<M, N> {
    pub(crate) const fn of(names: [Name<M>; N]) -> Self {
        let mut chunks = [[0; PLACES]; N];
        let mut index = 0;
        while index < N {
            let (name, window, _) = names[index];
            let name = name.as_bytes();
            assert!(window + WINDOW <= name.len() && name.len() <= LONGEST, "a name of another length");
            let mut place = 0;
            while place < PLACES {
                let at = window + place;
                chunks[index][place] = folded([name[at], name[at + 1], name[at + 2], name[at + 3]]);
                place += 1;
            }
            index += 1;
        }
        Self { names, chunks, hashes: ChunkSet::of(chunks.as_flattened()) }
    }

    pub(crate) const fn meaning(&self, index: usize) -> M {
        self.names[index].2
    }

    /// Calls `meets` with the index of each name that these bytes contain.
    pub(crate) fn find(&self, bytes: &[u8], mut meets: impl FnMut(usize)) {
        let (chunks, _) = bytes.as_chunks();
        for (index, chunk) in chunks.iter().enumerate() {
            let chunk = folded(*chunk);
            if self.hashes.may_contain(chunk) {
                self.find_around(bytes, index * CHUNK, chunk, &mut meets);
            }
        }
    }

    /// The names that have this chunk in their windows, if they are here.
    #[cold]
    fn find_around(&self, bytes: &[u8], at: usize, chunk: u32, meets: &mut impl FnMut(usize)) {
        for (index, chunks) in self.chunks.iter().enumerate() {
            for (place, known) in chunks.iter().enumerate() {
                if *known != chunk {
                    continue;
                }
                let (name, window, _) = self.names[index];
                let begin = at.checked_sub(window + place);
                let found = begin.and_then(|begin| bytes.get(begin..begin + name.len()));
                if found.is_some_and(|found| found.eq_ignore_ascii_case(name.as_bytes())) {
                    meets(index);
                }
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn names(&self) -> &[Name<M>] {
        &self.names
    }
}

/// Makes letters lower case. Other bytes may become equal, too.
const fn folded(chunk: [u8; CHUNK]) -> u32 {
    u32::from_be_bytes(chunk) | u32::from_be_bytes([b' '; CHUNK])
}

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

/// The end of the pieces before, for names that are cut.
#[derive(Debug, Default)]
struct CutNames(ArrayVec<u8, { LONGEST - 1 }>);

impl CutNames {
    /// The bytes around the cut in front of the next piece.
    fn join(&mut self, piece: &[u8]) -> ArrayVec<u8, { 2 * (LONGEST - 1) }> {
        let mut joint: ArrayVec<u8, { 2 * (LONGEST - 1) }> = self.0.iter().copied().collect();
        joint.extend(piece.iter().copied().take(LONGEST - 1));
        let kept = &piece[piece.len().saturating_sub(LONGEST - 1)..];
        let surplus = (self.0.len() + kept.len()).saturating_sub(LONGEST - 1);
        self.0.drain(..surplus);
        self.0.extend(kept.iter().copied());
        joint
    }
}

/// What a name means.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Meaning<M> {
    /// What has this name leaves this.
    Leaves(&'static str),
    /// It matters together with other parts of the text.
    Marks(M),
}

/// What the words and signs of a text show, and the names that matter besides.
pub(crate) trait Findings: TakeWords + Clone + Default {
    type Mark: Copy;
    /// A byte that shortens no search: a text that has it is searched completely.
    const UNUSUAL: u8;

    /// Calls `meets` with the index of each name that these bytes contain.
    fn find_names(bytes: &[u8], meets: impl FnMut(usize));

    fn meaning(index: usize) -> Meaning<Self::Mark>;

    fn mark(&mut self, mark: Self::Mark);

    /// Whether a statement that begins with these letters, in lower case, needs no search of its words.
    fn begins_plainly(letters: [u8; CHUNK]) -> bool;

    fn found(&self) -> Option<&'static str>;
}

/// Looks for what a text may leave. Reads it in pieces, cut anywhere.
#[derive(Debug, Default)]
pub(crate) struct Scanner<F> {
    /// The first name that leaves something, by its index.
    pub(crate) name: Option<usize>,
    cut: CutNames,
    reader: WordReader,
    pub(crate) findings: F,
}

impl<F: Findings> Scanner<F> {
    /// Whether a complete text is one statement of a common kind without a name of interest: a shortcut for most texts.
    /// What its literals and comments may look like besides does not matter: they are not executed.
    pub(crate) fn is_plain(text: &[u8]) -> bool {
        let first = text.trim_ascii_start().first_chunk();
        let begins_plainly = first.is_some_and(|first| F::begins_plainly(folded(*first).to_be_bytes()));
        if !begins_plainly || !is_single_without(text, F::UNUSUAL) {
            return false;
        }
        let mut is_plain = true;
        F::find_names(text, |_| is_plain = false);
        is_plain
    }

    /// What a complete text may leave.
    pub(crate) fn of(text: &[u8]) -> Option<&'static str> {
        if Self::is_plain(text) {
            return None;
        }
        let mut scanner = Self::default();
        scanner.names(text);
        scanner.reader.read(text, &mut scanner.findings);
        scanner.found()
    }

    pub(crate) fn read(&mut self, bytes: &[u8]) {
        let joint = self.cut.join(bytes);
        self.names(&joint);
        self.names(bytes);
        self.reader.read(bytes, &mut self.findings);
    }

    /// What the text may leave. Its last word counts as complete.
    pub(crate) fn found(&self) -> Option<&'static str> {
        if let Some(Meaning::Leaves(reason)) = self.name.map(F::meaning) {
            return Some(reason);
        }
        let mut findings = self.findings.clone();
        self.reader.clone().read(b" ", &mut findings);
        findings.found()
    }

    /// The names in these bytes.
    fn names(&mut self, bytes: &[u8]) {
        F::find_names(bytes, |index| match F::meaning(index) {
            Meaning::Leaves(_) => self.name = Some(self.name.map_or(index, |known| known.min(index))),
            Meaning::Marks(mark) => self.findings.mark(mark),
        });
    }
}

/// More bytes than any word of interest has.
pub(crate) const WORD_BYTES: usize = 16;

/// Splits a text into words and single other bytes, in literals and comments, too.
#[derive(Debug, Clone, Default)]
struct WordReader {
    /// The word that is being read, in lower case; longer words are cut.
    word: ArrayVec<u8, WORD_BYTES>,
    /// The byte directly before it.
    before: u8,
    /// The last byte.
    last: u8,
}

pub(crate) trait TakeWords {
    /// A word in lower case, between the bytes `before` and `next`. If it is long, it is cut.
    fn word(&mut self, word: &[u8], before: u8, next: u8);
    /// A byte that is not part of a word, and the byte before it.
    fn sign(&mut self, sign: u8, last: u8);
}

impl WordReader {
    fn read(&mut self, bytes: &[u8], target: &mut impl TakeWords) {
        let mut rest = bytes;
        while let Some(byte) = rest.first() {
            let length = rest.iter().position(|byte| !is_of_word(*byte)).unwrap_or(rest.len());
            if length == 0 {
                if !self.word.is_empty() {
                    target.word(&self.word, self.before, *byte);
                    self.word.clear();
                }
                target.sign(*byte, self.last);
                self.last = *byte;
                rest = &rest[1..];
                continue;
            }
            let (word, behind) = rest.split_at(length);
            if self.word.is_empty() {
                self.before = self.last;
            }
            let fits = word.len().min(self.word.remaining_capacity());
            self.word.extend(word[..fits].iter().map(u8::to_ascii_lowercase));
            self.last = word[length - 1];
            rest = behind;
        }
    }
}

/// A byte of a key word or a name. A dollar sign may also end a quote.
fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// White space between tokens.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'\x0b' | b'\x0c')
}

/// Whether a complete text is a single statement without this byte.
fn is_single_without(text: &[u8], sign: u8) -> bool {
    match memchr::memchr2(b';', sign, text) {
        None => true,
        Some(at) => text[at] == b';' && text[at + 1..].trim_ascii_start().is_empty(),
    }
}
