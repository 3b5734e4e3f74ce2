//! What a verification has found.

use std::path::PathBuf;

/// What is wrong with a piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// Not ciphertext.
    Plaintext,
    /// Not what this place holds: copied from another place or another cluster, or overwritten.
    Misplaced,
    /// Ciphertext of its place, with a wrong checksum.
    Damaged,
    /// A WAL page of an earlier segment among later ones.
    Outdated,
    /// The end of a file is less than a page, and cannot be decrypted.
    Incomplete,
    /// A file that PostgreSQL does not write, in plaintext.
    UnknownFile,
    /// The same in a directory of encrypted files.
    UnknownInStorage,
    /// A symbolic link, a pipe or a device in place of a file.
    NotAFile,
    /// `pg_control` or `PG_VERSION` is not sealed, or is missing.
    NotSealed,
    Unreadable,
}

impl FindingKind {
    pub const ALL: [Self; 10] = [
        Self::Plaintext,
        Self::Misplaced,
        Self::Damaged,
        Self::Outdated,
        Self::Incomplete,
        Self::UnknownFile,
        Self::UnknownInStorage,
        Self::NotAFile,
        Self::NotSealed,
        Self::Unreadable,
    ];

    /// A short name for programs.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Plaintext => "plaintext",
            Self::Misplaced => "misplaced",
            Self::Damaged => "damaged",
            Self::Outdated => "outdated",
            Self::Incomplete => "incomplete",
            Self::UnknownFile => "unknown-file",
            Self::UnknownInStorage => "unknown-file-in-storage",
            Self::NotAFile => "not-a-file",
            Self::NotSealed => "not-sealed",
            Self::Unreadable => "unreadable",
        }
    }

    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Plaintext => "plaintext",
            Self::Misplaced => {
                "not ciphertext of this place: from another place or another cluster, or overwritten"
            }
            Self::Damaged => "ciphertext of this place, but its checksum is wrong",
            Self::Outdated => "a WAL page of an earlier segment among later ones",
            Self::Incomplete => "less than a page at the end of the file, which cannot be decrypted",
            Self::UnknownFile => "not a file of PostgreSQL: stored in plaintext",
            Self::UnknownInStorage => {
                "not a file of PostgreSQL, among the encrypted ones: stored in plaintext"
            }
            Self::NotAFile => "a symbolic link, a pipe or a device in place of a file",
            Self::NotSealed => "not sealed with these keys, changed, or missing",
            Self::Unreadable => "cannot be read",
        }
    }
}

/// A piece of a file that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyFinding {
    /// Relative to the data directory.
    pub path: PathBuf,
    pub offset: u64,
    pub bytes: u64,
    pub kind: FindingKind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyCounts {
    /// Files that must be encrypted.
    pub encrypted_files: u64,
    /// Files that PostgreSQL stores in plaintext.
    pub plain_files: u64,
    /// Temporary files, whose keys only the server has: they look like ciphertext.
    pub temporary_files: u64,
    /// Units that are ciphertext of their place.
    pub units: u64,
    /// Units of zeros.
    pub zeros: u64,
    /// Pages with a wrong checksum that recovery will replace.
    pub to_recover: u64,
    /// Bytes of the encrypted files.
    pub bytes: u64,
    /// Files that were removed, renamed or truncated meanwhile.
    pub gone: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyResult {
    pub counts: VerifyCounts,
    pub findings: Vec<VerifyFinding>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyEnd {
    Complete,
    Interrupted,
}

impl VerifyResult {
    /// Adds a finding, or extends the last one.
    pub(super) fn add(&mut self, finding: VerifyFinding) {
        if let Some(last) = self.findings.last_mut()
            && last.path == finding.path
            && last.kind == finding.kind
            && last.offset + last.bytes == finding.offset
        {
            last.bytes += finding.bytes;
            return;
        }
        self.findings.push(finding);
    }
}
