//! What must hold for any order, loss and overlap of segments.

use std::ops::Range;

use proptest::prelude::*;
use proptest::sample::Index;

use ciphertoll_observe::TcpFlags;

use crate::streams::{Got, Observed};

/// Sequence numbers anywhere, and those soon before they wrap around.
fn first_sequence() -> impl Strategy<Value = u32> {
    prop_oneof![any::<u32>(), (0..3000_u32).prop_map(|before| u32::MAX - before)]
}

fn data() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..3000)
}

/// The data in one piece per cut.
fn segments(length: usize, cuts: &[Index]) -> Vec<Range<usize>> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(length)).collect();
    ends.extend([0, length]);
    ends.sort_unstable();
    ends.windows(2).map(|ends| ends[0]..ends[1]).collect()
}

/// Each later by at most so many places.
fn reordered<T: Clone>(items: &[T], delays: &[usize]) -> Vec<T> {
    let delays = delays.iter().cycle();
    let mut keyed: Vec<_> = items.iter().zip(delays).enumerate().collect();
    keyed.sort_by_key(|(place, (_, delay))| place + *delay);
    keyed.into_iter().map(|(_, (item, _))| item.clone()).collect()
}

fn at(first: u32, offset: usize) -> u32 {
    first.wrapping_add(offset as u32)
}

/// Checks each byte against the data, and returns how many bytes came out and how many were missing.
fn check(got: &[Got], data: &[u8]) -> (usize, usize) {
    let (mut at, mut seen) = (0, 0);
    for got in got {
        match got {
            Got::Bytes(_, bytes) => {
                assert!(!bytes.is_empty());
                assert_eq!(bytes, &data[at..at + bytes.len()], "at {at}");
                at += bytes.len();
                seen += bytes.len();
            }
            Got::Missing(_, count) => {
                assert_ne!(*count, 0);
                at += usize::try_from(*count).unwrap();
            }
        }
    }
    (seen, at - seen)
}

proptest! {
    #[test]
    fn all_bytes_come_out_once_and_in_order(
        first in first_sequence(),
        data in data(),
        cuts in prop::collection::vec(any::<Index>(), 0..100),
        again in prop::collection::vec((any::<Index>(), any::<Index>()), 0..20),
        delays in prop::collection::vec(0..12_usize, 1..50),
    ) {
        let mut sent = segments(data.len(), &cuts);
        for (place, range) in again {
            let (from, to) = (place.index(data.len()), range.index(data.len()));
            sent.insert(place.index(sent.len()), from.min(to)..from.max(to) + 1);
        }
        let mut observed = Observed::after_syn(first);
        for range in reordered(&sent, &delays) {
            observed.push(at(first, range.start), &data[range]);
        }
        prop_assert_eq!(check(&observed.got, &data), (data.len(), 0));
        let pushed: usize = sent.iter().map(ExactSizeIterator::len).sum();
        prop_assert_eq!(observed.stream.retransmitted_bytes(), (pushed - data.len()) as u64);
    }

    #[test]
    fn what_is_missing_adds_up_to_the_whole(
        first in first_sequence(),
        data in data(),
        cuts in prop::collection::vec(any::<Index>(), 0..100),
        fates in prop::collection::vec((any::<bool>(), any::<bool>(), 0..40_usize), 1..60),
        delays in prop::collection::vec(0..12_usize, 1..50),
    ) {
        let sent = segments(data.len(), &cuts);
        let fates = sent.iter().cloned().zip(fates.iter().copied().cycle()).collect::<Vec<_>>();
        let mut observed = Observed::after_syn(first);
        let mut captured = 0;
        for (range, (is_captured, is_acknowledged, snap_bytes)) in reordered(&fates, &delays) {
            if is_captured {
                let payload = &data[range.clone()];
                let cut = &payload[..payload.len().min(snap_bytes)];
                captured += cut.len();
                observed.push_cut(at(first, range.start), cut, payload.len() as u32, TcpFlags::default());
            }
            if is_acknowledged {
                observed.acknowledged(at(first, range.end));
            }
        }
        observed.acknowledged(at(first, data.len()));
        observed.finish();
        let (seen, missing) = check(&observed.got, &data);
        prop_assert_eq!(seen + missing, data.len());
        prop_assert!(seen <= captured);
        prop_assert_eq!(observed.stream.next_sequence(), Some(at(first, data.len())));
    }

    #[test]
    fn nothing_captured_is_missing_if_it_came_in_order(
        first in first_sequence(),
        data in data(),
        cuts in prop::collection::vec(any::<Index>(), 0..100),
        fates in prop::collection::vec(any::<bool>(), 1..60),
    ) {
        let mut observed = Observed::after_syn(first);
        let mut captured = 0;
        for (range, is_captured) in segments(data.len(), &cuts).into_iter().zip(fates.iter().cycle()) {
            if *is_captured {
                captured += range.len();
                observed.push(at(first, range.start), &data[range]);
            }
        }
        observed.acknowledged(at(first, data.len()));
        prop_assert_eq!(check(&observed.got, &data), (captured, data.len() - captured));
    }
}
