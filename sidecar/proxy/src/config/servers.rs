//! Configuration files of one server or of several. Each `[[server]]` is a separate configuration; the top
//! level of the file has its defaults.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use serde::Deserialize;
use toml::{Table, Value};

use super::sections::LogSection;
use super::{Config, ConfigError, Resolved, suggest_key};
use crate::log::Log;
use crate::settings::ListenAddress;

/// Far larger than any configuration.
const MAX_FILE_BYTES: u64 = 1 << 20;
pub(super) const SERVER: &str = "server";
/// Keys that apply to the whole process.
pub(super) const OF_THE_PROCESS: [&str; 2] = ["admin", "log"];
/// The key whose value must differ between servers.
const OF_A_SERVER: &str = "listen";

/// The name of a `[[server]]`, in the log, the status and the metrics.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerName(String);

impl ServerName {
    const MAX_BYTES: usize = 63;

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ServerName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !name.is_empty() && name.len() <= Self::MAX_BYTES && name.bytes().all(is_plain) {
            return Ok(Self(name.to_owned()));
        }
        Err(format!(
            "the name of a server has 1 to {} letters, digits, \".\", \"_\" or \"-\"",
            Self::MAX_BYTES
        ))
    }
}

/// A configuration file, or the flags in place of one.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigFile {
    pub admin: Option<ListenAddress>,
    pub log: LogSection,
    /// At least one. The only server of a file without `[[server]]` has no name.
    pub servers: Vec<(Option<ServerName>, Config)>,
}

/// The servers of a configuration after defaults and checks.
pub struct ResolvedServers {
    pub admin: Option<ListenAddress>,
    pub log: Log,
    /// At least one.
    pub servers: Vec<ResolvedServer>,
}

pub struct ResolvedServer {
    pub name: Option<ServerName>,
    pub resolved: Resolved,
}

impl From<Config> for ConfigFile {
    fn from(config: Config) -> Self {
        Self { admin: config.admin.clone(), log: config.log.clone(), servers: vec![(None, config)] }
    }
}

impl ConfigFile {
    /// Reads a file. Relative paths of password files start at its directory.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
        let wrong = |reason| ConfigError::File { path: path.to_owned(), reason };
        let mut text = String::new();
        let file = File::open(path).map_err(unreadable)?;
        file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > MAX_FILE_BYTES {
            return Err(wrong(format!("the file is longer than {MAX_FILE_BYTES} bytes")));
        }
        let mut file = Self::from_toml(&text).map_err(wrong)?;
        let directory = path.parent().unwrap_or(Path::new(""));
        for (_, config) in &mut file.servers {
            config.start_paths_at(directory);
        }
        Ok(file)
    }

    /// Whether it has `[[server]]`.
    pub fn has_names(&self) -> bool {
        self.servers.iter().any(|(name, _)| name.is_some())
    }

    /// Parses TOML. An error is one line.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        match text.parse::<Table>() {
            Ok(mut table) if table.get(SERVER).is_some_and(Value::is_array) => {
                let servers = table.remove(SERVER);
                several(table, servers.as_ref().and_then(Value::as_array).map_or(&[], Vec::as_slice))
            }
            // An error of the syntax is found again, with its line.
            _ => Config::from_toml(text).map(Into::into),
        }
    }

    /// Applies defaults and checks all settings, as [`Config::resolve`] does.
    pub fn resolve(self) -> Result<ResolvedServers, ConfigError> {
        let mut servers: Vec<ResolvedServer> = Vec::new();
        let mut log = None;
        let variables = self.servers.iter().flat_map(|(_, config)| &config.user);
        let hidden: Vec<String> = variables.filter_map(|user| user.password_env.clone()).collect();
        for (name, config) in self.servers {
            // The settings of the whole process are checked with each server.
            let (admin, log_section) = (self.admin.clone(), self.log.clone());
            let config = Config { admin, log: log_section, hidden: hidden.clone(), ..config };
            let resolved = config.resolve().map_err(|error| of_server(name.as_ref(), error))?;
            let is_taken = |address: &&ListenAddress| {
                !address.is_any_port()
                    && (self.admin.as_ref() == Some(address)
                        || servers.iter().any(|other| other.resolved.settings.listen.contains(address)))
            };
            if let Some(twice) = resolved.settings.listen.iter().find(is_taken) {
                return Err(ConfigError::TwoListeners(twice.clone()));
            }
            log.get_or_insert(resolved.log);
            servers.push(ResolvedServer { name, resolved });
        }
        let log = log.ok_or(ConfigError::Missing(SERVER))?;
        Ok(ResolvedServers { admin: self.admin, log, servers })
    }
}

