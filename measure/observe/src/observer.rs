//! All connections of a capture.

use std::collections::HashMap;
use std::net::SocketAddr;

use ciphertoll_wire::passive::{ConnectionSide, DatabaseProtocol};

use crate::connection::{End, ObservedConnection};
use crate::frame::{PacketDirection, Segment};
use crate::stream::{Content, Piece, Stream};

/// The ports on which servers listen, and what they speak; `None` if the first bytes tell.
pub type Ports = HashMap<u16, Option<DatabaseProtocol>>;

/// Connections that are followed at a time. The one that has been idle longest gives way, and is counted.
const MAX_OPEN: usize = 100_000;

/// Where a connection goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Endpoints {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
}

/// Follows connections by their segments.
#[derive(Default)]
pub(crate) struct Observer {
    ports: Ports,
    open: HashMap<Endpoints, Flow>,
    pub(crate) counts: Counts,
}

/// Segments and connections of all kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) segments: u64,
    /// Connections that gave way to others.
    pub(crate) evicted: u64,
    pub(crate) retransmitted_bytes: u64,
    pub(crate) first_ns: Option<u64>,
    pub(crate) last_ns: u64,
}

#[derive(Default)]
struct Flow {
    connection: Option<Box<ObservedConnection>>,
    streams: [Stream; 2],
    has_fin: [bool; 2],
}

impl Observer {
    #[must_use]
    pub(crate) fn new(ports: Ports) -> Self {
        Self { ports, ..Self::default() }
    }

    /// The next segment. Hands over what is known of a connection that ended.
    pub(crate) fn segment(
        &mut self,
        segment: &Segment<'_>,
        mut ended: impl FnMut(Endpoints, ObservedConnection),
    ) {
        let Some((endpoints, side)) = self.endpoints(segment) else { return };
        // A loopback interface shows each segment as it leaves and as it arrives.
        let is_loopback = segment.source.ip().is_loopback() && segment.destination.ip().is_loopback();
        if is_loopback && segment.direction == Some(PacketDirection::Outgoing) {
            return;
        }
        self.counts.segments += 1;
        self.counts.first_ns.get_or_insert(segment.time_ns);
        self.counts.last_ns = self.counts.last_ns.max(segment.time_ns);
        let begins = segment.flags.syn && segment.acknowledgement.is_none();
        if begins && let Some(flow) = self.open.remove(&endpoints) {
            if flow.is_retransmission(segment) {
                self.open.insert(endpoints, flow);
            } else {
                // The same port again: the end of the connection before it was not captured.
                self.end(endpoints, flow, &mut ended);
            }
        }
        // What follows the end of a connection begins no other one.
        let is_known = self.open.contains_key(&endpoints);
        if !is_known && !segment.flags.syn && segment.payload_bytes == 0 {
            return;
        }
        if !is_known {
            self.make_room(&mut ended);
        }
        let protocol = self.ports.get(&endpoints.server.port()).copied().flatten();
        let flow = self.open.entry(endpoints).or_default();
        flow.segment(side, segment, protocol);
        if flow.is_over()
            && let Some(flow) = self.open.remove(&endpoints)
        {
            self.end(endpoints, flow, &mut ended);
        }
    }

    /// The end of the capture: hands over all open connections.
    pub(crate) fn finish(&mut self, mut ended: impl FnMut(Endpoints, ObservedConnection)) {
        let mut open: Vec<_> = self.open.drain().collect();
        open.sort_by_key(|(endpoints, _)| *endpoints);
        for (endpoints, flow) in open {
            self.end(endpoints, flow, &mut ended);
        }
    }

    /// The connection of a segment, and who sent it; `None` if neither port is a server's.
    fn endpoints(&self, segment: &Segment<'_>) -> Option<(Endpoints, ConnectionSide)> {
        let by_client = Endpoints { client: segment.source, server: segment.destination };
        let by_server = Endpoints { client: segment.destination, server: segment.source };
        let is_server = |address: SocketAddr| self.ports.contains_key(&address.port());
        match (is_server(segment.destination), is_server(segment.source)) {
            (false, false) => None,
            (false, true) => Some((by_server, ConnectionSide::Server)),
            // Between two such ports, whoever is known as a client, or begins.
            (true, true) if self.open.contains_key(&by_server) => Some((by_server, ConnectionSide::Server)),
            (true, _) => Some((by_client, ConnectionSide::Client)),
        }
    }

