//! Makes programs of another Debian release independent of the machine's: each gets the loader and the library search path of
//! the directory that it was unpacked to. `patchelf`, from the same release, writes both into the program. So the program
//! can be started, and can start itself, like any other, without a namespace and without privileges.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ciphertoll_record::Context;

use super::layout::{LIBRARIES, LOADER};
use super::package::RELOCATING;
use crate::error::FetchError;
use crate::job::FetchJob;

const MAX_DEPTH: usize = 32;
/// Without set-user-ID, set-group-ID and write access for others.
const MODES: u32 = 0o755;

/// Programs and libraries below `root`, relative to it. Called before the architecture's libraries are unpacked, which need
/// no change.
pub(super) fn find_elf_files(root: &Path) -> Result<Vec<PathBuf>, FetchError> {
    let mut found = Vec::new();
    each_file(root, Path::new(""), 0, &mut |relative| {
        if is_elf(&root.join(relative))? {
            found.push(relative.to_owned());
        }
        Ok(())
    })?;
    Ok(found)
}

/// Makes `files` below `partial` use the loader and the libraries below `target`, where they will be.
pub(super) fn relocate(
    job: &FetchJob<'_, '_>,
    files: &[PathBuf],
    partial: &Path,
    target: &Path,
) -> Result<(), FetchError> {
    let editor = ElfEditor { root: partial };
    for file in files {
        let path = partial.join(file);
        // A static program has no search path, and needs none.
        let Some(search_path) = editor.edit(job, &["--print-rpath"], &path)? else { continue };
        let is_program = editor.edit(job, &["--print-interpreter"], &path)?.is_some();
        let search_path = relocated(&search_path, target);
        let loader = target.join(LOADER).display().to_string();
        // A DT_RPATH applies to the libraries of libraries, too.
        let mut arguments = vec!["--force-rpath", "--set-rpath", &search_path];
        if is_program {
            arguments.extend(["--set-interpreter", &loader]);
        }
        if editor.edit(job, &arguments, &path)?.is_none() {
            let reason = format!("{RELOCATING} cannot change it (log: {})", job.log().display());
            return Err(ciphertoll_host::Error::Program { program: path, reason }.into());
        }
    }
    each_file(partial, Path::new(""), 0, &mut |relative| {
        let path = partial.join(relative);
        let mode = fs::metadata(&path).context("inspect", &path)?.permissions().mode() & 0o7777;
        match mode & !MODES {
            0 => Ok(()),
            _ => Ok(fs::set_permissions(&path, Permissions::from_mode(mode & MODES)).context("make", &path)?),
        }
    })
}

/// The library search path below `target`: its libraries first, then what the program names itself.
fn relocated(search_path: &str, target: &Path) -> String {
    let own = search_path.trim().split(':').filter_map(|directory| match directory.strip_prefix('/') {
        Some(below) => Some(target.join(below).display().to_string()),
        // Relative to the program itself: `$ORIGIN/…`.
        None => Some(directory.to_owned()).filter(|directory| !directory.is_empty()),
    });
    let libraries = target.join(LIBRARIES).display().to_string();
    std::iter::once(libraries).chain(own).collect::<Vec<_>>().join(":")
}

/// Fails unless all libraries of the program are those below `target`.
pub(super) fn check_libraries(target: &Path, program: &str) -> Result<(), FetchError> {
    let (loader, program) = (target.join(LOADER), target.join(program));
    let mut command = Command::new(&loader);
    let output = command.arg("--list").arg(&program).stdin(Stdio::null()).output();
    let output = output.context("start", &loader)?;
    let listed = String::from_utf8_lossy(&output.stdout);
    let problem = match foreign_library(&listed, target) {
        Some(line) => format!("it needs a library that was not fetched: {}", line.trim()),
        None if output.status.success() => return Ok(()),
        None => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    };
    Err(ciphertoll_host::Error::Program { program, reason: problem }.into())
}

/// The first line of the loader's list with a library outside of `target`.
fn foreign_library<'a>(listed: &'a str, target: &Path) -> Option<&'a str> {
    listed.lines().find(|line| match line.split_once(" => ") {
        Some((_, found)) => !Path::new(found.split(" (0x").next().unwrap_or_default()).starts_with(target),
        // The kernel's own, and the loader.
        None => false,
    })
}

/// `patchelf`, unpacked below `root`, run by the loader there.
struct ElfEditor<'a> {
    root: &'a Path,
}

impl ElfEditor<'_> {
    /// The editor's output; `None` if it fails, with the reason in the log.
    fn edit(
        &self,
        job: &FetchJob<'_, '_>,
        arguments: &[&str],
        file: &Path,
    ) -> Result<Option<String>, FetchError> {
        let loader = self.root.join(LOADER);
        let mut command = Command::new(&loader);
        command.arg("--library-path").arg(self.root.join(LIBRARIES));
        command.arg(self.root.join("usr/bin").join(RELOCATING)).args(arguments).arg(file);
        let output = command.stdin(Stdio::null()).output().context("start", &loader)?;
        job.append_to_log(&output.stderr)?;
        Ok(output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned()))
    }
}

/// Calls `action` with each regular file below `root`, relative to it. Links are not followed.
fn each_file(
    root: &Path,
    below: &Path,
    depth: usize,
    action: &mut dyn FnMut(&Path) -> Result<(), FetchError>,
) -> Result<(), FetchError> {
    let directory = root.join(below);
    for entry in fs::read_dir(&directory).context("list", &directory)? {
        let entry = entry.context("list", &directory)?;
        let kind = entry.file_type().context("inspect", &entry.path())?;
        let relative = below.join(entry.file_name());
        if kind.is_dir() && depth < MAX_DEPTH {
            each_file(root, &relative, depth + 1, action)?;
        } else if kind.is_file() {
            action(&relative)?;
        }
    }
    Ok(())
}

fn is_elf(path: &Path) -> Result<bool, FetchError> {
    const MAGIC: [u8; 4] = *b"\x7fELF";
    let mut start = Vec::new();
    let file = File::open(path).context("read", path)?;
    file.take(MAGIC.len() as u64).read_to_end(&mut start).context("read", path)?;
    Ok(start == MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_path_is_below_the_target() {
        let target = Path::new("/cache/mysql-9.7");
        let libraries = format!("/cache/mysql-9.7/{LIBRARIES}");
        assert_eq!(relocated("\n", target), libraries);
        let own = relocated("/usr/lib/mysql-router:$ORIGIN/../lib\n", target);
        assert_eq!(own, format!("{libraries}:/cache/mysql-9.7/usr/lib/mysql-router:$ORIGIN/../lib"));
    }

    #[test]
    fn a_library_of_the_machine_is_found() {
        let target = Path::new("/cache/x");
        let own = "\tlinux-vdso.so.1 (0x7f)\n\tlibz.so.1 => /cache/x/usr/lib/libz.so.1 (0x7f)\n\t/cache/x/ld.so (0x7f)\n";
        assert_eq!(foreign_library(own, target), None);
        for line in ["\tlibz.so.1 => /lib/libz.so.1 (0x7f)", "\tlibz.so.1 => not found"] {
            assert_eq!(foreign_library(&format!("{own}{line}\n"), target), Some(line));
        }
    }
}
