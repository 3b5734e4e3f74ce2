//! Free ports to listen on, below the range that outgoing connects take theirs from.

use std::net::{Ipv4Addr, TcpListener};

/// Lowest port tried: below lie the well-known ones and those that people configure.
const LOWEST: u16 = 20_000;
/// One above the highest: Linux takes ports of outgoing connects from 32768 upwards.
const END: u16 = 32_768;
const DRAWS: usize = 1_000;

/// A port of 127.0.0.1 that is free now. It may be taken by the time a server binds it, so whoever
/// starts one must be ready to try another.
pub(crate) fn free_port(not: &[u16]) -> Option<u16> {
    let draws = std::iter::repeat_with(|| rand::random_range(LOWEST..END)).take(DRAWS);
    draws
        .into_iter()
        .find(|port| !not.contains(port) && TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_is_below_the_ephemeral_range_and_can_be_bound() {
        let port = free_port(&[]).unwrap();
        assert!((LOWEST..END).contains(&port));
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
    }
}
