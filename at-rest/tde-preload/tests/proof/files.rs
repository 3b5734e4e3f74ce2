//! Files of a data directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every file below a directory, with its content.
pub(crate) fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let entry = entry.expect("an entry");
            if entry.file_type().expect("a type").is_dir() {
                open.push(entry.path());
            } else if let Ok(bytes) = fs::read(entry.path()) {
                // A server may have removed it meanwhile; sockets cannot be read.
                found.insert(entry.path(), bytes);
            }
        }
    }
    found
}

/// The files below a directory that contain these bytes. Uses grep, because a debug build would be slower than the server.
pub(crate) fn holding(directory: &Path, marker: &str) -> Vec<PathBuf> {
    let mut grep = Command::new("grep");
    // Ignores sockets and files that a server removes meanwhile.
    let found = grep.args(["-rlaFs", "--devices=skip", marker]).arg(directory).output().expect("grep runs");
    String::from_utf8_lossy(&found.stdout).lines().map(PathBuf::from).collect()
}

/// The files of a cluster, except those that every start of a server changes.
pub(crate) fn state(data: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = contents(data);
    files.retain(|path, _| !path.ends_with("postmaster.pid") && !path.ends_with("postmaster.opts"));
    files
}
