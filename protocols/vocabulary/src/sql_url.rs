//! URLs of SQL servers, split into user, place, database and options. The rules are libpq's ("Connection URIs"), so that a
//! URL means the same to ciphertoll, to its sidecar, and to the server's own clients. Where libpq supports more, the URL is
//! refused.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

/// The options that are lists if a URL names several hosts.
const LISTS: [&str; 2] = ["host", "port"];

/// Servers whose URLs have the same options and the same default port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlFamily {
    Postgres,
    MySql,
}

/// A URL's parts, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlUrl {
    /// Empty if the URL names none.
    pub user: String,
    pub place: SqlPlace,
    /// `None` if the URL names none.
    pub database: Option<String>,
    /// The options that do not name the place, in order.
    pub options: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SqlPlace {
    Host {
        /// A name or an address, without brackets.
        host: String,
        port: u16,
    },
    /// The socket's file.
    Socket(PathBuf),
}

/// Why a URL cannot be used. Does not contain values of the URL, which may be parts of a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SqlUrlError {
    #[error("it has no ://")]
    NoScheme,
    #[error("it contains a control character")]
    Control,
    #[error("it contains a #, which URLs of servers do not support: in a name or a value it is written %23")]
    Fragment,
    #[error("a @, a : or a / in a user or a password is written %40, %3A or %2F")]
    Reserved,
    #[error("it contains a password")]
    Password,
    #[error("it names no host")]
    NoHost,
    #[error("it names several hosts, which is not supported: name one")]
    SeveralHosts,
    #[error("it names {hosts} hosts and {ports} ports: name one port, or one for each host")]
    HostsAndPorts { hosts: usize, ports: usize },
    #[error(
        "a host is a name, an address, an IPv6 address in brackets, or the path of a unix socket with %2F for each /"
    )]
    Host,
    #[error("a port is a number from 1 to 65535")]
    Port,
    #[error("a % in its {0} is not followed by two hexadecimal digits: a % itself is written %25")]
    Escape(&'static str),
    #[error("its {0} is not valid UTF-8 or contains a NUL")]
    NoText(&'static str),
    #[error("{0} appears twice")]
    Twice(&'static str),
    #[error("{0} is empty")]
    Empty(&'static str),
    #[error("the option \"{0}\" has no value")]
    NoValue(String),
}

impl SqlFamily {
    pub fn default_port(self) -> u16 {
        match self {
            Self::Postgres => 5432,
            Self::MySql => 3306,
        }
    }

    /// The option that names a unix socket: for PostgreSQL its directory, for MySQL its file.
    pub fn socket_option(self) -> &'static str {
        match self {
            Self::Postgres => "host",
            Self::MySql => "socket",
        }
    }

    fn has_port_option(self) -> bool {
        self == Self::Postgres
    }

    /// The socket's file, from the path that a URL names.
    fn socket(self, path: String, port: u16) -> SqlPlace {
        let path = PathBuf::from(path);
        SqlPlace::Socket(match self {
            Self::Postgres => path.join(format!(".s.PGSQL.{port}")),
            Self::MySql => path,
        })
    }
}

impl SqlUrl {
    /// The scheme, in lower case.
    pub fn scheme(text: &str) -> Result<String, SqlUrlError> {
        let (scheme, _) = text.split_once("://").ok_or(SqlUrlError::NoScheme)?;
        Ok(scheme.to_ascii_lowercase())
    }

    /// The URLs of the single hosts that `text` names, in its order: by commas in its authority or, as libpq permits, in
    /// the options `host` and `port`. One port is that of every host.
    pub fn of_each_host(text: &str, family: SqlFamily) -> Result<Vec<String>, SqlUrlError> {
        let RawUrl { before, hosts, path, options, .. } = RawUrl::of(text)?;
        let hosts: Vec<&str> = hosts.split(',').collect();
        let options: Vec<&str> = options.split('&').collect();
        let list = |option: &str| -> Result<Option<(&'static str, Vec<String>)>, SqlUrlError> {
            let Some((name, value)) = option.split_once('=').filter(|_| family == SqlFamily::Postgres) else {
                return Ok(None);
            };
            let Some(name) = LISTS.into_iter().find(|known| *known == name) else { return Ok(None) };
            let values = decode(value, name)?.split(',').map(str::to_owned).collect();
            Ok(Some((name, values)))
        };
        let lists = options.iter().map(|option| list(option)).collect::<Result<Vec<_>, _>>()?;
        let length =
            |name| lists.iter().flatten().find(|(own, _)| *own == name).map_or(1, |(_, all)| all.len());
        let [named, ports] = LISTS.map(length);
        let count = named.max(hosts.len());
        if count == 1 && ports == 1 {
            return Ok(vec![text.to_owned()]);
        }
        let fits = |length: usize| length == 1 || length == count;
        if !fits(named) || !fits(hosts.len()) {
            return Err(SqlUrlError::Twice("host"));
        }
        if !fits(ports) {
            return Err(SqlUrlError::HostsAndPorts { hosts: count, ports });
        }
        let url = |at: usize| {
            let options: Vec<String> = options
                .iter()
                .zip(&lists)
                .map(|(option, list)| match list {
                    Some((name, all)) => format!("{name}={}", encode(all.get(at).unwrap_or(&all[0]))),
                    None => (*option).to_owned(),
                })
                .collect();
            let options = options.join("&");
            let mark = if options.is_empty() { "" } else { "?" };
            format!("{before}{}{path}{mark}{options}", hosts.get(at).unwrap_or(&hosts[0]))
        };
        Ok((0..count).map(url).collect())
    }

    pub fn parse(text: &str, family: SqlFamily) -> Result<Self, SqlUrlError> {
        let RawUrl { user, hosts, path, options, .. } = RawUrl::of(text)?;
        let database = path.strip_prefix('/').unwrap_or(path);
        let mut place = PlaceOptions::default();
        let mut others = Vec::new();
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (decode(name, "option")?, decode(value, "option")?),
                None => return Err(SqlUrlError::NoValue(decode(option, "option")?)),
            };
            if let Some((name, value)) = place.take(family, name, value)? {
                others.push((name, value));
            }
        }
        let database = Some(decode(database, "database")?).filter(|name| !name.is_empty());
        let place = place.resolve(family, hosts)?;
        Ok(Self { user: decode(user, "user")?, place, database, options: others })
    }
}

