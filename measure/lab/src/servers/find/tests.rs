use super::*;

#[test]
fn a_missing_version_is_fetched_or_its_directory_named() {
    let advice = |level: &str| match missing(&level.parse().unwrap(), &[], &[]) {
        Error::ServerMissing { how_to_get, .. } => how_to_get,
        other => panic!("{other}"),
    };
    let fetched = "fetch it by `ciphertoll servers fetch postgres-16`, or name the directory of an installed one: postgres-16=DIR";
    assert_eq!(advice("postgres-16"), fetched);
    assert_eq!(advice("postgres-9"), "name the directory of an installed one: postgres-9=DIR");
    assert!(advice("postgres").contains("the package postgresql)"));
}

#[test]
fn a_fetchable_engine_needs_no_version() {
    let error =
        |level: &str, fetched: &[Candidate]| missing(&level.parse().unwrap(), &[], fetched).to_string();
    let ferretdb = "no ferretdb found; fetch it by `ciphertoll servers fetch ferretdb`, \
         or name the directory of a built server: ferretdb=/opt/ferretdb";
    assert_eq!(error("ferretdb", &[]), ferretdb);
    let fetched = [("/fetched".into(), "18.6".to_owned())];
    assert!(error("postgres", &fetched).contains("must be named with its version"));
    assert!(!error("mongodb", &[]).contains("fetch"), "not fetchable");
}

#[test]
fn the_level_of_each_build_selects_it() {
    for engine in Engine::ALL {
        let builds = installed(engine);
        assert!(builds.is_sorted_by_key(|build| Reverse(version_numbers(&build.version))));
        for build in builds {
            assert_eq!(find(&build.level()).unwrap(), build, "{}", build.level());
        }
        if let Ok(build) = find(&ServerLevel::of(engine)) {
            let is_fetched = build.origin() == Origin::Fetched;
            assert!(
                !is_fetched || can_be_fetched(&ServerLevel::of(engine)),
                "a fetched server must be named"
            );
        }
    }
}

#[test]
fn fetchable_servers_are_offered() {
    let error = |level: &str, fetched: &[Candidate]| {
        missing(&level.parse().unwrap(), &[("/usr".into(), "15.18".to_owned())], fetched).to_string()
    };
    let command = "`ciphertoll servers fetch postgres-18`";
    for level in ["postgres-18", "postgres-18.6", "new:postgres-18"] {
        assert!(error(level, &[]).contains(&format!("(only 15.18); fetch it by {command}")), "{level}");
    }
    for level in ["postgres-13", "postgres-18.6.1", "postgres-18=/opt", "mariadb-11.4"] {
        assert!(!error(level, &[]).contains("fetch"), "{level}");
    }
    #[cfg(target_arch = "x86_64")]
    {
        let bare = missing(&ServerLevel::of(Engine::MySql), &[], &[]).to_string();
        assert!(bare.contains("`ciphertoll servers fetch mysql-8.0` and use mysql-8.0"), "{bare}");
    }
    let bare = ServerLevel::of(Engine::Postgres);
    assert!(missing(&bare, &[], &[]).to_string().contains(command));
    let fetched = missing(&bare, &[], &[("/cache".into(), "18.6".to_owned())]).to_string();
    assert!(fetched.contains("except the fetched 18.6") && !fetched.contains(command), "{fetched}");
}

#[test]
fn the_error_for_a_missing_server_says_how_to_get_it() {
    let level: ServerLevel = "mariadb-99.9".parse().unwrap();
    let error = find(&level).unwrap_err().to_string();
    assert!(error.contains("mariadb-99.9") && error.contains("mariadb-99.9=DIR"), "{error}");
    let level: ServerLevel = "postgres-99.9".parse().unwrap();
    let error = find(&level).unwrap_err().to_string();
    assert!(error.contains("postgres-99.9=DIR") && !error.contains("postgresql"), "{error}");
    assert!(how_to_install(Engine::MariaDb).contains("mariadb-server-core"));
    let empty = tempfile::tempdir().unwrap();
    let level = ServerLevel { directory: Some(empty.path().to_owned()), ..ServerLevel::of(Engine::MariaDb) };
    assert!(matches!(find(&level), Err(Error::ServerMissing { .. })));
}
