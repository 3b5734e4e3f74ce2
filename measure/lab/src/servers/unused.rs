//! Removal of templates that were not used for long, before another template is made.
//!
//! The modification time of a template's lock file is the time of its last use. The lock file stays when the template is
//! removed, because another process may be waiting for it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ciphertoll_host::cache::{lock_file, with_suffix};
use ciphertoll_record::Context;
use nix::fcntl::{Flock, FlockArg};

use crate::error::Error;

/// Suffixes of a template's lock, of its keys, and of a template that is being removed.
pub(crate) const LOCK: &str = ".lock";
pub(crate) const KEYS: &str = ".keys";
const REMOVED: &str = ".going";

/// A template takes minutes to load; users may return to an experiment within this time.
const KEPT_FOR: Duration = Duration::from_hours(30 * 24);

/// Records that a template is used now.
pub(crate) fn mark_used(template: &Path) -> Result<(), Error> {
    let lock = with_suffix(template, LOCK);
    Ok(lock_file(&lock)?.set_modified(SystemTime::now()).context("mark", &lock)?)
}

/// Removes the templates that were not used for long before `now`, and returns their number. Templates that are locked or
/// cannot be removed stay.
pub(crate) fn remove_unused(cache: &Path, now: SystemTime) -> usize {
    let Ok(entries) = fs::read_dir(cache) else { return 0 };
    let paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths
        .iter()
        .filter_map(|path| template_of(path))
        .filter(|template| remove(template, now).is_ok_and(|removed| removed))
        .count()
}

/// The template of a lock file.
fn template_of(lock: &Path) -> Option<PathBuf> {
    let name = lock.file_name()?.to_str()?.strip_suffix(LOCK)?;
    Some(lock.with_file_name(name))
}

/// Whether the template existed and was removed. It is renamed first, so that an incomplete template is never used.
fn remove(template: &Path, now: SystemTime) -> io::Result<bool> {
    let removed_path = with_suffix(template, REMOVED);
    let unused = |lock: &File| {
        Ok::<_, io::Error>(now.duration_since(lock.metadata()?.modified()?).unwrap_or_default() > KEPT_FOR)
    };
    if !template.is_dir() && !removed_path.is_dir() {
        return Ok(false);
    }
    let lock = File::options().read(true).write(true).open(with_suffix(template, LOCK))?;
    let Ok(lock) = Flock::lock(lock, FlockArg::LockExclusiveNonblock) else { return Ok(false) };
    if removed_path.is_dir() {
        fs::remove_dir_all(&removed_path)?;
    }
    if !template.is_dir() || !unused(&lock)? {
        return Ok(false);
    }
    fs::rename(template, &removed_path)?;
    let keys = with_suffix(template, KEYS);
    if keys.is_dir() {
        fs::remove_dir_all(keys)?;
    }
    fs::remove_dir_all(removed_path)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    /// A template with keys that was used `days` ago.
    fn template(cache: &Path, name: &str, days: u32) -> PathBuf {
        let path = cache.join(name);
        for directory in [path.clone(), with_suffix(&path, KEYS)] {
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("file"), "content").unwrap();
        }
        let lock = lock_file(&with_suffix(&path, LOCK)).unwrap();
        lock.set_modified(SystemTime::now() - DAY * days).unwrap();
        path
    }

    #[test]
    fn only_templates_that_were_not_used_for_long_are_removed() {
        let cache = tempfile::tempdir().unwrap();
        let (old, new) = (template(cache.path(), "old", 31), template(cache.path(), "new", 29));
        let again = template(cache.path(), "again", 300);
        mark_used(&again).unwrap();
        fs::create_dir(cache.path().join("servers")).unwrap();
        assert_eq!(remove_unused(cache.path(), SystemTime::now()), 1);
        assert!(!old.exists() && !with_suffix(&old, KEYS).exists() && !with_suffix(&old, REMOVED).exists());
        assert!(with_suffix(&old, LOCK).exists(), "another process may be waiting for it");
        assert!(new.join("file").exists() && with_suffix(&new, KEYS).exists() && again.exists());
        assert!(cache.path().join("servers").exists());
        assert_eq!(remove_unused(cache.path(), SystemTime::now()), 0);
        assert_eq!(remove_unused(cache.path(), SystemTime::now() + 2 * DAY), 1);
    }

    #[test]
    fn locked_templates_stay() {
        let cache = tempfile::tempdir().unwrap();
        let held = template(cache.path(), "held", 31);
        let lock =
            Flock::lock(lock_file(&with_suffix(&held, LOCK)).unwrap(), FlockArg::LockExclusive).unwrap();
        assert_eq!(remove_unused(cache.path(), SystemTime::now()), 0);
        assert!(held.exists());
        drop(lock);
        assert_eq!(remove_unused(cache.path(), SystemTime::now()), 1);
    }

    #[test]
    fn an_interrupted_removal_is_completed() {
        let cache = tempfile::tempdir().unwrap();
        let half = template(cache.path(), "half", 1);
        fs::rename(&half, with_suffix(&half, REMOVED)).unwrap();
        assert_eq!(remove_unused(cache.path(), SystemTime::now()), 0);
        assert!(!with_suffix(&half, REMOVED).exists());
    }

    #[test]
    fn a_missing_cache_has_no_templates() {
        assert_eq!(remove_unused(Path::new("/nowhere/at/all"), SystemTime::now()), 0);
    }
}
