//! The plan of a conversion: checks the source and lists its files, without writing anything.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::control::ControlFileData;
use super::error::{ConvertError, Result, open};
use crate::clear_file::{
    ClearFile, EMPTIED_DIRECTORIES, ENCRYPTED_DIRECTORIES, RECOVERY_FILES, SKIPPED_FILES, UNENCRYPTED_FILES,
};
use crate::cluster::{self, CONTROL_PATH, ClusterState, DiskFile, MAP_PATH, VERSION_PATH};
use crate::error::Doing;
use crate::seal::{CONTROL_BYTES, SealState, version_seal};
use crate::{EncryptionEngine, FileClass, MAP_MAGIC, OpenFile, VersionText};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversionDirection {
    Encrypt,
    Decrypt,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablespaceMapping {
    /// The tablespace directory of the source.
    pub old: PathBuf,
    /// The tablespace directory of the target.
    pub new: PathBuf,
}

#[derive(Clone, Debug)]
pub(super) struct PlannedFile {
    /// The path relative to the data directory.
    pub(super) below: PathBuf,
    pub(super) from: PathBuf,
    pub(super) to: PathBuf,
    pub(super) class: FileClass,
    pub(super) bytes: u64,
    /// Seconds and nanoseconds.
    pub(super) modified: (i64, i64),
    pub(super) mode: u32,
    pub(super) owner: Owner,
    /// Whether the file has holes.
    pub(super) is_sparse: bool,
}

/// File name of the journal, which is in the target until the conversion is complete.
pub(super) const JOURNAL: &str = "ciphertoll-convert.journal";

/// Whether a target has the journal of an interrupted conversion.
pub fn has_journal(target: &Path) -> bool {
    target.join(JOURNAL).exists()
}

/// User and group.
pub(super) type Owner = (u32, u32);

#[derive(Clone, Debug)]
pub(super) struct PlannedDirectory {
    pub(super) to: PathBuf,
    pub(super) mode: u32,
    pub(super) owner: Owner,
}

#[derive(Clone, Debug)]
pub(super) struct PlannedLink {
    pub(super) to: PathBuf,
    /// The target of the link.
    pub(super) text: PathBuf,
    pub(super) owner: Owner,
}

#[derive(Debug)]
pub struct ConversionPlan {
    pub(super) direction: ConversionDirection,
    pub(super) source: PathBuf,
    pub(super) target: PathBuf,
    pub(super) listing: Listing,
    /// `PG_VERSION` and `pg_control`, which are written last: without them no server starts.
    pub(super) last: [PlannedFile; 2],
    control: ControlFileData,
    /// Digest of the plaintext of `pg_control`, which changes whenever a server starts or stops.
    digest: [u8; 32],
    major: u32,
}

/// What a walk through the source finds.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// All directories of the target, parents first.
    pub(super) directories: Vec<PlannedDirectory>,
    pub(super) links: Vec<PlannedLink>,
    pub(super) files: Vec<PlannedFile>,
    /// The target, and its directories elsewhere: tablespaces and WAL.
    pub(super) roots: Vec<PathBuf>,
    others: Vec<PathBuf>,
}

impl ConversionPlan {
    /// Checks source and target and lists the files. `engine` has the keys of an encrypted source; `None` encrypts.
    pub fn new(
        source: &Path,
        target: &Path,
        mappings: &[TablespaceMapping],
        wal: Option<&Path>,
        engine: Option<&mut EncryptionEngine>,
    ) -> Result<Self> {
        let source = fs::canonicalize(source).doing("read", source)?;
        if let Some(process) = cluster::running_server(&source) {
            return Err(crate::KeyError::Running { data: source, process }.into());
        }
        let direction =
            if engine.is_some() { ConversionDirection::Decrypt } else { ConversionDirection::Encrypt };
        let (plaintext, version) = match engine {
            Some(engine) => read_sealed_cluster(&source, engine)?,
            None => read_plain_cluster(&source)?,
        };
        let refused =
            |why: &str| ConvertError::Refused(format!("{}: {why}", source.join(CONTROL_PATH).display()));
        let control = ControlFileData::parse(&plaintext).map_err(refused)?;
        let has = |name: &&&str| source.join(name).symlink_metadata().is_ok();
        if let Some(name) = RECOVERY_FILES.iter().find(has) {
            return refuse(&source.join(name), "the cluster needs recovery: start it and stop it first");
        }
        if has(&&JOURNAL) {
            return refuse(
                &source.join(JOURNAL),
                "the source is an interrupted conversion: complete it first",
            );
        }
        let mut walk = SourceWalk::new(&source, target, mappings, wal, version, control.catalog)?;
        walk.cluster()?;
        let plan = walk.into_plan(direction, control, Sha256::digest(plaintext).into())?;
        if !has_journal(&plan.target) {
            plan.listing.roots.iter().try_for_each(|root| check_empty(root))?;
        }
        Ok(plan)
    }

