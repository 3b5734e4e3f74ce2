//! Limits of users and databases, and whose turn it is when all connections are in use.

use ciphertoll_net::blocking::Client;
use rustix::net::{RecvFlags, recv};

use crate::Case;
use crate::fixture::{Fixture, Proxy, RawClient};
use crate::operations::{admin_of, await_that, in_queue_time, samples, second_user, settings};

pub(crate) const CASES: [Case; 5] = [
    ("a user or a database has no more clients than permitted", clients),
    ("a user has no more connections than permitted, and leaves the others to other users", connections),
    ("a database has no more connections than permitted", of_database),
    ("connections of a user and of a database are opened in advance", in_advance),
    ("a user that waits is served before a user that floods the pool", flooded),
];

pub(crate) const SECOND: &str = "[[user]]\nname = \"second\"\npassword-file = \"second\"\n";

/// A proxy with these settings behind those of a second user.
pub(crate) fn proxy_with(fixture: &mut Fixture, text: &str) -> (Proxy, tempfile::TempDir) {
    let (directory, file) = settings(text);
    second_user(fixture, directory.path());
    let proxy = fixture.proxy(&["--config", &file, "--admin", "tcp:127.0.0.1:0"]);
    (proxy, directory)
}

pub(crate) fn second(proxy: &Proxy) -> Result<Client, ciphertoll_net::Error> {
    proxy.try_client_as("second")
}

fn clients(fixture: &mut Fixture) {
    let (proxy, _directory) = proxy_with(fixture, &format!("{SECOND}max-clients = 1\n"));
    let first = second(&proxy).expect("the first one");
    let refused = proxy.raw(&[("user", "second")]).answer();
    assert_eq!(RawClient::error_state(&refused).as_deref(), Some("53300"), "{refused:?}");
    let text = String::from_utf8_lossy(&refused[0].1).into_owned();
    assert!(
        text.contains("too many connections for role \"second\" (max-clients of the proxy: 1)"),
        "{text}"
    );
    let own = [proxy.client(), proxy.client()];
    let sample = |name: &str| samples(admin_of(&proxy))[name];
    assert_eq!(sample("user_clients{user=\"second\"}").to_string(), "1");
    assert_eq!(sample("user_clients_max{user=\"second\"}").to_string(), "1");
    drop((first, own));
    await_that("another one is let in", || second(&proxy).is_ok());
    let database = fixture.server().database().to_owned();
    let text = format!("{SECOND}[[database]]\nname = \"{database}\"\nmax-clients = 2\n");
    let (proxy, _directory) = proxy_with(fixture, &text);
    let both = (proxy.client(), second(&proxy).expect("another user"));
    let refused = proxy.raw(&[]).answer();
    assert_eq!(RawClient::error_state(&refused).as_deref(), Some("53300"), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused[0].1).contains("too many connections for database"));
    drop(both);
    await_that("another one is let in", || proxy.try_client().is_ok());
}

/// Occupies a connection.
fn hold(client: &mut Client) {
    client.query("BEGIN").expect("a transaction");
}

fn connections(fixture: &mut Fixture) {
    let text = format!("[limits]\npool-size = 3\nqueue-time = \"500ms\"\n{SECOND}pool-size = 1\n");
    let (proxy, _directory) = proxy_with(fixture, &text);
    let mut first = in_queue_time(|| second(&proxy));
    hold(&mut first);
    let refused = second(&proxy).and_then(|mut client| client.query("BEGIN"));
    let error = refused.expect_err("the second connection");
    assert!(error.to_string().contains("no server connection became free"), "{error}");
    let mut others = [in_queue_time(|| proxy.try_client()), in_queue_time(|| proxy.try_client())];
    others.iter_mut().for_each(hold);
    let sample = |name: &str| samples(admin_of(&proxy))[name];
    assert_eq!(sample("user_connections{user=\"second\"}").to_string(), "1");
    assert_eq!(sample("user_connections_max{user=\"second\"}").to_string(), "1");
    first.query("COMMIT").expect("its end");
    drop(first);
    assert_eq!(in_queue_time(|| second(&proxy)?.query("SELECT 1")).len(), 1);
}

