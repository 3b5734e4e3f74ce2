//! A small file system that can be filled.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ciphertoll_record::unmount;

const FILLER: &str = "filler";

/// A mounted tmpfs, unmounted when dropped.
pub(super) struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    pub(super) fn mount(path: &Path, size: &str) -> Result<Self> {
        fs::create_dir_all(path).context("cannot make a mount point")?;
        let options = format!("size={size},mode=755");
        run("mount", &["-t", "tmpfs", "-o", &options, "tmpfs", &path.to_string_lossy()])?;
        Ok(Self { path: path.to_owned() })
    }

    /// Writes until nothing more fits. Can be repeated, because a run frees space when it removes files.
    pub(super) fn fill(&self) -> Result<()> {
        let file = OpenOptions::new().append(true).create(true).open(self.path.join(FILLER));
        let mut file = file.context("cannot make a file to fill the disk with")?;
        for size in [1 << 20, 1 << 12, 1] {
            let chunk = vec![0; size];
            while file.write_all(&chunk).is_ok() {}
        }
        Ok(())
    }

    pub(super) fn free(&self) -> Result<()> {
        fs::remove_file(self.path.join(FILLER)).context("cannot free the disk")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Also if a process still has a file open: the mount must not outlive this program.
        let _ = unmount(&self.path);
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output =
        Command::new(program).args(arguments).output().with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
