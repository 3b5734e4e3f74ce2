//! Tunnels: processes between client and server that encrypt what these two say in the clear.

use std::fmt;

/// What lies between a client and a server that know nothing of encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tunnel {
    /// OpenSSH forwards a local port: `ssh -L`.
    Ssh(SshTunnel),
    /// `OpenVPN`, in user space, over UDP.
    OpenVpn(OpenVpnCipher),
    /// `WireGuard`: the kernel's where `wg` can set it up, else `wireguard-go`.
    WireGuard,
    /// TLS 1.3 by a process at each end, which takes a local port further.
    Stunnel,
}

/// A port that is forwarded by SSH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SshTunnel {
    /// The one cipher offered.
    pub cipher: SshCipher,
    /// Whether the connection has a session beside the forwarded ports.
    pub session: SshSession,
}

/// Whether an SSH connection has a session beside the ports that it forwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SshSession {
    /// It has one, which has sshd send every packet at once (`TCP_NODELAY`).
    #[default]
    Open,
    /// `ssh -N`: sshd leaves Nagle's algorithm on, and small answers wait for acknowledgements.
    None,
}

/// A cipher of SSH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SshCipher {
    /// `aes128-gcm@openssh.com` (RFC 5647).
    Aes128Gcm,
    /// `aes256-gcm@openssh.com`.
    Aes256Gcm,
    /// `chacha20-poly1305@openssh.com`, OpenSSH's first choice.
    ChaCha20Poly1305,
    /// `aes256-ctr` (RFC 4344).
    Aes256Ctr,
    /// `aes256-cbc` (RFC 4253), which servers do not offer by default any more.
    Aes256Cbc,
}

/// A cipher of `OpenVPN`'s data channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpenVpnCipher {
    /// `AES-256-GCM`, the first choice since 2.4.
    Aes256Gcm,
    /// `AES-256-CBC` with HMAC-SHA256.
    Aes256Cbc,
    /// No encryption: what the tunnel alone costs.
    None,
}

impl SshCipher {
    /// Every cipher.
    pub const ALL: [Self; 5] =
        [Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305, Self::Aes256Ctr, Self::Aes256Cbc];

    /// As in a path: `aes256-gcm`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "aes128-gcm",
            Self::Aes256Gcm => "aes256-gcm",
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
            Self::Aes256Ctr => "aes256-ctr",
            Self::Aes256Cbc => "aes256-cbc",
        }
    }

    /// As SSH calls it: `aes256-gcm@openssh.com`.
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
    /// Every cipher.
    pub const ALL: [Self; 3] = [Self::Aes256Gcm, Self::Aes256Cbc, Self::None];

    /// As in a path: `aes256-gcm`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Aes256Gcm => "aes256-gcm",
            Self::Aes256Cbc => "aes256-cbc",
            Self::None => "none",
        }
    }

    /// As `OpenVPN` calls it: `AES-256-GCM`.
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
    pub const ALL: [Self; SshCipher::ALL.len() + OpenVpnCipher::ALL.len() + 2] = {
        let mut all = [Self::WireGuard; SshCipher::ALL.len() + OpenVpnCipher::ALL.len() + 2];
        let (mut next, mut cipher) = (0, 0);
        while cipher < SshCipher::ALL.len() {
            all[next] = Self::Ssh(SshTunnel { cipher: SshCipher::ALL[cipher], session: SshSession::Open });
            (next, cipher) = (next + 1, cipher + 1);
        }
        cipher = 0;
        while cipher < OpenVpnCipher::ALL.len() {
            all[next] = Self::OpenVpn(OpenVpnCipher::ALL[cipher]);
            (next, cipher) = (next + 1, cipher + 1);
        }
        all[next + 1] = Self::Stunnel;
        all
    };

    /// Whether it joins two networks, rather than take single ports further: then there must be two.
    pub fn joins_networks(self) -> bool {
        match self {
            Self::OpenVpn(_) | Self::WireGuard => true,
            Self::Ssh(_) | Self::Stunnel => false,
        }
    }

    /// The cipher that its ends must agree on, as they call it; none where they have but one.
    pub fn cipher(self) -> Option<&'static str> {
        match self {
            Self::Ssh(ssh) => Some(ssh.cipher.ssh_name()),
            Self::OpenVpn(cipher) => Some(cipher.openvpn_name()),
            Self::WireGuard | Self::Stunnel => None,
        }
    }

    /// The same with one more modifier; `None` where there is no such modifier.
    pub(super) fn modified(self, modifier: &str) -> Option<Self> {
        match (self, modifier) {
            (Self::Ssh(ssh), "N") => Some(Self::Ssh(SshTunnel { session: SshSession::None, ..ssh })),
            _ => None,
        }
    }

    /// What it is called in a sentence: `SSH`.
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
