//! Text and binary result sets as a stream of events, shared by the readers that count or collect.

use crate::{
    mysql::{
        codec::{
            capabilities::Capabilities,
            err::refuse_err,
            ok::OkPacket,
            packet::{MAX_MESSAGE_BYTES, MAX_PART_BYTES, PacketReader, PacketStart},
            result_head::{Definitions, LOCAL_INFILE, ResultHead, is_row},
        },
        error::Error,
    },
    response::ResponseKind,
};

/// "Binary Protocol Resultset Row": the first byte of every row.
const BINARY_ROW: u8 = 0x00;

/// Reads the response to one command: any number of result sets and counts of changed rows.
#[derive(Debug, Clone)]
pub(crate) struct ResultSets {
    kind: ResponseKind,
    capabilities: Capabilities,
    packets: PacketReader,
    row_limit_bytes: usize,
    state: State,
    status: u16,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Head,
    Columns {
        left: u16,
        total: u16,
    },
    EndOfColumns {
        total: u16,
    },
    Rows {
        columns: u16,
    },
    /// Within a row that has not arrived completely.
    Row {
        columns: u16,
        packet: RowPacket,
    },
    Ended,
    Failed,
}

/// The packet of a row that is being read.
#[derive(Debug, Clone, Copy)]
struct RowPacket {
    length: usize,
    left: usize,
    /// The row's length up to the end of this packet.
    row: usize,
}

pub(crate) enum ResultEvent<'a> {
    NeedInput,
    /// A part of a row, as much as has arrived.
    Row {
        part: &'a [u8],
        columns: u16,
        ends: RowEnds,
    },
    /// A statement has ended that may have changed this many rows.
    Affected(u64),
    End,
}

/// Whether a part is the last one of its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowEnds {
    Here,
    Later,
}

impl ResultSets {
    pub(crate) fn new(kind: ResponseKind, capabilities: Capabilities) -> Self {
        let packets = PacketReader::for_response();
        Self {
            kind,
            capabilities,
            packets,
            row_limit_bytes: MAX_MESSAGE_BYTES,
            state: State::Head,
            status: 0,
        }
    }

