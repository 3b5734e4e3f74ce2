//! Validation of emulated links: accuracy of round-trip times ([`accuracy`]), throughput and its CPU cost
//! ([`throughput`]), durations of connects to real servers ([`round_trips`]). The endpoints of a link are separate processes
//! ([`endpoint`]).

pub mod accuracy;
pub mod endpoint;
pub mod round_trips;
pub mod throughput;

use std::path::PathBuf;

use anyhow::{Context, Result};
use ciphertoll_link::{LinkProcess, SERVER};
use ciphertoll_model::{LinkKind, LinkShape};

use self::endpoint::LinkServer;

/// A link with a listening process at its server end.
pub struct LinkBench {
    pub link: LinkProcess,
    server: LinkServer,
    program: PathBuf,
}

impl LinkBench {
    /// Creates a link of this kind; default: the best kind that this machine supports.
    pub fn make(kind: Option<LinkKind>) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this executable")?;
        let link = LinkProcess::start(&program, kind)?;
        let at = link.servers().map_or(std::net::Ipv4Addr::LOCALHOST, |_| SERVER[0]);
        let server = LinkServer::start(&program, link.servers(), at)?;
        Ok(Self { link, server, program })
    }

    /// Whether the link delays packets. A relay delays only data.
    pub fn delays_packets(&self) -> bool {
        self.link.kind() != LinkKind::Relay
    }
}

/// A link with this round-trip time, without jitter, loss or rate limit.
pub fn shape(rtt_ms: f64) -> LinkShape {
    LinkShape::of_rtt_us((rtt_ms * 1e3).round() as u32)
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkVerdict(Vec<String>);

impl LinkVerdict {
    pub fn add_if(&mut self, is_over: bool, what: impl FnOnce() -> String) {
        if is_over {
            self.0.push(what());
        }
    }
}

impl std::fmt::Display for LinkVerdict {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            formatter.write_str("ok")
        } else {
            write!(formatter, "over: {}", self.0.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_lists_exceeded_targets() {
        let mut verdict = LinkVerdict::default();
        verdict.add_if(false, || "nothing".to_owned());
        assert_eq!(verdict.to_string(), "ok");
        verdict.add_if(true, || "one".to_owned());
        verdict.add_if(true, || "two".to_owned());
        assert_eq!(verdict.to_string(), "over: one, two");
    }
}
