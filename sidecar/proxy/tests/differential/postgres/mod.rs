//! Sessions of the PostgreSQL protocol.

mod avoided;
mod bench;
mod connection;
mod direct;
mod grammar;
mod message;
mod proxied;
mod tables;
mod texts;

use crate::driver::{self, Bench};
use crate::options::Options;
use crate::session::{Counts, Failure, Session, Step};

use self::bench::{Route, Schema, Site};
use self::direct::Transcript;
use self::grammar::Features;
use self::message::Frontend;

/// Settings of the startup message.
pub(crate) type Login = Vec<(String, String)>;
pub(crate) type PostgresSession = Session<Frontend, Login>;

struct Postgres {
    site: Site,
    features: Features,
    trace: bool,
}

pub(crate) fn run(options: &Options) -> usize {
    let Some(site) = Site::open(options) else { return 0 };
    let mut bench = Postgres { site, features: Features::of(options), trace: options.trace };
    driver::run(&mut bench, options)
}

impl Bench for Postgres {
    type Message = Frontend;
    type Login = Login;
    type Transcript = Transcript;

    fn name(&self) -> String {
        "postgres".to_owned()
    }

    fn generate(&self, seed: u64) -> PostgresSession {
        let session = grammar::session(seed, &self.features);
        if self.trace {
            session.text().iter().for_each(|line| crate::say(line));
        }
        session
    }

    fn routes(&self) -> Vec<String> {
        self.site.routes[1..].iter().map(|route| route.plan.name.to_owned()).collect()
    }

    fn direct(&mut self, session: &PostgresSession) -> Option<Transcript> {
        let (user, route) = (self.site.user.clone(), &mut self.site.routes[0]);
        route.restore(&user);
        let transcript = direct::run(route, &user, session);
        end_prepared(route, session);
        route.schema = schema_after(session);
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
        session: &PostgresSession,
        transcript: &Transcript,
    ) -> Result<Counts, Box<Failure>> {
        let (user, route) = (self.site.user.clone(), &mut self.site.routes[route + 1]);
        // A pool of one connection is for one client.
        let fits = (session.logins.len() == 1) == (route.plan.pool_size == 1);
        if !fits {
            return Ok(Counts::default());
        }
        route.restore(&user);
        let outcome = proxied::run(route, &user, session, transcript);
        end_prepared(route, session);
        route.schema = schema_after(session);
        outcome
    }

    fn renew(&mut self, route: usize) {
        self.site.renew(route + 1);
    }
}

/// Words of statements that change more than rows.
const CHANGES: [&str; 5] = ["create", "alter", "drop", "truncate", " into x"];

fn schema_after(session: &PostgresSession) -> Schema {
    let changes = |sql: &str| CHANGES.iter().any(|word| sql.to_lowercase().contains(word));
    if has_text(session, changes) { Schema::Changed } else { Schema::Original }
}

fn end_prepared(route: &mut Route, session: &PostgresSession) {
    if has_text(session, |sql| sql.contains("PREPARE TRANSACTION")) {
        route.end_prepared();
    }
}

fn has_text(session: &PostgresSession, matches: impl Fn(&str) -> bool) -> bool {
    session.steps.iter().any(|step| match step {
        Step::Send { messages, .. } => messages.iter().any(|message| match message {
            Frontend::Query(sql) | Frontend::Parse { sql, .. } => matches(sql),
            _ => false,
        }),
        Step::Admin(sql) => matches(sql),
        Step::Steal => false,
    })
}
