//! Checks of the scratch directory and the cache: write access, file system, free space.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ciphertoll_host::cache::cache_directory;
use ciphertoll_host::files::PRIVATE_DIRECTORY;
use ciphertoll_host::scratch::prepare_scratch_root;
use ciphertoll_record::{
    SCRATCH_DIRECTORY_VARIABLE, Scratch, ScratchUse, check_ours, is_noexec, scratch_root, scratch_root_below,
};
use nix::sys::statvfs::statvfs;

use super::finding::{CheckOutcome, CheckPurpose, Finding, Need};

const MIB: u64 = 1 << 20;
/// Space for a template, a copy per server, and logs.
const ENOUGH_BYTES: u64 = 4 << 30;
/// Minimum space for a single server.
const LEAST_BYTES: u64 = 512 << 20;

pub(super) fn all() -> Vec<Finding> {
    let cache = cache_directory();
    vec![
        scratch(chosen_directory().as_deref()),
        judge(
            "cache",
            &cache,
            try_cache(&cache),
            "set XDG_CACHE_HOME to a directory of your own, with 4 GiB free",
        ),
    ]
}

/// The directory of scratch files that the user has chosen, if any.
fn chosen_directory() -> Option<PathBuf> {
    std::env::var_os(SCRATCH_DIRECTORY_VARIABLE)
        .filter(|path| !path.is_empty())
        .map(|path| std::path::absolute(&path).unwrap_or_else(|_| path.into()))
}

/// The root of scratch directories, whether it can be used or not.
pub(super) fn configured_root() -> PathBuf {
    chosen_directory().map_or_else(scratch_root, |directory| scratch_root_below(&directory))
}

fn scratch(directory: Option<&Path>) -> Finding {
    let (root, tried, cure) = match directory {
        None => {
            let root = scratch_root();
            let tried = try_scratch(&root);
            (root, tried, "make /var/tmp writable, with 4 GiB free, or use --scratch-dir")
        }
        Some(directory) => {
            let prepared =
                prepare_scratch_root(directory, ScratchUse::Data).map_err(|error| error.to_string());
            let root = prepared.clone().unwrap_or_else(|_| scratch_root_below(directory));
            let tried = prepared.and_then(|root| try_scratch(&root));
            (root, tried, "use another --scratch-dir, with 4 GiB free")
        }
    };
    let finding = judge("scratch", &root, tried, cure);
    if finding.verdict == CheckOutcome::Ok && is_noexec(&nearest(&root)).unwrap_or(false) {
        let seen = format!("{}; it is mounted noexec, so --at-rest tde cannot be measured", finding.seen);
        let cure = "for --at-rest tde, use another --scratch-dir";
        return Finding::limited(CheckPurpose::Measure, "scratch", seen, cure).needed(Need::Always);
    }
    finding
}

/// Creates a scratch directory if its parent exists; else checks whether the parent can be created.
fn try_scratch(root: &Path) -> Result<(), String> {
    if fs::symlink_metadata(root).is_err() {
        return try_to_create(root);
    }
    Scratch::create(root).and_then(Scratch::close).map_err(|error| error.to_string())
}

fn try_cache(cache: &Path) -> Result<(), String> {
    if cache.is_dir() {
        check_ours(cache).map_err(|error| error.to_string())?;
    }
    try_to_create(cache)
}

/// Creates and removes a directory in `path`, or in its nearest existing ancestor.
fn try_to_create(path: &Path) -> Result<(), String> {
    let parent = nearest(path);
    let trial = parent.join(format!(".ciphertoll-doctor-{:08x}", rand::random::<u32>()));
    let made = DirBuilder::new().mode(PRIVATE_DIRECTORY).create(&trial);
    made.map_err(|error| format!("cannot write to {}: {error}", parent.display()))?;
    let file = trial.join("file");
    let written = fs::write(&file, b"ciphertoll").and_then(|()| fs::remove_file(&file));
    let removed = fs::remove_dir_all(&trial);
    written.and(removed).map_err(|error| format!("cannot write to {}: {error}", parent.display()))
}

