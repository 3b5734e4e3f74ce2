//! Connections to the server past the sidecar: how many connections the sidecar has, and killing some of them.

use std::fs;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use ciphertoll_lab::Server;
use ciphertoll_model::{Auth, Endpoint, Engine};
use ciphertoll_net::Address;
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{Secret, mysql, postgres};

/// Where the server is, and the account of the sidecar.
#[derive(Clone)]
pub(super) struct Control {
    engine: Engine,
    address: Address,
    login: Login,
}

/// A login in plaintext, as on a unix socket.
pub(super) fn login(engine: Engine, user: &str, password: Vec<u8>, database: &str) -> Result<Login> {
    let (password, database) = (Secret::new(password), Some(database.to_owned()));
    match engine {
        Engine::Postgres => Ok(Login::Postgres(Arc::new(postgres::PostgresLogin {
            startup: Vec::new(),
            user: user.to_owned(),
            password,
            database,
            encryption: postgres::PostgresTlsMode::Plain,
            channel_binding: postgres::ChannelBinding::Disabled,
        }))),
        Engine::MariaDb | Engine::MySql => Ok(Login::MySql(Arc::new(mysql::MySqlLogin {
            database,
            transport: mysql::Transport::UnixSocket,
            ..mysql::MySqlLogin::new(user, password)
        }))),
        Engine::MongoDb | Engine::FerretDb => bail!("the sidecar does not support {engine}"),
    }
}

impl Control {
    pub(super) fn of(server: &Server) -> Result<Self> {
        let engine = server.engine();
        let Endpoint::Unix(socket) = server.unix_endpoint() else { bail!("the server has no unix socket") };
        let account = server.account(Auth::default_of(engine));
        let password = fs::read(&account.password_file).context("cannot read the password")?;
        let login = login(engine, &account.user, password, server.database())?;
        Ok(Self { engine, address: Address::Unix(socket), login })
    }

    /// The ids of the sidecar's connections.
    pub(super) fn connections(&self) -> Result<Vec<String>> {
        let list = match self.engine {
            Engine::Postgres => {
                "SELECT pid FROM pg_stat_activity WHERE usename = current_user AND pid <> pg_backend_pid() \
                 AND backend_type = 'client backend'"
            }
            _ => {
                "SELECT id FROM information_schema.processlist WHERE id <> connection_id() \
                 AND user = substring_index(current_user(), '@', 1)"
            }
        };
        let rows = self.connect()?.query(list).context("cannot list the server's connections")?;
        let ids = rows.into_iter().filter_map(|row| row.into_iter().next().flatten());
        ids.map(|id| String::from_utf8(id).context("an id is not text")).collect()
    }

    /// Ends these connections from the server's side.
    pub(super) fn kill(&self, ids: &[String]) -> Result<()> {
        let mut client = self.connect()?;
        for id in ids {
            let statement = match self.engine {
                Engine::Postgres => format!("SELECT pg_terminate_backend({id})"),
                _ => format!("KILL {id}"),
            };
            // It may have ended by itself.
            let _ = client.execute(&statement);
        }
        Ok(())
    }

    fn connect(&self) -> Result<Client> {
        Client::connect(&self.address, self.login.clone(), None).context("cannot connect to the server")
    }
}
