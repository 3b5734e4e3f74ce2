//! File systems that were mounted for a run, and how they go.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::mount::{MntFlags, umount2};
use nix::unistd::geteuid;

use crate::error::{Context, Error};

/// The program that unmounts for who is not root what they have mounted themselves.
const FUSERMOUNT: &str = "fusermount3";
/// Where the kernel tells what is mounted.
const MOUNTS: &str = "/proc/self/mountinfo";

/// Whether a file system is mounted at exactly this path. Where its process is dead, it is all the same.
pub fn is_mounted(path: &Path) -> Result<bool, Error> {
    /// Of a line: ids, device, root within the file system, and where it is mounted.
    const MOUNT_POINT: usize = 4;
    let mounts = Path::new(MOUNTS);
    let text = fs::read(mounts).context("read", mounts)?;
    let wanted = escaped(path.as_os_str().as_bytes());
    let mut points = text
        .split(|&byte| byte == b'\n')
        .filter_map(|line| line.split(|&byte| byte == b' ').nth(MOUNT_POINT));
    Ok(points.any(|point| point == wanted))
}

/// Takes the file system at `path` away, whoever waits for it. What is not mounted is fine.
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

/// As the kernel writes a path among words: blanks, tabs, line ends and backslashes as octal numbers.
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
