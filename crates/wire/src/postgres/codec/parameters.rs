//! `ParameterStatus`: the settings that a server reports.

use crate::postgres::{codec::reader::Reader, error::Error};

/// More than any server reports; each is short.
const MAX_PARAMETERS: usize = 128;

/// The settings that a server reports, with their latest values. Names are compared case-insensitively, as by
/// servers.
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
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let found = self.pairs.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_slice())
    }

    /// Stores a value. New settings are added in the order in which they are first reported.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), Error> {
        self.changes += 1;
        if let Some((_, old)) = self.pairs.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            old.clear();
            old.extend_from_slice(value);
            return Ok(());
        }
        if self.pairs.len() >= MAX_PARAMETERS {
            return Err(Error::protocol("ParameterStatus", "there are too many"));
        }
        self.pairs.push((name.to_vec(), value.to_vec()));
        Ok(())
    }

    /// A counter that increases with each [`Self::set`]. If it is unchanged, so are all values.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.pairs.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))
    }
}

/// Parses the payload of a `ParameterStatus`: name and value.
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
    fn names_are_case_insensitive_and_values_are_replaced() {
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
