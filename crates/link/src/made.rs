//! A link of one kind or another, the best that can be made here.

use std::cell::Cell;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use ciphertoll_model::{LinkKind, LinkShape, Namespace};
use nix::unistd::geteuid;

use crate::Error;
use crate::calibrate::{self, Found};
use crate::line::{Line, Tally};
use crate::namespace::{Joint, MTU_BYTES, Network, Networks, SERVER, Segments, Sent, get_rights};
use crate::netlink::Delay;
use crate::process::{self, Interface};
use crate::relay::Relay;

/// What a link of a kind that was not made by us must be like before it is believed.
const TRIED_RTT_US: u32 = 10_000;
const TOLERATED_SHARE: f64 = 0.01;
const TOLERATED_NS: f64 = 50e3;

/// A link.
pub(crate) enum Made {
    /// A line carries.
    Line { kind: LinkKind, networks: Networks, line: Line, counted: Cell<Sent> },
    /// The kernel does; with what was counted already.
    Queues { networks: Networks, counted: Cell<Sent> },
    /// Nothing is carried, but what is said is said later.
    Relay(Relay),
}

/// The one that was made, and why no better one was.
pub(crate) struct Best {
    pub(crate) made: Made,
    pub(crate) instead: Option<String>,
}

impl Best {
    /// The best of those kinds that are allowed. To be called before there is a second thread.
    pub(crate) fn of(allowed: &[LinkKind]) -> Result<Self, Error> {
        let rights = if allowed == [LinkKind::Relay] { Ok(()) } else { get_rights() };
        let mut reasons: Vec<(LinkKind, String)> = Vec::new();
        if let Err(error) = rights {
            if !allowed.contains(&LinkKind::Relay) {
                return Err(error);
            }
            let made = Made::of(LinkKind::Relay)?;
            return Ok(Self { made, instead: Some(error.reason()) });
        }
        let mut last = None;
        for kind in allowed {
            match Made::of(*kind) {
                Ok(made) => {
                    return Ok(Self { made, instead: told(&reasons) });
                }
                Err(error) => {
                    reasons.push((*kind, error.reason()));
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or(Error::Down("no kind of link is allowed")))
    }
}

impl Made {
    fn of(kind: LinkKind) -> Result<Self, Error> {
        let carried = |joint, doing| {
            let mut networks = Networks::make(joint)?;
            let line = Line::start(networks.take_ends()?).map_err(Error::at(doing))?;
            Ok(Self::Line { kind, networks, line, counted: Cell::default() })
        };
        match kind {
            LinkKind::Ring => carried(Joint::Pairs, "read packets by a ring"),
            LinkKind::Tun => carried(Joint::Tunnels, "read packets of a tunnel"),
            LinkKind::Netem => {
                let networks = Networks::make(Joint::Queues)?;
                let made = Self::Queues { networks, counted: Cell::default() };
                made.is_as_long_as_it_should_be()?;
                Ok(made)
            }
            LinkKind::Relay => Relay::start().map(Self::Relay).map_err(Error::at("start a relay")),
        }
    }

    pub(crate) fn kind(&self) -> LinkKind {
        match self {
            Self::Line { kind, .. } => *kind,
            Self::Queues { .. } => LinkKind::Netem,
            Self::Relay(_) => LinkKind::Relay,
        }
    }

    /// The largest packet that goes through whole.
    pub(crate) fn mtu_bytes(&self) -> u32 {
        match self {
            Self::Line { .. } | Self::Queues { .. } => MTU_BYTES,
            Self::Relay(_) => mtu_of_loopback(),
        }
    }

    fn networks(&self) -> Option<&Networks> {
        match self {
            Self::Line { networks, .. } | Self::Queues { networks, .. } => Some(networks),
            Self::Relay(_) => None,
        }
    }

    /// How other processes find its clients' and its servers' end: by our handles. A user namespace is ours alone where
    /// the networks are in one.
    pub(crate) fn namespaces(&self) -> Option<[Namespace; 2]> {
        let pid = std::process::id();
        let user = (!geteuid().is_root()).then(|| format!("/proc/{pid}/ns/user").into());
        let of = |network: &Network| Namespace {
            user: user.clone(),
            network: format!("/proc/{pid}/fd/{}", network.handle.as_raw_fd()).into(),
        };
        self.networks().map(|networks| [of(&networks.clients), of(&networks.servers)])
    }

    /// Takes up what somebody at an end has made there.
    pub(crate) fn configure(&self, interface: &Interface) -> Result<(), Error> {
        let networks = self.networks().ok_or(Error::Down("it has no networks"))?;
        networks.configure(interface)
    }

    /// Makes an interface at an end, of a kind that needs to be told nothing.
    pub(crate) fn make_interface(&self, end: process::End, name: &str, kind: &str) -> Result<(), Error> {
        let networks = self.networks().ok_or(Error::Down("it has no networks"))?;
        networks.at(end, |netlink| netlink.add_plain(name, kind)).map_err(Error::at("make an interface"))
    }

    /// Removes one.
    pub(crate) fn remove_interface(&self, end: process::End, name: &str) -> Result<(), Error> {
        let networks = self.networks().ok_or(Error::Down("it has no networks"))?;
        networks.at(end, |netlink| netlink.remove(name)).map_err(Error::at("remove an interface"))
    }

    /// Where clients find what listens on this port at the servers' end.
    pub(crate) fn address_of(&self, port: u16) -> io::Result<SocketAddr> {
        match self {
            Self::Line { .. } | Self::Queues { .. } => Ok(SocketAddr::from((SERVER[0], port))),
            Self::Relay(relay) => relay.address_of(port),
        }
    }

    /// Makes it what is asked for, and finds what it is.
    pub(crate) fn calibrate(&self, shape: LinkShape) -> Result<Found, Error> {
        if let Some(lacks) = lack(self.kind(), shape) {
            return Err(Error::Unlike { kind: self.kind(), lacks });
        }
        let found = calibrate::calibrate(
            shape,
            |shape, overhead_ns| self.set(shape, overhead_ns),
            || self.round_trip(),
        )?;
        self.take();
        Ok(found)
    }

    /// Makes it what is asked for; what of a round trip is its own is known.
    pub(crate) fn set(&self, shape: LinkShape, overhead_ns: u64) -> Result<(), Error> {
        if let Some(networks) = self.networks() {
            let segments = if shape.needs_single_packets() { Segments::One } else { Segments::Many };
            networks.set_segments(segments)?;
        }
        match self {
            Self::Line { line, .. } => line.set(shape, overhead_ns),
            Self::Queues { networks, .. } => {
                let latency_ns = shape.rtt_ns().saturating_sub(overhead_ns) / 2;
                let (loss, rate_bits_per_s) = (shape.loss(), shape.rate_bits_per_s());
                networks.set_queues(Delay { latency_ns, loss, rate_bits_per_s })?;
            }
            Self::Relay(relay) => relay.set(shape, overhead_ns),
        }
        Ok(())
    }

    fn round_trip(&self) -> Result<u64, Error> {
        match self {
            Self::Line { networks, .. } | Self::Queues { networks, .. } => calibrate::of_connects(networks),
            Self::Relay(relay) => {
                let mut led = None;
                let round_trip = calibrate::of_words(|port| {
                    led = Some(port);
                    relay.address_of(port)
                });
                if let Some(port) = led {
                    relay.forget(port);
                }
                round_trip
            }
        }
    }

    /// What was carried since the last time.
    pub(crate) fn take(&self) -> Tally {
        match self {
            Self::Line { kind, networks, line, counted } => {
                let mut tally = line.take();
                // The line sees for itself what a ring had no room for.
                if *kind == LinkKind::Tun {
                    tally.dropped += sent_since(networks, counted).dropped;
                }
                tally
            }
            Self::Queues { networks, counted } => {
                let mut tally = Tally::new();
                let Sent { packets, dropped } = sent_since(networks, counted);
                (tally.packets, tally.dropped) = (packets, dropped);
                tally
            }
            Self::Relay(relay) => relay.take(),
        }
    }

    fn is_as_long_as_it_should_be(&self) -> Result<(), Error> {
        let shape = LinkShape::of_rtt_us(TRIED_RTT_US);
        let expected_ns = shape.rtt_ns() as f64;
        let error_ns = (self.calibrate(shape)?.round_trip_ns_p50 as f64 - expected_ns).abs();
        if error_ns > (expected_ns * TOLERATED_SHARE).max(TOLERATED_NS) {
            return Err(Error::Down("it is not as long as it was made"));
        }
        Ok(())
    }
}

/// Why some kinds could not be made, each reason once.
fn told(reasons: &[(LinkKind, String)]) -> Option<String> {
    let groups = reasons.chunk_by(|one, other| one.1 == other.1);
    let lines = groups.map(|group| {
        let kinds: Vec<String> = group.iter().map(|(kind, _)| kind.to_string()).collect();
        let reason = group.first().map_or("", |(_, reason)| reason);
        format!("{}: {reason}", kinds.join(", "))
    });
    (!reasons.is_empty()).then(|| lines.collect::<Vec<_>>().join("; "))
}

/// Where the kernel does not tell, nothing was seen to be sent.
fn sent_since(networks: &Networks, counted: &Cell<Sent>) -> Sent {
    let all = networks.sent().unwrap_or_default();
    let before = counted.replace(all);
    Sent {
        packets: all.packets.saturating_sub(before.packets),
        dropped: all.dropped.saturating_sub(before.dropped),
    }
}

/// What a link of this kind cannot be, of all that is asked.
pub(crate) fn lack(kind: LinkKind, shape: LinkShape) -> Option<&'static str> {
    match kind {
        LinkKind::Ring | LinkKind::Tun => None,
        LinkKind::Netem => (shape.jitter_ns() > 0).then_some("cannot spread delays as is asked"),
        LinkKind::Relay if shape.needs_single_packets() || shape.jitter_ns() > 0 => {
            Some("delays what is said, not packets: it has no jitter, loss or rate")
        }
        LinkKind::Relay => (shape.rtt_ns() == 0).then_some("cannot join two networks directly"),
    }
}

fn mtu_of_loopback() -> u32 {
    /// What the kernel gives it.
    const USUAL: u32 = 65_536;
    let told = fs::read_to_string("/sys/class/net/lo/mtu").ok();
    told.and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_several_kinds_have_is_told_once() {
        let reason = |kind, text: &str| (kind, text.to_owned());
        assert_eq!(told(&[]), None);
        let reasons = [
            reason(LinkKind::Ring, "no network"),
            reason(LinkKind::Tun, "no network"),
            reason(LinkKind::Netem, "no queue"),
        ];
        assert_eq!(told(&reasons).as_deref(), Some("ring, tun: no network; netem: no queue"));
    }

    #[test]
    fn a_relay_only_delays() {
        let lacks = |kind, level: &str| lack(kind, level.parse().unwrap()).is_some();
        for level in ["0ms", "1ms+loss=1%", "1ms+jitter=1ms", "1ms+rate=1mbit"] {
            assert!(lacks(LinkKind::Relay, level), "{level}");
            assert!(!lacks(LinkKind::Ring, level) && !lacks(LinkKind::Tun, level), "{level}");
        }
        assert!(!lacks(LinkKind::Relay, "45ms") && lacks(LinkKind::Netem, "1ms+jitter=1ms"));
    }
}
