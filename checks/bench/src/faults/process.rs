//! What the kernel tells about a process, and its resource limits.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The lowest descriptor that is free: with this as its limit, a process cannot open another one.
pub(super) fn lowest_free_descriptor(pid: i32) -> Result<u64> {
    let open = descriptors(pid)?;
    let count = open.len() as u64;
    Ok((0..count).find(|number| !open.contains(number)).unwrap_or(count))
}

fn descriptors(pid: i32) -> Result<BTreeSet<u64>> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).context("cannot list its descriptors")?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// The size of its address space.
pub(super) fn virtual_bytes(pid: i32) -> Result<u64> {
    const BYTES_PER_KB: u64 = 1024;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("cannot read its status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).context("no VmSize")?;
    let kb: u64 = line.trim().trim_end_matches(" kB").parse().context("VmSize is not a number")?;
    Ok(kb * BYTES_PER_KB)
}

/// A limited resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limited {
    Descriptors,
    AddressSpace,
}

impl Limited {
    /// The line in `/proc/PID/limits`.
    fn line(self) -> &'static str {
        match self {
            Self::Descriptors => "Max open files",
            Self::AddressSpace => "Max address space",
        }
    }

    /// The option of `prlimit`.
    fn option(self) -> &'static str {
        match self {
            Self::Descriptors => "--nofile",
            Self::AddressSpace => "--as",
        }
    }
}

/// The soft limit as the kernel prints it: a number, or `unlimited`.
pub(super) fn soft_limit(pid: i32, what: Limited) -> Result<String> {
    let table = fs::read_to_string(format!("/proc/{pid}/limits")).context("cannot read its limits")?;
    let line =
        table.lines().find_map(|line| line.strip_prefix(what.line())).context("it has no such limit")?;
    Ok(line.split_whitespace().next().context("it has no soft limit")?.to_owned())
}

/// Sets the soft limit; the hard limit stays. As the process's own user, who may do so without privileges.
pub(super) fn limit(pid: i32, what: Limited, soft: &str) -> Result<()> {
    let owner = fs::metadata(format!("/proc/{pid}")).context("cannot find its user")?;
    let mut command = Command::new("prlimit");
    command.args(["--pid", &pid.to_string(), &format!("{}={soft}:", what.option())]);
    if nix::unistd::geteuid().is_root() {
        command.uid(owner.uid()).gid(owner.gid());
    }
    let output = command.output().context("cannot run prlimit")?;
    if !output.status.success() {
        bail!("cannot limit it: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// The TCP ports on which it listens.
pub(super) fn listening_ports(pid: i32) -> Vec<u16> {
    let sockets: BTreeSet<String> = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter_map(|target| {
            let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    table.lines().filter_map(|line| listening_port(line, &sockets)).collect()
}

/// The port of a line of `/proc/net/tcp` that is a listening socket with one of these inodes.
fn listening_port(line: &str, inodes: &BTreeSet<String>) -> Option<u16> {
    const ADDRESS: usize = 1;
    const STATE: usize = 3;
    const INODE: usize = 9;
    const LISTENING: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (address, state, inode) = (fields.get(ADDRESS)?, fields.get(STATE)?, fields.get(INODE)?);
    if *state != LISTENING || !inodes.contains(*inode) {
        return None;
    }
    u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok()
}

/// The process's network namespace.
pub(super) fn network(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}

/// The ids of all processes that can be seen.
pub(super) fn all() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

pub(super) fn command_line(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn ports_and_descriptors_of_this_process_are_found() {
        let own = nix::unistd::getpid().as_raw();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        assert!(listening_ports(own).contains(&listener.local_addr().unwrap().port()));
        assert!(!descriptors(own).unwrap().contains(&lowest_free_descriptor(own).unwrap()));
        assert!(virtual_bytes(own).unwrap() > 1 << 20);
        assert!(all().contains(&own) && !command_line(own).is_empty());
        let before = soft_limit(own, Limited::Descriptors).unwrap();
        assert!(before == "unlimited" || before.parse::<u64>().is_ok(), "{before}");
    }
}
