//! A session through a proxy, compared with the direct one.

use std::time::{Duration, Instant};

use super::answer::{comparable, keep_number};
use super::bench::Site;
use super::command::Command;
use super::connection::{Connection, Packet};
use super::direct::{End, Record, Transcript, open};
use super::raw::USUAL;
use super::tables::{self, answer};
use super::{Database, Login, MySqlSession};
use crate::documented::Documented;
use crate::options::{DEADLINE, SERVED};
use crate::proxies::Pooling;
use crate::session::{Counts, Cuts, Equal, Failure, Kind, Step};

/// The server has closed the connection.
const LOST: u16 = 1158;
/// A statement cannot be prepared in the context in which it was at first.
const NOT_AS_PREPARED: u16 = 1615;
/// A table or column of a statement is missing.
const OF_TABLES: [u16; 3] = [1146, 1054, 1205];
/// The arguments of an execute are wrong, a bulk execute of a statement that changes nothing, or LOCAL INFILE of a client
/// without it.
const OF_EXECUTES: [u16; 3] = [1210, 1295, 4166];
/// What may still come after a difference, for the report.
const REST: Duration = Duration::from_millis(300);
/// How often the log is read while another client waits for a connection.
const POLL: Duration = Duration::from_millis(20);
/// How long another client waits for a connection that a client may hold.
const UNDECIDED: Duration = Duration::from_millis(60);

pub(crate) fn run(
    site: &mut Site,
    route: usize,
    session: &MySqlSession,
    transcript: &Transcript,
) -> Result<Counts, Box<Failure>> {
    let mut counts = Counts { sessions: 1, ..Counts::default() };
    let pins_before = site.routes[route].pins();
    let mut clients: Vec<Option<Connection>> = session.logins.iter().map(|_| None).collect();
    for (number, (step, record)) in session.steps.iter().zip(&transcript.records).enumerate() {
        // The statement of the direct client has a cursor now, or has changed rows.
        let mut goes_on = true;
        let outcome = match step {
            Step::Send { client, messages, cuts } => {
                counts.messages += messages.len() as u64;
                let (slot, login) = (&mut clients[*client], session.logins[*client]);
                send(site, route, login, slot, messages, cuts, record).map(|equal| {
                    goes_on = equal != Equal::But(Documented::NoDatabase);
                    counts.note(equal);
                })
            }
            Step::Steal => {
                let leaves = if number % 2 == 0 { Leaves::State } else { Leaves::Nothing };
                steal(site, route, record, pins_before, leaves).map(|moves| counts.moves += moves as u64)
            }
            Step::Admin(sql) => administrate(site, sql, record),
        };
        outcome.map_err(|failure| Box::new(Failure { step: Some(number), ..failure }))?;
        if !goes_on {
            break;
        }
    }
    for mut client in clients.into_iter().flatten() {
        leave(&mut client)?;
    }
    check_next(site, route)?;
    Ok(counts)
}

fn failure(kind: Kind, signature: String) -> Failure {
    Failure { kind, step: None, signature, direct: Vec::new(), proxied: Vec::new() }
}

/// The administrator's command may come while the proxy prepares statements, which locks their tables.
fn administrate(site: &mut Site, sql: &str, record: &Record) -> Result<(), Failure> {
    let direct = record.refused;
    let refused = site.administrate(sql, SERVED, |refused| refused.is_some() && refused != direct);
    if refused == direct {
        return Ok(());
    }
    Err(failure(Kind::Stuck, format!("administrator: {direct:?} / {refused:?}")))
}

fn send(
    site: &Site,
    route: usize,
    login: Login,
    slot: &mut Option<Connection>,
    commands: &[Command],
    cuts: &Cuts,
    record: &Record,
) -> Result<Equal, Failure> {
    log_in(site, route, login, slot, record)?;
    let Some(connection) = slot else { return Ok(Equal::Exactly) };
    connection.send(&site.user, commands, cuts, site.routes[route].reader());
    let outcome = record.parts.iter().enumerate().try_fold(Equal::Exactly, |_, (number, expected)| {
        let is_last = number + 1 == record.parts.len();
        let end = if is_last { record.end } else { End::Open };
        let equal = compare(connection, login, commands, expected, end)?;
        if !is_last {
            connection.send_file();
        }
        Ok(equal)
    });
    if record.end == End::Closed {
        *slot = None;
    }
    outcome
}

fn log_in(
    site: &Site,
    route: usize,
    login: Login,
    slot: &mut Option<Connection>,
    record: &Record,
) -> Result<(), Failure> {
    let Some(expected) = &record.login else { return Ok(()) };
    let outcome = open(site, route, login).map(|connection| *slot = Some(connection));
    if outcome == *expected {
        return Ok(());
    }
    let mut failure = failure(Kind::Login, format!("{expected:?} / {outcome:?}"));
    failure.direct.push(format!("{expected:?}"));
    failure.proxied.push(format!("{outcome:?}"));
    Err(failure)
}

