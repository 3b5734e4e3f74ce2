//! Passwords that a command prints: tokens that change, users that change, commands that fail.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ciphertoll_model::{Auth, Endpoint, Engine};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Case;
use crate::cases::one;
use crate::fixture::{Fixture, PORT, Proxy, client_at};
use crate::operations::{admin_of, await_that, get, settings};
use crate::say;
use crate::stand_in::{COUNTED, Duty, StandIn};
use crate::upgrades::upgrade_twice;

/// In both pooling modes.
pub(crate) const CASES: [Case; 5] = [
    ("a password that changes each second costs no client a connect", changing),
    ("a command can change the server's user name", changing_user),
    ("a password that was replaced ahead of time is fetched again", ahead_of_time),
    ("a reload and an upgrade keep passwords of commands", replaced),
    ("users whom the settings do not name have passwords of a command", any_user),
];

pub(crate) const OF_SESSIONS: [Case; 6] = [
    ("a client waits for the first password", first),
    ("a command that fails is run again, and its reason is told", failing),
    ("a password that has expired opens no connections, and closes none", expired),
    ("a token is sent in cleartext over verified TLS only", cleartext),
    ("commands end with the proxy and inherit no password", inherited),
    ("a check runs the command once", checked),
];

const USER: &str = "token";

/// Creates the role of the tests. The stand-in replaces its password.
fn create_role(fixture: &Fixture) {
    let mut control = fixture.control();
    control.query(&format!("DROP ROLE IF EXISTS {USER}")).expect("no role");
    let create = format!("CREATE ROLE {USER} LOGIN PASSWORD 'unknown' IN ROLE toll_scram");
    control.query(&create).expect("a role");
}

/// The words of a psql that may do anything.
pub(crate) fn psql(fixture: &Fixture) -> String {
    let Endpoint::Unix(path) = fixture.server().unix_endpoint() else { panic!("a server has a socket") };
    let directory = path.parent().unwrap_or(Path::new("")).display().to_string();
    let (port, database) = (fixture.server_port(), fixture.server().database());
    format!("psql -X -q -A -t -v ON_ERROR_STOP=1 -h {directory} -p {port} -U ciphertoll -d {database}")
}

/// Gives the role another password and prints it.
fn altering(fixture: &Fixture) -> String {
    let alter = format!("echo \"ALTER ROLE {USER} PASSWORD '$secret'\" | {}", psql(fixture));
    format!("{COUNTED}{alter}\necho $secret\n")
}

/// Creates a role that ends soon, and prints it as Vault does.
fn creating(fixture: &Fixture) -> String {
    let psql = psql(fixture);
    format!(
        r#"{COUNTED}user=v-$1-$n-$$
echo "SELECT format('CREATE ROLE %I LOGIN PASSWORD %L VALID UNTIL %L IN ROLE toll_scram', '$user', '$secret', now() + interval '20 s') \gexec" | {psql}
printf '{{"request_id":"1f","lease_id":"database/creds/app/x","lease_duration":2,"renewable":true,'
printf '"data":{{"password":"%s","username":"%s"}},"wrap_info":null,"auth":null}}\n' $secret $user
"#
    )
}

/// A proxy with these settings.
fn proxy(fixture: &mut Fixture, text: &str, more: &[&str]) -> (tempfile::TempDir, Proxy) {
    let (directory, file) = settings(text);
    let mut proxy = fixture.proxy(&[&["--config", &file], more].concat());
    USER.clone_into(&mut proxy.user);
    (directory, proxy)
}

