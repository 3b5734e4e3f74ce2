//! `doctor`: what it says holds, it says something whatever is missing, and it leaves nothing. And what a
//! package installs with the program: completions and man pages.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use ciphertoll_testing::missing;
use nix::unistd::User;
use serde_json::Value;

use crate::support::{Answer, answer, ciphertoll, is_root, items, one_document, script, text};

/// What `doctor --json` says with these variables.
#[track_caller]
fn examine(variables: &[(&str, &str)]) -> (Option<i32>, Value) {
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut command = ciphertoll(&["doctor", "--json"]);
    let output = command.envs(variables.iter().copied()).current_dir(place.path()).output();
    let output = output.expect("the program starts");
    assert!(output.stderr.is_empty(), "{output:?}");
    (output.status.code(), one_document(&String::from_utf8(output.stdout).expect("UTF-8 on stdout")))
}

#[track_caller]
fn check<'a>(document: &'a Value, name: &str) -> &'a Value {
    let mut found = items(document, "checks").iter().filter(|check| check["name"] == name);
    let check = found.next().unwrap_or_else(|| panic!("no check {name}: {document}"));
    assert!(found.next().is_none(), "{name} twice: {document}");
    check
}

/// The same; none where the machine had no time for the probe that tells it.
#[track_caller]
fn check_in_time<'a>(document: &'a Value, name: &str) -> Option<&'a Value> {
    let known = items(document, "checks").iter().any(|check| check["name"] == name);
    if !known && items(document, "checks").iter().any(was_killed) {
        return None;
    }
    Some(check(document, name)).filter(|check| !was_killed(check))
}

fn was_killed(check: &Value) -> bool {
    check["seen"].as_str().is_some_and(|seen| seen.contains("was killed"))
}

/// What holds on every machine.
#[track_caller]
fn assert_consistent(code: Option<i32>, document: &Value) {
    let checks = items(document, "checks");
    assert!(checks.len() > 30, "{document}");
    for check in checks {
        let told = |key: &str| check[key].as_str().unwrap_or_default();
        assert!(
            ["measure", "long_links", "tunnels", "at_rest", "drivers"].contains(&told("purpose")),
            "{check}"
        );
        assert!(["one_server", "always", "sometimes"].contains(&told("need")), "{check}");
        assert!(["ok", "limited", "no"].contains(&told("state")), "{check}");
        assert_eq!(check.get("cure").is_some(), told("state") != "ok", "{check}");
        assert!(!told("name").is_empty() && !told("seen").is_empty(), "{check}");
        assert!(!["seen", "cure"].iter().any(|key| told(key).contains(['\n', '\x1b'])), "{check}");
    }
    let able = |need: &str| -> Vec<bool> {
        let of_need = checks.iter().filter(|check| check["need"] == need);
        of_need.map(|check| check["state"] != "no").collect()
    };
    let can_measure = able("one_server").contains(&true) && !able("always").contains(&false);
    assert_eq!(document["can_measure"], can_measure, "{document}");
    assert_eq!(code, Some(if can_measure { 0 } else { 5 }));
}

#[test]
fn what_is_said_agrees_with_what_is_here() {
    let (code, document) = examine(&[]);
    assert_consistent(code, &document);
    let place = tempfile::tempdir().expect("a temporary directory");
    let servers = one_document(&answer(&["servers", "--json"], place.path()).stdout);
    for engine in ["mariadb", "mysql", "postgres"] {
        let listed = items(&servers, "servers").iter().filter(|server| server["engine"] == engine);
        let versions: Vec<&str> = listed.filter_map(|server| server["version"].as_str()).collect();
        let Some(check) = check_in_time(&document, engine) else { continue };
        assert_eq!(check["state"] == "no", versions.is_empty(), "{check}");
        let seen = check["seen"].as_str().unwrap_or_default();
        assert!(versions.iter().all(|version| seen.contains(version)), "{check}: {versions:?}");
    }
    let table = answer(&["doctor"], place.path());
    assert_eq!((table.code, table.stderr.as_str()), (code, ""));
    for check in items(&document, "checks") {
        let name = check["name"].as_str().unwrap_or_default();
        // What took too long has its probe's name, "driver libpq", and may have had the time when it was asked again.
        let last = name.split_whitespace().last().expect("a name");
        let row = table.stdout.lines().find(|line| line.split_whitespace().any(|word| word == last));
        assert!(row.is_some() || table.stdout.contains("killed"), "{name} is missing: {}", table.stdout);
    }
    assert_eq!(fs::read_dir(place.path()).expect("the directory").count(), 0, "nothing is left");
}

