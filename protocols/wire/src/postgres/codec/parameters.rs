//! `ParameterStatus`: the settings that a server reports.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::postgres::{
    codec::{
        reader::Reader,
        text_rules::{StringSyntax, TextEncoding},
    },
    error::Error,
};

/// More than any server reports; each is short.
const MAX_PARAMETERS: usize = 128;

/// The name of a setting, and a value.
pub type AssumedSetting = (Arc<[u8]>, Arc<[u8]>);

/// The settings that a server reports, with their latest values. Names are compared case-insensitively, as by
/// servers. Clones share what is equal.
#[derive(Debug, Clone, Default)]
pub struct Parameters {
    pairs: Arc<Vec<Pair>>,
    changes: u64,
    /// The sum of the pairs' hashes.
    digest: u64,
    /// Settings that the server has not reported since they were set, with the values of its last reports.
    assumed: Vec<AssumedSetting>,
    string_syntax: StringSyntax,
    encoding: TextEncoding,
}

#[derive(Debug, Clone)]
struct Pair {
    name: Arc<[u8]>,
    value: Arc<[u8]>,
    hash: u64,
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        let is_same = |own: &Arc<[u8]>, other: &Arc<[u8]>| Arc::ptr_eq(own, other) || own == other;
        self.hash == other.hash && is_same(&self.name, &other.name) && is_same(&self.value, &other.value)
    }
}

impl Eq for Pair {}

impl PartialEq for Parameters {
    fn eq(&self, other: &Self) -> bool {
        self.pairs == other.pairs
    }
}

impl Eq for Parameters {}

impl Pair {
    fn new(name: &[u8], value: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        (name, value).hash(&mut hasher);
        Self { name: name.into(), value: value.into(), hash: hasher.finish() }
    }
}

