//! A tun device (tun(4)): reads whole packets that were sent to an interface, each with a `virtio_net_hdr` before it,
//! as packet sockets do.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::libc;

use crate::clock::monotonic_ns;
use crate::packet::{ReceivedFrame, VNET_HEADER_BYTES};

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

/// A 64 KB segment and its header.
const LONGEST: usize = 65_536 + VNET_HEADER_BYTES;
/// A packet on a wire has this header; one from a tun device does not.
const ETHERNET_HEADER_BYTES: usize = 14;
const NAME_BYTES: usize = 16;

/// `struct ifreq`, as `TUNSETIFF` takes it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; NAME_BYTES],
    flags: u16,
    padding: [u8; 22],
}

/// A tun device; removed with its last handle.
pub(crate) struct TunDevice(File);

impl TunDevice {
    /// Makes a device in the calling thread's network. 64 KB segments pass unsplit.
    pub(crate) fn open(name: &str) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
        let mut request = InterfaceRequest {
            name: [0; NAME_BYTES],
            flags: IFF_TUN | IFF_NO_PI | IFF_VNET_HDR,
            padding: [0; 22],
        };
        // The last byte stays 0: names are NUL-terminated.
        for (to, from) in request.name[..NAME_BYTES - 1].iter_mut().zip(name.bytes()) {
            *to = from;
        }
        make(&file, &mut request)?;
        set_offload(&file, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6)?;
        Ok(Self(file))
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Sends a packet with its header, as [`TunReader::take`] returned it.
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

/// Accepts packets without check sums and segments not yet cut: a `virtio_net_hdr` says what is missing.
fn set_offload(file: &File, offload: libc::c_ulong) -> io::Result<()> {
    // SAFETY: this request takes a number.
    #[expect(unsafe_code, reason = "no library has it")]
    let set = unsafe { tun_set_offload(file.as_raw_fd(), offload as libc::c_int) };
    set.map(drop).map_err(io::Error::from)
}

pub(crate) struct TunReader {
    tunnel: TunDevice,
    buffer: Vec<u8>,
}

impl TunReader {
    pub(crate) fn of(tunnel: TunDevice) -> Self {
        Self { tunnel, buffer: vec![0; LONGEST] }
    }

    /// Appends the next packet to `into`, if there is one.
    pub(crate) fn take(&mut self, into: &mut Vec<u8>) -> Option<ReceivedFrame> {
        // An unreadable packet counts as lost; TCP sends it again.
        let length = (&self.tunnel.0).read(&mut self.buffer).ok()?;
        let bytes = length.checked_sub(VNET_HEADER_BYTES)? + ETHERNET_HEADER_BYTES;
        into.extend_from_slice(self.buffer.get(..length)?);
        Some(ReceivedFrame { bytes, came_ns: monotonic_ns() })
    }
}

impl AsFd for TunReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tunnel.0.as_fd()
    }
}
