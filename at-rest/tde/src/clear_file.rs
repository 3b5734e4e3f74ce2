//! Files that are stored in plaintext: those that PostgreSQL is known to write, and others.

use crate::FileClass;
use crate::cluster::LOCK_PATH;

/// Directories of encrypted files, in which unknown files are refused.
pub(crate) const ENCRYPTED_DIRECTORIES: [&str; 12] = [
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
/// Directories that a server empties at startup.
pub(crate) const EMPTIED_DIRECTORIES: [&str; 4] = ["pg_dynshmem", "pg_notify", "pg_stat_tmp", "pg_snapshots"];
/// Files that describe a running server or a backup.
pub(crate) const SKIPPED_FILES: [&str; 7] = [
    LOCK_PATH,
    "postmaster.opts",
    "current_logfiles",
    "current_logfiles.tmp",
    "postgresql.auto.conf.tmp",
    "backup_manifest",
    "backup_manifest.tmp",
];
/// Files that make a server start with recovery.
pub(crate) const RECOVERY_FILES: [&str; 3] = ["backup_label", "tablespace_map", "recovery.signal"];
/// Unencrypted files and directories of PostgreSQL.
pub(crate) const UNENCRYPTED_FILES: [&str; 9] = [
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
/// Further names that a running server, its own modules and tools write to.
const OF_RUNNING_SERVERS: [&str; 11] = [
    "log",
    "pg_log",
    "promote",
    "logrotate",
    "autoprewarm.blocks",
    "autoprewarm.blocks.tmp",
    "recovery.conf",
    "recovery.done",
    "pg_upgrade_output.d",
    "backup_label.tmp",
    "tablespace_map.tmp",
];

/// More parts than any known path has.
const MOST_PARTS: usize = 6;

/// What is known of a file that is stored in plaintext.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClearFile {
    /// PostgreSQL stores it, and what it contains is documented.
    PostgreSql,
    /// A file of somebody else in the data directory.
    Other,
    /// An unknown file among the encrypted ones. It may hold rows, such as a fork of a later version.
    UnknownInStorage,
    /// Not in the data directory.
    Outside,
}

impl ClearFile {
    /// For a path relative to the data directory whose class is unencrypted; empty for files elsewhere.
    pub fn of(below: &[u8]) -> Self {
        let mut parts = [b"".as_slice(); MOST_PARTS];
        let mut count = 0;
        for (slot, part) in
            parts.iter_mut().zip(below.split(|&byte| byte == b'/').filter(|part| !part.is_empty()))
        {
            (*slot, count) = (part, count + 1);
        }
        let parts = &parts[..count];
        let Some(first) = parts.first() else { return Self::Outside };
        let is_in = |names: &[&str]| names.iter().any(|name| name.as_bytes() == *first);
        if is_in(&ENCRYPTED_DIRECTORIES) {
            return if is_known(parts) { Self::PostgreSql } else { Self::UnknownInStorage };
        }
        let known: [&[&str]; 5] =
            [&UNENCRYPTED_FILES, &EMPTIED_DIRECTORIES, &SKIPPED_FILES, &RECOVERY_FILES, &OF_RUNNING_SERVERS];
        if known.iter().any(|names| is_in(names)) { Self::PostgreSql } else { Self::Other }
    }

    /// Whether this path of an unencrypted file in the data directory may also be that of an encrypted file: in a
    /// directory to which a link of the data directory leads. All but PostgreSQL's own files may.
    pub fn may_be_linked(below: &[u8]) -> bool {
        let is_in = |directory: &&str| below.split(|&byte| byte == b'/').next() == Some(directory.as_bytes());
        match Self::of(below) {
            Self::Outside => false,
            Self::Other | Self::UnknownInStorage => true,
            // In `pg_log`, for example, PostgreSQL has no directories.
            Self::PostgreSql => {
                let depth = below.split(|&byte| byte == b'/').count() - 1;
                depth > 1 && !ENCRYPTED_DIRECTORIES.iter().any(is_in)
            }
        }
    }

    /// Whether a file of this class would be stored in plaintext among the encrypted ones, though it is none of PostgreSQL's.
    pub fn is_unknown(class: FileClass, below: &[u8]) -> bool {
        class == FileClass::Unencrypted && Self::of(below) == Self::UnknownInStorage
    }
}

/// Whether PostgreSQL writes this unencrypted file to a directory of encrypted files.
fn is_known(parts: &[&[u8]]) -> bool {
    match parts {
        [b"base", _, name] | [b"pg_tblspc", _, _, _, name] | [b"global", name] => {
            *name == b"PG_VERSION" || name.starts_with(b"pg_internal.init")
        }
        [b"pg_wal", b"archive_status" | b"summaries", _] | [b"pg_wal", b"RECOVERYHISTORY"] => true,
        // `pg_basebackup` first writes `.history.tmp`.
        [b"pg_wal", name] => {
            [".history", ".history.tmp", ".backup"].iter().any(|end| name.ends_with(end.as_bytes()))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_postgresql_are_certainly_no_others() {
        for (path, may_be) in [
            ("", false),
            ("postmaster.pid", false),
            ("pg_stat_tmp/global.stat", false),
            ("log/postgresql.log", false),
            ("base/5/pg_internal.init", false),
            ("pg_wal/archive_status/000000010000000000000001.ready", false),
            ("space/PG_15_202209061/5/16384", true),
            ("log/space/PG_15_202209061/5/16384", true),
            ("base/space/PG_15_202209061/5/16384", true),
            ("wal_disk/000000010000000000000001", true),
        ] {
            assert_eq!(ClearFile::may_be_linked(path.as_bytes()), may_be, "{path}");
        }
    }

    #[test]
    fn unknown_files_are_told_apart_from_those_of_postgresql() {
        for (path, kind) in [
            ("", ClearFile::Outside),
            ("postmaster.pid", ClearFile::PostgreSql),
            ("log/postgresql.log", ClearFile::PostgreSql),
            ("pg_stat/pgstat.tmp", ClearFile::PostgreSql),
            ("base/5/pg_internal.init.77", ClearFile::PostgreSql),
            ("global/pg_internal.init", ClearFile::PostgreSql),
            ("pg_tblspc/16400/PG_15_202209061/5/PG_VERSION", ClearFile::PostgreSql),
            ("pg_wal/archive_status/000000010000000000000001.ready", ClearFile::PostgreSql),
            ("pg_wal/00000002.history", ClearFile::PostgreSql),
            ("pg_wal/00000002.history.tmp", ClearFile::PostgreSql),
            ("base/5/16384_other", ClearFile::UnknownInStorage),
            ("base/columnar/1", ClearFile::UnknownInStorage),
            ("global/copy", ClearFile::UnknownInStorage),
            ("pg_wal/copy", ClearFile::UnknownInStorage),
            ("pg_xact/unknown", ClearFile::UnknownInStorage),
            ("dump.sql", ClearFile::Other),
            ("extension/rows", ClearFile::Other),
        ] {
            assert_eq!(ClearFile::of(path.as_bytes()), kind, "{path}");
        }
    }
}
