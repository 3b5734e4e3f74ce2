//! What a conversion will do: every file of the source, or why it is refused. Nothing is written here.

use std::fmt::Write as _;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::control::Control;
use super::{ConvertError, Direction, JOURNAL, Result, check_empty, failed, is_begun, open};
use crate::cluster::{self, CONTROL_PATH, Condition, LOCK_PATH, MAP_PATH, Stored, VERSION_PATH};
use crate::convert::files::fault;
use crate::seal::{CONTROL_BYTES, Seal, version_seal};
use crate::{Engine, Format, MAP_MAGIC, Opened, Place, VersionText};

/// Directories whose files are all of known kinds.
const KNOWN: [&str; 12] = [
    "base",
    "global",
    "pg_commit_ts",
    "pg_logical",
    "pg_multixact",
    "pg_replslot",
    "pg_serial",
    "pg_subtrans",
    "pg_tblspc",
    "pg_twophase",
    "pg_wal",
    "pg_xact",
];
/// Directories that the server empties when it starts.
const EMPTIED: [&str; 4] = ["pg_dynshmem", "pg_notify", "pg_stat_tmp", "pg_snapshots"];
/// Files that describe a running server, or the source's own files.
const SKIPPED: [&str; 7] = [
    LOCK_PATH,
    "postmaster.opts",
    "current_logfiles",
    "current_logfiles.tmp",
    "postgresql.auto.conf.tmp",
    "backup_manifest",
    "backup_manifest.tmp",
];
/// Files with which a server would recover instead of starting from where it stopped.
const RECOVERY: [&str; 3] = ["backup_label", "tablespace_map", "recovery.signal"];
/// Other files in clear that PostgreSQL itself writes, and directories of such.
const USUAL: [&str; 9] = [
    "postgresql.conf",
    "postgresql.auto.conf",
    "pg_hba.conf",
    "pg_ident.conf",
    "standby.signal",
    "backup_label.old",
    "tablespace_map.old",
    "pg_stat",
    "PG_VERSION",
];

/// Where a tablespace of the source goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its directory in the source.
    pub old: PathBuf,
    /// Its directory in the target.
    pub new: PathBuf,
}

/// A file of the source.
#[derive(Clone, Debug)]
pub(super) struct PlannedFile {
    /// Its path in the data directory.
    pub(super) below: PathBuf,
    pub(super) from: PathBuf,
    pub(super) to: PathBuf,
    pub(super) place: Place,
    pub(super) bytes: u64,
    /// Seconds and nanoseconds.
    pub(super) modified: (i64, i64),
    pub(super) mode: u32,
    pub(super) owner: Owner,
    /// Whether the file system stores fewer bytes than the file has.
    pub(super) is_sparse: bool,
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
    /// What the link says.
    pub(super) text: PathBuf,
    pub(super) owner: Owner,
}

/// All files of a cluster, and what becomes of them.
#[derive(Debug)]
pub struct Plan {
    pub(super) direction: Direction,
    pub(super) source: PathBuf,
    pub(super) target: PathBuf,
    /// Every directory of the target, parents first, without the target itself.
    pub(super) directories: Vec<PlannedDirectory>,
    pub(super) links: Vec<PlannedLink>,
    pub(super) files: Vec<PlannedFile>,
    /// `PG_VERSION` and `pg_control`, which make it a cluster.
    pub(super) last: [PlannedFile; 2],
    /// The target, and its directories elsewhere: of tablespaces, of WAL.
    roots: Vec<PathBuf>,
    control: Control,
    /// Of the plaintext of `pg_control`, which changes whenever a server starts or stops.
    digest: [u8; 32],
    major: u32,
    owner: Owner,
    others: Vec<PathBuf>,
}

