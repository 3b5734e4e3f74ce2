//! A MySQL or MariaDB server and the proxies. All routes use the same database, one after the other.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ciphertoll_lab::{Build, DataTemplate, Lab, Server, Tables, find};
use ciphertoll_model::{Auth, Endpoint, Engine, ServerLevel, Setting, Settings};
use ciphertoll_testing::no_server;
use ciphertoll_wire::mysql::Capabilities;
use tempfile::TempDir;

use super::connection::Connection;
use super::raw::{RawClient, USUAL};
use super::{UTF8MB4, tables};
use crate::options::{DEADLINE, Options, SERVED};
use crate::proxies::{DIRECT, PLANS, Plan, Pooling, Proxy};
use crate::server::{open_lab, start_of};
use crate::waiting::ServerThread;

/// Clients that wait for each other's locks get errors at once; the rest changes nothing that clients see.
const MARIADB_SETTINGS: [(&str, &str); 6] = [
    ("lock_wait_timeout", "0"),
    ("innodb_lock_wait_timeout", "0"),
    ("innodb_flush_log_at_trx_commit", "0"),
    ("innodb_doublewrite", "0"),
    ("innodb_file_per_table", "0"),
    NO_STATISTICS,
];
const MYSQL_SETTINGS: [(&str, &str); 5] = [
    ("lock_wait_timeout", "1"),
    ("innodb_lock_wait_timeout", "1"),
    ("innodb_flush_log_at_trx_commit", "0"),
    // It has all settings of a session.
    ("performance_schema", "ON"),
    NO_STATISTICS,
];
/// Their thread locks tables at any time.
const NO_STATISTICS: (&str, &str) = ("innodb_stats_auto_recalc", "OFF");
const CONTROL: &str = "ciphertoll_control";

/// The way from clients to the server.
pub(crate) struct Route {
    pub(crate) plan: &'static Plan,
    pub(crate) socket: PathBuf,
    pub(crate) proxy: Option<Proxy>,
    pub(crate) thieves: Vec<Option<Connection>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schema {
    Original,
    Changed,
}

pub(crate) struct Site {
    // Dropped in this order: proxies, the server, and the directory with its files.
    pub(crate) routes: Vec<Route>,
    pub(crate) server: Server,
    _template: DataTemplate,
    _build: Build,
    _lab: Lab,
    directory: TempDir,
    program: PathBuf,
    pub(crate) engine: Engine,
    pub(crate) user: String,
    pub(crate) database: String,
    /// As the clients' user, on the server itself.
    pub(crate) administrator: RawClient,
    /// What a client finds on a new connection to the server.
    pub(crate) fresh: Vec<String>,
    pub(crate) fresh_settings: Vec<String>,
    pub(crate) schema: Schema,
}

impl Site {
    /// `None`, with a message, if there is no such server.
    pub(crate) fn open(engine: Engine, options: &Options) -> Option<Self> {
        let build = find(&ServerLevel::of(engine)).or_else(|error| match engine {
            // Debian has none, but it can be fetched.
            Engine::MySql => find(&"mysql-9.7".parse().expect("a level")).map_err(|_| error),
            _ => Err(error),
        });
        let build = build.inspect_err(|error| no_server(engine, error)).ok()?;
        let (directory, lab, template) = open_lab(&build, &Tables::default());
        let mut settings = Settings::default();
        let own = if engine == Engine::MariaDb { &MARIADB_SETTINGS[..] } else { &MYSQL_SETTINGS[..] };
        for (name, value) in own {
            settings.set(Setting::new(engine, name, value).expect("a setting"));
        }
        let start = start_of(&build, &template, &directory);
        let server = lab.start_with(&start, &settings).expect("the server starts");
        let user = server.account(Auth::default_of(engine)).user;
        let database = server.database().to_owned();
        let administrator = Self::let_in(&server, &user, &database);
        let program = options.proxy.clone();
        let mut site = Self {
            routes: Vec::new(),
            server,
            _template: template,
            _build: build,
            _lab: lab,
            directory,
            program,
            engine,
            user,
            database,
            administrator,
            fresh: Vec::new(),
            fresh_settings: Vec::new(),
            schema: Schema::Changed,
        };
        site.restore();
        let socket = socket_of(&site.server);
        let mut client = site.client(&socket, USUAL).expect("the login succeeds");
        site.fresh = tables::find(engine, &mut client, DEADLINE).expect("an answer");
        site.fresh_settings = tables::find_settings(engine, &mut client, DEADLINE);
        let chosen = PLANS.iter().filter(|plan| options.has_route(plan.name));
        for plan in [&DIRECT].into_iter().chain(chosen) {
            let socket = match plan.pooling {
                Pooling::Direct => socket.clone(),
                _ => site.directory.path().join(plan.name).join("mysqld.sock"),
            };
            site.routes.push(Route { plan, socket, proxy: None, thieves: Vec::new() });
            site.renew(site.routes.len() - 1);
        }
        Some(site)
    }

    /// Lets the clients' user log in through the unix socket without a password.
    fn let_in(server: &Server, user: &str, database: &str) -> RawClient {
        let socket = socket_of(server);
        let password = fs::read(server.password_file()).expect("the password is ours to read");
        let mut control = RawClient::log_in_with(&socket, CONTROL, &password, None, USUAL, UTF8MB4)
            .expect("the control account may log in");
        for sql in [
            format!("CREATE USER '{user}'@'localhost' IDENTIFIED BY ''"),
            format!("GRANT ALL ON {database}.* TO '{user}'@'localhost'"),
        ] {
            execute(&mut control, &sql);
        }
        let terms = USUAL | Capabilities::MULTI_STATEMENTS;
        RawClient::log_in(&socket, user, Some(database), terms, UTF8MB4).expect("the login succeeds")
    }

