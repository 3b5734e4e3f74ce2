//! A ring of blocks shared with the kernel (`TPACKET_V3`, packet(7)), for observing.
//!
//! The ring of the delay line has room for 64 KB in each slot, so for few packets. Blocks hold packets of any length
//! back to back: 32 MiB are enough for more than 200,000 small ones. The kernel hands a block over when it is full or after
//! [`HAND_OVER`], which would be too late for a delay line.

use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::net::if_::if_nametoindex;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::packet::{
    PACKET_RX_RING, PACKET_VERSION, PacketSocket, TP_STATUS_KERNEL, TP_STATUS_LOSING, TP_STATUS_USER,
};

// linux/if_packet.h
const TPACKET_V3: i32 = 2;
/// Offsets in a `tpacket_block_desc`.
const BLOCK_STATUS_AT: usize = 8;
const BLOCK_PACKETS_AT: usize = 12;
const BLOCK_FIRST_AT: usize = 16;
/// Offsets in a `tpacket3_hdr`.
const NEXT_AT: usize = 0;
const SECONDS_AT: usize = 4;
const NANOS_AT: usize = 8;
const SNAP_LENGTH_AT: usize = 12;
const LENGTH_AT: usize = 16;
const MAC_AT: usize = 24;
/// In the `sockaddr_ll` that follows it.
const INTERFACE_AT: usize = 48 + 4;

const BLOCK_BYTES: usize = 1 << 20;
const BLOCKS: usize = 32;
const RING_BYTES: usize = BLOCKS * BLOCK_BYTES;
/// The kernel wants a size of frames that divides that of blocks, and does not use it.
const FRAME_BYTES: usize = 2048;

const EVERY_INTERFACE: u32 = 0;

/// After so long a block is handed over, full or not.
pub const HAND_OVER: Duration = Duration::from_millis(10);

/// The packets that the kernel has received on a socket.
pub(crate) struct BlockRing {
    socket: PacketSocket,
    base: NonNull<c_void>,
    block: usize,
    /// Where the next packet of the block begins, and how many there are; `None` until the kernel has handed it over.
    position: Option<Position>,
    dropped: u64,
}

#[derive(Clone, Copy)]
struct Position {
    at: usize,
    packets: u32,
}

/// A packet as the kernel describes it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BlockPacket<'a> {
    pub(crate) data: &'a [u8],
    /// The length before the kernel cut it.
    pub(crate) wire_bytes: u32,
    /// The kernel's time stamp.
    pub(crate) came_unix_ns: u64,
    pub(crate) interface: u32,
}

// SAFETY: only the owner uses the mapping, through `&mut self`; the mapping is bound to no thread.
#[expect(unsafe_code, reason = "a raw pointer is not Send by itself")]
unsafe impl Send for BlockRing {}

impl BlockRing {
    /// Has the kernel deliver into a ring, which is not charged to the socket's buffer.
    pub(crate) fn map(socket: PacketSocket) -> io::Result<Self> {
        socket.set(PACKET_VERSION, &TPACKET_V3)?;
        let (frames, milliseconds) = (RING_BYTES / FRAME_BYTES, HAND_OVER.as_millis() as usize);
        // `struct tpacket_req3`.
        let request =
            [BLOCK_BYTES, BLOCKS, FRAME_BYTES, frames, milliseconds, 0, 0].map(|number| number as u32);
        socket.set(PACKET_RX_RING, &request)?;
        let length = NonZeroUsize::new(RING_BYTES).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no existing memory.
        #[expect(unsafe_code, reason = "the ring is shared with the kernel")]
        let base = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, &socket, 0) }?;
        Ok(Self { socket, base, block: 0, position: None, dropped: 0 })
    }

    /// The next packet, if there is one. The block of the last one may then be the kernel's again.
    pub(crate) fn take(&mut self) -> Option<BlockPacket<'_>> {
        let position = loop {
            match self.position {
                Some(position) if position.packets > 0 => break position,
                Some(_) => self.give_back(),
                None => self.position = Some(self.take_block()?),
            }
        };
        let at = position.at;
        let following = word(self.taken_block(), at + NEXT_AT).map(|bytes| at + bytes as usize);
        // In a malformed block, the next packet cannot be found.
        let packets = following.map_or(0, |_| position.packets - 1);
        self.position = Some(Position { at: following.unwrap_or(at), packets });
        read(self.taken_block(), at)
    }

    /// Receives from this interface, or from all.
    pub(crate) fn bind(&self, interface: Option<&str>) -> io::Result<()> {
        self.socket.bind(interface.map(if_nametoindex).transpose()?.unwrap_or(EVERY_INTERFACE))
    }

    /// Has the kernel say how many were dropped since it handed over the last block.
    pub(crate) fn ask_dropped(&mut self) {
        self.dropped += self.socket.dropped();
    }

    /// Packets dropped since the last call.
    pub(crate) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Where the packets of the current block begin, if the kernel has handed it over.
    fn take_block(&mut self) -> Option<Position> {
        let status = self.status().load(Ordering::Acquire);
        if status & TP_STATUS_USER == 0 {
            return None;
        }
        if status & TP_STATUS_LOSING != 0 {
            self.ask_dropped();
        }
        let block = self.taken_block();
        let (at, packets) = (word(block, BLOCK_FIRST_AT)? as usize, word(block, BLOCK_PACKETS_AT)?);
        Some(Position { at, packets })
    }

    fn give_back(&mut self) {
        self.status().store(TP_STATUS_KERNEL, Ordering::Release);
        self.block = (self.block + 1) % BLOCKS;
        self.position = None;
    }

    /// The status of the current block.
    fn status(&self) -> &AtomicU32 {
        // SAFETY: `block` is below BLOCKS, so the word lies within the mapping, which lives as long as `self`; blocks are
        // whole pages, so it is aligned. The kernel and this process access it atomically only.
        #[expect(unsafe_code, reason = "the ring is shared with the kernel")]
        unsafe {
            self.base.byte_add(self.block * BLOCK_BYTES + BLOCK_STATUS_AT).cast::<AtomicU32>().as_ref()
        }
    }

    /// The current block, after its status. It must have been handed over.
    fn taken_block(&self) -> &[u8] {
        let at = self.block * BLOCK_BYTES + BLOCK_PACKETS_AT;
        // SAFETY: the bytes lie within the mapping. While the status is TP_STATUS_USER the kernel does not touch the block,
        // and only `give_back`, which needs `&mut self`, changes that.
        #[expect(unsafe_code, reason = "the ring is shared with the kernel")]
        unsafe {
            std::slice::from_raw_parts(
                self.base.byte_add(at).cast::<u8>().as_ptr(),
                BLOCK_BYTES - BLOCK_PACKETS_AT,
            )
        }
    }
}

