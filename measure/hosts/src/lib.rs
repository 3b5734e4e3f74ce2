//! Load processes on other machines.
//!
//! A [`HostTransport`] is a command whose stdin and stdout reach another machine: `ssh`, `docker exec`, `kubectl exec`.
//! What it starts there is the [`agent`], ciphertoll's own hidden command; [`protocol`] is what the two say to each
//! other. The coordinator's end of all of them is the [`Fleet`], one poll loop on one thread. [`clock`] relates the
//! monotonic clocks of hosts, so that their windows begin together. [`ServerMeter`] reads the CPU of a server on its own
//! machine, by the same agent. Nothing listens, and secrets travel over stdin only.
//!
//! # Where to change what
//!
//! - a way to a load host: the grammar, `model::hosts`; a `Transport`, `hosts::transport`; how the program gets
//!   there, `hosts::transport::bootstrap`
//! - pods as load hosts: the Job and what is said of its pods, `hosts::transport::kubernetes`; what a pod runs,
//!   `hosts::agent::pod`; its deletion after a kill, `record::kubernetes_job`; the rights,
//!   `packaging/kubernetes-role.yaml`; the Kubernetes of the tests, `scripts/kubernetes`
//! - what coordinator and agent say: `hosts::protocol` (`PROTOCOL_VERSION`); the agent, `hosts::agent`; the
//!   coordinator, `hosts::fleet`
//! - windows that begin together: `hosts::clock`, `hosts::fleet::pinging`, `load::process` (`TrialStart`); the gate,
//!   `experiment::host_gates`
//! - how a trial is divided and summed up: `hosts::share`, `load::sum`; what the report shows, `stats::hosts`,
//!   `report::view::hosts`
//! - the CPU of a server on another machine: `hosts::agent::listener`, `hosts::server_meter`

pub mod agent;
pub mod clock;
mod connection;
mod error;
mod fleet;
pub mod protocol;
mod secret;
mod server_meter;
mod share;
pub mod transport;

pub use agent::{HOST_COMMAND, POD_COMMAND, boot_id, run_host_process, wait_in_pod};
pub use clock::{ClockOffset, WindowOverlap};
pub use error::{HostError, KubectlError, KubernetesError};
pub use fleet::{Fleet, HostFacts, HostResult, TrialFailure, TrialOutcome, TrialWatch};
pub use secret::SecretBytes;
pub use server_meter::{ServerCpu, ServerMeter};
pub use share::shares;
pub use transport::{Bootstrap, HostTransport, TransportContext, Waiting};