    /// The canonical path of the source.
    pub fn source(&self) -> &Path {
        &self.source
    }

    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Total size of all files except the last two.
    pub fn bytes(&self) -> u64 {
        self.listing.files.iter().map(|file| file.bytes).sum()
    }

    pub fn has_page_checksums(&self) -> bool {
        self.control.has_page_checksums
    }

    pub fn major(&self) -> u32 {
        self.major
    }

    /// User and group of the data directory.
    pub fn owner(&self) -> (u32, u32) {
        self.listing.directories[0].owner
    }

    /// Relative paths of files that do not belong to PostgreSQL. They are copied unencrypted.
    pub fn others(&self) -> &[PathBuf] {
        &self.listing.others
    }

    /// The first line of the journal: identifies the state of the source and the directories of the target.
    pub(super) fn identity(&self) -> String {
        let direction = match self.direction {
            ConversionDirection::Encrypt => "encrypt",
            ConversionDirection::Decrypt => "decrypt",
        };
        let mut hash = Sha256::new_with_prefix(self.digest);
        for root in &self.listing.roots {
            hash.update(root.as_os_str().as_bytes());
            hash.update([0]);
        }
        let mut line = format!("ciphertoll tde convert 1 {direction} ");
        for byte in hash.finalize() {
            // Writing to a string cannot fail.
            let _ = write!(line, "{byte:02x}");
        }
        line
    }

    /// Fails if the source changed since the plan was made.
    pub(super) fn check_unchanged(&self, engine: &mut EncryptionEngine) -> Result<()> {
        let engine = match self.direction {
            ConversionDirection::Encrypt => None,
            ConversionDirection::Decrypt => Some(engine),
        };
        let changed =
            |path: &Path| refuse(path, "the source was changed during the conversion: run the command again");
        for file in self.listing.files.iter().chain(&self.last) {
            let metadata = fs::symlink_metadata(&file.from).doing("read", &file.from)?;
            if (metadata.len(), (metadata.mtime(), metadata.mtime_nsec())) != (file.bytes, file.modified) {
                return changed(&file.from);
            }
        }
        let (plaintext, _) = match engine {
            Some(engine) => read_sealed_cluster(&self.source, engine)?,
            None => read_plain_cluster(&self.source)?,
        };
        let digest: [u8; 32] = Sha256::digest(plaintext).into();
        if digest != self.digest || cluster::running_server(&self.source).is_some() {
            return changed(&self.source);
        }
        Ok(())
    }
}

fn refuse<T>(path: &Path, why: &str) -> Result<T> {
    Err(ConvertError::Refused(format!("{}: {why}", path.display())))
}

type Plaintext = [u8; CONTROL_BYTES];

/// Reads `pg_control` and the major version of a cluster that is sealed with these keys.
fn read_sealed_cluster(source: &Path, engine: &mut EncryptionEngine) -> Result<(Plaintext, u32)> {
    let state = cluster::examine(source, engine)?;
    if state == ClusterState::Empty {
        return refuse(source, "no cluster found");
    }
    if let Some(why) = state.refusal(source) {
        return Err(ConvertError::Refused(why));
    }
    let mut read = |class, path: &Path, bytes: &mut [u8]| {
        let file = DiskFile(File::open(path).doing("read", path)?);
        engine.read_at(&mut OpenFile::new(class), &file, bytes, 0).doing("read", path)
    };
    let (mut plaintext, mut version) = ([0; CONTROL_BYTES], [0; 16]);
    read(FileClass::Control, &source.join(CONTROL_PATH), &mut plaintext)?;
    let path = source.join(VERSION_PATH);
    let held = read(FileClass::Version, &path, &mut version)?;
    Ok((plaintext, major(&path, &version[..held])?))
}

