//! Builds of servers on this machine: where they are, and which version they say they are.

use std::cmp::Reverse;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use ciphertoll_model::{Engine, ServerLevel};

use crate::error::Error;
use crate::fetch::{self, FETCHABLE, Fetchable};

const HOW_TO_GET_MARIADB: &str = "install it (Debian and Ubuntu: the package mariadb-server-core) \
     or name its directory: mariadb=/opt/mariadb";
const HOW_TO_GET_POSTGRES: &str = "install it (Debian and Ubuntu: the package postgresql) \
     or name its directory: postgres=/opt/pgsql";
const HOW_TO_GET_MYSQL: &str = "name the directory of one that was unpacked: mysql=/opt/mysql";
const HOW_TO_GET_MONGODB: &str = "install it from where its makers have it, or name the directory of one that was \
     unpacked: mongodb=/opt/mongodb";
const HOW_TO_GET_FERRETDB: &str = "name the directory of one that was built: ferretdb=/opt/ferretdb";
const MARIADB_NAMES: [&str; 2] = ["mariadbd", "mysqld"];
const MARIADB_INSTALL_NAMES: [&str; 2] = ["mariadb-install-db", "mysql_install_db"];
const MYSQL_NAMES: [&str; 1] = ["mysqld"];
const POSTGRES_NAMES: [&str; 1] = ["postgres"];
const MONGODB_NAMES: [&str; 1] = ["mongod"];
const FERRETDB_NAMES: [&str; 1] = ["ferretdb"];
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
    /// What makes an empty data directory; the server, where that does it by itself.
    pub install_program: PathBuf,
    /// What it was installed under: `/usr`.
    pub base_directory: PathBuf,
}

/// How builds of one engine are recognised.
struct Kind {
    server_names: &'static [&'static str],
    /// None where the server makes its data directory by itself.
    install_names: &'static [&'static str],
    /// Directories of the installer, below what the server is installed under.
    install_directories: &'static [&'static str],
    version: fn(&Path) -> Option<String>,
    /// Parts of a version that name a series: `10.11`, `18`.
    series_parts: usize,
    how_to_get: &'static str,
}

const MARIADB: Kind = Kind {
    server_names: &MARIADB_NAMES,
    install_names: &MARIADB_INSTALL_NAMES,
    install_directories: &["bin", "scripts", "sbin"],
    version: mariadb_version,
    series_parts: 2,
    how_to_get: HOW_TO_GET_MARIADB,
};

const MYSQL: Kind = Kind {
    server_names: &MYSQL_NAMES,
    install_names: &[],
    install_directories: &[],
    version: mysql_version,
    series_parts: 2,
    how_to_get: HOW_TO_GET_MYSQL,
};

const POSTGRES: Kind = Kind {
    server_names: &POSTGRES_NAMES,
    install_names: &POSTGRES_INSTALL_NAMES,
    install_directories: &["bin"],
    version: postgres_version,
    series_parts: 1,
    how_to_get: HOW_TO_GET_POSTGRES,
};

const MONGODB: Kind = Kind {
    server_names: &MONGODB_NAMES,
    install_names: &[],
    install_directories: &[],
    version: mongodb_version,
    series_parts: 2,
    how_to_get: HOW_TO_GET_MONGODB,
};

const FERRETDB: Kind = Kind {
    server_names: &FERRETDB_NAMES,
    install_names: &[],
    install_directories: &[],
    version: ferretdb_version,
    series_parts: 2,
    how_to_get: HOW_TO_GET_FERRETDB,
};

/// Where a build came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Somebody installed it.
    Installed,
    /// [`crate::fetch`] did.
    Fetched,
}

impl Build {
    /// Where it came from.
    pub fn origin(&self) -> Origin {
        if fetch::is_fetched(&self.server_program) { Origin::Fetched } else { Origin::Installed }
    }

    /// The shortest level with a version that finds this build and no other: `postgres-18`.
    pub fn level(&self) -> ServerLevel {
        let series: Vec<&str> = self.version.split('.').take(kind(self.engine).series_parts).collect();
        let of =
            |version: &str| ServerLevel { version: Some(version.to_owned()), ..ServerLevel::of(self.engine) };
        let levels = [of(&series.join(".")), of(&self.version)];
        let finds_this = |level: &ServerLevel| find(level).is_ok_and(|found| found == *self);
        levels.into_iter().find(finds_this).unwrap_or_else(|| ServerLevel {
            directory: Some(self.base_directory.clone()),
            ..ServerLevel::of(self.engine)
        })
    }

