//! Key exchange groups (IANA "TLS Supported Groups").

use std::borrow::Cow;

use ciphertoll_vocabulary::Group;

/// A group as it is on the wire: its code point, which may be of a group that our clients never offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamedGroup(pub u16);

impl NamedGroup {
    /// The name that options and reports use; a group without one is shown by its number, as `0x0100`.
    pub fn label(self) -> Cow<'static, str> {
        if let Some(group) = Group::ALL.into_iter().find(|group| Self::from(*group) == self) {
            return group.label().into();
        }
        match self.0 {
            0x001e => "x448".into(),
            number => format!("{number:#06x}").into(),
        }
    }
}

impl From<Group> for NamedGroup {
    fn from(group: Group) -> Self {
        Self(group.number())
    }
}
