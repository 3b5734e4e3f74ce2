//! How many certificates a server sends: a modifier of TLS paths, `+chain=3`.

use std::fmt;
use std::str::FromStr;

use super::LevelError;

/// How many certificates a server sends, its own included: 1–10.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainLength(u8);

impl ChainLength {
    pub const MAX: u8 = 10;

    pub fn new(count: u8) -> Option<Self> {
        (1..=Self::MAX).contains(&count).then_some(Self(count))
    }

    pub fn count(self) -> u8 {
        self.0
    }
}

impl fmt::Display for ChainLength {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl FromStr for ChainLength {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        text.parse().ok().and_then(Self::new).ok_or_else(|| LevelError::OutOfRange {
            factor: "chain",
            text: text.to_owned(),
            expected: "1 to 10 certificates after chain=",
        })
    }
}