/// Reads `pg_control` and the major version of an unencrypted cluster.
fn read_plain_cluster(source: &Path) -> Result<(Plaintext, u32)> {
    let path = source.join(VERSION_PATH);
    let version = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return refuse(source, "no cluster found");
        }
        other => other.doing("read", &path)?,
    };
    let map = source.join(MAP_PATH);
    let mut magic = [0; MAP_MAGIC.len()];
    open(&map)?.read_exact_at(&mut magic, 0).doing("read", &map)?;
    if version_seal(&version) == SealState::Sealed || magic != MAP_MAGIC {
        return refuse(source, "the cluster is encrypted already; use --decrypt to convert it back");
    }
    let major = major(&path, &version)?;
    let path = source.join(CONTROL_PATH);
    let mut plaintext = [0; CONTROL_BYTES];
    let file: File = open(&path)?;
    file.read_exact_at(&mut plaintext, 0).doing("read", &path)?;
    Ok((plaintext, major))
}

fn major(path: &Path, version: &[u8]) -> Result<u32> {
    let digits =
        VersionText::sealed(version).and_then(|_| std::str::from_utf8(version).ok()?.trim_end().parse().ok());
    digits.map_or_else(|| refuse(path, "does not contain a major version"), Ok)
}

/// Walks through the source.
struct SourceWalk<'a> {
    source: &'a Path,
    target: PathBuf,
    mappings: &'a [TablespaceMapping],
    used: Vec<bool>,
    wal: Option<&'a Path>,
    major: u32,
    /// The name of this cluster's directory in a tablespace.
    tablespace_version: String,
    /// Directories of the source.
    source_directories: Vec<PathBuf>,
    /// Device and inode of the tablespaces and of WAL in another directory, which may be in the data directory, too.
    linked: Vec<(u64, u64)>,
    listing: Listing,
}

impl<'a> SourceWalk<'a> {
    fn new(
        source: &'a Path,
        target: &Path,
        mappings: &'a [TablespaceMapping],
        wal: Option<&'a Path>,
        major: u32,
        catalog: u32,
    ) -> Result<Self> {
        let locations = mappings.iter().map(|mapping| mapping.old.clone()).chain([source.join("pg_wal")]);
        let source_directories =
            locations.filter_map(|path| fs::canonicalize(path).ok()).chain([source.to_owned()]);
        let mut walk = Self {
            source,
            source_directories: source_directories.collect(),
            linked: cluster::linked_directories(source).doing("read", source)?,
            target: PathBuf::new(),
            mappings,
            used: vec![false; mappings.len()],
            wal,
            major,
            tablespace_version: format!("PG_{major}_{catalog}"),
            listing: Listing::default(),
        };
        walk.target = walk.add_root(target)?;
        Ok(walk)
    }

    /// Adds a new directory. It must not overlap with any other directory of the source or the target.
    fn add_root(&mut self, directory: &Path) -> Result<PathBuf> {
        let directory = canonicalize(directory)?;
        let overlaps = |other: &PathBuf| directory.starts_with(other) || other.starts_with(&directory);
        if self.source_directories.iter().chain(&self.listing.roots).any(overlaps) {
            let why = "it overlaps with another directory of the source or the target: choose another one";
            return refuse(&directory, why);
        }
        self.listing.roots.push(directory.clone());
        Ok(directory)
    }

    fn cluster(&mut self) -> Result<()> {
        self.directory(Path::new(""), self.source, &self.target.clone())?;
        if let Some(at) = self.used.iter().position(|used| !used) {
            return refuse(
                &self.mappings[at].old,
                "not a tablespace directory of the source (--tablespace-mapping)",
            );
        }
        if self.wal.is_some() && !self.listing.links.iter().any(|link| link.to == self.target.join("pg_wal"))
        {
            return refuse(&self.source.join("pg_wal"), "not a symbolic link, so --waldir cannot be used");
        }
        Ok(())
    }

