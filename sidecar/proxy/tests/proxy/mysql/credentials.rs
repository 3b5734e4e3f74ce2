//! Passwords that a command prints.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ciphertoll_model::Engine;
use ciphertoll_testing::missing;

use super::Case;
use super::fixture::{Fixture, Proxy, client_at, one};
use crate::operations::{await_that, settings, write_secret};
use crate::stand_in::{COUNTED, Duty, StandIn};

pub(crate) const CASES: [Case; 4] = [
    ("a client waits for the first password, and is told why there is none", first),
    ("a password that changes each second costs no client a connect", changing),
    ("a command can change the server's user name", changing_user),
    ("users whom the settings do not name have passwords of a command", any_user),
];

const USER: &str = "token";

/// A proxy whose user has the password that the script prints. Connections are opened all the time.
fn proxy(fixture: &mut Fixture, stand_in: &StandIn, more: &str) -> (tempfile::TempDir, Proxy) {
    let text = format!("{}[limits]\npool-size = 3\nmax-age = \"200ms\"\n", stand_in.user(USER, more));
    let (directory, file) = settings(&text);
    let mut proxy = fixture.proxy(&["--config", &file]);
    USER.clone_into(&mut proxy.user);
    (directory, proxy)
}

fn first(fixture: &mut Fixture) {
    let mut control = fixture.control();
    for sql in [
        format!("DROP USER IF EXISTS '{USER}'@'%'"),
        format!("CREATE USER '{USER}'@'%' IDENTIFIED BY 'secret'"),
        format!("GRANT ALL ON {}.* TO '{USER}'@'%'", fixture.server().database()),
    ] {
        control.execute(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    // The user of the server's URL, without whose login no client can be greeted.
    let gate = "cd $(dirname $0)\nuntil [ -e open ]; do sleep 0.02; done\n";
    let stand_in = StandIn::new(&format!("{gate}echo 'no token' >&2; exit 1\n"));
    let (_directory, file) = settings(&stand_in.user(USER, ""));
    let url = fixture.url().replace(&format!("//{}@", fixture.user()), &format!("//{USER}@"));
    let mut proxy = fixture.proxy_to(&url, Vec::new(), &["--config", &file]);
    USER.clone_into(&mut proxy.user);
    thread::scope(|scope| {
        let client = scope.spawn(|| proxy.try_client().map(drop));
        await_that("the client waits", || !client.is_finished() && stand_in.is_running());
        fs::write(stand_in.path("open"), "").expect("ours to write");
        let error = client.join().expect("no panic").expect_err("no password").to_string();
        assert!(error.contains("no password for token: the log has the reason"), "{error}");
    });
    stand_in.write("echo secret\n");
    proxy.process.await_line("event=password-fetched");
    assert_eq!(one(&mut proxy.client(), "SELECT 42"), "42");
}

/// Clients connect and disconnect until `is_over`; all must be served.
fn load(proxy: &Proxy, mut is_over: impl FnMut() -> bool) {
    let stop = AtomicBool::new(false);
    let (socket, user, database) = (&proxy.socket, &proxy.user, &proxy.database);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // The log of a long run must not grow too fast.
                    thread::sleep(Duration::from_millis(5));
                    let served =
                        client_at(socket, user, database).map(|mut client| one(&mut client, "SELECT 42"));
                    if served.as_ref().map(String::as_str).ok() != Some("42") {
                        stop.store(true, Ordering::Relaxed);
                        panic!("{served:?}");
                    }
                }
            });
        }
        await_that("the load is over", || stop.load(Ordering::Relaxed) || is_over());
        stop.store(true, Ordering::Relaxed);
    });
}

fn assert_no_failure(proxy: &mut Proxy, stand_in: &StandIn) {
    proxy.process.read_on();
    for line in ["event=connect-failed", "it was opened with old settings", "event=password-fetch-failed"] {
        assert_eq!(proxy.process.count(line), 0, "{line}: {:#?}", proxy.process.log);
    }
    assert!(proxy.process.count("it is old") > 0);
    stand_in.assert_no_secret_in(&proxy.process.log);
}

