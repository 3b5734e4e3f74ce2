//! `ciphertoll lab`: a command of the user in the lab.

use std::process::{Output, Stdio};

use ciphertoll_model::Engine;

use crate::support::{TIME_LIMIT, ciphertoll, real_server, until_within};

/// The round-trip time, and the round trips of a plain connect to MariaDB and a query.
const RTT_MS: u64 = 50;
const ROUND_TRIPS: u64 = 4;

fn lab(arguments: &[&str]) -> Output {
    ciphertoll(&[&["lab", "--server", "mariadb"], arguments].concat()).output().expect("the program starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_command_finds_its_server_and_its_exit_code_is_passed_on() {
    if !real_server() {
        return;
    }
    let script = "mariadb -N -e \"SHOW STATUS LIKE 'Ssl_version'\" && exit 7";
    let output = lab(&["--path", "tls1.2-p256", "-q", "--", "sh", "-c", script]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Ssl_version\tTLSv1.2\n", "{}", said(&output));
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    let output = lab(&["--path", "unix", "-q", "--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(output.status.code(), Some(128 + 15), "{}", said(&output));
    let output = lab(&["-q", "--", "no-such-command"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(said(&output).contains("cannot start no-such-command"), "{}", said(&output));
}

/// `CIPHERTOLL_URL` of a socket had no port, and was not accepted by `--url`.
#[test]
fn the_url_of_a_socket_is_that_of_the_server() {
    if !crate::url::real_server(Engine::Postgres) {
        return;
    }
    let program = env!("CARGO_BIN_EXE_ciphertoll");
    let script = format!(
        "psql -X -A -t \"$CIPHERTOLL_URL\" -c 'SELECT 4711' && \
         {program} run --url \"there=$CIPHERTOLL_URL\" --dry-run -q > /dev/null"
    );
    let mut command =
        ciphertoll(&["lab", "--server", "postgres", "--path", "unix", "-q", "--", "sh", "-c", &script]);
    let output = command.output().expect("the program starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "4711\n", "{}", said(&output));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn a_command_is_at_the_clients_end_of_the_link() {
    if !real_server() {
        return;
    }
    let script = "s=$(date +%s%N); mariadb -N -e 'SELECT 4711' && echo $(( ($(date +%s%N) - s) / 1000000 ))";
    let link = format!("{RTT_MS}ms");
    let output = lab(&["--link", &link, "--", "sh", "-c", script]);
    if said(&output).contains("cannot make a long link") {
        return ciphertoll_testing::missing(&said(&output));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (answer, took_ms) = text.trim().split_once('\n').unwrap_or_else(|| panic!("{text}{}", said(&output)));
    assert_eq!(answer, "4711");
    let took_ms: u64 = took_ms.parse().expect("milliseconds");
    assert!(took_ms >= ROUND_TRIPS * RTT_MS * 97 / 100, "{took_ms} ms");
}

#[test]
fn an_impossible_lab_is_refused_with_its_reason() {
    let output = lab(&["--path", "wireguard", "--link", "local", "--", "true"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("--link 0ms"), "{}", said(&output));
    let output = lab(&["--server", "mariadb-99", "-q", "--", "true"]);
    assert_eq!(output.status.code(), Some(2), "twice the same option: {}", said(&output));
}

#[test]
fn sigterm_is_passed_on_and_the_lab_is_removed() {
    if !real_server() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("ready");
    let script =
        format!("trap 'exit 3' TERM; echo $MYSQL_HOME > {}; while :; do sleep 0.1; done", file.display());
    let mut command = ciphertoll(&["lab", "--server", "mariadb", "-q", "--", "sh", "-c", &script]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
    // A server is started first, and perhaps its template is created.
    let home = until_within(TIME_LIMIT, "the command", || {
        std::fs::read_to_string(&file).ok().filter(|text| text.ends_with('\n'))
    });
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it runs");
    assert_eq!(child.wait().expect("its end").code(), Some(3));
    assert!(!std::path::Path::new(home.trim()).exists(), "{home} is left");
}