/// A URL's parts before decoding.
pub(crate) struct RawUrl<'a> {
    /// Scheme and login, as they are in front of the hosts.
    before: &'a str,
    pub(crate) user: &'a str,
    pub(crate) hosts: &'a str,
    /// `/DATABASE`, or nothing.
    pub(crate) path: &'a str,
    pub(crate) options: &'a str,
}

impl<'a> RawUrl<'a> {
    pub(crate) fn of(text: &'a str) -> Result<Self, SqlUrlError> {
        let (_, rest) = text.split_once("://").ok_or(SqlUrlError::NoScheme)?;
        if text.contains(|character: char| character.is_control()) {
            return Err(SqlUrlError::Control);
        }
        let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (login, hosts),
            // The rest of a password with a reserved character would be taken for a database or an option, and printed.
            None if rest.contains('@') => return Err(SqlUrlError::Reserved),
            None => ("", authority),
        };
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        if !password.is_empty() {
            return Err(SqlUrlError::Password);
        }
        // To URL libraries it begins a fragment, to libpq it is a character like others: the two would use other databases.
        if text.contains('#') {
            return Err(SqlUrlError::Fragment);
        }
        let (path, options) = rest.split_once('?').unwrap_or((rest, ""));
        let before = &text[..text.len() - rest.len() - hosts.len()];
        Ok(Self { before, user, hosts, path, options })
    }
}

/// The options that name the place, before they are compared with the URL's host.
#[derive(Default)]
struct PlaceOptions {
    /// `host` or `socket`.
    socket: Option<String>,
    port: Option<u16>,
}

