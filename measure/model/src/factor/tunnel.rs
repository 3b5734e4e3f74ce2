//! Tunnels: processes that encrypt the traffic of an unencrypted client and server.

use std::fmt;

use crate::labelled;

/// A tunnel between client and server, both without encryption of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tunnel {
    /// OpenSSH port forwarding: `ssh -L`.
    Ssh(SshTunnel),
    /// `OpenVPN`, in user space, over UDP.
    OpenVpn(OpenVpnCipher),
    /// `WireGuard`: the kernel's if `wg` can configure it, else `wireguard-go`.
    WireGuard,
    /// TLS 1.3 between a process at each end, which forward a local port.
    Stunnel,
}

/// A port forwarded by SSH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SshTunnel {
    /// The only cipher offered.
    pub cipher: SshCipher,
    pub session: SshSession,
}

/// Whether an SSH connection has a session in addition to its forwarded ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SshSession {
    /// Yes, which makes sshd set `TCP_NODELAY`.
    #[default]
    Open,
    /// No (`ssh -N`): sshd leaves Nagle's algorithm on, so small replies wait for acknowledgements.
    None,
}

labelled! {
    /// A cipher of SSH.
    pub enum SshCipher {
        /// RFC 5647.
        Aes128Gcm = "aes128-gcm",
        Aes256Gcm = "aes256-gcm",
        /// OpenSSH's first choice.
        ChaCha20Poly1305 = "chacha20-poly1305",
        /// RFC 4344.
        Aes256Ctr = "aes256-ctr",
        /// RFC 4253, no longer offered by default.
        Aes256Cbc = "aes256-cbc",
    }
}

labelled! {
    /// A cipher of `OpenVPN`'s data channel.
    pub enum OpenVpnCipher {
        /// The first choice since 2.4.
        Aes256Gcm = "aes256-gcm",
        /// With HMAC-SHA256.
        Aes256Cbc = "aes256-cbc",
        /// No encryption: the cost of the tunnel alone.
        None = "none",
    }
}

impl SshCipher {
    /// SSH's name: `aes256-gcm@openssh.com`.
    pub const fn ssh_name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "aes128-gcm@openssh.com",
            Self::Aes256Gcm => "aes256-gcm@openssh.com",
            Self::ChaCha20Poly1305 => "chacha20-poly1305@openssh.com",
            Self::Aes256Ctr => "aes256-ctr",
            Self::Aes256Cbc => "aes256-cbc",
        }
    }
}

impl OpenVpnCipher {
    /// `OpenVPN`'s name: `AES-256-GCM`.
    pub const fn openvpn_name(self) -> &'static str {
        match self {
            Self::Aes256Gcm => "AES-256-GCM",
            Self::Aes256Cbc => "AES-256-CBC",
            Self::None => "none",
        }
    }
}

impl Tunnel {
    /// Every tunnel, without modifiers.
    pub(super) fn all() -> Vec<Self> {
        let ssh = SshCipher::ALL.map(|cipher| Self::Ssh(SshTunnel { cipher, session: SshSession::Open }));
        let vpns = OpenVpnCipher::ALL.map(Self::OpenVpn);
        ssh.into_iter().chain(vpns).chain([Self::WireGuard, Self::Stunnel]).collect()
    }

    /// Whether it joins two networks instead of forwarding single ports, and so needs two networks.
    pub fn joins_networks(self) -> bool {
        match self {
            Self::OpenVpn(_) | Self::WireGuard => true,
            Self::Ssh(_) | Self::Stunnel => false,
        }
    }

    /// Whether its cipher is one that its programs no longer offer by default.
    pub fn has_legacy_cipher(self) -> bool {
        match self {
            Self::Ssh(ssh) => ssh.cipher == SshCipher::Aes256Cbc,
            Self::OpenVpn(cipher) => cipher == OpenVpnCipher::Aes256Cbc,
            Self::WireGuard | Self::Stunnel => false,
        }
    }

    /// The cipher that its ends must negotiate, by their name for it; `None` if they support only one.
    pub fn cipher(self) -> Option<&'static str> {
        match self {
            Self::Ssh(ssh) => Some(ssh.cipher.ssh_name()),
            Self::OpenVpn(cipher) => Some(cipher.openvpn_name()),
            Self::WireGuard | Self::Stunnel => None,
        }
    }

    /// Applies a modifier; `None` if it does not exist.
    pub(super) fn modified(self, modifier: &str) -> Option<Self> {
        match (self, modifier) {
            (Self::Ssh(ssh), "N") => Some(Self::Ssh(SshTunnel { session: SshSession::None, ..ssh })),
            _ => None,
        }
    }

    /// As in a sentence: `SSH`.
    pub fn display_name(self) -> &'static str {
        match self {
            Self::Ssh(_) => "SSH",
            Self::OpenVpn(_) => "OpenVPN",
            Self::WireGuard => "WireGuard",
            Self::Stunnel => "stunnel",
        }
    }
}

impl fmt::Display for Tunnel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ssh(SshTunnel { cipher, session }) => {
                write!(formatter, "ssh-{}", cipher.label())?;
                formatter.write_str(match session {
                    SshSession::Open => "",
                    SshSession::None => "+N",
                })
            }
            Self::OpenVpn(cipher) => write!(formatter, "openvpn-{}", cipher.label()),
            Self::WireGuard => formatter.write_str("wireguard"),
            Self::Stunnel => formatter.write_str("stunnel"),
        }
    }
}
