use std::time::Duration;

use ciphertoll_proxy::{Level, Resolved};

use super::*;

fn only(resolved: ResolvedServers) -> Resolved {
    resolved.servers.into_iter().next().unwrap().resolved
}

#[test]
fn the_command_line_is_valid() {
    Arguments::command().debug_assert();
}

#[test]
fn help_covers_every_protocol() {
    let help = Arguments::command().render_long_help().to_string();
    for word in ["PostgreSQL", "MySQL", "MariaDB", "mysql://", "MYSQL_PWD", "ssl-ca", "mysqld.sock"] {
        assert!(help.contains(word), "{word}: {help}");
    }
}

#[test]
fn listen_and_server_are_enough_and_so_is_a_config_file() {
    let two = ["x", "--listen", "unix:/x", "--server", "postgres://a@h/?sslmode=disable"];
    let resolved = only(CommandLine::parse(two).unwrap().load().unwrap());
    assert_eq!(resolved.settings.limits, ciphertoll_proxy::Limits::default());
    assert!(CommandLine::parse(["x", "--config", "/x.toml"]).is_ok());
    assert!(CommandLine::parse(&two[..3]).is_err());
    assert!(CommandLine::parse(["x", "schema"]).is_ok());
    assert!(CommandLine::parse(["x", "status"]).is_err());
    assert!(CommandLine::parse(["x", "status", "--admin", "unix:/x"]).is_ok());
}

#[test]
fn flags_take_precedence_over_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("proxy.toml");
    let text = "listen = \"unix:/x\"\nserver = \"postgres://a@h/?sslmode=disable\"\nthreads = 2\nwarm-up = 2\n\
                allow-uid = [7]\n[limits]\npool-size = 5\nqueue-time = \"500ms\"\n";
    std::fs::write(&path, text).unwrap();
    let load = |flags: &[&str]| {
        let words = [&["x", "--config", path.to_str().unwrap()], flags].concat();
        only(CommandLine::parse(words).unwrap().load().unwrap())
    };
    let limits = load(&["--pool-size", "9"]).settings.limits;
    assert_eq!((limits.server_connections, limits.warm, limits.queue), (9, 2, Duration::from_millis(500)));
    let all = ["--allow-uid", "8", "--threads", "3", "--listen", "unix:/y", "--log", "warn"];
    let effective = load(&all).effective;
    assert_eq!((effective.allow_uid, effective.threads.map(usize::from)), (vec![8], Some(3)));
    assert_eq!(
        (effective.listen, effective.log.level),
        (vec!["unix:/y".parse().unwrap()], Some(Level::Warn))
    );
    let effective = load(&[]).effective;
    assert_eq!((effective.allow_uid, effective.listen), (vec![7], vec!["unix:/x".parse().unwrap()]));
}

#[test]
fn help_shows_the_effective_defaults() {
    let two = ["x", "--listen", "unix:/x", "--server", "postgres://a@h/?sslmode=disable"];
    let effective = only(CommandLine::parse(two).unwrap().load().unwrap()).effective;
    let shown: toml::Table = toml::from_str(&effective.to_toml()).unwrap();
    let mut checked = 0;
    for argument in Arguments::command().get_arguments() {
        let Some(name) = argument.get_long() else { continue };
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let Some((_, default)) = help.rsplit_once("[default: ") else { continue };
        let value = match name {
            // Described in words.
            "queue-limit" | "tls-groups" | "tls-library" | "dns-time" => continue,
            _ if default == "no limit]" => continue,
            "log" => shown["log"].get("level"),
            "log-format" => shown["log"].get("format"),
            name => shown["limits"].get(name).or(shown.get(name)),
        };
        let value = value.unwrap_or_else(|| panic!("{name} is not shown")).to_string();
        assert_eq!(default.trim_end_matches(']'), value.trim_matches('"'), "{name}");
        checked += 1;
    }
    assert!(checked >= 10, "{checked}");
}

#[test]
fn flags_apply_to_each_server_of_the_file_but_its_address() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("proxy.toml");
    let server = |name: &str| {
        format!(
            "[[server]]\nname = \"{name}\"\nurl = \"postgres://a@h/?sslmode=disable\"\nlisten = \"unix:/{name}\"\n"
        )
    };
    std::fs::write(&path, [server("orders"), server("users")].concat()).unwrap();
    let load = |flags: &[&str]| {
        let words = [&["x", "--config", path.to_str().unwrap()], flags].concat();
        CommandLine::parse(words).unwrap().load()
    };
    let resolved = load(&["--pool-size", "9", "--admin", "unix:/admin", "--log", "warn"]).unwrap();
    assert_eq!(resolved.admin, Some("unix:/admin".parse().unwrap()));
    let sizes = resolved.servers.iter().map(|server| server.resolved.settings.limits.server_connections);
    assert_eq!(sizes.collect::<Vec<_>>(), [9, 9]);
    assert!(resolved.servers.iter().all(|server| server.resolved.effective.log.level == Some(Level::Warn)));
    for (flag, value) in [("--listen", "unix:/x"), ("--server", "postgres://a@h/?sslmode=disable")] {
        let refused = load(&[flag, value]).err().unwrap().to_string();
        assert_eq!(refused, format!("{flag} is for one server: the file has [[server]]"));
    }
}