#[test]
fn without_a_path_tools_are_missing_and_servers_are_not() {
    let (code, document) = examine(&[("PATH", "/nonexistent")]);
    assert_consistent(code, &document);
    for (tool, package) in [("ssh", "openssh-client"), ("gocryptfs", "gocryptfs"), ("pgbench", "pgbench")] {
        let Some(check) = check_in_time(&document, tool) else { continue };
        assert_eq!(check["state"], "no", "{check}");
        assert!(check["cure"].as_str().is_some_and(|cure| cure.contains(package)), "{check}");
    }
    let (_, with_path) = examine(&[]);
    for same in ["mariadb", "TLS", "scratch", "namespace"] {
        let seen = [&document, &with_path].map(|document| check_in_time(document, same));
        if let [Some(without), Some(with)] = seen {
            assert_eq!(without["state"], with["state"], "{same}");
        }
    }
}

#[test]
fn a_tool_that_hangs_is_killed_and_told() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let tool = place.path().join("gocryptfs");
    script(&tool, "exec sleep infinity");
    let path = format!("{}:/usr/bin:/bin", text(place.path()));
    let workshop = tempfile::tempdir().expect("a temporary directory");
    let (code, document) = examine(&[("PATH", &path), ("TMPDIR", text(workshop.path()))]);
    assert_consistent(code, &document);
    let check = check(&document, "gocryptfs");
    assert_eq!(check["state"], "no", "{check}");
    assert!(check["seen"].as_str().is_some_and(|seen| seen.contains("killed")), "{check}");
    // A compiler that was killed, too, may still write while that is removed.
    let of_others = items(&document, "checks").iter().filter(|check| was_killed(check)).count() > 1;
    let left = fs::read_dir(workshop.path()).expect("the directory").flatten();
    let left = left.filter(|entry| !of_others || entry.path().join("gocryptfs").exists());
    assert_eq!(left.count(), 0, "nothing is left");
}

/// Runs `doctor --json` as an ordinary user whose cache would be in `cache`.
#[track_caller]
fn as_ordinary_user(cache: &str) -> Answer {
    let place = tempfile::tempdir_in("/var/tmp").expect("a temporary directory");
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).expect("others may pass");
    let program = place.path().join("ciphertoll");
    // Written by another process: a file that this process has open for writing cannot be executed.
    let copied = Command::new("cp").args([env!("CARGO_BIN_EXE_ciphertoll"), text(&program)]).status();
    assert!(copied.expect("cp starts").success(), "the program is copied");
    let mut command = Command::new(program);
    command.args(["doctor", "--json"]).env("XDG_CACHE_HOME", cache).current_dir("/");
    if is_root() {
        let user = User::from_name("nobody").ok().flatten().expect("there is nobody");
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    let output = command.output().expect("the program starts");
    Answer {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("UTF-8 on stdout"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8 on stderr"),
    }
}

#[test]
fn an_ordinary_user_is_answered_too() {
    let answer = as_ordinary_user("/var/tmp");
    let document = one_document(&answer.stdout);
    assert_consistent(answer.code, &document);
    assert_eq!(check(&document, "cache")["state"], "ok", "{document}");
    let user = check(&document, "server user")["seen"].as_str().unwrap_or_default();
    assert!(user.contains("as you"), "{user}");
}

#[test]
fn without_a_place_for_what_every_run_needs_nothing_can_be_measured() {
    let answer = as_ordinary_user("/proc");
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(5), ""));
    let document = one_document(&answer.stdout);
    assert_consistent(answer.code, &document);
    let cache = check(&document, "cache");
    assert!(cache["state"] == "no" && cache["cure"].to_string().contains("XDG_CACHE_HOME"), "{cache}");
}