impl ResolvedServer {
    /// The log for events of this server.
    pub fn log(&self, log: Log) -> Log {
        self.name.as_ref().map_or(log, |name| log.of_server(name.as_str()))
    }
}

impl ResolvedServers {
    /// The configuration with all defaults filled in.
    pub fn effective_toml(&self) -> String {
        if let [ResolvedServer { name: None, resolved }] = self.servers.as_slice() {
            return resolved.effective.to_toml();
        }
        let mut file = Table::new();
        let mut tables = Vec::new();
        for ResolvedServer { name, resolved } in &self.servers {
            // A configuration is a table.
            let Ok(Value::Table(mut table)) = Value::try_from(&resolved.effective) else { continue };
            for key in OF_THE_PROCESS {
                if let Some(value) = table.remove(key) {
                    file.insert(key.to_owned(), value);
                }
            }
            let url = table.remove(SERVER);
            table.extend(url.map(|url| ("url".to_owned(), url)));
            table.extend(name.iter().map(|name| ("name".to_owned(), name.as_str().into())));
            tables.push(Value::Table(table));
        }
        file.insert(SERVER.to_owned(), Value::Array(tables));
        toml::to_string(&file).unwrap_or_default()
    }
}

fn of_server(name: Option<&ServerName>, error: ConfigError) -> ConfigError {
    match name {
        Some(name) => ConfigError::OfServer { name: name.as_str().to_owned(), source: Box::new(error) },
        None => error,
    }
}

/// The servers of a file whose top level is `defaults`.
fn several(mut defaults: Table, servers: &[Value]) -> Result<ConfigFile, String> {
    if defaults.contains_key(OF_A_SERVER) {
        return Err(format!("\"{OF_A_SERVER}\" belongs into each [[server]]"));
    }
    let process: Table = OF_THE_PROCESS.iter().filter_map(|key| defaults.remove_entry(*key)).collect();
    let Config { admin, log, .. } = parse(process)?;
    // Without a server, the defaults are checked all the same.
    parse(defaults.clone())?;
    let mut named: Vec<(Option<ServerName>, Config)> = Vec::new();
    for server in servers {
        let Value::Table(own) = server else { return Err("[[server]] is a table".to_owned()) };
        let mut own = own.clone();
        let name = match own.remove("name") {
            Some(Value::String(name)) => name.parse::<ServerName>()?,
            _ => return Err("each [[server]] needs a \"name\"".to_owned()),
        };
        let of_it = |reason: String| format!("server \"{}\": {reason}", name.as_str());
        if let Some(key) = OF_THE_PROCESS.into_iter().find(|key| own.contains_key(*key)) {
            return Err(of_it(format!("\"{key}\" belongs to the top level of the file")));
        }
        if own.contains_key(SERVER) {
            return Err(of_it("unknown key \"server\": did you mean \"url\"?".to_owned()));
        }
        let url = own.remove("url").ok_or_else(|| of_it("it needs a \"url\"".to_owned()))?;
        own.insert(SERVER.to_owned(), url);
        let config = parse(merged(defaults.clone(), own)).map_err(of_it)?;
        if named.iter().any(|(other, _)| other.as_ref() == Some(&name)) {
            return Err(format!("there are two servers \"{}\"", name.as_str()));
        }
        named.push((Some(name), config));
    }
    let of_process = |(name, config)| (name, Config { admin: admin.clone(), log: log.clone(), ..config });
    let servers = named.into_iter().map(of_process).collect();
    Ok(ConfigFile { admin, log, servers })
}

fn parse(table: Table) -> Result<Config, String> {
    Config::deserialize(table)
        .map_err(|error| suggest_key(error.message()).unwrap_or_else(|| error.message().replace('\n', " ")))
}

/// A server's own keys take precedence, also within the tables.
fn merged(mut defaults: Table, own: Table) -> Table {
    for (key, value) in own {
        match (defaults.get_mut(&key), value) {
            (Some(Value::Table(default)), Value::Table(value)) => default.extend(value),
            (_, value) => {
                defaults.insert(key, value);
            }
        }
    }
    defaults
}

#[cfg(test)]
mod tests;