impl Plan {
    /// Checks the source and the target, and lists the files. `engine` has the keys of an encrypted source.
    pub fn new(
        source: &Path,
        target: &Path,
        mappings: &[Mapping],
        wal: Option<&Path>,
        engine: Option<&mut Engine>,
    ) -> Result<Self> {
        let source = fs::canonicalize(source).map_err(|error| fault("read", source, error))?;
        if let Some(process) = cluster::running_server(&source) {
            return Err(crate::KeyError::Running { data: source, process }.into());
        }
        let direction = if engine.is_some() { Direction::Decrypt } else { Direction::Encrypt };
        let (plaintext, version) = match engine {
            Some(engine) => sealed(&source, engine)?,
            None => plain(&source)?,
        };
        let refused =
            |why: &str| ConvertError::Refused(format!("{}: {why}", source.join(CONTROL_PATH).display()));
        let control = Control::parse(&plaintext).map_err(refused)?;
        let has = |name: &&&str| source.join(name).symlink_metadata().is_ok();
        if let Some(name) = RECOVERY.iter().find(has) {
            return refuse(
                &source.join(name),
                "the cluster has not been recovered yet: start it and stop it first",
            );
        }
        if has(&&JOURNAL) {
            return refuse(
                &source.join(JOURNAL),
                "the source is a conversion that was interrupted: complete it first",
            );
        }
        let mut walk = Walk::new(&source, target, mappings, wal, version, control.catalog)?;
        walk.cluster()?;
        let plan = walk.into_plan(direction, control, Sha256::digest(plaintext).into())?;
        if !is_begun(&plan.target) {
            plan.roots.iter().try_for_each(|root| check_empty(root))?;
        }
        Ok(plan)
    }

    /// The data directory of the source, without links.
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// The data directory of the target.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// All bytes of the files that are converted in the main part.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Whether the cluster's pages have checksums.
    pub fn has_page_checksums(&self) -> bool {
        self.control.has_page_checksums
    }

    /// PostgreSQL's major version.
    pub fn major(&self) -> u32 {
        self.major
    }

    /// The user and the group of the data directory.
    pub fn owner(&self) -> (u32, u32) {
        self.owner
    }

    /// Files that are no files of PostgreSQL's, by their paths in the data directory. They are copied as they are.
    pub fn others(&self) -> &[PathBuf] {
        &self.others
    }