    /// The status flags at the end of the last result.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    pub(crate) fn limit_rows(&mut self, limit_bytes: usize) {
        self.row_limit_bytes = limit_bytes;
    }

    pub(crate) fn reset(&mut self) {
        self.packets = PacketReader::for_response();
        self.state = State::Head;
    }

    /// Fails the reader, whose caller cannot use a row.
    pub(crate) fn fail(&mut self) {
        self.state = State::Failed;
    }

    /// The next event. After an error only [`Self::reset`] helps.
    pub(crate) fn step<'a>(&mut self, input: &mut &'a [u8]) -> Result<ResultEvent<'a>, Error> {
        let event = self.try_step(input);
        if event.is_err() {
            self.fail();
        }
        event
    }

    fn try_step<'a>(&mut self, input: &mut &'a [u8]) -> Result<ResultEvent<'a>, Error> {
        loop {
            match self.state {
                State::Ended => return Ok(ResultEvent::End),
                State::Failed => return Err(Error::NotReset),
                State::Rows { columns } => {
                    let Some(packet_start) = PacketReader::peek(input) else {
                        return Ok(ResultEvent::NeedInput);
                    };
                    if packet_start.first.is_none_or(|first| is_row(first, packet_start.length)) {
                        return self.begin_row(packet_start, columns, input);
                    }
                }
                State::Row { columns, packet } => return self.continue_row(columns, packet, input),
                State::Head | State::Columns { .. } | State::EndOfColumns { .. } => {}
            }
            let Some(payload) = self.packets.take(input, "result")? else {
                return Ok(ResultEvent::NeedInput);
            };
            refuse_err(payload)?;
            if let Some(event) = self.packet(payload)? {
                return Ok(event);
            }
        }
    }

    /// Takes a packet that is not a row.
    fn packet<'a>(&mut self, payload: &[u8]) -> Result<Option<ResultEvent<'a>>, Error> {
        match self.state {
            State::Head if OkPacket::is(payload) => Ok(Some(self.end_statement(OkPacket::parse(payload)?))),
            State::Head => {
                no_file(payload)?;
                let ResultHead { columns: total, definitions } =
                    ResultHead::parse(payload, self.capabilities)?;
                self.state = match definitions {
                    Definitions::Follow => State::Columns { left: total, total },
                    Definitions::LeftOut => self.after_columns(total),
                };
                Ok(None)
            }
            State::Columns { left, total } => {
                self.state = match left - 1 {
                    0 => self.after_columns(total),
                    left => State::Columns { left, total },
                };
                Ok(None)
            }
            State::EndOfColumns { total } => {
                OkPacket::parse_eof(payload)?;
                self.state = State::Rows { columns: total };
                Ok(None)
            }
            State::Rows { .. } => {
                let end = OkPacket::parse_end_of_rows(payload, self.capabilities)?;
                Ok(Some(self.end_statement(end)))
            }
            State::Row { .. } | State::Ended | State::Failed => Err(Error::NotReset),
        }
    }

    fn after_columns(&self, total: u16) -> State {
        if self.capabilities.contains(Capabilities::DEPRECATE_EOF) {
            State::Rows { columns: total }
        } else {
            State::EndOfColumns { total }
        }
    }

    fn begin_row<'a>(
        &mut self,
        packet_start: PacketStart,
        columns: u16,
        input: &mut &'a [u8],
    ) -> Result<ResultEvent<'a>, Error> {
        if self.kind == ResponseKind::Binary && packet_start.first != Some(BINARY_ROW) {
            return Err(Error::protocol("row", "wrong first byte"));
        }
        match self.row_packet(0, input)? {
            Some(packet) => Ok(self.row(columns, packet, input)),
            None => Ok(ResultEvent::NeedInput),
        }
    }

    fn continue_row<'a>(
        &mut self,
        columns: u16,
        packet: RowPacket,
        input: &mut &'a [u8],
    ) -> Result<ResultEvent<'a>, Error> {
        if packet.left > 0 || packet.length < MAX_PART_BYTES {
            return Ok(self.row(columns, packet, input));
        }
        match self.row_packet(packet.row, input)? {
            Some(next) => Ok(self.row(columns, next, input)),
            None => Ok(ResultEvent::NeedInput),
        }
    }

    /// The next packet of a row, with `row` bytes before it. A row that is too long is refused before it
    /// arrives.
    fn row_packet(&mut self, row: usize, input: &mut &[u8]) -> Result<Option<RowPacket>, Error> {
        let Some(length) = self.packets.begin(input, "row")? else {
            return Ok(None);
        };
        let row = row + length;
        if row > self.row_limit_bytes {
            return Err(Error::PacketTooLarge { length: row, limit: self.row_limit_bytes });
        }
        Ok(Some(RowPacket { length, left: length, row }))
    }

    /// The part of a row's packet that has arrived.
    fn row<'a>(&mut self, columns: u16, mut packet: RowPacket, input: &mut &'a [u8]) -> ResultEvent<'a> {
        let (part, rest) = input.split_at(packet.left.min(input.len()));
        *input = rest;
        packet.left -= part.len();
        if packet.left == 0 && packet.length < MAX_PART_BYTES {
            self.state = State::Rows { columns };
            return ResultEvent::Row { part, columns, ends: RowEnds::Here };
        }
        self.state = State::Row { columns, packet };
        if part.is_empty() {
            ResultEvent::NeedInput
        } else {
            ResultEvent::Row { part, columns, ends: RowEnds::Later }
        }
    }

    fn end_statement<'a>(&mut self, end: OkPacket) -> ResultEvent<'a> {
        self.status = end.status;
        self.state = if end.more_results_exist() { State::Head } else { State::Ended };
        ResultEvent::Affected(end.affected_rows)
    }
}

fn no_file(payload: &[u8]) -> Result<(), Error> {
    if payload.first() == Some(&LOCAL_INFILE) {
        return Err(Error::protocol("result", "it requests a local file, which was not offered"));
    }
    Ok(())
}