impl PlaceOptions {
    /// Returns an option that does not name the place.
    fn take(
        &mut self,
        family: SqlFamily,
        name: String,
        value: String,
    ) -> Result<Option<(String, String)>, SqlUrlError> {
        let socket = family.socket_option();
        if name == socket {
            if value.is_empty() {
                return Err(SqlUrlError::Empty(socket));
            }
            return put(&mut self.socket, value, socket).map(|()| None);
        }
        if name == "port" && family.has_port_option() {
            return put(&mut self.port, port(&value)?, "port").map(|()| None);
        }
        Ok(Some((name, value)))
    }

    fn resolve(self, family: SqlFamily, hosts: &str) -> Result<SqlPlace, SqlUrlError> {
        let (own, own_port) = split_host(hosts)?;
        let port = match (self.port, own_port) {
            (Some(_), Some(_)) => return Err(SqlUrlError::Twice("port")),
            (port, own) => port.or(own).unwrap_or_else(|| family.default_port()),
        };
        let is_path = |text: &str| text.starts_with('/');
        match self.socket {
            Some(_) if is_path(&own) => Err(SqlUrlError::Twice(family.socket_option())),
            // A path takes precedence over the URL's host, which many libraries require.
            Some(path) if is_path(&path) || family == SqlFamily::MySql => Ok(family.socket(path, port)),
            Some(_) if !own.is_empty() => Err(SqlUrlError::Twice(family.socket_option())),
            Some(host) => Ok(SqlPlace::Host { host: host_name(host)?, port }),
            None if own.is_empty() => Err(SqlUrlError::NoHost),
            None if is_path(&own) => Ok(family.socket(own, port)),
            None => Ok(SqlPlace::Host { host: host_name(own)?, port }),
        }
    }
}

fn put<T>(place: &mut Option<T>, value: T, option: &'static str) -> Result<(), SqlUrlError> {
    match place.replace(value) {
        Some(_) => Err(SqlUrlError::Twice(option)),
        None => Ok(()),
    }
}

/// The host, decoded, and the port.
pub(crate) fn split_host(text: &str) -> Result<(String, Option<u16>), SqlUrlError> {
    if text.contains(',') {
        return Err(SqlUrlError::SeveralHosts);
    }
    let (host, rest) = if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').ok_or(SqlUrlError::Host)?;
        address.parse::<Ipv6Addr>().map_err(|_| SqlUrlError::Host)?;
        (address.to_owned(), rest)
    } else {
        let (host, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
        (decode(host, "host")?, rest)
    };
    let digits = match rest.strip_prefix(':') {
        // An IPv6 address without brackets.
        Some(digits) if digits.contains(':') => return Err(SqlUrlError::Host),
        Some(digits) => digits,
        None if rest.is_empty() => "",
        None => return Err(SqlUrlError::Host),
    };
    Ok((host, if digits.is_empty() { None } else { Some(port(digits)?) }))
}

fn port(digits: &str) -> Result<u16, SqlUrlError> {
    if digits.contains(',') {
        return Err(SqlUrlError::SeveralHosts);
    }
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|port| is_number && *port != 0).ok_or(SqlUrlError::Port)
}

fn host_name(text: String) -> Result<String, SqlUrlError> {
    let is_in_names = |character: char| character.is_alphanumeric() || matches!(character, '-' | '_' | '.');
    if text.contains(',') {
        Err(SqlUrlError::SeveralHosts)
    } else if text.chars().all(is_in_names) || text.parse::<IpAddr>().is_ok() {
        Ok(text)
    } else {
        Err(SqlUrlError::Host)
    }
}

/// Escapes what is reserved in URLs.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.') {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Replaces `%` and two digits by their byte. A `+` is no space: it is one only in HTML forms.
pub(crate) fn decode(text: &str, what: &'static str) -> Result<String, SqlUrlError> {
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => match (digit(bytes.next()), digit(bytes.next())) {
                (Some(high), Some(low)) => high << 4 | low,
                _ => return Err(SqlUrlError::Escape(what)),
            },
            byte => byte,
        });
    }
    match String::from_utf8(decoded) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(SqlUrlError::NoText(what)),
    }
}

#[cfg(test)]
mod tests;
