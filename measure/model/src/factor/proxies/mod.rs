//! The proxy programs that can be measured. A new one is a file here, and its name in this list, which is in the order of
//! `--help`: programs for the same servers stand together.

mod mysqlrouter;
mod odyssey;
mod pgbouncer;
mod proxysql;
mod sidecar;

use super::proxy_program::ProxyDefinition;

pub(super) static SIDECAR: &ProxyDefinition = &sidecar::DEFINITION;

pub(super) static ALL: &[&ProxyDefinition] = &[
    &sidecar::DEFINITION,
    &pgbouncer::DEFINITION,
    &odyssey::DEFINITION,
    &proxysql::DEFINITION,
    &mysqlrouter::DEFINITION,
];
