//! Encrypted clusters under Debian's `pg_createcluster` and `pg_ctlcluster`, and the unit for systemd.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ciphertoll_model::Engine;
use ciphertoll_tde::{PRELOAD_LIBRARY, looks_sealed};
use ciphertoll_testing::{missing, not_for_all};

use crate::support::{real_server_of, text};
use crate::tde::{QUESTION, Workspace};

const UNIT: &str = "ciphertoll-postgresql@.service";

/// A cluster that Debian's programs manage, in a private configuration directory. Stopped when it is dropped.
struct Cluster {
    workspace: Workspace,
    version: String,
}

impl Cluster {
    fn data(&self) -> PathBuf {
        self.workspace.work().join("data")
    }

    fn run(&self, line: &str) -> Output {
        self.workspace
            .shell(&format!("PG_CLUSTER_CONF_ROOT=\"$PWD/etc\"; export PG_CLUSTER_CONF_ROOT; {line}"))
    }

    #[track_caller]
    fn done(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// `pg_ctlcluster VERSION main ACTION`.
    fn control(&self, action: &str) -> Output {
        self.run(&format!("pg_ctlcluster {} main {action}", self.version))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.control("-m immediate stop");
    }
}

/// The newest version of Debian's packages.
fn packaged() -> Option<String> {
    Command::new("pg_createcluster").stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let versions = versions.filter(|version| version.path().join("bin/postgres").exists());
    let mut versions: Vec<u32> = versions.filter_map(|v| v.file_name().to_str()?.parse().ok()).collect();
    versions.sort_unstable();
    versions.pop().map(|version| version.to_string())
}

#[test]
fn debian_s_programs_create_start_stop_and_drop_an_encrypted_cluster() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let Some(version) = packaged() else {
        return missing("no pg_createcluster found; install it (Debian and Ubuntu: postgresql)");
    };
    let cluster = Cluster { workspace: Workspace::new(), version };
    let (data, library) = (cluster.data(), cluster.workspace.library());
    let (data, library) = (text(&data), text(&library));
    cluster.done("mkdir etc sockets");
    cluster.workspace.done("keygen kek", "");
    cluster.workspace.done("init -D data --key-file kek", "");
    cluster.done(&format!(
        "printf \"%s = '%s'\\n\" LD_PRELOAD {library} CIPHERTOLL_TDE_DATA {data} CIPHERTOLL_TDE_KEK_FILE \"$PWD/kek\" >environment"
    ));
    cluster.done(&format!(
        "../ciphertoll tde exec -D data --key-file kek -- pg_createcluster --environment=\"$PWD/environment\" -d {data} \
         -l \"$PWD/log\" -s \"$PWD/sockets\" --start-conf=manual -o listen_addresses= {} main -- --data-checksums",
        cluster.version
    ));
    assert!(looks_sealed(&fs::read(cluster.data().join("global/pg_control")).expect("pg_control")));

    let started = cluster.control("start");
    assert!(started.status.success(), "{started:?}");
    let ask = "psql -X -A -t -h \"$PWD/sockets\" -d postgres -c";
    cluster.done(&format!("{ask} 'CREATE TABLE t AS SELECT 42 AS answer'"));
    for action in ["restart", "reload", "status"] {
        let output = cluster.control(action);
        assert!(output.status.success(), "{action}: {output:?}");
    }
    assert_eq!(cluster.done(&format!("{ask} 'SELECT answer FROM t'")), "42");
    assert!(cluster.control("stop").status.success());

    // What pg_ctlcluster finds in its own environment it discards.
    let environment = format!("etc/{}/main/environment", cluster.version);
    cluster.done(&format!("mv {environment} kept && touch {environment}"));
    let alone = format!(
        "../ciphertoll tde exec -D data --key-file kek -- pg_ctlcluster {} main start",
        cluster.version
    );
    assert!(!cluster.run(&alone).status.success(), "an encrypted cluster started without the library");
    cluster.done(&format!("mv kept {environment}"));
    assert!(cluster.control("start").status.success());
    cluster.done(&format!("pg_dropcluster --stop {} main", cluster.version));
    assert!(!cluster.data().exists() && cluster.workspace.work().join("data.tde").exists());
}

/// The server's environment as systemd would make it of the unit, with a credential that only the server's user can read.
#[test]
fn the_unit_gives_the_server_its_key_as_a_credential() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(UNIT);
    let unit = fs::read_to_string(unit).expect("it is shipped");
    verify(&unit);
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let workspace = Workspace::new();
    workspace.done("keygen kek", "");
    workspace.done("init -D data --key-file kek", "");
    workspace.done("exec -D data --key-file kek -- initdb -D data --data-checksums", "");
    let moved = workspace.shell("mkdir credentials && mv kek credentials/kek && chmod 440 credentials/kek");
    assert!(moved.status.success(), "{moved:?}");

    let (data, credentials) = (workspace.work().join("data"), workspace.work().join("credentials"));
    let (data, credentials) = (text(&data), text(&credentials));
    let installed = format!("/usr/lib/ciphertoll/{PRELOAD_LIBRARY}");
    assert!(unit.contains(&installed) && unit.contains("LoadCredential=kek:"), "{unit}");
    let mut session = workspace.command(Path::new("postgres"));
    for line in unit.lines().filter_map(|line| line.strip_prefix("Environment=")) {
        let line = line.replace(&installed, text(&workspace.library()));
        let line = line.replace("/var/lib/postgresql/%i", data).replace("%d", credentials);
        let (name, value) = line.split_once('=').expect("a variable");
        session.env(name, value);
    }
    session.args(["--single", "-D", data, "template1"]);
    let output = Workspace::asks(session, QUESTION);
    let answer = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && answer.contains("answer = \"42\""), "{output:?}");
}

/// The unit with programs and users that every machine has.
fn verify(unit: &str) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("others may pass");
    let server = "/usr/lib/postgresql/15/bin/postgres";
    assert!(unit.contains(server), "{unit}");
    let here = directory.path().join(UNIT.replace('@', "@main"));
    fs::write(&here, unit.replace(server, "/bin/true").replace("=postgres\n", "=root\n")).expect("written");
    match Command::new("systemd-analyze").arg("verify").arg(&here).output() {
        Ok(output) => {
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(!told.contains("ciphertoll-postgresql"), "{told}");
        }
        Err(_) => not_for_all("systemd-analyze is not here: the unit is not verified"),
    }
}
