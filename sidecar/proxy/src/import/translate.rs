//! Makes a configuration of PgBouncer's settings.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use super::ini::{ImportError, IniEntry, IniFile};
use super::known::{DEFAULTS, Fate, OF_DATABASES, OF_USERS, SETTINGS, fate};
use super::outcome::{ImportNote, Imported, NoteKind};
use super::userlist::{ListedUser, SecretKind};
use crate::config::{Config, ConsoleSection, DatabaseSection, LimitsSection, UserSection};
use crate::duration::HumanDuration;
use crate::settings::{Pooling, UnixAuth};

/// PgBouncer's default values, where they are not those of this proxy.
const DEFAULT_PORT: &str = "6432";
const DEFAULT_SOCKETS: &str = "/tmp";
const DEFAULT_SERVER_PORT: &str = "5432";
const DEFAULT_CLIENTS: &str = "100";
const DEFAULT_POOL: &str = "20";
const DEFAULT_QUEUE_S: &str = "120";
const DEFAULT_CONNECT_S: &str = "15";
const DEFAULT_LOGIN_S: &str = "60";
/// Used for times that PgBouncer does not limit.
const FOR_EVER: Duration = Duration::from_hours(365 * 24);

type Users = Result<Vec<ListedUser>, (PathBuf, ImportError)>;

struct Translation<'a> {
    source: &'a IniFile,
    users: Vec<ListedUser>,
    notes: Vec<ImportNote>,
}

pub(super) fn translate(
    source: &IniFile,
    users: Users,
    database: Option<&str>,
) -> Result<Imported, ImportError> {
    let mut translation = Translation { source, users: Vec::new(), notes: Vec::new() };
    match users {
        Ok(users) => translation.users = users,
        Err((path, error)) => {
            let what = format!("auth_file = {}", path.display());
            translation.note(NoteKind::ToDo, &what, &format!("{error}; name it with --userlist"));
        }
    }
    let entry = translation.server_entry(database)?;
    let config = translation.config(&entry);
    translation.note_settings();
    translation.note_entries(&entry);
    let notes = translation.notes;
    let mut toml = "# Imported from PgBouncer: read what was printed with it.\n".to_owned();
    for note in notes.iter().filter(|note| note.kind == NoteKind::ToDo) {
        toml.push_str(&format!("# TODO {}: {}\n", note.what, note.reason).replace(['\r', '\0'], " "));
    }
    toml.push_str(&config.to_toml());
    Ok(Imported { toml, notes })
}

