//! What `MongoDB` and `FerretDB` share: commands in JSON, accounts, the collection of YCSB's records.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::{Auth, Engine, ycsb};
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::Secret;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Map, Value, json};

use crate::control::{self, Control};
use crate::credentials::Credentials;
use crate::error::Error;
use crate::loading::Watcher;
use crate::server::Arrivals;

/// The database that clients use.
pub(crate) const DATABASE: &str = "ycsb";
/// The database that knows the accounts.
pub(crate) const ADMIN: &str = "admin";
/// The account of control connections, by the unix socket.
pub(crate) const CONTROL_USER: &str = "ciphertoll_control";
/// The account for [`Auth::default_of`].
pub(crate) const USER: &str = "ciphertoll";

/// The same records in every template.
const SEED: u64 = 0x7011;
/// Documents of one `insert`: half a megabyte, so that the command's own cost does not count.
pub(crate) const BATCH_DOCUMENTS: u32 = 500;
/// Connections that load at once; while one waits for the server another makes documents.
pub(crate) const LOADERS: usize = 3;
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// How soon it is noticed that somebody wants an end.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// What every server answers, and tells nothing by it.
pub(crate) const PING: &str = r#"{"ping": 1}"#;

/// Makes the account for these credentials, with these roles.
pub(crate) fn make_account(
    control: &Control,
    credentials: Credentials,
    password: &Secret,
    roles: &Value,
) -> Result<(), Error> {
    let mechanism = if credentials.auth == Auth::ScramSha1 { "SCRAM-SHA-1" } else { "SCRAM-SHA-256" };
    let user = account_name(credentials);
    create_user(&mut control.connect()?, &user, password, roles, &[mechanism])
}

/// Makes a user; the password goes by the unix socket only, where nobody listens, and servers keep it out of their logs.
pub(crate) fn create_user(
    client: &mut Client,
    user: &str,
    password: &Secret,
    roles: &Value,
    mechanisms: &[&str],
) -> Result<(), Error> {
    let password = String::from_utf8_lossy(password.expose());
    let rest = [("pwd", json!(password)), ("roles", roles.clone()), ("mechanisms", json!(mechanisms))];
    control::execute(client, "make an account", &command("createUser", &json!(user), &rest))
}

/// The account for these credentials.
pub(crate) fn account_name(credentials: Credentials) -> String {
    let name = match credentials.auth {
        // MongoDB's, too.
        auth if auth == Auth::default_of(Engine::FerretDb) => USER.to_owned(),
        Auth::Scram { iterations, .. } => format!("{USER}_{}", iterations.number()),
        auth => format!("{USER}_{auth}").replace('-', "_"),
    };
    format!("{name}{}", credentials.account_suffix())
}

/// A command as text, whose first word names it.
pub(crate) fn command(name: &str, what: &Value, rest: &[(&str, Value)]) -> String {
    let mut text = format!("{{\"{name}\":{what}");
    for (name, value) in rest {
        // Writing to a string cannot fail.
        let _ = write!(text, ",\"{name}\":{value}");
    }
    text.push('}');
    text
}

/// The one document of an answer that is no result of documents.
pub(crate) fn ask(
    client: &mut Client,
    doing: &'static str,
    command: &str,
) -> Result<Map<String, Value>, Error> {
    let rows = control::query(client, doing, command)?;
    let answer = rows.into_iter().flatten().next().unwrap_or_default();
    match serde_json::from_str(&answer) {
        Ok(Value::Object(document)) => Ok(document),
        _ => Ok(Map::new()),
    }
}

/// Reads every record, so that the server has them at hand: nobody's field is empty, so that each is looked at, and none
/// is sent.
pub(crate) fn prewarm(control: &Control) -> Result<(), Error> {
    let rest = [("filter", json!({ "field0": "" }))];
    let command = command("find", &ycsb::COLLECTION.into(), &rest);
    let mut client = control.in_database(DATABASE).connect()?;
    control::execute(&mut client, "read all documents once", &command)
}

/// What came to the server so far, as far as it counts it; control connections are not apart.
pub(crate) fn arrivals(control: &Control) -> Result<Arrivals, Error> {
    let status = status(control)?;
    let created = status.get("connections").and_then(|connections| connections.get("totalCreated"));
    let commands = status.get("metrics").and_then(|metrics| metrics.get("commands")?.as_object());
    let total = |commands: &Map<String, Value>| {
        commands.values().filter_map(|command| command.get("total")).filter_map(number).sum()
    };
    Ok(Arrivals {
        connections: created.and_then(number),
        requests: commands.map(total),
        ..Arrivals::default()
    })
}

/// Pages that were read from disk so far; none where the server does not tell.
pub(crate) fn buffer_misses(control: &Control) -> Result<Option<u64>, Error> {
    let status = status(control)?;
    let cache = status.get("wiredTiger").and_then(|engine| engine.get("cache"));
    Ok(cache.and_then(|cache| cache.get("pages read into cache")).and_then(number))
}

fn status(control: &Control) -> Result<Map<String, Value>, Error> {
    ask(&mut control.connect()?, "read the server's counters", &command("serverStatus", &json!(1), &[]))
}

/// Servers choose between kinds of numbers.
fn number(value: &Value) -> Option<u64> {
    let long = || value.get("$numberLong")?.as_str()?.parse().ok();
    // Counts are far below what a float can tell apart.
    value.as_u64().or_else(|| value.as_f64().map(|float| float as u64)).or_else(long)
}

