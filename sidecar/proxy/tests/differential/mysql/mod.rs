//! Sessions of the protocol of MySQL and MariaDB.

mod answer;
mod bench;
mod command;
mod connection;
mod direct;
mod grammar;
mod proxied;
#[expect(dead_code, reason = "shared with the tests of the proxy, which use more of it")]
#[path = "../../proxy/mysql/raw.rs"]
mod raw;
mod tables;
mod texts;

use ciphertoll_model::Engine;
use ciphertoll_wire::mysql::Capabilities;

use crate::driver::{self, Bench};
use crate::options::Options;
use crate::session::{Counts, Failure, Session, Step};

use self::bench::{Schema, Site};
use self::command::Command;
use self::direct::Transcript;
use self::grammar::Features;
use self::raw::{USUAL, UTF8MB4};

/// What a client negotiates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Terms {
    #[default]
    Usual,
    /// Without `CLIENT_DEPRECATE_EOF`.
    WithEof,
    /// With reports of session state.
    Tracking,
    /// One statement in each text; found rows instead of changed rows.
    Single,
    /// MariaDB: bulk executes, with and without a result for each row.
    Bulk,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Database {
    #[default]
    Default,
    None,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) terms: Terms,
    pub(crate) database: Database,
}

pub(crate) type MySqlSession = Session<Command, Login>;

impl Terms {
    fn capabilities(self, engine: Engine) -> Capabilities {
        let most = USUAL | Capabilities::MULTI_STATEMENTS | Capabilities::LOCAL_FILES;
        match self {
            Self::WithEof => most.without(Capabilities::DEPRECATE_EOF),
            Self::Tracking => most | Capabilities::SESSION_TRACK,
            Self::Single => USUAL | Capabilities::FOUND_ROWS,
            Self::Bulk if engine == Engine::MariaDb => most | Capabilities::BULK_OPERATIONS,
            Self::Usual | Self::Bulk => most,
        }
    }
}

impl Database {
    fn name(self, default: &str) -> Option<&str> {
        match self {
            Self::Default => Some(default),
            Self::None => None,
        }
    }
}

struct MySql {
    site: Site,
    features: Features,
    trace: bool,
}

/// The number of failures.
pub(crate) fn run(engine: Engine, options: &Options) -> usize {
    let Some(site) = Site::open(engine, options) else { return 0 };
    let mut bench = MySql { site, features: Features::of(engine, options), trace: options.trace };
    driver::run(&mut bench, options)
}

impl Bench for MySql {
    type Message = Command;
    type Login = Login;
    type Transcript = Transcript;

    fn name(&self) -> String {
        self.site.engine.to_string()
    }

    fn generate(&self, seed: u64) -> MySqlSession {
        let session = grammar::session(seed, &self.features);
        if self.trace {
            session.text().iter().for_each(|line| crate::say(line));
        }
        session
    }

    fn routes(&self) -> Vec<String> {
        self.site.routes[1..].iter().map(|route| route.plan.name.to_owned()).collect()
    }

    fn direct(&mut self, session: &MySqlSession) -> Option<Transcript> {
        self.site.restore();
        let transcript = direct::run(&mut self.site, session);
        self.site.schema = schema_after(session);
        if self.trace
            && let Some(transcript) = &transcript
        {
            transcript.text().iter().for_each(|line| crate::say(line));
        }
        transcript
    }

    fn proxied(
        &mut self,
        route: usize,
        session: &MySqlSession,
        transcript: &Transcript,
    ) -> Result<Counts, Box<Failure>> {
        // A pool of one connection is for one client.
        let fits = (session.logins.len() == 1) == (self.site.routes[route + 1].plan.pool_size == 1);
        if !fits {
            return Ok(Counts::default());
        }
        self.site.restore();
        let outcome = proxied::run(&mut self.site, route + 1, session, transcript);
        self.site.schema = schema_after(session);
        outcome
    }

    fn renew(&mut self, route: usize) {
        self.site.renew(route + 1);
    }
}

/// Words of statements that change more than rows.
const CHANGES: [&str; 3] = ["create", "alter", "drop"];

fn schema_after(session: &MySqlSession) -> Schema {
    let is_change = |sql: &str| CHANGES.iter().any(|word| sql.to_lowercase().contains(word));
    let changed = session.steps.iter().any(|step| match step {
        Step::Send { messages, .. } => messages.iter().any(|message| match message {
            Command::Query(sql) | Command::Prepare { sql, .. } => is_change(sql),
            _ => false,
        }),
        Step::Admin(sql) => is_change(sql),
        Step::Steal => false,
    });
    if changed { Schema::Changed } else { Schema::Original }
}
