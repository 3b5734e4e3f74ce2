//! The pcapng format: <https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-03.html>.

use std::io::Read;
use std::ops::Range;

use super::fields::{ByteOrder, Fields};
use super::input::{BUFFER_BYTES, Input};
use super::interface::{Interface, options};
use crate::error::CaptureError;
use crate::frame::{Frame, LinkType, PacketDirection};

/// The type of a section header block. It reads the same in both byte orders.
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// Block type and length.
const HEAD_BYTES: usize = 8;
/// The length is repeated after the body.
const TAIL_BYTES: usize = 4;
const SMALLEST_BLOCK: usize = HEAD_BYTES + TAIL_BYTES;
const MAX_INTERFACES: usize = 1 << 16;

/// The packet option `epb_flags`. Its two lowest bits are the direction.
const PACKET_FLAGS: u16 = 2;

/// Why a block cannot be read.
type Reason = &'static str;

pub(super) struct Pcapng {
    /// Of the current section.
    order: ByteOrder,
    interfaces: Vec<Interface>,
    /// Number of interfaces in earlier sections.
    earlier_interfaces: u32,
    /// Packets dropped in earlier sections.
    earlier_drops: u64,
    /// The time of the latest packet. Simple packet blocks have no time and use this one.
    time_ns: u64,
}

/// A packet; its data is a range of its block.
struct Packet {
    time_ns: u64,
    link_type: LinkType,
    interface: u32,
    direction: Option<PacketDirection>,
    wire_bytes: u32,
    data: Range<usize>,
}

impl Pcapng {
    /// Whether these are the first bytes of a pcapng file.
    pub(super) fn is_beginning(bytes: &[u8]) -> bool {
        bytes.starts_with(&SECTION_HEADER.to_le_bytes()) && byte_order(bytes).is_some()
    }

    pub(super) fn new() -> Self {
        // Replaced by the first section header.
        let order = ByteOrder::Little;
        Self { order, interfaces: Vec::new(), earlier_interfaces: 0, earlier_drops: 0, time_ns: 0 }
    }

    pub(super) fn kernel_drops(&self) -> u64 {
        let dropped = self.interfaces.iter().map(|interface| interface.dropped);
        dropped.fold(self.earlier_drops, u64::saturating_add)
    }

