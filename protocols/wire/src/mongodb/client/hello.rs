//! `hello`: the client's first command, and the server's description of itself.

use bson::{RawArray, RawBsonRef, RawDocumentBuf, cstr, rawbson, rawdoc};

use crate::{
    mongodb::{
        client::{
            login::{Mechanism, MongoDbLogin},
            reply::Reply,
            server_info::{MongoDbAuthMethod, MongoDbServerInfo},
        },
        codec::{
            compression::Compressor,
            document::{as_i64, is_true},
            message::{MAX_MESSAGE_BYTES, write_command},
        },
        error::Error,
        member_role::MemberRole,
        read_preference,
    },
    printable::printable,
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
    pub(crate) sha1: bool,
    pub(crate) sha256: bool,
    /// All names, made printable.
    pub(crate) names: String,
}

/// Appends `hello`, with the start of an authentication.
pub(crate) fn encode(
    out: &mut Vec<u8>,
    request_id: i32,
    login: &MongoDbLogin,
    speculate: Option<RawDocumentBuf>,
) -> Result<(), Error> {
    let mut client = RawDocumentBuf::new();
    if !login.application_name.is_empty() {
        client.append(cstr!("application"), rawdoc! { "name": login.application_name.as_str() });
    }
    client.append(cstr!("driver"), rawdoc! { "name": DRIVER, "version": env!("CARGO_PKG_VERSION") });
    client.append(cstr!("os"), rawdoc! { "type": "Linux" });
    let mut hello = rawdoc! { "hello": 1, "helloOk": true, "client": client };
    if login.mechanism == Mechanism::Negotiated {
        hello.append(cstr!("saslSupportedMechs"), format!("{}.{}", login.auth_source, login.user));
    }
    if let Some(compressor) = login.compressor {
        hello.append(cstr!("compression"), rawbson!([compressor.name()]));
    }
    if let Some(speculate) = speculate {
        hello.append(cstr!("speculativeAuthenticate"), speculate);
    }
    write_command(out, request_id, hello, ADMIN)
}

impl Hello {
    pub(crate) fn parse(reply: &Reply<'_>, login: &MongoDbLogin) -> Result<Self, Error> {
        let mut hello = Self { server: unknown_server(&login.database), mechanisms: None, speculative: None };
        for element in reply.body {
            let (key, value) = element?;
            hello.take(key.as_str(), value)?;
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

    fn take(&mut self, key: &str, value: RawBsonRef<'_>) -> Result<(), Error> {
        let server = &mut self.server;
        match (key, value) {
            ("isWritablePrimary" | "ismaster", value) => {
                server.is_writable_primary = is_true(value);
                server.take_role(MemberRole::Primary, value);
            }
            ("secondary", value) => server.take_role(MemberRole::Secondary, value),
            ("arbiterOnly", value) => server.take_role(MemberRole::Arbiter, value),
            ("hidden", value) => server.take_role(MemberRole::Hidden, value),
            ("msg", RawBsonRef::String(ROUTER)) => server.role = MemberRole::Router,
            ("maxWireVersion", value) => {
                let version = as_i64(value).and_then(|version| i32::try_from(version).ok());
                server.max_wire_version = version.ok_or_else(|| error("a version that is not a number"))?;
            }
            ("maxBsonObjectSize", value) => server.max_bson_bytes = bytes(value)?,
            ("maxMessageSizeBytes", value) => server.max_message_bytes = bytes(value)?,
            ("setName", RawBsonRef::String(name)) => server.set_name = Some(kept(name)),
            ("me", RawBsonRef::String(name)) => server.me = Some(kept(name)),
            ("primary", RawBsonRef::String(name)) => server.primary = Some(kept(name)),
            // Members that cannot become primary have their own list.
            ("hosts" | "passives", RawBsonRef::Array(hosts)) => {
                for host in hosts.into_iter().take(MAX_HOSTS.saturating_sub(server.hosts.len())) {
                    server.hosts.extend(host?.as_str().map(kept));
                }
            }
            ("compression", RawBsonRef::Array(names)) => server.compressor = compressor(names)?,
            ("saslSupportedMechs", RawBsonRef::Array(names)) => self.mechanisms = Some(mechanisms(names)?),
            ("speculativeAuthenticate", RawBsonRef::Document(answer)) => {
                self.speculative = Some(answer.as_bytes().to_vec());
            }
            _ => {}
        }
        Ok(())
    }
}

impl MongoDbServerInfo {
    /// Applies a claim of the server about its role, if it is true.
    fn take_role(&mut self, role: MemberRole, claim: RawBsonRef<'_>) {
        if is_true(claim) {
            self.role = self.role.max(role);
        }
    }
}

fn mechanisms(names: &RawArray) -> Result<Mechanisms, Error> {
    let mut mechanisms = Mechanisms::default();
    let mut all = Vec::new();
    for name in names {
        let Some(name) = name?.as_str() else {
            return Err(error("a mechanism that is not a string"));
        };
        match name {
            _ if name == Digest::Sha256.mechanism() => mechanisms.sha256 = true,
            _ if name == Digest::Sha1.mechanism() => mechanisms.sha1 = true,
            _ => {}
        }
        all.push(name);
    }
    mechanisms.names = kept(&all.join(", "));
    Ok(mechanisms)
}

/// The first supported compressor in the server's list.
fn compressor(names: &RawArray) -> Result<Option<Compressor>, Error> {
    for name in names {
        let name = name?.as_str();
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

fn bytes(value: RawBsonRef<'_>) -> Result<u32, Error> {
    let bytes = as_i64(value).and_then(|bytes| u32::try_from(bytes).ok());
    bytes.ok_or_else(|| error("a limit that is not a number of bytes"))
}

fn kept(name: &str) -> String {
    printable(name.as_bytes(), MAX_NAME_CHARACTERS)
}

fn error(reason: &'static str) -> Error {
    Error::protocol("reply to hello", reason)
}
