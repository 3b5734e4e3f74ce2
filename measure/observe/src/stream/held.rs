//! Buffered out-of-order segments, sorted by sequence number and without overlap.

use crate::memory::allocated;

/// Larger than any segment. Keeps the offsets of buffered segments below 2^32.
const MAX_PAYLOAD_BYTES: u32 = 1 << 30;

/// A range of a stream: captured bytes, followed by bytes that the snap length cut.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub sequence: u32,
    pub captured: &'a [u8],
    pub missing: u32,
}

impl<'a> Part<'a> {
    pub(super) fn new(sequence: u32, payload: &'a [u8], payload_bytes: u32) -> Self {
        let payload_bytes = payload_bytes.min(MAX_PAYLOAD_BYTES);
        let captured = &payload[..payload.len().min(payload_bytes as usize)];
        Self { sequence, captured, missing: payload_bytes - captured.len() as u32 }
    }

    pub(super) fn bytes(&self) -> u32 {
        self.captured.len() as u32 + self.missing
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// The sequence number after it.
    pub(super) fn end(&self) -> u32 {
        self.sequence.wrapping_add(self.bytes())
    }

    /// Splits after `count` bytes, or at the end if it is shorter.
    pub(super) fn split_at(self, count: u32) -> (Self, Self) {
        let count = count.min(self.bytes());
        let (captured, rest) = self.captured.split_at(self.captured.len().min(count as usize));
        let missing = count - captured.len() as u32;
        let first = Self { captured, missing, ..self };
        (first, Self { sequence: first.end(), captured: rest, missing: self.missing - missing })
    }
}

pub(super) struct HeldSegment {
    sequence: u32,
    captured: Vec<u8>,
    missing: u32,
}

impl HeldSegment {
    pub(super) fn part(&self) -> Part<'_> {
        Part { sequence: self.sequence, captured: &self.captured, missing: self.missing }
    }
}

#[derive(Default)]
pub(super) struct Held {
    segments: Vec<HeldSegment>,
    /// Captured bytes of all segments.
    bytes: usize,
}

impl Held {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Allocated memory.
    pub(super) fn heap_bytes(&self) -> usize {
        let captured = self.segments.iter().map(|segment| allocated(segment.captured.capacity()));
        allocated(size_of::<Self>())
            + allocated(self.segments.capacity() * size_of::<HeldSegment>())
            + captured.sum::<usize>()
    }

    /// The first sequence number.
    pub(super) fn first(&self) -> Option<u32> {
        self.segments.first().map(|segment| segment.sequence)
    }

    /// Removes the first segment if it begins at `sequence`.
    pub(super) fn take(&mut self, sequence: u32) -> Option<HeldSegment> {
        if self.first() != Some(sequence) {
            return None;
        }
        let segment = self.segments.remove(0);
        self.bytes -= segment.captured.len();
        Some(segment)
    }

    /// Buffers the bytes that are not buffered already. `next` precedes all segments. Returns the number of bytes
    /// that were buffered already.
    pub(super) fn insert(&mut self, next: u32, part: Part<'_>) -> u64 {
        let offset = |sequence: u32| sequence.wrapping_sub(next);
        let (mut part, mut again) = (part, 0);
        while !part.is_empty() {
            let start = offset(part.sequence);
            let at = self.segments.partition_point(|segment| offset(segment.part().end()) <= start);
            let hole = match self.segments.get(at).map(HeldSegment::part) {
                Some(kept) if offset(kept.sequence) <= start => {
                    let (overlap, rest) = part.split_at(kept.end().wrapping_sub(part.sequence));
                    again += u64::from(overlap.bytes());
                    part = rest;
                    continue;
                }
                Some(kept) => kept.sequence.wrapping_sub(part.sequence),
                None => part.bytes(),
            };
            let (first, rest) = part.split_at(hole);
            self.bytes += first.captured.len();
            let captured = first.captured.to_vec();
            self.segments
                .insert(at, HeldSegment { sequence: first.sequence, captured, missing: first.missing });
            part = rest;
        }
        again
    }
}
