//! libpq's other ways to name a server: keywords and values, and service files. Both become a URL, so that a run has one
//! form.

use crate::sql_url::{RawUrl, SqlUrlError, decode, encode, split_host};

/// Keywords and values, in order. A value may be a password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Conninfo(Vec<(String, String)>);

/// Why keywords and values cannot be used. Does not contain values, which may be parts of a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConninfoError {
    #[error("\"{0}\" is not followed by = and a value")]
    NoValue(String),
    #[error("the quote of {0} is not closed")]
    OpenQuote(String),
    #[error("{0} appears twice")]
    Twice(String),
    #[error("line {0} of the service is not KEYWORD=VALUE")]
    Line(usize),
    #[error("a service cannot name another service")]
    Nested,
}

const SERVICE: &str = "service";
const PASSWORD: &str = "password";

impl Conninfo {
    /// Parses `host=db.example dbname='my shop'`.
    pub fn parse(text: &str) -> Result<Self, ConninfoError> {
        let mut pairs = Self::default();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let end = rest.find(|c: char| c == '=' || c.is_ascii_whitespace()).unwrap_or(rest.len());
            let (name, behind) = rest.split_at(end);
            let value = behind.trim_start().strip_prefix('=').map(str::trim_start);
            let value = value.ok_or_else(|| ConninfoError::NoValue(name.to_owned()))?;
            let (value, behind) =
                take_value(value).ok_or_else(|| ConninfoError::OpenQuote(name.to_owned()))?;
            pairs.push(name, value)?;
            rest = behind.trim_start();
        }
        Ok(pairs)
    }

    /// The keywords of a URL without a password.
    pub fn of_url(text: &str) -> Result<Self, SqlUrlError> {
        let RawUrl { user, hosts, path, options, .. } = RawUrl::of(text)?;
        let database = path.strip_prefix('/').unwrap_or(path);
        let places = hosts.split(',').map(split_host).collect::<Result<Vec<_>, _>>()?;
        let list_of = |values: Vec<String>| {
            if values.iter().all(String::is_empty) { String::new() } else { values.join(",") }
        };
        let numbers = places.iter().map(|(_, number)| number.map(|number| number.to_string()));
        let port = list_of(numbers.map(Option::unwrap_or_default).collect());
        let host = list_of(places.into_iter().map(|(name, _)| name).collect());
        let named = [("user", decode(user, "user")?), ("host", host), ("port", port)];
        let named = named.into_iter().chain([("dbname", decode(database, "database")?)]);
        let mut pairs: Vec<(String, String)> = named
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) =
                option.split_once('=').ok_or_else(|| SqlUrlError::NoValue(option.to_owned()))?;
            pairs.push((decode(name, "option")?, decode(value, "option")?));
        }
        Ok(Self(pairs))
    }

    fn push(&mut self, name: &str, value: String) -> Result<(), ConninfoError> {
        if self.get(name).is_some() {
            return Err(ConninfoError::Twice(name.to_owned()));
        }
        self.0.push((name.to_owned(), value));
        Ok(())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(at).1)
    }

    pub fn take_service(&mut self) -> Option<String> {
        self.take(SERVICE)
    }

    pub fn take_password(&mut self) -> Option<String> {
        self.take(PASSWORD)
    }

    /// Adds what the file says of `service` and is not said yet. Returns whether the file has it.
    pub fn fill_in(&mut self, file: &str, service: &str) -> Result<bool, ConninfoError> {
        let (mut is_there, mut is_found) = (false, false);
        for (at, line) in file.lines().enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(section) = line.strip_prefix('[') {
                // Only the first section of the name counts.
                if is_there {
                    break;
                }
                is_there = section.strip_prefix(service).is_some_and(|rest| rest.starts_with(']'));
                is_found |= is_there;
            } else if is_there {
                let (name, value) = line.split_once('=').ok_or(ConninfoError::Line(at + 1))?;
                if name == SERVICE {
                    return Err(ConninfoError::Nested);
                }
                if self.get(name).is_none() {
                    self.0.push((name.to_owned(), value.to_owned()));
                }
            }
        }
        Ok(is_found)
    }

    /// The URL that means the same. Without a password: see [`Self::take_password`].
    pub fn to_url(mut self) -> String {
        let [user, host, port, database] = ["user", "host", "port", "dbname"].map(|name| self.take(name));
        // It saves the look-up of a name; without a name, it is the host.
        let host = match host.filter(|host| !host.is_empty()) {
            None => self.take("hostaddr"),
            host => host,
        };
        let mut url = format!("postgres://{}@", encode(&user.unwrap_or_default()));
        let is_simple = |host: &String| !host.contains(['/', ',']);
        match host {
            Some(host) if host.contains(':') && is_simple(&host) => url.push_str(&["[", &host, "]"].concat()),
            Some(host) if is_simple(&host) => url.push_str(&encode(&host)),
            Some(host) => self.0.insert(0, ("host".to_owned(), host)),
            None => {}
        }
        // A list is not part of the authority.
        let (list, port) = match port {
            Some(list) if list.contains(',') => (Some(list), None),
            port => (None, port),
        };
        self.0.extend(list.map(|list| ("port".to_owned(), list)));
        for (before, value) in [(':', port), ('/', database)] {
            let Some(text) = value.filter(|text| !text.is_empty()) else { continue };
            url.push(before);
            url.push_str(&encode(&text));
        }
        for (at, (name, value)) in self.0.iter().enumerate() {
            url.push(if at == 0 { '?' } else { '&' });
            url.push_str(&[&encode(name), "=", &encode(value)].concat());
        }
        url
    }
}