/// Clients connect and disconnect until `is_over`; all must be served. Returns how many there were.
fn load(proxy: &Proxy, is_over: &(dyn Fn() -> bool + Sync)) -> usize {
    const LOOPS: usize = 3;
    let (count, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (socket, user, database) = (proxy.socket(), proxy.user.clone(), proxy.database.clone());
    thread::scope(|scope| {
        for number in 0..LOOPS {
            let (count, stop, socket, user, database) = (&count, &stop, &socket, &user, &database);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // The log of a long run must not grow too fast.
                    thread::sleep(Duration::from_millis(5));
                    let round = count.load(Ordering::Relaxed);
                    let served = client_at(socket, user, database)
                        .map(|mut client| one(&mut client, &format!("SELECT '{number}-{round}'")));
                    if served.as_ref().ok() != Some(&format!("{number}-{round}")) {
                        stop.store(true, Ordering::Relaxed);
                        panic!("{served:?}");
                    }
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        await_that("the load is over", || stop.load(Ordering::Relaxed) || is_over());
        stop.store(true, Ordering::Relaxed);
    });
    count.into_inner()
}

fn changing(fixture: &mut Fixture) {
    create_role(fixture);
    let (stand_in, mut duty) = (StandIn::new(&altering(fixture)), Duty::begin());
    let text = stand_in.user(USER, duty.lifetime);
    // Connections are opened all the time.
    let text = format!("{text}[limits]\npool-size = 3\nmax-age = \"200ms\"\n");
    let (_directory, mut proxy) = proxy(fixture, &text, &["--admin", "tcp:127.0.0.1:0"]);
    let mut served = 0;
    duty.fulfil(&stand_in, |is_over| served += load(&proxy, is_over));
    let runs = stand_in.runs();
    say(&format!("{runs} passwords, {served} clients served"));
    assert!(served > runs, "{served}");
    proxy.process.read_on();
    for line in ["event=connect-failed", "it was opened with old settings", "event=password-fetch-failed"] {
        assert_eq!(proxy.process.count(line), 0, "{line}: {:#?}", proxy.process.log);
    }
    assert!(proxy.process.count("it is old") >= runs);
    stand_in.assert_no_secret_in(&proxy.process.log);
    let (_, metrics) = get(admin_of(&proxy), "/metrics");
    let fetched = format!("ciphertoll_proxy_password_fetches_total{{user=\"{USER}\",result=\"done\"}} ");
    let fetched = metrics.lines().find_map(|line| line.strip_prefix(&fetched)).expect("a counter");
    assert!(fetched.parse::<usize>().expect("a number") >= runs - 1, "{metrics}");
    let expiry = format!("ciphertoll_proxy_password_expiry_timestamp_seconds{{user=\"{USER}\"}} ");
    assert!(metrics.contains(&expiry), "{metrics}");
    let (_, status) = get(admin_of(&proxy), "/status");
    assert!(status.contains("\"passwords\":[{\"user\":\"token\""), "{status}");
    stand_in.assert_no_secret_in(&[metrics, status]);
}

fn changing_user(fixture: &mut Fixture) {
    const RUNS: usize = 4;
    let stand_in = StandIn::new(&creating(fixture));
    let text = format!("{}[limits]\npool-size = 4\nmax-age = \"1s\"\n", stand_in.user(USER, ""));
    let (_directory, mut proxy) = proxy(fixture, &text, &[]);
    let mut lasting = proxy.client();
    lasting.query("BEGIN").expect("a transaction");
    let before = one(&mut lasting, "SELECT session_user");
    assert!(before.starts_with("v-token-1-"), "{before}");
    load(&proxy, &|| stand_in.runs() >= RUNS);
    // Clients of one name share connections of several users of the server.
    let mut others = [proxy.client(), proxy.client(), proxy.client()];
    let users = others.iter_mut().map(|client| {
        client.query("BEGIN").expect("a transaction");
        one(client, "SELECT session_user")
    });
    let users: Vec<String> = users.collect();
    assert!(users.iter().all(|user| user.starts_with("v-token-")), "{users:?}");
    assert!(users.iter().any(|user| *user != before), "{users:?}");
    assert_eq!(one(&mut lasting, "SELECT session_user"), before);
    assert_eq!(proxy.process.count("event=connect-failed"), 0);
    assert_eq!(proxy.process.count("it was opened with old settings"), 0);
    stand_in.assert_no_secret_in(&proxy.process.log);
}

/// Ends the server connections of the tests' role.
fn end_connections(fixture: &Fixture) {
    let mut control = fixture.control();
    let of_role = format!("FROM pg_stat_activity WHERE usename = '{USER}'");
    control.query(&format!("SELECT pg_terminate_backend(pid) {of_role}")).expect("the control role may");
    await_that("they have ended", || one(&mut control, &format!("SELECT count(*) {of_role}")) == "0");
}

fn ahead_of_time(fixture: &mut Fixture) {
    create_role(fixture);
    let stand_in = StandIn::new("d=$(dirname $0)\necho run >> $d/runs\ncat $d/current\n");
    let (_directory, mut proxy) = proxy(fixture, &stand_in.user(USER, ""), &[]);
    let set = |password: &str, printed: &str| {
        fs::write(stand_in.path("current"), printed).expect("ours to write");
        let alter = format!("ALTER ROLE {USER} PASSWORD '{password}'");
        fixture.control().query(&alter).expect("the control role may");
    };
    let runs = || fs::read_to_string(stand_in.path("runs")).unwrap_or_default().lines().count();
    set("first", "first");
    // It may have run before the file was there.
    await_that("the first password is there", || proxy.try_client().is_ok());
    let before = runs();
    for (round, password) in ["second", "third"].into_iter().enumerate() {
        set(password, password);
        end_connections(fixture);
        await_that("the next client is served", || match proxy.try_client() {
            Ok(mut client) => one(&mut client, "SELECT 42") == "42",
            // The connection that it got had just been ended.
            Err(error) => panic!("{error}"),
        });
        assert_eq!(runs(), before + round + 1);
    }
    assert!(proxy.process.count("event=password-refused") >= 2);
    // A newer password that the server refuses, too, is not fetched again and again.
    set("fourth", "wrong");
    end_connections(fixture);
    for _ in 0..3 {
        let error = proxy.try_client().err().expect("a wrong password").to_string();
        assert!(error.contains("password authentication failed"), "{error}");
    }
    assert_eq!(runs(), before + 3);
}

fn replaced(fixture: &mut Fixture) {
    let stand_in = StandIn::new(&creating(fixture));
    let text = format!("{}[limits]\npool-size = 4\n", stand_in.user(USER, ""));
    let (directory, mut proxy) = proxy(fixture, &text, &[]);
    let mut lasting = proxy.client();
    lasting.query("BEGIN").expect("a transaction");
    let process = one(&mut lasting, "SELECT pg_backend_pid()");
    let other = one(&mut proxy.client(), "SELECT pg_backend_pid()");
    // An unchanged command is run again, and its connections stay.
    let runs = stand_in.runs();
    proxy.process.signal(Signal::SIGHUP);
    proxy.process.await_line("event=reloaded");
    await_that("the command is run again", || stand_in.runs() > runs);
    assert_eq!(one(&mut proxy.client(), "SELECT pg_backend_pid()"), other);
    assert_eq!(proxy.process.count("it was opened with old settings"), 0);
    assert_eq!(one(&mut lasting, "SELECT pg_backend_pid()"), process);
    // Another command is another configuration: connections of the earlier one serve no other client.
    let changed = stand_in.user(USER, "").replace("\"%d\"", "\"%d\", \"other\"");
    fs::write(directory.path().join("proxy.toml"), changed).expect("ours to write");
    proxy.process.signal(Signal::SIGHUP);
    proxy.process.await_line("event=reloaded");
    lasting.query("COMMIT").expect("the end");
    drop(lasting);
    proxy.process.await_line("it was opened with old settings");
    let mut lasting = proxy.client();
    assert_eq!(one(&mut lasting, "SELECT 'before'"), "before");
    let (socket, user, database) = (proxy.socket(), proxy.user.clone(), proxy.database.clone());
    let successor = upgrade_twice(&mut proxy.process, |nonce| {
        let mut client = client_at(&socket, &user, &database).expect("no client is refused");
        one(&mut client, &format!("SELECT '{nonce}'"))
    });
    drop(lasting);
    assert_eq!(proxy.process.wait().code(), Some(0));
    successor.stop();
    proxy.process.read_on();
    stand_in.assert_no_secret_in(&proxy.process.log);
}

fn any_user(fixture: &mut Fixture) {
    const RUNS: usize = 4;
    let mut control = fixture.control();
    for user in ["any_one", "any_two"] {
        control.query(&format!("DROP ROLE IF EXISTS {user}")).expect("no role");
        let create = format!("CREATE ROLE {user} LOGIN PASSWORD 'unknown' IN ROLE toll_scram");
        control.query(&create).expect("a role");
    }
    let known = "case $1 in any_*) ;; *) echo 'no such user' >&2; exit 4 ;; esac";
    let alter = format!("echo \"ALTER ROLE $1 PASSWORD '$secret'\" | {}", psql(fixture));
    let stand_in = StandIn::new(&format!("{COUNTED}echo \"$1\" >> names\n{known}\n{alter}\necho $secret\n"));
    let runs_for = |user: &str| {
        let names = fs::read_to_string(stand_in.path("names")).unwrap_or_default();
        names.lines().filter(|name| *name == user).count()
    };
    // Connections are opened all the time.
    let limits = "[limits]\npool-size = 3\nmax-age = \"200ms\"\n";
    let text = format!("{}{limits}", stand_in.user("*", "password-lifetime = \"2s\"\npool-size = 2"));
    let (directory, mut proxy) = proxy(fixture, &text, &["--admin", "tcp:127.0.0.1:0"]);
    let who = |user: &str| {
        Ok::<_, ciphertoll_net::Error>(one(&mut proxy.try_client_as(user)?, "SELECT session_user"))
    };
    assert_eq!(who("any_one").expect("a login"), "any_one");
    assert_eq!(who("any_two").expect("a login"), "any_two");
    let refused = who("stranger").expect_err("the command fails").to_string();
    assert!(refused.contains("no password for stranger: the log has the reason"), "{refused}");
    for name in ["-any", "any/../x", "any one", "any=1"] {
        let refused = who(name).expect_err("a name that no program is given").to_string();
        assert!(refused.contains("asks for no password of a user with such a name"), "{name}: {refused}");
    }
    // The user of the server's URL has its own password.
    let own = fixture.server().account(Auth::default_of(Engine::Postgres)).user;
    assert_eq!(who(&own).expect("a login"), own);
    "any_one".clone_into(&mut proxy.user);
    load(&proxy, &|| runs_for("any_one") >= RUNS);
    assert!((1..=2).contains(&runs_for("any_two")), "it runs for users that clients name");
    assert_eq!(runs_for(&own), 0);
    assert!((1..=2).contains(&runs_for("stranger")));
    let line = proxy.process.await_line("event=password-fetch-failed");
    assert!(line.contains("user=stranger") && line.contains("exited with code 4: no such user"), "{line}");
    assert_eq!(proxy.process.count("it was opened with old settings"), 0);
    let (_, metrics) = get(admin_of(&proxy), "/metrics");
    assert!(metrics.contains("password_fetches_total{user=\"*\",result=\"done\"} "), "{metrics}");
    assert!(!metrics.contains("password_fetches_total{user=\"any_one\""), "clients name any number of users");
    // A reload with another lifetime keeps the passwords; without the section, the users are refused.
    let changed = text.replace("\"2s\"", "\"3s\"");
    fs::write(directory.path().join("proxy.toml"), changed).expect("ours to write");
    proxy.process.signal(Signal::SIGHUP);
    proxy.process.await_line("event=reloaded");
    assert_eq!(one(&mut proxy.client(), "SELECT session_user"), "any_one");
    let mut lasting = proxy.client();
    lasting.query("BEGIN").expect("a transaction");
    fs::write(directory.path().join("proxy.toml"), limits).expect("ours to write");
    proxy.process.signal(Signal::SIGHUP);
    await_that("the user is refused", || {
        proxy.try_client().and_then(|mut client| client.query("SELECT 42").map(drop)).is_err()
    });
    assert_eq!(one(&mut lasting, "SELECT 42"), "42");
    proxy.process.read_on();
    stand_in.assert_no_secret_in(&proxy.process.log);
}

fn first(fixture: &mut Fixture) {
    create_role(fixture);
    // It waits until the test says so.
    let script = altering(fixture);
    let gate = "until [ -e open ]; do sleep 0.02; done\n";
    let stand_in = StandIn::new(&script.replacen("n=$((", &format!("{gate}n=$(("), 1));
    let (_directory, mut proxy) = proxy(fixture, &stand_in.user(USER, ""), &[]);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..3).map(|_| scope.spawn(|| one(&mut proxy.client(), "SELECT 42"))).collect();
        await_that("the clients wait", || {
            clients.iter().all(|client| !client.is_finished()) && stand_in.is_running()
        });
        fs::write(stand_in.path("open"), "").expect("ours to write");
        for client in clients {
            assert_eq!(client.join().expect("it is served"), "42");
        }
    });
    assert_eq!(proxy.process.count("event=connect-failed"), 0);
}

