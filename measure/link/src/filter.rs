//! A program for the kernel (BPF, packet(7)): which packets an observer gets, and how much of each.

use nix::libc;
use socket2::SockFilter;

// linux/if_arp.h
const ARPHRD_LOOPBACK: u32 = 772;
// linux/if_packet.h
const PACKET_OUTGOING: u32 = 4;
// linux/bpf_common.h
const BPF_A: u32 = 0x10;
// linux/filter.h
const PACKET_KIND: u32 = 0_u32.wrapping_sub(0x1000) + 4;
const HARDWARE: u32 = 0_u32.wrapping_sub(0x1000) + 28;

/// More than any packet has.
const WHOLE: u32 = 0x4_0000;
const IP_PROTOCOL_TCP: u32 = 6;
const FRAGMENT_OFFSET: u32 = 0x1fff;
const IPV6_HEADER_BYTES: u32 = 40;
/// Offsets in a TCP header.
const SOURCE_AT: u32 = 0;
const DESTINATION_AT: u32 = 2;
const HEADER_LENGTH_AT: u32 = 12;

/// The header of a TLS record: a type, a version, a length.
const RECORD_HEADER_BYTES: u32 = 5;
/// Application data, and the first byte of every version.
const APPLICATION_DATA: u32 = 0x1703;
const LAST_MINOR_VERSION: u32 = 4;
const MAX_RECORD_BYTES: u32 = (1 << 14) + 2048;

const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const LOAD_HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
/// From X on.
const LOAD_BYTE_BEHIND: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_IND;
const LOAD_HALF_BEHIND: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
const LOAD_PACKET_LENGTH: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_LEN;
/// X becomes the length of the IPv4 header.
const LOAD_HEADER_LENGTH: u32 = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;
const SET_X: u32 = libc::BPF_LDX | libc::BPF_W | libc::BPF_IMM;
const SHIFT_RIGHT: u32 = libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const ADD: u32 = libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K;
const ADD_X: u32 = libc::BPF_ALU | libc::BPF_ADD | libc::BPF_X;
const SUBTRACT: u32 = libc::BPF_ALU | libc::BPF_SUB | libc::BPF_K;
const SUBTRACT_X: u32 = libc::BPF_ALU | libc::BPF_SUB | libc::BPF_X;
const TO_X: u32 = libc::BPF_MISC | libc::BPF_TAX;
const STORE: u32 = libc::BPF_ST;
const LOAD_STORED: u32 = libc::BPF_LD | libc::BPF_MEM;
const LOAD_STORED_TO_X: u32 = libc::BPF_LDX | libc::BPF_MEM;

/// What is stored.
const CUT_AT: u32 = 0;
const REST: u32 = 1;

/// Parts of the program, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterPart {
    Link,
    V4,
    V6,
    Ports,
    Payload,
    Whole,
    Drop,
}

#[derive(Clone, Copy)]
enum FilterStep {
    Do(u32, u32),
    /// Returns this number of bytes.
    Return(u32),
    /// Returns as many bytes as were computed.
    ReturnComputed,
    GoTo(FilterPart),
    If(FilterTest, FilterPart),
    Unless(FilterTest, FilterPart),
}

#[derive(Clone, Copy)]
enum FilterTest {
    Equals(u32),
    IsAbove(u32),
    HasAny(u32),
    /// At least X.
    ReachesX,
}

/// A program that lets TCP packets from and to these ports pass; packets begin with the IP header. On a loopback interface,
/// which shows each packet twice, only one passes. IPv6 with extension headers does not pass, nor do fragments but the first.
///
/// If the payload begins with a record of TLS application data that reaches at least to the end of the packet, what passes
/// ends with the record's header: the rest is encrypted. All else passes whole. A packet may contain the headers of several
/// records, or begin within one.
pub(crate) fn port_filter(ports: &[u16]) -> Vec<SockFilter> {
    let sections = [
        (FilterPart::Link, link()),
        (FilterPart::V4, v4()),
        (FilterPart::V6, v6()),
        (FilterPart::Ports, port_tests(ports)),
        (FilterPart::Payload, payload()),
        (FilterPart::Whole, vec![FilterStep::Return(WHOLE)]),
        (FilterPart::Drop, vec![FilterStep::Return(0)]),
    ];
    let begin = |part| {
        let before = sections.iter().take_while(|(other, _)| *other != part);
        before.map(|(_, steps)| steps.len()).sum::<usize>()
    };
    let steps = sections.iter().flat_map(|(_, steps)| steps.iter().copied());
    steps.enumerate().map(|(at, step)| encode(step, |part| begin(part) - at - 1)).collect()
}

fn link() -> Vec<FilterStep> {
    vec![
        FilterStep::Do(LOAD_WORD, PACKET_KIND),
        FilterStep::Unless(FilterTest::Equals(PACKET_OUTGOING), FilterPart::V4),
        FilterStep::Do(LOAD_WORD, HARDWARE),
        FilterStep::If(FilterTest::Equals(ARPHRD_LOOPBACK), FilterPart::Drop),
    ]
}

