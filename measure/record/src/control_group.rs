//! Control groups (cgroup v2) of a run, and their removal.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Context, Error};

/// A group can be removed when its last process is reaped.
const REMOVE_LIMIT: Duration = Duration::from_secs(2);
const RETRY_AFTER: Duration = Duration::from_millis(3);

/// Ends every process in the group at `path` and removes it. Succeeds if the group does not exist.
pub fn remove_control_group(path: &Path) -> Result<(), Error> {
    // Since Linux 5.14. On older kernels a server's processes end with the first one.
    let _ = fs::write(path.join("cgroup.kill"), "1");
    let deadline = Instant::now() + REMOVE_LIMIT;
    loop {
        match fs::remove_dir(path) {
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(_) if Instant::now() < deadline => thread::sleep(RETRY_AFTER),
            removed => return removed.context("remove", path),
        }
    }
}