/// Receives as many packets as the server has sent directly.
fn compare(
    connection: &mut Connection,
    login: Login,
    commands: &[Command],
    expected: &[Packet],
    expected_end: End,
) -> Result<Equal, Failure> {
    let (mut until, mut received) = (Instant::now() + DEADLINE, Vec::new());
    let mut is_different = false;
    while received.len() < expected.len() || expected_end == End::Closed {
        let Some(packet) = connection.next(until) else { break };
        if packet.asks_for_proof() {
            connection.send_empty();
            continue;
        }
        received.push(packet);
        let compared = comparable(commands, &received);
        if !is_different && expected.get(compared.len() - 1) != compared.last() {
            until = until.min(Instant::now() + REST);
            is_different = true;
        }
    }
    connection.read();
    received.extend(std::iter::from_fn(|| connection.take()));
    keep_number(connection, commands, &received);
    let received = comparable(commands, &received);
    let end = if connection.ended { End::Closed } else { End::Open };
    if end != expected_end {
        return Err(difference(expected, expected_end, &received, end));
    }
    if received == expected {
        return Ok(Equal::Exactly);
    }
    documented(login, expected, &received, end)
        .map(Equal::But)
        .ok_or_else(|| difference(expected, expected_end, &received, end))
}

/// A documented difference in errors.
fn documented(login: Login, expected: &[Packet], received: &[Packet], end: End) -> Option<Documented> {
    if differ_in_error(expected, received) {
        return Some(Documented::FirstError);
    }
    let (error, before) = received.split_last()?;
    let code = error.error_code().filter(|_| expected.starts_with(before))?;
    let direct = expected.get(before.len()).map(Packet::error_code);
    match (code, direct) {
        (LOST, None) if end == End::Closed => Some(Documented::Lost),
        (NOT_AS_PREPARED, Some(_)) if login.database == Database::None => Some(Documented::NoDatabase),
        _ => None,
    }
}

/// Whether only errors differ, of which the server shows one about parameters, and the proxy one about tables.
fn differ_in_error(direct: &[Packet], proxied: &[Packet]) -> bool {
    let is_one_of =
        |packet: &Packet, codes: &[u16]| packet.error_code().is_some_and(|code| codes.contains(&code));
    let mut differences = direct.iter().zip(proxied).filter(|(direct, proxied)| direct != proxied);
    direct.len() == proxied.len()
        && differences
            .all(|(direct, proxied)| is_one_of(direct, &OF_EXECUTES) && is_one_of(proxied, &OF_TABLES))
}

fn difference(expected: &[Packet], expected_end: End, received: &[Packet], end: End) -> Failure {
    let at = expected.iter().zip(received).take_while(|(direct, proxied)| direct == proxied).count();
    let shown = |packets: &[Packet], end: End| match packets.get(at) {
        Some(packet) => packet.short(),
        None if end == End::Closed => "end of stream".to_owned(),
        None => "nothing".to_owned(),
    };
    let (direct, proxied) = (shown(expected, expected_end), shown(received, end));
    let is_silent = received.len() == at && end == End::Open;
    let kind = if is_silent { Kind::Silence } else { Kind::Answer };
    let mut failure = failure(kind, format!("{direct} / {proxied}"));
    let lines = |packets: &[Packet], end: End| {
        packets.iter().map(Packet::text).chain([format!("{end:?}")]).collect::<Vec<_>>()
    };
    failure.direct = lines(expected, expected_end);
    failure.proxied = lines(received, end);
    failure
}

/// Other clients use every connection that no client may hold, all at the same time. Returns how many.
fn steal(
    site: &mut Site,
    route: usize,
    record: &Record,
    pins_before: usize,
    leaves: Leaves,
) -> Result<usize, Failure> {
    if site.routes[route].plan.pooling != Pooling::Transaction {
        return Ok(0);
    }
    let patience = if record.undecided > 0 { UNDECIDED } else { SERVED };
    let until = Instant::now() + patience;
    let mut served = 0;
    while served < free(site, route, record, pins_before) {
        if begin(site, route, served, until, record, pins_before) {
            served += 1;
            continue;
        }
        site.routes[route].thieves[served] = None;
        if Instant::now() > until {
            if record.undecided == 0 && served < free(site, route, record, pins_before) {
                let signature = "a client that is in no transaction holds a connection".to_owned();
                return Err(failure(Kind::Stuck, signature));
            }
            break;
        }
    }
    // One that a client holds is not waited for: if the proxy lets it go, the client misses what it had there.
    if served < site.routes[route].plan.pool_size {
        if begin(site, route, served, Instant::now() + POLL, record, pins_before) {
            served += 1;
        } else {
            site.routes[route].thieves[served] = None;
        }
    }
    let user = site.user.clone();
    for thief in site.routes[route].thieves.iter_mut().take(served) {
        if thief.as_mut().and_then(|thief| end(thief, &user, leaves)).is_none() {
            return Err(failure(Kind::Stuck, "another client's transaction does not end".to_owned()));
        }
    }
    Ok(served)
}