fn v4() -> Vec<FilterStep> {
    vec![
        FilterStep::Do(LOAD_BYTE, 0),
        FilterStep::Do(SHIFT_RIGHT, 4),
        FilterStep::Unless(FilterTest::Equals(4), FilterPart::V6),
        FilterStep::Do(LOAD_BYTE, 9),
        FilterStep::Unless(FilterTest::Equals(IP_PROTOCOL_TCP), FilterPart::Drop),
        FilterStep::Do(LOAD_HALF, 6),
        FilterStep::If(FilterTest::HasAny(FRAGMENT_OFFSET), FilterPart::Drop),
        FilterStep::Do(LOAD_HEADER_LENGTH, 0),
        FilterStep::GoTo(FilterPart::Ports),
    ]
}

fn v6() -> Vec<FilterStep> {
    vec![
        FilterStep::Unless(FilterTest::Equals(6), FilterPart::Drop),
        FilterStep::Do(LOAD_BYTE, 6),
        FilterStep::Unless(FilterTest::Equals(IP_PROTOCOL_TCP), FilterPart::Drop),
        FilterStep::Do(SET_X, IPV6_HEADER_BYTES),
    ]
}

/// X is the length of the IP header.
fn port_tests(ports: &[u16]) -> Vec<FilterStep> {
    let tests_at = |at: u32| {
        let tests = ports
            .iter()
            .map(|port| FilterStep::If(FilterTest::Equals(u32::from(*port)), FilterPart::Payload));
        [FilterStep::Do(LOAD_HALF_BEHIND, at)].into_iter().chain(tests)
    };
    tests_at(SOURCE_AT).chain(tests_at(DESTINATION_AT)).chain([FilterStep::GoTo(FilterPart::Drop)]).collect()
}

/// X is the length of the IP header. A load beyond the packet would drop it.
fn payload() -> Vec<FilterStep> {
    vec![
        // The length of the TCP header is four bits, in words.
        FilterStep::Do(LOAD_BYTE_BEHIND, HEADER_LENGTH_AT),
        FilterStep::Do(AND, 0xf0),
        FilterStep::Do(SHIFT_RIGHT, 2),
        FilterStep::Do(ADD_X, 0),
        FilterStep::Do(TO_X, 0),
        FilterStep::Do(ADD, RECORD_HEADER_BYTES),
        FilterStep::Do(STORE, CUT_AT),
        // The IP header makes every packet longer than a record's header.
        FilterStep::Do(LOAD_PACKET_LENGTH, 0),
        FilterStep::Do(SUBTRACT, RECORD_HEADER_BYTES),
        FilterStep::Unless(FilterTest::ReachesX, FilterPart::Whole),
        FilterStep::Do(SUBTRACT_X, 0),
        FilterStep::Do(STORE, REST),
        FilterStep::Do(LOAD_HALF_BEHIND, 0),
        FilterStep::Unless(FilterTest::Equals(APPLICATION_DATA), FilterPart::Whole),
        FilterStep::Do(LOAD_BYTE_BEHIND, 2),
        FilterStep::If(FilterTest::IsAbove(LAST_MINOR_VERSION), FilterPart::Whole),
        FilterStep::Do(LOAD_HALF_BEHIND, 3),
        FilterStep::If(FilterTest::IsAbove(MAX_RECORD_BYTES), FilterPart::Whole),
        FilterStep::Do(LOAD_STORED_TO_X, REST),
        FilterStep::Unless(FilterTest::ReachesX, FilterPart::Whole),
        FilterStep::Do(LOAD_STORED, CUT_AT),
        FilterStep::ReturnComputed,
    ]
}

/// `offset` is how many instructions lie between this one and a part.
fn encode(step: FilterStep, offset: impl Fn(FilterPart) -> usize) -> SockFilter {
    let jump = |test: FilterTest, yes: usize, no: usize| {
        let (code, value) = match test {
            FilterTest::Equals(value) => (libc::BPF_JEQ | libc::BPF_K, value),
            FilterTest::IsAbove(value) => (libc::BPF_JGT | libc::BPF_K, value),
            FilterTest::HasAny(bits) => (libc::BPF_JSET | libc::BPF_K, bits),
            FilterTest::ReachesX => (libc::BPF_JGE | libc::BPF_X, 0),
        };
        SockFilter::new((libc::BPF_JMP | code) as u16, yes as u8, no as u8, value)
    };
    let plain = |code: u32, value: u32| SockFilter::new(code as u16, 0, 0, value);
    match step {
        FilterStep::Do(code, value) => plain(code, value),
        FilterStep::Return(bytes) => plain(libc::BPF_RET | libc::BPF_K, bytes),
        FilterStep::ReturnComputed => plain(libc::BPF_RET | BPF_A, 0),
        FilterStep::GoTo(part) => plain(libc::BPF_JMP | libc::BPF_JA, offset(part) as u32),
        FilterStep::If(test, part) => jump(test, offset(part), 0),
        FilterStep::Unless(test, part) => jump(test, 0, offset(part)),
    }
}

#[cfg(test)]
mod tests;
