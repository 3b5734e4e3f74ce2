//! Samples of directories like `/proc` that the tests make, and of `/proc` itself.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

const HEADER: &str = "  sl  local_address rem_address   st\n";

/// A directory like `/proc`.
struct FakeProc(TempDir);

impl FakeProc {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A process with these sockets, in this network.
    fn process(&self, pid: u32, name: &str, network: u32, inodes: &[u64]) {
        let place = self.0.path().join(pid.to_string());
        for directory in ["ns", "net", "fd"] {
            fs::create_dir_all(place.join(directory)).unwrap();
        }
        symlink(format!("net:[{network}]"), place.join("ns/net")).unwrap();
        fs::write(place.join("comm"), format!("{name}\n")).unwrap();
        fs::write(place.join("cgroup"), format!("0::/system.slice/{name}.service\n")).unwrap();
        symlink("/dev/null", place.join("fd/0")).unwrap();
        for inode in inodes {
            symlink(format!("socket:[{inode}]"), place.join(format!("fd/{inode}"))).unwrap();
        }
    }

    /// The table of a process's network: of each socket, the client's port and the inode.
    fn table(&self, pid: u32, sockets: &[(u16, u64)]) {
        self.table_to([10, 0, 0, 5], pid, sockets);
    }

    fn table_to(&self, server: [u8; 4], pid: u32, sockets: &[(u16, u64)]) {
        let server = format!("{:08X}", u32::from_ne_bytes(server));
        let row = |(port, inode): &(u16, u64)| {
            format!("   0: {server}:{port:04X} {server}:1538 01 0:0 0:0 0 0 0 {inode} 1\n")
        };
        let rows: String = sockets.iter().map(row).collect();
        fs::write(self.0.path().join(format!("{pid}/net/tcp")), format!("{HEADER}{rows}")).unwrap();
    }

    fn end(&self, pid: u32) {
        fs::remove_dir_all(self.0.path().join(pid.to_string())).unwrap();
    }

    fn sampler(&self) -> SocketSampler {
        SocketSampler::new(self.0.path(), [5432])
    }
}

fn names(sampler: &SocketSampler) -> Vec<(String, u64)> {
    sampler.clients().into_iter().map(|seen| (seen.owner.name, seen.connections)).collect()
}

#[test]
fn sockets_of_all_networks_are_named_by_their_processes() {
    let machine = FakeProc::new();
    machine.process(1, "init", 100, &[]);
    machine.process(20, "shop", 100, &[7, 8]);
    machine.process(30, "cron", 200, &[9]);
    machine.table(1, &[(40_000, 7), (40_001, 8)]);
    // The same network: read once, and so never here.
    machine.table(20, &[(50_000, 7)]);
    machine.table(30, &[(40_000, 9)]);
    let mut sampler = machine.sampler();
    sampler.sample();
    sampler.sample();
    assert_eq!(names(&sampler), [("shop".to_owned(), 2), ("cron".to_owned(), 1)]);
    assert_eq!(sampler.clients()[1].owner.unit.as_deref(), Some("cron.service"));
    assert_eq!(sampler.clients()[0].server.to_string(), "10.0.0.5:5432");
}

#[test]
fn connections_are_counted_over_time_and_known_ones_are_not_searched_again() {
    let machine = FakeProc::new();
    machine.process(20, "shop", 100, &[7]);
    machine.table(20, &[(40_000, 7)]);
    let mut sampler = machine.sampler();
    sampler.sample();
    // Another process takes the name of the first one's socket: nobody looks.
    machine.process(3, "other", 100, &[7]);
    machine.table(3, &[(40_000, 7)]);
    sampler.sample();
    assert_eq!(names(&sampler), [("shop".to_owned(), 1)]);
    machine.process(21, "shop", 100, &[8]);
    machine.table(3, &[(40_000, 7), (40_001, 8)]);
    sampler.sample();
    assert_eq!(names(&sampler), [("shop".to_owned(), 2)]);
    let empty = TempDir::new().unwrap();
    let mut sampler = SocketSampler::new(&empty.path().join("nothing"), [5432]);
    sampler.sample();
    assert_eq!(names(&sampler), []);
}

#[test]
fn processes_that_end_or_cannot_be_read_are_left_out() {
    let machine = FakeProc::new();
    // Its table is gone: the next process of the network is asked.
    machine.process(5, "gone", 100, &[]);
    machine.process(20, "shop", 100, &[7]);
    machine.table(20, &[(40_000, 7), (40_001, 8)]);
    let mut sampler = machine.sampler();
    sampler.sample();
    assert_eq!(names(&sampler), [("shop".to_owned(), 1)]);
    // It has the socket, but ended before it was asked for its name.
    machine.process(30, "late", 100, &[8]);
    fs::remove_file(machine.0.path().join("30/comm")).unwrap();
    sampler.sample();
    machine.end(20);
    machine.end(5);
    sampler.sample();
    assert_eq!(names(&sampler), [("shop".to_owned(), 1)]);
}

#[test]
fn other_ports_are_not_counted() {
    let machine = FakeProc::new();
    machine.process(20, "shop", 100, &[7]);
    machine.table(20, &[(40_000, 7)]);
    let mut sampler = SocketSampler::new(machine.0.path(), [3306]);
    sampler.sample();
    assert_eq!(names(&sampler), []);
}

#[test]
fn this_process_is_found_on_this_machine() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let server = listener.local_addr().unwrap();
    let mut sampler = SocketSampler::new(Path::new("/proc"), [server.port()]);
    sampler.sample();
    assert_eq!(names(&sampler), [], "there is no connection yet");
    let clients = [(); 3].map(|()| TcpStream::connect(server).unwrap());
    sampler.sample();
    let seen = sampler.clients();
    assert_eq!((seen.len(), seen[0].connections), (1, 3), "{seen:?}");
    assert_eq!((seen[0].client, seen[0].server), (clients[0].local_addr().unwrap().ip(), server));
    let comm = fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(seen[0].owner.name, comm.trim_end());
}

/// A loopback address means a different server in each network.
#[test]
fn connections_to_loopback_count_in_the_observers_own_network_only() {
    let processes = FakeProc::new();
    for (pid, name, network) in [(1, "near", 7), (2, "elsewhere", 8)] {
        processes.process(pid, name, network, &[u64::from(pid)]);
        processes.table_to([127, 0, 0, 1], pid, &[(40_000, u64::from(pid))]);
    }
    fs::create_dir_all(processes.0.path().join("self/ns")).unwrap();
    symlink("net:[7]", processes.0.path().join("self/ns/net")).unwrap();
    let mut sampler = processes.sampler();
    sampler.sample();
    assert_eq!(names(&sampler), [("near".to_owned(), 1)]);
}