impl Parameters {
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.pairs.iter().find(|pair| pair.name.eq_ignore_ascii_case(name)).map(|pair| &*pair.value)
    }

    /// Stores a value. New settings are added in the order in which they are first reported.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), Error> {
        self.changes += 1;
        self.assumed.retain(|(assumed, _)| !assumed.eq_ignore_ascii_case(name));
        self.read_rule(name, value);
        let Some(at) = self.pairs.iter().position(|pair| pair.name.eq_ignore_ascii_case(name)) else {
            return self.add(Pair::new(name, value));
        };
        let old = &self.pairs[at];
        if *old.value != *value {
            let new = Pair::new(&old.name, value);
            self.digest = self.digest.wrapping_sub(old.hash).wrapping_add(new.hash);
            Arc::make_mut(&mut self.pairs)[at] = new;
        }
        Ok(())
    }

    fn read_rule(&mut self, name: &[u8], value: &[u8]) {
        if name.eq_ignore_ascii_case(StringSyntax::SETTING) {
            self.string_syntax = StringSyntax::of(value);
        } else if name.eq_ignore_ascii_case(TextEncoding::SETTING) {
            self.encoding = TextEncoding::of(value);
        }
    }

    /// Stores a value that the proxy sets, until the server reports what it is.
    pub fn assume(&mut self, name: &[u8], value: &[u8]) -> Result<(), Error> {
        let Some(pair) = self.pairs.iter().find(|pair| pair.name.eq_ignore_ascii_case(name)) else {
            return self.set(name, value);
        };
        let (name, last) = (Arc::clone(&pair.name), Arc::clone(&pair.value));
        let known = self.assumed.iter().position(|(assumed, _)| *assumed == name);
        let (name, last) = known.map_or((name, last), |at| self.assumed.swap_remove(at));
        self.set(&name, value)?;
        if *last != *value {
            self.assumed.push((name, last));
        }
        Ok(())
    }

    /// The server has sent a `ReadyForQuery`, in front of which it reports what differs from its last report. So what it
    /// has not reported has that value: returns the settings that were assumed to have another one, with their values.
    #[inline]
    pub fn settle(&mut self) -> Result<Vec<AssumedSetting>, Error> {
        if self.assumed.is_empty() { Ok(Vec::new()) } else { self.settle_assumed() }
    }

    fn settle_assumed(&mut self) -> Result<Vec<AssumedSetting>, Error> {
        let wrong = std::mem::take(&mut self.assumed);
        for (name, last) in &wrong {
            self.set(name, last)?;
        }
        Ok(wrong)
    }

    /// How the server reads strings now.
    pub fn string_syntax(&self) -> StringSyntax {
        self.string_syntax
    }

    pub fn encoding(&self) -> TextEncoding {
        self.encoding
    }

    fn add(&mut self, pair: Pair) -> Result<(), Error> {
        if self.pairs.len() >= MAX_PARAMETERS {
            return Err(Error::protocol("ParameterStatus", "there are too many"));
        }
        self.digest = self.digest.wrapping_add(pair.hash);
        Arc::make_mut(&mut self.pairs).push(pair);
        Ok(())
    }

    /// A counter that increases with each [`Self::set`]. If it is unchanged, so are all values.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Differs, most likely, if names or values differ. The order does not matter.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The settings of `base` that have another value here, with their values in `base`.
    pub fn changed_from<'a>(&self, base: &'a Self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        // Most are unchanged and in the same place, so names are compared for the others only.
        let is_same = |at, pair| self.pairs.get(at).is_some_and(|own| own == pair);
        let changed = base.pairs.iter().enumerate().filter(move |(at, pair)| !is_same(*at, *pair));
        let pairs = changed.map(|(_, pair)| (&*pair.name, &*pair.value));
        pairs.filter(|(name, value)| self.get(name) != Some(value))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.pairs.iter().map(|pair| (&*pair.name, &*pair.value))
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
    fn changed_settings_are_found_in_any_order() {
        let of = |pairs: &[(&[u8], &[u8])]| {
            let mut parameters = Parameters::default();
            for (name, value) in pairs {
                parameters.set(name, value).unwrap();
            }
            parameters
        };
        let base = of(&[(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]);
        let changed = |parameters: &Parameters| {
            let changed = parameters.changed_from(&base);
            changed.map(|(name, value)| (name.to_vec(), value.to_vec())).collect::<Vec<_>>()
        };
        assert_eq!(changed(&base.clone()), []);
        let mut other = base.clone();
        other.set(b"B", b"4").unwrap();
        other.set(b"d", b"5").unwrap();
        assert_eq!(changed(&other), [(b"b".to_vec(), b"2".to_vec())]);
        assert_eq!(changed(&of(&[(b"c", b"3"), (b"A", b"1")])), [(b"b".to_vec(), b"2".to_vec())]);
    }

    #[test]
    fn what_settings_say_of_texts_is_known() {
        let mut parameters = Parameters::default();
        assert_eq!(parameters.string_syntax(), StringSyntax::Unknown);
        assert_eq!(parameters.encoding(), TextEncoding::AsciiSafe);
        for (value, syntax) in [("on", StringSyntax::Standard), ("off", StringSyntax::Escaped)] {
            parameters.set(b"Standard_Conforming_Strings", value.as_bytes()).unwrap();
            assert_eq!(parameters.string_syntax(), syntax);
        }
        for (value, encoding) in [("gbk", TextEncoding::Ambiguous), ("UTF8", TextEncoding::AsciiSafe)] {
            parameters.set(b"client_encoding", value.as_bytes()).unwrap();
            assert_eq!(parameters.encoding(), encoding);
        }
        parameters.set(b"standard_conforming_strings", b"?").unwrap();
        assert_eq!(parameters.string_syntax(), StringSyntax::Unknown);
    }

    #[test]
    fn names_are_case_insensitive_and_values_are_replaced() {
        let mut parameters = Parameters::default();
        parameters.set(b"TimeZone", b"UTC").unwrap();
        parameters.set(b"client_encoding", b"UTF8").unwrap();
        parameters.set(b"timezone", b"Europe/Vienna").unwrap();
        assert_eq!(parameters.get(b"TIMEZONE"), Some(&b"Europe/Vienna"[..]));
        assert_eq!(parameters.iter().count(), 2);
        let before = parameters.clone();
        parameters.set(b"TimeZone", b"UTC").unwrap();
        assert_ne!((before.digest(), before.get(b"TimeZone")), (parameters.digest(), Some(&b"UTC"[..])));
        parameters.set(b"TimeZone", b"Europe/Vienna").unwrap();
        assert_eq!((before.digest(), &before), (parameters.digest(), &parameters));
        assert!(before.changes() < parameters.changes());
        for number in 0..MAX_PARAMETERS - 2 {
            parameters.set(number.to_string().as_bytes(), b"").unwrap();
        }
        assert!(parameters.set(b"one too many", b"").is_err());
    }
}
