//! What one must know beyond a relay who gives the client another connection between transactions: how each answer has
//! ended, and where commands begin.

use crate::relay::Goodbye;

use super::{
    Answer, Error, HEADER_BYTES, Header, LOOK_BYTES, MultiStatements, OkPacket, Prepared, Relay, Transaction,
    Upward, broken, packet,
};

/// What is kept for one who follows the client from one connection to the next, see [`super::super::follow`].
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The answers that have ended, in their order.
    ended: Vec<Ended>,
    /// Of the current answer: its last OK or EOF, or its ERR.
    end: End,
    /// The last key that it has told of.
    insert_id: u64,
}

impl Watch {
    pub(super) fn says(&mut self, end: OkPacket) {
        self.end = End::Said(end);
    }

    pub(super) fn refuses(&mut self) {
        self.end = End::Refused;
    }

    pub(super) fn tells_of_key(&mut self, ok: OkPacket) {
        if ok.last_insert_id != 0 {
            self.insert_id = ok.last_insert_id;
        }
    }

    pub(super) fn answer_ends(&mut self) {
        let (end, insert_id) = (std::mem::take(&mut self.end), std::mem::take(&mut self.insert_id));
        self.ended.push(Ended { end, insert_id });
    }
}

/// An answer that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in super::super) struct Ended {
    pub(in super::super) end: End,
    /// The last key that it has told of; 0 for none.
    pub(in super::super) insert_id: u64,
}

/// How an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in super::super) enum End {
    /// Without a word on the session.
    #[default]
    Silent,
    Said(OkPacket),
    Refused,
}

/// What a client's next bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Step {
    /// Too few to say.
    Waits,
    /// So many of what has begun before; of what kind it is is known.
    Goes(usize),
    /// The header of another packet of what has begun before.
    Header,
    /// A command, which has not begun yet.
    Command(u8, Header),
}

/// The answer to a `COM_STMT_PREPARE` that has gone well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct PreparedHere {
    pub(in super::super) prepared: Prepared,
    /// Of the packet, with its header.
    pub(in super::super) bytes: usize,
}

impl Relay {
    /// It is followed: the client's side goes by [`super::super::follow`], and the server's stops before statements that
    /// were prepared.
    #[must_use]
    pub fn watched(mut self) -> Self {
        self.watch = Some(Watch::default());
        self
    }

    /// How many statements a query may have was changed before.
    pub fn set_statements(&mut self, statements: MultiStatements) {
        self.statements = statements;
    }

    /// The server has said, unasked by the client, whether a transaction is open.
    pub fn set_transaction(&mut self, transaction: Transaction) {
        self.transaction = transaction;
    }

    /// Looks at one thing of the client's next bytes.
    pub(in super::super) fn step_client(&mut self, input: &[u8]) -> Result<Step, Error> {
        let mut at = 0;
        let ends = self.up.skip(input, &mut at);
        if at > 0 {
            return Ok(Step::Goes(at));
        }
        let Some((header, payload)) = (if ends { packet::peek_header(input) } else { None }) else {
            return Ok(Step::Waits);
        };
        if self.up.continues {
            self.goes_on(header);
        } else if self.upward == Upward::File {
            self.part_of_file(header);
        } else if header.length == 0 {
            return Err(broken("command", "it is empty"));
        } else {
            return Ok(payload.first().map_or(Step::Waits, |kind| Step::Command(*kind, header)));
        }
        self.up.begin(header, &mut 0);
        Ok(Step::Header)
    }

    /// The command that was looked at begins; so much of it is still to come behind what was written in its place.
    pub(in super::super) fn begin_command(
        &mut self,
        kind: u8,
        header: Header,
        left_bytes: usize,
    ) -> Result<Goodbye, Error> {
        let goodbye = self.begins(kind, header)?;
        if goodbye == Goodbye::None {
            self.up.begin(header, &mut 0);
            self.up.left_bytes = left_bytes;
        }
        Ok(goodbye)
    }

    /// Whether the client's last message is here to its end.
    pub(in super::super) fn client_is_between_messages(&self) -> bool {
        self.up.is_between_messages()
    }

    /// Whether a command is one that [`Self::kill`] is for, or that cannot be told yet.
    pub(in super::super) fn may_be_kill(&self, header: Header, payload: &[u8]) -> bool {
        self.stops_before(header, payload)
    }

    /// The answers that have ended since the last time.
    pub(in super::super) fn take_ended(&mut self) -> Vec<Ended> {
        self.watch.as_mut().map(|watch| std::mem::take(&mut watch.ended)).unwrap_or_default()
    }

    /// The server's word that a statement is prepared, if it is next. It is done with.
    pub(in super::super) fn take_prepared(&mut self, input: &[u8]) -> Result<Option<PreparedHere>, Error> {
        let Some((header, payload)) = packet::peek_header(input) else { return Ok(None) };
        let is_next = self.watch.is_some()
            && self.down.is_between_messages()
            && self.current == Some(Answer::Prepared)
            && payload.first() == Some(&0);
        if !is_next {
            return Ok(None);
        }
        if header.length > LOOK_BYTES {
            return Err(broken("answer to PREPARE", "it is too long"));
        }
        let Some(look) = payload.get(..header.length) else { return Ok(None) };
        self.answer(header, look)?;
        let prepared = Prepared::parse(look)?;
        Ok(Some(PreparedHere { prepared, bytes: HEADER_BYTES + header.length }))
    }
}