/// Connections that no client holds. Pins are counted when the proxy logs them, which may be after its answer.
fn free(site: &mut Site, route: usize, record: &Record, pins_before: usize) -> usize {
    let route = &mut site.routes[route];
    route.plan.pool_size.saturating_sub(record.holders + route.pins() - pins_before)
}

/// Whether another client has begun a transaction.
fn begin(
    site: &mut Site,
    route: usize,
    number: usize,
    until: Instant,
    record: &Record,
    pins_before: usize,
) -> bool {
    if site.routes[route].thieves[number].is_none() {
        let socket = site.routes[route].socket.clone();
        site.routes[route].thieves[number] = site.client(&socket, USUAL).ok();
    }
    let Some(thief) = &mut site.routes[route].thieves[number] else { return false };
    thief.send("", &[Command::Query("BEGIN".to_owned())], &Vec::new(), 0);
    while Instant::now() < until {
        let Some(thief) = &mut site.routes[route].thieves[number] else { return false };
        match thief.next((Instant::now() + POLL).min(until)) {
            Some(packet) => return packet.payload.first() == Some(&0),
            None if thief.ended || free(site, route, record, pins_before) <= number => return false,
            None => {}
        }
    }
    false
}

/// Whether other clients leave state, named as that of the session's clients.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaves {
    Nothing,
    State,
}

fn end(thief: &mut Connection, user: &str, leaves: Leaves) -> Option<()> {
    let until = Instant::now() + SERVED;
    let mut texts = vec!["COMMIT"];
    if leaves == Leaves::State {
        texts.splice(0..0, ["SET time_zone = '+09:00', net_write_timeout = 99", "SELECT 1/0"]);
    }
    let mut last = None;
    for sql in texts {
        thief.send(user, &[Command::Query(sql.to_owned())], &Vec::new(), 0);
        last = answer(thief, until)?.pop();
    }
    (last?.error_code().is_none()).then_some(())
}

fn leave(client: &mut Connection) -> Result<(), Box<Failure>> {
    client.send("", &[Command::Quit], &Vec::new(), 0);
    let until = Instant::now() + DEADLINE;
    let received: Vec<Packet> = std::iter::from_fn(|| client.next(until)).collect();
    if received.is_empty() && client.ended {
        return Ok(());
    }
    let end = if client.ended { End::Closed } else { End::Open };
    Err(Box::new(difference(&[], End::Closed, &received, end)))
}

/// Other clients must be served, as many as there are connections, and must find what they find on a new one.
fn check_next(site: &Site, route: usize) -> Result<(), Box<Failure>> {
    let until = Instant::now() + SERVED;
    let mut next = Vec::new();
    let mut reason = String::from("no answer");
    while next.len() < site.routes[route].plan.pool_size {
        match site.client(&site.routes[route].socket, USUAL) {
            Ok(mut client) => {
                if let Some(found) = site.fresh_differs(&mut client) {
                    let settings = tables::find_settings(site.engine, &mut client, SERVED);
                    return Err(Box::new(not_clean(site, &found, &settings)));
                }
                next.push(client);
            }
            Err(refused) => reason = refused,
        }
        if Instant::now() > until {
            return Err(Box::new(failure(Kind::NotServed, reason)));
        }
    }
    next.iter_mut().try_for_each(leave)
}

fn not_clean(site: &Site, found: &[String], settings: &[String]) -> Failure {
    let differ: Vec<(&String, &String)> =
        site.fresh.iter().zip(found).filter(|(fresh, found)| fresh != found).collect();
    let signature = differ.first().map_or_else(String::new, |(fresh, found)| format!("{fresh} / {found}"));
    let mut failure = failure(Kind::NotClean, signature);
    let fresh = &site.fresh_settings;
    failure.direct = differ.iter().map(|(fresh, _)| (*fresh).clone()).collect();
    failure.direct.extend(fresh.iter().filter(|row| !settings.contains(row)).cloned());
    failure.proxied = differ.iter().map(|(_, found)| (*found).clone()).collect();
    failure.proxied.extend(settings.iter().filter(|row| !fresh.contains(row)).cloned());
    failure
}