    /// The target, and its directories elsewhere.
    pub(super) fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// What a journal of this conversion begins with: the state of the source, and the directories of the target.
    pub(super) fn identity(&self) -> String {
        let direction = match self.direction {
            Direction::Encrypt => "encrypt",
            Direction::Decrypt => "decrypt",
        };
        let mut hash = Sha256::new_with_prefix(self.digest);
        for root in &self.roots {
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

    /// The source must be what it was when the plan was made.
    pub(super) fn check_unchanged(&self, engine: &mut Engine) -> Result<()> {
        let engine = match self.direction {
            Direction::Encrypt => None,
            Direction::Decrypt => Some(engine),
        };
        let changed =
            |path: &Path| refuse(path, "the source was changed during the conversion: run it again");
        for file in self.files.iter().chain(&self.last) {
            let metadata =
                fs::symlink_metadata(&file.from).map_err(|error| fault("read", &file.from, error))?;
            if (metadata.len(), (metadata.mtime(), metadata.mtime_nsec())) != (file.bytes, file.modified) {
                return changed(&file.from);
            }
        }
        let (plaintext, _) = match engine {
            Some(engine) => sealed(&self.source, engine)?,
            None => plain(&self.source)?,
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

/// `pg_control` and the major version of a cluster that is sealed with these keys.
fn sealed(source: &Path, engine: &mut Engine) -> Result<(Plaintext, u32)> {
    let condition = cluster::examine(source, engine)?;
    if condition == Condition::Empty {
        return refuse(source, "there is no cluster");
    }
    if let Some(why) = condition.refusal(source, Format::MayBeUnsealed) {
        return Err(ConvertError::Refused(why));
    }
    let mut read = |place, path: &Path, bytes: &mut [u8]| {
        let file = Stored(open(path)?);
        engine.read_at(&mut Opened::new(place), &file, bytes, 0).map_err(failed("read", path))
    };
    let (mut plaintext, mut version) = ([0; CONTROL_BYTES], [0; 16]);
    read(Place::Control, &source.join(CONTROL_PATH), &mut plaintext)?;
    let path = source.join(VERSION_PATH);
    let held = read(Place::Version, &path, &mut version)?;
    Ok((plaintext, major(&path, &version[..held])?))
}

/// The same of a cluster as PostgreSQL writes it.
fn plain(source: &Path) -> Result<(Plaintext, u32)> {
    let path = source.join(VERSION_PATH);
    let version = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return refuse(source, "there is no cluster");
        }
        other => other.map_err(|error| fault("read", &path, error))?,
    };
    let map = source.join(MAP_PATH);
    let mut magic = [0; MAP_MAGIC.len()];
    open(&map)?.read_exact_at(&mut magic, 0).map_err(|error| fault("read", &map, error))?;
    if version_seal(&version) == Seal::Sealed || magic != MAP_MAGIC {
        return refuse(source, "the cluster is encrypted already; --decrypt converts it back");
    }
    let major = major(&path, &version)?;
    let path = source.join(CONTROL_PATH);
    let mut plaintext = [0; CONTROL_BYTES];
    let file: File = open(&path)?;
    file.read_exact_at(&mut plaintext, 0).map_err(|error| fault("read", &path, error))?;
    Ok((plaintext, major))
}

fn major(path: &Path, version: &[u8]) -> Result<u32> {
    let digits =
        VersionText::sealed(version).and_then(|_| std::str::from_utf8(version).ok()?.trim_end().parse().ok());
    digits.map_or_else(|| refuse(path, "it does not hold a major version"), Ok)
}

/// The source as it is walked through.
struct Walk<'a> {
    source: &'a Path,
    target: PathBuf,
    mappings: &'a [Mapping],
    used: Vec<bool>,
    wal: Option<&'a Path>,
    major: u32,
    /// What directories of this cluster in tablespaces are called.
    tablespace_version: String,
    directories: Vec<PlannedDirectory>,
    links: Vec<PlannedLink>,
    files: Vec<PlannedFile>,
    /// Directories of the source.
    kept: Vec<PathBuf>,
    /// The target, and new directories elsewhere.
    roots: Vec<PathBuf>,
    others: Vec<PathBuf>,
}

impl<'a> Walk<'a> {
    fn new(
        source: &'a Path,
        target: &Path,
        mappings: &'a [Mapping],
        wal: Option<&'a Path>,
        major: u32,
        catalog: u32,
    ) -> Result<Self> {
        let locations = mappings.iter().map(|mapping| mapping.old.clone()).chain([source.join("pg_wal")]);
        let kept = locations.filter_map(|path| fs::canonicalize(path).ok()).chain([source.to_owned()]);
        let mut walk = Self {
            source,
            kept: kept.collect(),
            target: PathBuf::new(),
            mappings,
            used: vec![false; mappings.len()],
            wal,
            major,
            tablespace_version: format!("PG_{major}_{catalog}"),
            directories: Vec::new(),
            links: Vec::new(),
            files: Vec::new(),
            roots: Vec::new(),
            others: Vec::new(),
        };
        walk.target = walk.add_root(target)?;
        Ok(walk)
    }

    /// A new directory, which neither lies in another one of the source or the target nor contains one.
    fn add_root(&mut self, directory: &Path) -> Result<PathBuf> {
        let directory = resolved(directory)?;
        let overlaps = |other: &PathBuf| directory.starts_with(other) || other.starts_with(&directory);
        if self.kept.iter().chain(&self.roots).any(overlaps) {
            let why = "it is, contains, or is within another directory of the source or the target: name another one";
            return refuse(&directory, why);
        }
        self.roots.push(directory.clone());
        Ok(directory)
    }

    fn cluster(&mut self) -> Result<()> {
        self.directory(Path::new(""), self.source, &self.target.clone())?;
        if let Some(at) = self.used.iter().position(|used| !used) {
            return refuse(
                &self.mappings[at].old,
                "no tablespace of the source is there (--tablespace-mapping)",
            );
        }
        if self.wal.is_some() && !self.links.iter().any(|link| link.to == self.target.join("pg_wal")) {
            return refuse(&self.source.join("pg_wal"), "it is not a symbolic link: --waldir is not used");
        }
        Ok(())
    }

    /// A directory and everything in it, in the order of names.
    fn directory(&mut self, below: &Path, from: &Path, to: &Path) -> Result<()> {
        let unreadable = |error| fault("read", from, error);
        let metadata = fs::metadata(from).map_err(unreadable)?;
        self.directories.push(PlannedDirectory {
            to: to.to_owned(),
            mode: metadata.mode() & 0o7777,
            owner: (metadata.uid(), metadata.gid()),
        });
        let mut names = fs::read_dir(from)
            .and_then(|entries| {
                entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<io::Result<Vec<_>>>()
            })
            .map_err(unreadable)?;
        names.sort();
        for name in names {
            self.entry(&below.join(&name), &from.join(&name), &to.join(&name))?;
        }
        Ok(())
    }

    fn entry(&mut self, below: &Path, from: &Path, to: &Path) -> Result<()> {
        let metadata = fs::symlink_metadata(from).map_err(|error| fault("read", from, error))?;
        let kind = metadata.file_type();
        if is_skipped(below) || kind.is_socket() {
            return Ok(());
        }
        if kind.is_dir() {
            return self.directory(below, from, to);
        }
        if kind.is_symlink() {
            return self.link(below, from, to, &metadata);
        }
        if !kind.is_file() {
            return refuse(from, "it is neither a file nor a directory: remove it");
        }
        let place = Place::of(below.as_os_str().as_bytes());
        if matches!(place, Place::Temporary(_) | Place::WalDraft | Place::Relation { backend: Some(_), .. }) {
            return Ok(());
        }
        if place == Place::Clear {
            self.clear(below, from)?;
        }
        self.files.push(PlannedFile {
            below: below.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            place,
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            mode: metadata.mode() & 0o7777,
            owner: (metadata.uid(), metadata.gid()),
            is_sparse: metadata.blocks() * 512 < metadata.len(),
        });
        Ok(())
    }

    /// A file that would be in clear in the target must be one that is meant to be.
    fn clear(&mut self, below: &Path, from: &Path) -> Result<()> {
        let first = below.iter().next().unwrap_or_default();
        if KNOWN.iter().any(|known| first == *known) {
            if is_known_clear(below) {
                return Ok(());
            }
            return refuse(from, "it is not a file of PostgreSQL's, and would be copied in clear: remove it");
        }
        let is_usual = USUAL.iter().any(|usual| first == *usual);
        if !is_usual {
            self.others.push(below.to_owned());
        }
        Ok(())
    }

    /// Tablespaces, WAL elsewhere, and links of the user's own.
    fn link(&mut self, below: &Path, from: &Path, to: &Path, metadata: &Metadata) -> Result<()> {
        let text = fs::read_link(from).map_err(|error| fault("read", from, error))?;
        let owner = (metadata.uid(), metadata.gid());
        let mut parts = below.iter();
        let (first, second, third) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        let new = match (second, third) {
            (None, None) if first == "pg_wal" => match self.wal {
                Some(wal) => wal.to_owned(),
                None => {
                    return refuse(from, "it is a symbolic link: name a new directory for WAL by --waldir");
                }
            },
            (Some(_), None) if first == "pg_tblspc" => self.mapped(from, &text)?,
            (None, None) if !KNOWN.iter().any(|known| first == *known) => {
                self.others.push(below.to_owned());
                self.links.push(PlannedLink { to: to.to_owned(), text, owner });
                return Ok(());
            }
            _ => {
                return refuse(
                    from,
                    "it is a symbolic link, which PostgreSQL does not make: replace it by the file",
                );
            }
        };
        let new = self.add_root(&new)?;
        self.links.push(PlannedLink { to: to.to_owned(), text: new.clone(), owner });
        if first == "pg_wal" {
            return self.directory(below, from, &new);
        }
        let location = fs::metadata(from).map_err(|error| fault("read", from, error))?;
        self.directories.push(PlannedDirectory {
            to: new.clone(),
            mode: location.mode() & 0o7777,
            owner: (location.uid(), location.gid()),
        });
        // Other versions' directories belong to other clusters.
        let version = Path::new(&self.tablespace_version).to_owned();
        self.directory(&below.join(&version), &from.join(&version), &new.join(&version))
    }

    fn mapped(&mut self, link: &Path, old: &Path) -> Result<PathBuf> {
        let Some(at) = self.mappings.iter().position(|mapping| mapping.old == old) else {
            let old = old.display();
            return refuse(
                link,
                &format!("a tablespace is in {old}: name a new directory, --tablespace-mapping={old}=NEW"),
            );
        };
        self.used[at] = true;
        Ok(self.mappings[at].new.clone())
    }

    fn into_plan(mut self, direction: Direction, control: Control, digest: [u8; 32]) -> Result<Plan> {
        let mut take = |path: &str| {
            let at = self.files.iter().position(|file| file.below == Path::new(path));
            at.map_or_else(
                || refuse(&self.source.join(path), "it is not a file"),
                |at| Ok(self.files.remove(at)),
            )
        };
        let last = [take(VERSION_PATH)?, take(CONTROL_PATH)?];
        // By this file it is told that a cluster is encrypted with certain keys.
        self.files.sort_by_key(|file| file.below != Path::new(MAP_PATH));
        let root = self.directories.remove(0);
        self.directories.insert(0, PlannedDirectory { to: self.target.clone(), ..root.clone() });
        Ok(Plan {
            direction,
            source: self.source.to_owned(),
            target: self.target,
            directories: self.directories,
            links: self.links,
            files: self.files,
            last,
            roots: self.roots,
            control,
            digest,
            major: self.major,
            owner: root.owner,
            others: self.others,
        })
    }
}

/// An absolute path without links. It may not exist; its parent must.
fn resolved(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path).map_err(|error| fault("find", path, error))?;
    match fs::canonicalize(&absolute) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return other.map_err(|error| fault("find", path, error)),
    }
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return refuse(path, "it is not a directory's path");
    };
    let parent = fs::canonicalize(parent).map_err(|error| fault("find", parent, error))?;
    Ok(parent.join(name))
}

