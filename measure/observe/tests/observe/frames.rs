//! Frames of each link type, and what can be wrong with them.

use ciphertoll_observe::{Frame, PacketDirection, Segment, Skipped, TcpFlags, segment};

use crate::packets::{ACK, SYN, TCP, ethernet, frame, ipv4, ipv6, tcp};

const ETHERNET: u32 = 1;
const RAW: u32 = 101;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

fn assert_payload(frame: &Frame<'_>, payload: &[u8], is_ipv6: bool) -> Option<PacketDirection> {
    let found = segment(frame).unwrap();
    let [source, destination] =
        if is_ipv6 { ["[fd00::1]:40000", "[fd00::2]:5432"] } else { ["10.0.0.1:40000", "10.0.0.2:5432"] };
    let expected = Segment {
        time_ns: 7,
        interface: found.interface,
        direction: found.direction,
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        sequence: 1000,
        acknowledgement: Some(2000),
        flags: TcpFlags { psh: true, ..TcpFlags::default() },
        payload,
        payload_bytes: payload.len() as u32,
    };
    assert_eq!(found, expected);
    found.direction
}

fn data_segment() -> Vec<u8> {
    tcp(ACK | 8, &[], b"payload")
}

#[test]
fn all_link_types_of_tcpdump_on_linux_are_known() {
    let v4 = ipv4(TCP, &[], &data_segment());
    let v6 = ipv6(TCP, &data_segment());
    for number in [101, 12, 14, 228] {
        assert_payload(&frame(number, &v4), b"payload", false);
    }
    for number in [101, 12, 14, 229] {
        assert_payload(&frame(number, &v6), b"payload", true);
    }
    for (ether_type, ip) in [(IPV4, &v4), (IPV6, &v6)] {
        assert_payload(&frame(ETHERNET, &ethernet(ether_type, ip)), b"payload", ether_type == IPV6);
    }
    for (number, family) in [(0, [2, 0, 0, 0]), (108, [0, 0, 0, 2])] {
        assert_payload(&frame(number, &[&family[..], &v4].concat()), b"payload", false);
        assert_payload(&frame(number, &[&family[..], &v6].concat()), b"payload", true);
    }
    assert_eq!(segment(&frame(127, &v4)), Err(Skipped::UnknownLinkType(127)));
}

#[test]
fn linux_cooked_frames_have_a_direction() {
    let ip = ipv4(TCP, &[], &data_segment());
    let directions = [
        (0, Some(PacketDirection::Incoming)),
        (3, Some(PacketDirection::OtherHost)),
        (4, Some(PacketDirection::Outgoing)),
        (9, None),
    ];
    for (number, direction) in directions {
        let header = [0, number, 3, 4, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0];
        let cooked = [&header[..], &ip].concat();
        assert_eq!(assert_payload(&frame(113, &cooked), b"payload", false), direction);
        let header = [8, 0, 0, 0, 0, 0, 1, 2, 3, 4, number, 6, 0, 0, 0, 0, 0, 0, 0, 0];
        let cooked = [&header[..], &ip].concat();
        assert_eq!(assert_payload(&frame(276, &cooked), b"payload", false), direction);
        assert_eq!(segment(&frame(276, &cooked)).unwrap().interface, 0x0102);
    }
}

#[test]
fn vlan_tags_are_passed() {
    let ip = ipv4(TCP, &[], &data_segment());
    let tagged = [&[0, 5][..], &IPV4.to_be_bytes(), &ip].concat();
    let twice = [&[0, 6, 0x81, 0][..], &tagged].concat();
    assert_payload(&frame(ETHERNET, &ethernet(0x8100, &tagged)), b"payload", false);
    assert_payload(&frame(ETHERNET, &ethernet(0x88a8, &twice)), b"payload", false);
}

#[test]
fn options_and_extension_headers_are_passed() {
    let with_options = tcp(ACK | 8, &[1, 1, 1, 0], b"payload");
    assert_payload(&frame(RAW, &ipv4(TCP, &[1, 1, 1, 0, 0, 0, 0, 0], &with_options)), b"payload", false);
    // Hop-by-hop, then destination options.
    let extensions = [&[60, 0, 1, 4, 0, 0, 0, 0, TCP, 0, 1, 4, 0, 0, 0, 0][..], &with_options].concat();
    assert_payload(&frame(RAW, &ipv6(0, &extensions)), b"payload", true);
}

#[test]
fn ethernet_padding_is_no_payload() {
    let mut data = ethernet(IPV4, &ipv4(TCP, &[], &tcp(ACK | 8, &[], b"a")));
    data.resize(64, 0xee);
    assert_payload(&frame(ETHERNET, &data), b"a", false);
    let mut data = ethernet(IPV6, &ipv6(TCP, &tcp(ACK | 8, &[], b"a")));
    data.resize(80, 0xee);
    assert_payload(&frame(ETHERNET, &data), b"a", true);
}

