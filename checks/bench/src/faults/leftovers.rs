//! What a run has left: processes, mounts, networks, scratch directories, control groups and sockets.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::process;
use super::session::Finished;

/// How long the kernel may take to end killed processes, on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Everything that is left of a run whose scratch files are in `scratch`; empty if nothing is.
pub(super) fn leftovers(run: &Finished, scratch: &Path) -> Vec<String> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let left = look(run, scratch);
        if left.is_empty() || Instant::now() >= deadline {
            return left;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn look(run: &Finished, scratch: &Path) -> Vec<String> {
    let scratch_text = scratch.display().to_string();
    let mut left = Vec::new();
    for seen in run.processes.iter().filter(|seen| seen.identity.is_alive()) {
        left.push(format!("process {} ({})", seen.identity.pid, seen.what));
    }
    let own = nix::unistd::getpid().as_raw();
    for pid in process::all().into_iter().filter(|pid| *pid != own) {
        let command = process::command_line(pid);
        if command.contains(&scratch_text) && !run.processes.iter().any(|seen| seen.identity.pid == pid) {
            left.push(format!("process {pid} ({command})"));
        }
        if process::network(pid).is_some_and(|network| run.networks.contains(&network)) {
            left.push(format!("a network, with process {pid}"));
        }
    }
    left.extend(directories(scratch).into_iter().map(|path| format!("directory {}", path.display())));
    for (file, what) in [("/proc/mounts", "mount"), ("/proc/net/unix", "socket")] {
        let table = fs::read_to_string(file).unwrap_or_default();
        let below = format!("{scratch_text}/ciphertoll-");
        left.extend(table.lines().filter(|line| line.contains(&below)).map(|line| format!("{what}: {line}")));
    }
    let mut groups = Vec::new();
    find_control_groups(Path::new("/sys/fs/cgroup"), &mut groups);
    // Their names contain that of the scratch directory.
    let of_run = |group: &&PathBuf| {
        run.scratch_names.iter().any(|name| group.to_string_lossy().contains(name.as_str()))
    };
    left.extend(groups.iter().filter(of_run).map(|group| format!("control group {}", group.display())));
    left.sort();
    left.dedup();
    left
}

/// The scratch directories of runs.
fn directories(scratch: &Path) -> Vec<PathBuf> {
    let root = ciphertoll_record::scratch_root_below(scratch);
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

fn find_control_groups(above: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(above).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name().to_string_lossy().starts_with("ciphertoll-") {
            found.push(entry.path());
        } else {
            find_control_groups(&entry.path(), found);
        }
    }
}