/// Gives `input` to a program; what it complained of. `None`: it is not here.
fn complaints(program: &str, arguments: &[&str], input: &str) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    child.stdin.take().expect("its stdin").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program}: {complaints}");
    Some(complaints)
}

#[test]
fn completions_are_scripts_of_their_shells() {
    for (shell, check) in
        [("bash", Some("bash")), ("zsh", Some("zsh")), ("fish", Some("fish")), ("elvish", None)]
    {
        let script = answer(&["completions", shell], Path::new("/"));
        assert_eq!((script.code, script.stderr.as_str()), (Some(0), ""));
        for word in ["ciphertoll", "doctor", "trial-time"] {
            assert!(script.stdout.contains(word), "{shell} does not know {word}");
        }
        assert!(!script.stdout.contains("__probe"), "{shell} knows what is hidden");
        for name in ["mysql-tls-2013", "latest"].iter().filter(|_| shell != "elvish") {
            assert!(script.stdout.contains(name), "{shell} does not know {name}");
        }
        if let Some(complaints) = check.and_then(|shell| complaints(shell, &["-n"], &script.stdout)) {
            assert_eq!(complaints, "", "{shell}");
        }
    }
}

#[test]
fn bash_completes_presets_and_runs() {
    let place = tempfile::tempdir().expect("a directory");
    fs::create_dir_all(place.path().join("ciphertoll-runs/20261121T0930-quick-7f3a")).expect("a run");
    let script = answer(&["completions", "bash"], Path::new("/")).stdout;
    let completed = |words: &str, current: &str| {
        let last = words.split(' ').count();
        let ask = format!(
            "{script}\nCOMP_WORDS=(ciphertoll {words}); COMP_CWORD={last}\n\
             _ciphertoll_names ciphertoll '{current}' previous; echo \"${{COMPREPLY[*]}}\""
        );
        let shell = Command::new("bash").args(["-c", &ask]).current_dir(place.path()).output();
        String::from_utf8(shell.expect("bash").stdout).expect("words")
    };
    assert_eq!(completed("run mysql-tls", "mysql-tls"), "mysql-tls-2013\n");
    assert_eq!(completed("report 2026", "2026"), "20261121T0930-quick-7f3a\n");
}

#[test]
fn every_command_has_a_man_page_without_warnings() {
    let help = answer(&["--help"], Path::new("/")).stdout;
    let listed =
        help.split_once("Commands:\n").expect("commands").1.lines().take_while(|line| !line.is_empty());
    // What is further in goes on with a description.
    let names = listed.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    let commands: Vec<&str> = names.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.contains(&"run") && commands.contains(&"man"), "{commands:?}");
    let of_commands = commands.iter().map(|command| vec!["man", command]);
    for arguments in std::iter::once(vec!["man"]).chain(of_commands) {
        let page = answer(&arguments, Path::new("/"));
        assert_eq!((page.code, page.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        let title = format!(
            ".TH {}",
            ["ciphertoll"].iter().chain(&arguments[1..]).copied().collect::<Vec<_>>().join("-")
        );
        assert!(page.stdout.contains(&title), "{title}: {}", page.stdout);
        match complaints("groff", &["-ww", "-man", "-Tutf8", "-K", "utf8"], &page.stdout) {
            Some(complaints) => assert_eq!(complaints, "", "{arguments:?}"),
            None => missing("groff is not here"),
        }
    }
    let unknown = answer(&["man", "rum"], Path::new("/"));
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(unknown.one_line().contains("run, presets, lab, resume"), "{unknown:?}");
}
