//! A session through a proxy, compared with the direct one.

use std::thread;
use std::time::{Duration, Instant};

use super::PostgresSession;
use super::bench::Route;
use super::connection::{Connection, rows};
use super::direct::{End, Record, Transcript};
use super::message::{Frontend, Message};
use super::tables;
use crate::documented::Documented;
use crate::options::{DEADLINE, SERVED};
use crate::proxies::Pooling;
use crate::session::{Counts, Equal, Failure, Kind, Step};
use crate::waiting::{is_asleep, sleeps_alone};

/// What may still come after a difference, for the report.
const REST: Duration = Duration::from_millis(300);
/// How often the log is read while another client waits for a connection.
const POLL: Duration = Duration::from_millis(20);

pub(crate) fn run(
    route: &mut Route,
    user: &str,
    session: &PostgresSession,
    transcript: &Transcript,
) -> Result<Counts, Box<Failure>> {
    let mut counts = Counts { sessions: 1, ..Counts::default() };
    let pins_before = route.pins();
    let mut clients: Vec<Option<Connection>> = session.logins.iter().map(|_| None).collect();
    for (number, (step, record)) in session.steps.iter().zip(&transcript.records).enumerate() {
        let outcome = match step {
            Step::Send { client, messages, cuts } => {
                counts.messages += messages.len() as u64;
                let (slot, login) = (&mut clients[*client], &session.logins[*client]);
                log_in(route, user, login, slot, record).and_then(|()| match slot {
                    Some(connection) => {
                        connection.send(messages, cuts, route.reader());
                        let outcome = compare(connection, record);
                        let is_ready = record.messages.last().is_some_and(|message| message.kind == b'Z');
                        if !is_ready {
                            settle(route);
                        }
                        if record.end == End::Closed {
                            *slot = None;
                        }
                        outcome.map(|equal| counts.note(equal))
                    }
                    None => Ok(()),
                })
            }
            Step::Steal => {
                let leaves = if number % 2 == 0 { Leaves::State } else { Leaves::Nothing };
                steal(route, user, record.holders, pins_before, leaves)
                    .map(|moves| counts.moves += moves as u64)
            }
            Step::Admin(sql) => {
                route.administrator.query(sql, DEADLINE);
                Ok(())
            }
        };
        outcome.map_err(|failure| Box::new(Failure { step: Some(number), ..failure }))?;
    }
    for mut client in clients.into_iter().flatten() {
        leave(&mut client)?;
    }
    check_next(route, user)?;
    Ok(counts)
}

fn failure(kind: Kind, signature: String) -> Failure {
    Failure { kind, step: None, signature, direct: Vec::new(), proxied: Vec::new() }
}

fn log_in(
    route: &Route,
    user: &str,
    settings: &[(String, String)],
    slot: &mut Option<Connection>,
    record: &Record,
) -> Result<(), Failure> {
    let Some(expected) = &record.login else { return Ok(()) };
    let outcome = match route.open(user, settings, SERVED) {
        Ok(connection) => {
            *slot = Some(connection);
            Ok(())
        }
        Err(refused) => Err(refused.0),
    };
    if outcome == *expected {
        return Ok(());
    }
    let mut failure = failure(Kind::Login, format!("{expected:?} / {outcome:?}"));
    failure.direct.push(format!("{expected:?}"));
    failure.proxied.push(format!("{outcome:?}"));
    Err(failure)
}

