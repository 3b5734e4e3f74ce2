//! The answers to COPY FROM STDIN and COPY TO STDOUT ("COPY Operations").

use super::{
    Error, Format, Response, Summary,
    codec::{Reader, put_u16},
    exchange::{Event, Exchange, Rows},
};

/// How a COPY begins: `CopyInResponse`, where the server waits for data, or `CopyOutResponse`, where it sends them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyStart {
    /// How the data are written.
    pub format: Format,
    /// The columns in a row.
    pub columns: u16,
}

impl CopyStart {
    /// Reads the payload of either message.
    pub fn parse(payload: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload, "start of a COPY");
        let format = Format::from_code(reader.u8()?.into());
        let format = format.ok_or_else(|| reader.error("an unknown format"))?;
        let columns = reader.u16()?;
        // The columns' formats, which are all the same as the whole's.
        reader.bytes(usize::from(columns) * size_of::<u16>())?;
        reader.end()?;
        Ok(Self { format, columns })
    }

    /// Appends the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.format.code() as u8);
        put_u16(out, self.columns);
        for _ in 0..self.columns {
            put_u16(out, self.format.code());
        }
    }
}

/// Reads up to the point where the server waits for the data of a COPY FROM STDIN. These are then sent with
/// [`encode_copy_data`](super::command::encode_copy_data) and ended with
/// [`encode_copy_done`](super::command::encode_copy_done), whose answer is for
/// [`ResponseReader`](super::ResponseReader).
///
/// After an error what holds for that reader holds here too. A statement that turns out to be no such COPY is
/// [`Error::NotACopy`], after which the connection awaits the next command.
#[derive(Debug, Clone)]
pub struct CopyInReader {
    exchange: Exchange,
    awaited: Option<CopyStart>,
}

impl CopyInReader {
    /// Reads the answer to one `Query`.
    pub fn new() -> Self {
        Self { exchange: Exchange::new(Rows::Skipped, 1), awaited: None }
    }

    /// Makes it ready for the next command's answer.
    pub fn reset(&mut self) {
        *self = Self::new();
    }

    /// Takes what it can from the front of `input`.
    pub fn step(&mut self, input: &mut &[u8]) -> Result<Response<CopyStart>, Error> {
        if let Some(awaited) = self.awaited {
            return Ok(Response::Done(awaited));
        }
        loop {
            let parsed = match self.exchange.step(input)? {
                Event::NeedInput => return Ok(Response::NeedInput),
                Event::CopyIn(payload) => CopyStart::parse(payload),
                Event::End => Err(Error::NotACopy),
                _ => continue,
            };
            match parsed {
                Ok(copy) => self.awaited = Some(copy),
                Err(_) => self.exchange.fail(),
            }
            return parsed.map(Response::Done);
        }
    }
}

impl Default for CopyInReader {
    fn default() -> Self {
        Self::new()
    }
}

/// Reads the answer to a COPY TO STDOUT and passes its data on as they come, cut anywhere.
///
/// What holds for [`super::ResponseReader`] after its end holds here too. A statement that turns out to be no such COPY
/// is [`Error::NotACopy`], after which the connection awaits the next command.
#[derive(Debug, Clone)]
pub struct CopyOutReader {
    exchange: Exchange,
    seen: Seen,
    summary: Summary,
}

/// Whether the server has said that it sends data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Nothing,
    Start,
}

impl CopyOutReader {
    /// Reads the answer to one `Query`.
    pub fn new() -> Self {
        let exchange = Exchange::new(Rows::Skipped, 1);
        Self { exchange, seen: Seen::Nothing, summary: Summary::default() }
    }

    /// Makes it ready for the next command's answer.
    pub fn reset(&mut self) {
        *self = Self::new();
    }

    /// Takes what it can from the front of `input` and hands data to `sink`.
    pub fn step(
        &mut self,
        input: &mut &[u8],
        mut sink: impl FnMut(&[u8]),
    ) -> Result<Response<Summary>, Error> {
        loop {
            match self.exchange.step(input)? {
                Event::NeedInput => return Ok(Response::NeedInput),
                Event::CopyOut => self.seen = Seen::Start,
                Event::CopyData { bytes } => {
                    self.summary.rows += 1;
                    self.summary.row_bytes += bytes as u64;
                }
                Event::CopyPiece(piece) => sink(piece),
                Event::CopyIn(_) => {
                    self.exchange.fail();
                    return Err(Error::CopyNotExpected);
                }
                Event::End if self.seen == Seen::Nothing => {
                    self.exchange.fail();
                    return Err(Error::NotACopy);
                }
                Event::End => {
                    self.summary.notices = self.exchange.notices();
                    self.summary.transaction = self.exchange.transaction();
                    return Ok(Response::Done(self.summary));
                }
                _ => {}
            }
        }
    }
}

impl Default for CopyOutReader {
    fn default() -> Self {
        Self::new()
    }
}
