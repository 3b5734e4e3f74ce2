//! Captures in which segments have another order than on the wire.

use std::collections::VecDeque;

use ciphertoll_wire::passive::ConnectionSide;
use proptest::prelude::*;

use crate::exchange::{Exchange, WHOLE, encrypted, only_pair, plain, recording};
use crate::packets::ACK;

/// All orders in which one frame comes later by some places.
fn orders(frames: usize) -> impl Iterator<Item = Vec<usize>> {
    let delays = [1, 2, 5];
    (0..frames).flat_map(move |late| delays.map(|delay| (late, delay))).map(move |(late, delay)| {
        let mut order: Vec<usize> = (0..frames).collect();
        let frame = order.remove(late);
        order.insert((late + delay).min(frames - 1), frame);
        order
    })
}

/// All of an observation but the times, which are those of the capture.
fn counted(exchange: &Exchange, order: &[usize]) -> String {
    let mut pair = only_pair(exchange.observed_in(order));
    (pair.connect_ms, pair.round_trip_ms) = (None, None);
    pair.phases.clear();
    format!("{pair:?}")
}

#[test]
fn a_segment_that_is_captured_behind_its_acknowledgement_makes_no_difference() {
    for exchange in [
        plain(),
        encrypted(recording!("tls12"), WHOLE),
        encrypted(recording!("tls13"), WHOLE),
        encrypted(recording!("tls13_retry"), WHOLE),
    ] {
        let in_order: Vec<usize> = (0..exchange.frames.len()).collect();
        let expected = counted(&exchange, &in_order);
        assert!(expected.contains("unread: 0"), "{expected}");
        for order in orders(exchange.frames.len()) {
            assert_eq!(counted(&exchange, &order), expected, "{order:?}");
        }
    }
}

/// Two taps: each direction in order, and the two shifted.
#[test]
fn one_direction_may_be_captured_behind_the_other() {
    let exchange = plain();
    let is_client = |at: &usize| exchange.frames[*at][15] == 1;
    let (client, server): (VecDeque<usize>, VecDeque<usize>) =
        (0..exchange.frames.len()).partition(is_client);
    let expected = counted(&exchange, &(0..exchange.frames.len()).collect::<Vec<_>>());
    for (first, second) in [(&client, &server), (&server, &client)] {
        let order: Vec<usize> = first.iter().chain(second).copied().collect();
        assert_eq!(counted(&exchange, &order), expected, "{order:?}");
    }
}

/// A packet that was dropped never comes: what follows is not waited for without end.
#[test]
fn a_lost_segment_is_given_up_after_some_more() {
    let mut exchange = plain();
    // Without the end, which would give it up.
    exchange.frames.truncate(exchange.frames.len() - 2);
    for _ in 0..40 {
        exchange.segment(ConnectionSide::Server, ACK, b"");
    }
    let lost = 5;
    let order: Vec<usize> = (0..exchange.frames.len()).filter(|at| *at != lost).collect();
    let pair = only_pair(exchange.observed_in(&order));
    assert_eq!((pair.connections.unread, pair.connections.open), (1, 1));
}

/// A connection that ended with a gap leaves room for others.
#[test]
fn an_ended_connection_with_a_gap_is_not_followed_for_long() {
    let ended = plain();
    let mut busy = Exchange { client: 0x1_0100, ..Exchange::default() };
    busy.segment(ConnectionSide::Client, crate::packets::SYN, b"");
    for _ in 0..5_000 {
        busy.segment(ConnectionSide::Client, ACK, b"x");
    }
    let mut watch = ended.watch();
    let kept = ended.frames.iter().enumerate().filter(|(at, _)| *at != 5).map(|(_, frame)| frame);
    for (at, frame) in kept.chain(&busy.frames).enumerate() {
        crate::exchange::watch_frame(&mut watch, at as u64, frame, frame.len());
    }
    // Its ports again, in the middle of a connection: a new flow, since the one before is gone.
    crate::exchange::watch_frame(&mut watch, 10_000, &ended.frames[6], ended.frames[6].len());
    let observation = crate::exchange::finish(watch);
    let pair = observation.pairs.iter().find(|pair| pair.client == "10.0.0.1").unwrap();
    assert_eq!((pair.connections.begun, pair.connections.began_before), (1, 1), "{pair:?}");
}

proptest! {
    #[test]
    fn small_changes_of_the_order_change_nothing(delays in prop::collection::vec(0..6_usize, 1..30)) {
        let exchange = plain();
        let mut order: Vec<usize> = (0..exchange.frames.len()).collect();
        // What comes before the SYN and its answer is of a connection that was open before.
        order.sort_by_key(|at| if *at == 0 { 0 } else { at + delays[at % delays.len()] });
        let expected = counted(&exchange, &(0..exchange.frames.len()).collect::<Vec<_>>());
        prop_assert_eq!(counted(&exchange, &order), expected);
    }
}
