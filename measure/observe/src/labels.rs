//! What clients and servers are called: by their host names where these were looked up, else by their addresses.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::SocketAddr;

use crate::observation::{Observation, Pair};

impl Pair {
    #[must_use]
    pub fn client_label(&self) -> &str {
        self.client_name.as_deref().unwrap_or(&self.client)
    }

    /// With the port.
    #[must_use]
    pub fn server_label(&self) -> Cow<'_, str> {
        let port = self.server.parse::<SocketAddr>().map(|server| server.port());
        match (&self.server_name, port) {
            (Some(name), Ok(port)) => format!("{name}:{port}").into(),
            _ => self.server.as_str().into(),
        }
    }
}

/// The labels of all addresses that have one.
pub struct AddressLabels<'a>(HashMap<&'a str, Cow<'a, str>>);

impl<'a> AddressLabels<'a> {
    #[must_use]
    pub fn of(observation: &'a Observation) -> Self {
        let labels = observation.pairs.iter().flat_map(|pair| {
            [(pair.client.as_str(), pair.client_label().into()), (pair.server.as_str(), pair.server_label())]
        });
        Self(labels.collect())
    }

    /// The label of an address. What is no address of the observation is its own label.
    #[must_use]
    pub fn label<'b>(&'b self, address: &'b str) -> &'b str {
        self.0.get(address).map_or(address, |label| label)
    }
}
