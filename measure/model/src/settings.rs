//! Settings of private servers, by engine: `postgres.shared_buffers=1GB`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::factor::{Engine, LevelError, parse_engine};

const LONGEST_NAME_BYTES: usize = 64;
const LONGEST_VALUE_BYTES: usize = 256;

/// Settings of a `PostgreSQL` that the lab controls: its address, access, log; and those that include other files.
const POSTGRES_RESERVED: &[&str] = &[
    "bonjour",
    "bonjour_name",
    "config_file",
    "data_directory",
    "db_user_namespace",
    "event_source",
    "external_pid_file",
    "hba_file",
    "ident_file",
    "include",
    "include_dir",
    "include_if_exists",
    "krb_server_keyfile",
    // The lab parses the log.
    "lc_messages",
    "listen_addresses",
    "log_destination",
    "log_directory",
    "log_file_mode",
    "log_filename",
    "logging_collector",
    "max_connections",
    "password_encryption",
    "port",
];
/// Prefixes of such settings.
const POSTGRES_RESERVED_FAMILIES: &[&str] = &["ssl", "syslog_", "unix_socket_"];

/// The same for MariaDB and MySQL.
const SHARED_RESERVED: &[&str] = &[
    "basedir",
    "bind_address",
    "bootstrap",
    "chroot",
    "console",
    "daemonize",
    "datadir",
    "extra_max_connections",
    "extra_port",
    "help",
    "init_file",
    "innodb_data_file_path",
    "innodb_data_home_dir",
    "innodb_log_group_home_dir",
    "innodb_temp_data_file_path",
    "innodb_undo_directory",
    "lc_messages",
    "local_infile",
    "max_connections",
    "pid_file",
    "port",
    "require_secure_transport",
    "socket",
    "tmpdir",
    "user",
    "verbose",
    "version",
];
/// Prefixes of such settings. Statement logs would contain the accounts' passwords. The last line has prefixes that the
/// server accepts before any name, which would circumvent this list.
const SHARED_RESERVED_FAMILIES: &[&str] = &[
    "defaults_",
    "feedback",
    "general_log",
    "log_",
    "slow_query_log",
    "ssl",
    "tls_",
    "wsrep",
    "autoset_",
    "disable_",
    "enable_",
    "loose_",
    "maximum_",
    "skip_",
];
/// For MySQL only: additional interfaces, files, and generated keys.
const MYSQL_ONLY_RESERVED: &[&str] = &[
    "auto_generate_certs",
    "authentication_policy",
    "character_sets_dir",
    "default_authentication_plugin",
    "lc_messages_dir",
    "plugin_dir",
    "secure_file_priv",
];
const MYSQL_ONLY_RESERVED_FAMILIES: &[&str] =
    &["admin_", "caching_sha2_password_", "initialize", "mysqlx", "persist", "sha256_password_"];

/// A setting of an engine. Prints as on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    engine: Engine,
    name: String,
    value: String,
}

/// The configured settings, one value each. In TOML, a table for each engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "BTreeMap<String, BTreeMap<String, String>>")]
pub struct Settings(BTreeMap<Engine, BTreeMap<String, String>>);

type Written = BTreeMap<String, BTreeMap<String, SettingValue>>;

/// A TOML value. Servers read all of them as text.
#[derive(Deserialize)]
#[serde(untagged, expecting = "the value of a setting is text, a number, true or false")]
enum SettingValue {
    Switch(bool),
    Whole(i64),
    Number(f64),
    Text(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    #[error("write ENGINE.NAME=VALUE, such as postgres.shared_buffers=1GB")]
    Shape,
    #[error("{0}")]
    Engine(#[from] LevelError),
    #[error(
        "{0:?} cannot be a setting of {1}: a letter, then letters (all lower-case), digits, {2}, at most {max} bytes",
        max = LONGEST_NAME_BYTES
    )]
    Name(String, Engine, &'static str),
    #[error("the value of {0} is {1} bytes long; the maximum is {max}", max = LONGEST_VALUE_BYTES)]
    Long(String, usize),
    #[error("the value of {0} contains {1:?}, which the server's configuration cannot express")]
    Character(String, char),
    #[error("settings of {} are not supported yet", .0.display_name())]
    NoSettings(Engine),
    #[error("{0} is reserved: a private server's address, log, accounts and TLS depend on it")]
    Reserved(String),
}

impl Setting {
    /// Checks the format of name and value; whether the setting exists is for the server to check.
    pub fn new(engine: Engine, name: &str, value: &str) -> Result<Self, SettingError> {
        let (name, others) = match engine {
            // The server treats both alike.
            Engine::MariaDb | Engine::MySql => (name.replace('-', "_"), "_, . and -"),
            Engine::Postgres => (name.to_owned(), "_ and ."),
            Engine::MongoDb | Engine::FerretDb => return Err(SettingError::NoSettings(engine)),
        };
        if !is_name(&name) {
            return Err(SettingError::Name(shortened(&name), engine, others));
        }
        let full = format!("{engine}.{name}");
        if is_reserved(engine, &name) {
            return Err(SettingError::Reserved(full));
        }
        if value.len() > LONGEST_VALUE_BYTES {
            return Err(SettingError::Long(full, value.len()));
        }
        match value.chars().find(|&character| breaks_out(engine, character)) {
            Some(character) => Err(SettingError::Character(full, character)),
            None => Ok(Self { engine, name, value: value.to_owned() }),
        }
    }

