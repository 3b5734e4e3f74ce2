//! One look at all tables of sockets after the other.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

use super::counts::{ConnectionCounts, SeenClient};
use super::processes::ProcessTable;

/// Counts connections by the process that has the client's end.
#[derive(Debug)]
pub struct SocketSampler {
    processes: ProcessTable,
    ports: HashSet<u16>,
    counts: ConnectionCounts,
    /// Processes that had connections: they will have the next ones, too, and are searched first.
    owners: BTreeSet<u32>,
}

impl SocketSampler {
    /// Of the processes in `root`, usually `/proc`, and servers on these ports.
    #[must_use]
    pub fn new(root: &Path, ports: impl IntoIterator<Item = u16>) -> Self {
        Self {
            processes: ProcessTable::new(root),
            ports: ports.into_iter().collect(),
            counts: ConnectionCounts::default(),
            owners: BTreeSet::new(),
        }
    }

    /// Reads the tables of all network namespaces once. All processes are searched only for sockets that are new.
    pub fn sample(&mut self) {
        let Ok(pids) = self.processes.pids() else { return };
        let Self { processes, ports, counts, owners } = self;
        counts.begin_sample();
        let (mut networks, mut wanted) = (HashSet::new(), HashMap::new());
        // Each network has its own loopback addresses. Other addresses may also occur in two networks; these
        // cannot be told apart.
        let own = processes.own_network();
        for pid in &pids {
            let Some(network) = processes.network(*pid) else { continue };
            if networks.contains(&network) {
                continue;
            }
            let is_read = processes.read_sockets(
                *pid,
                |port| ports.contains(&port),
                |socket| {
                    let is_near = own.as_ref() == Some(&network) || !socket.server.ip().is_loopback();
                    if is_near && counts.is_unknown(socket) {
                        wanted.insert(socket.inode, socket);
                    }
                },
            );
            // Otherwise it has just ended, and the next process of the namespace is asked.
            if is_read {
                networks.insert(network);
            }
        }
        let living: BTreeSet<u32> = pids.into_iter().collect();
        owners.retain(|pid| living.contains(pid));
        let order: Vec<u32> = owners.iter().chain(living.difference(owners)).copied().collect();
        for pid in order {
            if wanted.is_empty() {
                break;
            }
            processes.take_sockets(pid, &mut wanted, |socket, owner| {
                counts.found(socket, owner);
                owners.insert(pid);
            });
        }
        for socket in wanted.into_values() {
            counts.not_found(socket);
        }
    }

    /// What was seen so far, those with most connections first.
    #[must_use]
    pub fn clients(&self) -> Vec<SeenClient> {
        self.counts.clients()
    }
}

#[cfg(test)]
mod tests;
