//! Encryption at rest, verified by a search for written data in all files of real servers.

use std::time::{Duration, Instant};

use ciphertoll_host::accounting::CpuMeter;
use ciphertoll_lab::{Error, Server, Tables};
use ciphertoll_model::{AtRest, Auth, Engine, Storage};
use ciphertoll_record::is_mounted;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::fixture::{Fixture, Way, connect, scale};

/// The installed engines, each with a few rows.
fn fixtures() -> Vec<(Fixture, Tables)> {
    let of = |engine: Engine| {
        let few = Some(scale(500));
        let tables = match engine {
            Engine::MongoDb | Engine::FerretDb => Tables { ycsb: few, ..Tables::default() },
            _ => Tables { sysbench: few, ..Tables::default() },
        };
        Fixture::all(engine).into_iter().map(move |fixture| (fixture, tables))
    };
    Engine::ALL.into_iter().flat_map(of).collect()
}

fn mount_point(fixture: &Fixture) -> std::path::PathBuf {
    fixture.lab.scratch().path().join("t1/gate/clear")
}

#[test]
fn unencrypted_data_are_found() {
    for (fixture, tables) in fixtures() {
        let server = fixture.start_at_rest(&tables, AtRest::None, &[]).unwrap();
        let proof = server.prove_at_rest().unwrap();
        assert!(proof.files_with_marker > 0 && !proof.is_encrypted(), "{:?}: {proof:?}", fixture.build);
    }
}

#[test]
fn native_encryption_leaves_no_plaintext() {
    for (fixture, tables) in fixtures() {
        let Some(mut server) = fixture.start_at_rest(&tables, AtRest::Native, &[]) else { continue };
        server.prewarm().unwrap();
        let proof = server.prove_at_rest().unwrap();
        assert!(proof.is_encrypted() && proof.bytes > 1_000_000, "{:?}: {proof:?}", fixture.build);
        server.check_at_rest().unwrap();
        assert!(server.settings().values().all(|value| !value.contains("keys-password")));
    }
}

/// An unencrypted table, as a migration might leave it.
#[test]
fn an_unencrypted_table_is_reported() {
    for (fixture, tables) in fixtures() {
        let (settings, leak): (&[&str], &str) = match fixture.build.engine {
            // Not possible with FORCE.
            Engine::MariaDb => (&["mariadb.innodb_encrypt_tables=ON"], "ALTER TABLE sbtest1 ENCRYPTED = NO"),
            Engine::MySql => (&[], "ALTER TABLE sbtest1 ENCRYPTION = 'N'"),
            _ => continue,
        };
        let Some(mut server) = fixture.start_at_rest(&tables, AtRest::Native, settings) else { continue };
        server.check_at_rest().unwrap();
        let auth = Auth::default_of(fixture.build.engine);
        connect(&server, auth, Way::Unix).unwrap().execute(leak).unwrap();
        let error = server.check_at_rest().unwrap_err();
        assert!(matches!(error, Error::NotEncrypted(_)), "{error}");
        assert!(error.to_string().contains("sbtest/sbtest1"), "{error}");
    }
}

#[test]
fn an_unencrypted_log_is_reported() {
    for fixture in Fixture::all(Engine::MariaDb) {
        let off = ["mariadb.innodb_encrypt_log=OFF"];
        let Some(mut server) = fixture.start_at_rest(&Tables::default(), AtRest::Native, &off) else {
            continue;
        };
        let error = server.check_at_rest().unwrap_err().to_string();
        assert_eq!(error, "innodb_encrypt_log is OFF");
        let proof = server.prove_at_rest().unwrap();
        assert_eq!(proof.files_with_marker, 1, "the log has it: {proof:?}");
    }
}

#[test]
fn gocryptfs_leaves_no_plaintext_and_no_mount() {
    for (fixture, tables) in fixtures() {
        let Some(mut server) = fixture.start_at_rest(&tables, AtRest::Gocryptfs, &[]) else { continue };
        let mount = mount_point(&fixture);
        assert!(is_mounted(&mount).unwrap());
        server.prewarm().unwrap();
        let proof = server.prove_at_rest().unwrap();
        assert!(proof.is_encrypted() && proof.bytes > 100_000, "{:?}: {proof:?}", fixture.build);
        server.check_at_rest().unwrap();
        assert!(server.mount_cpu_meter().is_some());
        server.stop().unwrap();
        assert!(!is_mounted(&mount).unwrap() && !mount.exists());
    }
}

