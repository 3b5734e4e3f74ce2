//! Long links, held against what they are made for: how exact a round trip is ([`accuracy`]), how much they carry and at
//! what cost ([`throughput`]), what connects to real servers take over them ([`round_trips`]). Who stands at their ends is
//! a process of its own ([`end`]).

pub mod accuracy;
pub mod end;
pub mod round_trips;
pub mod throughput;

use std::path::PathBuf;

use anyhow::{Context, Result};
use ciphertoll_link::{LinkProcess, SERVER};
use ciphertoll_model::{LinkKind, LinkShape};

use self::end::Server;

/// A link with somebody who listens at its servers' end.
pub struct Stand {
    /// The link.
    pub link: LinkProcess,
    server: Server,
    program: PathBuf,
}

impl Stand {
    /// A link of this kind, or the best that there is.
    pub fn make(kind: Option<LinkKind>) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let link = match kind {
            Some(kind) => LinkProcess::start_by(&program, kind)?,
            None => LinkProcess::start(&program)?,
        };
        let at = link.servers().map_or(std::net::Ipv4Addr::LOCALHOST, |_| SERVER[0]);
        let server = Server::start(&program, link.servers(), at)?;
        Ok(Self { link, server, program })
    }

    /// Whether round trips of packets can be seen on it: by a relay they take nothing.
    pub fn delays_packets(&self) -> bool {
        self.link.kind() != LinkKind::Relay
    }
}

/// A link of this round trip and nothing else.
pub fn shape(rtt_ms: f64) -> LinkShape {
    LinkShape::of_rtt_us((rtt_ms * 1e3).round() as u32)
}

/// What is over its target, or that nothing is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict(Vec<String>);

impl Verdict {
    /// Says `what` where it is over.
    pub fn over(&mut self, is_over: bool, what: impl FnOnce() -> String) {
        if is_over {
            self.0.push(what());
        }
    }
}

impl std::fmt::Display for Verdict {
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
    fn a_verdict_says_what_is_over() {
        let mut verdict = Verdict::default();
        verdict.over(false, || "nothing".to_owned());
        assert_eq!(verdict.to_string(), "ok");
        verdict.over(true, || "one".to_owned());
        verdict.over(true, || "two".to_owned());
        assert_eq!(verdict.to_string(), "over: one, two");
    }
}
