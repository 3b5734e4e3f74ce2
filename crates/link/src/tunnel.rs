//! A tunnel device (tun(4)): what is sent to it as to an interface is read from it, whole packets with a
//! `virtio_net_hdr` before each, as from a packet socket.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::libc;

use crate::clock::monotonic_ns;
use crate::packet::{Taken, VNET_HEADER_BYTES};

// linux/if_tun.h
const IFF_TUN: u16 = 0x0001;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;
const TUN_F_CSUM: libc::c_ulong = 0x01;
const TUN_F_TSO4: libc::c_ulong = 0x02;
const TUN_F_TSO6: libc::c_ulong = 0x04;
nix::ioctl_readwrite_bad!(
    tun_set_interface,
    nix::request_code_write!(b'T', 202, size_of::<i32>()),
    InterfaceRequest
);
nix::ioctl_write_int_bad!(tun_set_offload, nix::request_code_write!(b'T', 208, size_of::<u32>()));

/// A segment of 64 KB and its header.
const LONGEST: usize = 65_536 + VNET_HEADER_BYTES;
/// What a packet on a wire has more than one here.
const ETHERNET_HEADER_BYTES: usize = 14;
const NAME_BYTES: usize = 16;

/// `struct ifreq`, as this request has it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; NAME_BYTES],
    flags: u16,
    padding: [u8; 22],
}

/// A device, which goes with its last handle.
pub(crate) struct Tunnel(File);

impl Tunnel {
    /// Makes one of this name in the network that the calling thread is in. Segments of 64 KB pass as they are.
    pub(crate) fn open(name: &str) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
        let mut request = InterfaceRequest {
            name: [0; NAME_BYTES],
            flags: IFF_TUN | IFF_NO_PI | IFF_VNET_HDR,
            padding: [0; 22],
        };
        // The last byte stays: names end with a zero.
        for (to, from) in request.name[..NAME_BYTES - 1].iter_mut().zip(name.bytes()) {
            *to = from;
        }
        make(&file, &mut request)?;
        set_offload(&file, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6)?;
        Ok(Self(file))
    }

    /// A second handle.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Sends a packet, header first, as [`Tap::take`] gave it.
    pub(crate) fn send(&self, packet: &[u8]) -> io::Result<()> {
        (&self.0).write(packet).map(drop)
    }
}

fn make(file: &File, request: &mut InterfaceRequest) -> io::Result<()> {
    // SAFETY: the pointer is to a whole `ifreq` (40 bytes) that is ours alone and outlives the call; any bytes that the
    // kernel may write into it make a valid one.
    #[expect(unsafe_code, reason = "no library has it")]
    let made = unsafe { tun_set_interface(file.as_raw_fd(), request) };
    made.map(drop).map_err(io::Error::from)
}

/// A `virtio_net_hdr` says what is still to be done to a packet: what the line passes on may be left undone.
fn set_offload(file: &File, offload: libc::c_ulong) -> io::Result<()> {
    // SAFETY: this request takes a number.
    #[expect(unsafe_code, reason = "no library has it")]
    let set = unsafe { tun_set_offload(file.as_raw_fd(), offload as libc::c_int) };
    set.map(drop).map_err(io::Error::from)
}

/// A device that is read from.
pub(crate) struct Tap {
    tunnel: Tunnel,
    buffer: Vec<u8>,
}

impl Tap {
    pub(crate) fn of(tunnel: Tunnel) -> Self {
        Self { tunnel, buffer: vec![0; LONGEST] }
    }

    /// Copies the next packet behind what is in `into`; none where there is none.
    pub(crate) fn take(&mut self, into: &mut Vec<u8>) -> Option<Taken> {
        // One that cannot be read is none; what the line does not carry, TCP sends again.
        let length = (&self.tunnel.0).read(&mut self.buffer).ok()?;
        let bytes = length.checked_sub(VNET_HEADER_BYTES)? + ETHERNET_HEADER_BYTES;
        into.extend_from_slice(self.buffer.get(..length)?);
        Some(Taken { bytes, came_ns: monotonic_ns() })
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tunnel.0.as_fd()
    }
}
