//! Words with a meaning.

/// Words of the same length and with the same first letter are in one bucket.
const LENGTHS: usize = 32;
const LETTERS: usize = 32;
const BUCKETS: usize = LENGTHS * LETTERS;

/// Words, each with a value. A lookup compares only words of the same length and with the same first letter.
pub(crate) struct WordMap<V> {
    /// By bucket.
    words: Vec<(&'static [u8], V)>,
    /// Where the words of each bucket begin, and where the last ones end.
    begins: Box<[u16; BUCKETS + 1]>,
}

impl<V: Copy> WordMap<V> {
    /// The words of each text, in any order, with the value of that text. No word is in two texts.
    pub(crate) fn of(texts: &[(&'static str, V)]) -> Self {
        let words_of = |(text, value): &(&'static str, V)| {
            let value = *value;
            text.split_ascii_whitespace().map(move |word| (word.as_bytes(), value))
        };
        let mut words: Vec<_> = texts.iter().flat_map(words_of).collect();
        words.sort_by_key(|(word, _)| bucket(word));
        let mut begins = Box::new([0; BUCKETS + 1]);
        for (word, _) in &words {
            begins[bucket(word) + 1] += 1;
        }
        let mut before = 0;
        for begin in begins.iter_mut() {
            before += *begin;
            *begin = before;
        }
        Self { words, begins }
    }

    pub(crate) fn get(&self, word: &[u8]) -> Option<V> {
        let at = bucket(word);
        let [begin, end] = [self.begins[at], self.begins[at + 1]].map(usize::from);
        let found = self.words[begin..end].iter().find(|(known, _)| *known == word);
        found.map(|(_, value)| *value)
    }
}

fn bucket(word: &[u8]) -> usize {
    let first = word.first().map_or(0, |byte| usize::from(*byte));
    word.len() % LENGTHS * LETTERS + first % LETTERS
}

/// A set of words.
pub(crate) struct WordSet(WordMap<()>);

impl WordSet {
    /// The words of this text, in any order.
    pub(crate) fn of(text: &'static str) -> Self {
        Self(WordMap::of(&[(text, ())]))
    }

    pub(crate) fn contains(&self, word: &[u8]) -> bool {
        self.0.get(word).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_any_order() {
        let words = WordSet::of("count abs\n  sum");
        assert!([&b"abs"[..], b"count", b"sum"].iter().all(|word| words.contains(word)));
        // `!bs` is in the bucket of `abs`.
        let others = [&b""[..], b"ab", b"!bs", b"abs count", b"SUM"];
        assert!(others.iter().all(|word| !words.contains(word)));
    }

    #[test]
    fn a_word_has_the_value_of_its_text() {
        let words = WordMap::of(&[("sum avg", 1), ("all set", 2), ("sat", 3)]);
        let found = [&b"sum"[..], b"avg", b"all", b"set", b"sat", b"sit"].map(|word| words.get(word));
        assert_eq!(found, [Some(1), Some(1), Some(2), Some(2), Some(3), None]);
        let long = [b'a'; 200];
        assert_eq!(words.get(&long), None);
    }
}
