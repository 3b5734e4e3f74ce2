//! Streams by example.

use ciphertoll_observe::{Content, Piece, Segment, Stream, TcpFlags};

/// A piece that outlives its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    Bytes(u64, Vec<u8>),
    Missing(u64, u64),
}

impl From<Piece<'_>> for Got {
    fn from(piece: Piece<'_>) -> Self {
        match piece.content {
            Content::Bytes(bytes) => Self::Bytes(piece.time_ns, bytes.to_vec()),
            Content::Missing(count) => Self::Missing(piece.time_ns, count),
        }
    }
}

/// A stream and what came out of it. Each call is one nanosecond later.
#[derive(Default)]
pub(crate) struct Observed {
    pub stream: Stream,
    pub got: Vec<Got>,
    now: u64,
}

impl Observed {
    /// A stream that begins behind a SYN with the sequence number before `next`.
    pub(crate) fn after_syn(next: u32) -> Self {
        let mut observed = Self::default();
        observed.push_with(next.wrapping_sub(1), b"", TcpFlags { syn: true, ..TcpFlags::default() });
        observed.now = 0;
        observed
    }

    pub(crate) fn push(&mut self, sequence: u32, payload: &[u8]) {
        self.push_with(sequence, payload, TcpFlags::default());
    }

    pub(crate) fn push_with(&mut self, sequence: u32, payload: &[u8], flags: TcpFlags) {
        self.push_cut(sequence, payload, payload.len() as u32, flags);
    }

    pub(crate) fn push_cut(&mut self, sequence: u32, payload: &[u8], payload_bytes: u32, flags: TcpFlags) {
        self.now += 1;
        let segment = Segment {
            time_ns: self.now,
            interface: 0,
            direction: None,
            source: "10.0.0.1:40000".parse().unwrap(),
            destination: "10.0.0.2:5432".parse().unwrap(),
            sequence,
            acknowledgement: None,
            flags,
            payload,
            payload_bytes,
        };
        self.stream.push(&segment, &mut |piece| self.got.push(piece.into()));
    }

    pub(crate) fn acknowledged(&mut self, sequence: u32) {
        self.now += 1;
        self.stream.acknowledged(sequence, self.now, &mut |piece| self.got.push(piece.into()));
    }

    pub(crate) fn finish(&mut self) {
        self.now += 1;
        self.stream.finish(self.now, &mut |piece| self.got.push(piece.into()));
    }
}

fn bytes(time_ns: u64, bytes: &[u8]) -> Got {
    Got::Bytes(time_ns, bytes.to_vec())
}

const FIN: TcpFlags = TcpFlags { fin: true, syn: false, rst: false, psh: false };
const SYN: TcpFlags = TcpFlags { fin: false, syn: true, rst: false, psh: false };
const RST: TcpFlags = TcpFlags { fin: false, syn: false, rst: true, psh: false };
const NONE: TcpFlags = TcpFlags { fin: false, syn: false, rst: false, psh: false };

#[test]
fn segments_in_order_come_out_as_they_are() {
    let mut observed = Observed::after_syn(1000);
    observed.push(1000, b"one");
    observed.push(1003, b"two");
    observed.finish();
    assert_eq!(observed.got, [bytes(1, b"one"), bytes(2, b"two")]);
    assert_eq!(observed.stream.next_sequence(), Some(1006));
}

#[test]
fn an_early_segment_waits_for_the_one_before_it() {
    let mut observed = Observed::after_syn(1000);
    observed.push(1006, b"three");
    observed.push(1003, b"two");
    assert_eq!(observed.got, []);
    observed.push(1000, b"one");
    assert_eq!(observed.got, [bytes(3, b"one"), bytes(3, b"two"), bytes(3, b"three")]);
    assert_eq!(observed.stream.out_of_order_segments(), 2);
    assert_eq!(observed.stream.retransmitted_bytes(), 0);
}

#[test]
fn the_first_copy_of_overlapping_bytes_wins() {
    let mut observed = Observed::after_syn(0);
    observed.push(3, b"345");
    observed.push(1, b"abcdefgh");
    observed.push(0, b"ABCD");
    let expected = [bytes(3, b"A"), bytes(3, b"ab"), bytes(3, b"345"), bytes(3, b"fgh")];
    assert_eq!(observed.got, expected);
    assert_eq!(observed.stream.retransmitted_bytes(), 6);
}

#[test]
fn retransmitted_bytes_come_out_once() {
    let mut observed = Observed::after_syn(1000);
    observed.push(1000, b"one");
    observed.push(1000, b"one");
    observed.push(1001, b"netwo");
    assert_eq!(observed.got, [bytes(1, b"one"), bytes(3, b"two")]);
    assert_eq!(observed.stream.retransmitted_bytes(), 5);
}

#[test]
fn a_keepalive_probe_is_no_data() {
    let mut observed = Observed::after_syn(1000);
    observed.push(1000, b"one");
    observed.push(1002, b"\0");
    observed.push(1002, b"");
    observed.push(1003, b"two");
    assert_eq!(observed.got, [bytes(1, b"one"), bytes(4, b"two")]);
}

#[test]
fn an_idle_keepalive_does_not_begin_a_stream() {
    let mut observed = Observed::default();
    observed.push(999, b"");
    observed.acknowledged(1000);
    observed.push(1000, b"data");
    assert_eq!(observed.got, [bytes(3, b"data")]);
}

