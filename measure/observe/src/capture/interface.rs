//! An interface of a pcapng section: link type, clock, and drop counters.

use super::fields::{ByteOrder, Fields};
use crate::frame::LinkType;

const NANOSECONDS: u128 = 1_000_000_000;

const OPTION_END: u16 = 0;
const IF_TSRESOL: u16 = 9;
const IF_TSOFFSET: u16 = 14;
const ISB_IFDROP: u16 = 5;
const ISB_OSDROP: u16 = 7;

pub(super) struct Interface {
    pub link_type: LinkType,
    /// 0 if unlimited.
    pub snap_bytes: u32,
    /// Packets dropped by the interface and the kernel, from the latest statistics.
    pub dropped: u64,
    units_per_second: u128,
    offset_seconds: i64,
}

impl Interface {
    /// Parses the body of an interface description block.
    pub(super) fn parse(body: &[u8], order: ByteOrder) -> Option<Self> {
        let mut fields = Fields::new(body, order);
        let link_type = LinkType::from_number(fields.u16()?.into());
        let _reserved = fields.u16()?;
        let snap_bytes = fields.u32()?;
        let mut interface =
            Self { link_type, snap_bytes, dropped: 0, units_per_second: 1_000_000, offset_seconds: 0 };
        for (code, value) in options(fields.rest(), order) {
            match code {
                IF_TSRESOL => interface.units_per_second = units_per_second(*value.first()?)?,
                IF_TSOFFSET => interface.offset_seconds = Fields::new(value, order).u64()?.cast_signed(),
                _ => {}
            }
        }
        Some(interface)
    }

    /// The time of a packet in nanoseconds since the epoch.
    pub(super) fn time_ns(&self, high: u32, low: u32) -> u64 {
        let units = u128::from(high) << 32 | u128::from(low);
        // At most 2^64 · 10^9, which fits.
        let since_offset = (units * NANOSECONDS / self.units_per_second).cast_signed();
        let time = since_offset + i128::from(self.offset_seconds) * NANOSECONDS.cast_signed();
        u64::try_from(time.max(0)).unwrap_or(u64::MAX)
    }

    /// Reads the options of a statistics block. The counters are totals since the start of the capture, so a later
    /// block replaces an earlier one.
    pub(super) fn read_statistics(&mut self, options_bytes: &[u8], order: ByteOrder) {
        let counters =
            options(options_bytes, order).filter(|(code, _)| [ISB_IFDROP, ISB_OSDROP].contains(code));
        let dropped = counters.filter_map(|(_, value)| Fields::new(value, order).u64());
        self.dropped = dropped.fold(0, u64::saturating_add).max(self.dropped);
    }
}

/// Codes and values of the options at the end of a block, up to the first invalid option.
pub(super) fn options(bytes: &[u8], order: ByteOrder) -> impl Iterator<Item = (u16, &[u8])> {
    let mut fields = Fields::new(bytes, order);
    std::iter::from_fn(move || {
        let (code, length) = (fields.u16()?, usize::from(fields.u16()?));
        if code == OPTION_END {
            return None;
        }
        let padded = fields.bytes(length.next_multiple_of(4))?;
        Some((code, &padded[..length]))
    })
}

/// Decodes `if_tsresol`: a negative power of 2 if the highest bit is set, otherwise of 10.
fn units_per_second(resolution: u8) -> Option<u128> {
    let power = u32::from(resolution & 0x7f);
    if resolution & 0x80 == 0 { 10_u128.checked_pow(power) } else { 2_u128.checked_pow(power) }
}
