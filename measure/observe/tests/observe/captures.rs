//! Captures in all formats.

use std::fs;
use std::io::{self, Read};

use ciphertoll_observe::{Capture, CaptureError, LinkType, PacketDirection};

use crate::files::FileWriter;

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const ETHERNET: u16 = 1;
const IF_TSRESOL: u16 = 9;
const IF_TSOFFSET: u16 = 14;

/// What tests compare of a frame: time, link type, interface, length on the wire, data.
type Seen = (u64, LinkType, u32, u32, Vec<u8>);

struct Contents {
    frames: Vec<Seen>,
    directions: Vec<Option<PacketDirection>>,
    is_truncated: bool,
    kernel_drops: u64,
}

fn read_from(reader: impl Read) -> Result<Contents, CaptureError> {
    let mut capture = Capture::from_reader("standard input", reader)?;
    let (mut frames, mut directions) = (Vec::new(), Vec::new());
    while let Some(frame) = capture.next_frame()? {
        let data = frame.data.to_vec();
        frames.push((frame.time_ns, frame.link_type, frame.interface, frame.wire_bytes, data));
        directions.push(frame.direction);
    }
    let (is_truncated, kernel_drops) = (capture.is_truncated(), capture.kernel_drops());
    Ok(Contents { frames, directions, is_truncated, kernel_drops })
}

fn read(file: &FileWriter) -> Contents {
    read_from(file.bytes.as_slice()).unwrap()
}

/// Gives one byte at a time, and is interrupted before each.
struct Slow<'a>(&'a [u8], bool);

impl Read for Slow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.1 = !self.1;
        if self.1 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        self.0.read(&mut buffer[..1])
    }
}

#[test]
fn classic_files_are_read_in_both_byte_orders_and_both_units_of_time() {
    for is_big_endian in [false, true] {
        for (magic, unit_ns) in [(MICROSECONDS, 1000), (NANOSECONDS, 1)] {
            let mut file = FileWriter::pcap(is_big_endian, magic, 1);
            file.record(1_700_000_000, 999_999, 3, b"one").record(1_700_000_001, 2, 1500, b"second");
            let read = read(&file);
            let first = 1_700_000_000_000_000_000 + 999_999 * unit_ns;
            let second = 1_700_000_001_000_000_000 + 2 * unit_ns;
            let expected = [
                (first, LinkType::Ethernet, 0, 3, b"one".to_vec()),
                (second, LinkType::Ethernet, 0, 1500, b"second".to_vec()),
            ];
            assert_eq!(read.frames, expected);
            assert!(!read.is_truncated);
        }
    }
}

#[test]
fn the_length_of_a_frame_checksum_is_no_part_of_the_link_type() {
    let mut file = FileWriter::pcap(false, MICROSECONDS, 0x2400_0001);
    file.record(1, 0, 1, b"x");
    assert_eq!(read(&file).frames[0].1, LinkType::Ethernet);
}

#[test]
fn interfaces_of_a_pcapng_file_have_their_own_link_types_and_clocks() {
    for is_big_endian in [false, true] {
        let mut file = FileWriter::new(is_big_endian);
        file.section(is_big_endian)
            .interface(ETHERNET, &[(2, b"eth0"), (IF_TSRESOL, &[9])])
            .interface(113, &[(IF_TSRESOL, &[0x94])])
            .interface(276, &[])
            .enhanced(0, 1_700_000_000_000_000_001, b"nanoseconds")
            .enhanced(1, (1_700_000_000 << 20) | 1 << 19, b"half a second, in 2^-20")
            .enhanced(2, 1_700_000_000_000_001, b"microseconds");
        let read = read(&file);
        let seen: Vec<_> = read.frames.iter().map(|frame| (frame.0, frame.1, frame.2)).collect();
        let expected = [
            (1_700_000_000_000_000_001, LinkType::Ethernet, 0),
            (1_700_000_000_500_000_000, LinkType::LinuxCooked, 1),
            (1_700_000_000_000_001_000, LinkType::LinuxCookedV2, 2),
        ];
        assert_eq!(seen, expected);
        assert_eq!(read.frames[0].4, b"nanoseconds");
    }
}

