//! What a client asks for in its first message.

use ciphertoll_wire::postgres::Parameters;
use ciphertoll_wire::postgres::relay::ClientStatements;
use ciphertoll_wire::postgres::server::StartupMessage;

use crate::refusal::Refusal;

/// The setting that no value can be wrong for.
const NAME: &str = "application_name";
/// What a server keeps of a name, less one: longer ones are cut.
const MAX_NAME_BYTES: usize = 63;
/// Settings that a session may have set; more are state that is kept where it is.
const MAX_ACQUIRED: usize = 64;
/// The setting that says how all others are written.
const ENCODING: &str = "client_encoding";

/// Who a client is, and the settings that its session shall begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The role.
    pub user: String,
    /// The database; none where the client leaves that to others.
    pub database: Option<String>,
    /// Names and values; the encoding last.
    settings: Vec<(String, String)>,
    /// What the session has set since, which counts more.
    acquired: Vec<(String, String)>,
    /// What the session has prepared.
    pub(crate) statements: ClientStatements,
    /// What the client was last told of its session's settings: a digest.
    pub(crate) told: u64,
    /// What the client was told as its server process.
    pub(crate) process_id: Option<u32>,
}

impl Wanted {
    /// Reads what can be granted, or says what cannot.
    pub fn read(message: &StartupMessage<'_>) -> Result<Self, Refusal> {
        let (mut user, mut database, mut settings) = (None, None, Vec::new());
        for (name, value) in message.parameters() {
            let (name, value) = (text(name)?, text(value)?);
            match name.as_str() {
                "user" => user = Some(value),
                "database" => database = Some(value),
                "replication" => refuse_replication(&value)?,
                "options" => options(&value, &mut settings)?,
                // Options of the protocol, which were negotiated away.
                name if name.starts_with("_pq_.") => {}
                _ => settings.push((name, value)),
            }
        }
        let user = user.filter(|user| !user.is_empty());
        let user = user.ok_or_else(|| Refusal::new(Refusal::WHO, "no user was named"))?;
        settings.sort_by_key(|(name, _)| name.eq_ignore_ascii_case(ENCODING));
        let database = database.filter(|name| !name.is_empty());
        let (acquired, statements) = (Vec::new(), ClientStatements::default());
        Ok(Self { user, database, settings, acquired, statements, told: 0, process_id: None })
    }

    /// The settings that differ from those of a session; the encoding last.
    pub(crate) fn differing<'a>(&'a self, parameters: &Parameters) -> Vec<(&'a str, &'a str)> {
        let differs = |(name, value): &&(String, String)| {
            parameters.get(name.as_bytes()).is_none_or(|known| known != value.as_bytes())
        };
        let is_older = |(name, _): &&(String, String)| find(&self.acquired, name).is_none();
        let mut differing: Vec<_> =
            self.settings.iter().filter(is_older).chain(&self.acquired).filter(differs).collect();
        if !self.acquired.is_empty() {
            differing.sort_by_key(|(name, _)| name.eq_ignore_ascii_case(ENCODING));
        }
        differing.into_iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    /// The session has set something, which shall be so wherever it goes on.
    pub(crate) fn acquire(&mut self, name: &[u8], value: &[u8]) -> Result<(), Unportable> {
        // What others read before the encoding is set must be the same in all.
        let text = |bytes: &[u8]| {
            let text = String::from_utf8(bytes.to_vec()).ok().filter(|text| text.is_ascii());
            text.ok_or(Unportable)
        };
        let (name, value) = (text(name)?, text(value)?);
        self.acquired.retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
        if find(&self.settings, &name) != Some(value.as_str()) {
            self.acquired.push((name, value));
        }
        if self.acquired.len() > MAX_ACQUIRED { Err(Unportable) } else { Ok(()) }
    }

    /// The value that a setting should have.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        find(&self.acquired, name).or_else(|| find(&self.settings, name))
    }

    /// The session has given up what it had.
    pub(crate) fn give_up(&mut self) {
        self.acquired.clear();
    }
}

/// A setting that cannot be made elsewhere as it is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unportable;

fn find<'a>(settings: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = settings.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_str())
}

