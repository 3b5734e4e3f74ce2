use std::fs;

use super::*;
use crate::config::Config;

const INI: &str = "\
;; comment\n\
[databases]\n\
shop = host=db.example port=5433 dbname=shop pool_size=7\n\
\"my-till\" = host=db.example port=5433 pool_size=5 pool_mode=session connect_query='select ''x'''\n\
other = host=elsewhere user=baz password=hunter2\n\
* = host=db.example port=5433\n\
[users]\n\
reports = pool_mode=session max_user_connections=3\n\
[pgbouncer]\n\
listen_addr = localhost, ::1, db.example\n\
listen_port = 6433\n\
unix_socket_dir = /run/pg\n\
auth_type = md5\n\
pool_mode = transaction\n\
max_client_conn = 1000\n\
query_wait_timeout = 2.5\n\
server_idle_timeout = 0\n\
server_lifetime = 1200\n\
server_tls_sslmode = verify-full\n\
server_tls_ca_file = /etc/ca.pem\n\
admin_users = boss, root\n\
stats_users = stats\n\
ignore_startup_parameters = extra_float_digits\n\
server_reset_query = DISCARD ALL\n\
tcp_keepidle = 5\n\
nonsense = 1\n\
";
const USERS: &str = "\"app\" \"secret-1\"\n\"old\" \"md545f2603610af569b6155c45067268c6b\"\n\
    \"new\" \"SCRAM-SHA-256$4096:c2FsdA==$a:b\"\nnot a line\n\"quo\"\"ted\" \"x\" more\n";

fn import(ini: &str, users: &str, database: Option<&str>) -> Imported {
    let directory = tempfile::tempdir().unwrap();
    let (file, list) = (directory.path().join("pgbouncer.ini"), directory.path().join("userlist.txt"));
    fs::write(&file, ini).unwrap();
    fs::write(&list, users).unwrap();
    Imported::from_pgbouncer(&file, Some(&list), database).unwrap_or_else(|error| panic!("{error}"))
}

fn notes(imported: &Imported) -> String {
    imported.notes.iter().map(|note| note.to_string() + "\n").collect()
}

#[test]
fn settings_become_those_of_the_same_meaning() {
    let imported = import(INI, USERS, None);
    let config =
        Config::from_toml(&imported.toml).unwrap_or_else(|error| panic!("{error}: {}", imported.toml));
    let listen: Vec<String> = config.listen.iter().map(ToString::to_string).collect();
    assert_eq!(listen, ["unix:/run/pg/.s.PGSQL.6433", "tcp:127.0.0.1:6433", "tcp:[::1]:6433"]);
    let url = "postgres://app@db.example:5433/shop?sslrootcert=%2Fetc%2Fca.pem";
    assert_eq!(config.server.as_deref(), Some(url));
    let limits = toml::from_str::<toml::Table>(&imported.toml).unwrap()["limits"].clone();
    for (name, value) in [
        // 7 + 5, and 20 each for the other two.
        ("pool-size", "52"),
        ("max-clients", "1000"),
        ("queue-time", "\"2500ms\""),
        ("login-time", "\"1m\""),
        ("max-age", "\"20m\""),
        ("idle-time", "\"8760h\""),
    ] {
        assert_eq!(limits[name].to_string(), value, "{name}");
    }
    let users: Vec<&str> = config.user.iter().map(|user| user.name.as_str()).collect();
    assert_eq!(users, ["app", "old", "new", "quo\"ted", "reports", "boss", "root", "stats"]);
    let console = config.console.unwrap();
    assert_eq!(
        (console.admin_users.len(), console.stats_users, console.own_uid),
        (2, vec!["stats".to_owned()], true)
    );
}

#[test]
fn what_is_not_taken_over_is_named_with_the_reason() {
    let imported = import(INI, USERS, None);
    let notes = notes(&imported);
    for expected in [
        "not translated: listen_addr = db.example: only IP addresses are possible",
        "to do: user old: an md5 digest cannot be a password",
        "to do: user new: a SCRAM secret cannot be a password",
        "to do: user app: write its password to the file app.password",
        "to do: user boss: no password is known",
        "not needed: ignore_startup_parameters = extra_float_digits",
        "not translated: tcp_keepidle = 5",
        "not translated: nonsense: it is not a setting",
        "not translated: database other: it is on another server",
        "not translated: database my-till: connect_query: set it for the role",
        "not translated: database my-till: pool_mode = session: the mode is the same",
        "not translated: user reports: pool_mode = session: the mode is the same for all users",
        "not translated: server_idle_timeout = 0: there is a limit in any case",
    ] {
        assert!(notes.contains(expected), "{expected}\n{notes}");
    }
    for silent in ["server_reset_query", "pool_mode = transaction", "secret-1", "hunter2"] {
        assert!(!notes.contains(silent) && !imported.toml.contains("secret-1"), "{silent}\n{notes}");
    }
    assert!(imported.has_lost_settings());
}

#[test]
fn another_database_selects_its_server() {
    let other = import(INI, USERS, Some("other"));
    let config = Config::from_toml(&other.toml).unwrap();
    assert_eq!(
        config.server.as_deref(),
        Some("postgres://baz@elsewhere:5432/other?sslrootcert=%2Fetc%2Fca.pem")
    );
    assert!(notes(&other).contains("user baz: write its password") && !other.toml.contains("hunter2"));
    let fallback = import("[databases]\n* =\n[pgbouncer]\n", "", None);
    assert!(
        fallback.toml.contains("postgres://app@/?host=%2Ftmp&port=5432&sslmode=disable"),
        "{}",
        fallback.toml
    );
    let text = Imported::from_pgbouncer(Path::new("/nowhere/x.ini"), None, None)
        .map(|_| ())
        .unwrap_err()
        .to_string();
    assert!(text.starts_with("cannot read /nowhere/x.ini"), "{text}");
}

