//! Templates that nobody has used for long: they make room when another is made.
//!
//! When a template was used last is the time of its lock file, which stays when the template goes: another process may be
//! waiting for it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::fcntl::{Flock, FlockArg};

use crate::error::{Context, Error};
use crate::files::PRIVATE_FILE;
use crate::template::beside;

/// What a template is called, and its lock, its keys, and what is left of it while it goes.
pub(crate) const LOCK: &str = ".lock";
pub(crate) const KEYS: &str = ".keys";
const GOING: &str = ".going";

/// Loaded in minutes at worst, it is kept for as long as somebody may come back to an experiment.
const KEPT_FOR: Duration = Duration::from_hours(30 * 24);

/// Opens the file by which a template is locked, made if it is not there.
///
/// # Errors
///
/// It cannot be opened.
pub(crate) fn lock_file(path: &Path) -> Result<File, Error> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        // Whoever can open it could hold it for ever.
        .mode(PRIVATE_FILE)
        .open(path)
        .context("open", path)
}

/// Notes that a template is used now.
///
/// # Errors
///
/// The note cannot be written.
pub(crate) fn mark_used(template: &Path) -> Result<(), Error> {
    let lock = beside(template, LOCK);
    lock_file(&lock)?.set_modified(SystemTime::now()).context("mark", &lock)
}

/// Removes the templates of a cache that were not used for long before `now`; how many. What somebody holds or what cannot be
/// removed stays for the next time.
pub(crate) fn remove_unused(cache: &Path, now: SystemTime) -> usize {
    let Ok(entries) = fs::read_dir(cache) else { return 0 };
    let paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths
        .iter()
        .filter_map(|path| template_of(path))
        .filter(|template| remove(template, now).is_ok_and(|gone| gone))
        .count()
}

/// The template whose lock this is.
fn template_of(lock: &Path) -> Option<PathBuf> {
    let name = lock.file_name()?.to_str()?.strip_suffix(LOCK)?;
    Some(lock.with_file_name(name))
}

/// Whether it was there, and is gone. It loses its name first, so that no half of it is ever taken for a whole.
fn remove(template: &Path, now: SystemTime) -> io::Result<bool> {
    let going = beside(template, GOING);
    let unused = |lock: &File| {
        Ok::<_, io::Error>(now.duration_since(lock.metadata()?.modified()?).unwrap_or_default() > KEPT_FOR)
    };
    if !template.is_dir() && !going.is_dir() {
        return Ok(false);
    }
    let lock = File::options().read(true).write(true).open(beside(template, LOCK))?;
    let Ok(lock) = Flock::lock(lock, FlockArg::LockExclusiveNonblock) else { return Ok(false) };
    if going.is_dir() {
        fs::remove_dir_all(&going)?;
    }
    if !template.is_dir() || !unused(&lock)? {
        return Ok(false);
    }
    fs::rename(template, &going)?;
    let keys = beside(template, KEYS);
    if keys.is_dir() {
        fs::remove_dir_all(keys)?;
    }
    fs::remove_dir_all(going)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    /// A template with keys that was used `days` ago.
    fn template(cache: &Path, name: &str, days: u32) -> PathBuf {
        let path = cache.join(name);
        for directory in [path.clone(), beside(&path, KEYS)] {
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("file"), "content").unwrap();
        }
        let lock = lock_file(&beside(&path, LOCK)).unwrap();
        lock.set_modified(SystemTime::now() - DAY * days).unwrap();
        path
    }

    #[test]
    fn what_was_used_lately_stays_and_what_was_not_goes() {
        let cache = tempfile::tempdir().unwrap();
        let (old, new) = (template(cache.path(), "old", 31), template(cache.path(), "new", 29));
        let again = template(cache.path(), "again", 300);
        mark_used(&again).unwrap();
        fs::create_dir(cache.path().join("servers")).unwrap();
        assert_eq!(remove_unused(cache.path(), SystemTime::now()), 1);
        assert!(!old.exists() && !beside(&old, KEYS).exists() && !beside(&old, GOING).exists());
        assert!(beside(&old, LOCK).exists(), "somebody may be waiting for it");
        assert!(new.join("file").exists() && beside(&new, KEYS).exists() && again.exists());
        assert!(cache.path().join("servers").exists());
        assert_eq!(remove_unused(cache.path(), SystemTime::now()), 0);
        assert_eq!(remove_unused(cache.path(), SystemTime::now() + 2 * DAY), 1);
    }

    #[test]
    fn what_somebody_holds_stays() {
        let cache = tempfile::tempdir().unwrap();
        let held = template(cache.path(), "held", 31);
        let lock = Flock::lock(lock_file(&beside(&held, LOCK)).unwrap(), FlockArg::LockExclusive).unwrap();
        assert_eq!(remove_unused(cache.path(), SystemTime::now()), 0);
        assert!(held.exists());
        drop(lock);
        assert_eq!(remove_unused(cache.path(), SystemTime::now()), 1);
    }

    #[test]
    fn what_was_interrupted_is_gone_on_with() {
        let cache = tempfile::tempdir().unwrap();
        let half = template(cache.path(), "half", 1);
        fs::rename(&half, beside(&half, GOING)).unwrap();
        assert_eq!(remove_unused(cache.path(), SystemTime::now()), 0);
        assert!(!beside(&half, GOING).exists());
    }

    #[test]
    fn a_cache_that_is_not_there_has_none() {
        assert_eq!(remove_unused(Path::new("/nowhere/at/all"), SystemTime::now()), 0);
    }
}
