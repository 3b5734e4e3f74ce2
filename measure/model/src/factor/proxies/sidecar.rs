//! ciphertoll-proxy, the sidecar. The lab starts it with arguments.

use crate::factor::proxy_program::{ProxyDefinition, ProxyProtocol, ProxySource};

pub(super) static DEFINITION: ProxyDefinition = ProxyDefinition {
    label: "proxy",
    display_name: "ciphertoll-proxy",
    protocol: ProxyProtocol::Sql,
    older_version: None,
    insufficient: None,
    source: ProxySource::Own,
    configure: None,
};
