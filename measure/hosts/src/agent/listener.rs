//! The CPU time of the server that listens on a port of this host.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ciphertoll_host::accounting::{CpuMeter, MachineTimes};
use ciphertoll_load::monotonic_now_ns;
use ciphertoll_record::ProcessIdentity;

use crate::protocol::FromHost;

/// The state of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";
/// It listens on ports of containers and passes bytes on: its CPU time is not the server's.
const PORT_FORWARDER: &str = "docker-proxy";
const CGROUPS: &str = "/sys/fs/cgroup";

/// The servers that were looked for, by port.
#[derive(Default)]
pub(super) struct ServerProcesses(BTreeMap<u16, Meter>);

#[derive(Clone)]
enum Meter {
    Server {
        identity: ProcessIdentity,
        meter: CpuMeter,
        source: String,
    },
    /// The CPU time of the whole machine that was not idle.
    Machine {
        source: String,
    },
}

impl ServerProcesses {
    /// Reads the CPU time so far. The server is looked for again if its process has ended.
    pub(super) fn read(&mut self, number: u64, port: u16) -> FromHost {
        let known = self.0.get(&port).filter(|meter| meter.is_current()).cloned();
        let meter = known.unwrap_or_else(|| {
            let found = find(port);
            self.0.insert(port, found.clone());
            found
        });
        let cpu_ns = match &meter {
            Meter::Server { meter, .. } => meter.read_ns().ok(),
            Meter::Machine { .. } => MachineTimes::read().ok().map(|times| times.busy_ns),
        };
        let (source, instance) = match meter {
            Meter::Server { identity, source, .. } => {
                (source, identity.start_time_ticks.rotate_left(32) ^ u64::from(identity.pid.unsigned_abs()))
            }
            Meter::Machine { source } => (source, 0),
        };
        FromHost::ServerCpu { number, at_ns: monotonic_now_ns(), cpu_ns, source, instance }
    }
}

impl Meter {
    fn is_current(&self) -> bool {
        match self {
            Self::Server { identity, .. } => identity.is_alive(),
            // A server that starts later may be found then.
            Self::Machine { .. } => false,
        }
    }

    fn machine(why: &str) -> Self {
        Self::Machine { source: format!("/proc/stat of the whole machine ({why})") }
    }
}

/// The process that listens on `port`, with its children, or the whole machine if it cannot be told.
fn find(port: u16) -> Meter {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let inodes: Vec<u64> = tables
        .iter()
        .flat_map(|path| listening_inodes(&fs::read_to_string(path).unwrap_or_default(), port))
        .collect();
    if inodes.is_empty() {
        return Meter::machine(&format!("nothing listens on port {port} there"));
    }
    let holders = holders_of(&inodes);
    // Children inherit the socket.
    let first = holders.iter().find(|&&pid| parent_of(pid).is_none_or(|parent| !holders.contains(&parent)));
    let Some((pid, identity)) = first.and_then(|&pid| Some((pid, ProcessIdentity::of(pid).ok()?))) else {
        return Meter::machine(&format!(
            "which process listens on port {port} is visible only to root and the server's user"
        ));
    };
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
    if name == PORT_FORWARDER {
        return Meter::machine(&format!("port {port} is that of a container"));
    }
    let meter = match own_group(pid) {
        Some(path) => CpuMeter::Cgroup { path },
        None if children_of(pid).is_empty() => CpuMeter::Process { pid },
        None => CpuMeter::Tree { pid },
    };
    let source = format!("{} of {name}", meter.label());
    Meter::Server { identity, meter, source }
}

/// The sockets that listen on `port`, from `/proc/net/tcp`.
fn listening_inodes(table: &str, port: u16) -> Vec<u64> {
    let suffix = format!(":{port:04X}");
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_meant = fields.get(1)?.ends_with(&suffix) && *fields.get(3)? == LISTENING;
        is_meant.then(|| fields.get(9)?.parse().ok()).flatten()
    };
    table.lines().skip(1).filter_map(inode).collect()
}

fn holders_of(inodes: &[u64]) -> Vec<i32> {
    let names: Vec<PathBuf> = inodes.iter().map(|inode| format!("socket:[{inode}]").into()).collect();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut targets = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
        targets.any(|target| names.contains(&target))
    })
    .collect()
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn children_of(pid: i32) -> Vec<i32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_ascii_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// The control group (v2) of the process, if it contains only this process and its descendants.
fn own_group(pid: i32) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    if group.is_empty() {
        return None;
    }
    let path = Path::new(CGROUPS).join(group);
    let members = fs::read_to_string(path.join("cgroup.procs")).ok()?;
    let is_ours = |member: i32| {
        std::iter::successors(Some(member), |&pid| parent_of(pid)).take(64).any(|above| above == pid)
    };
    let mut members = members.split_ascii_whitespace().map(str::parse::<i32>).peekable();
    members.peek()?;
    let only_ours = members.all(|member| member.is_ok_and(is_ours));
    (only_ours && CpuMeter::Cgroup { path: path.clone() }.read_ns().is_ok()).then_some(path)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn only_listening_sockets_of_the_port_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                     0: 0100007F:1538 00000000:0000 0A 00000000:00000000 00:00000000 00000000 104 0 8001 1 0\n\
                     1: 0100007F:1538 0100007F:D2F0 01 00000000:00000000 00:00000000 00000000 104 0 8002 1 0\n\
                     2: 0100007F:0CEA 00000000:0000 0A 00000000:00000000 00:00000000 00000000 104 0 8003 1 0\n";
        assert_eq!(listening_inodes(table, 0x1538), [8001]);
        assert_eq!(listening_inodes(table, 3306), [8003]);
    }

    #[test]
    fn our_own_listener_is_found_and_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut servers = ServerProcesses::default();
        let FromHost::ServerCpu { number: 7, source, instance, cpu_ns, .. } = servers.read(7, port) else {
            panic!("another answer");
        };
        assert!(!source.contains("whole machine"), "{source}");
        assert!(instance != 0 && cpu_ns.unwrap() > 0);
    }

    #[test]
    fn without_a_listener_the_whole_machine_is_read_and_named() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let FromHost::ServerCpu { source, instance: 0, cpu_ns, .. } =
            ServerProcesses::default().read(1, port)
        else {
            panic!("another answer");
        };
        assert!(source.starts_with("/proc/stat of the whole machine (nothing listens"), "{source}");
        assert!(cpu_ns.unwrap() > 0);
    }
}
