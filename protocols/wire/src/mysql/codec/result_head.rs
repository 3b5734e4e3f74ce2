//! The packets of a result set other than its rows.

use crate::mysql::{
    codec::{capabilities::Capabilities, err, ok, packet::MAX_PART_BYTES, reader::Reader},
    error::Error,
};

/// `LOCAL INFILE Request`: the server requests a file from the client.
pub(crate) const LOCAL_INFILE: u8 = 0xfb;

/// The first packet of a result set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResultHead {
    pub(crate) columns: u16,
    pub(crate) definitions: Definitions,
}

/// Whether the column definitions follow. Their end is marked in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Definitions {
    Follow,
    /// The client has cached them ("`MARIADB_CLIENT_CACHE_METADATA`").
    LeftOut,
}

impl ResultHead {
    pub(crate) fn parse(payload: &[u8], capabilities: Capabilities) -> Result<Self, Error> {
        let mut reader = Reader::new(payload, "result");
        let count = reader.lenenc_int()?;
        let definitions = if capabilities.contains(Capabilities::CACHE_METADATA) {
            match reader.u8()? {
                0 => Definitions::LeftOut,
                1 => Definitions::Follow,
                _ => return Err(reader.error("an unknown metadata flag")),
            }
        } else {
            Definitions::Follow
        };
        reader.end()?;
        // Servers allow 4096; other column counts of the protocol have 16 bits.
        match u16::try_from(count) {
            Ok(columns @ 1..) => Ok(Self { columns, definitions }),
            _ => Err(reader.error("an impossible number of columns")),
        }
    }
}

/// Whether a packet with this first byte and length is a row, rather than the end of the rows or an ERR.
#[inline]
pub(crate) fn is_row(first: u8, length: usize) -> bool {
    match first {
        err::HEADER => false,
        // In a row it announces a cell that is longer than this packet.
        ok::EOF_HEADER => length == MAX_PART_BYTES,
        _ => true,
    }
}
