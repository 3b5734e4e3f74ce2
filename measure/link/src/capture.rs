//! TCP segments that pass this machine's interfaces, to observe them.

use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::SockFilter;

use crate::packet::{PacketRing, PacketSocket};

// linux/if_arp.h
const ARPHRD_LOOPBACK: u16 = 772;
// linux/if_packet.h
const PACKET_OUTGOING: u8 = 4;
/// What the filter lets through: whole packets.
const WHOLE: u32 = 0x4_0000;
const IP_PROTOCOL_TCP: u32 = 6;

/// The most ports: jumps of the filter are at most 255 instructions long.
pub const MOST_PORTS: usize = 50;

/// Receives the packets of servers' ports. Needs the right `CAP_NET_RAW` to open, and none afterwards.
pub struct LiveCapture(PacketRing);

/// A packet that begins with the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LivePacket {
    /// Since the epoch.
    pub time_ns: u64,
    pub interface: u32,
    /// The length on the wire.
    pub wire_bytes: u32,
}

impl LiveCapture {
    /// Begins to receive TCP packets of these ports, on an interface or on all. The kernel drops all others.
    pub fn open(interface: Option<&str>, ports: &[u16]) -> io::Result<Self> {
        if ports.len() > MOST_PORTS {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "more than 50 ports"));
        }
        let socket = PacketSocket::open_to_observe(interface, &port_filter(ports))?;
        PacketRing::map(socket, 0).map(Self)
    }

    /// Replaces `packet` by the next packet that has arrived. On a loopback interface, which shows each twice, once.
    pub fn next(&mut self, packet: &mut Vec<u8>) -> Option<LivePacket> {
        loop {
            packet.clear();
            let frame = self.0.take(packet)?;
            if frame.hardware != ARPHRD_LOOPBACK || frame.kind != PACKET_OUTGOING {
                let (time_ns, interface, wire_bytes) =
                    (frame.came_unix_ns, frame.interface, frame.wire_bytes);
                return Some(LivePacket { time_ns, interface, wire_bytes });
            }
        }
    }

    /// Waits for a packet, for so long at most. A signal ends it early.
    pub fn wait(&self, most: Duration) -> io::Result<()> {
        let timeout = PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Packets that the kernel dropped since the last call, because they were not taken in time. It is asked each time.
    pub fn take_dropped(&mut self) -> u64 {
        self.0.ask_dropped();
        self.0.take_dropped()
    }
}

/// A program for the kernel that lets TCP packets from and to these ports pass; packets begin with the IP header. IPv6 with
/// extension headers does not pass, nor do fragments but the first.
fn port_filter(ports: &[u16]) -> Vec<SockFilter> {
    const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    const LOAD_HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
    const LOAD_HALF_BEHIND: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
    const LOAD_HEADER_LENGTH: u32 = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;
    const SHIFT_RIGHT: u32 = libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K;
    let ports_at = |load: u32, at: u32| {
        let each = ports.iter().map(|port| FilterStep::If(u32::from(*port), Jump::Pass, Jump::Next));
        [FilterStep::Do(load, at)].into_iter().chain(each)
    };
    let mut v4 = vec![FilterStep::Do(LOAD_BYTE, 9), FilterStep::If(IP_PROTOCOL_TCP, Jump::Next, Jump::Drop)];
    v4.extend([
        FilterStep::Do(LOAD_HALF, 6),
        FilterStep::IfAny(0x1fff, Jump::Drop),
        FilterStep::Do(LOAD_HEADER_LENGTH, 0),
    ]);
    v4.extend(ports_at(LOAD_HALF_BEHIND, 0).chain(ports_at(LOAD_HALF_BEHIND, 2)));
    v4.push(FilterStep::Return(0));
    let mut v6 = vec![FilterStep::Do(LOAD_BYTE, 6), FilterStep::If(IP_PROTOCOL_TCP, Jump::Next, Jump::Drop)];
    v6.extend(ports_at(LOAD_HALF, 40).chain(ports_at(LOAD_HALF, 42)));
    let version = [
        FilterStep::Do(LOAD_BYTE, 0),
        FilterStep::Do(SHIFT_RIGHT, 4),
        FilterStep::If(4, Jump::Next, Jump::Behind(v4.len())),
    ];
    let program: Vec<_> = version.into_iter().chain(v4).chain(v6).collect();
    // The last two instructions drop and pass.
    let (drop_at, pass_at) = (program.len(), program.len() + 1);
    let ends = [FilterStep::Return(0), FilterStep::Return(WHOLE)];
    let encode = |(at, step): (usize, FilterStep)| {
        let offset = |jump| {
            let target = match jump {
                Jump::Next => at + 1,
                Jump::Behind(steps) => at + 1 + steps,
                Jump::Drop => drop_at,
                Jump::Pass => pass_at,
            };
            (target - at - 1) as u8
        };
        match step {
            FilterStep::Do(code, value) => instruction(code, value, [0, 0]),
            FilterStep::Return(value) => instruction(libc::BPF_RET | libc::BPF_K, value, [0, 0]),
            FilterStep::If(value, yes, no) => {
                instruction(libc::BPF_JMP | libc::BPF_JEQ, value, [offset(yes), offset(no)])
            }
            FilterStep::IfAny(bits, yes) => {
                instruction(libc::BPF_JMP | libc::BPF_JSET, bits, [offset(yes), 0])
            }
        }
    };
    program.into_iter().chain(ends).enumerate().map(encode).collect()
}

#[derive(Clone, Copy)]
enum FilterStep {
    Do(u32, u32),
    Return(u32),
    If(u32, Jump, Jump),
    IfAny(u32, Jump),
}

#[derive(Clone, Copy)]
enum Jump {
    Next,
    /// Behind so many steps.
    Behind(usize),
    Drop,
    Pass,
}

fn instruction(code: u32, value: u32, [yes, no]: [u8; 2]) -> SockFilter {
    SockFilter::new(code as u16, yes, no, value)
}
