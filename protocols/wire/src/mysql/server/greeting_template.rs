//! The greeting that a proxy sends to its clients: the server's, restricted to what the proxy supports.

use crate::mysql::{
    auth::{Plugin, native_password::NONCE_BYTES},
    codec::{
        capabilities::{Capabilities, RELAYED},
        greeting::Greeting,
        packet,
    },
};

/// Login capabilities that the proxy offers independently of the server. TLS is negotiated separately on each
/// side.
const OF_LOGIN: Capabilities = Capabilities::LONG_PASSWORD
    .with(Capabilities::CONNECT_WITH_DB)
    .with(Capabilities::PROTOCOL_41)
    .with(Capabilities::SECURE_CONNECTION)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::PLUGIN_AUTH_LENENC);
/// Longer than any server's version; the rest is cut.
const MAX_VERSION_BYTES: usize = 128;

/// The parts of a server's greeting that are the same for every client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GreetingTemplate {
    /// As sent, including MariaDB's prefix `5.5.5-`.
    version: Vec<u8>,
    capabilities: Capabilities,
    character_set: u8,
    status: u16,
    plugin: Plugin,
    /// The packets, with nothing for the connection ID and the nonce.
    packet: Vec<u8>,
    packet_with_tls: Vec<u8>,
}

impl GreetingTemplate {
    pub fn of(greeting: &Greeting<'_>) -> Self {
        let version = &greeting.version[..greeting.version.len().min(MAX_VERSION_BYTES)];
        let template = Self {
            version: version.to_vec(),
            capabilities: greeting.capabilities,
            character_set: greeting.character_set,
            status: greeting.status,
            // The other plugins need another challenge than a greeting has.
            plugin: match Plugin::of_name(greeting.plugin) {
                Some(Plugin::CachingSha2Password) => Plugin::CachingSha2Password,
                _ => Plugin::NativePassword,
            },
            packet: Vec::new(),
            packet_with_tls: Vec::new(),
        };
        template.with_packets()
    }

    fn with_packets(mut self) -> Self {
        self.packet = self.encode(Capabilities::default());
        self.packet_with_tls = self.encode(Capabilities::SSL);
        self
    }

    fn encode(&self, more: Capabilities) -> Vec<u8> {
        let greeting = Greeting {
            version: &self.version,
            connection_id: 0,
            nonce: [0; NONCE_BYTES],
            capabilities: self.capabilities() | more,
            character_set: self.character_set,
            status: self.status,
            plugin: self.plugin.name(),
        };
        let mut packet = Vec::new();
        // Fails only for more than a gigabyte.
        let _ = packet::write(&mut packet, 0, |out| greeting.encode(out));
        packet
    }

    /// Never offers these capabilities.
    #[must_use]
    pub fn without(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = self.capabilities.without(capabilities);
        self.with_packets()
    }

    /// The capabilities offered to clients.
    pub fn capabilities(&self) -> Capabilities {
        let offered = (self.capabilities & RELAYED) | OF_LOGIN;
        // A missing flag announces MariaDB's extended flags.
        if offered.is_extended() { offered.without(Capabilities::LONG_PASSWORD) } else { offered }
    }

    /// The server's version, as sent.
    pub fn version(&self) -> &[u8] {
        &self.version
    }

    /// The plugin with which clients start.
    pub fn plugin(&self) -> Plugin {
        self.plugin
    }

    /// "Status flags" of a new session.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Appends the greeting. `nonce` must have no NUL.
    pub fn write(&self, connection_id: u32, nonce: &[u8; NONCE_BYTES], out: &mut Vec<u8>) {
        self.readdress(&self.packet, connection_id, nonce, out);
    }

    /// The same, and offers TLS.
    pub fn write_with_tls(&self, connection_id: u32, nonce: &[u8; NONCE_BYTES], out: &mut Vec<u8>) {
        self.readdress(&self.packet_with_tls, connection_id, nonce, out);
    }

    fn readdress(&self, packet: &[u8], connection_id: u32, nonce: &[u8; NONCE_BYTES], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(packet);
        let payload = &mut out[start + packet::HEADER_BYTES..];
        Greeting::readdress(payload, &self.version, connection_id, nonce);
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
    fn only_relayed_capabilities_are_offered() {
        let everything = Capabilities::from_bits(u64::MAX).without(Capabilities::LONG_PASSWORD);
        let template = of(everything, b"mysql_native_password");
        let mut out = Vec::new();
        template.write(0x8000_0001, b"ABCDEFGHIJKLMNOPQRST", &mut out);
        let greeting = Greeting::parse(&out[4..]).unwrap();
        assert_eq!((greeting.version, greeting.connection_id), (&b"5.5.5-10.11.19-MariaDB"[..], 0x8000_0001));
        assert_eq!(&greeting.nonce, b"ABCDEFGHIJKLMNOPQRST");
        assert!(greeting.capabilities.contains(RELAYED | Capabilities::PLUGIN_AUTH));
        let greeting_capabilities = greeting.capabilities;
        for never in [Capabilities::SSL, Capabilities::COMPRESS, Capabilities::ZSTD_COMPRESSION] {
            assert!(!greeting.capabilities.contains(never), "{never:?}");
        }
        out.clear();
        template.write_with_tls(7, b"ABCDEFGHIJKLMNOPQRST", &mut out);
        let with_tls = Greeting::parse(&out[4..]).unwrap().capabilities;
        assert_eq!(with_tls, greeting_capabilities | Capabilities::SSL);
        // A server without MariaDB's extended flags says so.
        let plain = Capabilities::from_bits(u64::from(u32::MAX));
        assert!(of(plain, b"").capabilities().contains(Capabilities::LONG_PASSWORD));
        assert!(!of(plain, b"").capabilities().is_extended());
    }

    #[test]
    fn clients_start_with_a_plugin_that_needs_no_other_challenge() {
        let plugin = |name: &[u8]| of(RELAYED, name).plugin();
        assert_eq!(plugin(b"caching_sha2_password"), Plugin::CachingSha2Password);
        for name in [&b"mysql_native_password"[..], b"client_ed25519", b"parsec", b"sha256_password", b""] {
            assert_eq!(plugin(name), Plugin::NativePassword);
        }
    }
}