    /// Lists a directory itself, with its mode and owner.
    fn list(&mut self, from: &Path, to: &Path) -> Result<()> {
        let metadata = fs::metadata(from).doing("read", from)?;
        let (mode, owner) = (metadata.mode() & 0o7777, (metadata.uid(), metadata.gid()));
        self.listing.directories.push(PlannedDirectory { to: to.to_owned(), mode, owner });
        Ok(())
    }

    /// Lists a directory recursively, ordered by name.
    fn directory(&mut self, below: &Path, from: &Path, to: &Path) -> Result<()> {
        self.list(from, to)?;
        let entries = fs::read_dir(from).doing("read", from)?;
        let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
        let names: BTreeSet<OsString> = names.collect::<io::Result<_>>().doing("read", from)?;
        for name in names {
            self.entry(&below.join(&name), &from.join(&name), &to.join(&name))?;
        }
        Ok(())
    }

    fn entry(&mut self, below: &Path, from: &Path, to: &Path) -> Result<()> {
        let metadata = fs::symlink_metadata(from).doing("read", from)?;
        let kind = metadata.file_type();
        if is_skipped(below) || kind.is_socket() {
            return Ok(());
        }
        if kind.is_dir() {
            // Its files are copied by the link, by which they have their class.
            if self.linked.contains(&(metadata.dev(), metadata.ino())) {
                return Ok(());
            }
            return self.directory(below, from, to);
        }
        if kind.is_symlink() {
            return self.link(below, from, to, &metadata);
        }
        if !kind.is_file() {
            return refuse(from, "it is neither a file nor a directory: remove it");
        }
        let class = FileClass::of(below.as_os_str().as_bytes());
        if matches!(
            class,
            FileClass::Temporary(_) | FileClass::XlogTemp | FileClass::Relation { backend: Some(_), .. }
        ) {
            return Ok(());
        }
        if class == FileClass::Unencrypted {
            self.unencrypted(below, from)?;
        }
        self.listing.files.push(PlannedFile {
            below: below.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            class,
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            mode: metadata.mode() & 0o7777,
            owner: (metadata.uid(), metadata.gid()),
            is_sparse: metadata.blocks() * 512 < metadata.len(),
        });
        Ok(())
    }

    /// Accepts an unencrypted file, unless it is an unknown file in a directory of encrypted files.
    fn unencrypted(&mut self, below: &Path, from: &Path) -> Result<()> {
        if ClearFile::of(below.as_os_str().as_bytes()) == ClearFile::UnknownInStorage {
            return refuse(from, "not a PostgreSQL file, and would be copied unencrypted: remove it");
        }
        let first = below.iter().next().unwrap_or_default();
        let is_known = UNENCRYPTED_FILES.iter().chain(&ENCRYPTED_DIRECTORIES).any(|known| first == *known);
        if !is_known {
            self.listing.others.push(below.to_owned());
        }
        Ok(())
    }

    /// Lists a symbolic link: a tablespace, the WAL directory, or a link of the user.
    fn link(&mut self, below: &Path, from: &Path, to: &Path, metadata: &Metadata) -> Result<()> {
        let text = fs::read_link(from).doing("read", from)?;
        let owner = (metadata.uid(), metadata.gid());
        let mut parts = below.iter();
        let (first, second, third) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        let new = match (second, third) {
            (None, None) if first == "pg_wal" => match self.wal {
                Some(wal) => wal.to_owned(),
                None => {
                    return refuse(from, "a symbolic link: set a new WAL directory with --waldir");
                }
            },
            (Some(_), None) if first == "pg_tblspc" => self.mapped(from, &text)?,
            (None, None) if !ENCRYPTED_DIRECTORIES.iter().any(|known| first == *known) => {
                self.listing.others.push(below.to_owned());
                self.listing.links.push(PlannedLink { to: to.to_owned(), text, owner });
                return Ok(());
            }
            _ => {
                return refuse(from, "an unexpected symbolic link: replace it with the file");
            }
        };
        let new = self.add_root(&new)?;
        self.listing.links.push(PlannedLink { to: to.to_owned(), text: new.clone(), owner });
        if first == "pg_wal" {
            return self.directory(below, from, &new);
        }
        self.list(from, &new)?;
        // Directories of other versions belong to other clusters.
        let version = Path::new(&self.tablespace_version).to_owned();
        self.directory(&below.join(&version), &from.join(&version), &new.join(&version))
    }

