//! What private servers' files lie on: the disk of the scratch directory, or memory, by which the disk can be told from the
//! cipher.

use std::fs;
use std::path::Path;

use ciphertoll_record::{Effect, Ledger, is_mounted, unmount};
use nix::mount::{MsFlags, mount};
use nix::sys::statvfs::statvfs;
use nix::unistd::geteuid;

use crate::error::{Context, Error};

/// Logs and temporary tables, beside what is copied from a template.
const HEADROOM_BYTES: u64 = 2 << 30;
const MEMORY: &str = "/proc/meminfo";

/// How much room a server gets whose data are copied from `template`: as much again, and room for its logs.
pub(crate) fn room_for(template: &Path) -> Result<u64, Error> {
    Ok(size_of(template)?.saturating_mul(2).saturating_add(HEADROOM_BYTES))
}

fn size_of(directory: &Path) -> Result<u64, Error> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory).context("list", directory)? {
        let entry = entry.context("list", directory)?;
        let metadata = entry.metadata().context("look at", &entry.path())?;
        bytes += if metadata.is_dir() { size_of(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}

/// Fails where the disk below `directory` has no room for `bytes`.
pub(crate) fn check_room(directory: &Path, bytes: u64) -> Result<(), Error> {
    let free = free_bytes(directory)?;
    if free >= bytes {
        return Ok(());
    }
    Err(Error::AtRestUnavailable(format!(
        "the server's files need {} MB, and {} has {} MB free",
        bytes >> 20,
        directory.display(),
        free >> 20
    )))
}

fn free_bytes(directory: &Path) -> Result<u64, Error> {
    let found = statvfs(directory).map_err(std::io::Error::from).context("look at", directory)?;
    Ok(found.blocks_available().saturating_mul(found.fragment_size()))
}

/// Mounts memory of at most `bytes` at `path`, which is one of `scratch`'s directories; in the ledger before. Fails where
/// the machine has not that much to give, beside what it has promised to others there.
pub(crate) fn mount_memory(
    ledger: &Ledger,
    scratch: &Path,
    path: &Path,
    mode: u32,
    bytes: u64,
) -> Result<(), Error> {
    if !geteuid().is_root() {
        let reason = "storage tmpfs: only root mounts file systems: run it as root, or without --storage";
        return Err(Error::StorageUnavailable(reason.to_owned()));
    }
    let (available, promised) = (available_memory()?, promised_bytes(scratch)?);
    if available < promised.saturating_add(bytes) {
        return Err(Error::StorageUnavailable(format!(
            "storage tmpfs: the server may need {} MB, and of {} MB of available memory {} MB are promised to others: a \
             smaller scale, or fewer servers",
            bytes >> 20,
            available >> 20,
            promised >> 20
        )));
    }
    ledger.note(&Effect::Mount { path: path.to_owned() })?;
    let options = format!("size={bytes},mode={mode:o}");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), path, Some("tmpfs"), flags, Some(options.as_str()))
        .map_err(std::io::Error::from)
        .context("mount memory at", path)
}

/// Unmounts what is mounted at `path`, if anything is.
pub(crate) fn release(path: &Path) -> Result<(), Error> {
    Ok(unmount(path)?)
}

/// What the file systems in memory below `scratch` may still take.
fn promised_bytes(scratch: &Path) -> Result<u64, Error> {
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
    let path = Path::new(MEMORY);
    let text = fs::read_to_string(path).context("read", path)?;
    // Where the kernel does not tell, the mount is the proof.
    Ok(available_in(&text).unwrap_or(u64::MAX))
}

fn available_in(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_what_the_kernel_says() {
        let text = "MemTotal:       24684092 kB\nMemAvailable:   23000000 kB\n";
        assert_eq!(available_in(text), Some(23_000_000 << 10));
        assert_eq!(available_in("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn a_server_gets_room_for_twice_its_data_and_its_logs() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("base")).unwrap();
        fs::write(place.path().join("base/1"), [0; 1000]).unwrap();
        fs::write(place.path().join("2"), [0; 500]).unwrap();
        assert_eq!(room_for(place.path()).unwrap(), 3000 + HEADROOM_BYTES);
        check_room(place.path(), 1).unwrap();
        let error = check_room(place.path(), u64::MAX).unwrap_err().to_string();
        assert!(error.contains("MB free"), "{error}");
    }
}
