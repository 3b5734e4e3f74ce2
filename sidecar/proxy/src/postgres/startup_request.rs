//! What a PostgreSQL client asks for in its startup message.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use ciphertoll_wire::postgres::relay::{
    ClientStatements, FirstMessage, first_command_bytes, first_message, has_answered_message,
};
use ciphertoll_wire::postgres::server::{
    Report, StartupMessage, write_error, write_negotiate_protocol_version, write_ready_for_query,
};
use ciphertoll_wire::postgres::startup::PROTOCOL_3_0;
use ciphertoll_wire::postgres::{Parameters, Severity, TransactionStatus};

use super::backend_state::{BackendState, is_fixed};
use super::found_users::ProvenLogin;
use super::replication::Replication;
use crate::console_rules::LoginProof;
use crate::protocol::{FirstInput, ProtocolRequest};
use crate::refusal::Refusal;
use crate::settings::ReplicationAccess;

/// The setting for which every value is valid.
const NAME: &str = "application_name";
/// Servers cut longer names.
const MAX_NAME_BYTES: usize = 63;
/// Settings recorded for a session; with more, the session is pinned.
const MAX_CHANGED: usize = 64;
/// The setting with which commands may wait for the transactions of others.
const DEFERRABLE: &str = "default_transaction_deferrable";
/// A value of this setting may name only a part of it.
const DATE_STYLE: &str = "DateStyle";
/// The setting that determines how all others are encoded.
const ENCODING: &str = "client_encoding";
/// The setting that may take away the right to set others.
const ROLE: &str = "role";
/// The setting that a server ignores in a login, if it is a user that the client may be.
const USER: &str = "session_authorization";
/// Settings that every role may set, except those that every server reports, which are not looked up here.
const FOR_ALL_ROLES: [&str; 14] = [
    ROLE,
    "search_path",
    "statement_timeout",
    "lock_timeout",
    "transaction_timeout",
    "idle_in_transaction_session_timeout",
    IDLE_TIMEOUT,
    "default_transaction_isolation",
    "default_transaction_read_only",
    "work_mem",
    "row_security",
    "client_min_messages",
    "extra_float_digits",
    "bytea_output",
];
/// Former names of settings, which servers accept.
const FORMER_NAMES: [(&str, &str); 2] = [("sort_mem", "work_mem"), ("vacuum_mem", "maintenance_work_mem")];
/// The time limits of the commands that set the others.
const TIMEOUTS: [&str; 2] = ["statement_timeout", "transaction_timeout"];
/// The time limit of a session without a command.
const IDLE_TIMEOUT: &str = "idle_session_timeout";

/// What a startup message asks for. Clients that send the same message share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupParameters {
    /// The message's bytes, to recognize equal ones.
    pub(super) message: Box<[u8]>,
    /// The answer to a protocol version or to protocol options that are not supported; otherwise empty.
    pub(crate) negotiation: Vec<u8>,
    pub user: String,
    pub database: Option<String>,
    /// `None` for a usual connection.
    pub(crate) replication: Option<Replication>,
    /// Names, each once, and values, in the order in which they are set.
    settings: Vec<(String, String)>,
}

/// User, database, and the settings of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupRequest {
    pub parameters: Arc<StartupParameters>,
    /// Settings that the session has changed since; they take precedence.
    changed: Vec<(String, String)>,
    implied: Implied,
    /// Whether the client's last connection lacks settings of the login, because of a `DISCARD ALL`.
    pub(crate) lacks_login_settings: bool,
    pub(crate) statements: ClientStatements,
    /// Digest of the settings that the proxy last sent to the client.
    pub(crate) sent_digest: u64,
    pub(crate) process_id: Option<u32>,
    pub(super) proof: LoginProof,
    /// Of a user whom the settings do not name.
    pub(crate) proven: Option<ProvenLogin>,
}

/// What the settings of a session imply for its connection: read in each transaction, and changed rarely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Implied {
    ends_with_client: Option<&'static str>,
    has_short_timeout: bool,
    uses_temporary_schema: bool,
    custom_settings: u64,
}

impl StartupParameters {
    /// Reads the startup message; fails if the client asks for something that the proxy cannot grant.
    pub fn read(message: &StartupMessage<'_>) -> Result<Self, Refusal> {
        Self::read_as(message, ReplicationAccess::Refused)
    }

