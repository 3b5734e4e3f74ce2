//! Packages, as `apt-get` lists them.

use std::path::Path;
use std::process::{Command, Stdio};

use ciphertoll_record::Context;

use crate::error::FetchError;
use crate::job::FetchJob;

/// The package of the program that [`super::relocate`] uses.
pub(super) const RELOCATING: &str = "patchelf";
/// Libraries that are large and that no fetched program needs to serve connections: PostgreSQL's just-in-time compiler,
/// Perl for administration scripts, systemd's own library.
const LEFT_OUT: [&str; 4] = ["libllvm", "libz3", "libperl", "libsystemd-shared"];
/// Packages with libraries whose names do not begin with `lib`.
const OTHER_LIBRARIES: [&str; 2] = ["zlib1g", RELOCATING];

/// A package of one version.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    /// The name of the file that apt-get downloads.
    pub(super) file: String,
    pub(super) bytes: u64,
    /// As apt-get writes it: `SHA256:…`.
    hash: String,
}

impl Package {
    /// Parses a line of `apt-get --print-uris`: `'ADDRESS' FILE BYTES HASH`.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let rest = line.strip_prefix('\'')?;
        let (_, rest) = rest.split_once("' ")?;
        let mut parts = rest.split_ascii_whitespace();
        let (file, bytes, hash) = (parts.next()?, parts.next()?.parse().ok()?, parts.next().unwrap_or(""));
        let (name, rest) = file.strip_suffix(".deb")?.split_once('_')?;
        let (version, _) = rest.rsplit_once('_')?;
        let is_plain = |text: &str| !text.is_empty() && !text.contains('/') && !text.starts_with(['-', '.']);
        (is_plain(name) && is_plain(version)).then(|| Self {
            name: name.to_owned(),
            version: version.replace("%3a", ":"),
            file: file.to_owned(),
            bytes,
            hash: hash.to_owned(),
        })
    }

    /// The argument that selects this version.
    pub(super) fn selection(&self) -> String {
        format!("{}={}", self.name, self.version)
    }

    /// Whether programs may need it at run time, which is all that is unpacked besides the named packages.
    pub(super) fn is_library(&self) -> bool {
        let name = self.name.as_str();
        let is_library = name.starts_with("lib") || OTHER_LIBRARIES.contains(&name);
        is_library && !LEFT_OUT.iter().any(|left_out| name.starts_with(left_out))
    }

    pub(super) fn line(&self) -> String {
        format!("{}\t{}\t{}\n", self.name, self.version, self.hash)
    }
}

/// Unpacks a package's files, without its scripts.
pub(super) fn unpack(job: &FetchJob<'_, '_>, file: &Path, target: &Path) -> Result<(), FetchError> {
    let program = Path::new("dpkg-deb");
    let mut command = Command::new(program);
    command.arg("--extract").args([file, target]).stdin(Stdio::null());
    let output = command.output().context("start", program)?;
    job.append_to_log(&output.stderr)?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(FetchError::Unpack { archive: file.to_owned(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Package> {
        Package::parse(line)
    }

    #[test]
    fn packages_are_read_from_a_list() {
        let line = "'http://x.example/pool/libnuma1_2.0.19-1%2bb2_amd64.deb' libnuma1_2.0.19-1+b2_amd64.deb 22036 SHA256:ab";
        let package = parse(line).unwrap();
        assert_eq!(package.selection(), "libnuma1=2.0.19-1+b2");
        assert_eq!((package.bytes, package.line().as_str()), (22036, "libnuma1\t2.0.19-1+b2\tSHA256:ab\n"));
        let epoch = parse("'u' mariadb-server-core_1%3a11.8.9+ds-4_amd64.deb 7591380 SHA256:cd").unwrap();
        assert_eq!(epoch.selection(), "mariadb-server-core=1:11.8.9+ds-4");
    }

    #[test]
    fn other_lines_are_no_packages() {
        for line in [
            "",
            "Reading package lists...",
            "'u' x.deb 1 h",
            "'u' ../a_1_amd64.deb 1 h",
            "'u' -o_1_amd64.deb 1 h",
            "'u' a_1_amd64.deb many h",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn only_libraries_are_unpacked_besides_the_named_packages() {
        let is_library = |name: &str| parse(&format!("'u' {name}_1_amd64.deb 1 h")).unwrap().is_library();
        for name in ["libc6", "libssl3t64", "zlib1g", "patchelf"] {
            assert!(is_library(name), "{name}");
        }
        for name in ["perl-base", "systemd", "libllvm19", "libperl5.40", "openssl"] {
            assert!(!is_library(name), "{name}");
        }
    }
}
