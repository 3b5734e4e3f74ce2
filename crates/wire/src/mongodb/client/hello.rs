//! `hello`: the client's first command, and the server's description of itself.

use crate::{
    mongodb::{
        client::{
            login::{Mechanism, MongoDbLogin},
            reply::{Reply, printable},
            server_info::{MongoDbAuthMethod, MongoDbServerInfo},
        },
        codec::{
            bson::{document::Document, value::BsonValue, writer::BsonWriter},
            compression::Compressor,
            message::{MAX_MESSAGE_BYTES, write_command},
        },
        error::Error,
        member_role::MemberRole,
        read_preference,
    },
    scram::Digest,
};

const DRIVER: &str = "ciphertoll";
/// The database of login commands that name no other.
const ADMIN: &str = "admin";
/// The default limit of servers that do not report one.
const DEFAULT_MAX_BSON_BYTES: u32 = 16 << 20;
/// The value of `msg` that identifies routers.
const ROUTER: &str = "isdbgrid";
/// More members than a replica set can have.
const MAX_HOSTS: usize = 128;
/// The longest name of a host, set or mechanism that is kept; the rest is cut.
const MAX_NAME_CHARACTERS: usize = 300;

/// The contents of the reply.
#[derive(Debug, Clone)]
pub(crate) struct Hello {
    pub(crate) server: MongoDbServerInfo,
    /// The user's mechanisms, if they were requested and the server knows them.
    pub(crate) mechanisms: Option<Mechanisms>,
    /// The reply to the speculative authentication, if the server handled it.
    pub(crate) speculative: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Mechanisms {
    pub(crate) sha1: Offer,
    pub(crate) sha256: Offer,
    /// All names, made printable.
    pub(crate) names: String,
}

/// Whether the user has a mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Offer {
    Yes,
    #[default]
    No,
}

