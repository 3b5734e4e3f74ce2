//! All connections of a capture.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use ciphertoll_wire::passive::{AccountNames, ConnectionSide, DatabaseProtocol};
use foldhash::fast::RandomState;

use crate::connection::{ObservedConnection, Reading};
use crate::endpoints::Endpoints;
use crate::flow::{Flow, FlowWorth};
use crate::frame::{PacketDirection, Segment};
use crate::memory::SharedValues;

/// The ports on which servers listen, and what they speak; `None` if the first bytes tell.
/// Each packet asks twice.
pub type Ports = HashMap<u16, Option<DatabaseProtocol>, RandomState>;

/// Connections that are followed at a time. Those that have been idle longest give way, and are counted.
const MAX_OPEN: usize = 100_000;
/// Of all of them. With what they share and a table that grows, this stays below 64 MiB.
const MAX_FLOW_BYTES: usize = 56 << 20;
/// An entry of the table, which is three quarters full with as many as are followed.
const TABLE_BYTES: usize = 4 * (size_of::<Endpoints>() + size_of::<Flow>() + 1) / 3;
/// The part of the connections that gives way at a time, so that the search is rare.
const EVICTED_PART: usize = 8;
/// So many later segments of any connection may come before one that has ended gives up what is missing.
const LINGER_SEGMENTS: u64 = 4_096;

/// Follows connections by their segments.
#[derive(Default)]
pub(crate) struct Observer {
    ports: Ports,
    names: AccountNames,
    open: HashMap<Endpoints, Flow, RandomState>,
    flow_bytes: usize,
    shared: SharedValues,
    /// Connections that ended while bytes were missing, by the number of the segment.
    lingering: VecDeque<(u64, Endpoints)>,
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

impl Observer {
    #[must_use]
    pub(crate) fn new(ports: Ports, names: AccountNames) -> Self {
        Self { ports, names, ..Self::default() }
    }

    pub(crate) fn ports(&self) -> &Ports {
        &self.ports
    }

    pub(crate) fn names(&self) -> AccountNames {
        self.names
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
        self.end_lingering(&mut ended);
        let begins = segment.flags.syn && segment.acknowledgement.is_none();
        if begins && self.open.get(&endpoints).is_some_and(|flow| !flow.is_retransmission(segment)) {
            // The same port again: the end of the connection before it was not captured.
            self.end(endpoints, &mut ended);
        }
        let mut is_over = self.follow(endpoints, side, segment);
        // What follows the end of a connection begins no other one.
        if is_over.is_none() && (segment.flags.syn || segment.payload_bytes > 0) {
            self.make_room(&mut ended);
            let flow = Flow::new(segment);
            self.flow_bytes += TABLE_BYTES + flow.heap_bytes();
            self.open.insert(endpoints, flow);
            is_over = self.follow(endpoints, side, segment);
        }
        if is_over == Some(true) {
            self.end(endpoints, &mut ended);
        }
        while self.flow_bytes > MAX_FLOW_BYTES && !self.open.is_empty() {
            self.evict(&mut ended);
        }
    }

    /// The end of the capture: hands over all open connections, those first that have sent something.
    pub(crate) fn finish(&mut self, mut ended: impl FnMut(Endpoints, ObservedConnection)) {
        let mut open: Vec<_> = self
            .open
            .iter()
            .map(|(endpoints, flow)| (flow.worth() == FlowWorth::HalfOpen, *endpoints))
            .collect();
        open.sort_unstable();
        for (_, endpoints) in open {
            self.end(endpoints, &mut ended);
        }
    }

    /// The connection of a segment, and who sent it; `None` if neither port is a server's.
    fn endpoints(&self, segment: &Segment<'_>) -> Option<(Endpoints, ConnectionSide)> {
        let by_client = || Endpoints::new(segment.source, segment.destination);
        let by_server = || Endpoints::new(segment.destination, segment.source);
        let is_server = |address: SocketAddr| self.ports.contains_key(&address.port());
        match (is_server(segment.destination), is_server(segment.source)) {
            (false, false) => None,
            (false, true) => Some((by_server(), ConnectionSide::Server)),
            // Between two such ports, the one that is known as a client, or begins.
            (true, true) if self.open.contains_key(&by_server()) => {
                Some((by_server(), ConnectionSide::Server))
            }
            (true, _) => Some((by_client(), ConnectionSide::Client)),
        }
    }

    /// Gives a segment to its connection, if it is known. Returns whether the connection is over.
    fn follow(&mut self, endpoints: Endpoints, side: ConnectionSide, segment: &Segment<'_>) -> Option<bool> {
        let reading = self.reading(endpoints);
        let flow = self.open.get_mut(&endpoints)?;
        let (before, was_ending) = (flow.heap_bytes(), flow.is_ending());
        flow.segment(side, segment, reading, &mut self.shared);
        self.flow_bytes = self.flow_bytes + flow.heap_bytes() - before;
        if flow.is_ending() && !was_ending {
            self.lingering.push_back((self.counts.segments, endpoints));
        }
        Some(flow.is_over())
    }

    fn reading(&self, endpoints: Endpoints) -> Reading {
        let protocol = self.ports.get(&endpoints.server().port()).copied().flatten();
        Reading { protocol, names: self.names }
    }

    fn end_lingering(&mut self, ended: &mut impl FnMut(Endpoints, ObservedConnection)) {
        while let Some((since, endpoints)) = self.lingering.front().copied()
            && since + LINGER_SEGMENTS < self.counts.segments
        {
            self.lingering.pop_front();
            // It may have ended, and another one may have its ports.
            if self.open.get(&endpoints).is_some_and(Flow::is_ending) {
                self.end(endpoints, ended);
            }
        }
    }

    fn make_room(&mut self, ended: &mut impl FnMut(Endpoints, ObservedConnection)) {
        if self.open.len() >= MAX_OPEN {
            self.evict(ended);
        }
    }

    /// Ends those that have been idle longest; of those that are worth least, if they are many: a flood of SYNs or hellos.
    fn evict(&mut self, ended: &mut impl FnMut(Endpoints, ObservedConnection)) {
        let most = (self.open.len() / EVICTED_PART).max(1);
        let mut idle: Vec<_> =
            self.open.iter().map(|(endpoints, flow)| (flow.worth(), flow.last_ns(), *endpoints)).collect();
        for worth in [FlowWorth::HalfOpen, FlowWorth::Incomplete, FlowWorth::Used] {
            let is_flood = idle.iter().filter(|(of, ..)| *of <= worth).count() >= most;
            if is_flood {
                idle.retain(|(of, ..)| *of <= worth);
                break;
            }
        }
        if most < idle.len() {
            idle.select_nth_unstable_by_key(most, |(_, last_ns, endpoints)| (*last_ns, *endpoints));
            idle.truncate(most);
        }
        for (worth, _, endpoints) in idle {
            self.counts.evicted += 1;
            // The addresses of a flood of SYNs are invented: they are no clients.
            if worth == FlowWorth::HalfOpen {
                self.end(endpoints, &mut |_, _| ());
            } else {
                self.end(endpoints, ended);
            }
        }
    }

    fn end(&mut self, endpoints: Endpoints, ended: &mut impl FnMut(Endpoints, ObservedConnection)) {
        let Some(flow) = self.open.remove(&endpoints) else { return };
        self.flow_bytes -= TABLE_BYTES + flow.heap_bytes();
        let (connection, retransmitted_bytes) = flow.finish(self.reading(endpoints), &mut self.shared);
        self.counts.retransmitted_bytes += retransmitted_bytes;
        ended(endpoints, connection);
    }
}

#[cfg(test)]
mod tests;
