//! The protocol's basic types: fixed and length-encoded integers, and strings ("Basic Data Types").

use crate::mysql::error::Error;

pub(crate) use crate::reader::put_nul_terminated;

pub(crate) type Reader<'a> = crate::reader::Reader<'a, Error>;

/// As the first byte of a length-encoded integer in a text row: NULL.
const NULL: u8 = 0xfb;
const TWO_BYTES: u8 = 0xfc;
const THREE_BYTES: u8 = 0xfd;
const EIGHT_BYTES: u8 = 0xfe;

impl<'a> Reader<'a> {
    pub(crate) fn u16(&mut self) -> Result<u16, Error> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_le_bytes)
    }

    /// A length-encoded integer that must not be NULL.
    pub(crate) fn lenenc_int(&mut self) -> Result<u64, Error> {
        match self.u8()? {
            NULL | 0xff => Err(self.error("not a length-encoded integer")),
            TWO_BYTES => self.u16().map(u64::from),
            THREE_BYTES => {
                let [low, middle, high] = self.array()?;
                Ok(u64::from(u32::from_le_bytes([low, middle, high, 0])))
            }
            EIGHT_BYTES => self.u64(),
            small => Ok(u64::from(small)),
        }
    }

    pub(crate) fn lenenc_bytes(&mut self) -> Result<&'a [u8], Error> {
        let length = self.lenenc_int()?;
        // A length that does not fit in usize exceeds the message anyway.
        self.bytes(usize::try_from(length).unwrap_or(usize::MAX))
    }

    /// A cell of a text row: NULL or a length-encoded string.
    pub(crate) fn nullable_bytes(&mut self) -> Result<Option<&'a [u8]>, Error> {
        if self.peek() == Some(NULL) {
            self.u8()?;
            return Ok(None);
        }
        self.lenenc_bytes().map(Some)
    }

    /// The bytes up to a NUL, or all of them, for fields that some servers do not terminate.
    pub(crate) fn nul_terminated_or_rest(&mut self) -> &'a [u8] {
        if let Ok(text) = self.nul_terminated() {
            return text;
        }
        self.rest()
    }
}

pub(crate) fn put_lenenc_int(out: &mut Vec<u8>, value: u64) {
    if value < u64::from(NULL) {
        out.push(value as u8);
    } else if let Ok(value) = u16::try_from(value) {
        out.push(TWO_BYTES);
        out.extend_from_slice(&value.to_le_bytes());
    } else if value < 1 << 24 {
        out.push(THREE_BYTES);
        out.extend_from_slice(&value.to_le_bytes()[..3]);
    } else {
        out.push(EIGHT_BYTES);
        out.extend_from_slice(&value.to_le_bytes());
    }
}

pub(crate) fn put_lenenc_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_lenenc_int(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lenenc_int_round_trip(value: u64, bits in 0..64_u32) {
            let value = value >> bits;
            let mut out = Vec::new();
            put_lenenc_int(&mut out, value);
            let mut reader = Reader::new(&out, "test");
            prop_assert_eq!(reader.lenenc_int(), Ok(value));
            prop_assert_eq!(reader.end(), Ok(()));
        }

        #[test]
        fn lenenc_bytes_round_trip(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let mut out = Vec::new();
            put_lenenc_bytes(&mut out, &bytes);
            prop_assert_eq!(Reader::new(&out, "test").lenenc_bytes(), Ok(bytes.as_slice()));
        }
    }

    #[test]
    fn lenenc_int_borders() {
        for (value, bytes) in
            [(0xfa, 1), (0xfb, 3), (0xffff, 3), (0x1_0000, 4), (0xff_ffff, 4), (0x100_0000, 9)]
        {
            let mut out = Vec::new();
            put_lenenc_int(&mut out, value);
            assert_eq!(out.len(), bytes, "{value:#x}");
            assert_eq!(Reader::new(&out, "test").lenenc_int(), Ok(value));
        }
    }

    #[test]
    fn null_is_not_an_integer() {
        assert!(Reader::new(&[NULL], "test").lenenc_int().is_err());
        assert!(Reader::new(&[0xff], "test").lenenc_int().is_err());
        assert_eq!(Reader::new(&[NULL], "test").nullable_bytes(), Ok(None));
    }
}
