//! The lab's own connections to a server, and the wait until a started server accepts one.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_host::spawn::Child;
use ciphertoll_model::Identity;
use ciphertoll_net::{Address, blocking::Client, tls};
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{Secret, mongodb, mysql, postgres};

use crate::error::Error;

/// MongoDB's database of accounts.
pub(crate) const ADMIN: &str = "admin";
/// Interval between login attempts; no event reports that a server is ready.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(3);
/// Interval of checks for the server's end while waiting.
const DEATH_CHECK: Duration = Duration::from_millis(10);

/// Address and login of the lab's own connections. They use the Unix socket, without TLS and without the link's delay,
/// unless the account requires TLS.
#[derive(Clone)]
pub(crate) struct ControlLogin {
    address: Address,
    login: Login,
    tls: Option<tls::Context>,
    /// Connections of this login and its clones, to subtract from the server's counters.
    connects: Arc<AtomicU64>,
}

impl ControlLogin {
    /// For MariaDB and MySQL, with the authentication plugin that the server requests.
    pub(crate) fn mysql(socket: &Path, user: &str, password: Secret) -> Self {
        let login = mysql::MySqlLogin {
            transport: mysql::Transport::UnixSocket,
            ..mysql::MySqlLogin::new(user, password)
        };
        Self::new(Address::Unix(socket.to_owned()), Login::MySql(Arc::new(login)))
    }

    /// For MySQL, over TCP and TLS with a client certificate.
    pub(crate) fn mysql_over_tls(
        address: SocketAddr,
        user: &str,
        password: Secret,
        ca_file: &Path,
        identity: &Identity,
    ) -> Result<Self, Error> {
        let login = mysql::MySqlLogin {
            encryption: mysql::MySqlTlsMode::Tls,
            ..mysql::MySqlLogin::new(user, password)
        };
        let settings = tls::Settings {
            // The server's current certificate may have a weak key.
            security_level: tls::SecurityLevel::Weak,
            identity: Some(identity.clone()),
            ..tls::Settings::new(
                tls::TlsParameters::new(tls::TlsVersion::Tls12),
                tls::TrustAnchors::File(ca_file.to_owned()),
                tls::PeerName::Ip(address.ip()),
            )
        };
        let context = tls::Context::build(&settings)
            .map_err(|source| Error::Control { doing: "prepare TLS for a login", source })?;
        let (address, login) = (Address::Tcp(address), Login::MySql(Arc::new(login)));
        Ok(Self { tls: Some(context), ..Self::new(address, login) })
    }

    /// For MongoDB and FerretDB.
    pub(crate) fn documents(socket: &Path, account: Option<(&str, Secret)>) -> Self {
        let (user, password) = account.unwrap_or_else(|| ("", Secret::new(Vec::new())));
        let mechanism =
            if user.is_empty() { mongodb::Mechanism::None } else { mongodb::Mechanism::ScramSha256 };
        let database = ADMIN.to_owned();
        let login =
            mongodb::MongoDbLogin { mechanism, database, ..mongodb::MongoDbLogin::new(user, password) };
        Self::new(Address::Unix(socket.to_owned()), Login::MongoDb(Arc::new(login)))
    }

    /// The same login to another database.
    pub(crate) fn in_database(&self, database: &str) -> Self {
        let mut control = self.clone();
        let database = database.to_owned();
        match &mut control.login {
            Login::MongoDb(login) => {
                *login = Arc::new(mongodb::MongoDbLogin { database, ..(**login).clone() });
            }
            Login::MySql(login) => {
                *login = Arc::new(mysql::MySqlLogin { database: Some(database), ..(**login).clone() });
            }
            Login::Postgres(login) => {
                *login = Arc::new(postgres::PostgresLogin { database: Some(database), ..(**login).clone() });
            }
        }
        control
    }

    /// The same connection without a login, for document databases only.
    pub(crate) fn without_account(&self) -> Self {
        let mut control = self.clone();
        if let Login::MongoDb(login) = &mut control.login {
            let mechanism = mongodb::Mechanism::None;
            *login = Arc::new(mongodb::MongoDbLogin { mechanism, ..(**login).clone() });
        }
        control
    }