    /// The same, if the settings may allow replication.
    pub(crate) fn read_as(message: &StartupMessage<'_>, access: ReplicationAccess) -> Result<Self, Refusal> {
        let mut replication = None;
        let (mut user, mut database, mut in_options, mut settings) = (None, None, String::new(), Vec::new());
        for (name, value) in message.parameters() {
            let name = text(name)?;
            let value = if name.eq_ignore_ascii_case(NAME) { client_name(value) } else { text(value)? };
            match name.as_str() {
                "user" => user = Some(value),
                "database" => database = Some(value),
                "replication" => replication = Replication::requested(&value, access)?,
                "options" => in_options = value,
                // Protocol options, which were negotiated away.
                name if name.starts_with("_pq_.") => {}
                _ => settings.push((present_name(name), value)),
            }
        }
        let user = user.filter(|user| !user.is_empty());
        let user = user.ok_or_else(|| Refusal::new(Refusal::WHO, "the startup message names no user"))?;
        // The server reads the options first.
        let mut settings = last_values(options(&in_options)?.into_iter().chain(settings).collect());
        settings.retain(|(name, _)| !name.eq_ignore_ascii_case(USER));
        settings.sort_by_key(|(name, _)| place(name));
        if let Some((name, _)) = settings.iter().find(|(name, _)| replication.is_some() && is_reserved(name))
        {
            // They are parameters of the startup message, where a later one would replace ours.
            let message = format!("unrecognized configuration parameter \"{name}\"");
            return Err(Refusal::new(Refusal::NO_PARAMETER, message));
        }
        let database = database.filter(|name| !name.is_empty());
        Ok(Self {
            message: message.bytes.into(),
            negotiation: negotiation(message),
            user,
            database,
            replication,
            settings,
        })
    }

    /// The parameters of the startup message of a connection for this client only.
    pub(crate) fn dedicated(&self) -> Vec<(String, String)> {
        let mode = self.replication.map(|mode| ("replication".to_owned(), mode.value().to_owned()));
        mode.into_iter().chain(self.settings.iter().cloned()).collect()
    }
}

impl StartupRequest {
    pub fn new(parameters: Arc<StartupParameters>) -> Box<Self> {
        let (changed, statements) = (Vec::new(), ClientStatements::default());
        let (lacks_login_settings, sent_digest, process_id) = (false, 0, None);
        let implied = Implied::default();
        let mut request = Box::new(Self {
            parameters,
            changed,
            implied,
            lacks_login_settings,
            statements,
            sent_digest,
            process_id,
            proof: LoginProof::Authentication,
            proven: None,
        });
        request.settings_changed();
        request
    }

    fn settings_changed(&mut self) {
        self.implied = Implied {
            ends_with_client: self.binding_setting(),
            has_short_timeout: self.sets_short_timeout(),
            uses_temporary_schema: self.names_temporary_schema(),
            custom_settings: self.digest_of_custom_settings(),
        };
    }

