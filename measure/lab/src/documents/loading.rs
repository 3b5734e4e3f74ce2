//! Loads YCSB's records in batches over several connections. Each connection generates the next batch while the server
//! inserts one. An interrupted load is continued.

use std::ops::AddAssign;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::ycsb;
use ciphertoll_net::blocking::Client;
use serde_json::{Map, Value, json};

use super::batches::{BatchQueue, NextBatch};
use super::commands::{ask, command, number};
use super::record;
use crate::datasets::progress::LoadProgress;
use crate::error::Error;
use crate::servers::control::{self, ControlLogin};

/// Documents per `insert`: half a megabyte, so that the overhead of a command is negligible. A continued load must use the
/// same batches.
pub(crate) const BATCH_DOCUMENTS: u32 = 500;
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of checks for an interruption.
const STOP_CHECK: Duration = Duration::from_millis(50);
/// `NamespaceExists`
const COLLECTION_EXISTS: &str = "48";
/// `NamespaceNotFound`
const NO_COLLECTION: &str = "26";
const DUPLICATE_KEY: &str = "11000";

#[derive(Clone, Copy)]
pub(crate) struct DocumentLoad<'a> {
    /// Login to the database of the collection.
    pub(crate) control: &'a ControlLogin,
    pub(crate) name: &'a str,
    pub(crate) records: u32,
    pub(crate) connections: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadCounts {
    /// Documents that were sent, which are mostly new ones.
    pub sent: u64,
    /// Documents that the server reported as inserted.
    pub inserted: u64,
}

/// Creates the collection and loads missing records. Replaces a collection that is not the result of a complete or
/// interrupted load, judged by the number of documents and by samples.
pub(crate) fn load(load: DocumentLoad<'_>, progress: &mut LoadProgress<'_>) -> Result<LoadCounts, Error> {
    let existing = count(load.control)?;
    let mut loaded = LoadCounts::default();
    if existing > 0 && load.can_be_continued(existing)? {
        if existing == u64::from(load.records) {
            return Ok(loaded);
        }
        progress.report(&format!("{}: continuing after {existing} of {} documents", load.name, load.records));
        loaded += load.fill(&load.batches(load.first_missing(existing)), progress)?;
        if count(load.control)? == u64::from(load.records) {
            return Ok(loaded);
        }
    }
    if existing > 0 {
        load.change("drop", NO_COLLECTION)?;
    }
    load.change("create", COLLECTION_EXISTS)?;
    let complete = load.fill(&load.batches(0), progress)?;
    loaded += complete;
    // Checks the server's answers instead of a count: FerretDB reads every document to count them.
    match complete {
        LoadCounts { inserted, .. } if inserted == u64::from(load.records) => Ok(loaded),
        LoadCounts { sent, inserted } => Err(Error::Miscounted { loaded: sent, counted: inserted }),
    }
}

impl AddAssign for LoadCounts {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.inserted += other.inserted;
    }
}

