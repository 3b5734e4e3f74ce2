//! The greeting of one that stands between clients and a server: the server's own, as far as it holds for clients.

use super::{
    Capabilities, Error, Plugin, greeting::Greeting, native_password::NONCE_BYTES, packet, relay::RELAYED,
};

/// What there is to log in with, whatever the server has beyond it. TLS is for the server's side alone.
const OF_LOGIN: Capabilities = Capabilities::LONG_PASSWORD
    .with(Capabilities::CONNECT_WITH_DB)
    .with(Capabilities::PROTOCOL_41)
    .with(Capabilities::SECURE_CONNECTION)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::PLUGIN_AUTH_LENENC);
/// What nobody's version is longer than; it is cut there.
const MAX_VERSION_BYTES: usize = 128;

/// What a server says to everybody in its greeting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GreetingTemplate {
    /// As sent, `5.5.5-` of MariaDB included.
    version: Vec<u8>,
    /// What the server offers.
    capabilities: Capabilities,
    character_set: u8,
    status: u16,
    plugin: Plugin,
}

impl GreetingTemplate {
    /// What a server's greeting says to others, too.
    pub fn of(greeting: &Greeting<'_>) -> Self {
        let version = &greeting.version[..greeting.version.len().min(MAX_VERSION_BYTES)];
        Self {
            version: version.to_vec(),
            capabilities: greeting.capabilities,
            character_set: greeting.character_set,
            status: greeting.status,
            // The others of its plugins take another challenge than a greeting has.
            plugin: match Plugin::of_name(greeting.plugin) {
                Some(Plugin::CachingSha2Password) => Plugin::CachingSha2Password,
                _ => Plugin::NativePassword,
            },
        }
    }

    /// The same without these, whatever the server offers.
    #[must_use]
    pub fn without(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = self.capabilities.without(capabilities);
        self
    }

    /// What clients are offered.
    pub fn capabilities(&self) -> Capabilities {
        let offered = (self.capabilities & RELAYED) | OF_LOGIN;
        // Where MariaDB has flags of its own, the lack of this one says so.
        if offered.is_extended() { offered.without(Capabilities::LONG_PASSWORD) } else { offered }
    }

    /// The plugin that clients are to begin with.
    pub fn plugin(&self) -> Plugin {
        self.plugin
    }

    /// "Status flags" of a session that has just begun.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Appends the greeting for a client with this number and challenge, which must have no NUL.
    pub fn write(
        &self,
        connection_id: u32,
        nonce: [u8; NONCE_BYTES],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.write_offering(Capabilities::default(), connection_id, nonce, out)
    }

    /// The same for a client that is offered TLS, which is not for the one between to pass on.
    pub fn write_with_tls(
        &self,
        connection_id: u32,
        nonce: [u8; NONCE_BYTES],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.write_offering(Capabilities::SSL, connection_id, nonce, out)
    }

    fn write_offering(
        &self,
        more: Capabilities,
        connection_id: u32,
        nonce: [u8; NONCE_BYTES],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let greeting = Greeting {
            version: &self.version,
            connection_id,
            nonce,
            capabilities: self.capabilities() | more,
            character_set: self.character_set,
            status: self.status,
            plugin: self.plugin.name(),
        };
        packet::write(out, 0, |out| greeting.encode(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(capabilities: Capabilities, plugin: &[u8]) -> GreetingTemplate {
        GreetingTemplate::of(&Greeting {
            version: b"5.5.5-10.11.19-MariaDB",
            connection_id: 7,
            nonce: *b"abcdefghijklmnopqrst",
            capabilities,
            character_set: 45,
            status: 2,
            plugin,
        })
    }

    #[test]
    fn only_what_can_be_followed_is_offered() {
        let everything = Capabilities::from_bits(u64::MAX).without(Capabilities::LONG_PASSWORD);
        let template = of(everything, b"mysql_native_password");
        let mut out = Vec::new();
        template.write(0x8000_0001, *b"ABCDEFGHIJKLMNOPQRST", &mut out).unwrap();
        let greeting = Greeting::parse(&out[4..]).unwrap();
        assert_eq!((greeting.version, greeting.connection_id), (&b"5.5.5-10.11.19-MariaDB"[..], 0x8000_0001));
        assert_eq!(&greeting.nonce, b"ABCDEFGHIJKLMNOPQRST");
        assert!(greeting.capabilities.contains(RELAYED | Capabilities::PLUGIN_AUTH));
        let greeting_capabilities = greeting.capabilities;
        for never in [Capabilities::SSL, Capabilities::COMPRESS, Capabilities::ZSTD_COMPRESSION] {
            assert!(!greeting.capabilities.contains(never), "{never:?}");
        }
        out.clear();
        template.write_with_tls(7, *b"ABCDEFGHIJKLMNOPQRST", &mut out).unwrap();
        let with_tls = Greeting::parse(&out[4..]).unwrap().capabilities;
        assert_eq!(with_tls, greeting_capabilities | Capabilities::SSL);
        // A server without flags of MariaDB's says so.
        let plain = Capabilities::from_bits(u64::from(u32::MAX));
        assert!(of(plain, b"").capabilities().contains(Capabilities::LONG_PASSWORD));
        assert!(!of(plain, b"").capabilities().is_extended());
    }

    #[test]
    fn clients_begin_with_a_plugin_that_a_greeting_suffices_for() {
        let plugin = |name: &[u8]| of(RELAYED, name).plugin();
        assert_eq!(plugin(b"caching_sha2_password"), Plugin::CachingSha2Password);
        for name in [&b"mysql_native_password"[..], b"client_ed25519", b"parsec", b"sha256_password", b""] {
            assert_eq!(plugin(name), Plugin::NativePassword);
        }
    }
}
