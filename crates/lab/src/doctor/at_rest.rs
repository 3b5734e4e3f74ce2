//! What encryption of a server's files needs, beside the programs that do it.

use std::fs::{self, OpenOptions};

use ciphertoll_record::scratch_root;
use nix::unistd::geteuid;

use super::places::{file_system, nearest};
use super::{Finding, Purpose};
use crate::programs::{install, search};

const FUSE: &str = "/dev/fuse";

/// File systems in user space, and a disk below the scratch directory.
pub(super) fn all() -> Vec<Finding> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    vec![fuse(), disk(file_system(&mounts, &nearest(&scratch_root())).as_deref())]
}

fn fuse() -> Finding {
    let (purpose, name) = (Purpose::AtRest, "FUSE");
    if let Err(error) = OpenOptions::new().read(true).write(true).open(FUSE) {
        let seen = format!("{FUSE} cannot be opened: {error}");
        return Finding::no(purpose, name, seen, format!("modprobe fuse; of a container: --device {FUSE}"));
    }
    if !geteuid().is_root() && search("fusermount3").or_else(|| search("fusermount")).is_none() {
        let seen = format!("{FUSE} opens; an ordinary user needs fusermount3, too");
        return Finding::no(purpose, name, seen, install("fuse3"));
    }
    Finding::ok(purpose, name, format!("{FUSE} opens"))
}

fn disk(kind: Option<&str>) -> Finding {
    let (purpose, name) = (Purpose::AtRest, "disk");
    match kind {
        Some("tmpfs" | "ramfs") => {
            let cure = "mount a disk on /var/tmp: what is read from memory costs no disk";
            Finding::limited(purpose, name, "the scratch directory is in memory", cure)
        }
        Some(kind) => Finding::ok(purpose, name, format!("the scratch directory is on {kind}")),
        None => Finding::limited(purpose, name, "the kernel does not tell", "mount /proc"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn memory_is_no_disk() {
        assert_eq!(disk(Some("ext4")).verdict, Verdict::Ok);
        assert!(matches!(disk(Some("tmpfs")).verdict, Verdict::Limited { .. }));
        assert!(matches!(disk(None).verdict, Verdict::Limited { .. }));
    }
}
