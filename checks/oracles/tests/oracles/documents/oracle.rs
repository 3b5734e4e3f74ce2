//! A common interface of the two drivers.

use std::path::Path as FilePath;

use bson::{Document, doc};
use ciphertoll_model::Auth;

use super::official::Official;
use super::pymongo::{Environment, Pymongo};
use super::scram;
use crate::answer::{Answer, Refusal};
use crate::fixture::{Fixture, Visit};
use crate::say;

/// A connection, or why there is none.
pub(super) type Outcome<T> = Result<T, Failure>;

/// The reason of a failed connect.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// A refusal by the server.
    Refused(Refusal),
    /// No login was attempted: TLS or the protocol failed.
    Broken(String),
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct Find {
    pub(super) collection: &'static str,
    pub(super) filter: Document,
    /// Empty: everything.
    pub(super) projection: Document,
    pub(super) sort: Document,
    pub(super) batch_documents: u32,
}

/// Which driver.
pub(super) enum Kind {
    Official,
    Pymongo(Environment),
}

/// A connection of a driver.
pub(super) enum Oracle {
    Official(Box<Official>),
    Pymongo(Box<Pymongo>),
}

impl Find {
    /// Everything, by its key.
    pub(super) fn all(collection: &'static str) -> Self {
        let (filter, projection) = (Document::new(), Document::new());
        Self { collection, filter, projection, sort: doc! { "_id": 1 }, batch_documents: 100 }
    }

    pub(super) fn command(&self) -> Document {
        let mut command = doc! { "find": self.collection, "filter": self.filter.clone() };
        if !self.projection.is_empty() {
            command.insert("projection", self.projection.clone());
        }
        command.insert("sort", self.sort.clone());
        command.insert("batchSize", i64::from(self.batch_documents));
        command
    }
}

impl Kind {
    /// The installed drivers; prints which one is skipped.
    pub(super) fn all(cache: &FilePath) -> Vec<Self> {
        [Some(Self::Official), Environment::make(cache).map(Self::Pymongo)].into_iter().flatten().collect()
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Official => "the official driver",
            Self::Pymongo(_) => "pymongo",
        }
    }

    /// The login that works with this driver.
    pub(super) fn auth(&self) -> Auth {
        match self {
            Self::Official => Auth::Trust,
            Self::Pymongo(_) => scram(),
        }
    }

    pub(super) fn connect(&self, visit: &Visit) -> Outcome<Oracle> {
        Ok(match self {
            Self::Official => Oracle::Official(Box::new(Official::connect(visit)?)),
            Self::Pymongo(environment) => Oracle::Pymongo(Box::new(Pymongo::connect(environment, visit)?)),
        })
    }

    /// Over plain TCP, on a prepared server.
    pub(super) fn visit(&self, fixture: &Fixture) -> Oracle {
        let connected = self.connect(&fixture.visit(ciphertoll_model::Path::Plain, self.auth()));
        connected.unwrap_or_else(|failure| panic!("{}: {failure:?}", self.name()))
    }
}

impl Oracle {
    pub(super) fn insert(&mut self, collection: &str, documents: &[Document]) -> Answer<()> {
        match self {
            Self::Official(official) => official.insert(collection, documents),
            Self::Pymongo(pymongo) => pymongo.insert(collection, documents),
        }
    }

    pub(super) fn find(&mut self, find: &Find) -> Answer<Vec<Document>> {
        match self {
            Self::Official(official) => official.find(find),
            Self::Pymongo(pymongo) => pymongo.find(find),
        }
    }

    pub(super) fn command(&mut self, command: &Document) -> Answer<Document> {
        match self {
            Self::Official(official) => official.command(command),
            Self::Pymongo(pymongo) => pymongo.command(command),
        }
    }
}

/// Runs `case` for each installed driver, on a server that accepts its login.
pub(super) fn with_each(fixture: &mut Fixture, case: impl Fn(&mut Fixture, &Kind)) {
    for kind in Kind::all(&fixture.cache) {
        fixture.server.prepare_auth(kind.auth()).expect("the server lets it in");
        case(fixture, &kind);
        say(&format!("  beside {}", kind.name()));
    }
    fixture.server.prepare_auth(scram()).expect("the server has its accounts again");
}