#[test]
fn a_time_offset_is_added_in_both_byte_orders() {
    let seconds = 1_000_i64;
    for (is_big_endian, offset) in [(false, seconds.to_le_bytes()), (true, seconds.to_be_bytes())] {
        let mut file = FileWriter::new(is_big_endian);
        file.section(is_big_endian).interface(ETHERNET, &[(IF_TSOFFSET, &offset)]).enhanced(0, 5, b"x");
        assert_eq!(read(&file).frames[0].0, 1_000_000_005_000);
    }
    let offset = (-7_i64).to_le_bytes();
    let mut file = FileWriter::new(false);
    file.section(false).interface(ETHERNET, &[(IF_TSOFFSET, &offset)]);
    file.enhanced(0, 8_000_000, b"x").enhanced(0, 3, b"before the epoch");
    let times: Vec<u64> = read(&file).frames.iter().map(|frame| frame.0).collect();
    assert_eq!(times, [1_000_000_000, 0]);
}

#[test]
fn simple_and_obsolete_packets_are_read() {
    let mut file = FileWriter::new(false);
    file.section(false).block(1, |body| {
        body.u16(ETHERNET).u16(0).u32(6);
    });
    file.block(2, |body| {
        body.u16(0).u16(0xffff).u32(0).u32(9).u32(3).u32(40).padded(b"old").options(&[(2, &[2, 0, 0, 0])]);
    });
    file.block(3, |body| {
        body.u32(100).padded(b"simple");
    });
    let read = read(&file);
    let expected = [
        (9_000, LinkType::Ethernet, 0, 40, b"old".to_vec()),
        (9_000, LinkType::Ethernet, 0, 100, b"simple".to_vec()),
    ];
    assert_eq!(read.frames, expected);
    assert_eq!(read.directions, [Some(PacketDirection::Outgoing), None]);
}

#[test]
fn a_new_section_has_interfaces_of_its_own_and_may_have_another_byte_order() {
    let mut file = FileWriter::new(false);
    file.section(false).interface(ETHERNET, &[]).enhanced(0, 1, b"little").statistics(0, 4);
    file.section(true).interface(101, &[]).enhanced(0, 2, b"big").statistics(0, 5);
    let read = read(&file);
    let seen: Vec<_> = read.frames.iter().map(|frame| (frame.1, frame.2, frame.4.as_slice())).collect();
    assert_eq!(seen, [(LinkType::Ethernet, 0, b"little".as_slice()), (LinkType::Ip, 1, b"big")]);
    assert_eq!(read.kernel_drops, 9);
}

#[test]
fn the_latest_statistics_of_each_interface_are_added() {
    let mut file = FileWriter::new(true);
    file.section(true).interface(ETHERNET, &[]).interface(ETHERNET, &[]);
    file.statistics(0, 3).statistics(1, 10).statistics(0, 7).statistics(9, 100);
    assert_eq!(read(&file).kernel_drops, 17);
}

#[test]
fn the_direction_of_a_packet_is_read_from_its_flags() {
    let mut file = FileWriter::new(false);
    file.section(false).interface(ETHERNET, &[]);
    for flags in [1, 2, 0] {
        file.enhanced_with(0, 1, b"x", &[(1, b"comment"), (2, &[flags, 0, 0, 0])]);
    }
    let expected = [Some(PacketDirection::Incoming), Some(PacketDirection::Outgoing), None];
    assert_eq!(read(&file).directions, expected);
}

#[test]
fn a_block_of_another_type_is_skipped_even_if_it_is_longer_than_the_buffer() {
    let mut file = FileWriter::new(false);
    file.section(false).interface(ETHERNET, &[]).enhanced(0, 1, b"before");
    file.block(10, |body| {
        body.raw(&vec![0; 5 << 20]);
    });
    let cut = file.bytes.len() - 1;
    file.enhanced(0, 2, b"after");
    assert_eq!(read(&file).frames.len(), 2);
    let read = read_from(&file.bytes[..cut]).unwrap();
    assert_eq!(read.frames.len(), 1);
    assert!(read.is_truncated);
}

#[test]
fn a_capture_of_many_megabytes_is_read_to_its_end() {
    let mut file = FileWriter::pcap(false, MICROSECONDS, 1);
    for number in 0..3_000 {
        file.record(number, 0, 60_000, &vec![number as u8; 1_000 + number as usize % 700]);
    }
    let frames = read(&file).frames;
    assert_eq!(frames.len(), 3_000);
    assert!(frames.iter().zip(0_u32..).all(|(frame, number)| {
        frame.4.len() == 1_000 + number as usize % 700 && frame.4.iter().all(|byte| *byte == number as u8)
    }));
}

