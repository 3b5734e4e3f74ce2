//! Our own clients: the blocking one, and the state machines on a channel for what it does not support.

use std::sync::Arc;

use ciphertoll_model::{Auth, ChannelBinding, Engine};
use ciphertoll_net::blocking::Client;
use ciphertoll_net::{
    Address, Channel, ConnectProgress, Connected, ContextSource, Dialer, Error, Readiness, Transport, tls,
};
use ciphertoll_wire::session::{
    self, Login, PreparedStatement, Response, ResponseKind, ResponseSummary, ServerInfo, Value,
};
use ciphertoll_wire::{Secret, mongodb, mysql, postgres};

use crate::answer::{Answer, Refusal, Rows};
use crate::fixture::{TlsVisit, Visit};

/// Above the largest result of any case.
const LIMIT_BYTES: usize = 256 * 1024 * 1024;

/// A connection driven step by step.
pub(crate) struct Bare {
    pub(crate) channel: Channel,
    pub(crate) server: ServerInfo,
    statements: u32,
}

/// The blocking client.
pub(crate) fn client(visit: &Visit) -> Answer<Client> {
    let context = visit.tls.as_ref().map(context);
    refused(Client::connect(&visit.address, login(visit), context.as_ref()))
}

/// A query with the blocking client.
pub(crate) fn query(client: &mut Client, sql: &str) -> Answer {
    refused(client.query(sql))
}

/// A refusal by the server. Any other error is a defect of our client.
pub(crate) fn refused<T>(result: Result<T, Error>) -> Answer<T> {
    result.map_err(|error| match error {
        Error::Protocol(session::Error::MySql(mysql::Error::Server { code, sql_state, message })) => {
            Refusal { code: code.to_string(), state: sql_state, message }
        }
        Error::Protocol(session::Error::Postgres(postgres::Error::Server {
            severity,
            sqlstate,
            message,
        })) => Refusal { code: severity.to_string(), state: sqlstate, message },
        Error::Protocol(session::Error::MongoDb(mongodb::Error::Server { code, code_name, message })) => {
            Refusal { code: code.to_string(), state: code_name, message }
        }
        other => panic!("our client failed by itself: {other}"),
    })
}

impl Bare {
    pub(crate) fn connect(visit: &Visit) -> Self {
        let tls = visit.tls.as_ref().map(|tls| ContextSource::Shared(context(tls)));
        let address = visit.address.clone();
        let dialer = Dialer { address, login: login(visit), tls, transport: Transport::BLOCKING };
        let mut connecting = dialer.dial(None).expect("the server listens");
        loop {
            match connecting.advance(Readiness::Readable).expect("the login succeeds") {
                ConnectProgress::Pending(pending) => connecting = pending,
                ConnectProgress::Done(Connected { channel, server, .. }) => {
                    return Self { channel, server, statements: 0 };
                }
            }
        }
    }

    /// Rows larger than those of the blocking client, which is for settings and counters.
    pub(crate) fn query(&mut self, sql: &str) -> Answer {
        self.server.encode_query(self.channel.output(), sql).expect("it can be written");
        let mut reader = self.server.rows_reader(LIMIT_BYTES);
        self.answer(|input| reader.step(input))
    }

    /// The counts of a query's response.
    pub(crate) fn count(&mut self, sql: &str) -> Answer<ResponseSummary> {
        self.server.encode_query(self.channel.output(), sql).expect("it can be written");
        let mut reader = self.server.response_reader(ResponseKind::Text);
        self.answer(|input| reader.step(input))
    }

    pub(crate) fn prepare(&mut self, sql: &str) -> Answer<PreparedStatement> {
        self.statements += 1;
        self.server.encode_prepare(self.channel.output(), self.statements, sql).expect("it can be written");
        let mut reader = self.server.prepare_reader(self.statements);
        self.answer(|input| reader.step(input))
    }

