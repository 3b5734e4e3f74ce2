//! Names of clients' processes, from another process that may see them. Without it, the observation goes on.

use std::time::Duration;
use std::{env, io};

use ciphertoll_host::sockets::{SeenClient, SeenClients, SocketsProcess};
use ciphertoll_observe::{ClientProcess, Observation, Ports};

use crate::progress::tell;

/// The other process, which samples sockets; absent if it failed, which was told then.
pub(super) struct ClientWatch(Option<SocketsProcess>);

impl ClientWatch {
    pub(super) fn start(ports: &Ports) -> Self {
        let program = env::current_exe();
        let started = program.and_then(|program| SocketsProcess::start(&program, ports.keys().copied()));
        Self(started.map_err(unnamed).ok())
    }

    /// The observation ends: the other process samples once more while the last packets are read.
    pub(super) fn ask(&mut self) {
        let asked = self.0.take().map(|mut process| process.ask().map(|()| process));
        self.0 = asked.and_then(|asked| asked.map_err(unnamed).ok());
    }

    /// Returns the other process's CPU time, if it has answered.
    pub(super) fn name_in(self, observation: &mut Observation) -> Duration {
        let Some(process) = self.0 else { return Duration::ZERO };
        let SeenClients { clients, cpu_time } = match process.take() {
            Ok(seen) => seen,
            Err(reason) => {
                unnamed(reason);
                return Duration::ZERO;
            }
        };
        observation.add_processes(clients.into_iter().map(|seen| {
            let SeenClient { client, server, owner, connections } = seen;
            let (name, container, unit) = (owner.name, owner.container, owner.unit);
            (client, server, ClientProcess { name, container, unit, connections })
        }));
        cpu_time
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the signature of map_err")]
fn unnamed(reason: io::Error) {
    tell(&format!("clients are not named by their processes: {reason}"));
}