/// Receives as many messages as the server has sent directly.
fn compare(connection: &mut Connection, record: &Record) -> Result<Equal, Failure> {
    let (mut until, mut received) = (Instant::now() + DEADLINE, std::mem::take(&mut connection.early));
    let mut expected = std::mem::take(&mut connection.late);
    expected.extend_from_slice(&record.messages);
    let process_id = connection.process_id;
    let mut is_different = false;
    while received.len() < expected.len() || record.end == End::Closed {
        let Some(message) = connection.next(until) else { break };
        let Some(message) = message.comparable(process_id) else { continue };
        if !is_different && expected.get(received.len()) != Some(&message) {
            until = until.min(Instant::now() + REST);
            is_different = true;
        }
        received.push(message);
    }
    connection.read();
    received.extend(
        std::iter::from_fn(|| connection.take()).filter_map(|message| message.comparable(process_id)),
    );
    let end = if connection.ended { End::Closed } else { End::Open };
    if received != expected || end != record.end {
        return match received.split_last() {
            Some((lost, rest))
                if end == record.end
                    && is_lost(lost)
                    && (rest == expected || was_reset(lost, rest, &expected)) =>
            {
                Ok(Equal::But(Documented::Lost))
            }
            _ if end == record.end && are_early(&expected, &received) => {
                connection.early = received.split_off(expected.len());
                Ok(Equal::But(Documented::Early))
            }
            _ if end == record.end && is_late(&expected, &received) => {
                connection.late = expected.split_off(received.len());
                Ok(Equal::But(Documented::Late))
            }
            _ if end == record.end && differ_in_error(&expected, &received) => {
                Ok(Equal::But(Documented::FirstError))
            }
            _ => Err(difference(record, &received, end)),
        };
    }
    let is_ready = received.last().is_some_and(|message| message.kind == b'Z');
    if is_ready && connection.settings != record.settings {
        let differ =
            record.settings.iter().find(|(name, value)| connection.settings.get(*name) != Some(*value));
        let name = differ.map_or_else(|| "another setting".to_owned(), |(name, _)| name.clone());
        let mut failure = failure(Kind::Settings, name);
        failure.direct = record.settings.iter().map(|setting| format!("{setting:?}")).collect();
        failure.proxied = connection.settings.iter().map(|setting| format!("{setting:?}")).collect();
        return Err(failure);
    }
    Ok(Equal::Exactly)
}

/// Whether the server has answered messages before it had to.
fn are_early(direct: &[Message], proxied: &[Message]) -> bool {
    let is_owed = direct.last().is_none_or(|message| message.kind != b'Z');
    is_owed && proxied.starts_with(direct) && proxied.iter().all(|message| message.kind != b'E')
}

/// Whether only the last answer is missing, which nothing has asked for: that the columns of a statement have changed.
fn is_late(direct: &[Message], proxied: &[Message]) -> bool {
    direct.split_last().is_some_and(|(last, rest)| rest == proxied && is_error(last, &["0A000"]))
}

fn is_error(message: &Message, states: &[&str]) -> bool {
    message.kind == b'E'
        && message.field(b'C').is_some_and(|state| states.iter().any(|known| *known == state))
}

/// Whether only an error differs: the server's is about parameters, the proxy's about tables.
fn differ_in_error(direct: &[Message], proxied: &[Message]) -> bool {
    const OF_PARAMETERS: [&str; 5] = ["08P01", "22P02", "22P03", "22021", "42601"];
    // The last one: that the transaction has failed, in which a statement cannot be prepared again.
    const OF_TABLES: [&str; 8] = ["0A000", "42P01", "42703", "42883", "42804", "42846", "55P03", "25P02"];
    let mut differences = direct.iter().zip(proxied).filter(|(direct, proxied)| direct != proxied);
    direct.len() == proxied.len()
        && differences
            .all(|(direct, proxied)| is_error(direct, &OF_PARAMETERS) && is_error(proxied, &OF_TABLES))
}

fn is_lost(message: &Message) -> bool {
    is_error(message, &["08006"])
}

/// Whether the server has ended the connection by a reset, which may overtake its last messages: it does that if it has
/// not read everything.
fn was_reset(lost: &Message, received: &[Message], direct: &[Message]) -> bool {
    let says_reset = lost.field(b'M').is_some_and(|message| message.contains("Connection reset by peer"));
    let is_end = |message: &Message| message.kind == b'E' && message.field(b'V').as_deref() == Some("FATAL");
    says_reset && direct.starts_with(received) && direct.last().is_some_and(is_end)
}

