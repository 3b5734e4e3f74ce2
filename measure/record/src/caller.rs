//! The user who called `sudo`: what root creates in a directory of this user belongs to the user, who can
//! then change and remove it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;

use nix::unistd::{Gid, Uid, getegid, geteuid, setegid, seteuid};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RawMode, chownat, openat, statat};

use crate::error::{Context as _, Error};

/// The user and group that called `sudo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    uid: u32,
    gid: u32,
}

impl Caller {
    /// The caller, if this process is root by `sudo` and the caller owns the directory.
    pub fn owning(directory: &Path) -> Option<Self> {
        let id = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
        let caller = Self { uid: id("SUDO_UID")?, gid: id("SUDO_GID")? };
        let is_theirs = |about: fs::Metadata| about.uid() == caller.uid;
        (geteuid().is_root() && caller.uid != 0 && fs::metadata(directory).is_ok_and(is_theirs))
            .then_some(caller)
    }

    /// The same for the directory that this file or directory is in.
    pub fn owning_parent(of: &Path) -> Option<Self> {
        let parent = of.parent().filter(|parent| !parent.as_os_str().is_empty());
        Self::owning(parent.unwrap_or(Path::new(".")))
    }

    /// Gives the caller a file or an empty directory that this process has created.
    pub fn give(self, made: &File) -> io::Result<()> {
        fchown(made, Some(self.uid), Some(self.gid))
    }

    /// Gives the caller a directory that this process has created, and everything that this process has put
    /// there. Until then the caller could not change it, so all links in it are from this process.
    pub(crate) fn give_all(self, directory: &File) -> io::Result<()> {
        let owner = (Some(rustix::fs::Uid::from_raw(self.uid)), Some(rustix::fs::Gid::from_raw(self.gid)));
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let about = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if about.st_uid != geteuid().as_raw() {
                continue;
            }
            match FileType::from_raw_mode(about.st_mode as RawMode) {
                FileType::Directory => {
                    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    self.give_all(&openat(directory, name, flags, Mode::empty())?.into())?;
                }
                FileType::RegularFile if about.st_nlink == 1 => {
                    chownat(directory, name, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW)?;
                }
                _ => {}
            }
        }
        self.give(directory)
    }

    /// Does work with the caller's rights to files. Must be called before another thread starts.
    pub(crate) fn act<T>(self, work: impl FnOnce() -> T) -> io::Result<T> {
        let own = (geteuid(), getegid());
        setegid(Gid::from_raw(self.gid))?;
        let done = seteuid(Uid::from_raw(self.uid)).map(|()| work());
        seteuid(own.0)?;
        setegid(own.1)?;
        Ok(done?)
    }
}

/// Creates a directory and its missing parents. Each belongs to the caller if its parent does.
pub(crate) fn make_directories(path: &Path) -> io::Result<()> {
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && fs::symlink_metadata(path).is_err();
    let missing: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
    for directory in missing.into_iter().rev() {
        match fs::create_dir(directory) {
            Ok(()) => give_empty(directory),
            // Another process made it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    fs::create_dir_all(path)
}

/// Gives the caller a directory that has just been created. If the owner of its parent has replaced it, the
/// replacement is not touched, unless it is empty and belongs to root.
fn give_empty(path: &Path) {
    let Some(caller) = Caller::owning_parent(path) else { return };
    if let Ok(directory) = open_own_directory(path)
        && fs::read_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()))
            .is_ok_and(|mut all| all.next().is_none())
    {
        // Best effort: a directory that root owns is better than none.
        let _ = caller.give(&directory);
    }
}

/// Opens a directory that this process has just made. Root may measure for another user, who could put a link or a directory in its
/// place.
pub(crate) fn open_own_directory(path: &Path) -> Result<File, Error> {
    let directory = open_directory(path).context("open", path)?;
    if directory.metadata().context("look at", path)?.uid() != geteuid().as_raw() {
        return Err(Error::NotARun { path: path.to_owned(), reason: "another user has replaced it" });
    }
    Ok(directory)
}

/// Opens a directory, not a link to one.
fn open_directory(path: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const CALLER: Caller = Caller { uid: 12_345, gid: 12_346 };

    fn owner(path: &Path) -> (u32, u32) {
        let about = fs::symlink_metadata(path).unwrap();
        (about.uid(), about.gid())
    }

    #[test]
    fn what_root_made_is_the_callers_and_what_links_lead_to_is_not() {
        if !geteuid().is_root() {
            return ciphertoll_testing::missing("only root may give files away");
        }
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::create_dir_all(path("run/logs")).unwrap();
        for name in ["outside", "run/spec", "run/logs/server", "twice"] {
            fs::write(path(name), "text").unwrap();
        }
        symlink(path("outside"), path("run/link")).unwrap();
        fs::hard_link(path("twice"), path("run/twice")).unwrap();
        CALLER.give_all(&open_directory(&path("run")).unwrap()).unwrap();
        for name in ["run", "run/logs", "run/spec", "run/logs/server"] {
            assert_eq!(owner(&path(name)), (12_345, 12_346), "{name}");
        }
        for name in ["", "outside", "run/link", "twice"] {
            assert_eq!(owner(&path(name)).0, 0, "{name}");
        }
        assert!(open_directory(&path("run/link")).is_err());
    }
}
