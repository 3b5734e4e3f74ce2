//! Files that are encrypted, in truth: what is written into real servers is looked for in all that lies on the disk.

use std::time::{Duration, Instant};

use ciphertoll_lab::{Error, Server, Tables};
use ciphertoll_model::{AtRest, Auth, Engine};
use ciphertoll_record::is_mounted;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::stand::{Stand, Way, connect, scale};

/// The engines that there are on this machine, each with a few rows of its own.
fn stands() -> Vec<(Stand, Tables)> {
    let of = |engine: Engine| {
        let few = Some(scale(500));
        let tables = match engine {
            Engine::MongoDb | Engine::FerretDb => Tables { ycsb: few, ..Tables::default() },
            _ => Tables { sysbench: few, ..Tables::default() },
        };
        Stand::all(engine).into_iter().map(move |stand| (stand, tables))
    };
    Engine::ALL.into_iter().flat_map(of).collect()
}

fn mount_point(stand: &Stand) -> std::path::PathBuf {
    stand.lab.scratch().path().join("t1/gate/clear")
}

#[test]
fn what_is_written_in_the_clear_is_found() {
    for (stand, tables) in stands() {
        let server = stand.start_at_rest(&tables, AtRest::None, &[]).unwrap();
        let proof = server.prove_at_rest().unwrap();
        assert!(proof.files_with_marker > 0 && !proof.is_encrypted(), "{:?}: {proof:?}", stand.build);
    }
}

#[test]
fn a_servers_own_encryption_leaves_nothing_to_read() {
    for (stand, tables) in stands() {
        let Some(mut server) = stand.start_at_rest(&tables, AtRest::Native, &[]) else { continue };
        server.prewarm().unwrap();
        let proof = server.prove_at_rest().unwrap();
        assert!(proof.is_encrypted() && proof.bytes > 1_000_000, "{:?}: {proof:?}", stand.build);
        server.check_at_rest().unwrap();
        assert!(server.settings().values().all(|value| !value.contains("keys-password")));
    }
}

/// One table in the clear, as somebody's migration might leave it.
#[test]
fn a_table_in_the_clear_is_told() {
    for (stand, tables) in stands() {
        let (settings, leak): (&[&str], &str) = match stand.build.engine {
            // Under FORCE nobody can.
            Engine::MariaDb => (&["mariadb.innodb_encrypt_tables=ON"], "ALTER TABLE sbtest1 ENCRYPTED = NO"),
            Engine::MySql => (&[], "ALTER TABLE sbtest1 ENCRYPTION = 'N'"),
            _ => continue,
        };
        let Some(mut server) = stand.start_at_rest(&tables, AtRest::Native, settings) else { continue };
        server.check_at_rest().unwrap();
        let auth = Auth::default_of(stand.build.engine);
        connect(&server, auth, Way::Unix).unwrap().execute(leak).unwrap();
        let error = server.check_at_rest().unwrap_err();
        assert!(matches!(error, Error::NotEncrypted(_)), "{error}");
        assert!(error.to_string().contains("sbtest/sbtest1"), "{error}");
    }
}

#[test]
fn a_log_in_the_clear_is_told() {
    for stand in Stand::all(Engine::MariaDb) {
        let off = ["mariadb.innodb_encrypt_log=OFF"];
        let Some(mut server) = stand.start_at_rest(&Tables::default(), AtRest::Native, &off) else {
            continue;
        };
        let error = server.check_at_rest().unwrap_err().to_string();
        assert_eq!(error, "innodb_encrypt_log is OFF");
        let proof = server.prove_at_rest().unwrap();
        assert_eq!(proof.files_with_marker, 1, "the log has it: {proof:?}");
    }
}

#[test]
fn gocryptfs_leaves_nothing_to_read_and_nothing_mounted() {
    for (stand, tables) in stands() {
        let Some(mut server) = stand.start_at_rest(&tables, AtRest::Gocryptfs, &[]) else { continue };
        let mount = mount_point(&stand);
        assert!(is_mounted(&mount).unwrap());
        server.prewarm().unwrap();
        let proof = server.prove_at_rest().unwrap();
        assert!(proof.is_encrypted() && proof.bytes > 100_000, "{:?}: {proof:?}", stand.build);
        server.check_at_rest().unwrap();
        assert!(server.layer_cpu_meter().is_some());
        server.stop().unwrap();
        assert!(!is_mounted(&mount).unwrap() && !mount.exists());
    }
}

#[test]
fn a_killed_gocryptfs_is_told_and_leaves_nothing_mounted() {
    for stand in Stand::all(Engine::MariaDb).into_iter().chain(Stand::all(Engine::Postgres)) {
        let tables = Tables { sysbench: Some(scale(500)), ..Tables::default() };
        let Some(mut server) = stand.start_at_rest(&tables, AtRest::Gocryptfs, &[]) else { continue };
        let mount = mount_point(&stand);
        kill(Pid::from_raw(server.layer_pid().unwrap()), Signal::SIGKILL).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let error = loop {
            match server.check_at_rest() {
                Err(error) => break error.to_string(),
                Ok(()) => assert!(Instant::now() < deadline, "nobody noticed"),
            }
        };
        assert!(error.contains("gocryptfs ended") && error.contains("signal: 9"), "{error}");
        assert!(server.check_alive().is_err());
        drop::<Server>(server);
        assert!(!is_mounted(&mount).unwrap() && !mount.exists());
        // The next one is as good as the first.
        let again = stand.start_at_rest(&tables, AtRest::Gocryptfs, &[]).unwrap();
        assert!(again.prove_at_rest().unwrap().is_encrypted());
    }
}

/// It is the server that says why, and where its plugin would have to be.
#[test]
fn a_build_without_its_plugin_says_so() {
    let Some(mut stand) = Stand::all(Engine::MariaDb).into_iter().next() else { return };
    stand.build.base_directory = "/nonexistent".into();
    let error = stand
        .lab
        .template_at_rest(&stand.build, &Tables::default(), AtRest::Native, &mut |_| {}, &|| false)
        .unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::AtRestUnavailable(_)), "{text}");
    assert!(text.contains("file_key_management.so is not in") && text.contains("mariadb-server"), "{text}");
}