fn failing(fixture: &mut Fixture) {
    create_role(fixture);
    let leaking = format!("{COUNTED}echo $secret\necho no $secret >&2\nexit 3\n");
    for (script, reason) in [
        ("echo 'no credentials' >&2\necho more >&2\nexit 1\n", "exited with code 1: no credentials"),
        (leaking.as_str(), "exited with code 3 (stderr repeats the output"),
        ("kill -9 $$\n", "was killed by signal 9"),
        ("", "the command printed nothing"),
        ("echo '{\"expires\": 1'\n", "is not a JSON object"),
        ("echo '{\"expires\": 1}'\n", "none of the fields password"),
        ("echo '{\"token\": \"x\", \"expires\": 1}'\n", "has expired already"),
        ("head -c 100000 /dev/zero | tr '\\0' x\nsleep 600\n", "printed more than 64 KiB"),
        ("sleep 600 & echo $! > $(dirname $0)/pid\nwait\n", "did not end within 1s"),
    ] {
        let stand_in = StandIn::new(script);
        let text = stand_in.user(USER, "password-command-time = \"1s\"");
        let (_directory, mut proxy) = proxy(fixture, &text, &[]);
        let error = proxy.try_client().err().expect("no password yet").to_string();
        let told = format!("no password for {USER}: the log has the reason");
        assert!(error.contains(&told) && (reason.is_empty() || !error.contains(reason)), "{reason}: {error}");
        let line = proxy.process.await_line("event=password-fetch-failed");
        assert!(line.contains(reason) && !line.contains("more\""), "{line}");
        if let Ok(pid) = fs::read_to_string(stand_in.path("pid")) {
            let pid = Pid::from_raw(pid.trim().parse().expect("a number"));
            await_that("the whole group has ended", || {
                let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
                stat.map_or(true, |stat| stat.contains(") Z "))
            });
        }
        stand_in.write(&altering(fixture));
        proxy.process.await_line("event=password-fetched");
        assert_eq!(one(&mut proxy.client(), "SELECT 42"), "42");
        stand_in.assert_no_secret_in(&proxy.process.log);
        assert!(!stand_in.is_running());
    }
    for mode in [None, Some(0o644)] {
        let stand_in = StandIn::new("");
        let program = stand_in.path("program");
        if let Some(mode) = mode {
            fs::write(&program, "#!/bin/sh\n").expect("ours to write");
            fs::set_permissions(&program, fs::Permissions::from_mode(mode)).expect("ours to change");
        }
        let user = format!("[[user]]\nname = \"{USER}\"\npassword-command = [\"{}\"]\n", program.display());
        let (_directory, mut proxy) = proxy(fixture, &user, &[]);
        let error = proxy.try_client().err().expect("no password yet").to_string();
        assert!(error.contains("the log has the reason"), "{error}");
        proxy.process.await_line(&format!("cannot start {}", program.display()));
    }
}

