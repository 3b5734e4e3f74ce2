//! A server for logins: `hello`, SCRAM in all variants, and certificates.

use ciphertoll_wire::Step;
use ciphertoll_wire::mongodb::bson::{BsonValue, BsonWriter, Document};
use ciphertoll_wire::mongodb::message::{self, MAX_LOGIN_MESSAGE_BYTES};
use ciphertoll_wire::mongodb::{Compressor, Error, Inflater, MongoDbConnect};
use ciphertoll_wire::scram::{Binding, Digest, Mechanism, ServerFirst, Verifier};

pub(crate) const USER: &str = "toll";
pub(crate) const PASSWORD: &str = "correct horse";
const CONVERSATION: i32 = 7;

/// Whether a server handles the authentication within `hello`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speculation {
    Answered,
    Ignored,
}

/// How a server ends SCRAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With a valid signature.
    AtOnce,
    /// With an additional empty exchange.
    Empty,
    /// With a wrong signature.
    Lie,
    /// Without a signature, in place of the challenge.
    Early,
}

pub(crate) struct FakeServer {
    pub(crate) verifiers: Vec<Verifier>,
    pub(crate) speculation: Speculation,
    pub(crate) ending: Ending,
    /// The accepted compressor.
    pub(crate) compressor: Option<Compressor>,
    /// The names of the compressed commands, in order.
    pub(crate) compressed: Vec<String>,
    /// The names of all commands, in order.
    pub(crate) commands: Vec<String>,
    /// The first command.
    pub(crate) hello: Vec<u8>,
    pub(crate) state: State,
}

pub(crate) enum State {
    Idle,
    Challenged(ServerFirst),
    Signed,
}

/// The verifier of [`PASSWORD`], with the fewest iterations allowed.
pub(crate) fn verifier(digest: Digest, iterations: u32) -> Verifier {
    let stored = match digest {
        Digest::Sha256 => PASSWORD.to_owned(),
        // md5 of "toll:mongo:correct horse".
        Digest::Sha1 => "82549946382b6f0b45f01005b358e60f".to_owned(),
    };
    Verifier::with_digest(digest, stored.as_bytes(), iterations, b"0123456789abcdef").unwrap()
}

impl FakeServer {
    pub(crate) fn new(digests: &[Digest]) -> Self {
        Self {
            verifiers: digests.iter().map(|digest| verifier(*digest, 4096)).collect(),
            speculation: Speculation::Answered,
            ending: Ending::AtOnce,
            compressor: None,
            compressed: Vec::new(),
            commands: Vec::new(),
            hello: Vec::new(),
            state: State::Idle,
        }
    }

    /// Replies to all complete messages.
    pub(crate) fn run(&mut self, input: &mut &[u8], out: &mut Vec<u8>) {
        let mut inflater = Inflater::of(self.compressor);
        loop {
            let is_compressed = input.get(12..16) == Some(&2012_u32.to_le_bytes()[..]);
            let message = message::take_inflated(input, MAX_LOGIN_MESSAGE_BYTES, &mut inflater).unwrap();
            let Some(message) = message else { return };
            assert_eq!((message.response_to, message.flags), (0, 0));
            message.body.validate().unwrap();
            let name = message.body.elements().next().unwrap().unwrap().key().to_vec();
            let name = String::from_utf8(name).unwrap();
            let mut answer = Vec::new();
            let ok = match name.as_str() {
                "hello" => {
                    self.hello(message.body, &mut answer);
                    Some(())
                }
                "saslStart" => self.start(message.body, &mut answer),
                "saslContinue" => self.go_on(message.body, &mut answer),
                "authenticate" => {
                    consent(message.body, &mut answer);
                    Some(())
                }
                "find" => {
                    find(&mut answer);
                    Some(())
                }
                "createUser" => Some(()),
                other => panic!("{other}"),
            };
            if is_compressed {
                self.compressed.push(name.clone());
            }
            self.commands.push(name);
            let start = out.len();
            message::write_reply(out, message.request_id, |reply| {
                if ok.is_none() {
                    reply.int32("code", 18);
                    reply.string("codeName", "AuthenticationFailed");
                    reply.string("errmsg", "Authentication failed.");
                }
                for element in elements(&answer) {
                    reply.put(element.0, element.1);
                }
                reply.put("ok", BsonValue::Double(if ok.is_some() { 1.0 } else { 0.0 }));
            })
            .unwrap();
            if let (true, Some(compressor)) = (is_compressed, self.compressor) {
                compressor.compress(out, start).unwrap();
            }
        }
    }

    fn hello(&mut self, body: Document<'_>, answer: &mut Vec<u8>) {
        self.hello = body.as_bytes().to_vec();
        assert_eq!(text(body, "$db"), "admin");
        let speculated = match (self.speculation, body.get("speculativeAuthenticate").unwrap()) {
            (Speculation::Answered, Some(BsonValue::Document(step))) => {
                let mut inner = Vec::new();
                if step.get("saslStart").unwrap().is_none() {
                    consent(step, &mut inner);
                    Some(inner)
                } else {
                    self.start(step, &mut inner).map(|()| inner)
                }
            }
            _ => None,
        };
        write(answer, |hello| {
            hello.boolean("isWritablePrimary", true);
            hello.string("setName", "rs0");
            hello.array("hosts", |hosts| {
                hosts.string("0", "one:27017");
                hosts.string("1", "two:27017");
            });
            hello.string("me", "one:27017");
            hello.string("primary", "two:27017");
            hello.int32("maxBsonObjectSize", 16_777_216);
            hello.int32("maxMessageSizeBytes", 48_000_000);
            hello.int32("maxWireVersion", 21);
            if body.get("saslSupportedMechs").unwrap() == Some(BsonValue::String("admin.toll")) {
                hello.array("saslSupportedMechs", |names| {
                    for (index, verifier) in self.verifiers.iter().enumerate() {
                        names.string(&index.to_string(), verifier.digest().mechanism());
                    }
                });
            }
            let offered = match body.get("compression").unwrap() {
                Some(BsonValue::Array(names)) => names.get("0").unwrap().and_then(BsonValue::as_str),
                _ => None,
            };
            if let Some(taken) = self.compressor.filter(|taken| offered == Some(taken.name())) {
                hello.array("compression", |names| names.string("0", taken.name()));
            }
            if let Some(speculated) = &speculated {
                hello.put("speculativeAuthenticate", BsonValue::Document(Document::new(speculated).unwrap()));
            }
        });
    }

