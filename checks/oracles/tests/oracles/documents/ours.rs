//! Our own state machines on a channel, for documents with every BSON type, which JSON text does not have.

use bson::{Document, RawDocument, RawDocumentBuf};
use ciphertoll_net::blocking::Client;
use ciphertoll_net::{
    Channel, ConnectProgress, Connected, ContextSource, Dialer, Error, Readiness, Transport,
};
use ciphertoll_wire::mongodb::command::encode_get_more;
use ciphertoll_wire::mongodb::document::to_json;
use ciphertoll_wire::mongodb::message::write_command;
use ciphertoll_wire::mongodb::{self, COMMAND_REQUEST_ID, Documents, DocumentsReader};
use ciphertoll_wire::session;

use super::oracle::{Failure, Find, Outcome};
use crate::answer::{Answer, Refusal};
use crate::fixture::Visit;
use crate::ours;

/// Above the largest result of any case.
const LIMIT_BYTES: usize = 64 << 20;

/// A connection of our client.
pub(super) struct Ours {
    channel: Channel,
    database: String,
    /// Replies to `getMore` so far.
    pub(super) batches: usize,
}

/// A document read by our client.
pub(super) struct Read {
    /// As it came.
    pub(super) bytes: Vec<u8>,
    /// Parsed by our reader.
    pub(super) document: Document,
    /// Our JSON form.
    pub(super) json: serde_json::Value,
}

impl Ours {
    pub(super) fn connect(visit: &Visit) -> Outcome<Self> {
        let tls = visit.tls.as_ref().map(|tls| ContextSource::Shared(ours::context(tls)));
        let (address, login) = (visit.address.clone(), ours::login(visit));
        let dialer = Dialer { address, login, tls, transport: Transport::BLOCKING };
        let mut connecting = dialer.dial(None).map_err(failure)?;
        loop {
            match connecting.advance(Readiness::Readable).map_err(failure)? {
                ConnectProgress::Pending(pending) => connecting = pending,
                ConnectProgress::Done(Connected { channel, .. }) => {
                    return Ok(Self { channel, database: visit.database.clone(), batches: 0 });
                }
            }
        }
    }

    /// The reply to a command without cursor.
    pub(super) fn command(&mut self, command: &Document) -> Answer<Document> {
        let database = self.database.clone();
        self.send(command, &database);
        let mut answer = self.answer()?;
        let bytes = answer.documents.pop().expect("an answer is a document");
        Ok(document(RawDocument::from_bytes(&bytes).expect("it was checked")))
    }

    fn send(&mut self, command: &Document, database: &str) {
        let command = RawDocumentBuf::try_from(command).expect("it has no NUL");
        write_command(self.channel.output(), COMMAND_REQUEST_ID, command, database)
            .expect("it can be written");
    }

    pub(super) fn insert(&mut self, collection: &str, documents: &[Document]) -> Answer<()> {
        let documents: Vec<Document> = documents.to_vec();
        self.command(&bson::doc! { "insert": collection, "documents": documents }).map(|_| ())
    }

    /// All documents, in any number of batches.
    pub(super) fn find(&mut self, find: &Find) -> Answer<Vec<Read>> {
        let database = self.database.clone();
        self.send(&find.command(), &database);
        let mut answer = self.answer()?;
        let mut read: Vec<Read> = answer.documents.into_iter().map(Read::of).collect();
        while let Some(cursor) = answer.cursor {
            let batch = Some(find.batch_documents);
            encode_get_more(self.channel.output(), COMMAND_REQUEST_ID, &database, &cursor, batch)
                .expect("it can be written");
            answer = self.answer()?;
            self.batches += 1;
            read.extend(answer.documents.into_iter().map(Read::of));
        }
        Ok(read)
    }

    fn answer(&mut self) -> Answer<Documents> {
        let mut reader = DocumentsReader::new(COMMAND_REQUEST_ID, LIMIT_BYTES);
        loop {
            match self.channel.read_response(Readiness::Readable, |input| reader.step(input)) {
                Ok(None) => {}
                Ok(Some(documents)) => return Ok(documents),
                Err(error) => match failure(error) {
                    Failure::Refused(refusal) => return Err(refusal),
                    Failure::Broken(reason) => panic!("our client failed by itself: {reason}"),
                },
            }
        }
    }
}

impl Read {
    fn of(bytes: Vec<u8>) -> Self {
        let ours = RawDocument::from_bytes(&bytes).expect("it was checked");
        let json = serde_json::from_str(&to_json(ours).expect("it was checked")).expect("ours is JSON");
        let document = document(ours);
        Self { bytes, document, json }
    }
}

fn document(read: &RawDocument) -> Document {
    read.try_into().expect("it was checked")
}

/// The rows of the blocking client, with JSON in both directions.
pub(super) fn rows(visit: &Visit, command: &str) -> Answer<Vec<serde_json::Value>> {
    let mut client: Client = ours::client(visit)?;
    let rows = ours::query(&mut client, command)?;
    let text = |row: Vec<Option<Vec<u8>>>| row.into_iter().flatten().next().expect("a row is a document");
    Ok(rows.into_iter().map(|row| serde_json::from_slice(&text(row)).expect("ours is JSON")).collect())
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Protocol(session::Error::MongoDb(mongodb::Error::Server { code, code_name, message })) => {
            Failure::Refused(Refusal { code: code.to_string(), state: code_name, message })
        }
        other => Failure::Broken(other.to_string()),
    }
}