/// Waits until the proxy and its connections have done what they were sent, although nothing tells.
fn settle(route: &mut Route) {
    const ALL: &str = "SELECT pid, wait_event FROM pg_stat_activity \
                       WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let until = Instant::now() + SERVED;
    while Instant::now() < until {
        if !is_asleep(route.reader()) {
            thread::yield_now();
            continue;
        }
        let mut list = || rows(&route.administrator.query(ALL, DEADLINE).unwrap_or_default());
        let sleeps = |row: &String| {
            let process = row.split('|').next().and_then(|number| number.parse().ok());
            process.and_then(sleeps_alone) != Some(false)
        };
        if list().iter().all(sleeps) && list().iter().all(|row| row.ends_with("|ClientRead")) {
            return;
        }
    }
}

fn difference(record: &Record, received: &[Message], end: End) -> Failure {
    let at = record.messages.iter().zip(received).take_while(|(direct, proxied)| direct == proxied).count();
    let shown = |messages: &[Message], end: End| match messages.get(at) {
        Some(message) => message.short(),
        None if end == End::Closed => "end of stream".to_owned(),
        None => "nothing".to_owned(),
    };
    let (direct, proxied) = (shown(&record.messages, record.end), shown(received, end));
    let is_silent = received.len() == at && end == End::Open;
    let kind = if is_silent { Kind::Silence } else { Kind::Answer };
    let mut failure = failure(kind, format!("{direct} / {proxied}"));
    let lines = |messages: &[Message], end: End| {
        let lines = messages.iter().map(ToString::to_string);
        lines.chain([format!("{end:?}")]).collect::<Vec<_>>()
    };
    failure.direct = lines(&record.messages, record.end);
    failure.proxied = lines(received, end);
    failure
}

/// Other clients use every connection that no client may hold, all at the same time. Returns how many.
fn steal(
    route: &mut Route,
    user: &str,
    holders: usize,
    pins_before: usize,
    leaves: Leaves,
) -> Result<usize, Failure> {
    if route.plan.pooling != Pooling::Transaction {
        return Ok(0);
    }
    let until = Instant::now() + SERVED;
    let mut served = 0;
    while served < free(route, holders, pins_before) {
        let may_have = |route: &mut Route| served < free(route, holders, pins_before);
        match begin(route, user, served, until, may_have) {
            Begun::Yes => served += 1,
            Begun::Gone => route.thieves[served] = None,
            Begun::TooMany => {
                route.thieves[served] = None;
                break;
            }
        }
        if Instant::now() > until && served < free(route, holders, pins_before) {
            route.thieves[served] = None;
            let signature = "a client that is in no transaction holds a connection".to_owned();
            return Err(failure(Kind::Stuck, signature));
        }
    }
    // One that a client seems to hold is not waited for: if the proxy lets it go, the client misses what it had there.
    if served < route.plan.pool_size {
        match begin(route, user, served, Instant::now() + POLL, |_| false) {
            Begun::Yes => served += 1,
            Begun::Gone | Begun::TooMany => route.thieves[served] = None,
        }
    }
    for thief in route.thieves.iter_mut().take(served) {
        if thief.as_mut().and_then(|thief| end(thief, leaves)).is_none() {
            return Err(failure(Kind::Stuck, "another client's transaction does not end".to_owned()));
        }
    }
    Ok(served)
}

/// Connections that no client may hold. Pins are counted when the proxy logs them, which may be after its answer.
fn free(route: &mut Route, holders: usize, pins_before: usize) -> usize {
    route.plan.pool_size.saturating_sub(holders + route.pins() - pins_before)
}

enum Begun {
    Yes,
    /// The connection was lost or refused.
    Gone,
    /// Pins have become known: there is no connection for this client.
    TooMany,
}

fn begin(
    route: &mut Route,
    user: &str,
    number: usize,
    until: Instant,
    mut may_have: impl FnMut(&mut Route) -> bool,
) -> Begun {
    if route.thieves[number].is_none() {
        let Ok(thief) = route.open(user, &[], POLL * 5) else {
            return if may_have(route) { Begun::Gone } else { Begun::TooMany };
        };
        route.thieves[number] = Some(thief);
    }
    if let Some(thief) = &mut route.thieves[number] {
        thief.send(&[Frontend::Query("BEGIN".to_owned())], &Vec::new(), 0);
    }
    while Instant::now() < until {
        let Some(thief) = &mut route.thieves[number] else { return Begun::Gone };
        match thief.next((Instant::now() + POLL).min(until)) {
            Some(message) if message.kind == b'Z' && thief.status == b'T' => return Begun::Yes,
            Some(message) if message.kind == b'E' => return Begun::Gone,
            None if thief.ended => return Begun::Gone,
            None if !may_have(route) => return Begun::TooMany,
            Some(_) | None => {}
        }
    }
    Begun::Gone
}