    fn start(&mut self, body: Document<'_>, answer: &mut Vec<u8>) -> Option<()> {
        let Some(BsonValue::Document(options)) = body.get("options").unwrap() else { panic!("no options") };
        assert_eq!(options.get("skipEmptyExchange").unwrap(), Some(BsonValue::Boolean(true)));
        let mechanism = text(body, "mechanism");
        let known = self.verifiers.iter().find(|verifier| verifier.digest().mechanism() == mechanism)?;
        assert!(payload(body).starts_with(b"n,,n=toll,r="));
        let first = ServerFirst::answer(known, Mechanism::Sha256, Binding::None, payload(body)).unwrap();
        let done = self.ending == Ending::Early;
        write_step(answer, first.message(), done);
        self.state = State::Challenged(first);
        Some(())
    }

    fn go_on(&mut self, body: Document<'_>, answer: &mut Vec<u8>) -> Option<()> {
        assert_eq!(body.get("conversationId").unwrap(), Some(BsonValue::Int32(CONVERSATION)));
        assert_eq!(text(body, "$db"), "admin");
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Challenged(first) => {
                let mut last = first.judge(payload(body)).ok()?;
                if self.ending == Ending::Lie {
                    last[2] = if last[2] == b'A' { b'B' } else { b'A' };
                }
                write_step(answer, &last, self.ending != Ending::Empty);
                self.state = State::Signed;
            }
            State::Signed => {
                assert_eq!((self.ending, payload(body)), (Ending::Empty, &b""[..]));
                write_step(answer, b"", true);
            }
            State::Idle => panic!("nothing was begun"),
        }
        Some(())
    }
}

/// A compressible batch.
fn find(answer: &mut Vec<u8>) {
    write(answer, |found| {
        found.document("cursor", |cursor| {
            cursor.array("firstBatch", |batch| {
                batch.document("0", |document| document.string("field0", &"x".repeat(1_000)));
            });
            cursor.int64("id", 0);
            cursor.string("ns", "bank.accounts");
        });
    });
}

fn consent(body: Document<'_>, answer: &mut Vec<u8>) {
    let database = if body.get("$db").unwrap().is_some() { "$db" } else { "db" };
    assert_eq!((text(body, database), text(body, "mechanism")), ("$external", "MONGODB-X509"));
    write(answer, |consent| {
        consent.string("dbname", "$external");
        consent.string("user", "CN=toll");
    });
}

fn write_step(answer: &mut Vec<u8>, payload: &[u8], done: bool) {
    write(answer, |step| {
        step.int32("conversationId", CONVERSATION);
        step.boolean("done", done);
        step.binary("payload", payload);
    });
}

fn write(answer: &mut Vec<u8>, elements: impl FnOnce(&mut BsonWriter<'_>)) {
    ciphertoll_wire::mongodb::bson::write_document(answer, elements);
}

fn elements(document: &[u8]) -> Vec<(&str, BsonValue<'_>)> {
    if document.is_empty() {
        return Vec::new();
    }
    let elements = Document::new(document).unwrap().elements().map(Result::unwrap);
    elements.map(|found| (std::str::from_utf8(found.key()).unwrap(), found.value().unwrap())).collect()
}

pub(crate) fn text<'a>(body: Document<'a>, key: &str) -> &'a str {
    body.get(key).unwrap().and_then(BsonValue::as_str).unwrap()
}

fn payload(body: Document<'_>) -> &[u8] {
    let Some(BsonValue::Binary { subtype: 0, bytes }) = body.get("payload").unwrap() else {
        panic!("no payload");
    };
    bytes
}

/// The client's steps other than `NeedInput`, and the result.
pub(crate) type Joined = (Result<(), Error>, Vec<Step>);

/// Connects client and server until the client has ended, with portions of `size` bytes.
pub(crate) fn join(client: &mut MongoDbConnect, server: &mut FakeServer, size: usize) -> Joined {
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let (mut received, mut steps) = (Vec::new(), Vec::new());
    loop {
        let mut input = received.as_slice();
        let step = client.step(&mut input, &mut to_server);
        received = input.to_vec();
        let mut input = to_server.as_slice();
        server.run(&mut input, &mut to_client);
        assert!(input.is_empty(), "the server understands all that the client sends");
        to_server.clear();
        match step {
            Err(error) => return (Err(error), steps),
            Ok(Step::NeedInput) => {
                assert!(!to_client.is_empty(), "both wait");
                received.extend(to_client.drain(..size.min(to_client.len())));
            }
            Ok(step) => {
                steps.push(step);
                if step == Step::StartTls {
                    assert!(server.commands.is_empty() && to_client.is_empty(), "TLS is first");
                }
                if step == Step::Done {
                    assert!(received.is_empty() && to_client.is_empty());
                    return (Ok(()), steps);
                }
            }
        }
    }
}
