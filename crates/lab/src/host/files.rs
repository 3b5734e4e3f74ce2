//! Files that belong to the user a server runs as, and copies of whole directories.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, fchown, lchown};
use std::path::Path;

use nix::unistd::{getegid, geteuid};

use crate::error::{Context, Error};
use crate::user::{RunAs, ServerUser};

/// For their owner only.
pub(crate) const PRIVATE_FILE: u32 = 0o600;
/// For their owner only.
pub(crate) const PRIVATE_DIRECTORY: u32 = 0o700;
/// For all to read: certificates.
pub(crate) const PUBLIC_FILE: u32 = 0o644;

/// Makes a file with exactly this mode and owner; it has both before the first byte.
pub(crate) fn write(path: &Path, contents: &[u8], mode: u32, owner: RunAs) -> Result<(), Error> {
    let mut options = OpenOptions::new();
    let mut file =
        options.write(true).create_new(true).mode(PRIVATE_FILE).open(path).context("make", path)?;
    if let Some(ServerUser { uid, gid }) = owner.other() {
        fchown(&file, Some(uid), Some(gid)).context("hand over", path)?;
    }
    file.set_permissions(Permissions::from_mode(mode)).context("make", path)?;
    file.write_all(contents).context("write", path)
}

/// Makes a directory with exactly this mode and owner.
pub(crate) fn make_directory(path: &Path, mode: u32, owner: RunAs) -> Result<(), Error> {
    DirBuilder::new().mode(PRIVATE_DIRECTORY).create(path).context("make", path)?;
    fs::set_permissions(path, Permissions::from_mode(mode)).context("make", path)?;
    give(path, owner)
}

/// Copies a directory; the copy and all in it belong to `owner`. Links are not followed but refused:
/// a data directory of ours has none.
pub(crate) fn copy_directory(from: &Path, to: &Path, owner: RunAs) -> Result<(), Error> {
    make_directory(to, PRIVATE_DIRECTORY, RunAs::Ourselves)?;
    for entry in fs::read_dir(from).context("list", from)? {
        let entry = entry.context("list", from)?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().context("look at", &source)?.is_dir() {
            copy_directory(&source, &target, owner)?;
        } else {
            copy_file(&source, &target, owner)?;
        }
    }
    give(to, owner)
}

/// Gives a directory and all in it to ourselves.
pub(crate) fn take_directory(path: &Path) -> Result<(), Error> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    for entry in fs::read_dir(path).context("list", path)? {
        let entry = entry.context("list", path)?;
        if entry.file_type().context("look at", &entry.path())?.is_dir() {
            take_directory(&entry.path())?;
        } else {
            lchown(entry.path(), Some(uid), Some(gid)).context("take over", &entry.path())?;
        }
    }
    lchown(path, Some(uid), Some(gid)).context("take over", path)
}

/// Has `to` be a copy of `from` that is ours, whatever was there before.
pub(crate) fn replace_directory(from: &Path, to: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).context("remove", to);
        }
        _ => {}
    }
    copy_directory(from, to, RunAs::Ourselves)
}

/// Reads every file of a directory once, so that the system has it in memory. What is no file is passed by: another user
/// may write there.
pub(crate) fn read_directory(path: &Path) -> Result<(), Error> {
    let flags = nix::fcntl::OFlag::O_NOFOLLOW | nix::fcntl::OFlag::O_NONBLOCK;
    for entry in fs::read_dir(path).context("list", path)? {
        let entry = entry.context("list", path)?;
        let (path, kind) = (entry.path(), entry.file_type().context("look at", &entry.path())?);
        if kind.is_dir() {
            read_directory(&path)?;
        } else if kind.is_file() {
            let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(&path);
            let mut file = file.context("read", &path)?;
            std::io::copy(&mut file, &mut std::io::sink()).context("read", &path)?;
        }
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path, owner: RunAs) -> Result<(), Error> {
    let no_follow = nix::fcntl::OFlag::O_NOFOLLOW.bits();
    let mut source =
        OpenOptions::new().read(true).custom_flags(no_follow).open(from).context("read", from)?;
    let mut options = OpenOptions::new();
    let mut target = options.write(true).create_new(true).mode(PRIVATE_FILE).open(to).context("make", to)?;
    std::io::copy(&mut source, &mut target).context("write", to)?;
    give_file(&target, to, owner)
}

/// Gives a file or a directory, not what is in it, to `owner`.
pub(crate) fn give(path: &Path, owner: RunAs) -> Result<(), Error> {
    match owner.other() {
        Some(ServerUser { uid, gid }) => lchown(path, Some(uid), Some(gid)).context("hand over", path),
        None => Ok(()),
    }
}

fn give_file(file: &File, path: &Path, owner: RunAs) -> Result<(), Error> {
    match owner.other() {
        Some(ServerUser { uid, gid }) => fchown(file, Some(uid), Some(gid)).context("hand over", path),
        None => Ok(()),
    }
}