fn expired(fixture: &mut Fixture) {
    create_role(fixture);
    let altering = altering(fixture);
    let stand_in = StandIn::new(&format!("[ ! -e $(dirname $0)/broken ] || exit 7\n{altering}"));
    let text = stand_in.user(USER, "password-lifetime = \"3s\"");
    let text = format!("{text}[limits]\npool-size = 3\n");
    let (_directory, mut proxy) = proxy(fixture, &text, &[]);
    let mut lasting = proxy.client();
    let process = one(&mut lasting, "SELECT pg_backend_pid()");
    fs::write(stand_in.path("broken"), "").expect("ours to write");
    let line = proxy.process.await_line("event=password-fetch-failed");
    assert!(line.contains("exited with code 7"), "{line}");
    // The earlier one serves until it ends.
    let mut refused = None;
    let mut others = Vec::new();
    await_that("the password has expired", || {
        others.clear();
        let both = [proxy.try_client(), proxy.try_client()];
        for client in both {
            match client {
                Ok(client) => others.push(client),
                Err(error) => refused = Some(error.to_string()),
            }
        }
        // Idle connections would serve the next clients.
        let mut control = fixture.control();
        let other = format!("usename = '{USER}' AND pid <> {process}");
        control
            .query(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {other}"))
            .expect("the control role may");
        refused.is_some()
    });
    let refused = refused.unwrap_or_default();
    assert!(refused.contains(&format!("no password for {USER}: the log has the reason")), "{refused}");
    let line = proxy.process.await_line("it has expired, and no new one came: ");
    assert!(line.contains("exited with code 7"), "{line}");
    // Connections that are open serve their client and the next one.
    assert_eq!(one(&mut lasting, "SELECT pg_backend_pid()"), process);
    drop(lasting);
    await_that("the connection is idle", || {
        proxy.try_client().is_ok_and(|mut client| one(&mut client, "SELECT pg_backend_pid()") == process)
    });
    fs::remove_file(stand_in.path("broken")).expect("ours to remove");
    proxy.process.await_line("event=password-fetched");
    let mut clients = [proxy.client(), proxy.client(), proxy.client()];
    assert!(clients.iter_mut().all(|client| one(client, "SELECT 42") == "42"));
}

fn cleartext(fixture: &mut Fixture) {
    create_role(fixture);
    let stand_in = StandIn::new(&altering(fixture));
    let text = stand_in.user(USER, "");
    let mut control = fixture.control();
    let rules = one(&mut control, "SHOW hba_file");
    let before = fs::read_to_string(&rules).expect("a file");
    // As a server that verifies tokens itself.
    fs::write(&rules, format!("host all {USER} 127.0.0.0/8 password\n{before}")).expect("ours to write");
    control.query("SELECT pg_reload_conf()").expect("the control role may");
    let (_directory, mut of_tls) = proxy(fixture, &text, &[]);
    await_that("the server asks for the cleartext password", || {
        drop(of_tls.client());
        let of_role =
            format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{USER}'");
        control.query(&of_role).expect("the control role may");
        of_tls.process.count("auth=cleartext") > 0
    });
    // Without TLS it is never sent.
    let url = fixture.url("");
    let plain = format!("{}?sslmode=disable", url.split('?').next().unwrap_or_default());
    let (_directory, file) = settings(&text);
    let mut in_plain = fixture.proxy_to(&plain, &["--config", &file]);
    USER.clone_into(&mut in_plain.user);
    let error = in_plain.try_client().err().expect("it is refused").to_string();
    assert!(error.contains("the cleartext password on a connection without TLS"), "{error}");
    fs::write(&rules, before).expect("ours to write");
    control.query("SELECT pg_reload_conf()").expect("the control role may");
    stand_in.assert_no_secret_in(&of_tls.process.log);
    stand_in.assert_no_secret_in(&in_plain.process.log);
}

fn inherited(fixture: &mut Fixture) {
    let stand_in = StandIn::new("env > $(dirname $0)/env\nsleep 600 & echo $! > $(dirname $0)/pid\nwait\n");
    let text = stand_in.user(USER, "password-command-time = \"1m\"");
    let text = format!("{text}[[user]]\nname = \"other\"\npassword-env = \"OTHERS_SECRET\"\n");
    let (directory, listen) = fixture.new_directory();
    let (_directory, file) = settings(&text);
    let (url, mut command) = (fixture.url(""), fixture.program());
    command.args(["--listen", &listen, "--server", &url, "--config", &file]);
    command.env("OTHERS_SECRET", "hunter2").env("MYSQL_PWD", "hunter3").env("HARMLESS", "1");
    let mut proxy = fixture.proxy_by(&mut command, directory, PORT);
    let pid_file = stand_in.path("pid");
    await_that("the command runs", || fs::read_to_string(&pid_file).is_ok_and(|text| text.ends_with('\n')));
    let environment = fs::read_to_string(stand_in.path("env")).expect("it was written");
    assert!(environment.contains("HARMLESS=1"), "{environment}");
    let password = String::from_utf8(fixture.password()).expect("text");
    for secret in ["hunter2", "hunter3", "PGPASSWORD", "NOTIFY_SOCKET", &password] {
        assert!(!environment.contains(secret), "{secret}");
    }
    let pid: i32 = fs::read_to_string(&pid_file).expect("a file").trim().parse().expect("a number");
    assert!(kill(Pid::from_raw(pid), None).is_ok(), "it runs");
    proxy.process.signal(Signal::SIGTERM);
    assert_eq!(proxy.process.wait().code(), Some(0));
    let stat = format!("/proc/{pid}/stat");
    await_that("it ends", || fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z ")));
}

fn checked(fixture: &mut Fixture) {
    create_role(fixture);
    let stand_in = StandIn::new(&altering(fixture));
    let (directory, file) = settings(&stand_in.user(USER, "password-lifetime = \"15m\""));
    let (_, listen) = fixture.new_directory();
    let check = || -> Output {
        let (url, mut command) = (fixture.url(""), fixture.program());
        command.args(["--listen", &listen, "--server", &url, "--config", &file, "--check"]);
        command.output().expect("it runs")
    };
    let output = check();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!((output.status.code(), stand_in.runs()), (Some(0), 1), "{stderr}");
    assert!(stdout.contains("password-lifetime = \"15m\""), "{stdout}");
    stand_in.assert_no_secret_in(&[stdout.into_owned(), stderr.into_owned()]);
    stand_in.write("echo broken >&2; exit 1");
    let output = check();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{stderr}");
    assert!(stderr.contains("no password for user \"token\": sh exited with code 1: broken"), "{stderr}");
    assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
    drop(directory);
}
