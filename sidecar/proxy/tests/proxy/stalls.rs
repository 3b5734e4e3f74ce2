//! What must not block the workers: key derivation, a log that is not read, and a lack of file descriptors.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use ciphertoll_wire::postgres::CancelKey;
use ciphertoll_wire::postgres::startup::{encode_cancel_request, encode_startup};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Case;
use crate::cases::one;
use crate::fake::{Event, FakeServer, Login};
use crate::fixture::{Fixture, Mode, PORT, RawClient};
use crate::operations::{await_that, settings};

pub(crate) const CASES: [Case; 5] = [
    ("clients are served while keys are derived for a login", derivation),
    ("a server that requires too many SCRAM iterations is refused", too_many_iterations),
    ("a log that is not read blocks no client", unread_log),
    ("a lack of file descriptors is logged once, and clients wait", out_of_files),
    ("a requester that leaves before its cancel request is complete is closed", abandoned_cancel),
];

fn derivation(fixture: &mut Fixture) {
    const QUERIES: usize = 20;
    const ATTEMPTS: usize = 5;
    let iterations = 10_000_000;
    let (_directory, file) = settings(&format!("[limits]\nmax-scram-iterations = {iterations}\n"));
    let fake = FakeServer::start(Login::ScramAfterFirst { iterations });
    let mut proxy = fixture.proxy_to(&fake.url(), &["--config", &file]);
    "toll".clone_into(&mut proxy.user);
    let mut served = proxy.raw(&[]);
    served.answer();
    // The derivation takes seconds. An attempt fails only if the machine serves no client for as long.
    let is_served = (0..ATTEMPTS).any(|_| {
        let mut waiting = proxy.raw(&[]);
        fake.await_event(Event::Challenged);
        for _ in 0..QUERIES {
            served.query("SELECT 1");
            assert_eq!(served.answer().last().map(|(kind, _)| *kind), Some(b'Z'));
        }
        let is_served = !fake.has_seen(Event::Answered);
        if !is_served {
            assert_eq!(RawClient::error_state(&waiting.answer()).as_deref(), Some("08001"));
        }
        is_served
    });
    assert!(is_served, "no client was served during any of {ATTEMPTS} derivations");
}

fn too_many_iterations(fixture: &mut Fixture) {
    let fake = FakeServer::start(Login::Scram { iterations: 1_000_001 });
    let mut proxy = fixture.proxy_to(&fake.url(), &[]);
    "toll".clone_into(&mut proxy.user);
    let answer = proxy.raw(&[]).answer();
    assert_eq!(RawClient::error_state(&answer).as_deref(), Some("08001"));
    let output: String = answer.iter().map(|(_, text)| String::from_utf8_lossy(text)).collect();
    for words in ["1000001 SCRAM iterations", "the limit is 1000000", "max-scram-iterations"] {
        assert!(output.contains(words), "{words}: {output}");
    }
}

fn unread_log(fixture: &mut Fixture) {
    const CLIENTS: usize = 3000;
    let (directory, listen) = fixture.new_directory();
    let url = fixture.url("");
    let mut command = fixture.program();
    command.args(["--listen", &listen, "--server", &url, "--log", "debug"]);
    command.args(["--threads", &fixture.threads.to_string()]).args(match fixture.mode {
        Mode::Session => &[][..],
        Mode::Transaction => &["--mode", "transaction"],
    });
    let mut child = command.stderr(Stdio::piped()).spawn().expect("the proxy starts");
    let stderr = child.stderr.take().expect("it was asked for");
    let socket = directory.join(format!(".s.PGSQL.{PORT}"));
    await_that("it listens", || UnixStream::connect(&socket).is_ok());
    let mut startup = Vec::new();
    let (user, database) = (fixture.server().user(), fixture.server().database());
    encode_startup(&mut startup, &[("user", user), ("database", database)]).expect("a start-up");
    let served = (0..CLIENTS).all(|_| {
        let mut raw = RawClient::connect(&socket);
        raw.send(&startup);
        let is_in = raw.answer().last().is_some_and(|(kind, _)| *kind == b'Z');
        raw.query("SELECT 1");
        is_in && raw.answer().last().is_some_and(|(kind, _)| *kind == b'Z')
    });
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).expect("it is there");
    let lines: Vec<String> = BufReader::new(stderr).lines().map_while(Result::ok).collect();
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert!(served, "a client was not served after {} lines", lines.len());
    let dropped: Vec<usize> = lines
        .iter()
        .filter_map(|line| {
            line.split_once("event=log-lines-dropped count=")?.1.split(' ').next()?.parse().ok()
        })
        .collect();
    let (written, dropped) = (lines.len() - dropped.len(), dropped.iter().sum::<usize>());
    assert!(dropped > 0, "{written} lines were written, none was dropped");
    assert!(written + dropped >= CLIENTS, "{written} lines were written and {dropped} dropped");
    assert!(lines.iter().any(|line| line.contains("event=stopped")), "the last line is missing");
}

fn out_of_files(fixture: &mut Fixture) {
    const FILES: usize = 64;
    let (directory, listen) = fixture.new_directory();
    let (url, threads) = (fixture.url(""), fixture.threads.to_string());
    let mut command = Command::new("sh");
    let limited = format!("ulimit -n {FILES}; exec \"$0\" \"$@\"");
    command.args(["-c", &limited, env!("CARGO_BIN_EXE_ciphertoll-proxy")]);
    command.args(["--listen", &listen, "--server", &url, "--log", "info"]);
    command.env("PGPASSWORD", String::from_utf8(fixture.password()).expect("text"));
    let mut proxy = fixture.proxy_by(&mut command, directory, PORT);
    let mut served = proxy.client();
    let mut silent: Vec<RawClient> = (0..FILES).map(|_| proxy.raw_silent()).collect();
    proxy.process.await_line("event=accept-failed");
    // Each of them wakes the proxy, which must serve its other clients.
    for _ in 0..FILES {
        silent.push(proxy.raw_silent());
        assert_eq!(one(&mut served, "SELECT 1"), "1");
    }
    drop(silent);
    assert_eq!(one(&mut proxy.client(), "SELECT 2"), "2", "the waiting clients are served");
    proxy.process.read_on();
    let lines = proxy.process.log.iter().filter(|line| line.contains("event=accept-failed")).count();
    assert!(lines <= 2 * threads.parse::<usize>().expect("a number"), "{lines} lines");
}

fn abandoned_cancel(fixture: &mut Fixture) {
    let fake = FakeServer::start(Login::Trust);
    let mut proxy = fixture.proxy_to(&fake.url(), &[]);
    "toll".clone_into(&mut proxy.user);
    let mut target = proxy.raw(&[]);
    target.answer();
    let mut bytes = Vec::new();
    let key = CancelKey::new(target.key.clone()).expect("a key");
    encode_cancel_request(&mut bytes, target.process_id, &key);
    let mut requester = proxy.raw_silent();
    requester.send(&bytes);
    fake.await_event(Event::Cancel);
    drop(requester);
    proxy.process.await_line("left before its cancel request was complete");
    // The connection is not reused before the request is complete or has timed out.
    drop(target);
    // The limits of the request and of the wait for it end at nearly the same time. Each closes the connection, with "is
    // still on its way" or "may still be on its way".
    let closed = proxy.process.await_line("event=server-closed");
    assert!(closed.contains("a request to cancel ") && closed.contains(" on its way"), "{closed}");
}