    /// Why its connection cannot be handed on, whatever the client sends.
    pub(crate) fn ends_with_client(&self) -> Option<&'static str> {
        self.implied.ends_with_client
    }

    /// Whether it may have a time limit for commands of less than a second, or has any for an idle session. With the
    /// latter, the server could end the connection before the next client's reset.
    pub(crate) fn has_short_timeout(&self) -> bool {
        self.implied.has_short_timeout
    }

    /// Whether its search path has the schema of temporary tables.
    pub(crate) fn uses_temporary_schema(&self) -> bool {
        self.implied.uses_temporary_schema
    }

    /// Identifies the custom settings that exist in the client's session; 0 if there are none. They exist until the
    /// session ends.
    pub(crate) fn custom_settings(&self) -> u64 {
        self.implied.custom_settings
    }

    /// The settings that differ from `parameters`, in the order in which they are set.
    pub(crate) fn differing<'a>(&'a self, parameters: &Parameters) -> Vec<(&'a str, &'a str)> {
        let mut differing = Vec::new();
        let mut add = |(name, value): &'a (String, String)| {
            if parameters.get(name.as_bytes()) != Some(value.as_bytes()) {
                differing.push((name.as_str(), value.as_str()));
            }
        };
        if self.changed.is_empty() {
            self.parameters.settings.iter().for_each(add);
            return differing;
        }
        let is_older = |(name, _): &&(String, String)| find(&self.changed, name).is_none();
        self.parameters.settings.iter().filter(is_older).chain(&self.changed).for_each(&mut add);
        differing.sort_by_key(|(name, _)| place(name));
        differing
    }

    /// The settings that turn a connection on which reported settings have changed into one that was reset and then
    /// given this client's settings; `None` if a value cannot be set.
    pub(crate) fn restoring(&self, backend: &BackendState) -> Option<Vec<(String, String)>> {
        let mut settings = owned(self.differing(&backend.parameters));
        for (name, value) in backend.parameters.changed_from(&backend.base) {
            let name = std::str::from_utf8(name).ok()?;
            if is_fixed(name.as_bytes()) || self.value(name).is_some() {
                continue;
            }
            settings.push((name.to_owned(), String::from_utf8(value.to_vec()).ok()?));
        }
        settings.sort_by_key(|(name, _)| place(name));
        Some(settings)
    }

    /// The server has accepted the settings of the login. They get the values that it reports: in its spelling, and with the
    /// parts of a `DateStyle` that the login leaves to the server.
    pub(crate) fn confirm_login(&mut self, reported: &Parameters) {
        let confirmed = |(name, value): &(String, String)| {
            let reported = std::str::from_utf8(reported.get(name.as_bytes())?).ok()?;
            let is_other = reported != value && reported.is_ascii() && find(&self.changed, name).is_none();
            is_other.then(|| (name.clone(), reported.to_owned()))
        };
        let settings = &self.parameters.settings;
        if settings.iter().any(|setting| confirmed(setting).is_some()) {
            let confirmed =
                |setting: &(String, String)| confirmed(setting).unwrap_or_else(|| setting.clone());
            let settings = settings.iter().map(confirmed).collect();
            self.parameters = Arc::new(StartupParameters { settings, ..(*self.parameters).clone() });
            self.settings_changed();
        }
    }

    pub(crate) fn record_setting(&mut self, name: &[u8], value: &[u8]) -> Result<(), Unportable> {
        // Values are replayed before the encoding is set, so they must be the same in every encoding.
        let text = |bytes: &[u8]| {
            let text = String::from_utf8(bytes.to_vec()).ok().filter(|text| text.is_ascii());
            text.ok_or(Unportable)
        };
        let (name, value) = (present_name(text(name)?), text(value)?);
        self.changed.retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
        if find(&self.parameters.settings, &name) != Some(value.as_str()) {
            self.changed.push((name, value));
        }
        self.settings_changed();
        if self.changed.len() > MAX_CHANGED { Err(Unportable) } else { Ok(()) }
    }

    /// Whether setting all of these again may need the rights of another role than the login's: the session has a role, or one
    /// of them is the role.
    pub(crate) fn may_need_role(&self, names: &[Vec<u8>]) -> bool {
        let is_role = |name: &Vec<u8>| name.eq_ignore_ascii_case(ROLE.as_bytes());
        let is_for_all =
            |name: &Vec<u8>| FOR_ALL_ROLES.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
        let has_role = || self.value(ROLE).is_some_and(|role| role != "none") || names.iter().any(is_role);
        !names.iter().all(is_for_all) && has_role()
    }

    fn binding_setting(&self) -> Option<&'static str> {
        // Also a reset waits for the transactions of others then, if they are also serializable and read-only by default.
        let is_deferrable = || self.value(DEFERRABLE).is_some_and(|value| value != "off");
        self.value("seed").map(|_| "a seed").or_else(|| is_deferrable().then_some(DEFERRABLE))
    }

    fn sets_short_timeout(&self) -> bool {
        let may_end_when_idle =
            self.value(IDLE_TIMEOUT).is_some_and(|value| !matches!(value.trim(), "" | "0" | "0ms"));
        may_end_when_idle || TIMEOUTS.iter().filter_map(|name| self.value(name)).any(may_be_short)
    }

    fn names_temporary_schema(&self) -> bool {
        self.value("search_path").is_some_and(|path| path.to_ascii_lowercase().contains("pg_temp"))
    }

    fn digest_of_custom_settings(&self) -> u64 {
        let settings = self.parameters.settings.iter().chain(&self.changed);
        let mut custom = settings.filter(|(name, _)| is_custom(name)).peekable();
        if custom.peek().is_none() {
            return 0;
        }
        let names: BTreeSet<String> = custom.map(|(name, _)| name.to_ascii_lowercase()).collect();
        let mut hasher = DefaultHasher::new();
        names.hash(&mut hasher);
        hasher.finish().max(1)
    }

    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        find(&self.changed, name).or_else(|| find(&self.parameters.settings, name))
    }

    /// After a `DISCARD ALL`. Returns the names of custom settings: they exist ever after.
    pub(crate) fn clear_settings(&mut self) -> Vec<Vec<u8>> {
        let cleared = std::mem::take(&mut self.changed).into_iter();
        self.settings_changed();
        cleared.filter(|(name, _)| is_custom(name)).map(|(name, _)| name.into_bytes()).collect()
    }
}

