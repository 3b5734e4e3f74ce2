//! External programs with more clients than connections.

use std::process::{Command, Stdio};

use ciphertoll_testing::missing;

use super::Case;
use super::fixture::{Fixture, Proxy, one};

pub(crate) const CASES: [Case; 2] = [
    ("sysbench: more clients than connections, prepared statements", sysbench),
    ("mariadb-slap: more clients than connections", mariadb_slap),
];

/// Whether a program is installed; if not, a message says so.
fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        missing(&format!("{program} is not here"));
    }
    found
}

fn succeeds(command: &mut Command) -> String {
    let output = command.env_remove("MYSQL_PWD").stdin(Stdio::null()).output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    stdout
}

fn sysbench(fixture: &mut Fixture) {
    if !is_installed("sysbench") {
        return;
    }
    let mut proxy = fixture.proxy(&["--pool-size", "3"]);
    let run = |proxy: &Proxy, threads: &str, action: &str| {
        let mut command = Command::new("sysbench");
        command
            .args(["oltp_read_write", "--db-driver=mysql", "--tables=1", "--table-size=1000"])
            .args(["--mysql-ssl=off", "--skip-trx=off", "--time=0", "--events=400"])
            .arg(format!("--mysql-socket={}", proxy.socket.display()))
            .arg(format!("--mysql-user={}", proxy.user))
            .arg(format!("--mysql-db={}", proxy.database))
            .arg(format!("--threads={threads}"))
            .arg(action);
        succeeds(&mut command)
    };
    // Its tables are created with executable comments.
    run(&proxy, "1", "prepare");
    let pinned = proxy.process.count("event=pinned");
    for _ in 0..2 {
        let output = run(&proxy, "16", "run");
        assert!(output.contains("total number of events:              400"), "{output}");
    }
    assert_eq!(one(&mut proxy.client(), "SELECT COUNT(*) FROM sbtest1"), "1000");
    run(&proxy, "1", "cleanup");
    assert_eq!(proxy.process.count("event=pinned"), pinned);
    assert_eq!(proxy.process.count("event=server-lost"), 0);
}

fn mariadb_slap(fixture: &mut Fixture) {
    if !is_installed("mariadb-slap") {
        return;
    }
    let mut proxy = fixture.proxy(&["--pool-size", "3"]);
    let socket = format!("--socket={}", proxy.socket.display());
    let (user, schema) = (format!("--user={}", proxy.user), format!("--create-schema={}", proxy.database));
    let mut command = Command::new("mariadb-slap");
    command.args(["--no-defaults", &socket, &user, &schema]).args([
        "--concurrency=20",
        "--number-of-queries=2000",
        "--query=SELECT 1",
        "--no-drop",
        "--skip-ssl",
    ]);
    succeeds(&mut command);
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
    assert_eq!(proxy.process.count("event=pinned"), 0);
}