#[test]
fn a_killed_gocryptfs_is_reported_and_leaves_no_mount() {
    for fixture in Fixture::all(Engine::MariaDb).into_iter().chain(Fixture::all(Engine::Postgres)) {
        let tables = Tables { sysbench: Some(scale(500)), ..Tables::default() };
        let Some(mut server) = fixture.start_at_rest(&tables, AtRest::Gocryptfs, &[]) else { continue };
        let mount = mount_point(&fixture);
        let Some(CpuMeter::Process { pid }) = server.mount_cpu_meter() else { panic!("no process") };
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        let deadline = Instant::now() + Duration::from_mins(1);
        let error = loop {
            match server.check_at_rest() {
                Err(error) => break error.to_string(),
                Ok(()) => assert!(Instant::now() < deadline, "no error"),
            }
        };
        assert!(error.contains("gocryptfs ended") && error.contains("signal: 9"), "{error}");
        assert!(server.check_alive().is_err());
        drop::<Server>(server);
        assert!(!is_mounted(&mount).unwrap() && !mount.exists());
        // Another server can be started.
        let again = fixture.start_at_rest(&tables, AtRest::Gocryptfs, &[]).unwrap();
        assert!(again.prove_at_rest().unwrap().is_encrypted());
    }
}

/// Whether the image file contains this text.
fn has(image: &std::path::Path, wanted: &str) -> bool {
    // Most of it is zeros, which end lines here.
    let mut search = std::process::Command::new("grep");
    search
        .args(["--quiet", "--null-data", "--text", "--fixed-strings", wanted])
        .arg(image)
        .status()
        .unwrap()
        .success()
}

#[test]
fn fscrypt_leaves_no_plaintext_and_no_mount() {
    for (fixture, tables) in fixtures() {
        let Some(mut server) = fixture.start_at_rest(&tables, AtRest::Fscrypt, &[]) else { continue };
        let mount = mount_point(&fixture);
        assert!(is_mounted(&mount).unwrap());
        server.prewarm().unwrap();
        let proof = server.prove_at_rest().unwrap();
        assert!(proof.is_encrypted() && proof.bytes > 1_000_000, "{:?}: {proof:?}", fixture.build);
        server.check_at_rest().unwrap();
        let cipher = server.kernel_cipher().unwrap();
        assert!(cipher.contains("xts") && server.mount_cpu_meter().is_none(), "{cipher}");
        server.stop().unwrap();
        assert!(!is_mounted(&mount).unwrap() && !mount.exists());
    }
}

/// The search reads the image file, so it finds data outside the encrypted directory.
#[test]
fn data_outside_the_encrypted_directory_are_found() {
    let Some(fixture) = Fixture::all(Engine::Postgres).into_iter().next() else { return };
    let Some(server) = fixture.start_at_rest(&Tables::default(), AtRest::Fscrypt, &[]) else { return };
    let (inside, outside) = ("inside-4b1d7a9c-it", "outside-4b1d7a9c-it");
    std::fs::write(mount_point(&fixture).join("files/data/written"), inside).unwrap();
    std::fs::write(mount_point(&fixture).join("written"), outside).unwrap();
    assert!(server.prove_at_rest().unwrap().is_encrypted());
    let image = fixture.lab.scratch().path().join("t1/gate/cipher/image");
    assert!(has(&image, outside) && !has(&image, inside));
    assert!(!has(&image, "postgresql.conf") && has(&image, "lost+found"), "names are encrypted, too");
}

#[test]
fn a_removed_key_is_reported() {
    let Some(fixture) = Fixture::all(Engine::MariaDb).into_iter().next() else { return };
    let Some(mut server) = fixture.start_at_rest(&Tables::default(), AtRest::Fscrypt, &[]) else { return };
    let mount = mount_point(&fixture);
    let ask = |command: &str, path: &std::path::Path| {
        let mut asked = std::process::Command::new("xfs_io");
        String::from_utf8(asked.args(["-c", command]).arg(path).output().unwrap().stdout).unwrap()
    };
    let policy = ask("get_encpolicy", &mount.join("files"));
    let identifier = policy.lines().find_map(|line| line.trim().strip_prefix("Master key identifier: "));
    ask(&format!("rm_enckey {}", identifier.unwrap()), &mount);
    let error = server.check_at_rest().unwrap_err();
    assert!(matches!(&error, Error::NotEncrypted(text) if text.contains("Present")), "{error}");
    drop::<Server>(server);
    assert!(!is_mounted(&mount).unwrap() && !mount.exists());
}