impl ProtocolRequest for Box<StartupRequest> {
    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        refusal.write(out);
    }

    fn has_command(&self, input: &[u8]) -> bool {
        has_answered_message(input)
    }

    fn first_input(&self, input: &[u8]) -> FirstInput {
        if input.starts_with(b"X") {
            return FirstInput::Terminate;
        }
        match first_message(input) {
            FirstMessage::Incomplete => FirstInput::Incomplete,
            FirstMessage::Ignored(bytes) => FirstInput::Ignored(bytes),
            FirstMessage::Command => FirstInput::Command,
        }
    }

    fn application_name(&self) -> Option<String> {
        self.value(NAME).map(ToOwned::to_owned)
    }

    fn cancel_command(&self, input: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let bytes = first_command_bytes(input)?;
        let report = Report {
            severity: Severity::Error,
            sqlstate: *b"57014",
            message: b"canceling statement due to user request, while it waited for a server connection",
        };
        write_error(out, &report).ok()?;
        write_ready_for_query(out, TransactionStatus::Idle);
        Some(bytes)
    }
}

pub(crate) fn owned(settings: Vec<(&str, &str)>) -> Vec<(String, String)> {
    settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

pub(crate) fn pairs(settings: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    settings.iter().map(|(name, value)| (name.as_str(), value.as_str()))
}

/// A setting that cannot be set on another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unportable;

fn find<'a>(settings: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = settings.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_str())
}

