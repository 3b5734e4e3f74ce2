//! The classic format: <https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-04.html>.

use std::io::Read;

use super::fields::{ByteOrder, Fields};
use super::input::{BUFFER_BYTES, Input};
use crate::error::CaptureError;
use crate::frame::{Frame, LinkType};

pub(super) const HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
/// The upper bits give the length of the frame check sequence.
const LINK_TYPE_MASK: u32 = 0x03ff_ffff;

pub(super) struct Pcap {
    order: ByteOrder,
    /// Nanoseconds per unit of the fraction of a second.
    unit_ns: u64,
    link_type: LinkType,
}

impl Pcap {
    /// Parses the file header. Returns `None` if the magic number is another one.
    pub(super) fn parse(header: &[u8]) -> Option<Self> {
        let units = [(MICROSECONDS, 1000), (NANOSECONDS, 1)];
        let (order, unit_ns) = [ByteOrder::Little, ByteOrder::Big].into_iter().find_map(|order| {
            let magic = Fields::new(header, order).u32()?;
            units.iter().find(|(known, _)| *known == magic).map(|(_, unit_ns)| (order, *unit_ns))
        })?;
        let link_type = Fields::new(header.get(20..)?, order).u32()? & LINK_TYPE_MASK;
        Some(Self { order, unit_ns, link_type: LinkType::from_number(link_type) })
    }

    pub(super) fn next_frame<'a, R: Read>(
        &self,
        input: &'a mut Input<R>,
    ) -> Result<Option<Frame<'a>>, CaptureError> {
        let Some(header) = input.peek(RECORD_HEADER_BYTES)? else { return Ok(None) };
        let mut fields = Fields::new(header, self.order);
        let numbers = [fields.u32(), fields.u32(), fields.u32(), fields.u32()];
        let [Some(seconds), Some(units), Some(captured), Some(wire_bytes)] = numbers else { return Ok(None) };
        let bytes = RECORD_HEADER_BYTES.saturating_add(captured as usize);
        if bytes > BUFFER_BYTES {
            return Err(input.damaged("a packet has an impossible length"));
        }
        if input.peek(bytes)?.is_none() {
            return Ok(None);
        }
        Ok(Some(Frame {
            time_ns: u64::from(seconds) * 1_000_000_000 + u64::from(units) * self.unit_ns,
            link_type: self.link_type,
            interface: 0,
            direction: None,
            wire_bytes: wire_bytes.max(captured),
            data: &input.take(bytes)[RECORD_HEADER_BYTES..],
        }))
    }
}
