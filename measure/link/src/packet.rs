//! A raw socket on an interface: receives whole frames through a ring shared with the kernel (`TPACKET_V2`,
//! packet(7)), and sends them on.
//!
//! Each frame has a `virtio_net_hdr` before it, which says which check sums are missing and where the kernel may cut
//! it. Segments of 64 KB therefore pass unsplit.

use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use nix::libc;
use nix::net::if_::if_nametoindex;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::socket::{MsgFlags, send};
use socket2::{SockFilter, SockRef};

use crate::clock::monotonic_of;

/// The size of `virtio_net_hdr` with `PACKET_VNET_HDR`.
pub(crate) const VNET_HEADER_BYTES: usize = 10;
// linux/if_packet.h
pub(crate) const PACKET_RX_RING: i32 = 5;
const PACKET_STATISTICS: i32 = 6;
pub(crate) const PACKET_VERSION: i32 = 10;
const PACKET_VNET_HDR: i32 = 15;
const PACKET_QDISC_BYPASS: i32 = 20;
const PACKET_IGNORE_OUTGOING: i32 = 23;
const TPACKET_V2: i32 = 1;
pub(crate) const TP_STATUS_KERNEL: u32 = 0;
pub(crate) const TP_STATUS_USER: u32 = 1;
/// Frames were dropped since `PACKET_STATISTICS` was last read.
pub(crate) const TP_STATUS_LOSING: u32 = 4;
/// Offsets in a `tpacket2_hdr`.
const SNAP_LENGTH_AT: usize = 8;
const MAC_AT: usize = 12;
const SECONDS_AT: usize = 16;
const NANOS_AT: usize = 20;

const BLOCK_BYTES: usize = 1 << 20;
/// Room for a 64 KB segment and its headers.
const FRAME_BYTES: usize = 69_632;
const FRAMES_PER_BLOCK: usize = BLOCK_BYTES / FRAME_BYTES;
const BLOCKS: usize = 48;
const FRAMES: usize = BLOCKS * FRAMES_PER_BLOCK;
const RING_BYTES: usize = BLOCKS * BLOCK_BYTES;
const EVERY_PROTOCOL: u16 = 0x0003;

pub(crate) struct PacketSocket(OwnedFd);

/// The frames that the kernel has received on a socket.
pub(crate) struct PacketRing {
    socket: PacketSocket,
    base: NonNull<c_void>,
    next: usize,
    dropped: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReceivedFrame {
    /// Length without the `virtio_net_hdr`.
    pub(crate) bytes: usize,
    /// The kernel's time stamp, on the monotonic clock.
    pub(crate) came_ns: u64,
}

/// A frame within its ring slot: offset of its `virtio_net_hdr`, length without it, and time stamp.
#[derive(Debug, PartialEq, Eq)]
struct RingSlot {
    begin: usize,
    bytes: usize,
    came_unix_ns: u64,
}

// SAFETY: only the owner uses the mapping, through `&mut self`; the mapping is bound to no thread.
#[expect(unsafe_code, reason = "a raw pointer is not Send by itself")]
unsafe impl Send for PacketRing {}

impl PacketSocket {
    /// Receives everything that arrives on this interface.
    pub(crate) fn open(interface: &str) -> io::Result<Self> {
        let socket = Self::unbound(libc::SOCK_RAW)?;
        socket.set(PACKET_VNET_HDR, &1_i32)?;
        socket.set(PACKET_IGNORE_OUTGOING, &1_i32)?;
        socket.set(PACKET_QDISC_BYPASS, &1_i32)?;
        socket.bind(if_nametoindex(interface)?)?;
        Ok(socket)
    }

    /// Receives nothing until it is bound: then what passes the filter, from the network layer on, in both directions.
    pub(crate) fn with_filter(filter: &[SockFilter]) -> io::Result<Self> {
        let socket = Self::unbound(libc::SOCK_DGRAM)?;
        SockRef::from(&socket.0).attach_filter(filter)?;
        Ok(socket)
    }