    /// The TLS library that the program names: `OpenSSL 3`. None where it names none that we know, as then
    /// only the running server can tell.
    pub fn tls_library(&self) -> Option<String> {
        /// Symbols apart, no server is larger.
        const MAX_BYTES: u64 = 256 << 20;
        let mut program = Vec::new();
        fs::File::open(&self.server_program).ok()?.take(MAX_BYTES).read_to_end(&mut program).ok()?;
        match self.engine {
            Engine::FerretDb => go_version_in(&program).map(|version| format!("Go {version} crypto/tls")),
            _ => tls_library_in(&program),
        }
    }
}

/// The newest build that is what `level` asks for. One that was fetched counts only where a version is
/// asked for that nobody installed: what is fetched must not change what `postgres` means. Of an engine that
/// is fetched without a version, any counts.
pub fn find(level: &ServerLevel) -> Result<Build, Error> {
    let kind = kind(level.engine);
    let installed = candidates(kind, &directories(level.directory.as_deref()));
    let fetched = match level.directory {
        None => candidates(kind, &fetched_directories()),
        Some(_) => Vec::new(),
    };
    let newest =
        newest(level, &installed).or_else(|| newest(level, &fetched).filter(|_| means_fetched(level)));
    match newest {
        Some(candidate) => build(level.engine, candidate.clone()),
        // To fetch it again would help nobody.
        None => Err(match Fetchable::for_level(level).filter(|one| means_fetched(level) && one.is_here()) {
            Some(broken) => broken.does_not_run(),
            None => missing(level, &installed, &fetched),
        }),
    }
}

/// Every build of `engine` that a level without a directory can ask for, the newest first.
pub fn installed(engine: Engine) -> Vec<Build> {
    let places: Vec<PathBuf> = directories(None).into_iter().chain(fetched_directories()).collect();
    let candidates = candidates(kind(engine), &places).into_iter();
    // One without its installer cannot be started.
    let mut builds: Vec<Build> = candidates.filter_map(|candidate| build(engine, candidate).ok()).collect();
    builds.sort_by_cached_key(|build| Reverse(version_numbers(&build.version)));
    builds
}

/// How somebody gets a server of `engine` by hand.
pub fn how_to_install(engine: Engine) -> &'static str {
    kind(engine).how_to_get
}

/// A server and the version that it says it is.
type Candidate = (PathBuf, String);

fn kind(engine: Engine) -> &'static Kind {
    match engine {
        Engine::MariaDb => &MARIADB,
        Engine::MySql => &MYSQL,
        Engine::Postgres => &POSTGRES,
        Engine::MongoDb => &MONGODB,
        Engine::FerretDb => &FERRETDB,
    }
}

fn candidates(kind: &Kind, directories: &[PathBuf]) -> Vec<Candidate> {
    programs(directories, kind.server_names)
        .into_iter()
        .filter_map(|program| (kind.version)(&program).map(|version| (program, version)))
        .collect()
}

fn newest<'found>(level: &ServerLevel, candidates: &'found [Candidate]) -> Option<&'found Candidate> {
    let accepted = candidates.iter().filter(|(_, version)| level.accepts_version(version));
    accepted.max_by_key(|(_, version)| version_numbers(version))
}

fn build(engine: Engine, (server_program, version): Candidate) -> Result<Build, Error> {
    let base_directory = base_of(&server_program);
    let install_program = install_program(kind(engine), &server_program, &base_directory)?;
    Ok(Build { engine, version, server_program, install_program, base_directory })
}

