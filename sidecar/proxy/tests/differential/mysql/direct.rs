//! A session on the server itself: what the answers are, and who may hold a connection when.

use std::thread;
use std::time::{Duration, Instant};

use super::answer::{Holds, Lasting, comparable, holds, keep_number, lasting};
use super::bench::Site;
use super::command::Command;
use super::connection::{ASKS_FOR_FILE, Connection, LOCKED, Packet};
use super::{Login, MySqlSession};
use crate::options::DEADLINE;
use crate::session::Step;
use crate::waiting::ServerThread;

/// What the server has answered; as many records as there are steps.
pub(crate) struct Transcript {
    pub(crate) records: Vec<Record>,
}

#[derive(Default)]
pub(crate) struct Record {
    /// The client had no connection: how its login ended.
    pub(crate) login: Option<Result<(), String>>,
    /// After each part but the last, the client sends a file.
    pub(crate) parts: Vec<Vec<Packet>>,
    pub(crate) end: End,
    /// The administrator's command was refused with this error.
    pub(crate) refused: Option<u16>,
    /// Clients that hold a connection after the step, and clients that may hold one.
    pub(crate) holders: usize,
    pub(crate) undecided: usize,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum End {
    #[default]
    Open,
    Closed,
}

/// Longer than the server's own threads lock a table.
const BRIEF: Duration = Duration::from_millis(100);

struct Client {
    connection: Connection,
    thread: ServerThread,
    holds: Holds,
    lasting: Lasting,
}

enum Settled {
    Idle,
    AsksForFile,
}

impl Transcript {
    pub(crate) fn text(&self) -> Vec<String> {
        let lines = self.records.iter().enumerate().flat_map(|(step, record)| {
            let Record { login, end, holders, undecided, parts, refused: _ } = record;
            let title = format!("step {step}: {login:?} {end:?} holders {holders} undecided {undecided}");
            let packets = parts.iter().flatten().map(|packet| format!("    {}", packet.text()));
            [title].into_iter().chain(packets).collect::<Vec<_>>()
        });
        lines.collect()
    }
}

/// `None` if the server does not come to rest.
pub(crate) fn run(site: &mut Site, session: &MySqlSession) -> Option<Transcript> {
    let mut clients: Vec<Option<Client>> = session.logins.iter().map(|_| None).collect();
    let mut records = Vec::new();
    for step in &session.steps {
        let mut record = match step {
            Step::Send { client, messages, .. } => {
                send(site, session.logins[*client], &mut clients[*client], messages)?
            }
            Step::Steal => Record::default(),
            Step::Admin(sql) => {
                let refused = site.administrate(sql, BRIEF, |refused| refused == Some(LOCKED));
                Record { refused, ..Record::default() }
            }
        };
        let count = |holds: Holds| clients.iter().flatten().filter(|client| client.holds == holds).count();
        (record.holders, record.undecided) = (count(Holds::Transaction), count(Holds::Maybe));
        let sender = if let Step::Send { client, .. } = step { Some(*client) } else { None };
        let is_idle = |(number, client): (usize, &Option<Client>)| {
            let may_lock =
                |client: &Client| client.holds != Holds::Nothing || client.lasting != Lasting::None;
            Some(number) == sender || !client.as_ref().is_some_and(may_lock)
        };
        if record.parts.iter().flatten().any(Packet::is_of_lock_timeout)
            && clients.iter().enumerate().all(is_idle)
        {
            // Of no other client: the server's own threads, or a session that it still ends, have locked the table.
            return None;
        }
        records.push(record);
    }
    for mut client in clients.into_iter().flatten() {
        client.connection.send("", &[Command::Quit], &Vec::new(), 0);
        let until = Instant::now() + DEADLINE;
        while client.connection.next(until).is_some() {}
        if !client.connection.ended {
            return None;
        }
    }
    Some(Transcript { records })
}

pub(crate) fn open(site: &Site, route: usize, login: Login) -> Result<Connection, String> {
    let database = login.database.name(&site.database);
    let (socket, capabilities) = (&site.routes[route].socket, login.terms.capabilities(site.engine));
    Connection::open(socket, &site.user, database, capabilities)
}

fn send(site: &mut Site, login: Login, slot: &mut Option<Client>, commands: &[Command]) -> Option<Record> {
    let mut record = Record::default();
    if slot.is_none() {
        match open(site, 0, login) {
            Ok(connection) => {
                let (_, thread) = site.thread(connection.number)?;
                *slot = Some(Client { connection, thread, holds: Holds::Nothing, lasting: Lasting::None });
                record.login = Some(Ok(()));
            }
            Err(refused) => {
                record.login = Some(Err(refused));
                return Some(record);
            }
        }
    }
    let client = slot.as_mut()?;
    let user = site.user.clone();
    client.connection.send(&user, commands, &Vec::new(), 0);
    loop {
        let mut packets = Vec::new();
        let settled = settle(site, client, &mut packets)?;
        if record.parts.is_empty() {
            keep_number(&mut client.connection, commands, &packets);
        }
        client.lasting = lasting(commands, client.lasting);
        client.holds = holds(commands, &packets, client.holds, client.lasting);
        record.parts.push(comparable(commands, &packets));
        match settled {
            Settled::Idle => break,
            Settled::AsksForFile => client.connection.send_file(),
        }
    }
    if client.connection.ended {
        record.end = End::Closed;
        *slot = None;
    }
    Some(record)
}

/// Receives until the server's thread waits for this client. A thread counts as running as soon as something is sent to it;
/// when it sleeps again and executes no command, it has read all of that.
fn settle(site: &mut Site, client: &mut Client, packets: &mut Vec<Packet>) -> Option<Settled> {
    let until = Instant::now() + DEADLINE;
    let process = site.server.pid().cast_unsigned();
    loop {
        let connection = &mut client.connection;
        connection.read();
        packets.extend(std::iter::from_fn(|| connection.take()));
        if connection.ended {
            return Some(Settled::Idle);
        }
        if Instant::now() > until {
            return None;
        }
        if client.thread.sleeps(process) {
            let Some((command, _)) = site.thread(connection.number) else { continue };
            connection.read();
            packets.extend(std::iter::from_fn(|| connection.take()));
            if packets.pop_if(|packet| packet.asks_for_proof()).is_some() {
                connection.send_empty();
                continue;
            }
            if command == "Sleep" {
                return Some(Settled::Idle);
            }
            let asks = packets.last().is_some_and(|packet| packet.payload == [ASKS_FOR_FILE, b'f']);
            if asks && client.thread.sleeps(process) {
                return Some(Settled::AsksForFile);
            }
        }
        thread::yield_now();
    }
}
