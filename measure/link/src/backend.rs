//! The kinds of link, and the choice of the best one that this machine permits.

use std::cell::Cell;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use ciphertoll_model::{LinkKind, LinkShape, Namespace};
use nix::unistd::geteuid;

use crate::Error;
use crate::calibrate;
use crate::line::{DelayLine, TrafficCounters};
use crate::messages::LinkCalibration;
use crate::namespace::{LinkDevices, MTU_BYTES, Network, Networks, SERVER, get_rights};
use crate::relay::LinkRelay;

pub(crate) enum LinkBackend {
    Line {
        kind: LinkKind,
        networks: Networks,
        line: DelayLine,
        /// The packets that the tun devices had dropped at the last report.
        dropped: Cell<u64>,
    },
    Relay(LinkRelay),
}

pub(crate) struct SelectedBackend {
    pub(crate) backend: LinkBackend,
    pub(crate) fallback_reason: Option<String>,
}

impl SelectedBackend {
    /// Starts the best of the allowed kinds. Call this before starting a second thread.
    pub(crate) fn start(allowed: &[LinkKind]) -> Result<Self, Error> {
        let rights = if allowed == [LinkKind::Relay] { Ok(()) } else { get_rights() };
        let mut reasons: Vec<(LinkKind, String)> = Vec::new();
        if let Err(error) = rights {
            if !allowed.contains(&LinkKind::Relay) {
                return Err(error);
            }
            let backend = LinkBackend::start(LinkKind::Relay)?;
            return Ok(Self { backend, fallback_reason: Some(error.reason()) });
        }
        let mut last = None;
        for kind in allowed {
            match LinkBackend::start(*kind) {
                Ok(backend) => {
                    return Ok(Self { backend, fallback_reason: summarize(&reasons) });
                }
                Err(error) => {
                    reasons.push((*kind, error.reason()));
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or(Error::Down("no kind of link is permitted")))
    }
}

impl LinkBackend {
    fn start(kind: LinkKind) -> Result<Self, Error> {
        let carried = |devices, doing| {
            let (networks, ends) = Networks::make(devices)?;
            let line = DelayLine::start(ends).map_err(Error::at(doing))?;
            Ok(Self::Line { kind, networks, line, dropped: Cell::default() })
        };
        match kind {
            LinkKind::Ring => carried(LinkDevices::VethPairs, "open a packet ring"),
            LinkKind::Tun => carried(LinkDevices::TunDevices, "read a tun device"),
            LinkKind::Netem => {
                Err(Error::Failed("netem links are no longer made: use ring, tun or relay".to_owned()))
            }
            LinkKind::Relay => LinkRelay::start().map(Self::Relay).map_err(Error::at("start a relay")),
        }
    }

    pub(crate) fn kind(&self) -> LinkKind {
        match self {
            Self::Line { kind, .. } => *kind,
            Self::Relay(_) => LinkKind::Relay,
        }
    }

    /// The largest packet that passes unfragmented.
    pub(crate) fn mtu_bytes(&self) -> u32 {
        match self {
            Self::Line { .. } => MTU_BYTES,
            Self::Relay(_) => mtu_of_loopback(),
        }
    }

    pub(crate) fn networks(&self) -> Result<&Networks, Error> {
        match self {
            Self::Line { networks, .. } => Ok(networks),
            Self::Relay(_) => Err(Error::Down("it has no networks")),
        }
    }

    /// Files by which other processes join the clients' and the servers' network: handles of this process. Unless
    /// root, they must join its user namespace, too.
    pub(crate) fn namespaces(&self) -> Option<[Namespace; 2]> {
        let pid = std::process::id();
        let user = (!geteuid().is_root()).then(|| format!("/proc/{pid}/ns/user").into());
        let of = |network: &Network| Namespace {
            user: user.clone(),
            network: format!("/proc/{pid}/fd/{}", network.handle.as_raw_fd()).into(),
        };
        self.networks().ok().map(|networks| [of(&networks.clients), of(&networks.servers)])
    }

    /// The address at which clients reach this port of the servers' network.
    pub(crate) fn find_address(&self, port: u16) -> io::Result<SocketAddr> {
        match self {
            Self::Line { .. } => Ok(SocketAddr::from((SERVER[0], port))),
            Self::Relay(relay) => relay.find_address(port),
        }
    }

    /// Calibrates the link for `shape` and sets it.
    pub(crate) fn calibrate(&self, shape: LinkShape) -> Result<LinkCalibration, Error> {
        if let Some(missing) = missing_feature(self.kind(), shape) {
            return Err(Error::Unsupported { kind: self.kind(), missing });
        }
        let found = calibrate::calibrate(
            shape,
            |shape, overhead_ns| self.set(shape, overhead_ns),
            || self.time_round_trips(),
        )?;
        self.take_counters();
        Ok(found)
    }

    /// Sets the link to `shape`, with a known overhead.
    pub(crate) fn set(&self, shape: LinkShape, overhead_ns: u64) -> Result<(), Error> {
        if let Ok(networks) = self.networks() {
            networks.set_segments(shape)?;
        }
        match self {
            Self::Line { line, .. } => line.set(shape, overhead_ns),
            Self::Relay(relay) => relay.set(shape, overhead_ns),
        }
        Ok(())
    }

    fn time_round_trips(&self) -> Result<calibrate::RoundTrips, Error> {
        match self {
            Self::Line { networks, .. } => calibrate::time_connects(networks),
            Self::Relay(relay) => {
                let mut led = None;
                let round_trips = calibrate::time_first_bytes(|port| {
                    led = Some(port);
                    relay.find_address(port)
                });
                if let Some(port) = led {
                    relay.close(port);
                }
                round_trips
            }
        }
    }

    /// The traffic since the last call.
    pub(crate) fn take_counters(&self) -> TrafficCounters {
        match self {
            Self::Line { kind, networks, line, dropped } => {
                let mut counters = line.take_counters();
                // For a ring, the line itself counts dropped frames.
                if *kind == LinkKind::Tun {
                    // Zero if the kernel does not report them.
                    let all = networks.count_dropped().unwrap_or_default();
                    counters.dropped += all.saturating_sub(dropped.replace(all));
                }
                counters
            }
            Self::Relay(relay) => relay.take_counters(),
        }
    }
}

/// Why some kinds could not be made, each reason once.
fn summarize(reasons: &[(LinkKind, String)]) -> Option<String> {
    let groups = reasons.chunk_by(|one, other| one.1 == other.1);
    let lines = groups.map(|group| {
        let kinds: Vec<String> = group.iter().map(|(kind, _)| kind.to_string()).collect();
        let reason = group.first().map_or("", |(_, reason)| reason);
        format!("{}: {reason}", kinds.join(", "))
    });
    (!reasons.is_empty()).then(|| lines.collect::<Vec<_>>().join("; "))
}

/// What a link of this kind cannot do of `shape`, if anything.
pub(crate) fn missing_feature(kind: LinkKind, shape: LinkShape) -> Option<&'static str> {
    match kind {
        LinkKind::Ring | LinkKind::Tun | LinkKind::Netem => None,
        LinkKind::Relay if shape.needs_single_packets() || shape.jitter_ns() > 0 => {
            Some("delays bytes, not packets: no jitter, loss or rate")
        }
        LinkKind::Relay => (shape.rtt_ns() == 0).then_some("cannot join two networks directly"),
    }
}

fn mtu_of_loopback() -> u32 {
    /// The kernel's default.
    const USUAL: u32 = 65_536;
    let mtu = fs::read_to_string("/sys/class/net/lo/mtu").ok();
    mtu.and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_shared_by_several_kinds_appears_once() {
        let reason = |kind, text: &str| (kind, text.to_owned());
        assert_eq!(summarize(&[]), None);
        let reasons = [
            reason(LinkKind::Ring, "no network"),
            reason(LinkKind::Tun, "no network"),
            reason(LinkKind::Relay, "no port"),
        ];
        assert_eq!(
            summarize(&reasons).as_deref(),
            Some("ring, tun: no network; relay (approximate): no port")
        );
    }

    #[test]
    fn a_relay_only_delays() {
        let lacks = |kind, level: &str| missing_feature(kind, level.parse().unwrap()).is_some();
        for level in ["0ms", "1ms+loss=1%", "1ms+jitter=1ms", "1ms+rate=1mbit"] {
            assert!(lacks(LinkKind::Relay, level), "{level}");
            assert!(!lacks(LinkKind::Ring, level) && !lacks(LinkKind::Tun, level), "{level}");
        }
        assert!(!lacks(LinkKind::Relay, "45ms"));
    }
}
