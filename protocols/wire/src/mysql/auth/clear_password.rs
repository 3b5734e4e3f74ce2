//! `mysql_clear_password`: the password followed by a NUL ("Clear Text Authentication").
//!
//! [`super::caching_sha2`] sends the same message if the path is private.

use zeroize::Zeroizing;

use crate::mysql::error::Error;

pub const NAME: &[u8] = b"mysql_clear_password";

/// The password in a client's message; `None` if the final NUL is missing.
pub fn parse(payload: &[u8]) -> Option<&[u8]> {
    payload.strip_suffix(&[0])
}

pub(crate) fn response(password: &[u8]) -> Result<Zeroizing<Vec<u8>>, Error> {
    // The server would truncate the password at the NUL.
    if password.contains(&0) {
        return Err(Error::InvalidLogin { field: "password" });
    }
    // Allocated with its full capacity, so that no reallocation leaves a copy behind.
    let mut response = Zeroizing::new(Vec::with_capacity(password.len() + 1));
    response.extend_from_slice(password);
    response.push(0);
    Ok(response)
}
