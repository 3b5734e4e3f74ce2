//! The official driver for Rust, `mongodb`.

use std::fs;

use bson::Document;
use ciphertoll_model::Auth;
use ciphertoll_net::Address;
use futures_util::TryStreamExt;
use mongodb::error::{Error, ErrorKind, WriteFailure};
use mongodb::options::{
    AuthMechanism, ClientOptions, Credential, InsertManyOptions, ServerAddress, Tls, TlsOptions,
};
use mongodb::{Client, Database};
use tempfile::NamedTempFile;
use tokio::runtime::Runtime;

use super::oracle::{Failure, Find, Outcome};
use crate::answer::{Answer, Refusal};
use crate::fixture::{TlsVisit, Visit};
use crate::oracle::runtime;

/// A client of the driver's.
pub(super) struct Official {
    runtime: Runtime,
    database: Database,
}

impl Official {
    pub(super) fn connect(visit: &Visit) -> Outcome<Self> {
        let runtime = runtime();
        // The driver reads it when it creates a TLS context, together with its client.
        let identity = visit.tls.as_ref().and_then(identity);
        let mut options = ClientOptions::builder()
            .hosts(vec![host(&visit.address)])
            .direct_connection(true)
            .server_selection_timeout(visit.patience)
            .retry_writes(false)
            .credential(credential(visit))
            .build();
        options.tls = visit.tls.as_ref().map(|tls| {
            let mut options = TlsOptions::builder().ca_file_path(Some(tls.ca_file.clone())).build();
            options.cert_key_file_path = identity.as_ref().map(|file| file.path().to_owned());
            Tls::Enabled(options)
        });
        let connected = runtime.block_on(async {
            let client = Client::with_options(options)?;
            // There is no connection yet.
            client.database("admin").run_command(bson::doc! { "ping": 1 }).await?;
            Ok(client.database(&visit.database))
        });
        let database = connected.map_err(|error| failure(&error))?;
        Ok(Self { runtime, database })
    }

    pub(super) fn command(&self, command: &Document) -> Answer<Document> {
        refused(self.runtime.block_on(async { self.database.run_command(command.clone()).await }))
    }

    pub(super) fn insert(&self, collection: &str, documents: &[Document]) -> Answer<()> {
        let collection = self.database.collection::<Document>(collection);
        refused(self.runtime.block_on(async {
            match documents {
                [document] => collection.insert_one(document).await.map(|_| ()),
                documents => {
                    let options = InsertManyOptions::builder().ordered(true).build();
                    collection.insert_many(documents).with_options(options).await.map(|_| ())
                }
            }
        }))
    }

    pub(super) fn find(&self, find: &Find) -> Answer<Vec<Document>> {
        let collection = self.database.collection::<Document>(find.collection);
        refused(self.runtime.block_on(async {
            let mut found = collection.find(find.filter.clone()).sort(find.sort.clone());
            if !find.projection.is_empty() {
                found = found.projection(find.projection.clone());
            }
            found.batch_size(find.batch_documents).await?.try_collect().await
        }))
    }
}

fn host(address: &Address) -> ServerAddress {
    match address {
        Address::Tcp(address) => {
            ServerAddress::Tcp { host: address.ip().to_string(), port: Some(address.port()) }
        }
        Address::Host { name, port, .. } => ServerAddress::Tcp { host: name.clone(), port: Some(*port) },
        Address::Unix(path) => panic!("{}: the driver uses TCP here", path.display()),
    }
}

fn credential(visit: &Visit) -> Option<Credential> {
    let mechanism = match visit.auth {
        Auth::Trust => return None,
        Auth::ScramSha1 => AuthMechanism::ScramSha1,
        _ => AuthMechanism::ScramSha256,
    };
    let password = String::from_utf8(visit.password.clone()).expect("passwords are hexadecimal digits");
    let credential = Credential::builder().username(visit.user.clone()).password(password);
    Some(credential.source("admin".to_owned()).mechanism(mechanism).build())
}

/// The driver needs certificate and key in one file, which is private and removed after the connect.
fn identity(tls: &TlsVisit) -> Option<NamedTempFile> {
    let identity = tls.identity.as_ref()?;
    let read = |path| fs::read(path).expect("ours to read");
    let file = NamedTempFile::new().expect("a file");
    let both = [read(&identity.certificate_file), read(&identity.key_file)].concat();
    fs::write(file.path(), both).expect("ours to write");
    Some(file)
}

fn failure(error: &Error) -> Failure {
    match refusal(error) {
        Some(refusal) => Failure::Refused(refusal),
        None => Failure::Broken(error.to_string()),
    }
}

fn refusal(error: &Error) -> Option<Refusal> {
    let of = |code: i32, name: &str, message: &str| Refusal {
        code: code.to_string(),
        state: name.to_owned(),
        message: message.to_owned(),
    };
    match &*error.kind {
        ErrorKind::Command(error) => Some(of(error.code, &error.code_name, &error.message)),
        ErrorKind::Write(WriteFailure::WriteError(error)) => {
            Some(of(error.code, error.code_name.as_deref().unwrap_or_default(), &error.message))
        }
        _ => None,
    }
}

fn refused<T>(result: Result<T, Error>) -> Answer<T> {
    result.map_err(|error| {
        refusal(&error).unwrap_or_else(|| panic!("the official driver failed by itself: {error}"))
    })
}
