//! Whether the disks have room for the tables of a run: better said before the first of them is made.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ciphertoll_model::{AtRest, Storage};
use nix::sys::statvfs::statvfs;

use crate::error::{Context, Error};
use crate::find::Build;
use crate::lab::Lab;
use crate::tables::Tables;
use crate::template::{self, Content};

/// A server that is to be started, as far as it takes room.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// The build.
    pub build: Build,
    /// What it has.
    pub tables: Tables,
    /// What encrypts its files.
    pub at_rest: AtRest,
}

impl Lab {
    /// Fails where the tables of `tenants`, which are all there at once, do not fit on the disks: each has a copy of a
    /// template, which is made first where it is not in the cache yet.
    pub fn check_room(&self, tenants: &[Tenant]) -> Result<(), Error> {
        let (mut needs, mut made) = (Needs::default(), BTreeSet::new());
        for Tenant { build, tables, at_rest } in tenants {
            let bytes = tables.bytes(build.engine);
            let content = Content { tables: *tables, at_rest: *at_rest };
            let template = template::place(self.cache(), build, content)?;
            if !template.is_dir() && made.insert(template) {
                needs.add(self.cache(), bytes)?;
            }
            // What lies in memory looks for room there itself.
            if self.storage == Storage::Disk {
                needs.add(self.scratch.path(), bytes)?;
            }
        }
        needs.check(free_bytes)
    }
}

/// What is needed of each file system, and one of the places in it.
#[derive(Default)]
struct Needs(BTreeMap<u64, (PathBuf, u64)>);

impl Needs {
    fn add(&mut self, path: &Path, bytes: u64) -> Result<(), Error> {
        let (place, device) = nearest(path)?;
        let (_, needed) = self.0.entry(device).or_insert((place, 0));
        *needed = needed.saturating_add(bytes);
        Ok(())
    }

    fn check(&self, free_bytes: impl Fn(&Path) -> Result<u64, Error>) -> Result<(), Error> {
        for (path, needed_bytes) in self.0.values() {
            let (needed_bytes, free_bytes) = (*needed_bytes, free_bytes(path)?);
            if needed_bytes > free_bytes {
                return Err(Error::NoRoom { path: path.clone(), needed_bytes, free_bytes });
            }
        }
        Ok(())
    }
}

/// The directory itself, or the one that it would be made in, and the file system of it.
fn nearest(path: &Path) -> Result<(PathBuf, u64), Error> {
    for place in path.ancestors() {
        match fs::metadata(place) {
            Ok(metadata) => return Ok((place.to_owned(), metadata.dev())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).context("look at", place),
        }
    }
    Err(io::Error::from(io::ErrorKind::NotFound)).context("look at", path)
}

/// What is free for users that are not privileged: servers are none.
fn free_bytes(path: &Path) -> Result<u64, Error> {
    let disk = statvfs(path).map_err(io::Error::from).context("look at", path)?;
    Ok(disk.blocks_available().saturating_mul(disk.fragment_size()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_disk_has_must_be_enough_for_all_that_comes_there() {
        let mut needs = Needs::default();
        let here = std::env::temp_dir();
        needs.add(&here, 3 << 30).unwrap();
        needs.add(&here.join("not/there"), 4 << 30).unwrap();
        assert!(needs.check(|_| Ok(7 << 30)).is_ok());
        let error = needs.check(|_| Ok(13 << 29)).unwrap_err();
        let expected = format!(
            "the tables take about 7.0 GiB in {}, where 6.5 GiB are free: ask for a smaller --scale",
            here.display()
        );
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.exit_code(), ciphertoll_model::ExitCode::HostResource);
    }

    #[test]
    fn this_disk_has_some_room() {
        assert!(free_bytes(&std::env::temp_dir()).unwrap() > 0);
    }
}
