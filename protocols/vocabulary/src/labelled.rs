//! Types that are written and read as their label.

/// Defines an enumeration of values with labels: `ALL` of them, `label`, and what [`labelled`] adds.
macro_rules! labelled_enum {
    ($(#[$meta:meta])* $name:ident: $what:literal {
        $($(#[$about:meta])* $variant:ident = $label:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$about])* $variant,)+
        }

        impl $name {
            /// Every value, in the order of their definition.
            pub const ALL: [Self; [$($label),+].len()] = [$(Self::$variant),+];

            /// As on the command line and in reports.
            pub fn label(self) -> &'static str {
                match self {
                    $(Self::$variant => $label,)+
                }
            }
        }

        labelled!($name: $what);
    };
}
pub(crate) use labelled_enum;

/// Implements `from_label`, `Display`, `Serialize` and `Deserialize` for a type with `ALL` and `label()`.
macro_rules! labelled {
    ($name:ident: $what:literal) => {
        impl $name {
            /// The value that has this label.
            pub fn from_label(label: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|known| known.label() == label)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(self.label())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.label())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let label = std::borrow::Cow::<str>::deserialize(deserializer)?;
                Self::from_label(&label)
                    .ok_or_else(|| serde::de::Error::custom(format_args!("unknown {} \"{label}\"", $what)))
            }
        }
    };
}
pub(crate) use labelled;
