//! Where the CPU time of a configuration goes: samples of its processes by part.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::labelled;

labelled! {
    /// Whether a run profiles its configurations after it has measured them.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Profiling {
        #[default]
        Off = "off",
        On = "on",
    }
}

labelled! {
    /// Whose CPU time.
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum ProfiledRole {
        Client = "client",
        /// Tunnel or proxy.
        Middle = "middle",
        Server = "server",
    }
}

labelled! {
    /// A part of the CPU time. Each sample is in one of them.
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum CpuPart {
        /// Building TLS contexts and reading the certificate authorities.
        TlsContext = "tls_context",
        /// Decoding and verifying certificates.
        Certificates = "certificates",
        /// The signature of the handshake, or its verification.
        Signature = "signature",
        KeyExchange = "key_exchange",
        /// The rest of the handshake: messages, key schedule, sessions.
        Handshake = "handshake",
        /// Encryption and decryption of records, and the record layer.
        Records = "records",
        /// Password hashing.
        Passwords = "passwords",
        /// Starting and ending processes and threads, with the page faults of new processes.
        Processes = "processes",
        /// The server's start and end of a session.
        Session = "session",
        /// The kernel's network stack.
        Network = "network",
        /// Waiting and waking up: the scheduler.
        Switches = "switches",
        /// All else: statements, the client's own work, and what no symbol explains.
        Other = "other",
    }
}

/// Samples of one configuration, from a trial of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Samples per second of CPU time.
    pub samples_per_s: u32,
    /// By role; parts without samples are absent.
    pub roles: BTreeMap<ProfiledRole, BTreeMap<CpuPart, u64>>,
}

impl Profile {
    /// All samples of a role.
    pub fn samples_of(&self, role: ProfiledRole) -> u64 {
        self.roles.get(&role).map_or(0, |parts| parts.values().sum())
    }

    /// All samples.
    pub fn samples(&self) -> u64 {
        self.roles.values().flat_map(BTreeMap::values).sum()
    }
}
