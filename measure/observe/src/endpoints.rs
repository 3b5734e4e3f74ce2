//! The two ends of a connection.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// From where to where a connection goes, in 36 bytes: IPv4 addresses as IPv6 has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Endpoints {
    client: Address,
    server: Address,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Address {
    ip: [u8; 16],
    port: u16,
}

impl Endpoints {
    pub(crate) fn new(client: SocketAddr, server: SocketAddr) -> Self {
        Self { client: client.into(), server: server.into() }
    }

    pub(crate) fn client(self) -> SocketAddr {
        self.client.into()
    }

    pub(crate) fn server(self) -> SocketAddr {
        self.server.into()
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        Self { ip: ip.octets(), port: address.port() }
    }
}

impl From<Address> for SocketAddr {
    fn from(address: Address) -> Self {
        Self::new(IpAddr::V6(Ipv6Addr::from(address.ip)).to_canonical(), address.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_small_and_stay_the_same() {
        assert_eq!(size_of::<Endpoints>(), 36);
        for text in ["10.0.0.1:5432", "[fd00::1]:3306", "127.0.0.1:1", "[::1]:2"] {
            let address: SocketAddr = text.parse().unwrap();
            let endpoints = Endpoints::new(address, address);
            assert_eq!((endpoints.client(), endpoints.server()), (address, address));
        }
    }
}