    pub fn engine(&self) -> Engine {
        self.engine
    }
}

fn is_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.".contains(&byte);
    name.len() <= LONGEST_NAME_BYTES
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(inner)
}

fn shortened(name: &str) -> String {
    name.chars().take(LONGEST_NAME_BYTES).collect()
}

fn is_reserved(engine: Engine, name: &str) -> bool {
    // These servers accept abbreviated names.
    let hits = |reserved: &&str| reserved.starts_with(name);
    let is_of_family = |family: &&str| name.starts_with(family) || hits(family);
    let of_both = SHARED_RESERVED.iter().any(hits) || SHARED_RESERVED_FAMILIES.iter().any(is_of_family);
    match engine {
        Engine::MariaDb => of_both,
        Engine::MySql => {
            of_both
                || MYSQL_ONLY_RESERVED.iter().any(hits)
                || MYSQL_ONLY_RESERVED_FAMILIES.iter().any(is_of_family)
        }
        Engine::Postgres => {
            POSTGRES_RESERVED.contains(&name)
                || POSTGRES_RESERVED_FAMILIES.iter().any(|family| name.starts_with(family))
        }
        // They have no settings here.
        Engine::MongoDb | Engine::FerretDb => true,
    }
}

/// `PostgreSQL`'s configuration can escape quotes and backslashes; the others' cannot escape quotes.
fn breaks_out(engine: Engine, character: char) -> bool {
    character.is_control() || engine.is_mysql_family() && matches!(character, '\'' | '"' | '\\')
}

impl FromStr for Setting {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let (name, value) = text.split_once('=').ok_or(SettingError::Shape)?;
        let (engine, name) = name.split_once('.').ok_or(SettingError::Shape)?;
        Self::new(parse_engine(engine)?, name, value)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { engine, name, value } = self;
        write!(formatter, "{engine}.{name}={value}")
    }
}

impl Settings {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a setting, replacing an earlier value.
    pub fn set(&mut self, setting: Setting) {
        let Setting { engine, name, value } = setting;
        self.0.entry(engine).or_default().insert(name, value);
    }

    pub fn of(&self, engine: Engine) -> BTreeMap<String, String> {
        self.0.get(&engine).cloned().unwrap_or_default()
    }

    pub fn iter(&self) -> impl Iterator<Item = Setting> {
        self.0.iter().flat_map(|(&engine, settings)| {
            settings.iter().map(move |(name, value)| Setting {
                engine,
                name: name.clone(),
                value: value.clone(),
            })
        })
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.iter().map(|setting| setting.to_string()).collect();
        formatter.write_str(&all.join(", "))
    }
}

impl Extend<Setting> for Settings {
    fn extend<T: IntoIterator<Item = Setting>>(&mut self, settings: T) {
        settings.into_iter().for_each(|setting| self.set(setting));
    }
}

impl TryFrom<Written> for Settings {
    type Error = SettingError;

    fn try_from(written: Written) -> Result<Self, SettingError> {
        let mut settings = Self::default();
        for (engine, table) in written {
            let engine = parse_engine(&engine)?;
            for (name, value) in table {
                settings.set(Setting::new(engine, &name, &value.text())?);
            }
        }
        Ok(settings)
    }
}

impl From<Settings> for BTreeMap<String, BTreeMap<String, String>> {
    fn from(settings: Settings) -> Self {
        settings.0.into_iter().map(|(engine, settings)| (engine.label().to_owned(), settings)).collect()
    }
}

impl SettingValue {
    fn text(&self) -> String {
        match self {
            Self::Switch(on) => if *on { "on" } else { "off" }.to_owned(),
            Self::Whole(number) => number.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