    fn unbound(kind: i32) -> io::Result<Self> {
        let flags = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: it takes numbers only. Bound to no protocol yet, it receives nothing.
        #[expect(unsafe_code, reason = "nix binds every packet socket to a protocol at once")]
        let fd = unsafe { libc::socket(libc::AF_PACKET, flags, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and has no other owner.
        #[expect(unsafe_code, reason = "a number becomes an owned descriptor")]
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Receives from this interface, or from every one if it is 0.
    pub(crate) fn bind(&self, interface: u32) -> io::Result<()> {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: EVERY_PROTOCOL.to_be(),
            sll_ifindex: interface.cast_signed(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let length = size_of::<libc::sockaddr_ll>() as u32;
        // SAFETY: the pointer is to a whole `sockaddr_ll` that outlives the call, the length is its own.
        #[expect(unsafe_code, reason = "nix makes no link address of an interface's index")]
        let bound = unsafe { libc::bind(self.0.as_raw_fd(), (&raw const address).cast(), length) };
        Errno::result(bound).map(drop).map_err(io::Error::from)
    }

    pub(crate) fn set<T: Copy>(&self, option: i32, value: &T) -> io::Result<()> {
        let length = size_of::<T>() as u32;
        // SAFETY: the pointer is to a whole value that outlives the call, the length is its own; the kernel only reads.
        #[expect(unsafe_code, reason = "nix does not have these options")]
        let set = unsafe {
            libc::setsockopt(self.0.as_raw_fd(), libc::SOL_PACKET, option, (&raw const *value).cast(), length)
        };
        Errno::result(set).map(drop).map_err(io::Error::from)
    }

    /// Frames dropped since the last call.
    pub(crate) fn dropped(&self) -> u64 {
        // `struct tpacket_stats`: packets, drops.
        let mut statistics = [0_u32; 2];
        let mut length = size_of_val(&statistics) as libc::socklen_t;
        // SAFETY: both pointers are to whole values that outlive the call; the kernel writes at most `length` bytes,
        // which is the array's size, and any bytes are valid numbers.
        #[expect(unsafe_code, reason = "nix does not have this option")]
        let told = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        };
        // The status word said that some were dropped.
        if told == 0 { u64::from(statistics[1]) } else { 1 }
    }

    /// Sends a frame with its header, as [`PacketRing::take`] returned it.
    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        send(self.0.as_raw_fd(), frame, MsgFlags::empty()).map(drop).map_err(io::Error::from)
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl PacketRing {
    /// Has the kernel deliver into a ring, which is not charged to the socket's buffer.
    pub(crate) fn map(socket: PacketSocket) -> io::Result<Self> {
        socket.set(PACKET_VERSION, &TPACKET_V2)?;
        // `struct tpacket_req`.
        let request = [BLOCK_BYTES, BLOCKS, FRAME_BYTES, FRAMES].map(|number| number as u32);
        socket.set(PACKET_RX_RING, &request)?;
        let length = NonZeroUsize::new(RING_BYTES).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no existing memory.
        #[expect(unsafe_code, reason = "the ring is shared with the kernel")]
        let base = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, &socket, 0) }?;
        Ok(Self { socket, base, next: 0, dropped: 0 })
    }

    /// Appends the next frame to `into`, if there is one.
    pub(crate) fn take(&mut self, into: &mut Vec<u8>) -> Option<ReceivedFrame> {
        let at = self.next / FRAMES_PER_BLOCK * BLOCK_BYTES + self.next % FRAMES_PER_BLOCK * FRAME_BYTES;
        // SAFETY: `next` is below FRAMES, so the whole frame lies within the mapping, which lives as long as `self`.
        #[expect(unsafe_code, reason = "the ring is shared with the kernel")]
        let frame = unsafe { self.base.cast::<u8>().add(at) };
        // SAFETY: the status is the first, aligned word of the frame (blocks are whole pages, frames multiples of 16
        // bytes). The kernel and this process access it atomically only.
        #[expect(unsafe_code, reason = "the ring is shared with the kernel")]
        let status = unsafe { frame.cast::<AtomicU32>().as_ref() };
        let seen = status.load(Ordering::Acquire);
        if seen & TP_STATUS_USER == 0 {
            return None;
        }
        if seen & TP_STATUS_LOSING != 0 {
            self.dropped += self.socket.dropped();
        }
        // SAFETY: while the status is TP_STATUS_USER the kernel does not touch the frame, and nothing else refers to
        // it.
        #[expect(unsafe_code, reason = "the ring is shared with the kernel")]
        let bytes = unsafe { std::slice::from_raw_parts(frame.as_ptr(), FRAME_BYTES) };
        let taken = read(bytes, into)
            .map(|slot| ReceivedFrame { bytes: slot.bytes, came_ns: monotonic_of(slot.came_unix_ns) });
        status.store(TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % FRAMES;
        taken
    }

    /// Frames dropped since the last call.
    pub(crate) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }
}

/// Copies a frame out of its slot; `None` if the kernel's header is malformed.
fn read(slot: &[u8], into: &mut Vec<u8>) -> Option<RingSlot> {
    let word = |at: usize| slot.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let mac = u16::from_ne_bytes(slot.get(MAC_AT..MAC_AT + 2)?.try_into().ok()?);
    let begin = usize::from(mac).checked_sub(VNET_HEADER_BYTES)?;
    let bytes = word(SNAP_LENGTH_AT)? as usize;
    into.extend_from_slice(slot.get(begin..begin.checked_add(bytes)?.checked_add(VNET_HEADER_BYTES)?)?);
    let came_unix_ns = u64::from(word(SECONDS_AT)?) * 1_000_000_000 + u64::from(word(NANOS_AT)?);
    Some(RingSlot { begin, bytes, came_unix_ns })
}

impl AsFd for PacketRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for PacketRing {
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

    fn slot(mac: u16, snap_length: u32) -> Vec<u8> {
        let mut slot = vec![0; FRAME_BYTES];
        slot[SNAP_LENGTH_AT..SNAP_LENGTH_AT + 4].copy_from_slice(&snap_length.to_ne_bytes());
        slot[MAC_AT..MAC_AT + 2].copy_from_slice(&mac.to_ne_bytes());
        slot[SECONDS_AT..SECONDS_AT + 4].copy_from_slice(&7_u32.to_ne_bytes());
        slot[NANOS_AT..NANOS_AT + 4].copy_from_slice(&9_u32.to_ne_bytes());
        slot
    }

    #[test]
    fn a_frame_is_copied_with_its_header() {
        let mut frame = slot(90, 4);
        frame[80..94].copy_from_slice(b"headerheadDATA");
        let mut out = b"before".to_vec();
        let slot = read(&frame, &mut out).unwrap();
        assert_eq!(slot, RingSlot { begin: 80, bytes: 4, came_unix_ns: 7_000_000_009 });
        assert_eq!(out, b"beforeheaderheadDATA");
    }

    #[test]
    fn a_malformed_header_yields_no_frame() {
        for (mac, length) in [(4, 60), (90, u32::MAX), (u16::MAX, FRAME_BYTES as u32)] {
            assert!(read(&slot(mac, length), &mut Vec::new()).is_none(), "{mac} {length}");
        }
    }
}
