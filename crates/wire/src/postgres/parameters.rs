//! `ParameterStatus`: what a server says of a session's settings.

use super::{Error, codec::Reader};

/// More than any server reports; each is short.
const MAX_PARAMETERS: usize = 128;

/// The settings that a server reports, with their newest values. Names are compared as servers do, in any case.
#[derive(Debug, Clone, Default)]
pub struct Parameters {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    changes: u64,
}

impl PartialEq for Parameters {
    fn eq(&self, other: &Self) -> bool {
        self.pairs == other.pairs
    }
}

impl Eq for Parameters {}

impl Parameters {
    /// The value of a setting.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let found = self.pairs.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_slice())
    }

    /// Takes a new value over; a setting is added in the order in which it is first heard of.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), Error> {
        self.changes += 1;
        if let Some((_, old)) = self.pairs.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            old.clear();
            old.extend_from_slice(value);
            return Ok(());
        }
        if self.pairs.len() >= MAX_PARAMETERS {
            return Err(Error::Protocol { message: "ParameterStatus", reason: "there are too many" });
        }
        self.pairs.push((name.to_vec(), value.to_vec()));
        Ok(())
    }

    /// How often something has been set: if it is the same as before, nothing has changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Names and values in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.pairs.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))
    }
}

/// Reads the payload of a `ParameterStatus`: name and value.
pub fn parse_parameter_status(payload: &[u8]) -> Result<(&[u8], &[u8]), Error> {
    let mut reader = Reader::new(payload, "ParameterStatus");
    let pair = (reader.nul_terminated()?, reader.nul_terminated()?);
    reader.end()?;
    Ok(pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case_and_values_replaced() {
        let mut parameters = Parameters::default();
        parameters.set(b"TimeZone", b"UTC").unwrap();
        parameters.set(b"client_encoding", b"UTF8").unwrap();
        parameters.set(b"timezone", b"Europe/Vienna").unwrap();
        assert_eq!(parameters.get(b"TIMEZONE"), Some(&b"Europe/Vienna"[..]));
        assert_eq!(parameters.iter().count(), 2);
        for number in 0..MAX_PARAMETERS - 2 {
            parameters.set(number.to_string().as_bytes(), b"").unwrap();
        }
        assert!(parameters.set(b"one too many", b"").is_err());
    }
}