/// The script sets the password with MariaDB's command-line client.
fn changing(fixture: &mut Fixture) {
    if fixture.engine() != Engine::MariaDb {
        return;
    }
    let client = "mariadb";
    if std::process::Command::new(client).arg("--version").output().is_err() {
        return missing("mariadb is not here");
    }
    let mut control = fixture.control();
    for sql in [
        format!("DROP USER IF EXISTS '{USER}'@'%'"),
        format!("CREATE USER '{USER}'@'%' IDENTIFIED BY 'unknown'"),
        format!("GRANT ALL ON {}.* TO '{USER}'@'%'", fixture.server().database()),
    ] {
        control.execute(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let alter = format!("ALTER USER '{USER}'@'%' IDENTIFIED BY '$secret'");
    let stand_in = StandIn::new(&format!(
        "{COUNTED}echo \"{alter}\" | {client} --defaults-file=options\necho $secret\n"
    ));
    let password = String::from_utf8(fixture.password()).expect("text");
    let (user, socket) = fixture.control_login();
    let options = format!("[client]\nuser={user}\npassword=\"{password}\"\nsocket={}\n", socket.display());
    write_secret(&stand_in.path("options"), &options);
    let mut duty = Duty::begin();
    let (_directory, mut proxy) = proxy(fixture, &stand_in, duty.lifetime);
    duty.fulfil(&stand_in, |is_over| load(&proxy, is_over));
    assert_no_failure(&mut proxy, &stand_in);
}

/// The test creates and drops the accounts that the script prints one after the other, as Vault does.
fn changing_user(fixture: &mut Fixture) {
    const RUNS: usize = 4;
    let mut control = fixture.control();
    let database = fixture.server().database().to_owned();
    let account = |number: usize| format!("'v-token-{number}'@'%'");
    for number in 1..=RUNS * 4 {
        for sql in [
            format!("DROP USER IF EXISTS {}", account(number)),
            format!("CREATE USER {} IDENTIFIED BY 'secret of {number}'", account(number)),
            format!("GRANT ALL ON {database}.* TO {}", account(number)),
        ] {
            control.execute(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
    }
    let print = "printf '{\"lease_duration\":2,\"data\":{\"username\":\"v-token-%s\",\"password\":\"secret of %s\"}}' $n $n\n";
    let stand_in = StandIn::new(&format!("{COUNTED}{print}"));
    let (_directory, mut proxy) = proxy(fixture, &stand_in, "");
    let mut lasting = proxy.client();
    lasting.query("BEGIN").expect("a transaction");
    let who = "SELECT SUBSTRING_INDEX(USER(), '@', 1)";
    assert_eq!(one(&mut lasting, who), "v-token-1");
    let mut dropped = 0;
    load(&proxy, || {
        // An account ends some time after its successor was printed; its connections live on.
        let last = stand_in.runs().saturating_sub(2);
        while dropped < last {
            dropped += 1;
            control.execute(&format!("DROP USER {}", account(dropped))).expect("the control account may");
        }
        stand_in.runs() >= RUNS
    });
    assert_eq!(one(&mut lasting, who), "v-token-1");
    let mut other = proxy.client();
    let other = one(&mut other, who);
    assert!(other.starts_with("v-token-") && other != "v-token-1", "{other}");
    fs::write(stand_in.path("secrets"), "secret of\n").expect("ours to write");
    assert_no_failure(&mut proxy, &stand_in);
}

fn any_user(fixture: &mut Fixture) {
    let mut control = fixture.control();
    for user in ["any_one", "any_two"] {
        for sql in [
            format!("DROP USER IF EXISTS '{user}'@'%'"),
            format!("CREATE USER '{user}'@'%' IDENTIFIED BY 'secret of {user}'"),
            format!("GRANT ALL ON {}.* TO '{user}'@'%'", fixture.server().database()),
        ] {
            control.execute(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
    }
    let stand_in = StandIn::new(&format!("{COUNTED}echo \"$1\" >> names\necho \"secret of $1\"\n"));
    let text = format!("{}[limits]\npool-size = 3\n", stand_in.user("*", "password-lifetime = \"2s\""));
    let (directory, file) = settings(&text);
    let mut proxy = fixture.proxy(&["--config", &file]);
    let socket = proxy.socket.clone();
    let database = proxy.database.clone();
    let who = |user: &str| {
        client_at(&socket, user, &database)
            .map(|mut client| one(&mut client, "SELECT SUBSTRING_INDEX(USER(), '@', 1)"))
    };
    for user in ["any_one", "any_two", "any_one", &fixture.user()] {
        assert_eq!(who(user).unwrap_or_else(|error| panic!("{user}: {error}")), user);
    }
    let names = fs::read_to_string(stand_in.path("names")).expect("it has run");
    assert!(!names.contains(&fixture.user()), "{names}");
    let refused = who("nobody").expect_err("the server has no such user").to_string();
    assert!(refused.contains("Access denied"), "{refused}");
    for name in ["-any", "any/../x", "any=1"] {
        let refused = who(name).expect_err("a name that no program is given").to_string();
        assert!(refused.contains("asks for no password of a user with such a name"), "{name}: {refused}");
    }
    let mut lasting = client_at(&socket, "any_two", &database).expect("a login");
    lasting.query("BEGIN").expect("a transaction");
    fs::write(directory.path().join("proxy.toml"), "").expect("ours to write");
    proxy.process.signal(nix::sys::signal::Signal::SIGHUP);
    proxy.process.await_line("event=reloaded");
    let refused =
        client_at(&socket, "any_one", &database).and_then(|mut client| client.query("SELECT 1").map(drop));
    assert!(refused.is_err(), "the settings have no such user any more");
    // A client without a transaction would need a new connection.
    assert_eq!(one(&mut lasting, "SELECT 42"), "42");
    lasting.query("COMMIT").expect("the end");
    fs::write(stand_in.path("secrets"), "secret of\n").expect("ours to write");
    proxy.process.read_on();
    stand_in.assert_no_secret_in(&proxy.process.log);
}
