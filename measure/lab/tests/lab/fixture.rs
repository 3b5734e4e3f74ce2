//! Servers of every engine with any tables, and clients with any login.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use ciphertoll_lab::{Build, ClientAccount, DataTemplate, Error, Lab, Server, ServerStart, Tables, find};
use ciphertoll_model::{
    AtRest, Auth, Endpoint, Engine, Scale, SecurityLevel, ServerKey, ServerLevel, Settings,
};
use ciphertoll_net::blocking::Client;
use ciphertoll_net::{Address, tls};
use ciphertoll_testing::{missing, no_server, not_for_all};
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{Secret, mongodb, mysql, postgres};

use crate::common;

/// Additional servers to test, such as `mariadb=/opt/mariadb,postgres-18`.
const EXTRA_SERVERS: &str = "CIPHERTOLL_EXTRA_SERVERS";

/// A build with a lab to start it.
pub(crate) struct Fixture {
    // Dropped in this order: the temporary directory contains the scratch directory.
    pub(crate) lab: Lab,
    pub(crate) build: Build,
    place: tempfile::TempDir,
}

/// The transport of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Unix,
    Plain,
    Tls,
}

impl Fixture {
    /// The default server of `engine`, and additional ones from the environment.
    pub(crate) fn all(engine: Engine) -> Vec<Self> {
        let extra = std::env::var(EXTRA_SERVERS).unwrap_or_default();
        let extra = extra.split(',').filter(|text| !text.is_empty());
        let levels = extra.map(|text| text.parse::<ServerLevel>().expect(EXTRA_SERVERS));
        let levels = levels.filter(|level| level.engine == engine);
        let all: Vec<Self> = Self::of(&ServerLevel::of(engine))
            .into_iter()
            .chain(levels.map(|level| Self::of(&level).expect(EXTRA_SERVERS)))
            .collect();
        if engine == Engine::MySql && all.is_empty() {
            not_for_all(&format!("needs MySQL 8.0: make test-full, or {EXTRA_SERVERS}=mysql=DIR"));
        }
        all
    }

    /// The build of `level`; prints a reason to skip if there is none.
    pub(crate) fn of(level: &ServerLevel) -> Option<Self> {
        let build = find(level).inspect_err(|error| no_server(level.engine, error)).ok()?;
        let place = common::place();
        // All tests share templates, which are kept between runs.
        let cache = format!("{}/ciphertoll-cache-{}", env!("CARGO_TARGET_TMPDIR"), nix::unistd::geteuid());
        let scratch = place.path().join("scratch");
        let lab = Lab::open_in(common::helper(), &scratch, cache.into()).expect("a lab of our own");
        Some(Self { lab, build, place })
    }

    pub(crate) fn start(&self, tables: &Tables, processors: Option<Vec<u16>>) -> Result<Server, Error> {
        let template = self.lab.template(&self.build, tables, &mut |_| {}, &|| false)?;
        self.lab.start(&ServerStart { processors, ..self.plain_start(&template) })
    }

    /// Starts with encryption at rest and settings; prints a reason to skip if this machine does not support it.
    pub(crate) fn start_at_rest(
        &self,
        tables: &Tables,
        at_rest: AtRest,
        settings: &[&str],
    ) -> Option<Server> {
        let mut asked = Settings::default();
        asked.extend(settings.iter().map(|setting| setting.parse().expect("a setting")));
        if matches!(at_rest, AtRest::Tde(_)) {
            common::make_library();
        }
        let template = self.lab.template_at_rest(&self.build, tables, at_rest, &mut |_| {}, &|| false);
        let server = template.and_then(|template| self.lab.start_with(&self.plain_start(&template), &asked));
        match server {
            Err(
                error @ (Error::AtRestUnavailable(_)
                | Error::Host(
                    ciphertoll_host::Error::StorageUnavailable(_)
                    | ciphertoll_host::Error::ProgramMissing { .. },
                )),
            ) => {
                let told: fn(&Error) =
                    if matches!(at_rest, AtRest::Native | AtRest::Fscrypt) { not_for_all } else { missing };
                told(&error);
                None
            }
            started => Some(started.expect("a server")),
        }
    }