fn is_skipped(below: &Path) -> bool {
    let parts: Vec<_> = below.iter().map(OsStrExt::as_bytes).collect();
    let [.., name] = parts[..] else { return false };
    let is_in_temporary = parts.iter().rev().skip(1).any(|part| *part == b"pgsql_tmp");
    let is_emptied = parts.len() > 1 && EMPTIED.iter().any(|emptied| parts[0] == emptied.as_bytes());
    let is_of_server = parts.len() == 1 && SKIPPED.iter().any(|skipped| name == skipped.as_bytes());
    is_in_temporary
        || is_emptied
        || is_of_server
        || name.starts_with(b"pg_internal.init")
        || name == b"lost+found"
}

/// Of the directories whose files are encrypted: what PostgreSQL has in clear there.
fn is_known_clear(below: &Path) -> bool {
    let parts: Vec<_> = below.iter().map(OsStrExt::as_bytes).collect();
    match &parts[..] {
        [b"base", _, b"PG_VERSION"]
        | [b"pg_tblspc", _, _, _, b"PG_VERSION"]
        | [b"pg_wal", b"archive_status" | b"summaries", _]
        | [b"pg_wal", b"RECOVERYHISTORY"] => true,
        [b"pg_wal", name] => name.ends_with(b".history") || name.ends_with(b".backup"),
        _ => false,
    }
}
