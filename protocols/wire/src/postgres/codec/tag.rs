//! `CommandComplete`: the tag that says what a statement did.

use crate::postgres::error::Error;

/// The statements whose count is of changed rows. Other statements count returned or moved rows.
const CHANGING: [&[u8]; 5] = [b"INSERT", b"UPDATE", b"DELETE", b"MERGE", b"COPY"];

/// The number of rows that a statement with this tag has changed. A tag that does not end in a number counts
/// as 0.
#[inline]
pub(crate) fn affected_rows(payload: &[u8]) -> Result<u64, Error> {
    let Some((0, tag)) = payload.split_last() else {
        return Err(Error::protocol("CommandComplete", "a string is not NUL-terminated"));
    };
    let word_bytes = tag.iter().position(|&byte| byte == b' ').unwrap_or(tag.len());
    if !CHANGING.contains(&&tag[..word_bytes]) {
        return Ok(0);
    }
    let digits = tag.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    // A hostile server's count must not overflow.
    Ok(tag[tag.len() - digits..]
        .iter()
        .fold(0_u64, |count, digit| count.saturating_mul(10).saturating_add(u64::from(digit - b'0'))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags() {
        for (tag, expected) in [
            (&b"INSERT 0 7\0"[..], 7),
            (b"UPDATE 12\0", 12),
            (b"DELETE 0\0", 0),
            (b"MERGE 3\0", 3),
            (b"COPY 100000\0", 100_000),
            (b"SELECT 5\0", 0),
            (b"FETCH 5\0", 0),
            (b"CREATE TABLE\0", 0),
            (b"UPDATE\0", 0),
            (b"\0", 0),
            (b"UPDATE 99999999999999999999999\0", u64::MAX),
        ] {
            assert_eq!(affected_rows(tag), Ok(expected), "{tag:?}");
        }
        assert!(affected_rows(b"UPDATE 1").is_err() && affected_rows(b"").is_err());
    }
}