    /// The counts of a prepared statement's response.
    pub(crate) fn execute(
        &mut self,
        prepared: PreparedStatement,
        params: &[Value<'_>],
    ) -> Answer<ResponseSummary> {
        self.server.encode_execute(self.channel.output(), &prepared, params).expect("it can be written");
        let mut reader = self.server.response_reader(ResponseKind::Binary);
        self.answer(|input| reader.step(input))
    }

    /// The rows of a prepared statement. `PostgreSQL` only, which sends them as text.
    pub(crate) fn execute_rows(&mut self, prepared: PreparedStatement, params: &[Value<'_>]) -> Answer<Rows> {
        self.server.encode_execute(self.channel.output(), &prepared, params).expect("it can be written");
        let mut reader = self.server.rows_reader(LIMIT_BYTES);
        self.answer(|input| reader.step(input))
    }

    /// Sends the output and reads until `step` has the response.
    pub(crate) fn answer<T, E: Into<Error>>(
        &mut self,
        mut step: impl FnMut(&mut &[u8]) -> Result<Response<T>, E>,
    ) -> Answer<T> {
        loop {
            match self.channel.read_response(Readiness::Readable, &mut step) {
                Ok(None) => {}
                Ok(Some(value)) => return Ok(value),
                Err(error) => return refused(Err(error)),
            }
        }
    }
}

pub(crate) fn login(visit: &Visit) -> Login {
    let password = Secret::new(visit.password.clone());
    let database = Some(visit.database.clone());
    match visit.engine {
        engine @ (Engine::MariaDb | Engine::MySql) => Login::MySql(Arc::new(mysql::MySqlLogin {
            database,
            plugin: match engine {
                Engine::MySql => mysql::Plugin::CachingSha2Password,
                _ => mysql::Plugin::default(),
            },
            encryption: if visit.tls.is_some() {
                mysql::MySqlTlsMode::Tls
            } else {
                mysql::MySqlTlsMode::Plain
            },
            transport: match visit.address {
                Address::Tcp(_) | Address::Host { .. } => mysql::Transport::Tcp,
                Address::Unix(_) => mysql::Transport::UnixSocket,
            },
            ..mysql::MySqlLogin::new(&visit.user, password)
        })),
        Engine::Postgres => Login::Postgres(Arc::new(postgres::PostgresLogin {
            startup: Vec::new(),
            user: visit.user.clone(),
            password,
            database,
            encryption: match visit.tls {
                Some(_) => postgres::PostgresTlsMode::Tls,
                None => postgres::PostgresTlsMode::Plain,
            },
            channel_binding: match visit.binding {
                ChannelBinding::Unbound => postgres::ChannelBinding::Disabled,
                ChannelBinding::ServerEndPoint => postgres::ChannelBinding::Required,
            },
        })),
        Engine::MongoDb | Engine::FerretDb => Login::MongoDb(Arc::new(mongodb::MongoDbLogin {
            database: visit.database.clone(),
            mechanism: match visit.auth {
                Auth::Trust => mongodb::Mechanism::None,
                Auth::ScramSha1 => mongodb::Mechanism::ScramSha1,
                _ => mongodb::Mechanism::ScramSha256,
            },
            tls: match visit.tls {
                Some(_) => mongodb::MongoDbTlsMode::Tls,
                None => mongodb::MongoDbTlsMode::Plain,
            },
            ..mongodb::MongoDbLogin::new(&visit.user, password)
        })),
    }
}

pub(crate) fn context(visit: &TlsVisit) -> tls::Context {
    let parameters = tls::TlsParameters { library: visit.library, ..tls::TlsParameters::new(visit.version) };
    let anchors = tls::TrustAnchors::File(visit.ca_file.clone());
    let settings = tls::Settings {
        identity: visit.identity.as_ref().map(|identity| tls::Identity {
            certificate_file: identity.certificate_file.clone(),
            key_file: identity.key_file.clone(),
        }),
        ..tls::Settings::new(parameters, anchors, visit.peer.into())
    };
    tls::Context::build(&settings).expect("a TLS context")
}
