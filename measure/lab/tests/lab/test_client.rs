//! A client that connects to a private server over a path, like a load process.

use std::fs;
use std::sync::Arc;

use ciphertoll_lab::{ClientAccount, Credentials, Error, Server};
use ciphertoll_model::{Auth, ClientCertificate, Endpoint, Engine, Path, Resumption, TlsPath, TlsStart};
use ciphertoll_net::blocking::Client;
use ciphertoll_net::{Address, ContextSource, Dialer, Transport, tls};
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{Secret, mongodb, mysql, postgres};

/// A path and an authentication.
pub(crate) struct TestClient {
    pub(crate) path: Path,
    pub(crate) auth: Auth,
}

impl TestClient {
    pub(crate) fn new(path: &str, auth: Auth) -> Self {
        Self { path: path.parse().expect("a path"), auth }
    }

    fn credentials(&self) -> Credentials {
        let tls = self.path.as_tls();
        let client_certificate = tls.map_or(ClientCertificate::None, |tls| tls.client_certificate);
        Credentials { auth: self.auth, client_certificate }
    }

    /// Prepares the server.
    pub(crate) fn prepare(&self, server: &mut Server) -> Result<(), Error> {
        if let Some(path) = self.path.as_tls() {
            server.prepare_tls(path)?;
            server.install_certificate(path)?;
        }
        server.prepare_auth(self.credentials())
    }

    /// The connector, to `address` or the server's own; `change` modifies the TLS settings of the path.
    pub(crate) fn dialer(
        &self,
        server: &Server,
        address: Option<Address>,
        change: impl FnOnce(&mut tls::Settings),
    ) -> Dialer {
        let account = server.account(self.credentials());
        let address = address.unwrap_or_else(|| {
            match if self.path.as_tls().is_some() { server.tls_endpoint() } else { server.tcp_endpoint() } {
                Endpoint::Tcp(address) => Address::Tcp(address),
                Endpoint::Unix(_) | Endpoint::Host { .. } => panic!("a private server listens on TCP"),
            }
        });
        let context = self.path.as_tls().map(|path| {
            let mut settings = settings(path, server, &account);
            change(&mut settings);
            ContextSource::Shared(tls::Context::build(&settings).expect("a TLS context"))
        });
        let login = self.login(server, &account);
        Dialer { address, login, tls: context, transport: Transport::BLOCKING }
    }

    pub(crate) fn connect(
        &self,
        server: &Server,
        change: impl FnOnce(&mut tls::Settings),
    ) -> Result<Client, ciphertoll_net::Error> {
        Client::dial(&self.dialer(server, None, change))
    }

    fn login(&self, server: &Server, account: &ClientAccount) -> Login {
        let password = Secret::new(fs::read(&account.password_file).expect("the password is readable"));
        let (user, database) = (account.user.clone(), Some(server.database().to_owned()));
        let start = self.path.as_tls().map(|tls| tls.start);
        match server.engine() {
            Engine::MariaDb | Engine::MySql => Login::MySql(Arc::new(mysql::MySqlLogin {
                database,
                encryption: match start {
                    None => mysql::MySqlTlsMode::Plain,
                    Some(TlsStart::Eager) => mysql::MySqlTlsMode::EagerTls,
                    Some(TlsStart::Requested | TlsStart::Direct) => mysql::MySqlTlsMode::Tls,
                },
                plugin: match self.auth {
                    Auth::CachingSha2 => mysql::Plugin::CachingSha2Password,
                    _ => mysql::Plugin::NativePassword,
                },
                ..mysql::MySqlLogin::new(user, password)
            })),
            Engine::Postgres => Login::Postgres(Arc::new(postgres::PostgresLogin {
                startup: Vec::new(),
                user,
                password,
                database,
                encryption: match start {
                    None => postgres::PostgresTlsMode::Plain,
                    Some(TlsStart::Requested) => postgres::PostgresTlsMode::Tls,
                    Some(TlsStart::Direct) => postgres::PostgresTlsMode::DirectTls,
                    Some(TlsStart::Eager) => postgres::PostgresTlsMode::EagerTls,
                },
                channel_binding: postgres::ChannelBinding::Disabled,
            })),
            Engine::MongoDb | Engine::FerretDb => Login::MongoDb(Arc::new(mongodb::MongoDbLogin {
                database: server.database().to_owned(),
                mechanism: match self.auth {
                    Auth::ScramSha1 => mongodb::Mechanism::ScramSha1,
                    _ => mongodb::Mechanism::ScramSha256,
                },
                tls: match start {
                    None => mongodb::MongoDbTlsMode::Plain,
                    Some(_) => mongodb::MongoDbTlsMode::Tls,
                },
                ..mongodb::MongoDbLogin::new(&user, password)
            })),
        }
    }
}

fn settings(path: TlsPath, server: &Server, account: &ClientAccount) -> tls::Settings {
    let anchors = tls::TrustAnchors::File(server.ca_file());
    tls::Settings {
        security_level: path.security_level(),
        resumption: match path.resumption {
            Resumption::Never => tls::Resumption::Never,
            Resumption::Always => tls::Resumption::WithinContext(tls::ResumptionMethod::Any),
            Resumption::BySessionId => tls::Resumption::WithinContext(tls::ResumptionMethod::SessionId),
        },
        identity: account.identity.clone(),
        ..tls::Settings::new(path.parameters, anchors, server.server_name().into())
    }
}