/// Appends `hello`, with the speculative authentication that `speculate` writes.
pub(crate) fn encode(
    out: &mut Vec<u8>,
    request_id: i32,
    login: &MongoDbLogin,
    speculate: Option<impl FnOnce(&mut BsonWriter<'_>)>,
) -> Result<(), Error> {
    write_command(out, request_id, |hello| {
        hello.int32("hello", 1);
        hello.boolean("helloOk", true);
        hello.document("client", |client| {
            if !login.application_name.is_empty() {
                client.document("application", |application| {
                    application.string("name", &login.application_name);
                });
            }
            client.document("driver", |driver| {
                driver.string("name", DRIVER);
                driver.string("version", env!("CARGO_PKG_VERSION"));
            });
            client.document("os", |os| os.string("type", "Linux"));
        });
        if login.mechanism == Mechanism::Negotiated {
            hello.string("saslSupportedMechs", &format!("{}.{}", login.auth_source, login.user));
        }
        if let Some(compressor) = login.compressor {
            hello.array("compression", |names| names.string("0", compressor.name()));
        }
        if let Some(speculate) = speculate {
            hello.document("speculativeAuthenticate", speculate);
        }
        hello.string("$db", ADMIN);
    })
}

impl Hello {
    pub(crate) fn parse(reply: &Reply<'_>, login: &MongoDbLogin) -> Result<Self, Error> {
        let mut hello = Self { server: unknown_server(&login.database), mechanisms: None, speculative: None };
        for element in reply.body.elements() {
            let element = element?;
            hello.take(element.key(), element.value()?)?;
        }
        let server = &mut hello.server;
        server.version = format!("wire-{}", server.max_wire_version);
        if server.set_name.is_none() && server.role == MemberRole::Primary {
            server.role = MemberRole::Standalone;
        }
        server.read_preference = read_preference::required_by(server.role, login.read_preference);
        // A compressor that was not offered is ignored.
        server.compressor = server.compressor.filter(|taken| login.compressor == Some(*taken));
        Ok(hello)
    }

    fn take(&mut self, key: &[u8], value: BsonValue<'_>) -> Result<(), Error> {
        let server = &mut self.server;
        match (key, value) {
            (b"isWritablePrimary" | b"ismaster", value) => {
                server.is_writable_primary = value.is_true();
                server.take_role(MemberRole::Primary, value);
            }
            (b"secondary", value) => server.take_role(MemberRole::Secondary, value),
            (b"arbiterOnly", value) => server.take_role(MemberRole::Arbiter, value),
            (b"hidden", value) => server.take_role(MemberRole::Hidden, value),
            (b"msg", BsonValue::String(ROUTER)) => server.role = MemberRole::Router,
            (b"maxWireVersion", value) => {
                let version = value.as_i64().and_then(|version| i32::try_from(version).ok());
                server.max_wire_version = version.ok_or_else(|| error("a version that is not a number"))?;
            }
            (b"maxBsonObjectSize", value) => server.max_bson_bytes = bytes(value)?,
            (b"maxMessageSizeBytes", value) => server.max_message_bytes = bytes(value)?,
            (b"setName", BsonValue::String(name)) => server.set_name = Some(kept(name)),
            (b"me", BsonValue::String(name)) => server.me = Some(kept(name)),
            (b"primary", BsonValue::String(name)) => server.primary = Some(kept(name)),
            // Members that cannot become primary have their own list.
            (b"hosts" | b"passives", BsonValue::Array(hosts)) => {
                for host in hosts.elements().take(MAX_HOSTS.saturating_sub(server.hosts.len())) {
                    server.hosts.extend(host?.value()?.as_str().map(kept));
                }
            }
            (b"compression", BsonValue::Array(names)) => server.compressor = compressor(names)?,
            (b"saslSupportedMechs", BsonValue::Array(names)) => self.mechanisms = Some(mechanisms(names)?),
            (b"speculativeAuthenticate", BsonValue::Document(answer)) => {
                self.speculative = Some(answer.as_bytes().to_vec());
            }
            _ => {}
        }
        Ok(())
    }
}

impl MongoDbServerInfo {
    /// Applies a claim of the server about its role, if it is true.
    fn take_role(&mut self, role: MemberRole, claim: BsonValue<'_>) {
        if claim.is_true() {
            self.role = self.role.max(role);
        }
    }
}

fn mechanisms(names: Document<'_>) -> Result<Mechanisms, Error> {
    let mut mechanisms = Mechanisms::default();
    let mut all = Vec::new();
    for name in names.elements() {
        let Some(name) = name?.value()?.as_str() else {
            return Err(error("a mechanism that is not a string"));
        };
        match name {
            _ if name == Digest::Sha256.mechanism() => mechanisms.sha256 = Offer::Yes,
            _ if name == Digest::Sha1.mechanism() => mechanisms.sha1 = Offer::Yes,
            _ => {}
        }
        all.push(name);
    }
    mechanisms.names = kept(&all.join(", "));
    Ok(mechanisms)
}

/// The first supported compressor in the server's list.
fn compressor(names: Document<'_>) -> Result<Option<Compressor>, Error> {
    for name in names.elements() {
        let name = name?.value()?.as_str();
        let known = Compressor::ALL.into_iter().find(|compressor| Some(compressor.name()) == name);
        if known.is_some() {
            return Ok(known);
        }
    }
    Ok(None)
}

fn unknown_server(database: &str) -> MongoDbServerInfo {
    MongoDbServerInfo {
        version: String::new(),
        max_wire_version: 0,
        max_bson_bytes: DEFAULT_MAX_BSON_BYTES,
        max_message_bytes: MAX_MESSAGE_BYTES as u32,
        set_name: None,
        hosts: Vec::new(),
        role: MemberRole::Unready,
        read_preference: None,
        is_writable_primary: false,
        me: None,
        primary: None,
        auth: MongoDbAuthMethod::None,
        compressor: None,
        database: database.to_owned(),
    }
}

fn bytes(value: BsonValue<'_>) -> Result<u32, Error> {
    let bytes = value.as_i64().and_then(|bytes| u32::try_from(bytes).ok());
    bytes.ok_or_else(|| error("a limit that is not a number of bytes"))
}

fn kept(name: &str) -> String {
    printable(name, MAX_NAME_CHARACTERS)
}

fn error(reason: &'static str) -> Error {
    Error::Protocol { message: "reply to hello", reason }
}
