//! Both directions of one connection.

use crate::opening::SpokenProtocol;
use crate::passive::account::AccountNames;
use crate::passive::event::{Content, DatabaseProtocol, Event};
use crate::passive::message_loop::MessageLoop;
use crate::passive::mongodb::MongoDbMachine;
use crate::passive::mysql::MySqlMachine;
use crate::passive::postgres::PostgresMachine;
use crate::side::ConnectionSide;

/// Follows a database connection from its first byte.
#[derive(Clone, Debug)]
pub struct Conversation(Machine);

#[derive(Clone, Debug)]
enum Machine {
    /// Nothing has been read, and the protocol was not given.
    Unknown(AccountNames),
    /// All that follows is TLS: of this protocol, if it is known.
    Tls(Option<DatabaseProtocol>),
    Postgres(Box<MessageLoop<PostgresMachine>>),
    MySql(Box<MessageLoop<MySqlMachine>>),
    MongoDb(Box<MessageLoop<MongoDbMachine>>),
    Other,
}

impl Conversation {
    /// A connection of this protocol; without one, the first bytes tell.
    #[must_use]
    pub fn new(protocol: Option<DatabaseProtocol>, names: AccountNames) -> Self {
        Self(protocol.map_or(Machine::Unknown(names), |protocol| Machine::new(protocol, names)))
    }

    /// The protocol, as far as it is known.
    #[must_use]
    pub fn protocol(&self) -> Option<DatabaseProtocol> {
        match self.0 {
            Machine::Unknown(_) | Machine::Other => None,
            Machine::Tls(protocol) => protocol,
            Machine::Postgres(_) => Some(DatabaseProtocol::Postgres),
            Machine::MySql(_) => Some(DatabaseProtocol::MySql),
            Machine::MongoDb(_) => Some(DatabaseProtocol::MongoDb),
        }
    }

    /// Allocated memory.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Machine::Unknown(_) | Machine::Tls(_) | Machine::Other => 0,
            Machine::Postgres(machine) => size_of_val(&**machine) + machine.heap_bytes(),
            Machine::MySql(machine) => size_of_val(&**machine) + machine.heap_bytes(),
            Machine::MongoDb(machine) => size_of_val(&**machine) + machine.heap_bytes(),
        }
    }

    /// Reads one side's next bytes, which were sent when all earlier ones had been. Returns those of them that are TLS, from
    /// where it begins.
    pub fn read<'a>(
        &mut self,
        side: ConnectionSide,
        content: Content<'a>,
        mut events: impl FnMut(Event),
    ) -> Option<Content<'a>> {
        if content.is_empty() {
            return None;
        }
        if let Machine::Unknown(names) = self.0 {
            self.0 = guess(side, content, names);
            if matches!(self.0, Machine::Other) {
                events(Event::Lost);
            }
        }
        let (tls, is_tls) = match &mut self.0 {
            Machine::Unknown(_) | Machine::Other => return None,
            Machine::Tls(_) => return Some(content),
            Machine::Postgres(machine) => (machine.read(side, content, &mut events), machine.is_tls()),
            Machine::MySql(machine) => (machine.read(side, content, &mut events), machine.is_tls()),
            Machine::MongoDb(machine) => (machine.read(side, content, &mut events), machine.is_tls()),
        };
        if is_tls {
            self.0 = Machine::Tls(self.protocol());
        }
        tls
    }
}

impl Machine {
    fn new(protocol: DatabaseProtocol, names: AccountNames) -> Self {
        match protocol {
            DatabaseProtocol::Postgres => {
                Self::Postgres(Box::new(MessageLoop::new(PostgresMachine::new(names))))
            }
            DatabaseProtocol::MySql => Self::MySql(Box::new(MessageLoop::new(MySqlMachine::new(names)))),
            DatabaseProtocol::MongoDb => {
                Self::MongoDb(Box::new(MessageLoop::new(MongoDbMachine::new(names))))
            }
        }
    }
}

/// The protocol whose first bytes these are. Clients send their first message in one segment.
fn guess(side: ConnectionSide, content: Content<'_>, names: AccountNames) -> Machine {
    let machine = |protocol| Machine::new(protocol, names);
    let Content::Bytes(bytes) = content else { return Machine::Other };
    match (side, bytes) {
        (ConnectionSide::Server, _) if SpokenProtocol::of(bytes) == Some(SpokenProtocol::MySql) => {
            machine(DatabaseProtocol::MySql)
        }
        (ConnectionSide::Client, [0x16, 3, ..]) => Machine::Tls(None),
        // Requests for encryption or to cancel, and the versions of protocol 3.
        (
            ConnectionSide::Client,
            [0, 0, _, _, 4, 0xd2, 0x16, 0x2e..=0x30, ..] | [0, 0, _, _, 0, 3, 0, _, ..],
        ) => machine(DatabaseProtocol::Postgres),
        (ConnectionSide::Client, _) if MongoDbMachine::is(bytes) => machine(DatabaseProtocol::MongoDb),
        _ => Machine::Other,
    }
}
