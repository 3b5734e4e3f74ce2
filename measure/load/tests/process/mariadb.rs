//! A MariaDB of a test's own, in a directory of its own, on a socket.

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ciphertoll_model::{Clients, Endpoint, TrialSpec};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getuid};
use tempfile::TempDir;

use crate::find;

/// A server that does not listen for longer will not.
const TIME_LIMIT: Duration = Duration::from_mins(1);

/// Packets above this are refused, and so are values: `REPEAT` gives NULL for them.
pub(crate) const MAX_PACKET_BYTES: u32 = 1 << 20;

/// sysbench's and pgbench's tables, small.
const INIT: &str = "\
CREATE DATABASE t;
USE t;
CREATE TABLE t.sbtest1 (id INT PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL, KEY (k));
INSERT INTO t.sbtest1 SELECT seq, seq, REPEAT('c', 119), REPEAT('p', 59) FROM seq_1_to_10000;
CREATE TABLE t.pgbench_accounts (aid INT PRIMARY KEY, bid INT, abalance INT, filler CHAR(84));
INSERT INTO t.pgbench_accounts SELECT seq, 1, 0, '' FROM seq_1_to_10000;
CREATE TABLE t.pgbench_branches (bid INT PRIMARY KEY, bbalance INT);
INSERT INTO t.pgbench_branches VALUES (1, 0);
CREATE TABLE t.pgbench_tellers (tid INT PRIMARY KEY, bid INT, tbalance INT);
INSERT INTO t.pgbench_tellers SELECT seq, 1, 0 FROM seq_1_to_10;
CREATE TABLE t.pgbench_history (tid INT, bid INT, aid INT, delta INT, mtime TIMESTAMP);
CREATE USER toll@localhost IDENTIFIED BY 'hunter2';
GRANT ALL ON t.* TO toll@localhost;
";

/// A running server. Killed when dropped.
pub(crate) struct MariaDb {
    child: Child,
    directory: TempDir,
}

impl MariaDb {
    /// `None` where this machine has none; the tests that want one then test nothing, and say so.
    pub(crate) fn start() -> Option<Self> {
        let (server, install) = (find("mariadbd")?, find("mariadb-install-db")?);
        let directory = tempfile::Builder::new().prefix("toll").tempdir_in("/var/tmp").unwrap();
        let data = directory.path().join("data");
        let user = (getuid().is_root()).then_some("--user=root");
        let installed = Command::new(install)
            .arg("--no-defaults")
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--tmpdir={}", directory.path().display()))
            .args(["--auth-root-authentication-method=normal", "--skip-test-db"])
            // Neither the machine's name nor who else uses /tmp matters.
            .args(["--skip-name-resolve", "--force"])
            .args(user)
            .output()
            .expect("mariadb-install-db is there");
        let said = [installed.stdout, installed.stderr].concat();
        assert!(installed.status.success(), "mariadb-install-db: {}", String::from_utf8_lossy(&said));
        fs::write(directory.path().join("init.sql"), INIT).expect("a file in our own directory");
        let log = fs::File::create(directory.path().join("log")).expect("a file in our own directory");
        let child = Command::new(server)
            .arg("--no-defaults")
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--socket={}", socket(directory.path()).display()))
            .arg(format!("--init-file={}", directory.path().join("init.sql").display()))
            .arg(format!("--max-allowed-packet={MAX_PACKET_BYTES}"))
            .args(["--skip-networking", "--innodb-flush-log-at-trx-commit=0", "--pid-file=pid"])
            .args(user)
            .stderr(log)
            .stdout(Stdio::null())
            .spawn()
            .expect("mariadbd is there");
        let mut server = Self { child, directory };
        server.wait_until_it_listens();
        Some(server)
    }

    fn wait_until_it_listens(&mut self) {
        let deadline = Instant::now() + TIME_LIMIT;
        while UnixStream::connect(socket(self.directory.path())).is_err() {
            let ended = self.child.try_wait().expect("a child of ours");
            if ended.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
                panic!("mariadbd does not listen ({ended:?}):\n{log}");
            }
            std::thread::yield_now();
        }
        // Its socket is there before the tables are; it greets once they are.
        let mut greeted = UnixStream::connect(socket(self.directory.path())).expect("it listens");
        greeted.set_read_timeout(Some(TIME_LIMIT)).expect("a socket takes a limit");
        greeted.read_exact(&mut [0]).expect("mariadbd greets");
    }

    /// A trial on it: two clients, one thread, half a second.
    pub(crate) fn spec(&self) -> TrialSpec {
        TrialSpec {
            endpoint: Endpoint::Unix(socket(self.directory.path())),
            database: Some("t".to_owned()),
            clients: Clients::new(2).expect("two clients"),
            threads: 1,
            warm_up_ns: 50_000_000,
            window_ns: 500_000_000,
            ..crate::spec(self.directory.path())
        }
    }

    /// Connects since it started.
    pub(crate) fn connects(&self) -> u64 {
        let answer = Command::new(find("mariadb").expect("a server brings its client"))
            .args(["--no-defaults", "--user=root", "--batch", "--skip-column-names"])
            .arg(format!("--socket={}", socket(self.directory.path()).display()))
            .arg("--execute=SHOW GLOBAL STATUS LIKE 'Connections'")
            .output()
            .expect("mariadb is there");
        let row = String::from_utf8_lossy(&answer.stdout);
        let count = row.split_whitespace().nth(1).and_then(|count| count.parse().ok());
        count.unwrap_or_else(|| panic!("{row}{}", String::from_utf8_lossy(&answer.stderr)))
    }

    /// Stops or continues it, as nobody else's process is.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("a child of ours");
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("socket")
}
