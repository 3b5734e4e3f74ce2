use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use super::*;

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }

    /// `DIR` in the text is the directory.
    fn password(&self, text: &str) -> Option<String> {
        let text = text.replace("DIR", self.0.path().to_str().unwrap());
        let found = password(Engine::MariaDb, &self.0.path().join("my.cnf"), text.as_bytes());
        found.map(|password| String::from_utf8(password).unwrap())
    }
}

fn of(engine: Engine, text: &str) -> Option<String> {
    password(engine, Path::new("my.cnf"), text.as_bytes())
        .map(|password| String::from_utf8(password).unwrap())
}

#[test]
fn only_groups_of_all_clients_are_read() {
    let text = "[mysqld]\npassword=no\n[client]\nuser=a\npassword = \"a b\"\n[mysqldump]\npassword=no\n";
    assert_eq!(of(Engine::MariaDb, text).as_deref(), Some("a b"));
    for (group, mariadb, mysql) in [
        ("client", true, true),
        ("CLIENT", true, true),
        ("client-server", true, false),
        ("client-mariadb", true, false),
        ("mysql", false, false),
        ("mariadb", false, false),
        (" client", false, false),
    ] {
        let text = format!("[{group}] # a comment\npassword=x\n");
        assert_eq!(of(Engine::MariaDb, &text).is_some(), mariadb, "{group}");
        assert_eq!(of(Engine::MySql, &text).is_some(), mysql, "{group}");
    }
}

#[test]
fn the_last_setting_wins_whatever_it_is() {
    let of = |options: &str| of(Engine::MariaDb, &format!("[client]\n{options}\n"));
    assert_eq!(of("password=x\nloose-password=y").as_deref(), Some("y"));
    assert_eq!(of("password=x\n[client-server]\npass=y\n[client]\nuser=b").as_deref(), Some("y"));
    assert_eq!(of("password=x\nskip-password").as_deref(), Some(""));
    assert_eq!(of("password=x\npassword"), None, "the client asks");
    assert_eq!(of("password\npassword=x").as_deref(), Some("x"));
    assert_eq!(of("user=a"), None);
}

#[test]
fn a_file_that_the_clients_refuse_has_no_password() {
    for text in ["password=x", "[client]\npassword=x\n[oops\n", "[client]\npassword=x\n!include\n"] {
        assert_eq!(of(Engine::MariaDb, text), None, "{text}");
    }
}

#[test]
fn included_files_are_read_where_they_are_included() {
    let files = Files::new();
    files.write("one.cnf", "[client]\npassword=one\n[mysqld]\n", 0o600);
    files.write("bad.cnf", "[client]\npassword=bad\n[oops\n", 0o600);
    files.write("d/two.cnf", "[client-mariadb]\npassword=two\n", 0o600);
    files.write("d/no.ini", "[client]\npassword=no\n", 0o600);
    files.write("d/other.cnf", "[client]\nuser=a\n", 0o644);
    let of = |text: &str| files.password(text);
    assert_eq!(of("!include DIR/one.cnf\n").as_deref(), Some("one"));
    assert_eq!(of("[client]\n!include DIR/one.cnf\npassword=after\n").as_deref(), Some("after"));
    assert_eq!(of("[client]\npassword=before\n! include DIR/one.cnf\n").as_deref(), Some("one"));
    assert_eq!(of("[client]\npassword=before\n!include DIR/missing.cnf\n").as_deref(), Some("before"));
    assert_eq!(of("[client]\n!include DIR/bad.cnf\n").as_deref(), Some("bad"), "read up to the fault");
    assert_eq!(of("[client]\npassword=before\n!includedir DIR/d\n").as_deref(), Some("two"));
    assert_eq!(of("[client]\npassword=before\n!includedir DIR/missing\n"), None);
    assert_eq!(of("[client]\npassword=x\n!include DIR/one.cnf"), None, "the clients cut this path");
}

#[test]
fn no_password_is_taken_from_a_file_that_others_can_read_or_write() {
    let files = Files::new();
    files.write("read.cnf", "[client]\npassword=x\n", 0o644);
    files.write("write.cnf", "[client]\npassword=x\n", 0o666);
    let of = |text: &str| files.password(text);
    assert_eq!(of("[client]\npassword=y\n!include DIR/read.cnf\n"), None, "the client would use x");
    assert_eq!(of("[client]\npassword=y\n!include DIR/write.cnf\n").as_deref(), Some("y"));
}

#[test]
fn of_several_passwords_in_a_directory_none_is_guessed() {
    let files = Files::new();
    files.write("d/a.cnf", "[client]\npassword=x\n", 0o600);
    files.write("d/b.cnf", "[client]\npassword=x\n", 0o600);
    assert_eq!(files.password("!includedir DIR/d\n").as_deref(), Some("x"));
    files.write("d/c.cnf", "[client]\npassword=y\n", 0o600);
    assert_eq!(files.password("[client]\npassword=z\n!includedir DIR/d\n"), None);
}

#[test]
fn files_that_include_each_other_end() {
    let files = Files::new();
    let own = files.0.path().join("my.cnf").display().to_string();
    files.write("my.cnf", &format!("[client]\n!include {own}\npassword=x\n"), 0o600);
    assert_eq!(files.password("!include DIR/my.cnf\n").as_deref(), Some("x"));
}
