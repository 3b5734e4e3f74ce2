//! Builds of servers on this machine: where they are, and which version they say they are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ciphertoll_model::{Engine, ServerLevel};

use crate::error::Error;

const HOW_TO_GET_MARIADB: &str = "install it (Debian and Ubuntu: the package mariadb-server-core) \
     or name its directory: mariadb=/opt/mariadb";
const HOW_TO_GET_POSTGRES: &str = "install it (Debian and Ubuntu: the package postgresql or postgresql-15) \
     or name its directory: postgres=/opt/pgsql";
const MARIADB_NAMES: [&str; 2] = ["mariadbd", "mysqld"];
const MARIADB_INSTALL_NAMES: [&str; 2] = ["mariadb-install-db", "mysql_install_db"];
const POSTGRES_NAMES: [&str; 1] = ["postgres"];
const POSTGRES_INSTALL_NAMES: [&str; 1] = ["initdb"];
/// Where distributions and tarballs put servers; most of these are not on an ordinary user's PATH.
const SYSTEM_DIRECTORIES: [&str; 9] = [
    "/usr/sbin",
    "/usr/libexec",
    "/usr/bin",
    "/usr/local/sbin",
    "/usr/local/libexec",
    "/usr/local/bin",
    "/usr/local/mariadb/bin",
    "/usr/local/mysql/bin",
    "/usr/local/pgsql/bin",
];
/// Where packages put versions of `PostgreSQL` side by side: parent, beginning of the name, directory below.
const VERSIONED_DIRECTORIES: [(&str, &str, &str); 2] =
    [("/usr/lib/postgresql", "", "bin"), ("/usr", "pgsql-", "bin")];

/// A server that is installed here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// The engine.
    pub engine: Engine,
    /// The version, from its own mouth: `10.11.19`.
    pub version: String,
    /// The server.
    pub server_program: PathBuf,
    /// What makes an empty data directory.
    pub install_program: PathBuf,
    /// What it was installed under: `/usr`.
    pub base_directory: PathBuf,
}

/// How builds of one engine are recognised.
struct Kind {
    server_names: &'static [&'static str],
    install_names: &'static [&'static str],
    /// Directories of the installer, below what the server is installed under.
    install_directories: &'static [&'static str],
    version: fn(&Path) -> Option<String>,
    how_to_get: &'static str,
}

const MARIADB: Kind = Kind {
    server_names: &MARIADB_NAMES,
    install_names: &MARIADB_INSTALL_NAMES,
    install_directories: &["bin", "scripts", "sbin"],
    version: mariadb_version,
    how_to_get: HOW_TO_GET_MARIADB,
};

const POSTGRES: Kind = Kind {
    server_names: &POSTGRES_NAMES,
    install_names: &POSTGRES_INSTALL_NAMES,
    install_directories: &["bin"],
    version: postgres_version,
    how_to_get: HOW_TO_GET_POSTGRES,
};

/// The newest build that is what `level` asks for.
pub fn find(level: &ServerLevel) -> Result<Build, Error> {
    let kind = match level.engine {
        Engine::MariaDb => &MARIADB,
        Engine::Postgres => &POSTGRES,
    };
    let directories = directories(level.directory.as_deref());
    let found: Vec<(PathBuf, String)> = programs(&directories, kind.server_names)
        .into_iter()
        .filter_map(|program| (kind.version)(&program).map(|version| (program, version)))
        .collect();
    let accepted = found.iter().filter(|(_, version)| level.accepts_version(version));
    let newest = accepted.max_by_key(|(_, version)| version_numbers(version));
    let Some((server_program, version)) = newest.cloned() else {
        let versions: Vec<&str> = found.iter().map(|(_, version)| version.as_str()).collect();
        return Err(Error::ServerMissing {
            wanted: level.to_string(),
            found: if versions.is_empty() {
                String::new()
            } else {
                format!(" (only {})", versions.join(", "))
            },
            how_to_get: kind.how_to_get,
        });
    };
    let base_directory = base_of(&server_program);
    let install_program = install_program(kind, &server_program, &base_directory)?;
    Ok(Build { engine: level.engine, version, server_program, install_program, base_directory })
}

