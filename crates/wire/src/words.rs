//! Sets of words.

pub(crate) struct WordSet(Vec<&'static [u8]>);

impl WordSet {
    /// The words of this text, in any order.
    pub(crate) fn of(text: &'static str) -> Self {
        let mut words: Vec<&[u8]> = text.split_ascii_whitespace().map(str::as_bytes).collect();
        words.sort_unstable();
        Self(words)
    }

    pub(crate) fn contains(&self, word: &[u8]) -> bool {
        self.0.binary_search(&word).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_any_order() {
        let words = WordSet::of("count abs\n  sum");
        assert!([&b"abs"[..], b"count", b"sum"].iter().all(|word| words.contains(word)));
        assert!([&b""[..], b"ab", b"abs count", b"SUM"].iter().all(|word| !words.contains(word)));
    }
}
