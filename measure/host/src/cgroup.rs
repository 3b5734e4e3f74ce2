//! A control group (cgroup v2) around a server of several processes. It counts the CPU time of all of them, including
//! ended ones, to the microsecond.

use std::fs;
use std::path::{Path, PathBuf};

use ciphertoll_record::Context;
use ciphertoll_record::{Effect, Scratch, remove_control_group};

use crate::error::Error;

const NS_PER_US: u64 = 1_000;

/// A child group of our own group. On drop, its processes are killed and it is removed.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Creates a group that contains the process `pid`; `None` if we may not. The ledger is written first.
    pub fn around(pid: i32, scratch: &Scratch) -> Result<Option<Self>, Error> {
        // The name of the scratch directory is unique on the machine.
        let run = scratch.path().file_name().unwrap_or_default().display();
        let Some(path) = Self::path_of(&format!("{run}-{pid}")) else { return Ok(None) };
        scratch.ledger().note(&Effect::ControlGroup { path: path.clone() })?;
        Ok(Self::make(path, pid))
    }

    /// Creates a short-lived group without a ledger entry, for a check.
    pub fn temporary(pid: i32) -> Option<Self> {
        Self::make(Self::path_of(&format!("{}-{pid}", std::process::id()))?, pid)
    }

    fn path_of(name: &str) -> Option<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        Some(own_group(&mounts, &own)?.1.join(format!("ciphertoll-{name}")))
    }

    fn make(path: PathBuf, pid: i32) -> Option<Self> {
        fs::create_dir(&path).ok()?;
        let cgroup = Self { path };
        fs::write(cgroup.path.join("cgroup.procs"), pid.to_string()).ok()?;
        read_cpu_ns(&cgroup.path).is_ok().then_some(cgroup)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // If the removal fails, the sweep of the next run removes the group.
        let _ = remove_control_group(&self.path);
    }
}

pub fn read_cpu_ns(path: &Path) -> Result<u64, Error> {
    let path = path.join("cpu.stat");
    let text = fs::read_to_string(&path).context("read", &path)?;
    let usage_us = text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse::<u64>().ok());
    let usage_us = usage_us.ok_or_else(|| std::io::Error::other("unexpected contents"));
    Ok(usage_us.context("understand", &path)? * NS_PER_US)
}

/// The lowest memory limit of our group and its ancestors, in cgroup v1 or v2; `None` if there is no limit.
pub fn memory_limit_bytes() -> Option<u64> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let limits = |directory: Option<(PathBuf, PathBuf)>, file: &str| {
        let (top, own) = directory?;
        let groups = own.ancestors().take_while(|group| group.starts_with(&top));
        // Without a limit, v2 reports "max" and v1 a number larger than any memory.
        groups.filter_map(|group| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok()).min()
    };
    let v2 = limits(own_group(&mounts, &own), "memory.max");
    let v1 = limits(memory_group(&mounts, &own), "memory.limit_in_bytes");
    v2.into_iter().chain(v1).min()
}

/// The mount point of cgroup v2, and the directory of our group. The arguments are `/proc/self/mountinfo` and
/// `/proc/self/cgroup`.
fn own_group(mounts: &str, own: &str) -> Option<(PathBuf, PathBuf)> {
    let group = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    locate(mounts, group, |file_system| file_system.starts_with("cgroup2 "))
}

/// The same for the v1 hierarchy that limits memory.
fn memory_group(mounts: &str, own: &str) -> Option<(PathBuf, PathBuf)> {
    let is_memory = |list: &str| list.split(',').any(|controller| controller == "memory");
    let group = own.lines().find_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        is_memory(controllers).then_some(group)
    })?;
    let limits_memory = |file_system: &str| {
        file_system.starts_with("cgroup ") && file_system.rsplit(' ').next().is_some_and(is_memory)
    };
    locate(mounts, group, limits_memory)
}

fn locate(mounts: &str, group: &str, is_meant: impl Fn(&str) -> bool) -> Option<(PathBuf, PathBuf)> {
    let (root, mount_point) = mounts.lines().find_map(|line| {
        let (fields, file_system) = line.split_once(" - ")?;
        let mut fields = fields.split(' ').skip(3);
        is_meant(file_system).then(|| Some((fields.next()?, fields.next()?))).flatten()
    })?;
    let below = Path::new(group).strip_prefix(root).ok()?;
    // A group above the mount point is not accessible.
    let inside = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    inside.then(|| (PathBuf::from(mount_point), Path::new(mount_point).join(below)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_group_is_found_below_its_mount() {
        let mounts = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";
        let found = |own| own_group(mounts, own).map(|(_, own)| own);
        assert_eq!(found("1:cpu:/\n0::/\n").unwrap(), Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(found("0::/user.slice/a\n").unwrap(), Path::new("/sys/fs/cgroup/unified/user.slice/a"));
        assert_eq!(found("0::/../outside\n"), None);
        assert_eq!(found("1:cpu:/\n"), None);
        assert_eq!(own_group("", "0::/\n"), None);
    }

    #[test]
    fn the_group_that_limits_memory_is_found_in_either_version() {
        let mounts = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
             33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let found = |own| memory_group(mounts, own).map(|(_, own)| own);
        let expected = Path::new("/sys/fs/cgroup/memory/a/b");
        assert_eq!(found("3:cpu,cpuacct:/c\n2:memory:/a/b\n").unwrap(), expected);
        assert_eq!(found("0::/a\n"), None);
        assert_eq!(memory_group("", "2:memory:/a\n"), None);
    }
}