#[test]
fn sequence_numbers_wrap_around() {
    let mut observed = Observed::after_syn(u32::MAX - 1);
    observed.push(1, b"later");
    observed.push(u32::MAX - 1, b"abc");
    observed.acknowledged(6);
    assert_eq!(observed.got, [bytes(2, b"abc"), bytes(2, b"later")]);
}

#[test]
fn without_a_syn_the_first_payload_is_the_beginning() {
    let mut observed = Observed::default();
    observed.push(5000, b"middle");
    observed.push(4000, b"earlier");
    assert_eq!(observed.got, [bytes(1, b"middle")]);
}

#[test]
fn without_a_syn_an_acknowledgement_is_the_beginning() {
    let mut observed = Observed::default();
    observed.acknowledged(5000);
    observed.push(5002, b"cd");
    observed.push(4998, b"xxab");
    assert_eq!(observed.got, [bytes(3, b"ab"), bytes(3, b"cd")]);
}

#[test]
fn data_in_a_syn_is_data() {
    let mut observed = Observed::default();
    observed.push_with(999, b"fast", SYN);
    observed.push_with(999, b"", SYN);
    observed.push(1000, b"fast open");
    assert_eq!(observed.got, [bytes(1, b"fast"), bytes(3, b" open")]);
}

#[test]
fn a_cut_payload_is_followed_by_what_is_missing() {
    let mut observed = Observed::after_syn(0);
    observed.push_cut(0, b"he", 10, NONE);
    observed.push_cut(20, b"ad", 10, NONE);
    observed.push_cut(10, b"er", 10, NONE);
    let expected = [
        bytes(1, b"he"),
        Got::Missing(1, 8),
        bytes(3, b"er"),
        Got::Missing(3, 8),
        bytes(3, b"ad"),
        Got::Missing(3, 8),
    ];
    assert_eq!(observed.got, expected);
}

#[test]
fn acknowledged_bytes_that_were_not_captured_are_missing() {
    let mut observed = Observed::after_syn(0);
    observed.push(10, b"seen");
    observed.push(20, b"later");
    observed.acknowledged(12);
    assert_eq!(observed.got, [Got::Missing(3, 10), bytes(3, b"seen")]);
    observed.acknowledged(18);
    assert_eq!(observed.got[2..], [Got::Missing(4, 4)]);
    observed.acknowledged(16);
    observed.push(14, b"654321");
    assert_eq!(observed.got[3..], [bytes(6, b"21"), bytes(6, b"later")]);
}

#[test]
fn a_fin_is_no_missing_byte() {
    let mut observed = Observed::after_syn(0);
    observed.push_with(0, b"end", FIN);
    observed.acknowledged(4);
    observed.push_with(0, b"end", FIN);
    observed.finish();
    assert_eq!(observed.got, [bytes(1, b"end")]);
    assert_eq!(observed.stream.next_sequence(), Some(4));
}

#[test]
fn what_is_missing_before_a_fin_comes_out() {
    for is_acknowledged in [false, true] {
        let mut observed = Observed::after_syn(0);
        observed.push_with(5, b"", FIN);
        if is_acknowledged {
            observed.acknowledged(6);
        } else {
            observed.finish();
        }
        assert_eq!(observed.got, [Got::Missing(2, 5)]);
        assert_eq!(observed.stream.next_sequence(), Some(6));
    }
}

#[test]
fn an_early_fin_waits_for_the_data() {
    let mut observed = Observed::after_syn(0);
    observed.push_with(3, b"two", FIN);
    observed.push(0, b"one");
    observed.acknowledged(7);
    assert_eq!(observed.got, [bytes(2, b"one"), bytes(2, b"two")]);
}

#[test]
fn the_text_of_a_reset_is_no_data() {
    let mut observed = Observed::after_syn(0);
    observed.push_with(0, b"refused", RST);
    observed.push_with(123_456, b"", RST);
    observed.finish();
    assert_eq!(observed.got, []);
}

#[test]
fn a_gap_is_given_up_before_too_much_is_kept() {
    let mut observed = Observed::after_syn(0);
    for number in 0..65 {
        observed.push(1 + 2 * number, b"x");
    }
    assert_eq!(observed.got, [Got::Missing(65, 1), bytes(65, b"x")]);
    let mut observed = Observed::after_syn(0);
    let (long, longer) = (vec![1; 6_000], vec![2; 60_000]);
    observed.push(5, &long);
    observed.push(6_005, &longer);
    assert_eq!(observed.got, [Got::Missing(2, 5), bytes(2, &long), bytes(2, &longer)]);
}

#[test]
fn what_is_kept_comes_out_at_the_end() {
    let mut observed = Observed::after_syn(0);
    observed.push(2, b"cd");
    observed.push(6, b"gh");
    observed.finish();
    let expected = [Got::Missing(3, 2), bytes(3, b"cd"), Got::Missing(3, 2), bytes(3, b"gh")];
    assert_eq!(observed.got, expected);
    observed.finish();
    assert_eq!(observed.got.len(), 4);
}

#[test]
fn impossible_lengths_and_sequence_numbers_end() {
    let mut observed = Observed::after_syn(0);
    observed.push_cut(0x7fff_ffff, b"x", u32::MAX, FIN);
    observed.push_cut(0x4000_0000, b"x", u32::MAX, NONE);
    observed.push_cut(0xffff_0000, b"x", u32::MAX, NONE);
    observed.acknowledged(0x7fff_ffff);
    observed.finish();
    assert!(observed.got.iter().all(|got| *got != Got::Missing(0, 0)));
}
