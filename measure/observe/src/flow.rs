//! The segments of one connection.

use ciphertoll_wire::passive::ConnectionSide;

use crate::connection::{End, ObservedConnection, Reading};
use crate::frame::Segment;
use crate::memory::{SharedValues, allocated};
use crate::stream::{Content, Piece, Stream, is_before};
use crate::times::{SeenAt, StepTimes};
use crate::waiting::{WaitingSegment, WaitingSegments};

/// A connection that is followed.
pub(crate) enum Flow {
    HalfOpen(Box<HalfOpen>),
    Open(Box<OpenFlow>),
}

/// Only segments of a TCP handshake have been seen: little is kept, since a flood of SYNs makes many of these.
pub(crate) struct HalfOpen {
    last_ns: u64,
    syn: SeenAt,
    syn_ack: SeenAt,
    ack: SeenAt,
    /// The sequence numbers after the SYNs.
    next: [Option<u32>; 2],
}

/// There has been a payload, or an end.
pub(crate) struct OpenFlow {
    connection: ObservedConnection,
    streams: [Stream; 2],
    /// The number of the client's first byte, if it is known.
    first_by_client: Option<u32>,
    has_fin: [bool; 2],
    /// Segments that came before what they acknowledge.
    waiting: Option<Box<WaitingSegments>>,
}

/// How much is lost if a connection is no longer followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FlowWorth {
    /// A SYN may be all that there ever is.
    HalfOpen,
    /// The client has not begun to log in.
    Incomplete,
    Used,
}

impl Flow {
    /// The flow that begins with this segment.
    pub(crate) fn new(segment: &Segment<'_>) -> Self {
        let half_open = HalfOpen {
            last_ns: segment.time_ns,
            syn: SeenAt::default(),
            syn_ack: SeenAt::default(),
            ack: SeenAt::default(),
            next: [None; 2],
        };
        Self::HalfOpen(Box::new(half_open))
    }

    pub(crate) fn segment(
        &mut self,
        side: ConnectionSide,
        segment: &Segment<'_>,
        reading: Reading,
        shared: &mut SharedValues,
    ) {
        let is_handshake = segment.payload_bytes == 0 && !segment.flags.fin && !segment.flags.rst;
        if let Self::HalfOpen(half_open) = self {
            if is_handshake {
                half_open.segment(side, segment);
                return;
            }
            // Without a SYN, the connection was open before.
            let is_from_beginning = segment.flags.syn || half_open.next.iter().any(Option::is_some);
            *self = Self::Open(Box::new(half_open.opened(reading, is_from_beginning)));
        }
        if let Self::Open(flow) = self {
            flow.segment(side, segment, shared);
        }
    }

    /// Whether a SYN is the one that began this connection.
    pub(crate) fn is_retransmission(&self, segment: &Segment<'_>) -> bool {
        let next = match self {
            Self::HalfOpen(half_open) => half_open.next[ConnectionSide::Client as usize],
            Self::Open(flow) if flow.connection.bytes == [0; 2] => {
                flow.streams[ConnectionSide::Client as usize].next_sequence()
            }
            // Captured behind what follows it.
            Self::Open(flow) if !flow.connection.times.syn.is_known() => flow.first_by_client,
            Self::Open(_) => None,
        };
        next == Some(segment.sequence.wrapping_add(1))
    }

    /// Whether nothing can follow.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Open(flow) if flow.waiting.is_none() && flow.has_ended())
    }

    /// Whether it will be over once what is missing has come.
    pub(crate) fn is_ending(&self) -> bool {
        matches!(self, Self::Open(flow) if flow.waiting.as_ref().is_some_and(|waiting| waiting.has_end()))
    }

    pub(crate) fn last_ns(&self) -> u64 {
        match self {
            Self::HalfOpen(half_open) => half_open.last_ns,
            Self::Open(flow) => flow.connection.times.last,
        }
    }

    pub(crate) fn worth(&self) -> FlowWorth {
        match self {
            Self::HalfOpen(_) => FlowWorth::HalfOpen,
            Self::Open(flow) if flow.connection.is_incomplete() => FlowWorth::Incomplete,
            Self::Open(_) => FlowWorth::Used,
        }
    }

    /// Allocated memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::HalfOpen(half_open) => allocated(size_of_val(&**half_open)),
            Self::Open(flow) => {
                let waiting = flow.waiting.as_ref().map_or(0, |waiting| waiting.heap_bytes());
                allocated(size_of_val(&**flow))
                    + flow.connection.heap_bytes()
                    + flow.streams.iter().map(Stream::heap_bytes).sum::<usize>()
                    + waiting
            }
        }
    }

    /// The end: what is known of the connection, and how many bytes were sent again.
    pub(crate) fn finish(self, reading: Reading, shared: &mut SharedValues) -> (ObservedConnection, u64) {
        let mut flow = match self {
            Self::HalfOpen(half_open) => half_open.opened(reading, true),
            Self::Open(flow) => *flow,
        };
        flow.finish(shared);
        (flow.connection, flow.streams.iter().map(Stream::retransmitted_bytes).sum())
    }
}