#[test]
fn includes_are_read_and_their_number_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    fs::write(file("more.ini"), "max_client_conn = 7\n").unwrap();
    fs::write(file("main.ini"), format!("[pgbouncer]\n%include {}\n", file("more.ini").display())).unwrap();
    let imported = Imported::from_pgbouncer(&file("main.ini"), None, None).unwrap();
    assert!(imported.toml.contains("max-clients = 7"), "{}", imported.toml);
    fs::write(file("loop.ini"), format!("%include {}\n", file("loop.ini").display())).unwrap();
    let error = Imported::from_pgbouncer(&file("loop.ini"), None, None).map(drop).unwrap_err().to_string();
    assert!(error.contains("too many files include each other"), "{error}");
    for (text, reason) in [
        ("x = 1\n", ":1: a setting comes before the first section"),
        ("[pgbouncer\n", ":1: a section ends with ]"),
        ("[pgbouncer]\nx\n", ":2: expected NAME = VALUE"),
        ("[databases]\na = host\n", ":2: expected a list of NAME=VALUE"),
        ("[databases]\na = host='x\n", ":2: expected a list of NAME=VALUE"),
    ] {
        fs::write(file("wrong.ini"), text).unwrap();
        let error =
            Imported::from_pgbouncer(&file("wrong.ini"), None, None).map(drop).unwrap_err().to_string();
        assert!(error.ends_with(reason), "{error}");
    }
}

#[test]
fn limits_of_users_and_databases_hosts_and_time_limits_are_translated() {
    let ini = "[databases]\nshop = host=db1,db2 max_db_connections=4\ntill = host=db1,db2\n\
        [users]\nreports = max_user_connections=3 max_user_client_connections=9 query_timeout=60\n\
        [pgbouncer]\nlisten_addr = localhost\nmax_db_client_connections = 70\nmax_user_connections = 500\n\
        idle_transaction_timeout = 30\nauth_user = auth\nauth_query = SELECT * FROM s.f($1)\n";
    let imported = import(ini, "\"app\" \"x\"\n", None);
    let config = Config::from_toml(&imported.toml).unwrap();
    let url = "postgres://app@db1:5432,db2:5432/shop?load_balance_hosts=random";
    assert_eq!(config.server.as_deref(), Some(url));
    let number = |value: Option<std::num::NonZeroUsize>| value.map(Into::into);
    let limits: Vec<(&str, Option<usize>, Option<usize>)> = config
        .database
        .iter()
        .map(|section| (section.name.as_str(), number(section.pool_size), number(section.max_clients)))
        .collect();
    assert_eq!(limits, [("shop", Some(4), Some(70)), ("till", None, Some(70))]);
    let user = |name: &str| config.user.iter().find(|user| user.name == name).unwrap();
    // A limit above that of all users has no effect.
    assert_eq!((number(user("app").pool_size), number(user("app").max_clients)), (Some(40), None));
    let reports = user("reports");
    assert_eq!((number(reports.pool_size), number(reports.max_clients)), (Some(3), Some(9)));
    assert_eq!(reports.query_time.map(|time| time.to_string()).as_deref(), Some("1m"));
    assert_eq!(config.limits.idle_transaction_time.map(|time| time.to_string()).as_deref(), Some("30s"));
    assert_eq!(config.limits.query_time, None);
    assert_eq!(config.auth_user.as_deref(), Some("auth"));
    assert!(user("auth").password_file.is_some());
    let lost: Vec<_> = imported.notes.iter().filter(|note| note.kind == NoteKind::Lost).collect();
    assert!(lost.iter().all(|note| note.to_string().contains("server_tls")), "{}", notes(&imported));
}

#[test]
fn nothing_that_is_imported_is_less_safe() {
    let ini = "[databases]\nshop = host=localhost,db2.example,127.db.example passwd=hunter2\n\
        [pgbouncer]\nlisten_addr = localhost\nadmin_users = ops.admin, ops_admin\n\
        auth_ldap_options = ldapbindpasswd=hunter3\n";
    let imported = import(ini, "\"app\" \"x\"\n", None);
    let config = Config::from_toml(&imported.toml).unwrap();
    assert!(!config.server.unwrap().contains("sslmode=disable"), "one of the hosts is not this machine");
    assert!(!notes(&imported).contains("hunter"), "{}", notes(&imported));
    let mut files: Vec<_> = config.user.iter().filter_map(|user| user.password_file.clone()).collect();
    files.sort();
    files.dedup();
    assert_eq!(files.len(), config.user.len(), "each user has a password of its own");
}

#[test]
fn every_setting_is_in_the_documentation() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sidecar/coming-from.md");
    let page = fs::read_to_string(path).unwrap();
    for (name, _) in [known::SETTINGS, known::OF_DATABASES, known::OF_USERS].concat() {
        assert!(page.contains(&format!("`{name}`")), "{name} is not documented");
    }
}

#[test]
fn every_default_is_that_of_a_known_setting() {
    for (name, _) in known::DEFAULTS {
        assert!(known::SETTINGS.iter().any(|(known, _)| known == name), "{name}");
    }
}
