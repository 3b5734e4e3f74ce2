//! What a [`SessionFollower`](super::SessionFollower) learns from the relay: how each response ended, and
//! where commands start.

use crate::relay::Goodbye;

use super::{
    Answer, Error, HEADER_BYTES, Header, LOOK_BYTES, MultiStatements, OkPacket, Prepared, Relay, Transaction,
    Upward, broken, packet,
};

/// What is recorded for the session follower.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The responses that have ended, in order.
    ended: Vec<Ended>,
    /// The last OK or EOF of the current response, or its ERR.
    end: End,
    /// The last insert id of the current response.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in super::super) struct Ended {
    pub(in super::super) end: End,
    /// 0 if none was reported.
    pub(in super::super) insert_id: u64,
}

/// How a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in super::super) enum End {
    /// Without an OK, EOF or ERR.
    #[default]
    Silent,
    Said(OkPacket),
    Refused,
}

/// The next event in the client's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Step {
    /// More input is needed.
    Waits,
    /// This many bytes of the current message.
    Goes(usize),
    /// The header of another packet of the current message.
    Header,
    /// A command that has not started yet.
    Command(u8, Header),
}

/// A successful response to `COM_STMT_PREPARE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct PreparedHere {
    pub(in super::super) prepared: Prepared,
    /// The length of the packet with its header.
    pub(in super::super) bytes: usize,
}

impl Relay {
    /// Records events for a session follower, which then reads the client's bytes in place of
    /// [`Self::from_client`]. The server's bytes stop before each successful response to `COM_STMT_PREPARE`.
    #[must_use]
    pub fn watched(mut self) -> Self {
        self.watch = Some(Watch::default());
        self
    }

    /// Restores the state of `COM_SET_OPTION` on another connection.
    pub fn set_statements(&mut self, statements: MultiStatements) {
        self.statements = statements;
    }

    /// Sets whether a transaction is open, as the server reported it to the proxy.
    pub fn set_transaction(&mut self, transaction: Transaction) {
        self.transaction = transaction;
    }

    /// Reads the next event from the client's bytes.
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

    /// Starts the command that [`Self::step_client`] returned. `left_bytes` of it follow what was sent in its
    /// place.
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

    /// Whether the client's last message is complete.
    pub(in super::super) fn client_is_between_messages(&self) -> bool {
        self.up.is_between_messages()
    }

    /// Whether a command is, or may turn out to be, one for [`Self::kill`].
    pub(in super::super) fn may_be_kill(&self, header: Header, payload: &[u8]) -> bool {
        self.stops_before(header, payload)
    }

    /// The responses that have ended since the last call.
    pub(in super::super) fn take_ended(&mut self) -> Vec<Ended> {
        self.watch.as_mut().map(|watch| std::mem::take(&mut watch.ended)).unwrap_or_default()
    }

    /// Takes the next response if it is a successful one to `COM_STMT_PREPARE`.
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