/// Whether other clients leave state, named as that of the session's clients.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaves {
    Nothing,
    State,
}

fn end(thief: &mut Connection, leaves: Leaves) -> Option<()> {
    if leaves == Leaves::State {
        let parse =
            Frontend::Parse { name: "s1".to_owned(), sql: "SELECT 'thief'".to_owned(), types: vec![] };
        thief.send(&[Frontend::CloseStatement("s1".to_owned()), parse, Frontend::Sync], &Vec::new(), 0);
        let until = Instant::now() + SERVED;
        while thief.next(until)?.kind != b'Z' {}
        thief.query("SET TimeZone = 'Asia/Tokyo'", SERVED)?;
    }
    thief.query("COMMIT", SERVED)?;
    (thief.status == b'I').then_some(())
}

fn leave(client: &mut Connection) -> Result<(), Box<Failure>> {
    client.send(&[Frontend::Terminate], &Vec::new(), 0);
    let (until, process_id) = (Instant::now() + DEADLINE, client.process_id);
    let mut received = Vec::new();
    while let Some(message) = client.next(until) {
        // In the middle of a COPY the server refuses even this message. Answers that a `Sync` would have asked for may come
        // early, see `Documented::Early`; no rows or ends of commands are among them.
        if !matches!(message.kind, b'E' | b'1' | b'2' | b'3' | b'n' | b't' | b'T') {
            received.extend(message.comparable(process_id));
        }
    }
    if received.is_empty() && client.ended {
        return Ok(());
    }
    let record = Record { end: End::Closed, ..Record::default() };
    Err(Box::new(difference(&record, &received, if client.ended { End::Closed } else { End::Open })))
}

/// Other clients must be served, as many as there are connections, and must find what they find on a new one.
fn check_next(route: &mut Route, user: &str) -> Result<(), Box<Failure>> {
    let until = Instant::now() + SERVED;
    let mut next = Vec::new();
    for _ in 0..route.plan.pool_size {
        next.push(check_one(route, user, until)?);
    }
    next.iter_mut().try_for_each(leave)
}

fn check_one(route: &mut Route, user: &str, until: Instant) -> Result<Connection, Box<Failure>> {
    let mut reason = String::from("no answer");
    while Instant::now() < until {
        let mut next = match route.open(user, &[], until.saturating_duration_since(Instant::now())) {
            Ok(next) => next,
            Err(refused) => {
                reason = refused.0;
                continue;
            }
        };
        let Some(found) = tables::find(&mut next, SERVED) else { break };
        if found == route.fresh {
            return Ok(next);
        }
        return Err(Box::new(not_clean(route, &mut next, found)));
    }
    Err(Box::new(failure(Kind::NotServed, reason)))
}

fn not_clean(route: &mut Route, next: &mut Connection, found: Vec<String>) -> Failure {
    let differ = route.fresh.iter().zip(&found).find(|(fresh, found)| fresh != found);
    let signature = differ.map_or_else(String::new, |(fresh, found)| format!("{fresh} / {found}"));
    let mut failure = failure(Kind::NotClean, signature);
    failure.direct.clone_from(&route.fresh);
    failure.proxied = found;
    if let (Some(direct), Some(proxied)) =
        (route.administrator.query(tables::ALL_SETTINGS, SERVED), next.query(tables::ALL_SETTINGS, SERVED))
    {
        let (direct, proxied) = (rows(&direct), rows(&proxied));
        failure.direct.extend(direct.iter().filter(|row| !proxied.contains(row)).cloned());
        failure.proxied.extend(proxied.iter().filter(|row| !direct.contains(row)).cloned());
    }
    failure
}
