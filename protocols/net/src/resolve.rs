//! Name lookup by the system's resolver.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use ciphertoll_vocabulary::AddressFamily;

use crate::Error;

/// The addresses of a name, at least one, in the order in which to try them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) first: SocketAddr,
    pub(crate) rest: Vec<SocketAddr>,
    pub(crate) lookup: Lookup,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// No: the name is an address.
    Spared,
    Done,
}

/// Looks a name up, for addresses of `family` or of any. Blocks until the system's resolver answers or gives up.
pub(crate) fn resolve(name: &str, port: u16, family: Option<AddressFamily>) -> Result<Resolved, Error> {
    let unresolved = |reason: String| Error::Unresolved { name: name.to_owned(), reason };
    let (all, lookup) = if let Ok(address) = name.parse::<IpAddr>() {
        (vec![SocketAddr::new(address, port)], Lookup::Spared)
    } else {
        let all = (name, port).to_socket_addrs().map_err(|error| unresolved(error.to_string()))?;
        (all.collect(), Lookup::Done)
    };
    let mut fitting =
        all.into_iter().filter(|address| family.is_none_or(|family| AddressFamily::from(*address) == family));
    let first = fitting.next().ok_or_else(|| {
        let kind = match family {
            None => "address",
            Some(AddressFamily::V4) => "IPv4 address",
            Some(AddressFamily::V6) => "IPv6 address",
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
        let (v4, v6) = (AddressFamily::V4, AddressFamily::V6);
        for (name, family) in [("127.0.0.2", v4), ("::1", v6), ("2001:db8::7", v6)] {
            for asked in [None, Some(family)] {
                let resolved = resolve(name, PORT, asked).unwrap();
                assert_eq!((resolved.first.ip().to_string().as_str(), resolved.first.port()), (name, PORT));
                assert_eq!((resolved.rest, resolved.lookup), (vec![], Lookup::Spared));
                assert_eq!(AddressFamily::from(resolved.first), family);
            }
            let other = if family == v4 { v6 } else { v4 };
            let error = resolve(name, PORT, Some(other)).unwrap_err();
            assert!(
                error.to_string().starts_with(&format!("cannot resolve {name}: it has no IPv")),
                "{error}"
            );
        }
    }

    /// Every system resolves this name, at least to IPv4.
    #[test]
    fn names_are_looked_up() {
        let resolved = resolve("localhost", PORT, Some(AddressFamily::V4)).unwrap();
        assert_eq!(resolved.lookup, Lookup::Done);
        for address in [resolved.first].into_iter().chain(resolved.rest) {
            assert!(address.ip().is_loopback() && address.is_ipv4() && address.port() == PORT, "{address}");
        }
    }

    /// `invalid` never exists (RFC 6761, 6.4).
    #[test]
    fn unresolvable_names() {
        for name in ["nobody.invalid", "", "a\0b"] {
            let error = resolve(name, PORT, None).unwrap_err();
            assert!(matches!(error, Error::Unresolved { .. }), "{error:?}");
            assert!(error.to_string().starts_with(&format!("cannot resolve {name}: ")), "{error}");
            assert_eq!(error.fault(), Fault::Server);
        }
    }
}
