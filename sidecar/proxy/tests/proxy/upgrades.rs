//! SIGUSR2: a new process takes over the listening sockets, and no client notices.

use std::fs;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Case;
use crate::cases::one;
use crate::fixture::{Fixture, PORT, client_at};
use crate::operations::{Manager, await_that, settings};
use crate::process::Process;

/// In both pooling modes.
pub(crate) const CASES: [Case; 4] = [
    ("an upgrade under load loses no client", under_load),
    ("an upgrade that fails changes nothing", failing),
    ("the service manager is told the new process", service_manager),
    ("only a running proxy can be taken over", nothing_to_take_over),
];

/// The process that has taken over; killed when dropped.
pub(crate) struct Successor(Pid);

impl Successor {
    /// Waits until the proxy has handed over.
    pub(crate) fn of(process: &mut Process) -> Self {
        let line = process.await_line("event=upgraded");
        let pid = line.split_once("pid=").and_then(|(_, pid)| pid.trim().parse().ok());
        Self(Pid::from_raw(pid.expect("the process ID is logged")))
    }

    /// Stops it, and waits until it has ended.
    pub(crate) fn stop(self) {
        kill(self.0, Signal::SIGTERM).expect("it runs");
        self.await_end();
    }

    fn await_end(&self) {
        // This process is not its parent and cannot wait for it.
        let stat = format!("/proc/{}/stat", self.0);
        await_that("it ends", || fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z ")));
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGKILL);
    }
}

/// Upgrades twice while clients connect, query and disconnect. `exchange` is one such client: it returns the nonce that
/// it is given, from the server.
pub(crate) fn upgrade_twice(process: &mut Process, exchange: impl Fn(&str) -> String + Sync) -> Successor {
    const CLIENTS: usize = 1_000;
    const LOOPS: usize = 8;
    let (count, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let successor = thread::scope(|scope| {
        for client_loop in 0..LOOPS {
            let (count, is_over, exchange) = (&count, &is_over, &exchange);
            scope.spawn(move || {
                for round in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let nonce = format!("{client_loop}-{round}");
                    assert_eq!(exchange(&nonce), nonce);
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let served = |clients: usize| {
            let before = count.load(Ordering::Relaxed);
            await_that("clients are served", || count.load(Ordering::Relaxed) >= before + clients);
        };
        served(CLIENTS / 4);
        process.signal(Signal::SIGUSR2);
        let first = Successor::of(process);
        served(CLIENTS / 2);
        // The new process can be upgraded, too.
        kill(first.0, Signal::SIGUSR2).expect("it runs");
        let second = Successor::of(process);
        served(CLIENTS / 4);
        is_over.store(true, Ordering::Relaxed);
        // When its last client has left. Until then it must not be killed: one may still wait for its answer.
        first.await_end();
        second
    });
    assert!(count.into_inner() >= CLIENTS);
    successor
}

/// A session that began before the upgrades lasts, and the files of the sockets are the last process's.
fn under_load(fixture: &mut Fixture) {
    let (directory, _) = settings("");
    let admin = directory.path().join("admin.sock");
    let mut proxy = fixture.proxy(&["--pool-size", "4", "--admin", &format!("unix:{}", admin.display())]);
    let mut lasting = proxy.client();
    assert_eq!(one(&mut lasting, "SELECT 'before'"), "before");
    let (socket, user, database) = (proxy.socket(), proxy.user.clone(), proxy.database.clone());
    let successor = upgrade_twice(&mut proxy.process, |nonce| {
        let mut client = client_at(&socket, &user, &database).expect("no client is refused");
        one(&mut client, &format!("SELECT '{nonce}'"))
    });
    assert_eq!(one(&mut lasting, "SELECT 'after'"), "after");
    assert!(proxy.process.is_running());
    drop(lasting);
    assert_eq!(proxy.process.wait().code(), Some(0));
    assert!(socket.exists());
    UnixStream::connect(&admin).expect("the admin socket answers");
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
    successor.stop();
    assert!(!socket.exists() && !admin.exists());
}

fn failing(fixture: &mut Fixture) {
    let text = "[limits]\npool-size = 2\n";
    let (directory, file) = settings(text);
    let mut proxy = fixture.proxy(&["--config", &file]);
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
    for broken in ["[limits]\npool-size = \"many\"\n", "tls-groups = [\"nothing\"]\n"] {
        fs::write(directory.path().join("proxy.toml"), broken).expect("ours to write");
        proxy.process.signal(Signal::SIGUSR2);
        let line = proxy.process.await_line("event=upgrade-failed");
        assert!(line.contains("did not become ready"), "{line}");
        assert!(proxy.socket().exists());
        assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
    }
    fs::write(directory.path().join("proxy.toml"), text).expect("ours to write");
    proxy.process.signal(Signal::SIGUSR2);
    let successor = Successor::of(&mut proxy.process);
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
    assert_eq!(proxy.process.wait().code(), Some(0));
    successor.stop();
}

fn service_manager(fixture: &mut Fixture) {
    let (directory, listen) = fixture.new_directory();
    let manager = Manager::open();
    let mut command = fixture.program();
    let url = fixture.url("");
    command.args(["--listen", &listen, "--server", &url]).env("NOTIFY_SOCKET", &manager.socket);
    let mut proxy = fixture.proxy_by(&mut command, directory, PORT);
    assert_eq!(manager.next_state(), "READY=1");
    proxy.process.signal(Signal::SIGUSR2);
    let successor = Successor::of(&mut proxy.process);
    assert_eq!(manager.next_state(), format!("MAINPID={}\nREADY=1", successor.0));
    // From the new process.
    assert_eq!(manager.next_state(), "READY=1");
    // The old one ends without a word, or the service manager would take the service for stopped.
    assert_eq!(proxy.process.wait().code(), Some(0));
    kill(successor.0, Signal::SIGTERM).expect("it runs");
    assert_eq!(manager.next_state(), "STOPPING=1");
}

fn nothing_to_take_over(fixture: &mut Fixture) {
    let (_, listen) = fixture.new_directory();
    let (url, mut command) = (fixture.url(""), fixture.program());
    command.args(["--listen", &listen, "--server", &url, "--take-over"]).stdin(Stdio::null());
    let output = command.output().expect("it runs");
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{log}");
    assert!(log.contains("--take-over is for the process that a running proxy starts on SIGUSR2"), "{log}");
}