fn missing(level: &ServerLevel, installed: &[Candidate], fetched: &[Candidate]) -> Error {
    let versions = |candidates: &[Candidate]| {
        candidates.iter().map(|(_, version)| version.clone()).collect::<Vec<_>>().join(", ")
    };
    let found = match (installed, fetched) {
        ([], []) => String::new(),
        ([], fetched) if !means_fetched(level) => {
            format!(" but {}, fetched, which must be asked for with the version", versions(fetched))
        }
        _ => format!(" (only {})", versions(&[installed, fetched].concat())),
    };
    let by_hand = match &level.version {
        // A distribution's package has one version, and seldom this one.
        Some(version) => format!("name the directory of one: {0}-{version}=DIR", level.engine),
        None => kind(level.engine).how_to_get.to_owned(),
    };
    let how_to_get = match Fetchable::for_level(level) {
        Some(Fetchable { name, .. }) if means_fetched(level) => {
            format!("fetch it by `ciphertoll servers fetch {name}`, or {by_hand}")
        }
        Some(Fetchable { name, .. }) if fetched.is_empty() => {
            format!("{by_hand}, or fetch one by `ciphertoll servers fetch {name}` and ask for {name}")
        }
        _ => by_hand,
    };
    Error::ServerMissing { wanted: level.to_string(), found, how_to_get }
}

/// Whether a build that was fetched can be what the level asks for.
fn means_fetched(level: &ServerLevel) -> bool {
    level.version.is_some() || FETCHABLE.iter().any(|one| one.name == level.engine.label())
}

fn fetched_directories() -> Vec<PathBuf> {
    fetch::directories().iter().map(|directory| directory.join("bin")).collect()
}

/// What a program is linked to has its name in it, and so has what was linked into it.
fn tls_library_in(program: &[u8]) -> Option<String> {
    const SHARED_OPENSSL: &str = "libssl.so.";
    if let Some(version) = digits_after(program, SHARED_OPENSSL) {
        return Some(format!("OpenSSL {version}"));
    }
    if let Some(version) =
        digits_after(program, "wolfSSL ").or_else(|| digits_after(program, "libwolfssl.so."))
    {
        return Some(format!("wolfSSL {version}"));
    }
    digits_after(program, "OpenSSL ").map(|version| format!("OpenSSL {version}"))
}

/// The Go that it was built with: behind a mark and a header, with its length in front.
fn go_version_in(program: &[u8]) -> Option<String> {
    const MARK: &[u8] = b"\xff Go buildinf:";
    const HEADER_BYTES: usize = 32;
    const BEGINNING: &str = "go1.";
    let mut marks = program.windows(MARK.len()).enumerate().filter(|(_, window)| *window == MARK);
    marks.find_map(|(start, _)| {
        let (length, text) = program.get(start + HEADER_BYTES..)?.split_first()?;
        let version = std::str::from_utf8(text.get(..usize::from(*length))?).ok()?;
        let version = version.split_ascii_whitespace().next()?;
        version.starts_with(BEGINNING).then(|| version.trim_start_matches("go").to_owned())
    })
}

