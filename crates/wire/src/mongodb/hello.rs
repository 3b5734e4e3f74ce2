//! `hello`: the client's first command, and what the server says of itself.

use super::{
    AuthKind, Compressor, Error, Login, Mechanism, Role, ServerInfo,
    bson::{Document, Value, Writer},
    message::{MAX_MESSAGE_BYTES, write_command},
    read_preference,
    reply::{Reply, printable},
};
use crate::scram::Digest;

const DRIVER: &str = "ciphertoll";
/// The database that commands of a login are for which do not say otherwise.
const ADMIN: &str = "admin";
/// What servers take where they do not say.
const DEFAULT_MAX_BSON_BYTES: u32 = 16 << 20;
/// What only routers say (`msg`).
const ROUTER: &str = "isdbgrid";
/// More than a replica set has.
const MAX_HOSTS: usize = 128;
/// The longest name of a host, a set or a mechanism that is kept; what is longer is cut.
const MAX_NAME_CHARACTERS: usize = 300;

/// What the answer says.
#[derive(Debug, Clone)]
pub(super) struct Hello {
    pub(super) server: ServerInfo,
    /// What the user can authenticate with, where the server knows and was asked.
    pub(super) mechanisms: Option<Mechanisms>,
    /// The answer to the authentication that came with `hello`, where the server looked at it.
    pub(super) speculative: Option<Vec<u8>>,
}

/// The mechanisms of one user.
#[derive(Debug, Clone, Default)]
pub(super) struct Mechanisms {
    pub(super) sha1: Offer,
    pub(super) sha256: Offer,
    /// All names, made printable.
    pub(super) names: String,
}

/// Whether a mechanism is among those of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Offer {
    Yes,
    #[default]
    No,
}

/// Appends `hello`, with an authentication that `speculate` writes.
pub(super) fn encode(
    out: &mut Vec<u8>,
    request_id: i32,
    login: &Login,
    speculate: Option<impl FnOnce(&mut Writer<'_>)>,
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
    /// Reads the answer.
    pub(super) fn parse(reply: &Reply<'_>, login: &Login) -> Result<Self, Error> {
        let mut hello = Self { server: unknown_server(&login.database), mechanisms: None, speculative: None };
        for element in reply.body.elements() {
            let element = element?;
            hello.take(element.key(), element.value()?)?;
        }
        let server = &mut hello.server;
        server.version = format!("wire-{}", server.max_wire_version);
        if server.set_name.is_none() && server.role == Role::Primary {
            server.role = Role::Standalone;
        }
        server.read_preference = read_preference::required_by(server.role, login.read_preference);
        // A server has no say in what was not offered.
        server.compressor = server.compressor.filter(|taken| login.compressor == Some(*taken));
        Ok(hello)
    }

    fn take(&mut self, key: &[u8], value: Value<'_>) -> Result<(), Error> {
        let server = &mut self.server;
        match (key, value) {
            (b"isWritablePrimary" | b"ismaster", value) => {
                server.is_writable_primary = value.is_true();
                server.take_role(Role::Primary, value);
            }
            (b"secondary", value) => server.take_role(Role::Secondary, value),
            (b"arbiterOnly", value) => server.take_role(Role::Arbiter, value),
            (b"hidden", value) => server.take_role(Role::Hidden, value),
            (b"msg", Value::String(ROUTER)) => server.role = Role::Router,
            (b"maxWireVersion", value) => {
                let version = value.as_i64().and_then(|version| i32::try_from(version).ok());
                server.max_wire_version = version.ok_or_else(|| error("a version that is no number"))?;
            }
            (b"maxBsonObjectSize", value) => server.max_bson_bytes = bytes(value)?,
            (b"maxMessageSizeBytes", value) => server.max_message_bytes = bytes(value)?,
            (b"setName", Value::String(name)) => server.set_name = Some(kept(name)),
            (b"me", Value::String(name)) => server.me = Some(kept(name)),
            (b"primary", Value::String(name)) => server.primary = Some(kept(name)),
            // Those that cannot become primary are in a list of their own.
            (b"hosts" | b"passives", Value::Array(hosts)) => {
                for host in hosts.elements().take(MAX_HOSTS.saturating_sub(server.hosts.len())) {
                    server.hosts.extend(host?.value()?.as_str().map(kept));
                }
            }
            (b"compression", Value::Array(names)) => server.compressor = compressor(names)?,
            (b"saslSupportedMechs", Value::Array(names)) => self.mechanisms = Some(mechanisms(names)?),
            (b"speculativeAuthenticate", Value::Document(answer)) => {
                self.speculative = Some(answer.as_bytes().to_vec());
            }
            _ => {}
        }
        Ok(())
    }
}

impl ServerInfo {
    /// Takes a word of its own on what it is, if it is true.
    fn take_role(&mut self, role: Role, claim: Value<'_>) {
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
            return Err(error("a mechanism that is no text"));
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

/// The first of ours that the server takes.
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

fn unknown_server(database: &str) -> ServerInfo {
    ServerInfo {
        version: String::new(),
        max_wire_version: 0,
        max_bson_bytes: DEFAULT_MAX_BSON_BYTES,
        max_message_bytes: MAX_MESSAGE_BYTES as u32,
        set_name: None,
        hosts: Vec::new(),
        role: Role::Unready,
        read_preference: None,
        is_writable_primary: false,
        me: None,
        primary: None,
        auth: AuthKind::None,
        compressor: None,
        database: database.to_owned(),
    }
}

fn bytes(value: Value<'_>) -> Result<u32, Error> {
    let bytes = value.as_i64().and_then(|bytes| u32::try_from(bytes).ok());
    bytes.ok_or_else(|| error("a limit that is no number of bytes"))
}

fn kept(name: &str) -> String {
    printable(name, MAX_NAME_CHARACTERS)
}

fn error(reason: &'static str) -> Error {
    Error::Protocol { message: "answer to hello", reason }
}
