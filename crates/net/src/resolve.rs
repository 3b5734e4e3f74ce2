//! From a server's name to its addresses, by the system's resolver.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use crate::Error;

/// Which of a name's addresses may be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Family {
    /// Any.
    #[default]
    Any,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The addresses of a name, at least one, in the order in which they are to be tried.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) first: SocketAddr,
    pub(crate) rest: Vec<SocketAddr>,
    pub(crate) lookup: Lookup,
}

/// Whether the resolver was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// The name is an address.
    Spared,
    Done,
}

impl Family {
    /// That of an address.
    pub fn of(address: SocketAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    fn has(self, address: SocketAddr) -> bool {
        self == Self::Any || self == Self::of(address)
    }
}

/// Looks a name up, which blocks: for as long as the system's resolver is patient.
pub(crate) fn resolve(name: &str, port: u16, family: Family) -> Result<Resolved, Error> {
    let unresolved = |reason: String| Error::Unresolved { name: name.to_owned(), reason };
    let (all, lookup) = if let Ok(address) = name.parse::<IpAddr>() {
        (vec![SocketAddr::new(address, port)], Lookup::Spared)
    } else {
        let all = (name, port).to_socket_addrs().map_err(|error| unresolved(error.to_string()))?;
        (all.collect(), Lookup::Done)
    };
    let mut fitting = all.into_iter().filter(|address| family.has(*address));
    let first = fitting.next().ok_or_else(|| {
        let kind = match family {
            Family::Any => "address",
            Family::V4 => "IPv4 address",
            Family::V6 => "IPv6 address",
        };
        unresolved(format!("it has no {kind}"))
    })?;
    Ok(Resolved { first, rest: fitting.collect(), lookup })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fault;

    const PORT: u16 = 5432;

    #[test]
    fn addresses_are_not_looked_up() {
        for (name, family) in [("127.0.0.2", Family::V4), ("::1", Family::V6), ("2001:db8::7", Family::V6)] {
            for asked in [Family::Any, family] {
                let resolved = resolve(name, PORT, asked).unwrap();
                assert_eq!((resolved.first.ip().to_string().as_str(), resolved.first.port()), (name, PORT));
                assert_eq!((resolved.rest, resolved.lookup), (vec![], Lookup::Spared));
                assert_eq!(Family::of(resolved.first), family);
            }
            let other = if family == Family::V4 { Family::V6 } else { Family::V4 };
            let error = resolve(name, PORT, other).unwrap_err();
            assert!(
                error.to_string().starts_with(&format!("cannot resolve {name}: it has no IPv")),
                "{error}"
            );
        }
    }

    /// Every system knows this name, at least in IPv4.
    #[test]
    fn names_are_looked_up() {
        let resolved = resolve("localhost", PORT, Family::V4).unwrap();
        assert_eq!(resolved.lookup, Lookup::Done);
        for address in [resolved.first].into_iter().chain(resolved.rest) {
            assert!(address.ip().is_loopback() && address.is_ipv4() && address.port() == PORT, "{address}");
        }
    }

    /// `invalid` is nobody's (RFC 6761, 6.4).
    #[test]
    fn names_that_nobody_has() {
        for name in ["nobody.invalid", "", "a\0b"] {
            let error = resolve(name, PORT, Family::Any).unwrap_err();
            assert!(matches!(error, Error::Unresolved { .. }), "{error:?}");
            assert!(error.to_string().starts_with(&format!("cannot resolve {name}: ")), "{error}");
            assert_eq!(error.fault(), Fault::Server);
        }
    }
}
