//! How YCSB's records come into a server: in batches by several connections, each of which makes the next batch while the
//! server works on one. A load that was interrupted goes on with what is there.

use std::ops::AddAssign;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::{Engine, ycsb};
use ciphertoll_net::blocking::Client;
use serde_json::{Map, Value, json};

use super::batches::{Batches, Next};
use super::{ask, command, number, record};
use crate::control::{self, Control};
use crate::error::Error;
use crate::loading::Watcher;

/// Documents of one `insert`: half a megabyte, so that the command's own cost does not count. A load that was interrupted
/// is gone on with in the same batches.
pub(crate) const BATCH_DOCUMENTS: u32 = 500;
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// How soon it is noticed that somebody wants an end.
const STOP_CHECK: Duration = Duration::from_millis(50);
/// `NamespaceExists`: somebody has made the collection.
const COLLECTION_EXISTS: &str = "48";
/// `NamespaceNotFound`: there is none to be dropped.
const NO_COLLECTION: &str = "26";
/// A document with this key is there already.
const DUPLICATE_KEY: &str = "11000";

/// A load of the records 0 to `records` into the collection of YCSB's.
#[derive(Clone, Copy)]
pub(crate) struct Load<'a> {
    /// To the database that has the collection, or is to have it.
    pub(crate) control: &'a Control,
    /// What the server is called.
    pub(crate) name: &'a str,
    pub(crate) records: u32,
    /// How many connections load at once.
    pub(crate) connections: usize,
}

/// What a load took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Documents that were sent; those that were there before are not, but for a few.
    pub sent: u64,
    /// Those of them that the server said it had inserted.
    pub inserted: u64,
}

/// How many connections load a server of this engine at once: where it writes one thing at a time they would only wait
/// for one another.
pub(crate) fn loaders(engine: Engine) -> usize {
    match engine {
        Engine::FerretDb => 1,
        Engine::MongoDb | Engine::MariaDb | Engine::MySql | Engine::Postgres => 3,
    }
}

/// Makes the collection where there is none, and loads the records that it does not have. What is neither a whole load nor
/// the beginning of one, by its number of documents and by a look at some, is made anew.
pub(crate) fn load(load: Load<'_>, watcher: &mut Watcher<'_>) -> Result<Loaded, Error> {
    let there = count(load.control)?;
    let mut loaded = Loaded::default();
    if there > 0 && load.is_begun(there)? {
        if there == u64::from(load.records) {
            return Ok(loaded);
        }
        watcher.say(&format!("{}: going on with {there} of {} documents", load.name, load.records));
        loaded += load.fill(&load.batches(load.first_missing(there)), watcher)?;
        if count(load.control)? == u64::from(load.records) {
            return Ok(loaded);
        }
    }
    if there > 0 {
        load.drop_collection()?;
    }
    load.make_collection()?;
    let afresh = load.fill(&load.batches(0), watcher)?;
    loaded += afresh;
    // What it said is counted, and not what it has: FerretDB reads every document to count them.
    match afresh {
        Loaded { inserted, .. } if inserted == u64::from(load.records) => Ok(loaded),
        Loaded { sent, inserted } => Err(Error::Miscounted { loaded: sent, counted: inserted }),
    }
}

impl AddAssign for Loaded {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.inserted += other.inserted;
    }
}

