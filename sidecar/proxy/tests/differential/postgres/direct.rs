//! A session on the server itself: what the answers are, and who may hold a connection when.

use std::thread;
use std::time::Instant;

use std::collections::BTreeMap;

use super::PostgresSession;
use super::bench::Route;
use super::connection::{Connection, rows};
use super::message::{Frontend, Message};
use crate::options::DEADLINE;
use crate::session::Step;
use crate::waiting::sleeps_alone;

/// What the server has answered.
pub(crate) struct Transcript {
    /// As many as there are steps.
    pub(crate) records: Vec<Record>,
}

#[derive(Default)]
pub(crate) struct Record {
    /// The client had no connection: how its login ended.
    pub(crate) login: Option<Result<(), String>>,
    pub(crate) messages: Vec<Message>,
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) end: End,
    /// Clients that may hold a connection after the step.
    pub(crate) holders: usize,
}

/// Whether the server has closed the connection.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum End {
    #[default]
    Open,
    Closed,
}

struct Client {
    connection: Connection,
    holds: Holds,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Nothing,
    /// It is in a transaction, or has sent something that a server need not answer.
    Maybe,
}

impl Transcript {
    pub(crate) fn text(&self) -> Vec<String> {
        let lines = self.records.iter().enumerate().flat_map(|(step, record)| {
            let title =
                format!("step {step}: {:?} {:?} holders {}", record.login, record.end, record.holders);
            [title].into_iter().chain(record.messages.iter().map(|message| format!("    {message}")))
        });
        lines.collect()
    }
}

/// `None` if the server does not come to rest.
pub(crate) fn run(route: &mut Route, user: &str, session: &PostgresSession) -> Option<Transcript> {
    let mut clients: Vec<Option<Client>> = session.logins.iter().map(|_| None).collect();
    let mut records = Vec::new();
    for step in &session.steps {
        let mut record = match step {
            Step::Send { client, messages, .. } => {
                let (slot, settings) = (&mut clients[*client], &session.logins[*client]);
                send(route, user, settings, slot, messages)?
            }
            Step::Steal => Record::default(),
            Step::Admin(sql) => {
                let answer = route.administrator.query(sql, DEADLINE)?;
                if answer.iter().any(Message::is_of_lock_timeout) {
                    // Clients' messages that arrive while it waits for its lock wait behind it.
                    return None;
                }
                Record::default()
            }
        };
        record.holders = clients.iter().flatten().filter(|client| client.holds == Holds::Maybe).count();
        records.push(record);
    }
    for mut client in clients.into_iter().flatten() {
        client.connection.send(&[Frontend::Terminate], &Vec::new(), 0);
        let until = Instant::now() + DEADLINE;
        while client.connection.next(until).is_some() {}
        if !client.connection.ended {
            return None;
        }
    }
    Some(Transcript { records })
}

fn send(
    route: &mut Route,
    user: &str,
    settings: &[(String, String)],
    slot: &mut Option<Client>,
    messages: &[Frontend],
) -> Option<Record> {
    let mut record = Record::default();
    if slot.is_none() {
        match route.open(user, settings, DEADLINE) {
            Ok(connection) => *slot = Some(Client { connection, holds: Holds::Nothing }),
            Err(refused) => {
                record.login = Some(Err(refused.0));
                return Some(record);
            }
        }
        record.login = Some(Ok(()));
    }
    let client = slot.as_mut()?;
    client.connection.send(messages, &Vec::new(), 0);
    let mut received = settle(&mut client.connection, &mut route.administrator)?;
    let is_last_ready = received.last().is_some_and(|message| message.kind == b'Z');
    let is_ended_by_ready = messages.iter().rfind(|message| !matches!(message, Frontend::HalfClose));
    client.holds = if client.connection.status == b'I'
        && is_last_ready
        && (is_ended_by_ready.is_some_and(Frontend::ends_in_ready) || ends_copy(messages, &received))
    {
        Holds::Nothing
    } else {
        Holds::Maybe
    };
    let process_id = client.connection.process_id;
    record.messages = received.drain(..).filter_map(|message| message.comparable(process_id)).collect();
    record.settings.clone_from(&client.connection.settings);
    if client.connection.ended {
        record.end = End::Closed;
        *slot = None;
    }
    Some(record)
}

/// Whether the last message was the end of a COPY that has succeeded.
fn ends_copy(messages: &[Frontend], received: &[Message]) -> bool {
    let ends =
        messages.iter().filter(|message| matches!(message, Frontend::CopyDone | Frontend::CopyFail(_)));
    let has = |kind: u8| received.iter().any(|message| message.kind == kind);
    matches!(messages, [.., Frontend::CopyDone]) && ends.count() == 1 && has(b'G') && !has(b'E')
}

/// Receives until the server waits for this client. The process counts as running as soon as something is sent to it; when
/// it sleeps again and waits for its client, it has read all of that.
fn settle(client: &mut Connection, administrator: &mut Connection) -> Option<Vec<Message>> {
    let until = Instant::now() + DEADLINE;
    let process_id = client.process_id;
    let waits_for = format!("SELECT wait_event FROM pg_stat_get_activity({process_id})");
    let mut received = Vec::new();
    loop {
        client.read();
        received.extend(std::iter::from_fn(|| client.take()));
        if client.ended {
            return Some(received);
        }
        if Instant::now() > until {
            return None;
        }
        if sleeps_alone(process_id) == Some(true)
            && rows(&administrator.query(&waits_for, DEADLINE)?) == ["ClientRead"]
        {
            client.read();
            received.extend(std::iter::from_fn(|| client.take()));
            return Some(received);
        }
        thread::yield_now();
    }
}
