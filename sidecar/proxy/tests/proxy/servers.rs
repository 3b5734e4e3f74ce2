//! Several servers in one process.

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;

use crate::Case;
use crate::cases::one;
use crate::fixture::{Fixture, client_at};
use crate::operations::{admin_address, get, settings};
use crate::process::Process;
use crate::upgrades::Successor;

/// In session mode.
pub(crate) const CASES: [Case; 2] = [
    ("several servers have one status, one reload and one end", several),
    ("an upgrade takes over the sockets of all servers", upgraded),
];

/// A file with the server under two names, in both pooling modes, and a server that is not there.
fn file(fixture: &Fixture, directory: &Path, limits: &str) -> String {
    let (url, directory) = (fixture.url(""), directory.display());
    format!(
        "admin = \"tcp:127.0.0.1:0\"\n[limits]\n{limits}\n\
         [console]\n\
         [[server]]\nname = \"orders\"\nurl = \"{url}\"\nlisten = \"unix:{directory}/orders\"\n\
         [[server]]\nname = \"users\"\nurl = \"{url}\"\nlisten = \"unix:{directory}/users\"\n\
         mode = \"transaction\"\n[server.limits]\npool-size = 3\n\
         [[server]]\nname = \"away\"\nurl = \"mysql://a@/x?socket={directory}/none&ssl-mode=DISABLED\"\n\
         listen = \"unix:{directory}/away\"\n"
    )
}

fn start(fixture: &Fixture, file: &str) -> Process {
    let mut process = Process::start(fixture.program().args(["--config", file]));
    for _ in 0..3 {
        process.await_line("event=listening");
    }
    process
}

fn query(fixture: &Fixture, socket: &Path) -> String {
    let login = ciphertoll_model::Auth::default_of(ciphertoll_model::Engine::Postgres);
    let user = fixture.server().account(login).user;
    let mut client = client_at(socket, &user, fixture.server().database()).expect("a login");
    one(&mut client, "SELECT 42")
}

fn several(fixture: &mut Fixture) {
    let (directory, path) = settings("");
    let directory = directory.path();
    fs::write(&path, file(fixture, directory, "pool-size = 4")).expect("ours");
    let mut process = start(fixture, &path);
    for name in ["orders", "users"] {
        assert_eq!(query(fixture, &directory.join(name)), "42", "{name}");
    }
    let admin = admin_address(&process.log);
    let has = |sample: &str| {
        let (_, metrics) = get(admin, "/metrics");
        assert!(metrics.lines().any(|line| line == format!("ciphertoll_proxy_{sample}")), "{metrics}");
    };
    has("sessions_total{server_name=\"orders\"} 1");
    has("server_connections_max{server_name=\"users\"} 3");
    has("server_connections_max{server_name=\"away\"} 4");
    let (code, health) = get(admin, "/healthz");
    assert_eq!((code, health.as_str()), (503, "no server connection is open (away)\n"));
    let line = process.await_line("event=connect-failed");
    assert!(line.contains("server_name=away"), "{line}");

    let console = |more: &[&str]| {
        let address = format!("tcp:{admin}");
        let words = [&["console", "SHOW STATE", "--admin", &address][..], more].concat();
        let output = fixture.program().args(words).output().expect("it runs");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let refused = console(&[]);
    assert!(refused.contains("/console/orders /console/users /console/away"), "{refused}");
    let state = console(&["--server-name", "users"]);
    assert!(state.contains("active"), "{state}");

    // An error in the settings of one server changes nothing for the others.
    let new = file(fixture, directory, "pool-size = 5");
    fs::write(&path, new.replace("mode = \"trans", "tls-cert = \"/none\"\nmode = \"trans")).expect("ours");
    process.signal(Signal::SIGHUP);
    process.await_line("event=reload-failed");
    has("server_connections_max{server_name=\"orders\"} 4");
    fs::write(&path, new.replace("\"users\"", "\"other\"")).expect("ours");
    process.signal(Signal::SIGHUP);
    let line = process.await_line("event=reload-failed");
    assert!(line.contains("the servers stay orders, users, away until"), "{line}");
    fs::write(&path, new).expect("ours");
    process.signal(Signal::SIGHUP);
    process.await_line("event=reloaded");
    has("server_connections_max{server_name=\"orders\"} 5");
    let (_, status) = get(admin, "/status");
    assert!(status.starts_with("{\"servers\":[{\"name\":\"orders\""), "{status}");

    process.signal(Signal::SIGTERM);
    assert!(process.wait().success());
    assert!(!directory.join("orders").exists() && !directory.join("users").exists());
}

fn upgraded(fixture: &mut Fixture) {
    let (directory, path) = settings("");
    fs::write(&path, file(fixture, directory.path(), "")).expect("ours");
    let mut process = start(fixture, &path);
    process.signal(Signal::SIGUSR2);
    let successor = Successor::of(&mut process);
    assert!(process.wait().success());
    for name in ["orders", "users"] {
        assert_eq!(query(fixture, &directory.path().join(name)), "42", "{name}");
    }
    successor.stop();
    assert!(!directory.path().join("users").exists());
}
