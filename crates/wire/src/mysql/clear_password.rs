//! `mysql_clear_password`: the password and a NUL ("Clear Text Authentication").
//!
//! [`super::caching_sha2`] ends in the same message where the path is private.

use zeroize::Zeroizing;

use super::Error;

/// The plugin's name.
pub const NAME: &[u8] = b"mysql_clear_password";

/// The password in a client's message; none if the NUL at its end is missing.
pub fn parse(payload: &[u8]) -> Option<&[u8]> {
    payload.strip_suffix(&[0])
}

/// The client's message.
pub(super) fn response(password: &[u8]) -> Result<Zeroizing<Vec<u8>>, Error> {
    // The server would take what is before the NUL for the whole.
    if password.contains(&0) {
        return Err(Error::InvalidLogin { field: "password" });
    }
    // With its full capacity from the start, so that growing leaves no copy behind.
    let mut response = Zeroizing::new(Vec::with_capacity(password.len() + 1));
    response.extend_from_slice(password);
    response.push(0);
    Ok(response)
}
