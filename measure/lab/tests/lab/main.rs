//! The lab against real processes and, where this machine has it, real servers.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod accounts;
mod at_rest;
mod capture;
mod common;
mod counters;
mod datasets;
mod ferretdb;
mod fixture;
mod line;
mod mariadb;
mod mysql;
mod pinning;
mod post_quantum;
mod postgres;
mod profiler;
mod proxies;
mod proxysql;
mod refusals;
mod round_trips;
mod server_load;
mod spawn;
mod test_client;
mod tunnels;
