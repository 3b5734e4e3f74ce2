//! Connects from many addresses, so that churn does not run out of ports.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use ciphertoll_net::SourceAddresses;

use crate::drivers::{LoopClient, dialer};
use crate::server::Server;

/// The addresses that a server sees `connects` come from.
fn seen_from(connects: usize, mut sources: Option<SourceAddresses>) -> Vec<IpAddr> {
    let server = Server::tcp(move |listener| {
        (0..connects)
            .map(|_| {
                let (peer, from) = listener.accept_from();
                peer.log_in(None).goodbye();
                from.unwrap().ip()
            })
            .collect::<Vec<_>>()
    });
    let dialer = dialer(&server.address, None);
    for _ in 0..connects {
        let mut client = LoopClient::connect(&dialer, sources.as_mut()).unwrap();
        client.server.encode_goodbye(client.channel.output());
        client.channel.close().unwrap();
    }
    server.join()
}

fn is_loopback(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if address.is_loopback())
}

#[test]
fn every_connect_has_another_source_until_they_are_used_up() {
    let count = SourceAddresses::COUNT as usize;
    let seen = seen_from(count + 2, Some(SourceAddresses::lane(0)));
    assert!(seen.iter().all(is_loopback), "{seen:?}");
    let distinct: BTreeSet<_> = seen[..count].iter().collect();
    assert_eq!(distinct.len(), count);
    assert_eq!(seen[count..], seen[..2], "then from the first again");
}

#[test]
fn lanes_share_no_source() {
    // The last two lie furthest out: still loopback.
    let lanes = [0, 1, u16::MAX - 1, u16::MAX];
    let mut all = BTreeSet::new();
    for lane in lanes {
        let seen = seen_from(3, Some(SourceAddresses::lane(lane)));
        assert!(seen.iter().all(is_loopback), "{seen:?}");
        all.extend(seen);
    }
    assert_eq!(all.len(), 3 * lanes.len());
}

#[test]
fn without_sources_the_kernel_chooses() {
    assert_eq!(seen_from(2, None), [IpAddr::V4(Ipv4Addr::LOCALHOST); 2]);
}
