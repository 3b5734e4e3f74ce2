//! Programs of another Debian release than the machine's: fetched from Debian's archive with `apt-get`, which verifies
//! the archive's signature and every package's hash, and unpacked with all their libraries into one directory.
//!
//! The archive keeps the newest version of a release only, so versions and hashes are recorded, not prescribed.
//! [`relocate`] makes the programs use the directory's own loader and libraries instead of the machine's.

mod archive;
pub mod layout;
mod package;
mod relocate;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use ciphertoll_host::files;
use ciphertoll_host::user::RunAs;
use ciphertoll_model::DebianRelease;
use ciphertoll_record::Context;

pub(crate) use self::archive::APT;
use self::archive::PrivateArchive;
use super::client::FetchClient;
use super::job::FetchJob;
use crate::error::FetchError;

/// Names, versions and hashes of the unpacked packages.
const PACKAGES_FILE: &str = "packages.tsv";
/// Below a fetched directory: links to its programs, as in the other builds.
const PROGRAMS: &str = "bin";
const READABLE_DIRECTORY: u32 = 0o755;
const READABLE_FILE: u32 = 0o644;

/// Packages of a Debian release, and the programs that are used.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DebianPackages {
    pub(super) release: DebianRelease,
    pub(super) packages: &'static [&'static str],
    /// Programs, relative to the root directory; those of other packages are not set up.
    pub(super) programs: &'static [&'static str],
    /// Removed after unpacking, because a library that it needs is left out.
    pub(super) removed: &'static [&'static str],
    /// To download, rounded; the archive changes.
    pub(super) bytes: u64,
}

impl DebianPackages {
    /// Fetches the packages and their libraries and sets them up in `partial`, which is then moved to `target`. Returns the
    /// directory of downloads.
    pub(super) fn make(
        &self,
        job: &mut FetchJob<'_, '_>,
        client: impl FnOnce() -> Result<FetchClient, FetchError>,
        partial: &Path,
        target: &Path,
    ) -> Result<PathBuf, FetchError> {
        let archive = PrivateArchive::open(job, client()?, self.release)?;
        job.report(&format!("reading the package lists of {}", self.release.display_name()));
        archive.update(job)?;
        let (own, libraries) = archive.select(job, self.packages)?;
        let bytes: u64 = own.iter().chain(&libraries).map(|package| package.bytes).sum();
        job.report(&format!("fetching {} MB with {}", bytes.div_ceil(1_000_000), APT.name));
        let downloads = job.downloads.join(format!("{}.debs", job.file_name()));
        let wanted: Vec<_> = own.iter().chain(&libraries).collect();
        archive.download(job, &wanted, &downloads)?;
        job.report("unpacking");
        files::make_directory(partial, READABLE_DIRECTORY, RunAs::Ourselves)?;
        for package in &own {
            package::unpack(job, &downloads.join(&package.file), partial)?;
        }
        let own_files = relocate::find_elf_files(partial)?;
        for package in &libraries {
            package::unpack(job, &downloads.join(&package.file), partial)?;
        }
        job.report("setting up");
        for path in self.removed {
            fs::remove_file(partial.join(path)).context("remove", &partial.join(path))?;
        }
        relocate::relocate(job, &own_files, partial, target)?;
        self.link_programs(partial)?;
        let list: String = wanted.iter().map(|package| package.line()).collect();
        files::write(&partial.join(PACKAGES_FILE), list.as_bytes(), READABLE_FILE, RunAs::Ourselves)?;
        Ok(downloads)
    }

    /// Links to each program from [`PROGRAMS`].
    fn link_programs(&self, partial: &Path) -> Result<(), FetchError> {
        let links = partial.join(PROGRAMS);
        files::make_directory(&links, READABLE_DIRECTORY, RunAs::Ourselves)?;
        for program in self.programs {
            let link = links.join(Path::new(program).file_name().unwrap_or_default());
            symlink(Path::new("..").join(program), &link).context("make", &link)?;
        }
        Ok(())
    }

    /// Fails unless all programs in `target` find their libraries there.
    pub(super) fn check(&self, target: &Path) -> Result<(), FetchError> {
        self.programs.iter().try_for_each(|program| relocate::check_libraries(target, program))
    }
}
