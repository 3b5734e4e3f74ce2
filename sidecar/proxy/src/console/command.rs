//! The grammar of the console, which is PgBouncer's: a word, an optional second word, an optional semicolon.

use crate::operations::Scope;

/// PgBouncer's limits, in bytes.
const MAX_COMMAND: usize = 15;
const MAX_ARGUMENT: usize = 63;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Show(Show),
    /// A setting that drivers read or set, with its only value.
    ShowParameter(&'static str, &'static str),
    /// A setting that drivers set. It has no effect.
    SetParameter,
    /// A setting of PgBouncer.
    Set,
    Pause(Scope),
    Resume(Scope),
    Reconnect(Scope),
    Disable(String),
    Enable(String),
    Kill(Scope),
    KillClient(u32),
    WaitClose(Scope),
    Suspend,
    Reload,
    Shutdown(ShutdownMode),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Show {
    Clients,
    Config,
    Databases,
    Fds,
    Help,
    Lists,
    Peers,
    PeerPools,
    Pools,
    Servers,
    Sockets,
    ActiveSockets,
    Stats,
    StatsTotals,
    StatsAverages,
    Users,
    Version,
    Totals,
    Mem,
    DnsHosts,
    DnsZones,
    State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShutdownMode {
    AtOnce,
    WaitForServers,
    WaitForClients,
}

const SHOWN: [(&str, Show); 22] = [
    ("clients", Show::Clients),
    ("config", Show::Config),
    ("databases", Show::Databases),
    ("fds", Show::Fds),
    ("help", Show::Help),
    ("lists", Show::Lists),
    ("peers", Show::Peers),
    ("peer_pools", Show::PeerPools),
    ("pools", Show::Pools),
    ("servers", Show::Servers),
    ("sockets", Show::Sockets),
    ("active_sockets", Show::ActiveSockets),
    ("stats", Show::Stats),
    ("stats_totals", Show::StatsTotals),
    ("stats_averages", Show::StatsAverages),
    ("users", Show::Users),
    ("version", Show::Version),
    ("totals", Show::Totals),
    ("mem", Show::Mem),
    ("dns_hosts", Show::DnsHosts),
    ("dns_zones", Show::DnsZones),
    ("state", Show::State),
];

/// What drivers ask for without need.
const PARAMETERS: [(&str, &str); 5] = [
    ("client_encoding", "UTF-8"),
    ("default_transaction_isolation", "read committed"),
    ("standard_conforming_strings", "on"),
    ("datestyle", "ISO"),
    ("timezone", "GMT"),
];

/// Why a text is not a command, in PgBouncer's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CommandError {
    #[error("invalid command '{0}', use SHOW HELP;")]
    Invalid(String),
    #[error("bad arguments")]
    BadArguments,
    #[error("a database is required")]
    NoDatabase,
    #[error("invalid client pointer supplied")]
    NoClient,
}

impl Command {
    pub(super) fn parse(text: &str) -> Result<Self, CommandError> {
        let invalid = || CommandError::Invalid(text.to_owned());
        let words = words(text).ok_or_else(invalid)?;
        match words.as_slice() {
            [command] => Self::of(command, "").ok_or_else(invalid)?,
            [command, argument] => Self::of(command, argument).ok_or_else(invalid)?,
            [set, key, is, _] if set.eq_ignore_ascii_case("set") && is_assignment(is) => {
                let is_parameter = PARAMETERS.iter().any(|(name, _)| key.eq_ignore_ascii_case(name));
                Ok(if is_parameter { Self::SetParameter } else { Self::Set })
            }
            _ => Err(invalid()),
        }
    }