/// A word of a block, whose slice begins with the number of packets.
fn word(block: &[u8], at: usize) -> Option<u32> {
    let at = at.checked_sub(BLOCK_PACKETS_AT)?;
    block.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_ne_bytes)
}

/// The packet whose description begins at `at` of a block; `None` if it is malformed.
fn read(block: &[u8], at: usize) -> Option<BlockPacket<'_>> {
    let packet = block.get(at.checked_sub(BLOCK_PACKETS_AT)?..)?;
    let word = |at: usize| packet.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let half = |at: usize| packet.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes);
    let begin = usize::from(half(MAC_AT)?);
    Some(BlockPacket {
        data: packet.get(begin..begin.checked_add(word(SNAP_LENGTH_AT)? as usize)?)?,
        wire_bytes: word(LENGTH_AT)?,
        came_unix_ns: u64::from(word(SECONDS_AT)?) * 1_000_000_000 + u64::from(word(NANOS_AT)?),
        interface: word(INTERFACE_AT)?,
    })
}

impl AsFd for BlockRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for BlockRing {
    fn drop(&mut self) {
        // SAFETY: `map` made the mapping with this length, and nothing borrowed from it outlives `self`.
        #[expect(unsafe_code, reason = "the ring is shared with the kernel")]
        let unmapped = unsafe { munmap(self.base, RING_BYTES) };
        // The kernel unmaps it at the latest when the process exits.
        let _ = unmapped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block, after its status, with a packet of these lengths at 48.
    fn block(mac: u16, snap_length: u32) -> Vec<u8> {
        let mut block = vec![0; 400];
        let at = 48 - BLOCK_PACKETS_AT;
        for (offset, value) in [(NEXT_AT, 120), (SECONDS_AT, 7), (NANOS_AT, 9), (SNAP_LENGTH_AT, snap_length)]
        {
            block[at + offset..at + offset + 4].copy_from_slice(&u32::to_ne_bytes(value));
        }
        block[at + MAC_AT..at + MAC_AT + 2].copy_from_slice(&mac.to_ne_bytes());
        block
    }

    #[test]
    fn a_packet_is_read_as_it_is_described() {
        let mut block = block(82, 4);
        block[48 - BLOCK_PACKETS_AT + 82..][..8].copy_from_slice(b"DATAnext");
        let packet = read(&block, 48).unwrap();
        assert_eq!((packet.data, packet.came_unix_ns), (&b"DATA"[..], 7_000_000_009));
        assert_eq!(word(&block, 48 + NEXT_AT), Some(120));
    }

    #[test]
    fn a_malformed_description_yields_no_packet() {
        for (mac, length, at) in
            [(82, 400, 48), (u16::MAX, 4, 48), (82, u32::MAX, 48), (82, 4, 3), (82, 4, 9_000)]
        {
            assert!(read(&block(mac, length), at).is_none(), "{mac} {length} {at}");
        }
    }
}
