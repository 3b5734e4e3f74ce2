//! Limits of users and databases.

use std::sync::mpsc;
use std::thread;

use super::Case;
use super::fixture::{Fixture, one};
use crate::fixture::Mode;
use crate::operations::{admin_address, await_that, samples, settings};

pub(crate) const CASES: [Case; 2] = [
    ("a user or a database has no more clients than permitted", clients),
    ("a user that waits is served before one that floods the pool", flooded),
];

const SECOND: &str = "[[user]]\nname = \"second\"\npassword-file = \"second\"\n";

fn clients(fixture: &mut Fixture) {
    let (directory, file) = settings(&format!("{SECOND}max-clients = 1\n"));
    let second = fixture.second_user(directory.path());
    let proxy = fixture.proxy(&["--config", &file]);
    let first = proxy.client_as(second, b"").expect("the first one");
    let error = proxy.client_as(second, b"").err().expect("the limit is reached");
    let text = error.to_string();
    assert!(text.contains("1226") && text.contains("'max-clients'"), "{text}");
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
    drop(first);
    await_that("another one is let in", || proxy.client_as(second, b"").is_ok());
    let text = format!("[[database]]\nname = \"{}\"\nmax-clients = 1\n", fixture.server().database());
    let (_directory, file) = settings(&text);
    let proxy = fixture.proxy(&["--config", &file]);
    let first = proxy.client();
    let error = proxy.try_client().err().expect("the limit is reached");
    assert!(error.to_string().contains("1040"), "{error}");
    drop(first);
}

fn flooded(fixture: &mut Fixture) {
    const FLOOD: usize = 6;
    let (directory, file) = settings(&format!("[limits]\npool-size = 2\n{SECOND}"));
    let second = fixture.second_user(directory.path());
    let proxy = fixture.proxy(&["--config", &file, "--admin", "tcp:127.0.0.1:0"]);
    let admin = admin_address(&proxy.process.log);
    let [mut first, mut last] = [proxy.client(), proxy.client()];
    first.execute("BEGIN").expect("a transaction");
    last.execute("BEGIN").expect("a transaction");
    let (sender, served) = mpsc::channel();
    thread::scope(|scope| {
        let proxy = &proxy;
        for _ in 0..FLOOD {
            let sender = sender.clone();
            scope.spawn(move || {
                let mut client = proxy.client();
                client.execute("BEGIN").expect("a transaction");
                sender.send("flood").expect("it is read");
            });
        }
        let queued = |count: usize| {
            await_that("all wait", || {
                (samples(admin)["clients{state=\"queued\"}"] - count as f64).abs() < 0.5
            });
        };
        queued(FLOOD);
        scope.spawn(move || {
            let mut client = proxy.client_as(second, b"").expect("it is served");
            client.execute("BEGIN").expect("a transaction");
            sender.send("quiet").expect("it is read");
        });
        queued(FLOOD + 1);
        drop(first);
        let order: Vec<_> = served.iter().collect();
        // In transaction mode, the login of the first is one turn, and its transaction another one.
        let before = order.iter().position(|who| *who == "quiet").expect("it is served");
        assert!(before <= usize::from(fixture.mode == Mode::Transaction), "{order:?}");
        assert_eq!(order.len(), FLOOD + 1);
    });
    drop(last);
}
