//! The workspace's files, read with `std::fs`: works without git, and includes untracked files.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Directories with generated files.
const SKIPPED_DIRECTORIES: [&str; 6] =
    [".git", "target", "corpus", "artifacts", "ciphertoll-runs", "node_modules"];

/// The directories of crates.
pub(crate) const ROOMS: [&str; 5] = ["protocols", "measure", "sidecar", "at-rest", "checks"];

/// A text file of the workspace.
pub(crate) struct TextFile {
    /// Relative to the workspace root.
    pub path: PathBuf,
    pub text: String,
}

impl TextFile {
    pub(crate) fn has_extension(&self, extension: &str) -> bool {
        self.path.extension().is_some_and(|found| found == extension)
    }

    /// `path:line: rule` for every line that `breaks` the rule.
    pub(crate) fn findings(&self, rule: &str, breaks: impl Fn(&str) -> bool) -> Vec<String> {
        let numbered = self.text.lines().zip(1..);
        let broken = numbered.filter(|(line, _)| breaks(line));
        broken.map(|(_, number)| format!("{}:{number}: {rule}", self.path.display())).collect()
    }
}

/// The directory that holds the workspace's `Cargo.toml`.
pub(crate) fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("checks/testing lies two below the root").to_owned()
}

/// All UTF-8 files below the root, sorted by path.
pub(crate) fn text_files() -> Vec<TextFile> {
    let root = workspace_root();
    let mut files = Vec::new();
    collect(&root, &root, &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

pub(crate) fn rust_files() -> Vec<TextFile> {
    let mut files = text_files();
    files.retain(|file| file.has_extension("rs"));
    assert!(files.len() > 10, "too few sources: wrong directory?");
    files
}

fn collect(root: &Path, directory: &Path, files: &mut Vec<TextFile>) {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        // Removed meanwhile, by a concurrent build.
        Err(error) if error.kind() == ErrorKind::NotFound && directory != root => return,
        Err(error) => panic!("{}: {error}", directory.display()),
    };
    for entry in entries {
        let entry = entry.expect("a directory entry");
        let kind = entry.file_type().expect("a file type");
        let name = entry.file_name();
        if kind.is_dir() && !SKIPPED_DIRECTORIES.iter().any(|skipped| name == *skipped) {
            collect(root, &entry.path(), files);
        } else if kind.is_file()
            // In a git worktree, `.git` is a file.
            && name != ".git"
            // Ignores unreadable and removed files, such as those of editors.
            && let Ok(bytes) = fs::read(entry.path())
            && let Ok(text) = String::from_utf8(bytes)
        {
            let path = entry.path().strip_prefix(root).expect("below the root").to_owned();
            files.push(TextFile { path, text });
        }
    }
}

/// Fails with all findings, one per line.
#[track_caller]
pub(crate) fn expect_none(findings: &[String]) {
    assert!(findings.is_empty(), "{} finding(s):\n{}", findings.len(), findings.join("\n"));
}
