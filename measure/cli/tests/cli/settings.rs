//! Named configurations in the plan and in the specification.

use std::fs;

use ciphertoll_model::Engine;

use crate::support::answer;
use crate::url::real_server;

#[test]
fn a_configuration_is_shown_by_its_name() {
    let place = tempfile::tempdir().expect("a directory");
    let text = "[mariadb]\ninnodb_flush_log_at_trx_commit = 2\nsql_mode = \"TRADITIONAL\"\n";
    fs::write(place.path().join("tuned.toml"), text).expect("a file");
    let asked = [
        "run",
        "--server",
        "mariadb",
        "--config",
        "tuned.toml",
        "--set",
        "mariadb.sql_mode=ANSI",
        "--seed",
        "7",
        "--dry-run",
    ];
    let plan = answer(&asked, place.path());
    assert_eq!(plan.code, Some(0), "{plan:?}");
    let said = "settings       tuned (mariadb.innodb_flush_log_at_trx_commit=2, mariadb.sql_mode=ANSI)";
    assert!(plan.stdout.contains(said), "{}", plan.stdout);
    let specification = answer(&[&asked[..], &["--format", "toml"]].concat(), place.path()).stdout;
    assert!(specification.contains("config = \"tuned\""), "{specification}");
    fs::write(place.path().join("again.toml"), specification).expect("a file");
    let again = answer(&["run", "again.toml", "--dry-run"], place.path());
    assert_eq!(again.stdout, plan.stdout);
}

#[test]
fn an_invalid_configuration_is_refused_with_its_name() {
    let place = tempfile::tempdir().expect("a directory");
    fs::write(place.path().join("port.toml"), "[mariadb]\nport = 3306\n").expect("a file");
    let refused = answer(&["run", "--server", "mariadb", "--config", "port.toml", "--dry-run"], place.path());
    assert_eq!(refused.code, Some(2), "{refused:?}");
    let line = refused.one_line();
    assert!(line.contains("port.toml") && line.contains("mariadb.port"), "{line}");
}

#[test]
fn an_unknown_setting_is_reported_with_the_servers_error_and_leaves_no_record() {
    for (engine, set, error) in [
        (
            Engine::Postgres,
            "postgres.shared_bufers=1GB",
            "unrecognized configuration parameter \"shared_bufers\"",
        ),
        (Engine::MariaDb, "mariadb.sql_moode=ANSI", "unknown variable 'sql_moode=ANSI'"),
    ] {
        if !real_server(engine) {
            continue;
        }
        let place = tempfile::tempdir().expect("a directory");
        let arguments =
            ["run", "--server", engine.label(), "--path", "plain", "--size", "smoke", "-q", "--set", set];
        let refused = answer(&arguments, place.path());
        assert_eq!(refused.code, Some(7), "{refused:?}");
        assert!(refused.one_line().contains(error), "{refused:?}");
        assert!(fs::read_dir(place.path()).expect("a directory").next().is_none(), "no record is made");
    }
}
