//! Free ports to listen on, below the range of ephemeral ports.

use std::net::{Ipv4Addr, TcpListener};

/// Below are well-known ports and ports that people configure.
const LOWEST: u16 = 20_000;
/// Linux uses ports from 32768 upwards for outgoing connections.
const END: u16 = 32_768;
const DRAWS: usize = 1_000;

/// A port of 127.0.0.1 that is free now. Another process may take it: the caller must be ready to try another.
pub fn free_port(tried: &[u16]) -> Option<u16> {
    let draws = std::iter::repeat_with(|| rand::random_range(LOWEST..END)).take(DRAWS);
    draws
        .into_iter()
        .find(|port| !tried.contains(port) && TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
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