impl Translation<'_> {
    fn note(&mut self, kind: NoteKind, what: &str, reason: &str) {
        // One line each, whatever is in the names.
        let clean = |text: &str| text.replace(['\n', '\r'], " ");
        self.notes.push(ImportNote { what: clean(what), reason: clean(reason), kind });
    }

    fn value(&self, name: &str, default: &str) -> String {
        self.source.get(name).unwrap_or(default).to_owned()
    }

    /// The entry whose server the proxy is for.
    fn server_entry(&mut self, database: Option<&str>) -> Result<IniEntry, ImportError> {
        let entries = &self.source.databases;
        match database {
            Some(name) => {
                let found = entries.iter().find(|entry| entry.name == name);
                found.cloned().ok_or_else(|| ImportError::NoDatabase(name.to_owned()))
            }
            None if entries.is_empty() => {
                self.note(NoteKind::ToDo, "[databases]", "it is empty: set \"server\" to the server's URL");
                Ok(IniEntry { name: "*".to_owned(), settings: Vec::new() })
            }
            None => Ok(entries.first().cloned().unwrap_or_default()),
        }
    }

    fn config(&mut self, entry: &IniEntry) -> Config {
        let listen = self.listen();
        let user = self.server_user(entry);
        let server = self.server_url(entry, &user);
        let tls = self.client_tls(&listen);
        let mode = match self.value("pool_mode", "session").as_str() {
            "transaction" => Pooling::Transaction,
            "statement" => {
                let reason = "there is no statement mode: transaction mode also allows transactions";
                self.note(NoteKind::Lost, "pool_mode = statement", reason);
                Pooling::Transaction
            }
            _ => Pooling::Session,
        };
        let limits = self.limits();
        let pool_size = limits.pool_size.map_or(0, NonZeroUsize::get);
        let users = self.user_sections(entry, &user, pool_size);
        let warm = self.number("min_pool_size", "0");
        let fits = warm.saturating_mul(users.len().max(1)) <= pool_size;
        if !fits {
            self.note(NoteKind::Lost, "min_pool_size", "warm-up for all users would exceed pool-size");
        }
        let tcp = listen.iter().any(|address| address.starts_with("tcp:"));
        Config {
            listen: listen.iter().filter_map(|address| address.parse().ok()).collect(),
            server: Some(server),
            tls_cert: tls.0,
            tls_key: tls.1,
            tls_client_ca: tls.2,
            mode: Some(mode),
            unix_auth: self.unix_auth(),
            scram_iterations: self.scram_iterations(tcp),
            warm_up: Some(warm).filter(|warm| *warm > 0 && fits),
            health_time: self.time("server_check_delay", "30"),
            limits,
            console: Some(self.console()),
            auth_user: self.source.get("auth_user").map(ToOwned::to_owned),
            auth_query: self.auth_query(),
            database: self.database_sections(entry, pool_size),
            user: users,
            ..Config::default()
        }
    }

    fn listen(&mut self) -> Vec<String> {
        let port = self.value("listen_port", DEFAULT_PORT);
        let mut listen = Vec::new();
        let sockets = self.source.settings.iter().rev().find(|(name, _)| name == "unix_socket_dir");
        let directory = sockets.map_or(DEFAULT_SOCKETS, |(_, value)| value.as_str()).to_owned();
        if directory.starts_with('/') {
            listen.push(format!("unix:{}/.s.PGSQL.{port}", directory.trim_end_matches('/')));
        } else if !directory.is_empty() {
            self.note(NoteKind::Lost, "unix_socket_dir", "only a directory of the file system is possible");
        }
        for address in self.value("listen_addr", "").split(',').map(str::trim) {
            match address {
                "" => {}
                "localhost" => listen.push(format!("tcp:127.0.0.1:{port}")),
                "*" => listen.push(format!("tcp:0.0.0.0:{port}")),
                ipv6 if ipv6.contains(':') => listen.push(format!("tcp:[{ipv6}]:{port}")),
                ip if ip.parse::<std::net::Ipv4Addr>().is_ok() => listen.push(format!("tcp:{ip}:{port}")),
                name => self.note(
                    NoteKind::Lost,
                    &format!("listen_addr = {name}"),
                    "only IP addresses are possible",
                ),
            }
        }
        let valid = |address: &String| address.parse::<crate::settings::ListenAddress>().is_ok();
        if listen.iter().any(|address| !valid(address)) {
            self.note(NoteKind::Lost, "listen_addr, listen_port", "an address is not valid");
        }
        listen.retain(valid);
        if listen.is_empty() {
            self.note(NoteKind::ToDo, "listen", "there is no address: set \"listen\"");
        }
        listen
    }

    /// The user whom the URL names.
    fn server_user(&mut self, entry: &IniEntry) -> String {
        if let Some(user) = entry.get("user") {
            let what = format!("database {}: user = {user}", entry.name);
            self.note(
                NoteKind::ToDo,
                &what,
                "clients must log in as this user: other names are not replaced",
            );
            return user.to_owned();
        }
        let listed = self.users.first().map(|user| user.name.clone());
        let user = listed.or_else(|| self.source.users.first().map(|user| user.name.clone()));
        user.unwrap_or_else(|| {
            let reason = "no user is known: put the user of your clients into the URL of \"server\"";
            self.note(NoteKind::ToDo, "users", reason);
            "app".to_owned()
        })
    }

    fn server_url(&mut self, entry: &IniEntry, user: &str) -> String {
        let is_fallback = entry.name == "*";
        let database = entry.get("dbname").or(Some(entry.name.as_str()).filter(|_| !is_fallback));
        let port = entry.get("port").unwrap_or(DEFAULT_SERVER_PORT);
        let hosts = entry.get("host").unwrap_or("/tmp");
        let several: Vec<&str> = hosts.split(',').map(str::trim).filter(|host| !host.is_empty()).collect();
        let host = several.first().copied().unwrap_or_default();
        let (user, path) = (encoded(user), database.map(encoded).unwrap_or_default());
        if host.starts_with('/') {
            if entry.get("host").is_none() {
                let what = format!("database {}", entry.name);
                self.note(
                    NoteKind::ToDo,
                    &what,
                    "it names no host: check the directory of the server's socket in the URL",
                );
            }
            return format!("postgres://{user}@/{path}?host={}&port={port}&sslmode=disable", encoded(host));
        }
        let in_url = |host: &str| if host.contains(':') { format!("[{host}]") } else { encoded(host) };
        let is_local = several.iter().all(|host| {
            *host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        });
        let options = self.server_tls(is_local);
        if several.len() < 2 {
            return format!("postgres://{user}@{}:{port}/{path}{options}", in_url(host));
        }
        if several.iter().any(|host| host.starts_with('/')) {
            let what = format!("database {}: host = {hosts}", entry.name);
            self.note(NoteKind::Lost, &what, "sockets and names cannot be mixed: the first host is used");
            return format!("postgres://{user}@{}:{port}/{path}{options}", in_url(host));
        }
        let places: Vec<String> = several.iter().map(|host| format!("{}:{port}", in_url(host))).collect();
        let begin = if options.is_empty() { '?' } else { '&' };
        let is_random = entry.get("load_balance_hosts") != Some("disable");
        let balance = if is_random { format!("{begin}load_balance_hosts=random") } else { String::new() };
        format!("postgres://{user}@{}/{path}{options}{balance}", places.join(","))
    }

    /// The options of the URL.
    fn server_tls(&mut self, is_local: bool) -> String {
        let mode = self.value("server_tls_sslmode", "prefer");
        let mut options = Vec::new();
        match mode.as_str() {
            "disable" => return "?sslmode=disable".to_owned(),
            "prefer" | "allow" if is_local => {
                let reason = "plaintext on this machine; remove sslmode=disable for TLS";
                self.note(NoteKind::Lost, &format!("server_tls_sslmode = {mode}"), reason);
                return "?sslmode=disable".to_owned();
            }
            "prefer" | "allow" => {
                let reason = "connections are encrypted and the server is verified: set sslrootcert in the URL to its CA file";
                self.note(NoteKind::ToDo, &format!("server_tls_sslmode = {mode}"), reason);
            }
            "require" | "verify-ca" => options.push(format!("sslmode={mode}")),
            _ => {}
        }
        for (name, option) in [
            ("server_tls_ca_file", "sslrootcert"),
            ("server_tls_cert_file", "sslcert"),
            ("server_tls_key_file", "sslkey"),
        ] {
            if let Some(file) = self.source.get(name) {
                options.push(format!("{option}={}", encoded(file)));
            }
        }
        if options.is_empty() { String::new() } else { format!("?{}", options.join("&")) }
    }

    /// Certificate, key and authority for clients.
    fn client_tls(&mut self, listen: &[String]) -> (Option<PathBuf>, Option<PathBuf>, Option<PathBuf>) {
        let mode = self.value("client_tls_sslmode", "disable");
        let file = |name: &str| self.source.get(name).map(PathBuf::from);
        let (certificate, key) = (file("client_tls_cert_file"), file("client_tls_key_file"));
        let authority = file("client_tls_ca_file");
        let parsed = listen.iter().filter_map(|at| at.parse::<crate::settings::ListenAddress>().ok());
        let exposed = parsed.into_iter().find(|address| !address.is_local());
        if mode == "disable" {
            if let Some(address) = exposed {
                let reason = "an address that is not loopback needs tls-cert and tls-key";
                self.note(NoteKind::ToDo, &format!("listen = {address}"), reason);
            }
            return (None, None, None);
        }
        if matches!(mode.as_str(), "allow" | "prefer") {
            let reason = "TCP clients must use TLS, all of them";
            self.note(NoteKind::Lost, &format!("client_tls_sslmode = {mode}"), reason);
        }
        let verifies = matches!(mode.as_str(), "verify-ca" | "verify-full");
        if verifies && self.source.get("auth_type") != Some("cert") {
            let reason = "a certificate must be issued to the name of the user, and no password is asked for";
            self.note(NoteKind::Lost, &format!("client_tls_sslmode = {mode}"), reason);
        }
        (certificate, key, authority.filter(|_| verifies))
    }

    fn unix_auth(&mut self) -> Option<UnixAuth> {
        let kind = self.value("auth_type", "md5");
        match kind.as_str() {
            "scram-sha-256" => Some(UnixAuth::Scram),
            "md5" | "plain" => {
                let reason = "clients prove their password by SCRAM, which every present driver can";
                self.note(NoteKind::Unneeded, &format!("auth_type = {kind}"), reason);
                Some(UnixAuth::Scram)
            }
            "cert" => None,
            _ => {
                let reason =
                    "processes with the proxy's UID may connect: set allow-uid for others, or unix-auth";
                self.note(NoteKind::Lost, &format!("auth_type = {kind}"), reason);
                None
            }
        }
    }

    fn scram_iterations(&mut self, by_tcp: bool) -> Option<NonZeroU32> {
        let iterations: u32 = self.source.get("scram_iterations")?.parse().ok()?;
        let minimum = if by_tcp { 4096 } else { 1 };
        if iterations < minimum {
            self.note(NoteKind::Lost, "scram_iterations", "over TCP it is at least 4096");
            return None;
        }
        NonZeroU32::new(iterations)
    }

    fn console(&self) -> ConsoleSection {
        let names = |name: &str| {
            let users = self.source.get(name).unwrap_or_default().split(',');
            users.map(str::trim).filter(|user| !user.is_empty()).map(ToOwned::to_owned).collect()
        };
        // PgBouncer's console is always there for its own UID.
        ConsoleSection { admin_users: names("admin_users"), stats_users: names("stats_users"), own_uid: true }
    }

    fn number(&self, name: &str, default: &str) -> usize {
        self.value(name, default).parse().unwrap_or_default()
    }

    fn limits(&mut self) -> LimitsSection {
        let default = self.number("default_pool_size", DEFAULT_POOL);
        let databases = &self.source.databases;
        let sizes = databases.iter().map(|entry| entry.get("pool_size").and_then(|size| size.parse().ok()));
        let sum: usize = sizes.map(|size| size.unwrap_or(default)).sum();
        let pool_size = sum.max(default);
        let what = format!("pool-size = {pool_size}");
        let reason =
            "check it: it is the limit of all users and databases together, not of each pair of them";
        self.note(NoteKind::ToDo, &what, reason);
        LimitsSection {
            pool_size: NonZeroUsize::new(pool_size),
            max_clients: NonZeroUsize::new(self.number("max_client_conn", DEFAULT_CLIENTS)),
            queue_time: self.time("query_wait_timeout", DEFAULT_QUEUE_S),
            login_time: self.time("client_login_timeout", DEFAULT_LOGIN_S),
            connect_time: self.time("server_connect_timeout", DEFAULT_CONNECT_S),
            idle_time: self.time("server_idle_timeout", "600"),
            max_age: self.time("server_lifetime", "3600"),
            query_time: self.timeout("query_timeout"),
            transaction_time: self.timeout("transaction_timeout"),
            idle_transaction_time: self.timeout("idle_transaction_timeout"),
            client_idle_time: self.timeout("client_idle_timeout"),
            ..LimitsSection::default()
        }
    }

    /// A time in seconds, possibly fractional. In PgBouncer, 0 means no limit, except for a check delay.
    fn time(&mut self, name: &str, default: &str) -> Option<HumanDuration> {
        let text = self.value(name, default);
        let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..1e9).contains(seconds));
        let Some(seconds) = seconds else {
            self.note(NoteKind::Lost, &format!("{name} = {text}"), "it is not a number of seconds");
            return None;
        };
        if seconds > 0.0 {
            return Some(Duration::from_secs_f64(seconds).into());
        }
        if name == "server_check_delay" {
            self.note(NoteKind::Lost, name, "idle connections are checked at intervals, not before each use");
            return None;
        }
        self.note(NoteKind::Lost, &format!("{name} = 0"), "there is a limit in any case: one year is used");
        Some(FOR_EVER.into())
    }

    fn user_sections(&mut self, entry: &IniEntry, first: &str, pool_size: usize) -> Vec<UserSection> {
        let mut names = BTreeSet::new();
        let listed = self.users.iter().map(|user| user.name.clone());
        let configured = self.source.users.iter().map(|user| user.name.clone());
        let console = self.console();
        let all = std::iter::once(first.to_owned())
            .chain(listed)
            .chain(configured)
            .chain(self.source.get("auth_user").map(ToOwned::to_owned))
            .chain(console.admin_users)
            .chain(console.stats_users);
        let all: Vec<String> = all.filter(|name| names.insert(name.clone())).collect();
        let section = |name: String| {
            let kind = self.users.iter().find(|user| user.name == name).map(|user| user.secret);
            let is_forced = entry.get("user") == Some(name.as_str()) && entry.get("password").is_some();
            let kind = if is_forced { Some(SecretKind::Plain) } else { kind };
            (name, kind)
        };
        let mut files = BTreeSet::new();
        let mut sections = Vec::new();
        for (name, kind) in all.into_iter().map(section) {
            let plain = name.replace(|at: char| !at.is_ascii_alphanumeric(), "_");
            let numbered = (2..).map(|number| format!("{plain}_{number}.password"));
            let mut candidates = std::iter::once(format!("{plain}.password")).chain(numbered);
            let file = candidates.find(|file| files.insert(file.clone())).unwrap_or_default();
            sections.push((name, kind, file));
        }
        let mut users = Vec::new();
        for (name, kind, file) in sections {
            let reason = match kind {
                Some(SecretKind::Plain) => "write its password",
                Some(SecretKind::Md5) => {
                    "an md5 digest cannot be a password to log in to the server with: write its password"
                }
                Some(SecretKind::Scram) => {
                    "a SCRAM secret cannot be a password to log in to the server with: write its password"
                }
                Some(SecretKind::None) | None => "no password is known: write it",
            };
            let reason = format!("{reason} to the file {file} beside the configuration, with the mode 0600");
            self.note(NoteKind::ToDo, &format!("user {name}"), &reason);
            let user = UserSection { name, password_file: Some(file.into()), ..UserSection::default() };
            users.push(self.with_limits(user, pool_size));
        }
        users
    }

    /// A time limit of sessions; `None` if the setting is missing, empty or 0.
    fn timeout(&mut self, name: &str) -> Option<HumanDuration> {
        let text = self.source.get(name).filter(|text| !matches!(*text, "" | "0"))?.to_owned();
        self.time(name, &text)
    }

    fn with_limits(&mut self, user: UserSection, pool_size: usize) -> UserSection {
        let source = self.source;
        let own = source.users.iter().find(|entry| entry.name == user.name);
        let value = |name: &str| own.and_then(|entry| entry.get(name)).or_else(|| source.get(name));
        let seconds = |name: &str| {
            let text = own.and_then(|entry| entry.get(name))?;
            text.parse::<u32>().ok().map(|seconds| Duration::from_secs(seconds.into()).into())
        };
        UserSection {
            pool_size: limit(value("max_user_connections"), pool_size),
            max_clients: limit(value("max_user_client_connections"), usize::MAX),
            query_time: seconds("query_timeout"),
            transaction_time: seconds("transaction_timeout"),
            idle_transaction_time: seconds("idle_transaction_timeout"),
            client_idle_time: seconds("client_idle_timeout"),
            ..user
        }
    }

    /// The databases of the same server that have limits.
    fn database_sections(&self, server: &IniEntry, pool_size: usize) -> Vec<DatabaseSection> {
        let source = self.source;
        let is_here = |entry: &&IniEntry| entry.name != "*" && place(entry) == place(server);
        let section = |entry: &IniEntry| {
            let value = |name: &str| entry.get(name).or_else(|| source.get(name));
            let section = DatabaseSection {
                name: entry.get("dbname").unwrap_or(&entry.name).to_owned(),
                pool_size: limit(value("max_db_connections"), pool_size),
                max_clients: limit(value("max_db_client_connections"), usize::MAX),
                min_pool_size: None,
            };
            (section.pool_size.is_some() || section.max_clients.is_some()).then_some(section)
        };
        let mut sections: Vec<DatabaseSection> =
            source.databases.iter().filter(is_here).filter_map(section).collect();
        let mut names = BTreeSet::new();
        sections.retain(|section| names.insert(section.name.clone()));
        sections
    }

    fn auth_query(&mut self) -> Option<String> {
        let query = self.source.get("auth_query").map(ToOwned::to_owned)?;
        if self.source.get("auth_user").is_none() {
            self.note(NoteKind::Lost, "auth_query", "it needs auth_user");
            return None;
        }
        let reason = "check it: it runs with the search_path pg_catalog, pg_temp, and must return the name and a SCRAM secret";
        self.note(NoteKind::ToDo, "auth_query", reason);
        Some(query)
    }

    fn note_settings(&mut self) {
        let source = self.source;
        for (name, value) in &source.settings {
            self.note_one(SETTINGS, "", name, value);
        }
        for section in &source.other_sections {
            let what = format!("[{section}]");
            self.note(NoteKind::Lost, &what, "there is no such section; peers are not needed with threads");
        }
    }

    fn note_one(&mut self, known: &[(&str, Fate)], of: &str, name: &str, value: &str) {
        let is_default = value.is_empty() || DEFAULTS.contains(&(name, value));
        // An unknown name may be a typing error for a secret.
        let is_secret = matches!(name, "password" | "auth_query" | "connect_query" | "auth_ldap_options");
        let shows_value = !is_secret && fate(known, name).is_some();
        let what = if shows_value { format!("{of}{name} = {value}") } else { format!("{of}{name}") };
        match fate(known, name) {
            Some(Fate::Translated) => {}
            Some(_) if is_default => {}
            Some(Fate::Unneeded(reason)) => self.note(NoteKind::Unneeded, &what, reason),
            Some(Fate::Lost(reason)) => self.note(NoteKind::Lost, &what, reason),
            None => self.note(NoteKind::Lost, &what, "it is not a setting of PgBouncer 1.25"),
        }
    }

    /// Databases of other servers and with other names, and what their entries set.
    fn note_entries(&mut self, server: &IniEntry) {
        let source = self.source;
        for entry in &source.databases {
            let of = format!("database {}: ", entry.name);
            if place(entry) != place(server) {
                let reason = "it is on another server: import it by --database, as another [[server]] or for another proxy";
                self.note(NoteKind::Lost, &format!("database {}", entry.name), reason);
                continue;
            }
            if let Some(name) = entry.get("dbname").filter(|name| *name != entry.name && entry.name != "*") {
                let what = format!("{of}dbname = {name}");
                self.note(NoteKind::ToDo, &what, "clients must name this database: names are not replaced");
            }
            for (name, value) in &entry.settings {
                self.note_one(OF_DATABASES, &of, name, value);
            }
        }
        for user in &source.users {
            for (name, value) in &user.settings {
                self.note_one(OF_USERS, &format!("user {}: ", user.name), name, value);
            }
        }
    }
}

/// A part of a URL.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            // Writing to a string cannot fail.
            other => drop(write!(encoded, "%{other:02X}")),
        }
    }
    encoded
}

/// Where the server of an entry is.
fn place(entry: &IniEntry) -> (Option<&str>, &str) {
    (entry.get("host"), entry.get("port").unwrap_or(DEFAULT_SERVER_PORT))
}

/// A number of connections or clients; 0 means no limit.
fn limit(value: Option<&str>, most: usize) -> Option<NonZeroUsize> {
    NonZeroUsize::new(value?.parse::<usize>().ok()?.min(most))
}