    pub(crate) fn client(&self, socket: &Path, capabilities: Capabilities) -> Result<Connection, String> {
        Connection::open(socket, &self.user, Some(&self.database), capabilities)
    }

    /// Starts the proxy of a route, which may have one.
    pub(crate) fn renew(&mut self, route: usize) {
        let Endpoint::Tcp(address) = self.server.tcp_endpoint() else {
            panic!("a private server has an address")
        };
        let password = fs::read(self.server.password_file()).expect("the password is ours to read");
        let (user, name) = (&self.user, self.server.server_name());
        let (port, ca) = (address.port(), self.server.ca_file());
        let route = &mut self.routes[route];
        if route.plan.pooling == Pooling::Direct {
            return;
        }
        route.thieves = (0..route.plan.pool_size).map(|_| None).collect();
        route.proxy = None;
        // It names no database: then clients that name none have none.
        let url = format!("mysql://{user}@{name}:{port}/?ssl-ca={}", ca.display());
        route.proxy =
            Some(Proxy::start(&self.program, route.plan, &route.socket, &url, ("MYSQL_PWD", password)));
        // Clients that come before it has connected are refused.
        let until = Instant::now() + DEADLINE;
        while Connection::open(&route.socket, user, Some(&self.database), USUAL).is_err() {
            assert!(Instant::now() < until, "the proxy does not connect");
        }
        self.schema = Schema::Changed;
    }

    /// Puts the tables back to what they were.
    pub(crate) fn restore(&mut self) {
        let until = Instant::now() + DEADLINE;
        loop {
            let sql = match self.schema {
                Schema::Original => tables::restore_rows(),
                Schema::Changed => tables::restore_all(),
            };
            self.administrator.query(&sql);
            let Some(code) = RawClient::error(&self.administrator.results()) else { break };
            self.schema = Schema::Changed;
            if Instant::now() > until {
                self.end_others();
            }
            assert!(Instant::now() < until + DEADLINE, "error {code}");
        }
        self.schema = Schema::Original;
    }

    /// Executes a text of the administrator, again and again as long as its error is one to wait for. Returns the error.
    pub(crate) fn administrate(
        &mut self,
        sql: &str,
        patience: Duration,
        waits: impl Fn(Option<u16>) -> bool,
    ) -> Option<u16> {
        let until = Instant::now() + patience;
        loop {
            self.administrator.query(sql);
            let refused = RawClient::error(&self.administrator.results());
            if !waits(refused) || Instant::now() > until {
                return refused;
            }
        }
    }

    /// Ends the connections of the clients' user, which may have locks.
    fn end_others(&mut self) {
        self.administrator.query(
            "SELECT GROUP_CONCAT(CONCAT('KILL ', ID) SEPARATOR '; ') FROM information_schema.PROCESSLIST \
             WHERE ID <> CONNECTION_ID() AND USER = SUBSTRING_INDEX(CURRENT_USER(), '@', 1)",
        );
        let payloads = self.administrator.results();
        let row = String::from_utf8_lossy(&payloads[payloads.len() - 2]).into_owned();
        if let Some(at) = row.find("KILL") {
            self.administrator.query(&row[at..]);
            self.administrator.results();
        }
    }

    /// What a thread of the server does, and which one it is; `None` if the connection has ended.
    pub(crate) fn thread(&mut self, connection_id: u32) -> Option<(String, ServerThread)> {
        // Only MariaDB says the thread's number here, and the other tables of MySQL need more rights.
        let number = if self.engine == Engine::MariaDb { "TID" } else { "0" };
        let sql = format!(
            "SELECT CONCAT(COMMAND, ' ', {number}) FROM information_schema.PROCESSLIST WHERE ID = {connection_id}"
        );
        self.administrator.query(&sql);
        let payloads = self.administrator.results();
        // The number of columns, a definition, a row, and the end.
        let row = payloads.get(2).filter(|_| payloads.len() == 4)?;
        let text = String::from_utf8_lossy(&row[1..]).into_owned();
        let (command, thread) = text.rsplit_once(' ')?;
        let thread = match thread.parse().ok()? {
            0 => ServerThread::AnyOf,
            number => ServerThread::Number(number),
        };
        Some((command.to_owned(), thread))
    }

    /// Whether another client must be served by now and finds a clean connection.
    pub(crate) fn fresh_differs(&self, next: &mut Connection) -> Option<Vec<String>> {
        tables::find(self.engine, next, SERVED).filter(|found| *found != self.fresh)
    }
}

fn socket_of(server: &Server) -> PathBuf {
    let Endpoint::Unix(socket) = server.unix_endpoint() else { panic!("a server has a socket") };
    socket
}

fn execute(client: &mut RawClient, sql: &str) {
    client.query(sql);
    let results = client.results();
    assert_eq!(RawClient::error(&results), None, "{sql}");
}

impl Route {
    /// The process that reads what clients send.
    pub(crate) fn reader(&self) -> u32 {
        self.proxy.as_ref().map_or(0, Proxy::id)
    }

    /// The number of clients that the proxy has pinned since it started.
    pub(crate) fn pins(&mut self) -> usize {
        self.proxy.as_mut().map_or(0, Proxy::pins)
    }
}