/// The number, perhaps with dots, after the first `name` that has one.
fn digits_after(program: &[u8], name: &str) -> Option<String> {
    const LONGEST: usize = 12;
    let name = name.as_bytes();
    let after = program.windows(name.len()).enumerate().filter(|(_, window)| *window == name);
    after.map(|(start, _)| &program[start + name.len()..]).find_map(|rest| {
        let part = |byte: &&u8| byte.is_ascii_digit() || **byte == b'.';
        let number: String =
            rest.iter().take(LONGEST).take_while(part).map(|byte| char::from(*byte)).collect();
        number
            .starts_with(|first: char| first.is_ascii_digit())
            .then(|| number.trim_end_matches('.').to_owned())
    })
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

/// `8.0.33`, if the program says that it is a MySQL and not MariaDB.
fn mysql_version(program: &Path) -> Option<String> {
    parse_mysql_version(&output(program, &["--no-defaults", "--version"])?)
}

/// `15.18`, if the program says that it is `PostgreSQL`.
fn postgres_version(program: &Path) -> Option<String> {
    parse_postgres_version(&output(program, &["--version"])?)
}

/// `7.0.14`
fn mongodb_version(program: &Path) -> Option<String> {
    parse_mongodb_version(&output(program, &["--version"])?)
}

/// `1.24.2`; later ones are none of ours.
fn ferretdb_version(program: &Path) -> Option<String> {
    parse_ferretdb_version(&output(program, &["--version"])?)
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

fn parse_mysql_version(text: &str) -> Option<String> {
    let (_, after) = text.split_once("Ver ")?;
    let word = after.split_ascii_whitespace().next()?;
    // What packagers add comes after a dash.
    let version = word.split_once('-').map_or(word, |(version, _)| version);
    let is_version = version.starts_with(|first: char| first.is_ascii_digit());
    (is_version && !text.contains("MariaDB")).then(|| version.to_owned())
}

fn parse_mongodb_version(text: &str) -> Option<String> {
    let version = text.strip_prefix("db version v")?.split_ascii_whitespace().next()?;
    version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
}

/// From version 2 on it keeps nothing itself, but is a face of a `PostgreSQL` with extensions.
fn parse_ferretdb_version(text: &str) -> Option<String> {
    const OURS: &str = "1.";
    let version = text.lines().find_map(|line| line.strip_prefix("version: v"))?.trim();
    version.starts_with(OURS).then(|| version.to_owned())
}

fn parse_postgres_version(text: &str) -> Option<String> {
    let version = text.strip_prefix("postgres (PostgreSQL) ")?.split_ascii_whitespace().next()?;
    version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
}

pub(crate) fn version_numbers(version: &str) -> Vec<u32> {
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

/// `/usr` of `/usr/sbin/mariadbd`.
fn base_of(program: &Path) -> PathBuf {
    let base = program.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    base.to_owned()
}

fn install_program(kind: &Kind, server: &Path, base: &Path) -> Result<PathBuf, Error> {
    if kind.install_names.is_empty() {
        return Ok(server.to_owned());
    }
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
    fn a_version_that_is_not_here_is_fetched_or_named_and_no_other_is_advised() {
        let advice = |level: &str| match missing(&level.parse().unwrap(), &[], &[]) {
            Error::ServerMissing { how_to_get, .. } => how_to_get,
            other => panic!("{other}"),
        };
        let fetched = "fetch it by `ciphertoll servers fetch postgres-16`, or name the directory of one: postgres-16=DIR";
        assert_eq!(advice("postgres-16"), fetched);
        assert_eq!(advice("postgres-9"), "name the directory of one: postgres-9=DIR");
        assert!(advice("postgres").contains("the package postgresql)"));
    }

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
    fn versions_are_read_from_mysqls_only() {
        let of = |text: &str| parse_mysql_version(text);
        let oracles = "/usr/sbin/mysqld  Ver 8.0.33 for Linux on x86_64 (MySQL Community Server - GPL)\n";
        assert_eq!(of(oracles).as_deref(), Some("8.0.33"));
        let ubuntus = "/usr/sbin/mysqld  Ver 8.0.46-0ubuntu0.22.04.1 for Linux on x86_64 ((Ubuntu))\n";
        assert_eq!(of(ubuntus).as_deref(), Some("8.0.46"));
        assert_eq!(of("mysqld  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64\n"), None);
        assert_eq!(of(""), None);
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
    fn versions_are_read_from_servers_of_documents() {
        assert_eq!(parse_mongodb_version("db version v7.0.14\nBuild Info: {").as_deref(), Some("7.0.14"));
        assert_eq!(parse_mongodb_version("mongosh 2.3"), None);
        assert_eq!(parse_ferretdb_version("version: v1.24.2\ncommit: unknown\n").as_deref(), Some("1.24.2"));
        // That one needs a PostgreSQL of its own.
        assert_eq!(parse_ferretdb_version("version: v2.1.0\n"), None);
        assert_eq!(parse_ferretdb_version("version: unknown\n"), None);
    }

    #[test]
    fn an_engine_that_is_fetched_needs_no_version() {
        let said =
            |level: &str, fetched: &[Candidate]| missing(&level.parse().unwrap(), &[], fetched).to_string();
        let ferretdb = "no ferretdb found; fetch it by `ciphertoll servers fetch ferretdb`, \
             or name the directory of one that was built: ferretdb=/opt/ferretdb";
        assert_eq!(said("ferretdb", &[]), ferretdb);
        let fetched = [("/fetched".into(), "18.6".to_owned())];
        assert!(said("postgres", &fetched).contains("must be asked for with the version"));
        assert!(!said("mongodb", &[]).contains("fetch"), "there is none");
    }

    #[test]
    fn newer_is_by_number_not_by_letter() {
        assert!(version_numbers("10.11.2") > version_numbers("10.6.19"));
        assert!(version_numbers("11.4.1") > version_numbers("10.11.19"));
    }

    #[test]
    fn the_tls_library_is_the_one_that_the_program_names() {
        let of = |text: &str| tls_library_in(text.as_bytes());
        assert_eq!(of("\0libz.so.1\0libssl.so.3\0OpenSSL 3.0.2 15 Mar 2022").as_deref(), Some("OpenSSL 3"));
        assert_eq!(of("libssl.so.1.1\0").as_deref(), Some("OpenSSL 1.1"));
        assert_eq!(of("wolfSSL error\0wolfSSL 5.7.2\0OpenSSL 1.1").as_deref(), Some("wolfSSL 5.7.2"));
        assert_eq!(of("needs OpenSSL or\0OpenSSL 3.0.2 15").as_deref(), Some("OpenSSL 3.0.2"));
        assert_eq!(of("libssl.so.x OpenSSL").as_deref(), None);
        let go =
            [b"OpenSSL 1\xff Go buildinf:\x08\x02" as &[u8], &[0; 16], b"\x08go1.26.8", b"\0mod"].concat();
        assert_eq!(go_version_in(&go).as_deref(), Some("1.26.8"));
        assert_eq!(go_version_in(&go[..go.len() - 6]), None);
    }

    #[test]
    fn every_build_found_is_asked_for_by_its_level() {
        for engine in Engine::ALL {
            let builds = installed(engine);
            assert!(builds.is_sorted_by_key(|build| Reverse(version_numbers(&build.version))));
            for build in builds {
                assert_eq!(find(&build.level()).unwrap(), build, "{}", build.level());
            }
            if let Ok(build) = find(&ServerLevel::of(engine)) {
                let is_fetched = build.origin() == Origin::Fetched;
                assert!(
                    !is_fetched || means_fetched(&ServerLevel::of(engine)),
                    "what is fetched must be asked for"
                );
            }
        }
    }

    #[test]
    fn what_can_be_fetched_is_offered() {
        let told = |level: &str, fetched: &[Candidate]| {
            missing(&level.parse().unwrap(), &[("/usr".into(), "15.18".to_owned())], fetched).to_string()
        };
        let command = "`ciphertoll servers fetch postgres-18`";
        for level in ["postgres-18", "postgres-18.6", "new:postgres-18"] {
            assert!(told(level, &[]).contains(&format!("(only 15.18); fetch it by {command}")), "{level}");
        }
        for level in ["postgres-13", "postgres-18.6.1", "postgres-18=/opt", "mariadb-11.4"] {
            assert!(!told(level, &[]).contains("fetch"), "{level}");
        }
        #[cfg(target_arch = "x86_64")]
        {
            let bare = missing(&ServerLevel::of(Engine::MySql), &[], &[]).to_string();
            assert!(bare.contains("`ciphertoll servers fetch mysql-8.0` and ask for mysql-8.0"), "{bare}");
        }
        let bare = ServerLevel::of(Engine::Postgres);
        assert!(missing(&bare, &[], &[]).to_string().contains(command));
        let fetched = missing(&bare, &[], &[("/cache".into(), "18.6".to_owned())]).to_string();
        assert!(fetched.contains("but 18.6, fetched") && !fetched.contains(command), "{fetched}");
    }

    #[test]
    fn a_missing_server_is_named_with_how_to_get_it() {
        let level: ServerLevel = "mariadb-99.9".parse().unwrap();
        let error = find(&level).unwrap_err().to_string();
        assert!(error.contains("mariadb-99.9") && error.contains("mariadb-99.9=DIR"), "{error}");
        let level: ServerLevel = "postgres-99.9".parse().unwrap();
        let error = find(&level).unwrap_err().to_string();
        assert!(error.contains("postgres-99.9=DIR") && !error.contains("postgresql"), "{error}");
        assert!(how_to_install(Engine::MariaDb).contains("mariadb-server-core"));
        let empty = tempfile::tempdir().unwrap();
        let level =
            ServerLevel { directory: Some(empty.path().to_owned()), ..ServerLevel::of(Engine::MariaDb) };
        assert!(matches!(find(&level), Err(Error::ServerMissing { .. })));
    }
}
