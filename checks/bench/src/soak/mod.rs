//! The soak: the sidecar in transaction mode in front of a real server, for minutes to hours, with thousands of connected
//! clients, clients that come and go, reloads, killed server connections, restarts of the server, and an upgrade. Every
//! answer must carry its nonce, errors may only come from kills and restarts, and memory, descriptors and server
//! connections must stay flat. [`site`] has the server and the sidecar, [`clients`] the load, [`disturbance`] what happens
//! to them, [`sample`] the table, [`verdict`] the decision.

pub mod clients;
mod control;
pub mod disturbance;
pub mod run;
pub mod sample;
pub mod site;
pub mod tally;
pub mod verdict;