impl Load<'_> {
    fn make_collection(self) -> Result<(), Error> {
        self.change(&command("create", &ycsb::COLLECTION.into(), &[]), COLLECTION_EXISTS)
    }

    fn drop_collection(self) -> Result<(), Error> {
        self.change(&command("drop", &ycsb::COLLECTION.into(), &[]), NO_COLLECTION)
    }

    /// Runs a command; a refusal with this code says that there is nothing to be done.
    fn change(self, command: &str, done_already: &str) -> Result<(), Error> {
        match control::execute(&mut self.control.connect()?, "make the collection", command) {
            Err(error) if is_refusal(&error, done_already) => Ok(()),
            changed => changed,
        }
    }

    fn batches(self, first: u32) -> Batches {
        Batches::new(self.records, BATCH_DOCUMENTS, self.window(), first)
    }

    fn first_missing(self, there: u64) -> u32 {
        Batches::first_missing(there, BATCH_DOCUMENTS, self.window())
    }

    /// Each connection has a batch on its way and another at hand.
    fn window(self) -> u32 {
        u32::try_from(self.connections).unwrap_or(u32::MAX).saturating_mul(2)
    }

    /// Whether so many documents can be all or the first of what is to be loaded: not too many, and those that must be
    /// among them are there and as large as they should be. Their values may have been updated since.
    fn is_begun(self, there: u64) -> Result<bool, Error> {
        let records = u64::from(self.records);
        if there > records {
            return Ok(false);
        }
        let whole = if there == records {
            there
        } else {
            u64::from(self.first_missing(there)) * u64::from(BATCH_DOCUMENTS)
        };
        if whole == 0 {
            return Ok(true);
        }
        let mut client = self.control.connect()?;
        for number in [0, whole / 2, whole - 1] {
            let rest = [("filter", json!({ "_id": ycsb::key(number) })), ("limit", json!(1))];
            let find = command("find", &ycsb::COLLECTION.into(), &rest);
            let found = ask(&mut client, "look at the documents that are there", &find)?;
            if !is_record(&found) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Loads `batches` by several connections.
    fn fill(self, batches: &Batches, watcher: &mut Watcher<'_>) -> Result<Loaded, Error> {
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            let loaders: Vec<_> = (0..self.connections)
                .map(|_| {
                    let sender = sender.clone();
                    scope.spawn(move || {
                        let loaded = load_batches(self.control, batches, &sender);
                        if loaded.is_err() {
                            // The others would work for nothing.
                            batches.end();
                        }
                        loaded
                    })
                })
                .collect();
            drop(sender);
            let seen = self.watch(&receiver, batches, watcher);
            if seen.is_err() {
                batches.end();
            }
            let (mut all, mut failed) = (Loaded::default(), None);
            for loader in loaders {
                match loader.join() {
                    Ok(Ok(theirs)) => all += theirs,
                    Ok(Err(error)) => failed = failed.or(Some(error)),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            seen.and(failed.map_or(Ok(all), Err))
        })
    }

    /// Tells how far it is until all loaders are done, or somebody wants an end.
    fn watch(
        self,
        receiver: &mpsc::Receiver<u32>,
        batches: &Batches,
        watcher: &mut Watcher<'_>,
    ) -> Result<(), Error> {
        let (mut done, mut told) = (batches.before(), Instant::now());
        loop {
            watcher.go_on()?;
            match receiver.recv_timeout(STOP_CHECK) {
                Ok(documents) => done += documents,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if told.elapsed() >= PROGRESS_INTERVAL {
                told = Instant::now();
                watcher.say(&format!("{}: {done} of {} documents", self.name, self.records));
            }
        }
    }
}

/// Loads batches that nobody has begun, until there are none.
fn load_batches(control: &Control, batches: &Batches, done: &Sender<u32>) -> Result<Loaded, Error> {
    let mut client = control.connect()?;
    let (mut loaded, mut documents) = (Loaded::default(), Vec::new());
    let mut at_hand = batches.wait();
    write_batch(batches, at_hand, &mut documents);
    while let Some(batch) = at_hand {
        send(&mut client, &documents)?;
        // The server works, and so do we.
        at_hand = match batches.take() {
            Next::Batch(next) => Some(next),
            Next::Later | Next::Nothing => None,
        };
        write_batch(batches, at_hand, &mut documents);
        let inserted = await_insert(&mut client)?;
        batches.done(batch);
        let records = batches.records(batch).len() as u32;
        loaded += Loaded { sent: records.into(), inserted };
        // Nobody listens any more where there is to be an end.
        let _ = done.send(records);
        if at_hand.is_none() {
            at_hand = batches.wait();
            write_batch(batches, at_hand, &mut documents);
        }
    }
    control::close(client)?;
    Ok(loaded)
}

/// Writes the records of a batch in place of what `documents` has: the same whoever sends them, so that all loads are the
/// same but for the order.
fn write_batch(batches: &Batches, batch: Option<u32>, documents: &mut Vec<u8>) {
    documents.clear();
    let Some(batch) = batch else { return };
    let records = batches.records(batch);
    documents.reserve(records.len() * record::RECORD_BYTES);
    records.for_each(|number| record::write(documents, number.into()));
}

fn send(client: &mut Client, documents: &[u8]) -> Result<(), Error> {
    client.send_insert(ycsb::COLLECTION, documents).map_err(loading_failed)
}

/// Waits for the answer; how many the server says it has inserted. Where a record was there already the others have been
/// inserted, however many: then all are counted in the end.
fn await_insert(client: &mut Client) -> Result<u64, Error> {
    match client.await_insert().map_err(loading_failed) {
        Err(error) if is_refusal(&error, DUPLICATE_KEY) => Ok(0),
        answer => answer,
    }
}

fn loading_failed(source: ciphertoll_net::Error) -> Error {
    Error::Control { doing: "load documents", source }
}

fn is_refusal(error: &Error, code: &str) -> bool {
    matches!(error, Error::Control { source: ciphertoll_net::Error::Protocol(source), .. } if source.is_refusal(code))
}

/// How many documents the collection has; none where there is no collection.
fn count(control: &Control) -> Result<u64, Error> {
    let count = command("count", &ycsb::COLLECTION.into(), &[]);
    let answer = ask(&mut control.connect()?, "count the documents", &count)?;
    Ok(answer.get("n").and_then(number).unwrap_or_default())
}

/// Whether it has all fields, each as long as it should be.
fn is_record(document: &Map<String, Value>) -> bool {
    record::FIELD_NAMES.iter().all(|name| {
        let value = document.get(*name).and_then(Value::as_str);
        value.is_some_and(|value| value.len() == ycsb::FIELD_BYTES as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_its_records_one_after_the_other() {
        let batches = Batches::new(1_002, BATCH_DOCUMENTS, 2, 0);
        let (mut documents, mut expected) = (b"what was before".to_vec(), Vec::new());
        write_batch(&batches, Some(2), &mut documents);
        for number in [1_000, 1_001] {
            record::write(&mut expected, number);
        }
        assert_eq!(documents, expected);
        write_batch(&batches, None, &mut documents);
        assert!(documents.is_empty());
    }

    #[test]
    fn records_are_told_by_their_fields() {
        let mut document = Map::new();
        for name in record::FIELD_NAMES {
            assert!(!is_record(&document));
            document.insert(name.to_owned(), "x".repeat(100).into());
        }
        assert!(is_record(&document));
        document.insert("field5".to_owned(), "short".into());
        assert!(!is_record(&document));
    }
}