    fn mapped(&mut self, link: &Path, old: &Path) -> Result<PathBuf> {
        let Some(at) = self.mappings.iter().position(|mapping| mapping.old == old) else {
            let old = old.display();
            return refuse(
                link,
                &format!("a tablespace in {old}: set its new directory with --tablespace-mapping={old}=NEW"),
            );
        };
        self.used[at] = true;
        Ok(self.mappings[at].new.clone())
    }

    fn into_plan(
        mut self,
        direction: ConversionDirection,
        control: ControlFileData,
        digest: [u8; 32],
    ) -> Result<ConversionPlan> {
        let files = &mut self.listing.files;
        let mut take = |path: &str| {
            let at = files.iter().position(|file| file.below == Path::new(path));
            at.map_or_else(|| refuse(&self.source.join(path), "not a file"), |at| Ok(files.remove(at)))
        };
        let last = [take(VERSION_PATH)?, take(CONTROL_PATH)?];
        // First, because it identifies the keys of an interrupted conversion.
        files.sort_by_key(|file| file.below != Path::new(MAP_PATH));
        let (source, target, major) = (self.source.to_owned(), self.target, self.major);
        Ok(ConversionPlan { direction, source, target, listing: self.listing, last, control, digest, major })
    }
}

fn check_empty(directory: &Path) -> Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.doing("read", directory)?,
    };
    if entries.count() == 0 {
        return Ok(());
    }
    Err(ConvertError::Refused(format!(
        "{} is not empty and is not an interrupted conversion: choose a new directory",
        directory.display()
    )))
}

/// Canonicalizes a path that may not exist; its parent must exist.
fn canonicalize(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path).doing("find", path)?;
    match fs::canonicalize(&absolute) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return Ok(other.doing("find", path)?),
    }
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return refuse(path, "not the path of a directory");
    };
    let parent = fs::canonicalize(parent).doing("find", parent)?;
    Ok(parent.join(name))
}

fn is_skipped(below: &Path) -> bool {
    let parts: Vec<_> = below.iter().map(OsStrExt::as_bytes).collect();
    let [.., name] = parts[..] else { return false };
    let is_in_temporary = parts.iter().rev().skip(1).any(|part| *part == b"pgsql_tmp");
    let is_emptied =
        parts.len() > 1 && EMPTIED_DIRECTORIES.iter().any(|emptied| parts[0] == emptied.as_bytes());
    let is_of_server = parts.len() == 1 && SKIPPED_FILES.iter().any(|skipped| name == skipped.as_bytes());
    is_in_temporary
        || is_emptied
        || is_of_server
        || name.starts_with(b"pg_internal.init")
        || name == b"lost+found"
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A second copy, by the other name, would be in plaintext.
    #[test]
    fn a_tablespace_and_wal_in_the_data_directory_are_copied_once() {
        let place = tempfile::tempdir().expect("a directory");
        let (source, target) = (place.path().join("source"), place.path().join("target"));
        let new = |name: &str| place.path().join(name);
        for directory in ["pg_tblspc", "ts/PG_15_1/5", "wal_disk"] {
            fs::create_dir_all(source.join(directory)).expect("a directory");
        }
        symlink(source.join("ts"), source.join("pg_tblspc/16400")).expect("a link");
        symlink("wal_disk", source.join("pg_wal")).expect("a link");
        for file in ["ts/PG_15_1/5/16384", "wal_disk/000000010000000000000001"] {
            fs::write(source.join(file), "rows").expect("written");
        }
        let mappings = [TablespaceMapping { old: source.join("ts"), new: new("space") }];
        let wal = new("wal");
        let mut walk = SourceWalk::new(&source, &target, &mappings, Some(&wal), 15, 1).expect("a walk");
        walk.cluster().expect("listed");
        let listed: Vec<_> =
            walk.listing.files.iter().map(|file| (file.below.clone(), file.to.clone())).collect();
        let expected = [
            ("pg_tblspc/16400/PG_15_1/5/16384", new("space/PG_15_1/5/16384")),
            ("pg_wal/000000010000000000000001", new("wal/000000010000000000000001")),
        ];
        assert_eq!(listed, expected.map(|(below, to)| (PathBuf::from(below), to)));
    }
}
