//! Fields of TLS messages (RFC 8446, 3), taken from the front of the input; `None` if it is too short.

pub(crate) fn array<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*taken)
}

pub(crate) fn number(input: &mut &[u8]) -> Option<u16> {
    array(input).map(u16::from_be_bytes)
}

pub(crate) fn bytes<'a>(input: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(taken)
}

/// Bytes with a one-byte length prefix.
pub(crate) fn short_vector<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let [length] = array(input)?;
    bytes(input, usize::from(length))
}

/// Bytes with a two-byte length prefix.
pub(crate) fn vector<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = number(input)?;
    bytes(input, usize::from(length))
}

/// Bytes with a three-byte length prefix.
pub(crate) fn long_vector<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let [high, middle, low] = array(input)?;
    bytes(input, u32::from_be_bytes([0, high, middle, low]) as usize)
}