impl HalfOpen {
    fn segment(&mut self, side: ConnectionSide, segment: &Segment<'_>) {
        let now = SeenAt::new(segment.time_ns);
        self.last_ns = self.last_ns.max(segment.time_ns);
        if segment.flags.syn {
            self.next[side as usize] = Some(segment.sequence.wrapping_add(1));
            // Of a SYN that is captured behind its answer, the answer shows the number.
            let peer = &mut self.next[side.other() as usize];
            *peer = peer.or(segment.acknowledgement);
        }
        match (side, segment.flags.syn) {
            // Of a retransmitted SYN, the last one was answered.
            (ConnectionSide::Client, true) if !self.syn_ack.is_known() => self.syn = now,
            (ConnectionSide::Client, true) => self.syn = self.syn.or(now),
            (ConnectionSide::Server, true) => self.syn_ack = self.syn_ack.or(now),
            (ConnectionSide::Client, false) => self.ack = self.ack.or(now),
            (ConnectionSide::Server, false) => {}
        }
    }

    fn opened(&self, reading: Reading, is_from_beginning: bool) -> OpenFlow {
        let mut connection = ObservedConnection::new(reading, is_from_beginning);
        connection.times = StepTimes {
            last: self.last_ns,
            syn: self.syn,
            syn_ack: self.syn_ack,
            ack: self.ack,
            ..StepTimes::default()
        };
        OpenFlow {
            connection,
            streams: self.next.map(Stream::starting_at),
            first_by_client: self.next[ConnectionSide::Client as usize],
            has_fin: [false; 2],
            waiting: None,
        }
    }
}

impl OpenFlow {
    fn segment(&mut self, side: ConnectionSide, segment: &Segment<'_>, shared: &mut SharedValues) {
        let is_first = self.waiting.is_none();
        if self.is_early(is_first, side, segment) {
            self.waiting.get_or_insert_default().push(side, segment);
        } else {
            self.process(side, segment, shared);
        }
        while let Some(waiting) = &mut self.waiting {
            let is_full = waiting.is_full();
            let next = if is_full { waiting.take(|_, _, _| true) } else { self.take_ready() };
            let Some(next) = next else { return };
            self.process(next.side, &next.segment(), shared);
            self.waiting = self.waiting.take().filter(|waiting| !waiting.is_empty());
        }
    }

    /// Whether a segment acknowledges bytes that have not been captured, or its SYN-ACK has not.
    fn is_early(&self, is_first: bool, side: ConnectionSide, segment: &Segment<'_>) -> bool {
        let acknowledges =
            match (segment.acknowledgement, self.streams[side.other() as usize].next_sequence()) {
                (Some(acknowledged), Some(next)) => is_before(next, acknowledged),
                (Some(_), None) => side == ConnectionSide::Client && self.connection.is_from_beginning,
                (None, _) => false,
            };
        // A reset ends all; what waits comes before it.
        acknowledges || (segment.flags.rst && !is_first)
    }

    fn take_ready(&mut self) -> Option<WaitingSegment> {
        let mut waiting = self.waiting.take()?;
        let ready = waiting.take(|place, side, segment| !self.is_early(place == 0, side, segment));
        self.waiting = Some(waiting);
        ready
    }

    fn process(&mut self, side: ConnectionSide, segment: &Segment<'_>, shared: &mut SharedValues) {
        let Self { connection, streams, .. } = self;
        note_times(connection, side, segment);
        let [client, server] = streams;
        let (own, peer) = match side {
            ConnectionSide::Client => (client, server),
            ConnectionSide::Server => (server, client),
        };
        // What the other side has acknowledged was sent, whether it was captured or not; it comes first.
        if let Some(acknowledgement) = segment.acknowledgement {
            let mut sink = |piece: Piece<'_>| read(connection, side.other(), piece, shared);
            peer.acknowledged(acknowledgement, segment.time_ns, &mut sink);
        }
        own.push(segment, &mut |piece| read(connection, side, piece, shared));
        if segment.flags.rst {
            connection.end = connection.end.or(Some(End::Reset(side)));
            self.has_fin = [true; 2];
        } else if segment.flags.fin {
            self.has_fin[side as usize] = true;
            connection.end = connection.end.or(Some(End::Closed(side)));
        }
    }

    fn has_ended(&self) -> bool {
        self.has_fin == [true; 2]
    }

    fn finish(&mut self, shared: &mut SharedValues) {
        while let Some(next) = self.waiting.as_mut().and_then(|waiting| waiting.take(|_, _, _| true)) {
            self.process(next.side, &next.segment(), shared);
        }
        let Self { connection, streams, .. } = self;
        for (side, stream) in [ConnectionSide::Client, ConnectionSide::Server].into_iter().zip(streams) {
            stream.finish(connection.times.last, &mut |piece| read(connection, side, piece, shared));
        }
        connection.finish();
    }
}

fn read(
    connection: &mut ObservedConnection,
    side: ConnectionSide,
    piece: Piece<'_>,
    shared: &mut SharedValues,
) {
    let content = match piece.content {
        Content::Bytes(bytes) => ciphertoll_wire::passive::Content::Bytes(bytes),
        Content::Missing(missing) => ciphertoll_wire::passive::Content::Missing(missing),
    };
    connection.read(side, content, piece.time_ns, shared);
}

/// The steps of the TCP handshake, and the client's first payload.
fn note_times(connection: &mut ObservedConnection, side: ConnectionSide, segment: &Segment<'_>) {
    let (times, now) = (&mut connection.times, segment.time_ns);
    times.last = times.last.max(now);
    match (side, segment.flags.syn) {
        (ConnectionSide::Client, true) => times.syn.set_first(now),
        (ConnectionSide::Server, true) => times.syn_ack.set_first(now),
        (ConnectionSide::Client, false) => {
            times.ack.set_first(now);
            if segment.payload_bytes > 0 {
                times.request.set_first(now);
            }
        }
        (ConnectionSide::Server, false) => {}
    }
}
