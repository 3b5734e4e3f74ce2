//! The messages between the process `__link` and its coordinator, each one line of JSON.

use std::net::{Ipv4Addr, SocketAddr};

use ciphertoll_model::{LinkKind, LinkShape, Namespace};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LinkCommand {
    /// Emulate this link from now on.
    Set(LinkShape),
    Counters,
    /// Report the address that leads clients to this port.
    Address(u16),
    /// Bring up an interface that another process has made, and give it an address.
    Configure(Interface),
    Make {
        end: LinkEnd,
        name: String,
        kind: String,
    },
    Remove {
        end: LinkEnd,
        name: String,
    },
}

/// An interface made by another process at an end of the link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Interface {
    /// The network that it is in.
    pub end: LinkEnd,
    pub name: String,
    pub address: Ipv4Addr,
    pub mtu_bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkEnd {
    Clients,
    Servers,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LinkReply {
    /// Sent first: the link exists.
    Ready(Box<ReadyReply>),
    Set(LinkCalibration),
    Counters(LinkCounters),
    Configured,
    Address(SocketAddr),
    Failed(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReadyReply {
    pub(crate) kind: LinkKind,
    /// Why a better kind could not be made.
    pub(crate) fallback_reason: Option<String>,
    /// The clients' and the servers' network, if the link has networks.
    pub(crate) namespaces: Option<[Namespace; 2]>,
    pub(crate) mtu_bytes: u32,
    pub(crate) congestion_control: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCalibration {
    /// What the link itself adds to a round trip, which was subtracted from its delay.
    pub overhead_ns: u64,
    /// The median round trip of connects over the link.
    pub round_trip_ns_p50: u64,
}

/// Traffic of a link, both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCounters {
    /// Packets; several that the kernel handed over in one piece count as one.
    pub packets: u64,
    pub bytes: u64,
    /// Lost because the link is configured to lose packets.
    pub lost: u64,
    /// Dropped because a queue was full or the other end did not accept them.
    pub dropped: u64,
    /// How late packets were forwarded.
    pub late_ns_mean: u64,
    pub late_ns_p50: u64,
    pub late_ns_p99: u64,
    pub late_ns_max: u64,
    pub cpu_ns: u64,
}
