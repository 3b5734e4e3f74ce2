//! Finds words with which a date or a time is relative to the current one, anywhere in a literal: also as an element of
//! an array, a range or a row.

use arrayvec::ArrayVec;

const WORDS: [&[u8]; 4] = [b"now", b"today", b"tomorrow", b"yesterday"];
/// One more than the longest of them.
const WORD_BYTES: usize = 10;
/// Bytes that are searched. A longer list counts as one that has such a word.
const MAX_SEARCHED_BYTES: usize = 0x4000;

/// Searches a literal that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct RelativeTimes {
    /// The word that is being read, in lower case; longer words are cut.
    word: ArrayVec<u8, WORD_BYTES>,
    searched_bytes: usize,
    is_list: bool,
    is_found: bool,
}

impl RelativeTimes {
    /// The first piece has the beginning of the literal. Only if that is one of a list, later pieces are searched.
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        if self.searched_bytes == 0 {
            self.is_list =
                bytes.first().is_some_and(|byte| matches!(byte, b'{' | b'[' | b'(' | b' ' | b'\n'));
        } else if !self.is_list {
            return;
        }
        self.searched_bytes = self.searched_bytes.saturating_add(bytes.len());
        if self.is_found || self.searched_bytes > MAX_SEARCHED_BYTES {
            self.is_found = true;
            return;
        }
        for byte in bytes {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' => {
                    // A word that does not fit is another one.
                    let _ = self.word.try_push(byte.to_ascii_lowercase());
                }
                // They may be within a word, which means the same without them.
                b'\\' | b'"' => {}
                _ => self.end_word(),
            }
        }
    }

    fn end_word(&mut self) {
        self.is_found |= WORDS.contains(&self.word.as_slice());
        self.word.clear();
    }

    /// Ends the literal. Returns whether it may have such a word.
    pub(crate) fn end(&mut self) -> bool {
        self.end_word();
        self.is_found
    }
}

/// Whether a literal may be a time that is relative to the current one, or contain one.
pub(crate) fn has_relative_time(text: &[u8]) -> bool {
    let mut times = RelativeTimes::default();
    times.read(text);
    times.end()
}