    /// The same connection with another login, for document databases only.
    pub(crate) fn as_account(&self, user: &str, password: Secret) -> Self {
        let mut control = self.clone();
        if let Login::MongoDb(login) = &mut control.login {
            let (mechanism, database) = (mongodb::Mechanism::ScramSha256, login.database.clone());
            let own = mongodb::MongoDbLogin::new(user, password);
            *login = Arc::new(mongodb::MongoDbLogin { mechanism, database, ..own });
        }
        control
    }

    /// For PostgreSQL, by peer authentication.
    pub(crate) fn postgres(socket: &Path, user: &str, database: &str) -> Self {
        let login = postgres::PostgresLogin {
            startup: Vec::new(),
            user: user.to_owned(),
            password: Secret::new(Vec::new()),
            database: Some(database.to_owned()),
            encryption: postgres::PostgresTlsMode::Plain,
            channel_binding: postgres::ChannelBinding::Disabled,
        };
        Self::new(Address::Unix(socket.to_owned()), Login::Postgres(Arc::new(login)))
    }

    pub(crate) fn new(address: Address, login: Login) -> Self {
        Self { address, login, tls: None, connects: Arc::default() }
    }

    pub(crate) fn with_tls(self, tls: Option<tls::Context>) -> Self {
        Self { tls, ..self }
    }

    pub(crate) fn connects(&self) -> u64 {
        self.connects.load(Ordering::Relaxed)
    }

    /// Opens a connection for a few statements. Control connections are short, so that none is open during a trial.
    pub(crate) fn connect(&self) -> Result<Client, Error> {
        self.connects.fetch_add(1, Ordering::Relaxed);
        let connected = Client::connect(&self.address, self.login.clone(), self.tls.as_ref());
        connected.map_err(|source| Error::Control { doing: "log in to the server", source })
    }

    /// Waits until a login succeeds. Fails early if `server` ends.
    pub(crate) fn wait_until_ready(&self, server: &mut Child, limit: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + limit;
        let attempts = self.attempts();
        let mut last = "no connection was accepted".to_owned();
        loop {
            match attempts.recv_timeout(DEATH_CHECK) {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(failure)) => last = failure,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if let Some(status) = server.ended() {
                return Err(server.died(status).into());
            }
            if Instant::now() >= deadline {
                return Err(server.too_slow(limit, last).into());
            }
        }
    }

    /// Tries to log in on another thread, because a server that accepts and then hangs would block us beyond the deadline.
    /// The thread ends when the receiver is dropped, or with the server.
    fn attempts(&self) -> mpsc::Receiver<Result<(), String>> {
        let (sender, receiver) = mpsc::sync_channel(0);
        let control = self.clone();
        thread::spawn(move || {
            loop {
                let attempt = control.connect().and_then(close).map_err(|error| error.to_string());
                let ready = attempt.is_ok();
                if sender.send(attempt).is_err() || ready {
                    return;
                }
                thread::sleep(RETRY_AFTER);
            }
        });
        receiver
    }
}

pub(crate) fn execute(client: &mut Client, doing: &'static str, sql: &str) -> Result<(), Error> {
    client.execute(sql).map_err(|source| Error::Control { doing, source })
}

/// The rows of a query as text; NULL becomes an empty string.
pub(crate) fn query(client: &mut Client, doing: &'static str, sql: &str) -> Result<Vec<Vec<String>>, Error> {
    let rows = client.query(sql).map_err(|source| Error::Control { doing, source })?;
    let text = |value: Option<Vec<u8>>| String::from_utf8_lossy(&value.unwrap_or_default()).into_owned();
    Ok(rows.into_iter().map(|row| row.into_iter().map(text).collect()).collect())
}

pub(crate) fn close(client: Client) -> Result<(), Error> {
    client.close().map_err(|source| Error::Control { doing: "log out", source })
}