impl DocumentLoad<'_> {
    /// Creates or drops the collection; the error code `nothing_to_do` counts as success.
    fn change(self, name: &str, nothing_to_do: &str) -> Result<(), Error> {
        let command = command(name, &ycsb::COLLECTION.into(), &[]);
        match control::execute(&mut self.control.connect()?, "create the collection", &command) {
            Err(error) if is_refusal(&error, nothing_to_do) => Ok(()),
            changed => changed,
        }
    }

    fn batches(self, first: u32) -> BatchQueue {
        BatchQueue::new(self.records, BATCH_DOCUMENTS, self.window(), first)
    }

    fn first_missing(self, existing: u64) -> u32 {
        BatchQueue::first_missing(existing, BATCH_DOCUMENTS, self.window())
    }

    /// Each connection has one batch in flight and has generated the next.
    fn window(self) -> u32 {
        u32::try_from(self.connections).unwrap_or(u32::MAX).saturating_mul(2)
    }

    /// Whether `existing` documents can be the result of this load or of its beginning: not too many, and samples that must
    /// be among them exist with the right size. Their values may have been updated since.
    fn can_be_continued(self, existing: u64) -> Result<bool, Error> {
        let records = u64::from(self.records);
        if existing > records {
            return Ok(false);
        }
        let complete = if existing == records {
            existing
        } else {
            u64::from(self.first_missing(existing)) * u64::from(BATCH_DOCUMENTS)
        };
        if complete == 0 {
            return Ok(true);
        }
        let mut client = self.control.connect()?;
        for number in [0, complete / 2, complete - 1] {
            let rest = [("filter", json!({ "_id": ycsb::key(number) })), ("limit", json!(1))];
            let find = command("find", &ycsb::COLLECTION.into(), &rest);
            let found = ask(&mut client, "sample the existing documents", &find)?;
            if !is_record(&found) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn fill(self, batches: &BatchQueue, progress: &mut LoadProgress<'_>) -> Result<LoadCounts, Error> {
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            let loaders: Vec<_> = (0..self.connections)
                .map(|_| {
                    let sender = sender.clone();
                    scope.spawn(move || {
                        let loaded = load_batches(self.control, batches, &sender);
                        if loaded.is_err() {
                            batches.end();
                        }
                        loaded
                    })
                })
                .collect();
            drop(sender);
            let watched = self.watch(&receiver, batches, progress);
            if watched.is_err() {
                batches.end();
            }
            let (mut all, mut failed) = (LoadCounts::default(), None);
            for loader in loaders {
                match loader.join() {
                    Ok(Ok(loaded)) => all += loaded,
                    Ok(Err(error)) => failed = failed.or(Some(error)),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            watched.and(failed.map_or(Ok(all), Err))
        })
    }

    /// Reports progress until all loaders are done; fails on an interruption.
    fn watch(
        self,
        receiver: &mpsc::Receiver<u32>,
        batches: &BatchQueue,
        progress: &mut LoadProgress<'_>,
    ) -> Result<(), Error> {
        let (mut done, mut reported) = (batches.records_before(), Instant::now());
        loop {
            progress.check_interrupt()?;
            match receiver.recv_timeout(STOP_CHECK) {
                Ok(documents) => done += documents,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if reported.elapsed() >= PROGRESS_INTERVAL {
                reported = Instant::now();
                progress.report(&format!("{}: {done} of {} documents", self.name, self.records));
            }
        }
    }
}

fn load_batches(
    control: &ControlLogin,
    batches: &BatchQueue,
    done: &Sender<u32>,
) -> Result<LoadCounts, Error> {
    let mut client = control.connect()?;
    let (mut loaded, mut documents) = (LoadCounts::default(), Vec::new());
    let mut next = batches.wait();
    write_batch(batches, next, &mut documents);
    while let Some(batch) = next {
        send(&mut client, &documents)?;
        // Generates the next batch while the server inserts this one.
        next = match batches.take() {
            NextBatch::Batch(next) => Some(next),
            NextBatch::Later | NextBatch::Nothing => None,
        };
        write_batch(batches, next, &mut documents);
        let inserted = await_insert(&mut client)?;
        batches.complete(batch);
        let records = batches.records(batch).len() as u32;
        loaded += LoadCounts { sent: records.into(), inserted };
        // The receiver is gone after an interruption.
        let _ = done.send(records);
        if next.is_none() {
            next = batches.wait();
            write_batch(batches, next, &mut documents);
        }
    }
    control::close(client)?;
    Ok(loaded)
}

/// Replaces `documents` with the records of a batch.
fn write_batch(batches: &BatchQueue, batch: Option<u32>, documents: &mut Vec<u8>) {
    documents.clear();
    let Some(batch) = batch else { return };
    let records = batches.records(batch);
    documents.reserve(records.len() * record::RECORD_BYTES);
    records.for_each(|number| record::write(documents, number.into()));
}

fn send(client: &mut Client, documents: &[u8]) -> Result<(), Error> {
    client.send_insert(ycsb::COLLECTION, documents).map_err(loading_failed)
}

/// Waits for the answer, and returns the reported number of inserted documents; 0 after a duplicate key, when their number
/// is unknown and all documents are counted at the end.
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

/// Number of documents in the collection; 0 without a collection.
fn count(control: &ControlLogin) -> Result<u64, Error> {
    let count = command("count", &ycsb::COLLECTION.into(), &[]);
    let answer = ask(&mut control.connect()?, "count the documents", &count)?;
    Ok(answer.get("n").and_then(number).unwrap_or_default())
}

/// Whether it has all fields with the right length.
fn is_record(document: &Map<String, Value>) -> bool {
    record::FIELD_NAMES.iter().all(|name| {
        let value = document.get(name.as_str()).and_then(Value::as_str);
        value.is_some_and(|value| value.len() == ycsb::FIELD_BYTES as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_consists_of_its_records() {
        let batches = BatchQueue::new(1_002, BATCH_DOCUMENTS, 2, 0);
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
    fn a_record_has_all_fields_with_their_length() {
        let mut document = Map::new();
        for name in record::FIELD_NAMES {
            assert!(!is_record(&document));
            document.insert(name.as_str().to_owned(), "x".repeat(100).into());
        }
        assert!(is_record(&document));
        document.insert("field5".to_owned(), "short".into());
        assert!(!is_record(&document));
    }
}
