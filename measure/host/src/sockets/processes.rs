//! The processes in a directory like `/proc`. Any of them may end at any time: what cannot be read is left out.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use super::owner::SocketOwner;
use super::table::{ClientSocket, client_socket};

/// More than any control group's path takes in all hierarchies.
const MOST_CGROUP_BYTES: u64 = 64 << 10;
const MOST_COMM_BYTES: u64 = 64;
/// No row is longer.
const MOST_ROW_BYTES: u64 = 1_000;
const TABLES: [&str; 2] = ["net/tcp", "net/tcp6"];

#[derive(Debug)]
pub(crate) struct ProcessTable {
    root: PathBuf,
}

impl ProcessTable {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// All processes that can be seen, in the order of their numbers.
    pub(crate) fn pids(&self) -> io::Result<Vec<u32>> {
        let entries = fs::read_dir(&self.root)?.flatten();
        let mut pids: Vec<u32> =
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        pids.sort_unstable();
        Ok(pids)
    }

    /// The network namespace of a process: `net:[4026531840]`.
    pub(crate) fn network(&self, pid: u32) -> Option<OsString> {
        fs::read_link(self.path(pid, "ns/net")).ok().map(PathBuf::into_os_string)
    }

    /// The network namespace of this process; `None` if it is not known.
    pub(crate) fn own_network(&self) -> Option<OsString> {
        fs::read_link(self.root.join("self/ns/net")).ok().map(PathBuf::into_os_string)
    }

    /// All clients' sockets in the network namespace of a process. Returns whether it could be read.
    pub(crate) fn read_sockets(
        &self,
        pid: u32,
        is_server_port: impl Fn(u16) -> bool,
        mut found: impl FnMut(ClientSocket),
    ) -> bool {
        let mut is_read = false;
        // Without IPv6, there is no second table.
        for file in TABLES.iter().filter_map(|table| File::open(self.path(pid, table)).ok()) {
            is_read = true;
            let (mut reader, mut row) = (BufReader::new(file), Vec::new());
            loop {
                row.clear();
                match reader.by_ref().take(MOST_ROW_BYTES).read_until(b'\n', &mut row) {
                    Ok(0) | Err(_) => break,
                    Ok(_) => {}
                }
                let row = str::from_utf8(&row).ok();
                row.and_then(|row| client_socket(row, &is_server_port)).into_iter().for_each(&mut found);
            }
        }
        is_read
    }

    /// Takes the sockets of a process out of `wanted`, which has them by inode.
    pub(crate) fn take_sockets(
        &self,
        pid: u32,
        wanted: &mut HashMap<u64, ClientSocket>,
        mut found: impl FnMut(ClientSocket, SocketOwner),
    ) {
        let mut owner = None;
        let Ok(descriptors) = fs::read_dir(self.path(pid, "fd")) else { return };
        for descriptor in descriptors.flatten() {
            if wanted.is_empty() {
                return;
            }
            let Ok(target) = fs::read_link(descriptor.path()) else { continue };
            let Some(inode) =
                target.to_str().and_then(socket_inode).filter(|inode| wanted.contains_key(inode))
            else {
                continue;
            };
            if owner.is_none() {
                owner = self.owner(pid);
            }
            let Some(owner) = &owner else { return };
            if let Some(socket) = wanted.remove(&inode) {
                found(socket, owner.clone());
            }
        }
    }

    fn owner(&self, pid: u32) -> Option<SocketOwner> {
        let comm = self.beginning(pid, "comm", MOST_COMM_BYTES)?;
        let cgroup = self.beginning(pid, "cgroup", MOST_CGROUP_BYTES).unwrap_or_default();
        Some(SocketOwner::new(&comm, &String::from_utf8_lossy(&cgroup)))
    }

    fn beginning(&self, pid: u32, file: &str, most: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.path(pid, file)).ok()?.take(most).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    fn path(&self, pid: u32, file: &str) -> PathBuf {
        self.root.join(pid.to_string()).join(file)
    }
}

/// `socket:[12345]`.
fn socket_inode(target: &str) -> Option<u64> {
    target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_have_an_inode_here() {
        assert_eq!(socket_inode("socket:[12345]"), Some(12_345));
        for other in
            ["pipe:[12345]", "socket:[]", "socket:[-1]", "socket:[99999999999999999999999]", "/socket:[1]"]
        {
            assert_eq!(socket_inode(other), None, "{other}");
        }
    }
}
