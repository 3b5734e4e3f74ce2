//! Checks before a run whether the disks have space for its tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ciphertoll_host::storage::free_bytes;
use ciphertoll_model::{AtRest, Storage};
use ciphertoll_record::Context;

use crate::datasets::tables::Tables;
use crate::error::Error;
use crate::servers::build::Build;
use crate::servers::template::{self, TemplateContent};
use crate::workspace::Workspace;

#[derive(Clone, Debug)]
pub struct PlannedServer {
    pub build: Build,
    pub tables: Tables,
    pub at_rest: AtRest,
}

/// Fails if the disks have no space for `servers`, which exist at the same time. Each has a copy of a template; a
/// template that is not in the cache yet needs space there.
pub(crate) fn check_disk_space(
    workspace: &Workspace,
    cache: &Path,
    servers: &[PlannedServer],
) -> Result<(), Error> {
    let (mut needs, mut new_templates) = (SpaceNeeded::default(), BTreeSet::new());
    for PlannedServer { build, tables, at_rest } in servers {
        let bytes = tables.bytes(build.engine);
        let content = TemplateContent { tables: *tables, at_rest: *at_rest };
        let template = template::path(cache, build, content)?;
        if !template.is_dir() && new_templates.insert(template) {
            needs.add(cache, bytes)?;
        }
        // On tmpfs, the mount checks the available memory.
        if workspace.storage == Storage::Disk {
            needs.add(workspace.scratch.path(), bytes)?;
        }
    }
    needs.check(free_bytes)
}

/// Bytes needed per file system (by device number), with a path in it.
#[derive(Default)]
struct SpaceNeeded(BTreeMap<u64, (PathBuf, u64)>);

impl SpaceNeeded {
    fn add(&mut self, path: &Path, bytes: u64) -> Result<(), Error> {
        let (existing, device) = nearest_existing(path)?;
        let (_, needed) = self.0.entry(device).or_insert((existing, 0));
        *needed = needed.saturating_add(bytes);
        Ok(())
    }

    fn check(&self, free_bytes: impl Fn(&Path) -> Result<u64, ciphertoll_host::Error>) -> Result<(), Error> {
        for (path, needed_bytes) in self.0.values() {
            let (needed_bytes, free_bytes) = (*needed_bytes, free_bytes(path)?);
            if needed_bytes > free_bytes {
                return Err(Error::DiskFull { path: path.clone(), needed_bytes, free_bytes });
            }
        }
        Ok(())
    }
}

/// The nearest existing ancestor of a path, and its device number.
fn nearest_existing(path: &Path) -> Result<(PathBuf, u64), Error> {
    for ancestor in path.ancestors() {
        match fs::metadata(ancestor) {
            Ok(metadata) => return Ok((ancestor.to_owned(), metadata.dev())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => Err(error).context("inspect", ancestor)?,
        }
    }
    Ok(Err(io::Error::from(io::ErrorKind::NotFound)).context("inspect", path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_on_the_same_disk_add_up() {
        let mut needs = SpaceNeeded::default();
        let here = std::env::temp_dir();
        needs.add(&here, 3 << 30).unwrap();
        needs.add(&here.join("not/there"), 4 << 30).unwrap();
        assert!(needs.check(|_| Ok(7 << 30)).is_ok());
        let error = needs.check(|_| Ok(13 << 29)).unwrap_err();
        let expected = format!(
            "the tables need about 7.0 GiB in {}, but only 6.5 GiB are free; choose a smaller --scale",
            here.display()
        );
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.exit_code(), ciphertoll_model::ExitCode::HostResource);
    }
}