    /// Starts with settings, or with weak keys permitted.
    pub(crate) fn start_with(&self, strength: SecurityLevel, settings: &[&str]) -> Result<Server, Error> {
        let template = self.lab.template(&self.build, &Tables::default(), &mut |_| {}, &|| false)?;
        let mut asked = Settings::default();
        asked.extend(settings.iter().map(|setting| setting.parse().expect("a setting")));
        self.lab.start_with(&ServerStart { strength, ..self.plain_start(&template) }, &asked)
    }

    pub(crate) fn plain_start<'a>(&'a self, template: &'a DataTemplate) -> ServerStart<'a> {
        ServerStart {
            build: &self.build,
            template,
            name: "t1",
            key: ServerKey::P256,
            log: self.log(),
            preferred_port: None,
            processors: None,
            strength: SecurityLevel::Default,
        }
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.place.path().join("server.log")
    }
}

pub(crate) fn scale(rows: u32) -> Scale {
    rows.to_string().parse().expect("a scale")
}

/// A client of the account for `auth`, with its own credentials.
pub(crate) fn connect(server: &Server, auth: Auth, way: Way) -> Result<Client, ciphertoll_net::Error> {
    connect_as(server, server.account(auth), way)
}

pub(crate) fn connect_as(
    server: &Server,
    account: ClientAccount,
    way: Way,
) -> Result<Client, ciphertoll_net::Error> {
    let password = Secret::new(fs::read(&account.password_file).expect("the password is readable"));
    let context = (way == Way::Tls).then(|| {
        let identity = account.identity.clone();
        let settings = tls::Settings {
            identity: identity.map(|identity| tls::Identity {
                certificate_file: identity.certificate_file,
                key_file: identity.key_file,
            }),
            ..tls::Settings::new(
                tls::TlsParameters::new(tls::TlsVersion::Tls13),
                tls::TrustAnchors::File(server.ca_file()),
                server.server_name().into(),
            )
        };
        tls::Context::build(&settings).expect("a TLS context")
    });
    let endpoint = match way {
        Way::Unix => server.unix_endpoint(),
        Way::Plain => server.tcp_endpoint(),
        Way::Tls => server.tls_endpoint(),
    };
    let address = match endpoint {
        Endpoint::Tcp(address) => Address::Tcp(address),
        Endpoint::Host { .. } => panic!("a private server has an address"),
        Endpoint::Unix(path) => Address::Unix(path),
    };
    Client::connect(&address, login(server, account.user, password, way), context.as_ref())
}

fn login(server: &Server, user: String, password: Secret, way: Way) -> Login {
    let database = Some(server.database().to_owned());
    match server.engine() {
        engine @ (Engine::MariaDb | Engine::MySql) => Login::MySql(Arc::new(mysql::MySqlLogin {
            database,
            plugin: match engine {
                Engine::MySql => mysql::Plugin::CachingSha2Password,
                _ => mysql::Plugin::default(),
            },
            transport: if way == Way::Unix { mysql::Transport::UnixSocket } else { mysql::Transport::Tcp },
            encryption: if way == Way::Tls { mysql::MySqlTlsMode::Tls } else { mysql::MySqlTlsMode::Plain },
            ..mysql::MySqlLogin::new(user, password)
        })),
        Engine::Postgres => Login::Postgres(Arc::new(postgres::PostgresLogin {
            startup: Vec::new(),
            user,
            password,
            database,
            encryption: if way == Way::Tls {
                postgres::PostgresTlsMode::Tls
            } else {
                postgres::PostgresTlsMode::Plain
            },
            channel_binding: postgres::ChannelBinding::Disabled,
        })),
        Engine::MongoDb | Engine::FerretDb => Login::MongoDb(Arc::new(mongodb::MongoDbLogin {
            database: server.database().to_owned(),
            tls: if way == Way::Tls { mongodb::MongoDbTlsMode::Tls } else { mongodb::MongoDbTlsMode::Plain },
            // `Trust` disables access control.
            mechanism: if password.expose().is_empty() {
                mongodb::Mechanism::None
            } else {
                mongodb::Mechanism::default()
            },
            ..mongodb::MongoDbLogin::new(&user, password)
        })),
    }
}