/// Whether this setting is a time limit of commands.
pub(crate) fn limits_commands(name: &[u8]) -> bool {
    TIMEOUTS.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// Whether a time limit may be shorter than a second: also one that is not written as an integer with or without a unit.
fn may_be_short(limit: &str) -> bool {
    let limit = limit.trim();
    let unit = limit.trim_start_matches(|digit: char| digit.is_ascii_digit());
    let number = &limit[..limit.len() - unit.len()];
    match (number, unit.trim_start()) {
        // No limit, and none at all.
        ("0", "" | "ms" | "s" | "min" | "h" | "d") | ("", "") => false,
        // It may be octal.
        (number, _) if number.starts_with('0') => true,
        (number, "" | "ms") => number.len() <= 3,
        (number, "s" | "min" | "h" | "d") => number.is_empty(),
        _ => true,
    }
}

/// The place of a setting among all that are set together: within one place, the client's order is kept.
fn place(name: &str) -> u8 {
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    match name {
        _ if is(ROLE) => 1,
        // The values of all others are read before, those of the last are digits and units.
        _ if is(ENCODING) => 2,
        _ if TIMEOUTS.into_iter().any(is) => 3,
        _ => 0,
    }
}

/// Whether a setting exists only since it was set.
fn is_custom(name: &str) -> bool {
    name.contains('.')
}

/// Whether the server is certain to accept this setting unchanged.
pub(crate) fn cannot_fail(name: &str, value: &str, parameters: &Parameters) -> bool {
    let plain = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    name.eq_ignore_ascii_case(NAME)
        && value.len() <= MAX_NAME_BYTES
        && value.bytes().all(plain)
        && parameters.get(NAME.as_bytes()).is_some()
}

fn negotiation(message: &StartupMessage<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let names = message.parameters().map(|(name, _)| name);
    let unknown: Vec<&[u8]> = names.filter(|name| name.starts_with(b"_pq_.")).collect();
    if message.version > PROTOCOL_3_0 || !unknown.is_empty() {
        // Fails only for more than a gigabyte of options.
        let _ = write_negotiate_protocol_version(&mut out, PROTOCOL_3_0, &unknown);
    }
    out
}

fn text(bytes: &[u8]) -> Result<String, Refusal> {
    String::from_utf8(bytes.to_vec())
        .map_err(|_| Refusal::new(Refusal::PROTOCOL, "the startup message is not valid UTF-8"))
}

/// Whether this names a parameter of the startup message that is not a setting.
fn is_reserved(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    matches!(name.as_str(), "user" | "database" | "replication" | "options") || name.starts_with("_pq_.")
}

/// The name of an application. Servers accept any bytes, and put `?` for bytes that are not ASCII.
fn client_name(bytes: &[u8]) -> String {
    let replaced = |byte: &u8| if byte.is_ascii() { char::from(*byte) } else { '?' };
    String::from_utf8(bytes.to_vec()).unwrap_or_else(|_| bytes.iter().map(replaced).collect())
}

/// The settings in the startup parameter `options`: `-c name=value` and `--name=value`.
fn options(text: &str) -> Result<Vec<(String, String)>, Refusal> {
    let mut settings = Vec::new();
    let words = words(text);
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("--").or_else(|| word.strip_prefix("-c")) {
            Some("") if word == "-c" => words.next(),
            Some(setting) => Some(setting),
            None => None,
        };
        let pair = setting.and_then(|setting| setting.split_once('=')).filter(|(name, _)| !name.is_empty());
        let Some((name, value)) = pair else {
            let message = format!(
                "unsupported startup option \"{word}\": only -c NAME=VALUE and --NAME=VALUE are supported"
            );
            return Err(Refusal::new(Refusal::UNSUPPORTED, message));
        };
        settings.push((present_name(name.replace('-', "_")), value.to_owned()));
    }
    Ok(settings)
}

/// The name by which the server knows a setting.
fn present_name(name: String) -> String {
    let known = FORMER_NAMES.iter().find(|(former, _)| name.eq_ignore_ascii_case(former));
    known.map_or(name, |(_, present)| (*present).to_owned())
}

/// Of settings that are given more than once, the last, as on the server.
fn last_values(settings: Vec<(String, String)>) -> Vec<(String, String)> {
    let mut date_styles = Vec::new();
    let mut names = HashSet::new();
    let mut last: Vec<_> = settings
        .into_iter()
        .rev()
        .inspect(|(name, value)| {
            if name.eq_ignore_ascii_case(DATE_STYLE) {
                date_styles.push(value.clone());
            }
        })
        .filter(|(name, _)| names.insert(name.to_ascii_lowercase()))
        .collect();
    if date_styles.len() > 1
        && let Some((_, value)) = last.iter_mut().find(|(name, _)| name.eq_ignore_ascii_case(DATE_STYLE))
    {
        *value = date_style(&date_styles);
    }
    last.reverse();
    last
}

/// The value of `DateStyle` after all of these, the latest first: one that names only an output style keeps the order of
/// day, month and year that was set before, and the reverse. See `check_datestyle` of PostgreSQL.
fn date_style(latest_first: &[String]) -> String {
    let (mut style, mut order) = (None, None);
    for value in latest_first {
        let (mut own_style, mut own_order) = (None, None);
        for word in value.split(',').map(str::trim) {
            match word.to_ascii_lowercase().as_str() {
                "iso" | "sql" | "german" => own_style = Some(word),
                lower if lower.starts_with("postgres") => own_style = Some(word),
                "ymd" | "dmy" | "mdy" | "us" => own_order = Some(word),
                lower if lower.starts_with("euro") || lower.starts_with("noneuro") => own_order = Some(word),
                // The default, or what the server refuses.
                _ => return latest_first[0].clone(),
            }
        }
        let is_german = own_style.is_some_and(|style| style.eq_ignore_ascii_case("german"));
        order = order.or(own_order).or(is_german.then_some("DMY"));
        style = style.or(own_style);
    }
    style.into_iter().chain(order).collect::<Vec<_>>().join(", ")
}

/// White space separates words; a backslash escapes the next character.
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
