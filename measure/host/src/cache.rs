//! The cache directory, which keeps templates and fetched servers between runs.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ciphertoll_record::Context;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;

use crate::error::Error;
use crate::files::{PRIVATE_DIRECTORY, PRIVATE_FILE};

/// `/var/cache/ciphertoll` for root, else `$XDG_CACHE_HOME/ciphertoll` or `~/.cache/ciphertoll`.
pub fn cache_directory() -> PathBuf {
    const NAME: &str = "ciphertoll";
    if geteuid().is_root() {
        return Path::new("/var/cache").join(NAME);
    }
    let directory =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    let home = || directory("HOME").map(|home| home.join(".cache"));
    // Without a home directory, the cache lasts as long as the system's temporary files.
    match directory("XDG_CACHE_HOME").or_else(home) {
        Some(base) => base.join(NAME),
        None => std::env::temp_dir().join(format!("{NAME}-{}", geteuid())),
    }
}

/// Creates the cache. Only we may write to it, because servers run on the data in it.
pub fn make_cache(cache: &Path) -> Result<(), Error> {
    let cannot_make = |source| Error::Cache { path: cache.to_owned(), source };
    if let Some(parent) = cache.parent() {
        fs::create_dir_all(parent).map_err(cannot_make)?;
    }
    match DirBuilder::new().mode(PRIVATE_DIRECTORY).create(cache) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(cannot_make(error)),
        _ => Ok(ciphertoll_record::check_ours(cache)?),
    }
}

/// `path` with `suffix` appended to its name.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Opens a lock file, and creates it if it does not exist.
pub fn lock_file(path: &Path) -> Result<File, Error> {
    Ok(File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        // A user who can open the file can hold the lock for ever.
        .mode(PRIVATE_FILE)
        .open(path)
        .context("open", path)?)
}

/// Locks `path` exclusively; waits for another process that holds the lock, and reports that to `progress`.
pub fn lock(path: &Path, progress: &mut dyn FnMut(&str)) -> Result<Flock<File>, Error> {
    let file = match Flock::lock(lock_file(path)?, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => return Ok(lock),
        Err((file, _)) => file,
    };
    progress("waiting for another ciphertoll process that makes the same data");
    Ok(Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, errno)| io::Error::from(errno))
        .context("lock", path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_a_cache_that_cannot_be_made_names_the_variables_to_set() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        let error = make_cache(&file.join(".cache/ciphertoll")).unwrap_err().to_string();
        assert!(
            error.contains("file/.cache/ciphertoll") && error.contains("set XDG_CACHE_HOME or HOME"),
            "{error}"
        );
    }
}