    /// `None` if there is no such command.
    fn of(command: &str, argument: &str) -> Option<Result<Self, CommandError>> {
        if command.len() > MAX_COMMAND || argument.len() > MAX_ARGUMENT {
            return Some(Err(CommandError::BadArguments));
        }
        let scope = || match argument {
            "" => Scope::All,
            name => Scope::Database(name.to_owned()),
        };
        let database = || match argument {
            "" => Err(CommandError::NoDatabase),
            name => Ok(name.to_owned()),
        };
        Some(Ok(match command.to_ascii_lowercase().as_str() {
            "show" | "select" => return Self::show(argument).map(Ok),
            "pause" => Self::Pause(scope()),
            "resume" => Self::Resume(scope()),
            "reconnect" => Self::Reconnect(scope()),
            "disable" => return Some(database().map(Self::Disable)),
            "enable" => return Some(database().map(Self::Enable)),
            "kill" => Self::Kill(scope()),
            "kill_client" => {
                return Some(argument.parse().map(Self::KillClient).map_err(|_| CommandError::NoClient));
            }
            "wait_close" => Self::WaitClose(scope()),
            "suspend" if argument.is_empty() => Self::Suspend,
            "reload" if argument.is_empty() => Self::Reload,
            "shutdown" => Self::Shutdown(match argument.to_ascii_lowercase().as_str() {
                "" => ShutdownMode::AtOnce,
                "wait_for_servers" => ShutdownMode::WaitForServers,
                "wait_for_clients" => ShutdownMode::WaitForClients,
                _ => return None,
            }),
            _ => return None,
        }))
    }

    fn show(what: &str) -> Option<Self> {
        let parameter = PARAMETERS.iter().find(|(name, _)| what.eq_ignore_ascii_case(name));
        if let Some((name, value)) = parameter {
            return Some(Self::ShowParameter(name, value));
        }
        SHOWN.iter().find(|(name, _)| what.eq_ignore_ascii_case(name)).map(|(_, show)| Self::Show(*show))
    }

    /// Whether users with read access may use it.
    pub(super) fn only_shows(&self) -> bool {
        match self {
            Self::Show(Show::Fds) => false,
            Self::Show(_) | Self::ShowParameter(..) | Self::SetParameter => true,
            _ => false,
        }
    }

    /// The database that it names.
    pub(super) fn database(&self) -> Option<&str> {
        match self {
            Self::Pause(scope)
            | Self::Resume(scope)
            | Self::Reconnect(scope)
            | Self::Kill(scope)
            | Self::WaitClose(scope) => match scope {
                Scope::All => None,
                Scope::Database(name) => Some(name),
            },
            Self::Disable(name) | Self::Enable(name) => Some(name),
            _ => None,
        }
    }

    /// The tag of its answer.
    pub(super) fn tag(&self) -> &'static str {
        match self {
            Self::Show(_) | Self::ShowParameter(..) => "SHOW",
            Self::SetParameter | Self::Set => "SET",
            Self::Pause(_) => "PAUSE",
            Self::Resume(_) => "RESUME",
            Self::Reconnect(_) => "RECONNECT",
            Self::Disable(_) => "DISABLE",
            Self::Enable(_) => "ENABLE",
            Self::Kill(_) => "KILL",
            Self::KillClient(_) => "KILL_CLIENT",
            Self::WaitClose(_) => "WAIT_CLOSE",
            Self::Suspend => "SUSPEND",
            Self::Reload => "RELOAD",
            Self::Shutdown(_) => "SHUTDOWN",
        }
    }
}

fn is_assignment(word: &str) -> bool {
    word == "=" || word.eq_ignore_ascii_case("to")
}

/// The words of a text, without quotation marks; `None` if there is anything else.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = text.trim_matches(is_space);
    rest = rest.strip_suffix(';').unwrap_or(rest).trim_end_matches(is_space);
    while !rest.is_empty() {
        let (word, after) = match rest.as_bytes()[0] {
            quote @ (b'"' | b'\'') => quoted(rest, char::from(quote))?,
            b'=' => ("=".to_owned(), &rest[1..]),
            _ => {
                let end = rest.find(|at: char| !(at.is_ascii_alphanumeric() || at == '_'));
                let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
                (word.to_owned(), after)
            }
        };
        let next = after.trim_start_matches(is_space);
        let is_separate = next.len() < after.len() || next.is_empty() || word == "=" || next.starts_with('=');
        if word.is_empty() || !is_separate {
            return None;
        }
        words.push(word);
        rest = next;
    }
    Some(words).filter(|words| !words.is_empty())
}

fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r')
}

/// The text in quotation marks at the front, and what follows. Two quotation marks stand for one.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let (mut word, mut rest) = (String::new(), &text[1..]);
    loop {
        let end = rest.find(quote)?;
        word.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix(quote) {
            Some(more) => {
                word.push(quote);
                rest = more;
            }
            None => return Some((word, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Command {
        Command::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn database(name: &str) -> Scope {
        Scope::Database(name.to_owned())
    }

    #[test]
    fn commands_are_words_in_any_case_with_or_without_a_semicolon() {
        for text in
            ["SHOW POOLS", "show pools;", " \tShow\n pools ;\r\n", "SELECT pools", "\"show\" \"pools\""]
        {
            assert_eq!(parsed(text), Command::Show(Show::Pools), "{text}");
        }
        assert_eq!(parsed("PAUSE"), Command::Pause(Scope::All));
        assert_eq!(parsed("pause shop;"), Command::Pause(database("shop")));
        assert_eq!(parsed("RESUME \"a \"\"b\"\"-c\""), Command::Resume(database("a \"b\"-c")));
        assert_eq!(parsed("KILL_CLIENT 17"), Command::KillClient(17));
        assert_eq!(parsed("SHUTDOWN wait_for_SERVERS"), Command::Shutdown(ShutdownMode::WaitForServers));
        assert_eq!(parsed("SHOW TimeZone"), Command::ShowParameter("timezone", "GMT"));
        for text in ["SET datestyle = 'ISO, MDY'", "SET DateStyle to ISO", "set timezone='x'"] {
            assert_eq!(parsed(text), Command::SetParameter, "{text}");
        }
        assert_eq!(parsed("SET log_connections = 1;"), Command::Set);
    }

    #[test]
    fn anything_else_is_refused_in_pgbouncers_words() {
        for text in [
            "",
            ";",
            "SHOW",
            "SHOW nothing",
            "SHOW POOLS; SHOW LISTS",
            "SHOW POOLS;;",
            "BEGIN",
            "PAUSE a b",
            "PAUSE a-b",
            "PAUSE \"a",
            "PAUSE\"a\"",
            "RELOAD x",
            "SUSPEND x",
            "SHUTDOWN x",
            "SET a",
            "SET a = ",
            "ü",
            "SELECT 1",
            "pause 'x",
        ] {
            let message = Command::parse(text).unwrap_err().to_string();
            assert_eq!(message, format!("invalid command '{text}', use SHOW HELP;"));
        }
        assert_eq!(Command::parse("DISABLE"), Err(CommandError::NoDatabase));
        assert_eq!(Command::parse("KILL_CLIENT 0x12"), Err(CommandError::NoClient));
        let long = "x".repeat(MAX_ARGUMENT + 1);
        assert_eq!(Command::parse(&format!("PAUSE {long}")), Err(CommandError::BadArguments));
        assert_eq!(parsed(&format!("PAUSE {}", &long[1..])), Command::Pause(database(&long[1..])));
    }

    #[test]
    fn those_who_may_only_look_can_change_nothing() {
        for (text, only_shows) in [
            ("SHOW POOLS", true),
            ("SHOW FDS", false),
            ("SET datestyle = x", true),
            ("SET x = y", false),
            ("PAUSE", false),
            ("KILL_CLIENT 1", false),
            ("WAIT_CLOSE", false),
            ("RELOAD", false),
        ] {
            assert_eq!(parsed(text).only_shows(), only_shows, "{text}");
        }
    }
}
