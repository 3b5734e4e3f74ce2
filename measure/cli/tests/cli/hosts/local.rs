//! Load hosts by commands on this machine, which need no rights.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::uses_of_hosts;
use crate::support::{Session, answer, is, is_noise, one_document, real_server, script, text, until};

const TWO: [&str; 4] = ["--load-hosts", "exec:env", "--load-hosts", "exec:env"];
const SHORT: [&str; 8] =
    ["--server", "mariadb", "--workload", "point-select", "--scale", "1000", "--path", "plain,tls1.3-p256"];

#[test]
fn clients_are_divided_over_hosts_and_hosts_without_clients_stay_idle() {
    if !real_server() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let arguments = [&SHORT[..], &TWO, &["--clients", "1,3", "--size", "smoke"]].concat();
    let finished = Session::start(place.path(), &arguments).finish();
    assert_eq!(finished.code, Some(0), "{:?}", finished.told());
    let clients = |used: &Value| -> Vec<u64> {
        let hosts = used["hosts"].as_array().expect("hosts");
        hosts.iter().filter_map(|host| host["clients"].as_u64()).collect()
    };
    let mut divided: Vec<Vec<u64>> = uses_of_hosts(place.path()).iter().map(clients).collect();
    divided.sort_unstable();
    divided.dedup();
    assert_eq!(divided, [vec![1], vec![2, 1]]);
    let document = one_document(&finished.stdout);
    let names: Vec<&str> = document["load_hosts"]
        .as_array()
        .expect("hosts")
        .iter()
        .filter_map(|host| host["name"].as_str())
        .collect();
    assert_eq!(names, ["env", "env-2"]);
}

#[test]
fn an_open_loop_is_one_schedule_over_all_hosts() {
    if !real_server() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let open_loop = ["--pace", "400/s", "--clients", "6", "--trial-time", "2s", "--blocks", "1"];
    let finished = Session::start(place.path(), &[&SHORT[..], &TWO, &open_loop].concat()).finish();
    // On a machine without time for the clients, their schedules are late, and every trial may be void for that.
    let is_lost = |event: &&Value| is(event, "trial_voided") && !is_noise(event);
    let lost: Vec<&Value> = finished.events.iter().filter(is_lost).collect();
    assert!(lost.is_empty() && matches!(finished.code, Some(0 | 5 | 6)), "{lost:?} {:?}", finished.told());
    for event in finished.named("trial_finished").into_iter().filter(|event| event["block"] != 0) {
        let rate = event["observation"]["metrics"]["rate_per_s"].as_f64().expect("a rate");
        // 800 events of a Poisson process: five standard deviations.
        assert!((rate - 400.0).abs() < 71.0, "{rate} per second");
        let hosts = event["observation"]["hosts"]["hosts"].as_array().expect("hosts");
        let operations: Vec<u64> = hosts.iter().filter_map(|host| host["operations"].as_u64()).collect();
        assert_ne!(operations[0], operations[1], "each host has a seed of its own");
        assert!(hosts.iter().all(|host| host["schedule_lag_ns_p99"].is_u64()), "{hosts:?}");
    }
}

#[test]
fn no_secret_is_an_argument_or_in_the_environment_of_a_host() {
    if !real_server() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let arguments = [&SHORT[..], &TWO, &["--clients", "2", "--trial-time", "2s", "--blocks", "1"]].concat();
    let mut session = Session::start(place.path(), &arguments);
    session.next_trial(|_| true);
    let password_file = session.scratch().join("s1/password");
    let password = fs::read_to_string(&password_file).expect("the password");
    let agents = until("load processes", || {
        let all = below(session.pid());
        let loads = all.iter().filter(|pid| cmdline(**pid).contains("__load")).count();
        (loads == 2).then_some(all)
    });
    for pid in agents {
        for file in ["cmdline", "environ"] {
            let content = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let content = String::from_utf8_lossy(&content);
            assert!(!content.contains(password.trim()), "the password is in {file} of process {pid}");
        }
    }
    assert_eq!(session.finish().code, Some(0));
}

fn cmdline(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

/// All descendants of a process.
fn below(pid: i32) -> Vec<i32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children: Vec<i32> = children.split_whitespace().filter_map(|child| child.parse().ok()).collect();
    children.into_iter().flat_map(|child| [vec![child], below(child)].concat()).collect()
}