#[test]
fn the_snap_length_cuts_the_payload_but_not_its_length_on_the_wire() {
    for (ether_type, ip) in [(IPV4, ipv4(TCP, &[], &data_segment())), (IPV6, ipv6(TCP, &data_segment()))] {
        let data = ethernet(ether_type, &ip);
        for cut in 0..7 {
            let mut frame = frame(ETHERNET, &data);
            frame.data = &data[..data.len() - cut];
            let found = segment(&frame).unwrap();
            assert_eq!(found.payload, &b"payload"[..7 - cut]);
            assert_eq!(found.payload_bytes, 7);
        }
        for length in 0..data.len() - 7 {
            assert_eq!(segment(&frame(ETHERNET, &data[..length])), Err(Skipped::Truncated), "{length}");
        }
    }
}

#[test]
fn a_cut_within_tcp_options_leaves_no_payload() {
    let ip = ipv4(TCP, &[], &tcp(ACK, &[1; 12], b"payload"));
    let found = segment(&Frame { data: &ip[..45], ..frame(RAW, &ip) }).map(|found| found.payload_bytes);
    assert_eq!(found, Ok(7));
}

#[test]
fn a_merged_packet_without_a_length_has_that_of_the_frame() {
    let mut v4 = ethernet(IPV4, &ipv4(TCP, &[], &data_segment()));
    v4[16..18].fill(0);
    let mut v6 = ethernet(IPV6, &ipv6(TCP, &data_segment()));
    v6[18..20].fill(0);
    for data in [v4, v6] {
        let mut frame = frame(ETHERNET, &data);
        let found = segment(&frame).unwrap();
        assert_eq!((found.payload, found.payload_bytes), (&b"payload"[..], 7));
        frame.wire_bytes += 100_000;
        let found = segment(&frame).unwrap();
        assert_eq!((found.payload, found.payload_bytes), (&b"payload"[..], 100_007));
    }
}

#[test]
fn flags_and_the_acknowledgement_are_read() {
    let found = |flags| {
        let ip = ipv4(TCP, &[], &tcp(flags, &[], b""));
        segment(&frame(RAW, &ip)).map(|found| (found.flags, found.acknowledgement)).unwrap()
    };
    let none = TcpFlags::default();
    assert_eq!(found(SYN), (TcpFlags { syn: true, ..none }, None));
    assert_eq!(found(SYN | ACK), (TcpFlags { syn: true, ..none }, Some(2000)));
    assert_eq!(found(ACK | 1), (TcpFlags { fin: true, ..none }, Some(2000)));
    assert_eq!(found(4), (TcpFlags { rst: true, ..none }, None));
}

#[test]
fn fragments_and_other_protocols_are_skipped() {
    let mut first = ipv4(TCP, &[], &data_segment());
    first[6] = 0x20;
    assert_eq!(segment(&frame(RAW, &first)), Err(Skipped::Fragment));
    let mut later = ipv4(TCP, &[], &data_segment());
    later[7] = 1;
    assert_eq!(segment(&frame(RAW, &later)), Err(Skipped::Fragment));
    let fragment = [&[TCP, 0, 0, 1, 0, 0, 0, 9][..], &data_segment()].concat();
    assert_eq!(segment(&frame(RAW, &ipv6(44, &fragment))), Err(Skipped::Fragment));
    let only_fragment = [&[TCP, 0, 0, 0, 0, 0, 0, 9][..], &data_segment()].concat();
    assert_payload(&frame(RAW, &ipv6(44, &only_fragment)), b"payload", true);
    assert_eq!(segment(&frame(RAW, &ipv4(17, &[], &[0; 20]))), Err(Skipped::OtherProtocol));
    assert_eq!(segment(&frame(ETHERNET, &ethernet(0x0806, &[0; 28]))), Err(Skipped::OtherProtocol));
}

#[test]
fn headers_that_contradict_themselves_are_skipped() {
    let mut short_tcp_header = tcp(ACK, &[], b"payload");
    short_tcp_header[12] = 4 << 4;
    let mut long_tcp_header = tcp(ACK, &[], b"payload");
    long_tcp_header[12] = 15 << 4;
    let mut short_length = ipv4(TCP, &[], &data_segment());
    short_length[3] = 10;
    let malformed =
        [ipv4(TCP, &[], &short_tcp_header), ipv4(TCP, &[], &long_tcp_header), short_length, vec![0x50; 60]];
    for ip in malformed {
        assert_eq!(segment(&frame(RAW, &ip)), Err(Skipped::Malformed));
    }
}
