//! Files owned by the user that a server runs as, and copies of directories.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, fchown, lchown};
use std::path::Path;

use ciphertoll_record::Context;
use nix::unistd::{getegid, geteuid};

use crate::error::Error;
use crate::user::{RunAs, ServerUser};

pub const PRIVATE_FILE: u32 = 0o600;
pub const PRIVATE_DIRECTORY: u32 = 0o700;
/// Readable for all users, for example a certificate.
pub const PUBLIC_FILE: u32 = 0o644;

/// Creates a file with exactly this mode and owner, both set before the first byte is written.
pub fn write(path: &Path, contents: &[u8], mode: u32, owner: RunAs) -> Result<(), Error> {
    let mut options = OpenOptions::new();
    let mut file =
        options.write(true).create_new(true).mode(PRIVATE_FILE).open(path).context("make", path)?;
    if let Some(ServerUser { uid, gid }) = owner.other() {
        fchown(&file, Some(uid), Some(gid)).context("hand over", path)?;
    }
    file.set_permissions(Permissions::from_mode(mode)).context("make", path)?;
    Ok(file.write_all(contents).context("write", path)?)
}

pub fn make_directory(path: &Path, mode: u32, owner: RunAs) -> Result<(), Error> {
    DirBuilder::new().mode(PRIVATE_DIRECTORY).create(path).context("make", path)?;
    fs::set_permissions(path, Permissions::from_mode(mode)).context("make", path)?;
    set_owner(path, owner)
}

/// Copies a directory; the copy and its contents belong to `owner`. Symbolic links are refused, because our data
/// directories have none.
pub fn copy_directory(from: &Path, to: &Path, owner: RunAs) -> Result<(), Error> {
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
    set_owner(to, owner)
}

/// Makes us the owner of a directory and its contents.
pub fn take_directory(path: &Path) -> Result<(), Error> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    for entry in fs::read_dir(path).context("list", path)? {
        let entry = entry.context("list", path)?;
        if entry.file_type().context("look at", &entry.path())?.is_dir() {
            take_directory(&entry.path())?;
        } else {
            lchown(entry.path(), Some(uid), Some(gid)).context("take over", &entry.path())?;
        }
    }
    Ok(lchown(path, Some(uid), Some(gid)).context("take over", path)?)
}

/// Replaces `to` with a copy of `from` that we own.
pub fn replace_directory(from: &Path, to: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context("remove", to)?;
        }
        _ => {}
    }
    copy_directory(from, to, RunAs::Ourselves)
}

/// Reads every file of a directory once, so that the page cache has it. Skips everything that is not a regular file,
/// because another user may write to the directory.
pub fn read_directory(path: &Path) -> Result<(), Error> {
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
    set_file_owner(&target, to, owner)
}

/// Changes the owner of a file or a directory, not of its contents.
pub fn set_owner(path: &Path, owner: RunAs) -> Result<(), Error> {
    match owner.other() {
        Some(ServerUser { uid, gid }) => Ok(lchown(path, Some(uid), Some(gid)).context("hand over", path)?),
        None => Ok(()),
    }
}

fn set_file_owner(file: &File, path: &Path, owner: RunAs) -> Result<(), Error> {
    match owner.other() {
        Some(ServerUser { uid, gid }) => Ok(fchown(file, Some(uid), Some(gid)).context("hand over", path)?),
        None => Ok(()),
    }
}
