//! `import` of written configuration files and of the one in Debian's package of PgBouncer: what is printed passes `--check` when the passwords
//! are where it says.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Of Debian's package.
const INSTALLED: &str = "/etc/pgbouncer/pgbouncer.ini";

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ciphertoll-proxy"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Imports a file, and checks what was printed.
fn imports(file: &Path, userlist: &Path) -> String {
    let output = program().arg("import").arg(file).arg("--userlist").arg(userlist).output().expect("it runs");
    let notes = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{notes}");
    let directory = tempfile::tempdir().expect("a directory");
    let toml = text(&output.stdout);
    // The passwords, which each note asks for.
    for line in toml.lines() {
        if let Some(file) = line.strip_prefix("password-file = ") {
            let path = directory.path().join(file.trim_matches('"'));
            fs::write(&path, "a password\n").expect("ours to write");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours to change");
        }
    }
    let config = directory.path().join("proxy.toml");
    fs::write(&config, &toml).expect("ours to write");
    let Output { status, stderr, .. } =
        program().arg("--check").arg("--config").arg(&config).output().expect("it runs");
    assert!(status.success(), "{}\n{toml}", text(&stderr));
    notes
}

#[test]
fn a_written_configuration_passes_the_check() {
    let directory = tempfile::tempdir().expect("a directory");
    let (file, list) = (directory.path().join("pgbouncer.ini"), directory.path().join("userlist.txt"));
    fs::write(&list, "\"app\" \"secret\"\n\"md\" \"md545f2603610af569b6155c45067268c6b\"\n").expect("ours");
    for (databases, settings) in [
        ("shop = host=127.0.0.1 port=5433", "pool_mode = transaction\nlisten_addr = localhost"),
        ("* = host=/run/pg", "auth_type = scram-sha-256\nmin_pool_size = 3\nadmin_users = app"),
        ("* = host=db.example", "auth_type = trust\nserver_tls_sslmode = require\nunix_socket_dir = /run/x"),
        ("a = user=u password=p\n\"b c\" = dbname=d", "min_pool_size = 50\nserver_lifetime = 0"),
        ("", ""),
    ] {
        fs::write(&file, format!("[databases]\n{databases}\n[pgbouncer]\n{settings}\n")).expect("ours");
        let notes = imports(&file, &list);
        assert!(notes.contains("app.password") && !notes.contains("secret\n"), "{notes}");
    }
}

#[test]
fn a_strict_import_fails_if_something_is_lost() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("pgbouncer.ini");
    let run = |settings: &str| {
        fs::write(&file, format!("[databases]\n* = host=127.0.0.1\n[pgbouncer]\n{settings}\n"))
            .expect("ours");
        let output = program().arg("import").arg(&file).arg("--strict").output().expect("it runs");
        assert!(!output.stdout.is_empty());
        output.status.code()
    };
    assert_eq!(run("server_tls_sslmode = disable\nlogfile = /x\nserver_round_robin = 0"), Some(0));
    assert_eq!(run("server_tls_sslmode = disable\nserver_round_robin = 1"), Some(6));
    let output = program().args(["import", "/nowhere.ini"]).output().expect("it runs");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
}

#[test]
fn the_shipped_example_is_imported() {
    let all = match fs::read_to_string(INSTALLED) {
        Ok(all) => all,
        // Debian's package lets only root and postgres read it.
        Err(error) => return ciphertoll_testing::missing(&format!("{INSTALLED}: {error}")),
    };
    let list = Path::new("/etc/pgbouncer/userlist.txt");
    imports(Path::new(INSTALLED), list);
    // All commented-out settings are included, except lines that only show where a value would be.
    let is_example = |line: &&str| !line.contains('<') && !line.contains("%include");
    let uncommented = all.lines().filter(is_example).map(|line| match line.strip_prefix(';') {
        Some(setting) if setting.starts_with(|at: char| at.is_ascii_lowercase() || at == '*') => setting,
        _ => line,
    });
    let directory = tempfile::tempdir().expect("a directory");
    let whole = directory.path().join("all.ini");
    let text: String =
        uncommented.filter(|line| *line != "conffile").map(|line| line.to_owned() + "\n").collect();
    fs::write(&whole, text).expect("ours to write");
    let notes = imports(&whole, list);
    assert!(!notes.contains("is not a setting of PgBouncer"), "{notes}");
}
