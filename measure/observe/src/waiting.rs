//! Segments that acknowledge bytes which were not captured so far.
//!
//! Two taps, several receive queues and a capture on all interfaces by several CPUs may deliver an acknowledgement before the
//! bytes that it acknowledges. A segment with such an acknowledgement waits, until the bytes have come or the queue is full.

use std::collections::VecDeque;

use ciphertoll_wire::passive::ConnectionSide;

use crate::frame::Segment;
use crate::memory::allocated;

/// So many later segments of the same connection may come before acknowledged bytes count as missing.
pub(crate) const MAX_WAITING_SEGMENTS: usize = 32;
/// And so many bytes of their payloads.
pub(crate) const MAX_WAITING_BYTES: usize = 64 * 1024;

/// The segments of one connection that wait, in the order of the capture.
#[derive(Default)]
pub(crate) struct WaitingSegments {
    segments: VecDeque<WaitingSegment>,
    bytes: usize,
}

pub(crate) struct WaitingSegment {
    pub(crate) side: ConnectionSide,
    segment: Segment<'static>,
    payload: Box<[u8]>,
}

impl WaitingSegments {
    pub(crate) fn push(&mut self, side: ConnectionSide, segment: &Segment<'_>) {
        self.bytes += segment.payload.len();
        self.segments.push_back(WaitingSegment {
            side,
            segment: without_payload(segment),
            payload: segment.payload.into(),
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Whether the first one has waited long enough.
    pub(crate) fn is_full(&self) -> bool {
        self.segments.len() > MAX_WAITING_SEGMENTS || self.bytes > MAX_WAITING_BYTES
    }

    /// Removes the first one for which this holds; it gets the place of each, too.
    pub(crate) fn take(
        &mut self,
        may_go: impl Fn(usize, ConnectionSide, &Segment<'_>) -> bool,
    ) -> Option<WaitingSegment> {
        let mut places = self.segments.iter().enumerate();
        let at = places.position(|(place, waiting)| may_go(place, waiting.side, &waiting.segment))?;
        let taken = self.segments.remove(at)?;
        self.bytes -= taken.payload.len();
        Some(taken)
    }

    /// Whether a segment that ends its side of the connection waits.
    pub(crate) fn has_end(&self) -> bool {
        self.segments.iter().any(|waiting| waiting.segment.flags.fin || waiting.segment.flags.rst)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        allocated(size_of::<Self>())
            + allocated(self.segments.capacity() * size_of::<WaitingSegment>())
            + self.segments.iter().map(|waiting| allocated(waiting.payload.len())).sum::<usize>()
    }
}

impl WaitingSegment {
    pub(crate) fn segment(&self) -> Segment<'_> {
        Segment { payload: &self.payload, ..self.segment }
    }
}

fn without_payload(segment: &Segment<'_>) -> Segment<'static> {
    Segment {
        time_ns: segment.time_ns,
        interface: segment.interface,
        direction: segment.direction,
        source: segment.source,
        destination: segment.destination,
        sequence: segment.sequence,
        acknowledgement: segment.acknowledgement,
        flags: segment.flags,
        payload: &[],
        payload_bytes: segment.payload_bytes,
    }
}
