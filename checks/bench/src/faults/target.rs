//! The processes that are hit, and what happens to them.

/// The process that is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    MariaDb,
    Postgres,
    Ssh,
    OpenVpn,
    WireGuard,
    Sidecar,
    DelayLine,
    Load,
    Coordinator,
}

/// What happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    Killed,
    Stopped,
    DiskFull,
    Descriptors,
    PortTaken,
    ClockStepped,
    MemoryLimit,
}

/// Where the disk is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullDisk {
    Scratch,
    Runs,
}

impl Target {
    pub const ALL: [Self; 9] = [
        Self::MariaDb,
        Self::Postgres,
        Self::Ssh,
        Self::OpenVpn,
        Self::WireGuard,
        Self::Sidecar,
        Self::DelayLine,
        Self::Load,
        Self::Coordinator,
    ];

    pub fn label(self) -> &'static str {
        match self {
            Self::MariaDb => "server: MariaDB",
            Self::Postgres => "server: PostgreSQL",
            Self::Ssh => "tunnel: ssh",
            Self::OpenVpn => "tunnel: openvpn",
            Self::WireGuard => "tunnel: wireguard",
            Self::Sidecar => "sidecar",
            Self::DelayLine => "delay line",
            Self::Load => "load process",
            Self::Coordinator => "coordinator",
        }
    }

    /// How the ledger names the process. `None` for the coordinator, which is not in it.
    pub(super) fn ledger_name(self) -> Option<&'static str> {
        match self {
            Self::MariaDb => Some("MariaDB"),
            Self::Postgres => Some("PostgreSQL"),
            Self::Ssh => Some("ssh"),
            Self::OpenVpn => Some("openvpn-client"),
            Self::WireGuard => Some("wireguard-client"),
            Self::Sidecar => Some("ciphertoll-proxy"),
            Self::DelayLine => Some("link"),
            Self::Load => Some("load"),
            Self::Coordinator => None,
        }
    }

    /// The level of `--server`. With a stepped clock, a directory in which the server's program gets the preloaded library.
    pub(super) fn server(self) -> &'static str {
        if self == Self::Postgres { "postgres" } else { "mariadb" }
    }

    /// The level of `--path` whose trials are hit.
    pub(super) fn path(self, fault: InjectedFault) -> &'static str {
        match self {
            Self::Ssh => "ssh-aes256-gcm",
            Self::OpenVpn => "openvpn-aes256-gcm",
            Self::WireGuard => "wireguard",
            Self::Sidecar if fault == InjectedFault::PortTaken => "proxy+front=tcp",
            Self::Sidecar => "proxy",
            // Only TLS looks at the clock.
            Self::Load | Self::Coordinator if fault == InjectedFault::ClockStepped => "tls1.3-p256",
            Self::MariaDb | Self::Postgres | Self::DelayLine | Self::Load | Self::Coordinator => "plain",
        }
    }

    pub(super) fn link(self) -> Option<&'static str> {
        match self {
            Self::DelayLine => Some("2ms"),
            Self::OpenVpn | Self::WireGuard => Some("0ms"),
            _ => None,
        }
    }

    /// Only a server that writes notices a full disk.
    pub(super) fn workload(self, fault: InjectedFault) -> &'static str {
        match self {
            Self::MariaDb if fault == InjectedFault::DiskFull => "oltp-read-write",
            Self::Postgres if fault == InjectedFault::DiskFull => "tpcb-like",
            _ => "connect-query",
        }
    }

    pub(super) fn full_disk(self) -> FullDisk {
        if self == Self::Coordinator { FullDisk::Runs } else { FullDisk::Scratch }
    }
}

impl InjectedFault {
    pub const ALL: [Self; 7] = [
        Self::Killed,
        Self::Stopped,
        Self::DiskFull,
        Self::Descriptors,
        Self::PortTaken,
        Self::ClockStepped,
        Self::MemoryLimit,
    ];

    pub fn label(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Stopped => "stopped",
            Self::DiskFull => "disk full",
            Self::Descriptors => "descriptors exhausted",
            Self::PortTaken => "port taken",
            Self::ClockStepped => "clock stepped",
            Self::MemoryLimit => "memory limit",
        }
    }

    /// Whether the run may continue as if nothing had happened: the process may not need the resource during the trial.
    pub(super) fn may_be_unnoticed(self, target: Target) -> bool {
        match self {
            Self::Killed => false,
            // It continues when it is allowed to; its children have measured meanwhile.
            Self::Stopped => target == Target::Coordinator,
            Self::DiskFull | Self::Descriptors | Self::PortTaken | Self::ClockStepped | Self::MemoryLimit => {
                true
            }
        }
    }
}
