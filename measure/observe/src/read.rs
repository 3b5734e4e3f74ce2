//! From frames to what was observed.

use std::io::Read;

use ciphertoll_wire::passive::{AccountNames, DatabaseProtocol};
use jiff::Timestamp;

use crate::capture::Capture;
use crate::error::CaptureError;
use crate::findings::findings;
use crate::frame::{Frame, Skipped, segment};
use crate::observation::{Observation, SkippedFrames};
use crate::observer::{Observer, Ports};
use crate::tally::Tally;

/// Observes the frames of any source.
pub struct Watch {
    observer: Observer,
    tally: Tally,
    skipped: SkippedFrames,
}

/// What a source says of itself at its end.
#[derive(Clone, Debug)]
pub struct SourceEnd {
    /// What documents call it.
    pub name: String,
    /// Packets that were dropped before they could be read.
    pub dropped: u64,
    /// Whether a file ended within a packet.
    pub truncated: bool,
}

impl Watch {
    /// Does all that needs files, such as the configuration of OpenSSL.
    #[must_use]
    pub fn new(ports: Ports, names: AccountNames) -> Self {
        let observer = Observer::new(ports, names);
        Self { observer, tally: Tally::default(), skipped: SkippedFrames::default() }
    }

    pub fn frame(&mut self, frame: &Frame<'_>) {
        let Self { observer, tally, skipped } = self;
        match segment(frame) {
            Ok(segment) => {
                observer.segment(&segment, |endpoints, connection| tally.add(endpoints, &connection));
            }
            Err(Skipped::Fragment) => skipped.fragments += 1,
            Err(Skipped::OtherProtocol) => skipped.other_protocols += 1,
            Err(Skipped::Truncated) => skipped.truncated += 1,
            Err(Skipped::Malformed) => skipped.malformed += 1,
            Err(Skipped::UnknownLinkType(number)) => {
                skipped.unknown_link_types += 1;
                skipped.link_type = Some(number);
            }
        }
    }

    /// Reads a capture to its end. `source` is what documents call it.
    pub fn read(
        mut self,
        source: &str,
        mut capture: Capture<impl Read>,
    ) -> Result<Observation, CaptureError> {
        while let Some(frame) = capture.next_frame()? {
            self.frame(&frame);
        }
        let (dropped, truncated) = (capture.kernel_drops(), capture.is_truncated());
        Ok(self.finish(SourceEnd { name: source.to_owned(), dropped, truncated }))
    }

    /// The end: connections that are still open are counted, too.
    #[must_use]
    pub fn finish(mut self, source: SourceEnd) -> Observation {
        let Self { observer, tally, skipped } = &mut self;
        observer.finish(|endpoints, connection| tally.add(endpoints, &connection));
        let counts = observer.counts;
        let first_ns = counts.first_ns.unwrap_or(counts.last_ns);
        #[expect(clippy::cast_precision_loss, reason = "a duration")]
        let seconds = counts.last_ns.saturating_sub(first_ns) as f64 / 1e9;
        let pairs = tally.pairs(seconds);
        let port = |(number, protocol): (&u16, &Option<DatabaseProtocol>)| match protocol {
            Some(protocol) => format!("{number}={}", protocol.label()),
            None => number.to_string(),
        };
        let mut ports: Vec<_> = observer.ports().iter().collect();
        ports.sort();
        Observation {
            source: source.name,
            began_at: counts.first_ns.and_then(rfc3339),
            seconds,
            segments: counts.segments,
            ports: ports.into_iter().map(port).collect(),
            skipped: Some(*skipped).filter(|skipped| *skipped != SkippedFrames::default()),
            uncounted: tally.uncounted(),
            names: observer.names() == AccountNames::Read,
            dropped: Some(source.dropped).filter(|dropped| *dropped > 0),
            truncated: source.truncated,
            evicted: counts.evicted,
            findings: findings(&pairs, &[]),
            pairs,
            probes: Vec::new(),
        }
    }
}

/// `2026-11-30T12:00:00Z`; `None` for a time that no clock shows.
fn rfc3339(unix_ns: u64) -> Option<String> {
    let seconds = i64::try_from(unix_ns / 1_000_000_000).ok()?;
    Some(Timestamp::from_second(seconds).ok()?.to_string())
}

impl Observation {
    /// Reads a capture to its end. `source` is what documents call it.
    pub fn of_capture(
        source: &str,
        capture: Capture<impl Read>,
        ports: Ports,
        names: AccountNames,
    ) -> Result<Self, CaptureError> {
        Watch::new(ports, names).read(source, capture)
    }
}
