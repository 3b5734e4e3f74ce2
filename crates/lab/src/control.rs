//! The lab's own connections to a server, and the wait for the first one that succeeds.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::Identity;
use ciphertoll_net::{Address, blocking::Client, tls};
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{Secret, mongodb, mysql, postgres};

use crate::documents;
use crate::error::Error;
use crate::spawn::Child;

/// Between two tries to log in; the kernel gives no event for "the server is ready".
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(3);
/// How soon the server's death is noticed while waiting for it.
const DEATH_CHECK: Duration = Duration::from_millis(10);

/// Where and as whom to log in: over the unix socket, unless the account wants more, so that no TLS and no delay is in
/// the way.
#[derive(Clone)]
pub(crate) struct Control {
    address: Address,
    login: Login,
    tls: Option<tls::Context>,
    /// How often this and its copies have connected: not what a server's counters are read for.
    connects: Arc<AtomicU64>,
}

impl Control {
    /// To a MariaDB or a MySQL, whose plugin is followed.
    pub(crate) fn mysql(socket: &Path, user: &str, password: Secret) -> Self {
        let login = mysql::MySqlLogin {
            transport: mysql::Transport::UnixSocket,
            ..mysql::MySqlLogin::new(user, password)
        };
        Self::to(Address::Unix(socket.to_owned()), Login::MySql(Arc::new(login)))
    }

    /// To a MySQL, by TCP and TLS with this certificate of the client's.
    pub(crate) fn mysql_by_tls(
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
            library: tls::TlsLibrary::OpenSsl,
            version: tls::TlsVersion::Tls12,
            verification: tls::Verification::Full,
            anchors: tls::TrustAnchors::File(ca_file.to_owned()),
            peer: tls::PeerName::Ip(address.ip()),
            suite: None,
            group: None,
            // Whatever certificate there is at the moment.
            security_level: tls::SecurityLevel::Weak,
            resumption: tls::Resumption::Never,
            identity: Some(identity.clone()),
        };
        let context = tls::Context::build(&settings)
            .map_err(|source| Error::Control { doing: "prepare TLS for a login", source })?;
        let (address, login) = (Address::Tcp(address), Login::MySql(Arc::new(login)));
        Ok(Self { tls: Some(context), ..Self::to(address, login) })
    }

    /// To a `MongoDB` or a `FerretDB`; as nobody where there is no account.
    pub(crate) fn documents(socket: &Path, account: Option<(&str, Secret)>) -> Self {
        let (user, password) = account.unwrap_or_else(|| ("", Secret::new(Vec::new())));
        let mechanism =
            if user.is_empty() { mongodb::Mechanism::None } else { mongodb::Mechanism::ScramSha256 };
        let database = documents::ADMIN.to_owned();
        let login =
            mongodb::MongoDbLogin { mechanism, database, ..mongodb::MongoDbLogin::new(user, password) };
        Self::to(Address::Unix(socket.to_owned()), Login::MongoDb(Arc::new(login)))
    }

    /// The same for another database, where commands name none themselves.
    pub(crate) fn in_database(&self, database: &str) -> Self {
        let mut control = self.clone();
        if let Login::MongoDb(login) = &mut control.login {
            *login = Arc::new(mongodb::MongoDbLogin { database: database.to_owned(), ..(**login).clone() });
        }
        control
    }

    /// The same without an account.
    pub(crate) fn as_nobody(&self) -> Self {
        let mut control = self.clone();
        if let Login::MongoDb(login) = &mut control.login {
            let mechanism = mongodb::Mechanism::None;
            *login = Arc::new(mongodb::MongoDbLogin { mechanism, ..(**login).clone() });
        }
        control
    }

    /// The same as somebody who has an account.
    pub(crate) fn as_account(&self, user: &str, password: Secret) -> Self {
        let mut control = self.clone();
        if let Login::MongoDb(login) = &mut control.login {
            let (mechanism, database) = (mongodb::Mechanism::ScramSha256, login.database.clone());
            let own = mongodb::MongoDbLogin::new(user, password);
            *login = Arc::new(mongodb::MongoDbLogin { mechanism, database, ..own });
        }
        control
    }

    /// Without a password: the server asks the kernel who we are.
    pub(crate) fn postgres(socket: &Path, user: &str, database: &str) -> Self {
        let login = postgres::PostgresLogin {
            user: user.to_owned(),
            password: Secret::new(Vec::new()),
            database: Some(database.to_owned()),
            encryption: postgres::PostgresTlsMode::Plain,
            channel_binding: postgres::ChannelBinding::Disabled,
        };
        Self::to(Address::Unix(socket.to_owned()), Login::Postgres(Arc::new(login)))
    }

    /// In the clear, to whoever listens there.
    pub(crate) fn to(address: Address, login: Login) -> Self {
        Self { address, login, tls: None, connects: Arc::default() }
    }

    /// The same by TLS, where there is some.
    pub(crate) fn by(self, tls: Option<tls::Context>) -> Self {
        Self { tls, ..self }
    }

    /// How often there was a connection, failed ones included.
    pub(crate) fn connects(&self) -> u64 {
        self.connects.load(Ordering::Relaxed)
    }

    /// A connection for a few statements. None is kept open, so that none is there while a trial runs.
    pub(crate) fn connect(&self) -> Result<Client, Error> {
        self.connects.fetch_add(1, Ordering::Relaxed);
        let connected = Client::connect(&self.address, self.login.clone(), self.tls.as_ref());
        connected.map_err(|source| Error::Control { doing: "log in to the server", source })
    }

    /// Waits until `server` lets us log in. Its death is noticed at once.
    pub(crate) fn wait_until_ready(&self, server: &mut Child, limit: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + limit;
        let attempts = self.attempts();
        let mut last = "it never listened".to_owned();
        loop {
            match attempts.recv_timeout(DEATH_CHECK) {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(failure)) => last = failure,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if let Some(status) = server.ended() {
                return Err(server.died(status));
            }
            if Instant::now() >= deadline {
                return Err(server.too_slow(limit, last));
            }
        }
    }

    /// Tries to log in on a thread of its own, since a server that accepts and then hangs would hold
    /// us beyond the deadline. The thread ends when nobody listens, or with the server.
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

/// Runs one statement.
pub(crate) fn execute(client: &mut Client, doing: &'static str, sql: &str) -> Result<(), Error> {
    client.execute(sql).map_err(|source| Error::Control { doing, source })
}

/// The rows of a query, as text; NULL is empty.
pub(crate) fn query(client: &mut Client, doing: &'static str, sql: &str) -> Result<Vec<Vec<String>>, Error> {
    let rows = client.query(sql).map_err(|source| Error::Control { doing, source })?;
    let text = |value: Option<Vec<u8>>| String::from_utf8_lossy(&value.unwrap_or_default()).into_owned();
    Ok(rows.into_iter().map(|row| row.into_iter().map(text).collect()).collect())
}

/// Logs out.
pub(crate) fn close(client: Client) -> Result<(), Error> {
    client.close().map_err(|source| Error::Control { doing: "log out", source })
}
