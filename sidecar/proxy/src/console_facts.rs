//! What the console shows of the settings.

use std::time::Duration;

use crate::console_rules::ConsoleRules;
use crate::hosts::LoadBalance;
use crate::log::Log;
use crate::settings::{DatabaseUser, Limits, ListenAddress, Pooling, Settings};
use crate::url::ServerAddress;

#[derive(Clone)]
pub(crate) struct Facts {
    pub(crate) log: Log,
    pub(crate) pooling: Pooling,
    pub(crate) limits: Limits,
    /// Names and default databases, those of the server's URL first.
    pub(crate) users: Vec<(String, String)>,
    /// The hosts, in the order of the server's URL.
    pub(crate) hosts: Vec<ServerAddress>,
    pub(crate) balance: LoadBalance,
    pub(crate) listen: Vec<ListenAddress>,
    /// `None` if the console is off.
    pub(crate) rules: Option<ConsoleRules>,
}

/// A setting by PgBouncer's name.
pub(crate) struct ConfigRow {
    pub(crate) key: &'static str,
    pub(crate) value: String,
    pub(crate) default: String,
    pub(crate) is_changeable: bool,
}

impl Facts {
    pub(crate) fn of(settings: &Settings, log: Log) -> Self {
        let protocol = settings.server.protocol;
        let default_of = |user: &DatabaseUser| user.default_database(protocol).to_owned();
        let users = settings.users.iter().map(|user| (user.name.clone(), default_of(user))).collect();
        Self {
            log,
            pooling: settings.pooling,
            limits: settings.limits.clone(),
            users,
            hosts: settings.server.hosts().cloned().collect(),
            balance: settings.server.balance,
            listen: settings.listen.clone(),
            rules: settings.console.clone(),
        }
    }

    pub(crate) fn pool_mode(&self) -> &'static str {
        match self.pooling {
            Pooling::Session => "session",
            Pooling::Transaction => "transaction",
        }
    }

    /// Name or socket and port of the host with this index. Without an index, the only host; `None` if there are several.
    pub(crate) fn host(&self, index: Option<usize>) -> Option<(String, u16)> {
        let host = match index {
            Some(index) => self.hosts.get(index)?,
            None => self.hosts.first().filter(|_| self.hosts.len() == 1)?,
        };
        Some(match host {
            ServerAddress::Host { host, port } => (host.clone(), *port),
            ServerAddress::Socket(path) => (path.display().to_string(), 0),
        })
    }

    /// All hosts, each with its port.
    pub(crate) fn hosts_label(&self) -> String {
        self.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// Connections to this database that are opened in advance for each user whose default database it is.
    pub(crate) fn warm(&self, database: &str) -> usize {
        let users = self.users.iter().filter(|(_, default)| default == database);
        users
            .map(|(user, _)| self.limits.warm.max(self.limits.groups.warm(user, database)))
            .max()
            .unwrap_or(0)
    }

    /// How hosts are chosen; `None` if there is only one.
    pub(crate) fn load_balance(&self) -> Option<&'static str> {
        (self.hosts.len() > 1).then_some(self.balance.label())
    }

    /// The address of the only TCP listener; `None` if there are several or none.
    pub(crate) fn tcp_listener(&self) -> Option<std::net::SocketAddr> {
        let mut tcp = self.listen.iter().filter_map(|address| match address {
            ListenAddress::Tcp(address) => Some(*address),
            ListenAddress::Unix(_) => None,
        });
        tcp.next().filter(|_| tcp.next().is_none())
    }

    /// The port that libpq sees in the name of the unix socket, or else that of the TCP listener.
    pub(crate) fn port(&self) -> u16 {
        let of_socket = self.listen.iter().find_map(|address| match address {
            ListenAddress::Unix(path) => path.extension()?.to_str()?.parse().ok(),
            ListenAddress::Tcp(_) => None,
        });
        of_socket.or_else(|| self.tcp_listener().map(|address| address.port())).unwrap_or(0)
    }

    /// The settings that PgBouncer has, too.
    pub(crate) fn config(&self) -> Vec<ConfigRow> {
        let (limits, defaults) = (&self.limits, Limits::default());
        let seconds = |time: Duration| time.as_secs_f64().to_string();
        let of = |key, value: String, default: String| ConfigRow { key, value, default, is_changeable: true };
        let fixed = |key, value: &str, default: &str| ConfigRow {
            is_changeable: false,
            ..of(key, value.to_owned(), default.to_owned())
        };
        let names = |users: &[String]| users.join(", ");
        let times = &limits.times.global;
        let limit = |key, time: Option<Duration>| of(key, seconds(time.unwrap_or_default()), "0".to_owned());
        let rules = self.rules.clone().unwrap_or_default();
        vec![
            of("admin_users", names(&rules.admin_users), String::new()),
            limit("client_idle_timeout", times.idle),
            of("client_login_timeout", seconds(limits.login), seconds(defaults.login)),
            of(
                "default_pool_size",
                limits.server_connections.to_string(),
                defaults.server_connections.to_string(),
            ),
            limit("idle_transaction_timeout", times.idle_transaction),
            fixed("listen_port", &self.port().to_string(), ""),
            of("max_client_conn", limits.clients.to_string(), defaults.clients.to_string()),
            of("max_db_connections", "0".to_owned(), "0".to_owned()),
            of("max_user_connections", "0".to_owned(), "0".to_owned()),
            of("min_pool_size", limits.warm.to_string(), defaults.warm.to_string()),
            fixed("pool_mode", self.pool_mode(), "session"),
            limit("query_timeout", times.query),
            of("query_wait_timeout", seconds(limits.queue), seconds(defaults.queue)),
            of("reserve_pool_size", "0".to_owned(), "0".to_owned()),
            of("server_check_delay", seconds(limits.health), seconds(defaults.health)),
            of("server_connect_timeout", seconds(limits.connect), seconds(defaults.connect)),
            of("server_idle_timeout", seconds(limits.idle), seconds(defaults.idle)),
            of("server_lifetime", seconds(limits.age), seconds(defaults.age)),
            of("stats_users", names(&rules.stats_users), String::new()),
            limit("transaction_timeout", times.transaction),
        ]
    }
}
