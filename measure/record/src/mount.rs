//! Mounted file systems of a run, and their removal.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::mount::{MntFlags, umount2};
use nix::unistd::geteuid;

use crate::error::{Context, Error};

/// The program with which unprivileged users unmount their FUSE file systems.
const FUSERMOUNT: &str = "fusermount3";
/// The kernel's list of mounts.
const MOUNTS: &str = "/proc/self/mountinfo";

/// Whether a file system is mounted at exactly this path, even if its process is dead.
pub fn is_mounted(path: &Path) -> Result<bool, Error> {
    /// The field of a line: after ids, device and root within the file system.
    const MOUNT_POINT: usize = 4;
    let mounts = Path::new(MOUNTS);
    let text = fs::read(mounts).context("read", mounts)?;
    let wanted = escaped(path.as_os_str().as_bytes());
    let mut points = text
        .split(|&byte| byte == b'\n')
        .filter_map(|line| line.split(|&byte| byte == b' ').nth(MOUNT_POINT));
    Ok(points.any(|point| point == wanted))
}

/// Unmounts the file system at `path`, even if it is in use. Succeeds if it is not mounted.
pub fn unmount(path: &Path) -> Result<(), Error> {
    while is_mounted(path)? {
        if geteuid().is_root() {
            let flags = MntFlags::MNT_FORCE | MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW;
            umount2(path, flags).map_err(io::Error::from).context("unmount", path)?;
            continue;
        }
        let mut command = Command::new(FUSERMOUNT);
        command.args(["-u", "-z"]).arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if !command.status().context("unmount", path)?.success() {
            return Err(io::Error::other(format!("{FUSERMOUNT} refused"))).context("unmount", path);
        }
    }
    Ok(())
}

/// Escapes a path as the kernel does: spaces, tabs, line ends and backslashes as octal numbers.
fn escaped(path: &[u8]) -> Vec<u8> {
    path.iter().fold(Vec::with_capacity(path.len()), |mut text, &byte| {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => text.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
            _ => text.push(byte),
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_is_told_from_what_is_not() {
        assert!(is_mounted(Path::new("/proc")).unwrap());
        let place = tempfile::tempdir().unwrap();
        assert!(!is_mounted(place.path()).unwrap());
        unmount(place.path()).unwrap();
    }

    #[test]
    fn paths_are_compared_as_the_kernel_writes_them() {
        assert_eq!(escaped(b"/a b\\c\td"), b"/a\\040b\\134c\\011d");
    }
}
