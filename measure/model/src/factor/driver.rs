//! The driver: the client code that makes the load.

use std::fmt;
use std::str::FromStr;

use super::{Factor, LevelError, as_text};

/// The client code that makes the load. Users can add driver files, so any name is valid here; whether the driver
/// exists is checked later.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Driver {
    /// ciphertoll's own client.
    #[default]
    Native,
    /// A program that speaks the protocol of `__load`, or a tool with an adapter.
    Named(DriverName),
}

/// A driver's name: lower-case letters, digits and `-`, as in its file's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriverName(String);

const NATIVE: &str = "native";

impl fmt::Display for DriverName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl DriverName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Native => formatter.write_str(NATIVE),
            Self::Named(name) => name.fmt(formatter),
        }
    }
}

impl FromStr for Driver {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        if text == NATIVE {
            return Ok(Self::Native);
        }
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if text.bytes().next().is_some_and(|first| first.is_ascii_lowercase()) && text.bytes().all(is_name) {
            return Ok(Self::Named(DriverName(text.to_owned())));
        }
        let expected = "native, or a driver's name of lower-case letters, digits and '-'";
        Err(LevelError::out_of_range(Factor::Driver.label(), text, expected))
    }
}

as_text!(Driver);