/// The nearest existing ancestor of `path`.
pub(super) fn nearest(path: &Path) -> PathBuf {
    path.ancestors().find(|ancestor| ancestor.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

fn judge(name: &str, path: &Path, tried: Result<(), String>, cure: &str) -> Finding {
    let purpose = CheckPurpose::Measure;
    let finding = match tried.and_then(|()| free_bytes(path)) {
        Err(reason) => Finding::no(purpose, name, reason, cure),
        Ok(free) => {
            let kind = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
            let kind = file_system(&kind, &nearest(path)).unwrap_or_else(|| "unknown".to_owned());
            let seen = format!("{}: {} free on {kind}", path.display(), size(free));
            match free {
                ENOUGH_BYTES.. => Finding::ok(purpose, name, seen),
                LEAST_BYTES.. => Finding::limited(purpose, name, seen, cure),
                _ => Finding::no(purpose, name, seen, cure),
            }
        }
    };
    finding.needed(Need::Always)
}

fn free_bytes(path: &Path) -> Result<u64, String> {
    let there = nearest(path);
    let status = statvfs(&there).map_err(|errno| format!("cannot look at {}: {errno}", there.display()))?;
    Ok(status.blocks_available() * status.fragment_size())
}

pub(super) fn size(bytes: u64) -> String {
    let mebibytes = bytes / MIB;
    if mebibytes < 1024 {
        format!("{mebibytes} MiB")
    } else {
        format!("{:.1} GiB", mebibytes as f64 / 1024.0)
    }
}

/// The type of the file system of `path`; `mounts` is `/proc/self/mountinfo`, where the last mount at a point counts.
pub(super) fn file_system(mounts: &str, path: &Path) -> Option<String> {
    let mut found: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let (fields, kind) = line.split_once(" - ")?;
        let point = Path::new(fields.split(' ').nth(4)?);
        let depth = point.components().count();
        if path.starts_with(point) && found.is_none_or(|(deepest, _)| depth >= deepest) {
            found = Some((depth, kind.split(' ').next()?));
        }
    }
    found.map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_is_that_of_the_deepest_mount() {
        let mounts = "23 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
             30 23 0:26 / /var rw - xfs /dev/vdb rw\n\
             31 30 0:27 / /var/tmp rw,nosuid shared:9 master:2 - tmpfs tmpfs rw\n";
        let of = |path| file_system(mounts, Path::new(path));
        assert_eq!(of("/var/tmp/ciphertoll-0").as_deref(), Some("tmpfs"));
        assert_eq!(of("/var/tmpfoo").as_deref(), Some("xfs"));
        assert_eq!(of("/home").as_deref(), Some("ext4"));
        assert_eq!(file_system("", Path::new("/")), None);
    }

    #[test]
    fn checks_leave_no_files() {
        let place = tempfile::tempdir().unwrap();
        let cache = place.path().join("not/yet/there");
        assert_eq!(try_cache(&cache), Ok(()));
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        let finding = judge("cache", &cache, Err("no".to_owned()), "cure");
        assert_eq!(finding.verdict, CheckOutcome::No { cure: "cure".to_owned() });
        assert_eq!(finding.need, Need::Always);
    }

    #[test]
    fn a_chosen_directory_is_checked() {
        let place = tempfile::tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
        let finding = scratch(Some(place.path()));
        assert!(
            !finding.is_no() && finding.seen.contains(&place.path().display().to_string()),
            "{finding:?}"
        );
        let finding = scratch(Some(&place.path().join("none")));
        assert!(finding.is_no() && finding.need == Need::Always, "{finding:?}");
        assert!(finding.seen.contains("No such file"), "{finding:?}");
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size(700 * MIB), "700 MiB");
        assert_eq!(size(1536 * MIB), "1.5 GiB");
    }
}
