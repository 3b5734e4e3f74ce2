//! Key exchange groups (IANA "TLS Supported Groups").

use std::borrow::Cow;

/// A group by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NamedGroup(pub u16);

impl NamedGroup {
    pub const P256: Self = Self(0x0017);
    pub const P384: Self = Self(0x0018);
    pub const P521: Self = Self(0x0019);
    /// Curve25519.
    pub const X25519: Self = Self(0x001d);
    /// Curve448.
    pub const X448: Self = Self(0x001e);
    /// P-256 with ML-KEM-768.
    pub const P256_MLKEM768: Self = Self(0x11eb);
    /// X25519 with ML-KEM-768.
    pub const X25519_MLKEM768: Self = Self(0x11ec);

    /// The name in options and reports. A group without a name is shown by its number, such as `0x0100`.
    pub fn label(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::P256 => "p256",
            Self::P384 => "p384",
            Self::P521 => "p521",
            Self::X25519 => "x25519",
            Self::X448 => "x448",
            Self::P256_MLKEM768 => "p256mlkem768",
            Self::X25519_MLKEM768 => "x25519mlkem768",
            Self(number) => return Cow::Owned(format!("{number:#06x}")),
        })
    }
}
