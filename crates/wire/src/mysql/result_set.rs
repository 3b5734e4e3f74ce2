//! `ProtocolText::Resultset` and its binary twin as a stream of events, shared by the readers that count or collect.

use super::{
    Capabilities, Error, ResponseKind,
    codec::Reader,
    err::refuse_err,
    ok::OkPacket,
    packet::{MAX_PAYLOAD_BYTES, Packets},
};

/// `LOCAL INFILE Request`: the server asks the client for a file.
const LOCAL_INFILE: u8 = 0xfb;
/// "Binary Protocol Resultset Row": every row begins with it.
const BINARY_ROW: u8 = 0x00;

/// Reads the answer to one command, any number of result sets and counts of changed rows.
#[derive(Debug, Clone)]
pub(super) struct ResultSets {
    kind: ResponseKind,
    capabilities: Capabilities,
    packets: Packets,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Head,
    Columns { left: u16, total: u16 },
    EndOfColumns { total: u16 },
    Rows { columns: u16 },
    Ended,
    Failed,
}

pub(super) enum Event<'a> {
    NeedInput,
    Row {
        payload: &'a [u8],
        columns: u16,
    },
    /// A statement has ended that may have changed this many rows.
    Affected(u64),
    End,
}

impl ResultSets {
    pub(super) fn new(kind: ResponseKind, capabilities: Capabilities) -> Self {
        Self { kind, capabilities, packets: first_packets(), state: State::Head }
    }

    pub(super) fn reset(&mut self) {
        self.packets = first_packets();
        self.state = State::Head;
    }

    /// Refuses to go on, for a reader that cannot make sense of a row.
    pub(super) fn fail(&mut self) {
        self.state = State::Failed;
    }

    /// The next event; after an error only [`Self::reset`] helps.
    pub(super) fn step<'a>(&mut self, input: &mut &'a [u8]) -> Result<Event<'a>, Error> {
        let event = self.try_step(input);
        if event.is_err() {
            self.fail();
        }
        event
    }

    fn try_step<'a>(&mut self, input: &mut &'a [u8]) -> Result<Event<'a>, Error> {
        loop {
            match self.state {
                State::Ended => return Ok(Event::End),
                State::Failed => return Err(Error::NotReset),
                _ => {}
            }
            let Some(payload) = self.packets.take(input, "result")? else {
                return Ok(Event::NeedInput);
            };
            refuse_err(payload)?;
            if let Some(event) = self.packet(payload)? {
                return Ok(event);
            }
        }
    }

    fn packet<'a>(&mut self, payload: &'a [u8]) -> Result<Option<Event<'a>>, Error> {
        match self.state {
            State::Head if OkPacket::is(payload) => Ok(Some(self.end_statement(OkPacket::parse(payload)?))),
            State::Head => {
                let total = column_count(payload)?;
                self.state = State::Columns { left: total, total };
                Ok(None)
            }
            State::Columns { left, total } => {
                self.state = match left - 1 {
                    0 if self.capabilities.contains(Capabilities::DEPRECATE_EOF) => {
                        State::Rows { columns: total }
                    }
                    0 => State::EndOfColumns { total },
                    left => State::Columns { left, total },
                };
                Ok(None)
            }
            State::EndOfColumns { total } => {
                OkPacket::parse_eof(payload)?;
                self.state = State::Rows { columns: total };
                Ok(None)
            }
            State::Rows { .. } if OkPacket::ends_rows(payload, self.capabilities) => {
                let end = OkPacket::parse_end_of_rows(payload, self.capabilities)?;
                Ok(Some(self.end_statement(end)))
            }
            State::Rows { columns } => {
                if self.kind == ResponseKind::Binary && payload.first() != Some(&BINARY_ROW) {
                    return Err(Error::Protocol { message: "row", reason: "wrong first byte" });
                }
                Ok(Some(Event::Row { payload, columns }))
            }
            State::Ended | State::Failed => Err(Error::NotReset),
        }
    }

    fn end_statement<'a>(&mut self, end: OkPacket) -> Event<'a> {
        self.state = if end.more_results_exist() { State::Head } else { State::Ended };
        Event::Affected(end.affected_rows)
    }
}

/// The client's command had number 0.
fn first_packets() -> Packets {
    Packets::new(1, MAX_PAYLOAD_BYTES)
}

fn column_count(payload: &[u8]) -> Result<u16, Error> {
    let mut reader = Reader::new(payload, "result");
    if reader.peek() == Some(LOCAL_INFILE) {
        return Err(reader.error("it asks for a local file, which was not offered"));
    }
    let count = reader.lenenc_int()?;
    reader.end()?;
    // Servers allow 4096; the protocol's other counts of columns have 16 bits.
    match u16::try_from(count) {
        Ok(count @ 1..) => Ok(count),
        _ => Err(reader.error("an impossible number of columns")),
    }
}