    fn make_room(&mut self, ended: &mut impl FnMut(Endpoints, ObservedConnection)) {
        if self.open.len() < MAX_OPEN {
            return;
        }
        // An eighth at a time, so that the search is rare.
        let mut idle: Vec<_> =
            self.open.iter().map(|(endpoints, flow)| (flow.last_ns(), *endpoints)).collect();
        let (oldest, ..) = idle.select_nth_unstable(MAX_OPEN / 8);
        for (_, endpoints) in oldest.iter().copied() {
            if let Some(flow) = self.open.remove(&endpoints) {
                self.counts.evicted += 1;
                self.end(endpoints, flow, ended);
            }
        }
    }

    fn end(
        &mut self,
        endpoints: Endpoints,
        mut flow: Flow,
        ended: &mut impl FnMut(Endpoints, ObservedConnection),
    ) {
        flow.finish();
        self.counts.retransmitted_bytes += flow.streams.iter().map(Stream::retransmitted_bytes).sum::<u64>();
        if let Some(connection) = flow.connection {
            ended(endpoints, *connection);
        }
    }
}

impl Flow {
    fn segment(&mut self, side: ConnectionSide, segment: &Segment<'_>, protocol: Option<DatabaseProtocol>) {
        let connection = self.connection.get_or_insert_with(|| {
            let mut connection = ObservedConnection::new(protocol, segment.flags.syn);
            connection.times.first = segment.time_ns;
            Box::new(connection)
        });
        connection.times.last = segment.time_ns;
        note_times(connection, side, segment);
        let [client, server] = &mut self.streams;
        let (own, peer) = match side {
            ConnectionSide::Client => (client, server),
            ConnectionSide::Server => (server, client),
        };
        // What the other side has acknowledged was sent, whether it was captured or not; it comes first.
        if let Some(acknowledgement) = segment.acknowledgement {
            let other = side.other();
            peer.acknowledged(acknowledgement, segment.time_ns, &mut |piece| read(connection, other, piece));
        }
        own.push(segment, &mut |piece| read(connection, side, piece));
        if segment.flags.rst {
            connection.end = connection.end.or(Some(End::Reset(side)));
        } else if segment.flags.fin {
            self.has_fin[side as usize] = true;
            connection.end = connection.end.or(Some(End::Closed(side)));
        }
    }

    /// Whether a SYN is the one that began this connection.
    fn is_retransmission(&self, segment: &Segment<'_>) -> bool {
        let next = self.streams[ConnectionSide::Client as usize].next_sequence();
        next == Some(segment.sequence.wrapping_add(1))
            && self.connection.as_ref().is_some_and(|known| known.bytes == [0; 2])
    }

    fn is_over(&self) -> bool {
        let is_reset =
            matches!(self.connection.as_ref().and_then(|connection| connection.end), Some(End::Reset(_)));
        is_reset || self.has_fin == [true; 2]
    }

    fn last_ns(&self) -> u64 {
        self.connection.as_ref().map_or(0, |connection| connection.times.last)
    }

    fn finish(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        for (side, stream) in
            [ConnectionSide::Client, ConnectionSide::Server].into_iter().zip(&mut self.streams)
        {
            stream.finish(connection.times.last, &mut |piece| read(connection, side, piece));
        }
    }
}

fn read(connection: &mut ObservedConnection, side: ConnectionSide, piece: Piece<'_>) {
    let content = match piece.content {
        Content::Bytes(bytes) => ciphertoll_wire::passive::Content::Bytes(bytes),
        Content::Missing(missing) => ciphertoll_wire::passive::Content::Missing(missing),
    };
    connection.read(side, content, piece.time_ns);
}

/// The steps of the TCP handshake, and the client's first payload.
fn note_times(connection: &mut ObservedConnection, side: ConnectionSide, segment: &Segment<'_>) {
    let (times, now) = (&mut connection.times, Some(segment.time_ns));
    match (side, segment.flags.syn) {
        // Of a retransmitted SYN, the last one was answered.
        (ConnectionSide::Client, true) => times.syn = now.filter(|_| times.syn_ack.is_none()).or(times.syn),
        (ConnectionSide::Server, true) => times.syn_ack = times.syn_ack.or(now),
        (ConnectionSide::Client, false) => {
            if times.syn_ack.is_some() {
                times.ack = times.ack.or(now);
            }
            if segment.payload_bytes > 0 {
                times.request = times.request.or(now);
            }
        }
        (ConnectionSide::Server, false) => {}
    }
}
