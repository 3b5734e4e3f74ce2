//! pymongo, in the virtual environment of the driver of that name, controlled by a small program.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use bson::{Bson, Document};
use ciphertoll_load::driver::{Task, find};
use ciphertoll_model::{Auth, Workload};
use ciphertoll_net::Address;
use ciphertoll_testing::missing;
use openssl::base64::{decode_block, encode_block};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::convert;
use super::oracle::{Failure, Find, Outcome};
use crate::answer::{Answer, Refusal};
use crate::fixture::Visit;

const DRIVER: &str = "pymongo";
/// Irrelevant, as nothing is measured.
const SCALE: &str = "100";
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracles/documents/pymongo.py");

/// A Python that has the library.
#[derive(Clone)]
pub(super) struct Environment {
    python: OsString,
}

/// A client of the library, in a separate process.
pub(super) struct Pymongo {
    process: Child,
    /// None only when it is about to end.
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Removed with the client: it is read again for each connection.
    _identity: Option<NamedTempFile>,
}

impl Environment {
    /// The driver's environment, created if missing; `None` after printing why it cannot be created. CI can create it.
    pub(super) fn make(cache: &FilePath) -> Option<Self> {
        let driver = find(DRIVER).expect("a built-in driver");
        match driver.prepare(cache) {
            Ok(ready) => {
                let task = Task { workload: Workload::Connect, scale: SCALE.parse().expect("a scale") };
                let python = ready.command(FilePath::new(""), &task).get_program().to_owned();
                Some(Self { python })
            }
            Err(error) => {
                missing(&error);
                None
            }
        }
    }
}

impl Pymongo {
    pub(super) fn connect(environment: &Environment, visit: &Visit) -> Outcome<Self> {
        let mut process = Command::new(&environment.python)
            .args(["-I", "-B", PROGRAM])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("its Python runs");
        let requests = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        let identity = visit.tls.as_ref().and_then(|tls| tls.identity.as_ref()).map(|identity| {
            let file = NamedTempFile::new().expect("a file");
            let read = |path: &PathBuf| fs::read(path).expect("ours to read");
            let both = [read(&identity.certificate_file), read(&identity.key_file)].concat();
            fs::write(file.path(), both).expect("ours to write");
            file
        });
        let request = connect_request(visit, identity.as_ref());
        let mut pymongo = Self { process, requests, answers, _identity: identity };
        match pymongo.ask(&request)? {
            Ok(_) => Ok(pymongo),
            Err(refusal) => Err(Failure::Refused(refusal)),
        }
    }

    pub(super) fn command(&mut self, command: &Document) -> Answer<Document> {
        let mut documents = self.answer(&json!({ "do": "command", "command": encoded(command) }))?;
        Ok(documents.pop().expect("an answer is a document"))
    }

    pub(super) fn insert(&mut self, collection: &str, documents: &[Document]) -> Answer<()> {
        let documents: Vec<String> = documents.iter().map(encoded).collect();
        self.answer(&json!({ "do": "insert", "collection": collection, "documents": documents })).map(|_| ())
    }

    pub(super) fn find(&mut self, find: &Find) -> Answer<Vec<Document>> {
        self.answer(&json!({
            "do": "find",
            "collection": find.collection,
            "filter": encoded(&find.filter),
            "projection": encoded(&find.projection),
            "sort": encoded(&find.sort),
            "batch_documents": find.batch_documents,
        }))
    }

    fn answer(&mut self, request: &Value) -> Answer<Vec<Document>> {
        self.ask(request).unwrap_or_else(|failure| panic!("pymongo failed by itself: {failure:?}"))
    }

    fn ask(&mut self, request: &Value) -> Outcome<Answer<Vec<Document>>> {
        let requests = self.requests.as_mut().expect("it is there until the end");
        writeln!(requests, "{request}").expect("it reads");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        let answer: Value = serde_json::from_str(&line).expect("it answers in JSON");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if let Some(reason) = answer.get("failed") {
            return Err(Failure::Broken(text(reason)));
        }
        if let Some(refusal) = answer.get("refused") {
            return Ok(Err(Refusal {
                code: refusal["code"].to_string(),
                state: text(&refusal["name"]),
                message: text(&refusal["message"]),
            }));
        }
        let documents = answer["documents"].as_array().expect("documents, or why there are none");
        Ok(Ok(documents.iter().map(decoded).collect()))
    }
}

impl Drop for Pymongo {
    fn drop(&mut self) {
        // It ends with its input; one that is gone needs no waiting for.
        drop(self.requests.take());
        let _ = self.process.wait();
    }
}

fn connect_request(visit: &Visit, identity: Option<&NamedTempFile>) -> Value {
    let (host, port) = match &visit.address {
        Address::Tcp(address) => (address.ip().to_string(), address.port()),
        Address::Host { name, port, .. } => (name.clone(), *port),
        Address::Unix(path) => panic!("{}: the library uses TCP here", path.display()),
    };
    let login = match visit.auth {
        Auth::Trust => json!({}),
        auth => json!({
            "username": visit.user,
            "password": String::from_utf8_lossy(&visit.password),
            "authSource": "admin",
            "authMechanism": if auth == Auth::ScramSha1 { "SCRAM-SHA-1" } else { "SCRAM-SHA-256" },
        }),
    };
    let mut tls = json!({});
    if let Some(visit) = &visit.tls {
        tls = json!({ "tls": true, "tlsCAFile": visit.ca_file });
        if let Some(identity) = identity {
            tls["tlsCertificateKeyFile"] = json!(identity.path());
        }
    }
    json!({
        "do": "connect",
        "host": host,
        "port": port,
        "database": visit.database,
        "patience_ms": visit.patience.as_millis(),
        "login": login,
        "tls": tls,
    })
}

fn encoded(document: &Document) -> String {
    encode_block(&document.to_vec().expect("a document can be written"))
}

/// A document that came twice, and was the same both times.
fn decoded(told: &Value) -> Document {
    let bytes = decode_block(told["bson"].as_str().unwrap_or_default()).expect("base64");
    let document: Document = bson::deserialize_from_slice(&bytes).expect("pymongo writes BSON");
    let expected = Bson::Document(document.clone()).into_canonical_extjson();
    assert!(
        convert::is_same_json(&told["json"], &expected),
        "canonical extended JSON: pymongo's {}, bson's {expected}",
        told["json"]
    );
    document
}