#[test]
fn a_reader_that_is_slow_and_interrupted_gives_the_same_frames() {
    let mut classic = FileWriter::pcap(true, NANOSECONDS, 1);
    classic.record(1, 2, 3, b"one").record(4, 5, 6, b"two");
    let mut blocks = FileWriter::new(false);
    blocks.section(false).interface(ETHERNET, &[]).enhanced(0, 1, b"one").statistics(0, 1);
    for file in [classic, blocks] {
        assert_eq!(read_from(Slow(&file.bytes, false)).unwrap().frames, read(&file).frames);
    }
}

#[test]
fn a_file_that_is_cut_anywhere_gives_its_whole_packets_and_says_so() {
    let mut classic = FileWriter::pcap(false, MICROSECONDS, 1);
    let mut blocks = FileWriter::new(false);
    blocks.section(false).interface(ETHERNET, &[]);
    let (mut classic_ends, mut block_ends) = (vec![24], vec![28, blocks.bytes.len()]);
    for (number, data) in (0..).zip([b"one".as_slice(), b"two and more", b""]) {
        classic.record(number, 0, 20, data);
        classic_ends.push(classic.bytes.len());
        blocks.enhanced(0, number.into(), data);
        block_ends.push(blocks.bytes.len());
    }
    for (file, ends) in [(classic, classic_ends), (blocks, block_ends)] {
        let without_frames = ends.len() - 3;
        for length in ends[0]..=file.bytes.len() {
            let read = read_from(&file.bytes[..length]).unwrap();
            let whole = ends.iter().filter(|end| **end <= length).count();
            assert_eq!(read.frames.len(), whole.saturating_sub(without_frames), "{length}");
            assert_eq!(read.is_truncated, !ends.contains(&length), "{length}");
        }
    }
}

#[test]
fn a_damaged_file_is_an_error_behind_its_whole_packets() {
    let mut classic = FileWriter::pcap(false, MICROSECONDS, 1);
    classic.record(1, 0, 3, b"one").u32(0).u32(0).u32(u32::MAX).u32(0);
    let mut blocks = FileWriter::new(false);
    blocks.section(false).interface(ETHERNET, &[]).enhanced(1, 0, b"no interface");
    let mut lengths = FileWriter::new(false);
    lengths.section(false).u32(1).u32(16).u32(0).u32(20);
    let mut resolution = FileWriter::new(false);
    resolution.section(false).interface(ETHERNET, &[(IF_TSRESOL, &[99])]);
    for (file, expected) in [
        (classic, "byte 43: a packet has an impossible length"),
        (blocks, "byte 48: a packet is longer than its block, or has no interface"),
        (lengths, "byte 28: the two lengths of a block differ"),
        (resolution, "byte 28: an interface is not described"),
    ] {
        let message = read_from(file.bytes.as_slice()).err().unwrap().to_string();
        assert_eq!(
            message,
            format!(
                "cannot read the capture standard input beyond {expected}; capture again or cut it there"
            )
        );
    }
}

#[test]
fn a_file_that_is_no_capture_is_an_error_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.pcap");
    let opened = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        Capture::open(&path).err().unwrap().to_string()
    };
    let expected = |reason| {
        let use_another = "use a pcap or pcapng file, for example of tcpdump -w";
        format!("{} is not a capture: {reason}; {use_another}", path.display())
    };
    assert_eq!(opened(b""), expected("it is empty"));
    assert_eq!(opened(&[0xd4, 0xc3, 0xb2, 0xa1]), expected("it ends within the file header"));
    assert_eq!(opened(&[b'x'; 100]), expected("it begins with other bytes"));
    let gzip = [&[0x1f, 0x8b, 8, 0][..], &[0; 60]].concat();
    assert_eq!(opened(&gzip), expected("it is compressed"));
    let missing = Capture::open(&directory.path().join("missing.pcap")).err().unwrap();
    assert!(matches!(missing, CaptureError::Unreadable { .. }), "{missing}");
}

#[test]
fn a_file_is_read_by_its_path() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.pcap");
    let mut file = FileWriter::pcap(false, MICROSECONDS, 1);
    file.record(1, 0, 3, b"one");
    fs::write(&path, &file.bytes).unwrap();
    let mut capture = Capture::open(&path).unwrap();
    assert_eq!(capture.next_frame().unwrap().unwrap().data, b"one");
    assert_eq!(capture.next_frame().unwrap(), None);
}
