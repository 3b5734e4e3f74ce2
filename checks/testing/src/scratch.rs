//! Where tests keep temporary files. Hundreds of tests create and remove a server's data directory of a thousand files
//! each, which takes a file system on disk a sixth of all processor time. So most tests see file systems in memory at
//! `/tmp` and `/var/tmp`, in a mount namespace of their own. Tests of what a file system does stay on disk: the calls
//! that page encryption must intercept, and the time of a sync. `make tde-proof` tests all of page encryption there.

use std::fs::{self, File};
use std::path::Path;
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::geteuid;

/// The directories for temporary files that tests and servers use.
const DIRECTORIES: [&str; 2] = ["/tmp", "/var/tmp"];
/// How the names of the tests begin that stay on disk.
const ON_DISK: [&str; 2] = ["tde-preload: proof::conformance", "lab: lab::counters::syncs"];
/// The least available memory with which half of it can hold the tests' files: they have used 3 GiB.
const LEAST_MEMORY_BYTES: u64 = 12 << 30;

/// The mount namespaces of tests.
pub(crate) struct Scratch {
    disk: File,
    /// With file systems in memory.
    memory: File,
}

impl Scratch {
    /// Prepares file systems in memory. Fails without the rights or the memory for it, and if `needed`, which tests must
    /// see, is in a directory for temporary files.
    pub(crate) fn in_memory(needed: &Path) -> Result<Self> {
        ensure!(geteuid().is_root(), "only root can mount a file system");
        if let Some(directory) = DIRECTORIES.iter().find(|directory| needed.starts_with(directory)) {
            bail!("the tests themselves are in {directory}");
        }
        let available = available_memory_bytes()?;
        ensure!(available >= LEAST_MEMORY_BYTES, "{} GiB of memory are available", available >> 30);
        let disk = mount_namespace()?;
        // Only the thread that creates the namespace is in it.
        let made = thread::spawn(move || -> Result<File> {
            unshare(CloneFlags::CLONE_NEWNS).context("create a mount namespace")?;
            mount_private(available / 2)?;
            mount_namespace()
        });
        let memory = made.join().ok().context("the thread that mounts has ended")??;
        Ok(Self { disk, memory })
    }

    /// Processes that this thread starts from now on see the file systems for the test of this name.
    pub(crate) fn enter(&self, test: &str) -> Result<()> {
        let is_on_disk = ON_DISK.iter().any(|name| test.starts_with(name));
        let namespace = if is_on_disk { &self.disk } else { &self.memory };
        // Threads share a working directory, and a namespace has its own.
        unshare(CloneFlags::CLONE_FS).context("separate the working directory of a thread")?;
        setns(namespace, CloneFlags::CLONE_NEWNS).context("enter a mount namespace")
    }
}

fn mount_namespace() -> Result<File> {
    File::open("/proc/thread-self/ns/mnt").context("open the mount namespace")
}

fn mount_private(size_bytes: u64) -> Result<()> {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).context("make mounts private")?;
    let options = format!("mode=1777,size={size_bytes}");
    for directory in DIRECTORIES {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("tmpfs"), directory, Some("tmpfs"), flags, Some(options.as_str()))
            .with_context(|| format!("mount a file system in memory at {directory}"))?;
    }
    Ok(())
}

fn available_memory_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context("read /proc/meminfo")?;
    let available = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.strip_suffix("kB"));
    let kib: u64 = available.context("/proc/meminfo has no MemAvailable")?.trim().parse()?;
    Ok(kib << 10)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use ciphertoll_testing::not_for_all;

    use super::*;

    /// The type of the file system that a process started by this thread sees at `/var/tmp`.
    fn file_system_type() -> String {
        let output = Command::new("stat").args(["-f", "-c", "%T", "/var/tmp"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn only_tests_of_files_stay_on_disk() {
        let scratch = match Scratch::in_memory(Path::new("/opt/tests")) {
            Ok(scratch) => scratch,
            Err(reason) => return not_for_all(&format!("{reason:#}")),
        };
        let before = file_system_type();
        let of_thread = |test: &'static str| {
            let scratch = &scratch;
            thread::scope(|scope| {
                let seen = scope.spawn(move || {
                    scratch.enter(test).unwrap();
                    file_system_type()
                });
                seen.join().unwrap()
            })
        };
        assert_eq!(of_thread("cli: cli::faults::a_test"), "tmpfs");
        assert_eq!(of_thread("tde-preload: proof::conformance::a_test"), before);
        assert_eq!(file_system_type(), before, "other threads see what they saw");
    }

    #[test]
    fn nothing_is_hidden_that_tests_need() {
        for needed in ["/tmp/clone/target", "/var/tmp/clone"] {
            assert!(Scratch::in_memory(Path::new(needed)).is_err());
        }
    }
}