fn of_database(fixture: &mut Fixture) {
    let database = fixture.server().database().to_owned();
    let text = format!(
        "[limits]\npool-size = 3\nqueue-time = \"500ms\"\n{SECOND}[[database]]\nname = \"{database}\"\npool-size = 2\n"
    );
    let (proxy, _directory) = proxy_with(fixture, &text);
    let mut both = [in_queue_time(|| proxy.try_client()), in_queue_time(|| second(&proxy))];
    both.iter_mut().for_each(hold);
    let refused = proxy.try_client().and_then(|mut client| client.query("BEGIN"));
    let error = refused.expect_err("a third connection");
    assert!(error.to_string().contains("no server connection became free"), "{error}");
    // Another database has room: its error is that of the server.
    let elsewhere = proxy.raw(&[("database", "no_such_database")]).answer();
    let state = RawClient::error_state(&elsewhere);
    assert!(matches!(state.as_deref(), Some("3D000" | "28000")), "{elsewhere:?}");
    let name = format!("database_connections{{database=\"{database}\"}}");
    assert_eq!(samples(admin_of(&proxy))[&name].to_string(), "2");
}

fn in_advance(fixture: &mut Fixture) {
    let database = fixture.server().database().to_owned();
    let text = format!("{SECOND}min-pool-size = 2\n[[database]]\nname = \"{database}\"\nmin-pool-size = 1\n");
    let (proxy, _directory) = proxy_with(fixture, &text);
    let count = |user: &str| {
        let name = format!("server_connections{{user=\"{user}\",database=\"{database}\",state=\"idle\"}}");
        samples(admin_of(&proxy)).get(&name).copied().unwrap_or_default().to_string()
    };
    await_that("both users have connections", || count("second") == "2" && count(&proxy.user) == "1");
    // They are not closed for another user.
    let text = format!("[limits]\npool-size = 2\nqueue-time = \"500ms\"\n{SECOND}min-pool-size = 1\n");
    let (mut proxy, _directory) = proxy_with(fixture, &text);
    proxy.process.await_line("event=server-connected");
    let mut own = in_queue_time(|| proxy.try_client());
    hold(&mut own);
    let refused = proxy.try_client().and_then(|mut client| client.query("BEGIN"));
    assert!(refused.is_err(), "a connection of the second user was taken");
    assert_eq!(in_queue_time(|| second(&proxy)?.query("SELECT 1")).len(), 1);
    assert_eq!(proxy.process.count("event=server-closed"), 0);
}

fn has_answer(raw: &RawClient) -> bool {
    recv(&raw.stream, &mut [0_u8], RecvFlags::PEEK | RecvFlags::DONTWAIT).is_ok()
}

fn flooded(fixture: &mut Fixture) {
    const FLOOD: usize = 20;
    let (proxy, _directory) = proxy_with(fixture, &format!("[limits]\npool-size = 2\n{SECOND}"));
    let waiting = |count: usize| {
        await_that("all wait", || {
            let queued = samples(admin_of(&proxy))["clients{state=\"queued\"}"];
            (queued - count as f64).abs() < 0.5
        });
    };
    let mut active = [proxy.client(), proxy.client()];
    active.iter_mut().for_each(hold);
    // Clients that keep the connection that they get.
    let begin = |user: &str| {
        let mut raw = proxy.raw(&[("user", user)]);
        if !proxy.is_session_mode() {
            assert_eq!(raw.answer().last().map(|(kind, _)| *kind), Some(b'Z'));
            raw.query("BEGIN");
        }
        raw
    };
    let flood: Vec<RawClient> = (0..FLOOD).map(|_| begin(&proxy.user)).collect();
    waiting(FLOOD);
    let mut quiet = proxy.raw(&[("user", "second")]);
    waiting(FLOOD + 1);
    let [first, second] = active;
    drop(first);
    assert_eq!(quiet.answer().last().map(|(kind, _)| *kind), Some(b'Z'));
    let served = flood.iter().filter(|raw| has_answer(raw)).count();
    let most = usize::from(!proxy.is_session_mode());
    assert!(served <= most, "{served} clients of the other user were served before it");
    drop((second, quiet));
    await_that("the others are served, too", || flood.iter().any(has_answer));
}