/// Where to look: the directory that was named and nowhere else, or PATH and the usual places.
fn directories(named: Option<&Path>) -> Vec<PathBuf> {
    if let Some(directory) = named {
        return ["", "bin", "sbin", "libexec"].iter().map(|part| directory.join(part)).collect();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    // A relative entry would run whatever lies in the present directory.
    let on_path = std::env::split_paths(&path).filter(|directory| directory.is_absolute());
    on_path.chain(SYSTEM_DIRECTORIES.iter().map(PathBuf::from)).chain(versioned_directories()).collect()
}

fn versioned_directories() -> impl Iterator<Item = PathBuf> {
    VERSIONED_DIRECTORIES.into_iter().flat_map(|(parent, beginning, below)| {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        let named = entries.filter(move |entry| entry.file_name().to_string_lossy().starts_with(beginning));
        named.map(move |entry| entry.path().join(below))
    })
}

/// The programs of these names, each once, however many links lead to it.
fn programs(directories: &[PathBuf], names: &[&str]) -> Vec<PathBuf> {
    let mut programs: Vec<PathBuf> = Vec::new();
    for name in names {
        for directory in directories {
            if let Ok(program) = directory.join(name).canonicalize()
                && program.is_file()
                && !programs.contains(&program)
            {
                programs.push(program);
            }
        }
    }
    programs
}

/// `10.11.19`, if the program says that it is MariaDB.
fn mariadb_version(program: &Path) -> Option<String> {
    parse_mariadb_version(&output(program, &["--no-defaults", "--version"])?)
}

/// `15.18`, if the program says that it is `PostgreSQL`.
fn postgres_version(program: &Path) -> Option<String> {
    parse_postgres_version(&output(program, &["--version"])?)
}

fn output(program: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn parse_mariadb_version(text: &str) -> Option<String> {
    let (_, after) = text.split_once("Ver ")?;
    let word = after.split_ascii_whitespace().next()?;
    let (version, rest) = word.split_once('-')?;
    rest.contains("MariaDB").then(|| version.to_owned())
}

fn parse_postgres_version(text: &str) -> Option<String> {
    let version = text.strip_prefix("postgres (PostgreSQL) ")?.split_ascii_whitespace().next()?;
    version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
}

fn version_numbers(version: &str) -> Vec<u32> {
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

/// `/usr` of `/usr/sbin/mariadbd`.
fn base_of(program: &Path) -> PathBuf {
    let base = program.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    base.to_owned()
}

fn install_program(kind: &Kind, server: &Path, base: &Path) -> Result<PathBuf, Error> {
    let directories: Vec<PathBuf> = kind.install_directories.iter().map(|part| base.join(part)).collect();
    programs(&directories, kind.install_names).into_iter().next().ok_or_else(|| Error::Program {
        program: server.to_owned(),
        reason: format!(
            "there is no {} under {}; {}",
            kind.install_names[0],
            base.display(),
            kind.how_to_get
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_mariadb_only() {
        let debian = "mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)\n";
        assert_eq!(parse_mariadb_version(debian).as_deref(), Some("10.11.19"));
        assert_eq!(
            parse_mariadb_version("/usr/sbin/mysqld  Ver 8.0.33 for Linux on x86_64 (MySQL Community)"),
            None
        );
        assert_eq!(parse_mariadb_version(""), None);
    }

    #[test]
    fn versions_are_read_from_postgres_only() {
        let debian = "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n";
        assert_eq!(parse_postgres_version(debian).as_deref(), Some("15.18"));
        assert_eq!(parse_postgres_version("postgres (PostgreSQL) 18.0\n").as_deref(), Some("18.0"));
        assert_eq!(parse_postgres_version("postgres (Other) 15.1\n"), None);
        assert_eq!(parse_postgres_version("psql (PostgreSQL) 15.18\n"), None);
    }

    #[test]
    fn newer_is_by_number_not_by_letter() {
        assert!(version_numbers("10.11.2") > version_numbers("10.6.19"));
        assert!(version_numbers("11.4.1") > version_numbers("10.11.19"));
    }

    #[test]
    fn a_missing_server_is_named_with_how_to_get_it() {
        let level: ServerLevel = "mariadb-99.9".parse().unwrap();
        let error = find(&level).unwrap_err().to_string();
        assert!(error.contains("mariadb-99.9") && error.contains("mariadb-server-core"), "{error}");
        let level: ServerLevel = "postgres-99.9".parse().unwrap();
        let error = find(&level).unwrap_err().to_string();
        assert!(error.contains("postgresql-15") && error.contains("postgres=/opt/pgsql"), "{error}");
        let empty = tempfile::tempdir().unwrap();
        let level =
            ServerLevel { directory: Some(empty.path().to_owned()), ..ServerLevel::of(Engine::MariaDb) };
        assert!(matches!(find(&level), Err(Error::ServerMissing { .. })));
    }
}
