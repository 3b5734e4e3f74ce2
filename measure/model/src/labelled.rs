//! Closed sets whose values have a label each.

/// Declares an enum by its values and labels, with `ALL` in the order of declaration and `label()`.
#[macro_export]
macro_rules! labelled {
    ($(#[$attribute:meta])* $visibility:vis enum $name:ident {
        $($(#[$value_attribute:meta])* $value:ident = $label:literal),+ $(,)?
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visibility enum $name { $($(#[$value_attribute])* $value),+ }

        impl $name {
            pub const ALL: [Self; [$($label),+].len()] = [$(Self::$value),+];

            pub const fn label(self) -> &'static str {
                match self { $(Self::$value => $label),+ }
            }
        }
    };
}
