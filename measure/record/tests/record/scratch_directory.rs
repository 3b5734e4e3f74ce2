//! Directories of scratch files that users choose: what is accepted, and each refusal.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use ciphertoll_model::ExitCode;
use ciphertoll_record::{
    Error, Scratch, ScratchUse, check_scratch_directory, prepare_scratch_directory, scratch_root,
    scratch_root_below,
};
use ciphertoll_testing::not_for_all;
use nix::unistd::geteuid;
use tempfile::TempDir;

/// Its path is short enough for sockets.
fn place() -> TempDir {
    tempfile::Builder::new().prefix("toll").tempdir_in("/var/tmp").unwrap()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[track_caller]
fn refusal(directory: &Path, used_for: ScratchUse) -> String {
    let error = prepare_scratch_directory(directory, used_for).unwrap_err();
    assert_eq!(error.exit_code(), ExitCode::HostResource, "{error}");
    error.to_string()
}

#[test]
fn the_default_is_in_var_tmp() {
    let user = geteuid();
    assert_eq!(scratch_root(), Path::new(&format!("/var/tmp/ciphertoll-{user}")));
    assert_eq!(scratch_root_below(Path::new("/fast")), Path::new(&format!("/fast/ciphertoll-{user}")));
}

#[test]
fn a_root_is_prepared_without_links_and_nothing_is_created() {
    let place = place();
    let link = place.path().join("link");
    fs::create_dir(place.path().join("d")).unwrap();
    symlink("d", &link).unwrap();
    for used_for in [ScratchUse::Data, ScratchUse::Code] {
        let root = prepare_scratch_directory(&link, used_for).unwrap();
        assert_eq!(root, scratch_root_below(&fs::canonicalize(place.path()).unwrap().join("d")));
        assert!(!root.exists());
    }
    let root = prepare_scratch_directory(&link, ScratchUse::Data).unwrap();
    Scratch::create(&root).unwrap().close().unwrap();
    // The second time, the root is there.
    assert_eq!(prepare_scratch_directory(&link, ScratchUse::Data).unwrap(), root);
}

#[test]
fn what_is_no_directory_is_refused() {
    let place = place();
    let file = place.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(refusal(&place.path().join("none"), ScratchUse::Data).contains("No such file"));
    assert!(refusal(&file, ScratchUse::Data).contains("it is not a directory"));
    let unreadable = place.path().join(OsStr::from_bytes(b"\xff"));
    fs::create_dir(&unreadable).unwrap();
    assert!(refusal(&unreadable, ScratchUse::Data).contains("not UTF-8"));
}

#[test]
fn a_directory_in_which_others_could_replace_files_is_refused() {
    let place = place();
    set_mode(place.path(), 0o777);
    assert!(refusal(place.path(), ScratchUse::Data).contains("other users can write to it"));
    for mode in [0o1777, 0o775, 0o755, 0o700] {
        set_mode(place.path(), mode);
        prepare_scratch_directory(place.path(), ScratchUse::Data).unwrap();
    }
    let root = scratch_root_below(&fs::canonicalize(place.path()).unwrap());
    fs::create_dir(&root).unwrap();
    set_mode(&root, 0o777);
    let error = prepare_scratch_directory(place.path(), ScratchUse::Data).unwrap_err();
    assert!(matches!(error, Error::Untrusted { .. }), "{error}");
}

/// Its owner can rename what is in it, whatever its mode.
#[test]
fn another_users_directory_is_refused_also_above() {
    if !geteuid().is_root() {
        return not_for_all("only root can give a directory to another user");
    }
    let place = place();
    let below = place.path().join("ours");
    fs::create_dir(&below).unwrap();
    prepare_scratch_directory(&below, ScratchUse::Data).unwrap();
    chown(place.path(), Some(65_534), None).unwrap();
    for mode in [0o1775, 0o755] {
        set_mode(place.path(), mode);
        for directory in [place.path(), &below] {
            assert!(refusal(directory, ScratchUse::Data).contains("belongs to the user with the id 65534"));
        }
    }
}

#[test]
fn a_directory_below_one_that_others_can_write_to_is_refused() {
    let place = place();
    let below = place.path().join("ours");
    fs::create_dir(&below).unwrap();
    set_mode(place.path(), 0o777);
    assert!(refusal(&below, ScratchUse::Data).contains("other users can write to "));
    set_mode(place.path(), 0o1777);
    prepare_scratch_directory(&below, ScratchUse::Data).unwrap();
}

#[test]
fn a_directory_that_is_not_writable_is_refused() {
    // Root can write to any directory, but not to a file system of the kernel.
    let directory = if geteuid().is_root() { "/proc/sys" } else { "/etc" };
    let error = prepare_scratch_directory(Path::new(directory), ScratchUse::Data);
    let created = error.and_then(|root| Scratch::create(&root).map(drop));
    assert_eq!(created.unwrap_err().exit_code(), ExitCode::HostResource);
    let place = place();
    if geteuid().is_root() {
        return;
    }
    set_mode(place.path(), 0o500);
    assert!(refusal(place.path(), ScratchUse::Data).contains("is not writable"));
    set_mode(place.path(), 0o700);
}

#[test]
fn a_path_that_is_too_long_for_sockets_is_refused() {
    let place = place();
    let taken = scratch_root_below(&fs::canonicalize(place.path()).unwrap().join("")).as_os_str().len();
    let longest = place.path().join("x".repeat(61 - taken - 1));
    let longer = place.path().join("x".repeat(61 - taken));
    for directory in [&longest, &longer] {
        fs::create_dir(directory).unwrap();
    }
    prepare_scratch_directory(&longest, ScratchUse::Data).unwrap();
    assert!(refusal(&longer, ScratchUse::Data).contains("1 bytes too long"), "{}", longer.display());
}

/// A file system mounted noexec, unmounted when dropped.
struct NoExec(TempDir);

impl NoExec {
    fn mount() -> Option<Self> {
        let place = place();
        let options = ["-t", "tmpfs", "-o", "noexec,mode=755,size=256k", "none"];
        let mount = Command::new("mount").args(options).arg(place.path()).output();
        if mount.is_ok_and(|output| output.status.success()) {
            return Some(Self(place));
        }
        not_for_all("mounting a small file system takes root");
        None
    }
}

impl Drop for NoExec {
    fn drop(&mut self) {
        Command::new("umount").arg(self.0.path()).status().unwrap();
    }
}

#[test]
fn without_execution_there_may_be_data_but_no_code() {
    let Some(mounted) = NoExec::mount() else { return };
    check_scratch_directory(mounted.0.path(), ScratchUse::Data).unwrap();
    assert!(refusal(mounted.0.path(), ScratchUse::Code).contains("noexec"));
}