/// A program that takes the place of `sh -c BOOTSTRAP` and says this.
fn host_that_says(place: &Path, line: &str) -> String {
    let program = place.join("host");
    script(&program, &format!("printf '%s\\n' '{line}'; exec cat >/dev/null"));
    format!("exec:{}", text(&program))
}

#[test]
fn a_host_with_another_version_is_refused_in_one_line_before_anything_is_recorded() {
    let place = tempfile::tempdir().expect("a directory");
    let hello = |protocol: u32, version: &str| {
        format!(
            "{{\"message\":\"hello\",\"body\":{{\"protocol_version\":{protocol},\"tool_version\":\"{version}\",\
             \"architecture\":\"x86_64\",\"kernel\":\"6.1\",\"cpu_model\":\"x\",\"processors\":1,\"tls_library\":\"x\",\
             \"boot_id\":\"x\"}}}}"
        )
    };
    let own = env!("CARGO_PKG_VERSION");
    for (protocol, version) in [(1, "0.0.9"), (2, own)] {
        let hosts = host_that_says(place.path(), &hello(protocol, version));
        let runs = place.path().join("runs");
        let arguments = ["run", "--server", "mariadb", "--load-hosts", &hosts, "--run-dir", text(&runs)];
        let answer = answer(&arguments, place.path());
        assert_eq!(answer.code, Some(2), "{answer:?}");
        let said = answer.one_line();
        assert!(said.contains(&format!("has ciphertoll {version} (protocol {protocol})")), "{said}");
        assert!(!runs.exists(), "nothing is recorded");
    }
}

#[test]
fn a_host_that_cannot_be_reached_is_told_in_one_line_before_anything_is_recorded() {
    let place = tempfile::tempdir().expect("a directory");
    let runs = place.path().join("runs");
    for (hosts, reason) in [
        ("exec:false", "host false: the connection ended with exit code 1"),
        ("exec:/nowhere/docker exec -i load1", "host load1: cannot start /nowhere/docker: No such file"),
        ("exec:sh -c 'echo gone >&2; exit 3'", "gone (the connection ended with exit code 3)"),
    ] {
        let arguments = ["run", "--server", "mariadb", "--load-hosts", hosts, "--run-dir", text(&runs)];
        let answer = answer(&arguments, place.path());
        assert_eq!(answer.code, Some(9), "{answer:?}");
        assert!(answer.one_line().contains(reason), "{answer:?}");
        assert!(!runs.exists(), "nothing is recorded");
    }
}

#[test]
fn what_needs_programs_of_this_machine_is_skipped_on_load_hosts() {
    let place = tempfile::tempdir().expect("a directory");
    let paths = "plain,unix,tls1.3-p256+client=openssl-3.5,ssh-aes256-gcm,proxy";
    let arguments = ["run", "--server", "mariadb", "--path", paths, "--load-hosts", "exec:env", "--dry-run"];
    let answer = answer(&arguments, place.path());
    assert_eq!(answer.code, Some(0), "{answer:?}");
    for reason in [
        "load hosts have no unix socket of the server",
        "load hosts have no OpenSSL 3.5 of ciphertoll",
        "a tunnel begins on this machine",
        "a proxy runs on this machine",
    ] {
        assert!(answer.stdout.contains(reason), "{reason}: {answer:?}");
    }
}

#[test]
fn a_killed_agent_voids_the_trial_and_its_files_are_swept() {
    if !real_server() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let arguments = [&SHORT[..], &TWO, &["--clients", "2", "--trial-time", "2s", "--blocks", "1"]].concat();
    let mut session = Session::start(place.path(), &arguments);
    session.next_trial(|_| true);
    let agent = until("an agent with a load process", || {
        let agents = below(session.pid()).into_iter().filter(|pid| cmdline(*pid).contains("__host"));
        agents.into_iter().find(|agent| below(*agent).iter().any(|pid| cmdline(*pid).contains("__load")))
    });
    super::kill_now(agent);
    let voided = session.wait_for("a void trial", |event| is(event, "trial_voided"));
    assert_eq!(voided["reason"]["reason"]["gate"], "host_lost", "{voided}");
    assert!(
        voided["reason"]["reason"]["message"].as_str().is_some_and(|how| how.contains("signal 9")),
        "{voided}"
    );
    let finished = session.finish();
    assert_eq!(finished.code, Some(0), "{:?}", finished.told());
}
