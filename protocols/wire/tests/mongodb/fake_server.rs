//! A server for logins: `hello`, SCRAM in all variants, and certificates.

use ciphertoll_wire::Step;
use ciphertoll_wire::mongodb::bson::{
    Binary, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr, rawdoc, spec::BinarySubtype,
};
use ciphertoll_wire::mongodb::document::validate;
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
            validate(message.body).unwrap();
            let name = message.body.iter().next().unwrap().unwrap().0.as_str().to_owned();
            let answer = match name.as_str() {
                "hello" => Some(self.hello(message.body)),
                "saslStart" => self.start(message.body),
                "saslContinue" => self.next_reply(message.body),
                "authenticate" => Some(consent(message.body)),
                // A compressible batch.
                "find" => Some(rawdoc! {
                    "cursor": {
                        "firstBatch": [{ "field0": "x".repeat(1_000) }],
                        "id": 0_i64,
                        "ns": "bank.accounts",
                    },
                }),
                "createUser" => Some(RawDocumentBuf::new()),
                other => panic!("{other}"),
            };
            if is_compressed {
                self.compressed.push(name.clone());
            }
            self.commands.push(name);
            let start = out.len();
            let is_ok = answer.is_some();
            let mut answer = answer.unwrap_or_else(|| {
                rawdoc! {
                    "code": 18,
                    "codeName": "AuthenticationFailed",
                    "errmsg": "Authentication failed.",
                }
            });
            answer.append(cstr!("ok"), f64::from(u8::from(is_ok)));
            out.extend(reply(message.request_id, &answer));
            if let (true, Some(compressor)) = (is_compressed, self.compressor) {
                compressor.compress(out, start).unwrap();
            }
        }
    }

    fn hello(&mut self, body: &RawDocument) -> RawDocumentBuf {
        self.hello = body.as_bytes().to_vec();
        assert_eq!(body.get_str("$db").unwrap(), "admin");
        let speculated = match (self.speculation, body.get_document("speculativeAuthenticate")) {
            (Speculation::Answered, Ok(step)) if step.get("saslStart").unwrap().is_none() => {
                Some(consent(step))
            }
            (Speculation::Answered, Ok(step)) => self.start(step),
            _ => None,
        };
        let mut hello = rawdoc! {
            "isWritablePrimary": true,
            "setName": "rs0",
            "hosts": ["one:27017", "two:27017"],
            "me": "one:27017",
            "primary": "two:27017",
            "maxBsonObjectSize": 16_777_216,
            "maxMessageSizeBytes": 48_000_000,
            "maxWireVersion": 21,
        };
        if body.get_str("saslSupportedMechs").is_ok_and(|user| user == "admin.toll") {
            let names: RawArrayBuf =
                self.verifiers.iter().map(|verifier| verifier.digest().mechanism()).collect();
            hello.append(cstr!("saslSupportedMechs"), names);
        }
        let offered = body.get_array("compression").ok().and_then(|names| names.get_str(0).ok());
        if let Some(taken) = self.compressor.filter(|taken| offered == Some(taken.name())) {
            hello.append(cstr!("compression"), RawArrayBuf::from_iter([taken.name()]));
        }
        if let Some(speculated) = speculated {
            hello.append(cstr!("speculativeAuthenticate"), speculated);
        }
        hello
    }

    fn start(&mut self, body: &RawDocument) -> Option<RawDocumentBuf> {
        assert!(body.get_document("options").unwrap().get_bool("skipEmptyExchange").unwrap());
        let mechanism = body.get_str("mechanism").unwrap();
        let known = self.verifiers.iter().find(|verifier| verifier.digest().mechanism() == mechanism)?;
        assert!(payload(body).starts_with(b"n,,n=toll,r="));
        let first = ServerFirst::answer(known, Mechanism::Sha256, Binding::None, payload(body)).unwrap();
        let done = self.ending == Ending::Early;
        let answer = step(first.message(), done);
        self.state = State::Challenged(first);
        Some(answer)
    }

    fn next_reply(&mut self, body: &RawDocument) -> Option<RawDocumentBuf> {
        assert_eq!(body.get("conversationId").unwrap(), Some(RawBsonRef::Int32(CONVERSATION)));
        assert_eq!(body.get_str("$db").unwrap(), "admin");
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Challenged(first) => {
                let mut last = first.judge(payload(body)).ok()?;
                if self.ending == Ending::Lie {
                    last[2] = if last[2] == b'A' { b'B' } else { b'A' };
                }
                self.state = State::Signed;
                Some(step(&last, self.ending != Ending::Empty))
            }
            State::Signed => {
                assert_eq!((self.ending, payload(body)), (Ending::Empty, &b""[..]));
                Some(step(b"", true))
            }
            State::Idle => panic!("nothing was begun"),
        }
    }
}

fn consent(body: &RawDocument) -> RawDocumentBuf {
    let database = if body.get("$db").unwrap().is_some() { "$db" } else { "db" };
    assert_eq!(body.get_str(database).unwrap(), "$external");
    assert_eq!(body.get_str("mechanism").unwrap(), "MONGODB-X509");
    rawdoc! { "dbname": "$external", "user": "CN=toll" }
}

fn step(payload: &[u8], done: bool) -> RawDocumentBuf {
    let payload = Binary { subtype: BinarySubtype::Generic, bytes: payload.to_vec() };
    rawdoc! { "conversationId": CONVERSATION, "done": done, "payload": payload }
}

fn payload(body: &RawDocument) -> &[u8] {
    let payload = body.get_binary("payload").unwrap();
    assert_eq!(payload.subtype, BinarySubtype::Generic);
    payload.bytes
}

/// The message that answers a request with this document.
pub(crate) fn reply(response_to: i32, document: &RawDocument) -> Vec<u8> {
    let length = 21 + i32::try_from(document.as_bytes().len()).unwrap();
    let header = [length, 0, response_to, 2013, 0].map(i32::to_le_bytes).concat();
    [&header[..], &[0], document.as_bytes()].concat()
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
