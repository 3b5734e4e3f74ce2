//! A PostgreSQL server with a database for each route, and the proxies.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ciphertoll_lab::{Build, DataTemplate, Lab, Server, Tables, find};
use ciphertoll_model::{Auth, Endpoint, Engine, ServerLevel, Setting, Settings};
use ciphertoll_testing::missing;
use tempfile::TempDir;

use super::connection::{Connection, rows};
use super::tables;
use crate::options::{DEADLINE, Options, SERVED, TIME_LIMIT};
use crate::proxies::{DIRECT, PLANS, Plan, Pooling, Proxy};
use crate::server::{open_lab, start_of};

/// Changes nothing that clients see.
const SERVER_SETTINGS: [(&str, &str); 6] = [
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("max_prepared_transactions", "4"),
    // Plans would depend on when it ran.
    ("autovacuum", "off"),
    // Nor on what it has counted.
    ("enable_seqscan", "off"),
    // With which a sequential scan costs so much that each would be compiled.
    ("jit", "off"),
];
/// The lab's role, which may log in through the unix socket.
const CONTROL: &str = "ciphertoll";
const CONTROL_DATABASE: &str = "sbtest";

/// The way from clients to a database of its own.
pub(crate) struct Route {
    pub(crate) plan: &'static Plan,
    pub(crate) database: String,
    pub(crate) socket: PathBuf,
    /// To the server itself.
    pub(crate) administrator: Connection,
    pub(crate) proxy: Option<Proxy>,
    pub(crate) thieves: Vec<Option<Connection>>,
    /// What a client finds on a new connection to the server.
    pub(crate) fresh: Vec<String>,
    /// The last session may have changed more than rows.
    pub(crate) schema: Schema,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schema {
    Original,
    Changed,
}

pub(crate) struct Site {
    // Dropped in this order: proxies, the server, and the directory with its files.
    pub(crate) routes: Vec<Route>,
    server: Server,
    _template: DataTemplate,
    _build: Build,
    _lab: Lab,
    directory: TempDir,
    program: PathBuf,
    pub(crate) user: String,
    server_socket: PathBuf,
}

impl Site {
    /// `None`, with a message, if PostgreSQL is not installed.
    pub(crate) fn open(options: &Options) -> Option<Self> {
        let build = find(&ServerLevel::of(Engine::Postgres)).inspect_err(missing).ok()?;
        let (directory, lab, template) = open_lab(&build, &Tables::default());
        let mut settings = Settings::default();
        for (name, value) in SERVER_SETTINGS {
            settings.set(Setting::new(Engine::Postgres, name, value).expect("a setting"));
        }
        let start = start_of(&build, &template, &directory);
        let server = lab.start_with(&start, &settings).expect("the server starts");
        let Endpoint::Unix(server_socket) = server.unix_endpoint() else { panic!("a server has a socket") };
        let user = server.account(Auth::default_of(Engine::Postgres)).user;
        let program = options.proxy.clone();
        let (template, build) = (template, build);
        let mut site = Self {
            routes: Vec::new(),
            server,
            _template: template,
            _build: build,
            _lab: lab,
            directory,
            program,
            user,
            server_socket,
        };
        site.let_in();
        let chosen = PLANS.iter().filter(|plan| options.has_route(plan.name));
        for plan in [&DIRECT].into_iter().chain(chosen) {
            let route = site.new_route(plan);
            site.routes.push(route);
            site.renew(site.routes.len() - 1);
        }
        Some(site)
    }

    fn control(&self, database: &str) -> Connection {
        Connection::open(&self.server_socket, CONTROL, database, &[], DEADLINE)
            .expect("the control role may log in")
    }

    /// Lets the client's role log in to each database: directly without a password, by TCP with it.
    fn let_in(&self) {
        let mut control = self.control(CONTROL_DATABASE);
        let answer = control.query("SHOW hba_file", DEADLINE).expect("an answer");
        let path = &rows(&answer)[0];
        let rules = fs::read_to_string(path).expect("the access rules");
        let user = &self.user;
        let own = format!("local all {user} trust\nhostssl all {user} 127.0.0.0/8 scram-sha-256\n");
        fs::write(path, own + &rules).expect("ours to change");
        let answer = control.query("SELECT pg_reload_conf()", DEADLINE).expect("an answer");
        assert_eq!(rows(&answer), ["t"]);
    }