/// Makes the collection and fills it with the records 0 to `records`, by several connections at once.
pub(crate) fn load(
    control: &Control,
    name: &str,
    records: u32,
    watcher: &mut Watcher<'_>,
) -> Result<(), Error> {
    let control = control.in_database(DATABASE);
    let create = command("create", &ycsb::COLLECTION.into(), &[]);
    control::execute(&mut control.connect()?, "make the collection", &create)?;
    fill(&control, name, records, watcher)?;
    let count = command("count", &ycsb::COLLECTION.into(), &[]);
    let answer = ask(&mut control.connect()?, "count the documents", &count)?;
    match answer.get("n").and_then(number) {
        Some(counted) if counted == u64::from(records) => Ok(()),
        counted => Err(Error::Miscounted { loaded: records.into(), counted: counted.unwrap_or_default() }),
    }
}

fn fill(control: &Control, name: &str, records: u32, watcher: &mut Watcher<'_>) -> Result<(), Error> {
    let (next, ended) = (AtomicU32::new(0), AtomicBool::new(false));
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let loaders: Vec<_> = (0..LOADERS)
            .map(|_| {
                let (sender, next, ended) = (sender.clone(), &next, &ended);
                scope.spawn(move || {
                    let loaded = load_batches(control, records, next, ended, &sender);
                    // The others would work for nothing.
                    ended.fetch_or(loaded.is_err(), Ordering::Relaxed);
                    loaded
                })
            })
            .collect();
        drop(sender);
        let seen = watch(&receiver, name, records, watcher);
        ended.fetch_or(seen.is_err(), Ordering::Relaxed);
        let failed = loaders.into_iter().find_map(|loader| loader.join().ok()?.err());
        seen.and(failed.map_or(Ok(()), Err))
    })
}

/// Tells how far it is until all loaders are done, or somebody wants an end.
fn watch(
    receiver: &mpsc::Receiver<u32>,
    name: &str,
    records: u32,
    watcher: &mut Watcher<'_>,
) -> Result<(), Error> {
    let (mut done, mut told) = (0, Instant::now());
    loop {
        watcher.go_on()?;
        match receiver.recv_timeout(STOP_CHECK) {
            Ok(documents) => done += documents,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        if told.elapsed() >= PROGRESS_INTERVAL {
            told = Instant::now();
            watcher.say(&format!("{name}: {done} of {records} documents"));
        }
    }
}

/// Loads batches that nobody has begun, until there are none.
fn load_batches(
    control: &Control,
    records: u32,
    next: &AtomicU32,
    ended: &AtomicBool,
    done: &Sender<u32>,
) -> Result<(), Error> {
    let mut client = control.connect()?;
    while !ended.load(Ordering::Relaxed) {
        let first = next.fetch_add(1, Ordering::Relaxed).saturating_mul(BATCH_DOCUMENTS);
        if first >= records {
            break;
        }
        let end = records.min(first.saturating_add(BATCH_DOCUMENTS));
        control::execute(&mut client, "load documents", &insert(first, end))?;
        // Nobody listens any more where there is to be an end.
        let _ = done.send(end - first);
    }
    control::close(client)
}

/// The command that inserts the records from `first` to before `end`: the same whoever sends it, so that all templates are
/// the same but for the order.
fn insert(first: u32, end: u32) -> String {
    let documents: Vec<Value> = (first..end).map(|number| record(number.into())).collect();
    let rest = [("documents", Value::Array(documents)), ("ordered", json!(false))];
    command("insert", &ycsb::COLLECTION.into(), &rest)
}

/// YCSB's record of this number.
fn record(number: u64) -> Value {
    let mut random = StdRng::seed_from_u64(SEED ^ number);
    let mut record = Map::new();
    record.insert("_id".to_owned(), key(number).into());
    for field in 0..ycsb::FIELDS {
        let printable = |_| char::from(random.random_range(b' '..=b'~'));
        let value: String = (0..ycsb::FIELD_BYTES).map(printable).collect();
        record.insert(format!("field{field}"), value.into());
    }
    Value::Object(record)
}

/// The key of the record of this number.
fn key(number: u64) -> String {
    format!("{}{}", ycsb::KEY_PREFIX, ycsb::key_hash(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_ycsbs() {
        let record = record(0);
        let record = record.as_object().unwrap();
        assert_eq!(record["_id"], "user6284781860667377211");
        assert_eq!(record.len(), 11);
        for field in 0..10 {
            let value = record[&format!("field{field}")].as_str().unwrap();
            assert!(value.len() == 100 && value.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{value}");
        }
    }

    #[test]
    fn records_are_the_same_every_time_and_differ() {
        assert_eq!(insert(500, 503), insert(500, 503));
        assert_ne!(record(1)["field0"], record(2)["field0"]);
        assert_ne!(record(1)["field0"], record(1)["field1"]);
        let text = insert(998, 1_000);
        assert!(text.starts_with(r#"{"insert":"usertable","#), "the first word names the command");
        let command: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(command["documents"].as_array().unwrap().len(), 2);
        assert_eq!(command["documents"][0]["_id"], key(998));
    }

    #[test]
    fn accounts_are_named_by_what_they_show() {
        let of = |auth: &str| account_name(auth.parse::<Auth>().unwrap().into());
        assert_eq!(of("scram-15000"), USER);
        assert_eq!(
            (of("scram-4096"), of("scram-sha1")),
            ("ciphertoll_4096".into(), "ciphertoll_scram_sha1".into())
        );
    }

    #[test]
    fn numbers_are_read_of_whatever_kind() {
        let of = |text: &str| number(&serde_json::from_str(text).unwrap());
        assert_eq!([of("3"), of("3.0"), of(r#"{"$numberLong": "3"}"#)], [Some(3); 3]);
        assert_eq!([of("null"), of(r#""3""#)], [None; 2]);
    }
}