/// Whether a server is sure to take this setting, and as it is.
pub(crate) fn cannot_fail(name: &str, value: &str, parameters: &Parameters) -> bool {
    let plain = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    name.eq_ignore_ascii_case(NAME)
        && value.len() <= MAX_NAME_BYTES
        && value.bytes().all(plain)
        && parameters.get(NAME.as_bytes()).is_some()
}

fn text(bytes: &[u8]) -> Result<String, Refusal> {
    String::from_utf8(bytes.to_vec())
        .map_err(|_| Refusal::new(Refusal::PROTOCOL, "the start-up message has bytes that are not UTF-8"))
}

fn refuse_replication(value: &str) -> Result<(), Refusal> {
    if ["false", "off", "no", "0"].iter().any(|no| value.eq_ignore_ascii_case(no)) {
        return Ok(());
    }
    let message = "replication does not go through this proxy: connect to the server itself";
    Err(Refusal::new(Refusal::UNSUPPORTED, message))
}

/// The server's command line, as far as it sets settings: `-c name=value` and `--name=value`.
fn options(text: &str, settings: &mut Vec<(String, String)>) -> Result<(), Refusal> {
    let words = words(text);
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("--").or_else(|| word.strip_prefix("-c")) {
            Some("") if word == "-c" => words.next(),
            Some(setting) => Some(setting),
            None => None,
        };
        let Some((name, value)) = setting.and_then(|setting| setting.split_once('=')) else {
            let message =
                format!("of the start-up \"options\" only -c NAME=VALUE is supported, and not \"{word}\"");
            return Err(Refusal::new(Refusal::UNSUPPORTED, message));
        };
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(())
}

/// Words are parted by white space; a backslash takes the next character as it is.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => word.get_or_insert_default().extend(characters.next()),
            space if space.is_ascii_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use ciphertoll_wire::postgres::server::{Startup, read_startup};
    use ciphertoll_wire::postgres::startup::encode_startup;

    use super::*;

    fn wanted(parameters: &[(&str, &str)]) -> Result<Wanted, Refusal> {
        let mut bytes = Vec::new();
        encode_startup(&mut bytes, parameters).unwrap();
        match read_startup(&mut &bytes[..]).unwrap() {
            Some(Startup::Login(message)) => Wanted::read(&message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn settings_are_found_wherever_they_are() {
        let wanted = wanted(&[
            ("client_encoding", "UTF8"),
            ("user", "app"),
            ("options", r"-c search_path=a,\ b --statement-timeout=5 -cgeqo=off"),
            ("replication", "false"),
        ])
        .unwrap();
        assert_eq!((wanted.user.as_str(), wanted.database.as_deref()), ("app", None));
        let mut known = Parameters::default();
        let expected = [
            ("search_path", "a, b"),
            ("statement_timeout", "5"),
            ("geqo", "off"),
            ("client_encoding", "UTF8"),
        ];
        assert_eq!(wanted.differing(&known), expected);
        known.set(b"client_encoding", b"UTF8").unwrap();
        assert_eq!(wanted.differing(&known), expected[..3]);
    }

    #[test]
    fn what_cannot_be_granted_is_refused() {
        let state = |parameters: &[(&str, &str)]| wanted(parameters).unwrap_err().sqlstate;
        assert_eq!(state(&[("database", "x")]), Refusal::WHO);
        for mode in ["true", "database", "1", "anything"] {
            assert_eq!(state(&[("user", "a"), ("replication", mode)]), Refusal::UNSUPPORTED);
        }
        for text in ["-W 5", "x", "-c", "-c x", "--"] {
            assert_eq!(state(&[("user", "a"), ("options", text)]), Refusal::UNSUPPORTED, "{text}");
        }
    }

    #[test]
    fn only_a_plain_name_cannot_fail() {
        let mut known = Parameters::default();
        assert!(!cannot_fail("application_name", "psql", &known));
        known.set(b"application_name", b"").unwrap();
        assert!(cannot_fail("application_name", "psql 15", &known));
        assert!(!cannot_fail("application_name", &"x".repeat(64), &known));
        assert!(!cannot_fail("application_name", "naïve", &known));
        assert!(!cannot_fail("TimeZone", "UTC", &known));
    }
}