    pub(super) fn next_frame<'a, R: Read>(
        &mut self,
        input: &'a mut Input<R>,
    ) -> Result<Option<Frame<'a>>, CaptureError> {
        loop {
            let Some(head) = input.peek(SMALLEST_BLOCK)? else { return Ok(None) };
            let (kind, length) = match self.read_head(head) {
                Ok(head) => head,
                Err(reason) => return Err(input.damaged(reason)),
            };
            if !is_read(kind) {
                // For example, name resolution and decryption secrets, which may exceed the buffer.
                if input.skip(length as u64)? {
                    continue;
                }
                return Ok(None);
            }
            if length > BUFFER_BYTES {
                return Err(input.damaged("a block has an impossible length"));
            }
            let Some(block) = input.peek(length)? else { return Ok(None) };
            match self.read_block(kind, block) {
                Ok(Some(packet)) => return Ok(Some(packet.frame(input.take(length)))),
                Ok(None) => {
                    input.take(length);
                }
                Err(reason) => return Err(input.damaged(reason)),
            }
        }
    }

    /// The type and length of a block. A section header changes the byte order.
    fn read_head(&mut self, head: &[u8]) -> Result<(u32, usize), Reason> {
        if head.starts_with(&SECTION_HEADER.to_le_bytes()) {
            self.order = byte_order(head).ok_or("a section has no byte order")?;
        }
        let mut fields = Fields::new(head, self.order);
        let (kind, length) = fields.u32().zip(fields.u32()).ok_or("a block has no length")?;
        let length = length as usize;
        if length < SMALLEST_BLOCK || !length.is_multiple_of(4) {
            return Err("a block has an impossible length");
        }
        Ok((kind, length))
    }

    fn read_block(&mut self, kind: u32, block: &[u8]) -> Result<Option<Packet>, Reason> {
        let (start, end) = block.split_at(block.len() - TAIL_BYTES);
        if start[HEAD_BYTES - 4..HEAD_BYTES] != *end {
            return Err("the two lengths of a block differ");
        }
        let body = &start[HEAD_BYTES..];
        match kind {
            SECTION_HEADER => self.begin_section(body)?,
            INTERFACE_DESCRIPTION => self.add_interface(body)?,
            INTERFACE_STATISTICS => self.read_statistics(body),
            _ => {
                let packet = match kind {
                    ENHANCED_PACKET => self.enhanced_packet(body),
                    OBSOLETE_PACKET => self.obsolete_packet(body),
                    _ => self.simple_packet(body),
                };
                return packet.map(Some).ok_or("a packet is longer than its block, or has no interface");
            }
        }
        Ok(None)
    }

    fn begin_section(&mut self, body: &[u8]) -> Result<(), Reason> {
        let mut fields = Fields::new(body, self.order);
        let _byte_order = fields.u32();
        if fields.u16() != Some(1) {
            return Err("a section has another version than 1");
        }
        self.earlier_drops = self.kernel_drops();
        self.earlier_interfaces = self.earlier_interfaces.saturating_add(self.interfaces.len() as u32);
        self.interfaces.clear();
        Ok(())
    }

    fn add_interface(&mut self, body: &[u8]) -> Result<(), Reason> {
        if self.interfaces.len() == MAX_INTERFACES {
            return Err("a section has too many interfaces");
        }
        let interface = Interface::parse(body, self.order).ok_or("an interface is not described")?;
        self.interfaces.push(interface);
        Ok(())
    }

    fn read_statistics(&mut self, body: &[u8]) {
        let mut fields = Fields::new(body, self.order);
        let number = fields.u32();
        // The time of the statistics.
        let _time = fields.u64();
        let interface = number.and_then(|number| self.interfaces.get_mut(number as usize));
        if let Some(interface) = interface {
            interface.read_statistics(fields.rest(), self.order);
        }
    }

    fn enhanced_packet(&mut self, body: &[u8]) -> Option<Packet> {
        let mut fields = Fields::new(body, self.order);
        let interface = fields.u32()?;
        self.packet(interface, fields, body.len())
    }

    fn obsolete_packet(&mut self, body: &[u8]) -> Option<Packet> {
        let mut fields = Fields::new(body, self.order);
        let interface = fields.u16()?;
        let _drops_before = fields.u16()?;
        self.packet(interface.into(), fields, body.len())
    }

    /// Parses the fields after the interface, which enhanced and obsolete packet blocks share.
    fn packet(&mut self, number: u32, mut fields: Fields<'_>, body_bytes: usize) -> Option<Packet> {
        let interface = self.interfaces.get(number as usize)?;
        let (high, low) = (fields.u32()?, fields.u32()?);
        let (captured, wire_bytes) = (fields.u32()?, fields.u32()?);
        let start = HEAD_BYTES + body_bytes - fields.rest().len();
        fields.bytes((captured as usize).checked_next_multiple_of(4)?)?;
        let flags = options(fields.rest(), self.order).find(|(code, _)| *code == PACKET_FLAGS);
        let flags = flags.and_then(|(_, value)| Fields::new(value, self.order).u32());
        self.time_ns = interface.time_ns(high, low);
        Some(Packet {
            time_ns: self.time_ns,
            link_type: interface.link_type,
            interface: self.earlier_interfaces.saturating_add(number),
            direction: match flags.unwrap_or_default() & 3 {
                1 => Some(PacketDirection::Incoming),
                2 => Some(PacketDirection::Outgoing),
                _ => None,
            },
            wire_bytes: wire_bytes.max(captured),
            data: start..start + captured as usize,
        })
    }

    fn simple_packet(&self, body: &[u8]) -> Option<Packet> {
        let interface = self.interfaces.first()?;
        let mut fields = Fields::new(body, self.order);
        let wire_bytes = fields.u32()?;
        let limit = if interface.snap_bytes == 0 { u32::MAX } else { interface.snap_bytes };
        let captured = wire_bytes.min(limit) as usize;
        fields.bytes(captured)?;
        let start = HEAD_BYTES + 4;
        Some(Packet {
            time_ns: self.time_ns,
            link_type: interface.link_type,
            interface: self.earlier_interfaces,
            direction: None,
            wire_bytes,
            data: start..start + captured,
        })
    }
}

impl Packet {
    fn frame(self, block: &[u8]) -> Frame<'_> {
        Frame {
            time_ns: self.time_ns,
            link_type: self.link_type,
            interface: self.interface,
            direction: self.direction,
            wire_bytes: self.wire_bytes,
            data: &block[self.data],
        }
    }
}

/// Whether blocks of this type are parsed. Others are skipped.
fn is_read(kind: u32) -> bool {
    matches!(
        kind,
        SECTION_HEADER
            | INTERFACE_DESCRIPTION
            | OBSOLETE_PACKET
            | SIMPLE_PACKET
            | INTERFACE_STATISTICS
            | ENHANCED_PACKET
    )
}

/// The byte order of a section, from the first bytes of its header.
fn byte_order(head: &[u8]) -> Option<ByteOrder> {
    let magic = head.get(HEAD_BYTES..)?;
    [ByteOrder::Little, ByteOrder::Big]
        .into_iter()
        .find(|order| Fields::new(magic, *order).u32() == Some(BYTE_ORDER_MAGIC))
}
