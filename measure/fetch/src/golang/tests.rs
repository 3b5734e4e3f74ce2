use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;

use ciphertoll_model::ExitCode;

use super::super::fetchable::FetchMethod;
use super::super::table::FETCHABLE;
use super::*;

const SUM: &str = "h1:sources";
const MODULE: GoModule = GoModule {
    path: "example.org/Server",
    version: "v1.2.3",
    sum: SUM,
    package: "./cmd/server",
    program: "server",
    added: ("build/version.txt", "v1.2.3"),
    bytes: 1,
    go: [1, 24],
    toolchain: Toolchain { version: "1.24.3", sum: Some("h1:toolchain"), bytes: 1 },
};

/// A cache, a fake module proxy, and a Go that fetches from it.
struct FetchFixture {
    directory: tempfile::TempDir,
}

impl FetchFixture {
    fn new() -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap() };
        let sources = place.path("module");
        fs::create_dir_all(sources.join("build")).unwrap();
        fs::write(sources.join("main.go"), "package main").unwrap();
        let distribution = place.path("toolchain");
        for part in ["bin", "src", "pkg/tool/here"] {
            fs::create_dir_all(distribution.join(part)).unwrap();
        }
        fs::write(distribution.join("src/_go.mod"), "module std").unwrap();
        fs::write(distribution.join("pkg/tool/here/compile"), "").unwrap();
        let script =
            format!("#!/bin/sh\nplace='{}'\n{FETCHES}\n{BUILDS}\n", place.directory.path().display());
        fs::write(distribution.join("bin/go"), script).unwrap();
        for directory in [&sources, &distribution] {
            read_only(directory);
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Fetches with a Go that runs these shell commands; `$1` is its command, `$place` the fake proxy.
    fn fetch(&self, lines: &str) -> Result<PathBuf, FetchError> {
        self.fetch_with_progress(lines, &mut |_| {})
    }

    fn fetch_with_progress(
        &self,
        lines: &str,
        progress: &mut dyn FnMut(&str),
    ) -> Result<PathBuf, FetchError> {
        let script = format!("place='{}'\n{lines}\n", self.directory.path().display());
        let arguments = ["-c", &script, "go"].map(OsString::from).to_vec();
        let client = || Ok(FetchClient { program: "/bin/sh".into(), arguments });
        FETCHABLE[0].fetch_into(&self.path("cache"), FetchMethod::Build(&MODULE), client, progress)
    }

    fn target(&self) -> PathBuf {
        self.path("cache").join("servers").join("postgres-18.6")
    }

    fn names(&self, part: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path("cache").join(part)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }
}

/// As in Go's module cache.
fn read_only(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_only(&path);
        } else {
            fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
        }
    }
    fs::set_permissions(directory, Permissions::from_mode(0o555)).unwrap();
}

/// The built program consists of its version and its source.
const BUILDS: &str = r#"[ "$1" = build ] && [ "$CGO_ENABLED" = 0 ] && cat build/version.txt main.go >"$5""#;
const RECENT: &str = "[ $1 = version ] && { echo go version go1.26.8 linux/amd64; exit; }";
const OLD: &str = "[ $1 = version ] && { echo go version go1.19.8 linux/amd64; exit; }";
const FETCHES: &str = r#"case "$*" in
"mod download -json example.org/Server@v1.2.3") echo "{\"Dir\": \"$place/module\", \"Sum\": \"h1:sources\"}"; exit;;
"mod download -json golang.org/toolchain@v0.0.1-go1.24.3.linux-"*)
    echo "{\"Dir\": \"$place/toolchain\", \"Sum\": \"h1:toolchain\"}"; exit;;
esac"#;

fn lines(parts: &[&str]) -> String {
    parts.join("\n")
}

