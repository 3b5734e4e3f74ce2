//! Storage of private servers: the disk of the scratch directory, or tmpfs, which separates the cost of the cipher from
//! the cost of the disk.

use std::fs;
use std::path::Path;

use ciphertoll_record::Context;
use ciphertoll_record::{Effect, Ledger, is_mounted};
use nix::mount::{MsFlags, mount};
use nix::sys::statvfs::statvfs;
use nix::unistd::geteuid;

use crate::environment::{MEMINFO, meminfo_bytes};
use crate::error::Error;

/// Space for logs and temporary tables, in addition to the copy of a template.
const HEADROOM_BYTES: u64 = 2 << 30;

/// The space for a server whose data are copied from `template`: twice the size of the template, plus headroom.
pub fn space_for(template: &Path) -> Result<u64, Error> {
    Ok(size_of(template)?.saturating_mul(2).saturating_add(HEADROOM_BYTES))
}

fn size_of(directory: &Path) -> Result<u64, Error> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory).context("list", directory)? {
        let entry = entry.context("list", directory)?;
        let metadata = entry.metadata().context("inspect", &entry.path())?;
        bytes += if metadata.is_dir() { size_of(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}

/// Fails if less than `bytes` are free in the file system of `directory`.
pub fn check_free_space(directory: &Path, bytes: u64) -> Result<(), Error> {
    let free = free_bytes(directory)?;
    if free >= bytes {
        return Ok(());
    }
    Err(Error::StorageUnavailable(format!(
        "the server's files need {} MB, but {} has {} MB free",
        bytes >> 20,
        directory.display(),
        free >> 20
    )))
}

/// For unprivileged users, as servers are.
pub fn free_bytes(directory: &Path) -> Result<u64, Error> {
    let found = statvfs(directory).map_err(std::io::Error::from).context("inspect", directory)?;
    Ok(found.blocks_available().saturating_mul(found.fragment_size()))
}

/// Mounts a tmpfs of at most `bytes` at `path`, a directory in `scratch`; the ledger is written first. Fails if the machine
/// has less available memory, not counting what other tmpfs mounts in `scratch` may still use.
pub fn mount_tmpfs(ledger: &Ledger, scratch: &Path, path: &Path, mode: u32, bytes: u64) -> Result<(), Error> {
    if !geteuid().is_root() {
        let reason =
            "storage tmpfs: only root may mount file systems; run ciphertoll as root, or omit --storage";
        return Err(Error::StorageUnavailable(reason.to_owned()));
    }
    let (available, reserved) = (available_memory()?, reserved_bytes(scratch)?);
    if available < reserved.saturating_add(bytes) {
        return Err(Error::StorageUnavailable(format!(
            "storage tmpfs: the server may need {} MB, but {} MB are available, of which other servers reserve {} MB; \
             choose a smaller --scale or fewer servers",
            bytes >> 20,
            available >> 20,
            reserved >> 20
        )));
    }
    ledger.note(&Effect::Mount { path: path.to_owned() })?;
    let options = format!("size={bytes},mode={mode:o}");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    Ok(mount(Some("tmpfs"), path, Some("tmpfs"), flags, Some(options.as_str()))
        .map_err(std::io::Error::from)
        .context("mount a tmpfs at", path)?)
}

/// The free space of the tmpfs mounts in `scratch`.
fn reserved_bytes(scratch: &Path) -> Result<u64, Error> {
    let mut bytes: u64 = 0;
    for entry in fs::read_dir(scratch).context("list", scratch)? {
        let path = entry.context("list", scratch)?.path();
        if is_mounted(&path)? {
            bytes = bytes.saturating_add(free_bytes(&path)?);
        }
    }
    Ok(bytes)
}

fn available_memory() -> Result<u64, Error> {
    let path = Path::new(MEMINFO);
    let text = fs::read_to_string(path).context("read", path)?;
    // If the kernel does not report it, the mount itself is the check.
    Ok(meminfo_bytes(&text, "MemAvailable").unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_gets_space_for_twice_its_data_and_its_logs() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("base")).unwrap();
        fs::write(place.path().join("base/1"), [0; 1000]).unwrap();
        fs::write(place.path().join("2"), [0; 500]).unwrap();
        assert_eq!(space_for(place.path()).unwrap(), 3000 + HEADROOM_BYTES);
        check_free_space(place.path(), 1).unwrap();
        let error = check_free_space(place.path(), u64::MAX).unwrap_err().to_string();
        assert!(error.contains("MB free"), "{error}");
    }
}