/// A value, quoted or not, and what is behind it. `None` if its quote is not closed.
fn take_value(text: &str) -> Option<(String, &str)> {
    let (is_quoted, text) = match text.strip_prefix('\'') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            '\'' if is_quoted => return Some((value, &text[at + 1..])),
            character if !is_quoted && character.is_ascii_whitespace() => return Some((value, &text[at..])),
            character => value.push(character),
        }
    }
    if is_quoted { None } else { Some((value, "")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Result<String, ConninfoError> {
        Conninfo::parse(text).map(Conninfo::to_url)
    }

    #[test]
    fn keywords_become_a_url() {
        for (text, expected) in [
            ("host=db.example user=app", "postgres://app@db.example"),
            (
                "host = db  port=6000 dbname='my \\'shop\\'' user=a\\ b",
                "postgres://a%20b@db:6000/my%20%27shop%27",
            ),
            ("host=/run/pg user=app port=5433", "postgres://app@:5433?host=%2Frun%2Fpg"),
            ("hostaddr=::1 user=app sslmode=disable", "postgres://app@[::1]?sslmode=disable"),
            ("host='' hostaddr=10.0.0.5 user=app", "postgres://app@10.0.0.5"),
            ("host=h1,h2 port=1,2 user=a", "postgres://a@?host=h1%2Ch2&port=1%2C2"),
            ("user=app options='-c a=b'", "postgres://app@?options=-c%20a%3Db"),
        ] {
            assert_eq!(url(text).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(url("host"), Err(ConninfoError::NoValue("host".to_owned())));
        assert_eq!(url("user='a"), Err(ConninfoError::OpenQuote("user".to_owned())));
        assert_eq!(url("user=a user=b"), Err(ConninfoError::Twice("user".to_owned())));
    }

    #[test]
    fn a_service_fills_in_what_is_not_said() {
        let file = "# ours\n[other]\nhost=x\n\n[shop]\nhost=db.example\n port=6000\ndbname=shop\npassword=p w\n[shop]\nuser=x\n";
        let mut pairs = Conninfo::of_url("postgres://app@:7000?sslmode=require&service=shop").unwrap();
        assert_eq!(pairs.take_service().as_deref(), Some("shop"));
        assert_eq!(pairs.fill_in(file, "shop"), Ok(true));
        assert_eq!(pairs.take_password().as_deref(), Some("p w"));
        assert_eq!(pairs.clone().to_url(), "postgres://app@db.example:7000/shop?sslmode=require");
        assert_eq!(pairs.fill_in(file, "sho"), Ok(false));
        assert_eq!(pairs.fill_in("[s]\nservice=x", "s"), Err(ConninfoError::Nested));
        assert_eq!(pairs.fill_in("[s]\nhost", "s"), Err(ConninfoError::Line(2)));
    }
}