#[test]
fn a_server_on_tmpfs_leaves_no_mount() {
    for mut fixture in Fixture::all(Engine::Postgres).into_iter().chain(Fixture::all(Engine::MariaDb)) {
        fixture.lab.store_servers_on(Storage::Tmpfs);
        for level in [AtRest::None, AtRest::Native, AtRest::Gocryptfs, AtRest::Fscrypt] {
            if level.impossible(fixture.build.engine).is_some() {
                continue;
            }
            let Some(server) = fixture.start_at_rest(&Tables::default(), level, &[]) else { continue };
            let memory = fixture.lab.scratch().path().join("t1");
            assert!(is_mounted(&memory).unwrap());
            assert_eq!(server.prove_at_rest().unwrap().is_encrypted(), level != AtRest::None, "{level}");
            server.stop().unwrap();
            assert!(!is_mounted(&memory).unwrap() && !memory.exists());
        }
    }
}

/// The error names the missing plugin and its directory.
#[test]
fn a_build_without_its_plugin_is_an_error() {
    let Some(mut fixture) = Fixture::all(Engine::MariaDb).into_iter().next() else { return };
    fixture.build.base_directory = "/nonexistent".into();
    let error = fixture
        .lab
        .template_at_rest(&fixture.build, &Tables::default(), AtRest::Native, &mut |_| {}, &|| false)
        .unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::AtRestUnavailable(_)), "{text}");
    assert!(text.contains("file_key_management.so is not in") && text.contains("mariadb-server"), "{text}");
}

fn tde(level: &str) -> AtRest {
    level.parse().expect("a level")
}

#[test]
fn page_encryption_leaves_no_plaintext_unless_it_has_no_cipher() {
    let tables = Tables { sysbench: Some(scale(500)), ..Tables::default() };
    for fixture in Fixture::all(Engine::Postgres) {
        for level in ["tde", "tde+target=portable", "tde+cipher=null"].map(tde) {
            let Some(mut server) = fixture.start_at_rest(&tables, level, &[]) else { continue };
            server.prewarm().unwrap();
            let proof = server.prove_at_rest().unwrap();
            assert_eq!(proof.is_encrypted(), level.encrypts(), "{level} {:?}: {proof:?}", fixture.build);
            assert!(proof.bytes > 1_000_000, "{level}: {proof:?}");
            server.check_at_rest().unwrap();
            assert!(server.mount_cpu_meter().is_none(), "its CPU is the server's");
            server.stop().unwrap();
        }
    }
}

/// The server process gets file names of keys only.
#[test]
fn no_key_is_in_arguments_or_environment() {
    for fixture in Fixture::all(Engine::Postgres) {
        let Some(server) = fixture.start_at_rest(&Tables::default(), tde("tde"), &[]) else { continue };
        let keys = fixture.lab.scratch().path().join("t1/keys");
        let kek = std::fs::read_to_string(keys.join("kek")).unwrap();
        let of = |what: &str| std::fs::read(format!("/proc/{}/{what}", server.pid())).unwrap_or_default();
        for text in [of("cmdline"), of("environ")].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()) {
            assert!(!text.contains(kek.trim()), "{text}");
        }
    }
}

/// As after a restart without the library.
#[test]
fn an_unencrypted_file_under_page_encryption_is_reported() {
    for fixture in Fixture::all(Engine::Postgres) {
        let Some(mut server) = fixture.start_at_rest(&Tables::default(), tde("tde"), &[]) else { continue };
        let map = fixture.lab.scratch().path().join("t1/data/global/pg_filenode.map");
        let sealed = std::fs::read(&map).unwrap();
        let mut clear = sealed.clone();
        clear[..4].copy_from_slice(&ciphertoll_tde::MAP_MAGIC);
        std::fs::write(&map, clear).unwrap();
        let error = server.check_at_rest().unwrap_err().to_string();
        assert_eq!(error, "global/pg_filenode.map is not encrypted");
        std::fs::write(&map, sealed).unwrap();
        server.check_at_rest().unwrap();
    }
}

#[test]
fn a_missing_library_is_an_error() {
    let Some(fixture) = Fixture::all(Engine::Postgres).into_iter().next() else { return };
    let place = tempfile::tempdir().unwrap();
    let helper = place.path().join("ciphertoll");
    let lab = ciphertoll_lab::Lab::open_in(
        helper.clone(),
        &place.path().join("scratch"),
        place.path().join("cache"),
    );
    let error = lab
        .unwrap()
        .template_at_rest(&fixture.build, &Tables::default(), tde("tde"), &mut |_| {}, &|| false)
        .unwrap_err();
    assert!(matches!(error, Error::AtRestUnavailable(_)), "{error}");
    let expected = format!("libciphertoll_tde_preload.so of {} is missing", helper.display());
    assert!(error.to_string().contains(&expected), "{error}");
}
