//! What the environment asks for.

use std::path::PathBuf;
use std::time::Duration;

/// Sessions of each protocol.
const SESSIONS: &str = "CIPHERTOLL_DIFF_SESSIONS";
/// The seed of the first session; the others follow.
const SEED: &str = "CIPHERTOLL_DIFF_SEED";
/// `postgres`, `mariadb` or `mysql`, with commas.
const PROTOCOLS: &str = "CIPHERTOLL_DIFF_PROTOCOLS";
/// Routes whose names contain one of these, with commas: `session`, `transaction`, `tracked`.
const ROUTES: &str = "CIPHERTOLL_DIFF_ROUTES";
/// Parts of the grammar to leave out, with commas.
const WITHOUT: &str = "CIPHERTOLL_DIFF_WITHOUT";
/// How many different failures end the test.
const FAILURES: &str = "CIPHERTOLL_DIFF_FAILURES";
/// Another build of the proxy.
const PROXY: &str = "CIPHERTOLL_DIFF_PROXY";
/// Any value: print each step and answer.
const TRACE: &str = "CIPHERTOLL_DIFF_TRACE";

/// The same ones on every machine: a change never fails because of inputs that it did not introduce.
const DEFAULT_SESSIONS: u64 = 120;
const DEFAULT_TIME: Duration = Duration::from_secs(35);

pub(crate) const SHRINK_TRIES: usize = 150;
pub(crate) const SHRINK_TIME: Duration = Duration::from_mins(1);
/// How long the answers of a batch may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(4);
/// How long the server may take for the tests' own commands, on a machine that does much else.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(30);
/// How soon the next client must be served.
pub(crate) const SERVED: Duration = Duration::from_secs(2);

pub(crate) struct Options {
    pub(crate) sessions: u64,
    /// Sessions that are not asked for end at this time.
    pub(crate) time: Option<Duration>,
    pub(crate) seed: u64,
    protocols: Vec<String>,
    routes: Vec<String>,
    without: Vec<String>,
    pub(crate) failures: usize,
    pub(crate) proxy: PathBuf,
    pub(crate) trace: bool,
}

impl Options {
    pub(crate) fn read() -> Self {
        let number = |name: &str| Some(text(name)?.parse::<u64>().unwrap_or_else(|_| panic!("{name}")));
        let (sessions, seed) = (number(SESSIONS), number(SEED));
        Self {
            sessions: sessions.unwrap_or(if seed.is_some() { 1 } else { DEFAULT_SESSIONS }),
            time: (sessions.is_none()).then_some(DEFAULT_TIME),
            seed: seed.unwrap_or(1),
            protocols: list(PROTOCOLS),
            routes: list(ROUTES),
            without: list(WITHOUT),
            failures: number(FAILURES).unwrap_or(1) as usize,
            proxy: text(PROXY).unwrap_or_else(|| env!("CARGO_BIN_EXE_ciphertoll-proxy").to_owned()).into(),
            trace: text(TRACE).is_some(),
        }
    }

    pub(crate) fn has_protocol(&self, name: &str) -> bool {
        self.protocols.is_empty() || self.protocols.iter().any(|protocol| protocol == name)
    }

    pub(crate) fn has_route(&self, name: &str) -> bool {
        self.routes.is_empty() || self.routes.iter().any(|part| name.contains(part.as_str()))
    }

    pub(crate) fn has_feature(&self, name: &str) -> bool {
        !self.without.iter().any(|part| part == name)
    }
}

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn list(name: &str) -> Vec<String> {
    text(name).unwrap_or_default().split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect()
}
