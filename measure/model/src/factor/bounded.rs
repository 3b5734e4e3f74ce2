//! Whole numbers from 1 to a maximum.

/// Declares a whole number from 1 to `MAX`.
macro_rules! bounded {
    ($(#[$doc:meta])* $name:ident($number:ident) up to $max:literal, read by $get:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($number);

        impl $name {
            pub const MAX: $number = $max;

            pub fn new(number: $number) -> Option<Self> {
                (1..=Self::MAX).contains(&number).then_some(Self(number))
            }

            pub fn $get(self) -> $number {
                self.0
            }
        }
    };
}
pub(crate) use bounded;

/// Makes such a number a level, printed in decimal digits. In JSON it is an integer; quoted integers are accepted, too.
macro_rules! as_number {
    ($name:ident of $factor:expr, $expected:literal) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(&self.0, formatter)
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::LevelError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let number = text.parse().ok().and_then(Self::new);
                number.ok_or_else(|| $crate::LevelError::out_of_range($factor, text, $expected))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_u64(u64::from(self.0))
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::factor::deserialize_text(deserializer)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "integer", "minimum": 1 })
            }
        }
    };
}
pub(crate) use as_number;
