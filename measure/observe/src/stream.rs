//! Reassembles one direction of a TCP connection by sequence numbers.

mod held;

use self::held::{Held, Part};
use crate::frame::Segment;

/// Limits for buffered out-of-order segments. Above them, the first gap is reported as missing.
const MAX_HELD_BYTES: usize = 64 * 1024;
const MAX_HELD_SEGMENTS: usize = 64;

/// The next part of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The time of the segment or acknowledgement that completed the piece: after it, no earlier byte was awaited.
    pub time_ns: u64,
    pub content: Content<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// Never empty.
    Bytes(&'a [u8]),
    /// The number of bytes that were sent but not captured; never 0.
    Missing(u64),
}

/// One direction of a connection. It allocates only while it holds out-of-order segments.
#[derive(Default)]
pub struct Stream {
    /// `None` until the beginning of the stream is known.
    next: Option<u32>,
    /// The sequence number of the FIN, if captured.
    fin: Option<u32>,
    held: Option<Box<Held>>,
    out_of_order_segments: u32,
    retransmitted_bytes: u64,
}

impl Stream {
    pub fn new() -> Self {
        Self::default()
    }

    /// A stream whose first byte has this number, if it is known.
    pub(crate) fn starting_at(next: Option<u32>) -> Self {
        Self { next, ..Self::default() }
    }

    /// Allocated memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.heap_bytes())
    }

    /// Bytes captured again, or captured after they were reported as missing.
    pub fn retransmitted_bytes(&self) -> u64 {
        self.retransmitted_bytes
    }

    /// Segments that arrived while an earlier byte was missing.
    pub fn out_of_order_segments(&self) -> u32 {
        self.out_of_order_segments
    }

    /// The sequence number after the last piece. `None` until the beginning of the stream is known.
    pub fn next_sequence(&self) -> Option<u32> {
        self.next
    }

    /// Adds the next captured segment of this direction. Without a SYN, the stream begins at the first payload or at
    /// the first acknowledgement by the peer. The payload of a RST is ignored.
    pub fn push(&mut self, segment: &Segment<'_>, sink: &mut impl FnMut(Piece<'_>)) {
        if segment.flags.rst {
            return;
        }
        // SYN and FIN consume a sequence number each.
        let sequence = segment.sequence.wrapping_add(segment.flags.syn.into());
        let part = Part::new(sequence, segment.payload, segment.payload_bytes);
        let is_beginning = segment.flags.syn || segment.flags.fin || !part.is_empty();
        if self.next.is_none() && is_beginning {
            self.next = Some(sequence);
        }
        let Some(next) = self.next else { return };
        if segment.flags.fin && self.fin.is_none() {
            self.fin = Some(part.end());
        }
        self.next = Some(self.take(next, part, segment.time_ns, sink));
    }

    /// The peer has acknowledged all bytes before `sequence`. Those not captured so far are reported as missing: `waiting` says
    /// how long acknowledgements wait for them.
    pub fn acknowledged(&mut self, sequence: u32, time_ns: u64, sink: &mut impl FnMut(Piece<'_>)) {
        let Some(mut next) = self.next else {
            self.next = Some(sequence);
            return;
        };
        while is_before(next, sequence) {
            let bytes = self.gap(next).unwrap_or(u32::MAX).min(sequence.wrapping_sub(next));
            next = self.give_up(next, bytes, time_ns, sink);
        }
        self.next = Some(next);
    }

    /// Ends the stream: emits the buffered segments, and the gaps before them as missing.
    pub fn finish(&mut self, time_ns: u64, sink: &mut impl FnMut(Piece<'_>)) {
        let Some(mut next) = self.next else { return };
        while let Some(bytes) = self.gap(next) {
            next = self.give_up(next, bytes, time_ns, sink);
        }
        self.next = Some(next);
    }

    /// Emits the part if it is next, otherwise buffers it. Returns the next sequence number.
    fn take(&mut self, next: u32, part: Part<'_>, time_ns: u64, sink: &mut impl FnMut(Piece<'_>)) -> u32 {
        let (mut next, mut part) = (next, part);
        loop {
            if is_before(part.sequence, next) {
                let (again, rest) = part.split_at(next.wrapping_sub(part.sequence));
                self.retransmitted_bytes += u64::from(again.bytes());
                part = rest;
            }
            if part.is_empty() {
                return self.pass_fin(next);
            }
            if part.sequence != next {
                return self.hold(next, part, time_ns, sink);
            }
            // Buffered bytes were captured first.
            let until = self.held.as_ref().and_then(|held| held.first()).unwrap_or(part.end());
            let (first, rest) = part.split_at(until.wrapping_sub(next));
            next = emit(first, time_ns, sink);
            next = self.drain(next, time_ns, sink);
            part = rest;
        }
    }

    fn hold(&mut self, next: u32, part: Part<'_>, time_ns: u64, sink: &mut impl FnMut(Piece<'_>)) -> u32 {
        self.out_of_order_segments = self.out_of_order_segments.saturating_add(1);
        let held = self.held.get_or_insert_default();
        self.retransmitted_bytes += held.insert(next, part);
        let mut next = next;
        while let Some(held) = &self.held
            && (held.bytes() > MAX_HELD_BYTES || held.segments() > MAX_HELD_SEGMENTS)
            && let Some(first) = held.first()
        {
            next = self.give_up(next, first.wrapping_sub(next), time_ns, sink);
        }
        next
    }

    /// The number of missing bytes before the first buffered segment or the FIN.
    fn gap(&self, next: u32) -> Option<u32> {
        let held = self.held.as_ref().and_then(|held| held.first());
        let fin = self.fin.filter(|fin| is_before(next, *fin));
        held.into_iter().chain(fin).map(|known| known.wrapping_sub(next)).min()
    }

    /// Reports `bytes` as missing, and emits the buffered segments that follow.
    fn give_up(&mut self, next: u32, bytes: u32, time_ns: u64, sink: &mut impl FnMut(Piece<'_>)) -> u32 {
        if bytes > 0 {
            sink(Piece { time_ns, content: Content::Missing(bytes.into()) });
        }
        self.drain(next.wrapping_add(bytes), time_ns, sink)
    }

    /// Emits the buffered segments that are next.
    fn drain(&mut self, next: u32, time_ns: u64, sink: &mut impl FnMut(Piece<'_>)) -> u32 {
        let mut next = next;
        if let Some(held) = &mut self.held {
            while let Some(segment) = held.take(next) {
                next = emit(segment.part(), time_ns, sink);
            }
            if held.segments() == 0 {
                self.held = None;
            }
        }
        self.pass_fin(next)
    }

    fn pass_fin(&self, next: u32) -> u32 {
        if self.fin == Some(next) { next.wrapping_add(1) } else { next }
    }
}

/// Emits a part, and returns the sequence number after it.
fn emit(part: Part<'_>, time_ns: u64, sink: &mut impl FnMut(Piece<'_>)) -> u32 {
    if !part.captured.is_empty() {
        sink(Piece { time_ns, content: Content::Bytes(part.captured) });
    }
    if part.missing > 0 {
        sink(Piece { time_ns, content: Content::Missing(part.missing.into()) });
    }
    part.end()
}

/// Compares sequence numbers, which wrap around (RFC 9293, section 3.4).
pub(crate) fn is_before(sequence: u32, other: u32) -> bool {
    sequence.wrapping_sub(other).cast_signed() < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_stream_takes_less_than_100_bytes() {
        assert!(size_of::<Stream>() < 100);
    }
}