    fn new_route(&self, plan: &'static Plan) -> Route {
        let (database, user) = (format!("route_{}", plan.name.replace('-', "_")), &self.user);
        let mut control = self.control(CONTROL_DATABASE);
        for sql in [
            format!("CREATE DATABASE {database}"),
            format!("GRANT ALL ON DATABASE {database} TO {user}"),
            // Clients that wait for each other's locks get errors, and soon.
            format!("ALTER DATABASE {database} SET lock_timeout = '60ms'"),
        ] {
            let answer = control.query(&sql, DEADLINE).expect("an answer");
            assert!(rows(&answer).is_empty(), "{sql}: {:?}", rows(&answer));
        }
        let mut administrator = self.control(&database);
        administrator.query("SET client_min_messages = error", DEADLINE).expect("an answer");
        let socket = match plan.pooling {
            Pooling::Direct => self.server_socket.clone(),
            _ => self.directory.path().join(plan.name).join(".s.PGSQL.6432"),
        };
        let mut route = Route {
            plan,
            database,
            socket,
            administrator,
            proxy: None,
            thieves: Vec::new(),
            fresh: Vec::new(),
            schema: Schema::Changed,
        };
        route.restore(user);
        let settings: [(String, String); 0] = [];
        // The access rules are reloaded by then or soon.
        let until = Instant::now() + DEADLINE;
        let mut client = loop {
            match Connection::open(&self.server_socket, user, &route.database, &settings, DEADLINE) {
                Ok(client) => break client,
                Err(refused) => assert!(Instant::now() < until, "{refused:?}"),
            }
        };
        route.fresh = tables::find(&mut client, SERVED).expect("an answer");
        route
    }

    /// Starts the proxy of a route, which may have one.
    pub(crate) fn renew(&mut self, route: usize) {
        let (port, ca) = (self.port(), self.server.ca_file());
        let password = fs::read(self.server.password_file()).expect("the password is ours to read");
        let route = &mut self.routes[route];
        if route.plan.pooling == Pooling::Direct {
            return;
        }
        route.thieves = (0..route.plan.pool_size).map(|_| None).collect();
        route.proxy = None;
        let (user, name, database) = (&self.user, self.server.server_name(), &route.database);
        let url = format!("postgres://{user}@{name}:{port}/{database}?sslrootcert={}", ca.display());
        let password = ("PGPASSWORD", password);
        route.proxy = Some(Proxy::start(&self.program, route.plan, &route.socket, &url, password));
        route.schema = Schema::Changed;
    }

    fn port(&self) -> u16 {
        match self.server.tcp_endpoint() {
            Endpoint::Tcp(address) => address.port(),
            _ => panic!("a private server has an address"),
        }
    }
}

impl Route {
    /// The process that reads what clients send; 0 for a server, which has one for each.
    pub(crate) fn reader(&self) -> u32 {
        self.proxy.as_ref().map_or(0, Proxy::id)
    }

    /// Puts the tables back to what they were.
    pub(crate) fn restore(&mut self, user: &str) {
        let sql = match self.schema {
            Schema::Original => tables::RESTORE_ROWS.to_owned(),
            Schema::Changed => tables::restore_all(user),
        };
        // A connection that the proxy has just closed may still have locks.
        let until = Instant::now() + DEADLINE;
        loop {
            let answer = self.administrator.query(&sql, TIME_LIMIT).expect("the server answers");
            let errors: Vec<String> = rows(&answer).into_iter().filter(|row| row.starts_with("E ")).collect();
            if errors.is_empty() {
                break;
            }
            if Instant::now() > until {
                let end = format!(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                     WHERE datname = '{}' AND pid <> pg_backend_pid()",
                    self.database
                );
                self.administrator.query(&end, TIME_LIMIT).expect("the server answers");
            }
            assert!(Instant::now() < until + DEADLINE, "{}: {errors:?}", self.plan.name);
        }
        self.schema = Schema::Original;
    }

    /// Ends prepared transactions: their names are those of the whole server.
    pub(crate) fn end_prepared(&mut self) {
        let list = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()";
        let answer = self.administrator.query(list, TIME_LIMIT).expect("the server answers");
        for name in rows(&answer) {
            let sql = format!("ROLLBACK PREPARED '{name}'");
            self.administrator.query(&sql, TIME_LIMIT).expect("the server answers");
        }
    }

    /// The number of clients that the proxy has pinned since it started.
    pub(crate) fn pins(&mut self) -> usize {
        self.proxy.as_mut().map_or(0, Proxy::pins)
    }

    pub(crate) fn open(
        &self,
        user: &str,
        settings: &[(String, String)],
        limit: Duration,
    ) -> Result<Connection, super::connection::Refused> {
        Connection::open(&self.socket, user, &self.database, settings, limit)
    }
}