#[test]
fn a_build_leaves_the_server_and_no_incomplete_files() {
    let place = FetchFixture::new();
    let mut reported = Vec::new();
    let target = place.fetch_with_progress(&lines(&[RECENT, FETCHES, BUILDS]), &mut |words| {
        reported.push(words.to_owned());
    });
    let target = target.unwrap();
    assert_eq!(target, place.target());
    let program = target.join("bin/server");
    assert_eq!(fs::read_to_string(&program).unwrap(), "v1.2.3package main");
    let metadata = fs::metadata(&program).unwrap();
    assert_eq!((metadata.mode() & 0o7777, metadata.mtime()), (0o755, 315_532_800));
    for directory in [&target, &target.join("bin")] {
        assert_eq!(fs::metadata(directory).unwrap().mode() & 0o777, 0o755);
    }
    assert_eq!(place.names("servers"), ["postgres-18.6"]);
    assert_eq!(place.names("downloads"), ["postgres-18.log"]);
    assert!(reported.iter().all(|words| words.starts_with("postgres-18: ")), "{reported:?}");
    assert!(reported.last().unwrap().contains("building it with go"), "{reported:?}");
    // An existing server is not built again.
    place.fetch("exit 1").unwrap();
}

#[test]
fn an_interrupted_build_is_repeated() {
    let place = FetchFixture::new();
    let killed = place.fetch(&lines(&[RECENT, FETCHES, r#"echo half >"$5"; kill -KILL $$"#]));
    assert!(matches!(killed, Err(FetchError::Download { step: "build", .. })), "{killed:?}");
    assert!(!place.target().exists());
    // Left by a Go process that outlived us.
    fs::create_dir_all(place.path("cache").join("servers").join("postgres-18.6.partial/bin")).unwrap();
    let target = place.fetch(&lines(&[RECENT, FETCHES, BUILDS])).unwrap();
    assert_eq!(fs::read_to_string(target.join("bin/server")).unwrap(), "v1.2.3package main");
    assert_eq!((place.names("servers").len(), place.names("downloads").len()), (1, 1));
}

#[test]
fn an_old_go_is_replaced_by_a_fetched_one() {
    let place = FetchFixture::new();
    let mut reported = Vec::new();
    // Only the newer one builds.
    let script = lines(&[OLD, FETCHES, "exit 1"]);
    let target = place.fetch_with_progress(&script, &mut |words| reported.push(words.to_owned())).unwrap();
    assert_eq!(fs::read_to_string(target.join("bin/server")).unwrap(), "v1.2.3package main");
    assert!(reported[0].contains("fetching Go 1.24.3"), "{reported:?}");
}

#[test]
fn sources_with_another_checksum_are_not_built() {
    let place = FetchFixture::new();
    let changed = FETCHES.replace("h1:sources", "h1:changed");
    let error = place.fetch(&lines(&[RECENT, &changed, BUILDS])).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("example.org/Server v1.2.3") && text.contains("h1:changed, expected h1:sources"),
        "{text}"
    );
    assert_eq!(error.exit_code(), ExitCode::HostResource);
    assert!(!place.target().exists());
    let changed = FETCHES.replace("h1:toolchain", "h1:changed");
    let error = place.fetch(&lines(&[OLD, &changed, BUILDS])).unwrap_err();
    assert!(
        matches!(&error, FetchError::ModuleChecksum { module, .. } if module.contains("toolchain")),
        "{error}"
    );
}

#[test]
fn the_error_of_a_failed_go_has_its_output() {
    let place = FetchFixture::new();
    for (script, said) in [
        (
            r#"echo '{"Error": "no such module"}'; exit 1"#,
            "cannot fetch postgres-18: go failed (exit status: 1): no such module",
        ),
        ("echo proxy: refused >&2; exit 1", "proxy: refused"),
        (
            &lines(&[FETCHES, "echo undefined: x >&2; exit 2"]),
            "cannot build postgres-18: go failed (exit status: 2): undefined: x",
        ),
    ] {
        let text = place.fetch(&lines(&[RECENT, script])).unwrap_err().to_string();
        assert!(text.contains(said) && text.contains("postgres-18.log"), "{text}");
    }
    assert!(!place.target().exists());
}

#[test]
fn the_version_of_go_is_parsed() {
    assert_eq!(version_of("go version go1.26.8 linux/amd64\n"), Some(vec![1, 26, 8]));
    assert_eq!(version_of("go version go1.19 linux/amd64"), Some(vec![1, 19]));
    assert_eq!(version_of("go version devel go1.27-abc Mon linux/amd64"), None);
    assert_eq!(version_of(""), None);
}
