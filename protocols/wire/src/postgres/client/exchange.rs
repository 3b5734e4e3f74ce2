//! The server's response to a `Query` or `Sync` as a stream of events, shared by the readers that count,
//! collect or pass on.

use crate::postgres::{
    codec::{
        kind,
        message::{self, Header, MAX_GATHERED_PAYLOAD_BYTES},
        report::Report,
        tag::affected_rows,
        transaction::TransactionStatus,
    },
    error::Error,
};

/// How rows are returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowHandling {
    /// Rows are counted and skipped as they arrive, as are other messages that are not needed.
    Skipped,
    /// Complete rows up to a limit, and notices and descriptions.
    Whole { limit_bytes: usize },
}

/// Reads the response to one command.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    rows: RowHandling,
    state: State,
    /// The rest of a payload that is skipped.
    skipped_bytes: usize,
    /// The server's first error, returned when the response has been read.
    refusal: Option<Error>,
    notices: u64,
    transaction: TransactionStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Any message of a response may come.
    Open,
    /// The server sends the data of a COPY.
    CopyingOut,
    /// The COPY's data have ended; its `CommandComplete` follows.
    CopiedOut,
    /// After an error the server skips to the end of the response.
    Refused,
    Ended,
    Failed,
}

pub(crate) enum ExchangeEvent<'a> {
    NeedInput,
    /// A row of this many bytes, which are skipped.
    RowSkipped {
        bytes: usize,
    },
    Row(&'a [u8]),
    /// A message with COPY data of this many bytes, which are skipped.
    CopyData {
        bytes: usize,
    },
    /// The server waits for the data of a COPY.
    CopyIn(&'a [u8]),
    /// A statement has ended that has changed this many rows.
    Affected(u64),
    Parsed,
    Parameters(&'a [u8]),
    Columns(&'a [u8]),
    Notice(&'a [u8]),
    /// The response has been read.
    End,
}

impl Exchange {
    pub(crate) fn new(rows: RowHandling) -> Self {
        Self {
            rows,
            state: State::Open,
            skipped_bytes: 0,
            refusal: None,
            notices: 0,
            transaction: TransactionStatus::Idle,
        }
    }

    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.rows);
    }

    /// Fails the reader, whose caller cannot use an event.
    pub(crate) fn fail(&mut self) {
        self.state = State::Failed;
    }

    pub(crate) fn transaction(&self) -> TransactionStatus {
        self.transaction
    }

    /// The notices so far, kept or not.
    pub(crate) fn notices(&self) -> u64 {
        self.notices
    }

    /// The next event. After an error only [`Self::reset`] helps.
    #[inline]
    pub(crate) fn step<'a>(&mut self, input: &mut &'a [u8]) -> Result<ExchangeEvent<'a>, Error> {
        let event = self.try_step(input);
        if event.is_err() {
            self.fail();
        }
        event
    }

    #[inline]
    fn try_step<'a>(&mut self, input: &mut &'a [u8]) -> Result<ExchangeEvent<'a>, Error> {
        loop {
            if self.skipped_bytes > 0 {
                if input.is_empty() {
                    return Ok(ExchangeEvent::NeedInput);
                }
                let arrived = self.skipped_bytes.min(input.len());
                self.skipped_bytes -= arrived;
                *input = &input[arrived..];
                continue;
            }
            match self.state {
                State::Ended => return Ok(ExchangeEvent::End),
                State::Failed => return Err(Error::NotReset),
                State::Open | State::CopyingOut | State::CopiedOut | State::Refused => {}
            }
            let Some(header) = message::peek(input)? else {
                return Ok(ExchangeEvent::NeedInput);
            };
            self.check_order(header)?;
            let event = if self.streams(header.kind) {
                message::take_header(input);
                self.begin_stream(header)
            } else {
                let Some(payload) = self.take_whole(input, header)? else {
                    return Ok(ExchangeEvent::NeedInput);
                };
                self.message(header.kind, payload)?
            };
            if let Some(event) = event {
                return Ok(event);
            }
        }
    }

    /// Whether a message is read as it arrives.
    #[inline]
    fn streams(&self, kind: u8) -> bool {
        match kind {
            kind::COPY_DATA | kind::PARAMETER_STATUS | kind::NOTIFICATION_RESPONSE => true,
            kind::DATA_ROW | kind::ROW_DESCRIPTION | kind::PARAMETER_DESCRIPTION | kind::NOTICE_RESPONSE => {
                self.rows == RowHandling::Skipped
            }
            _ => false,
        }
    }

    #[inline]
    fn begin_stream<'a>(
        &mut self,
        Header { kind, payload_bytes: bytes }: Header,
    ) -> Option<ExchangeEvent<'a>> {
        self.skipped_bytes = bytes;
        match kind {
            kind::DATA_ROW => Some(ExchangeEvent::RowSkipped { bytes }),
            kind::COPY_DATA => Some(ExchangeEvent::CopyData { bytes }),
            kind::NOTICE_RESPONSE => {
                self.notices += 1;
                None
            }
            _ => None,
        }
    }

    fn take_whole<'a>(&self, input: &mut &'a [u8], header: Header) -> Result<Option<&'a [u8]>, Error> {
        match self.rows {
            RowHandling::Whole { limit_bytes } if header.kind == kind::DATA_ROW => {
                if header.payload_bytes > limit_bytes {
                    return Err(Error::ResultTooLarge { limit: limit_bytes });
                }
                message::take_payload(input, header, limit_bytes)
            }
            _ => message::take_payload(input, header, MAX_GATHERED_PAYLOAD_BYTES),
        }
    }

    /// Refuses a message that cannot come now, before its payload is read.
    #[inline]
    fn check_order(&self, header: Header) -> Result<(), Error> {
        let allowed = match header.kind {
            kind::NOTICE_RESPONSE
            | kind::PARAMETER_STATUS
            | kind::NOTIFICATION_RESPONSE
            | kind::ERROR_RESPONSE => true,
            kind::READY_FOR_QUERY => matches!(self.state, State::Open | State::Refused),
            kind::COPY_DATA | kind::COPY_DONE => self.state == State::CopyingOut,
            // Every row has a count of its columns.
            kind::DATA_ROW => self.state == State::Open && header.payload_bytes >= size_of::<u16>(),
            kind::COMMAND_COMPLETE => matches!(self.state, State::Open | State::CopiedOut),
            kind::ROW_DESCRIPTION
            | kind::EMPTY_QUERY_RESPONSE
            | kind::PARSE_COMPLETE
            | kind::BIND_COMPLETE
            | kind::CLOSE_COMPLETE
            | kind::NO_DATA
            | kind::PARAMETER_DESCRIPTION
            | kind::PORTAL_SUSPENDED
            | kind::COPY_IN_RESPONSE
            | kind::COPY_OUT_RESPONSE => self.state == State::Open,
            _ => false,
        };
        if allowed {
            return Ok(());
        }
        Err(Error::protocol("response", "an unexpected message"))
    }

    fn message<'a>(&mut self, kind: u8, payload: &'a [u8]) -> Result<Option<ExchangeEvent<'a>>, Error> {
        match kind {
            kind::DATA_ROW => return Ok(Some(ExchangeEvent::Row(payload))),
            kind::COMMAND_COMPLETE => return self.complete(payload).map(Some),
            kind::READY_FOR_QUERY => {
                self.transaction = TransactionStatus::parse(payload)?;
                return self.end_answer();
            }
            kind::ERROR_RESPONSE => self.refuse(payload)?,
            kind::NOTICE_RESPONSE => {
                self.notices += 1;
                return Ok(Some(ExchangeEvent::Notice(payload)));
            }
            kind::PARSE_COMPLETE => return Ok(Some(ExchangeEvent::Parsed)),
            kind::PARAMETER_DESCRIPTION => return Ok(Some(ExchangeEvent::Parameters(payload))),
            kind::ROW_DESCRIPTION => return Ok(Some(ExchangeEvent::Columns(payload))),
            kind::COPY_IN_RESPONSE => return Ok(Some(ExchangeEvent::CopyIn(payload))),
            kind::COPY_OUT_RESPONSE => self.state = State::CopyingOut,
            kind::COPY_DONE => self.state = State::CopiedOut,
            // The others report steps that the end of the response confirms, too.
            _ => {}
        }
        Ok(None)
    }

    #[inline]
    fn complete<'a>(&mut self, payload: &[u8]) -> Result<ExchangeEvent<'a>, Error> {
        let rows = affected_rows(payload)?;
        // The tag of a COPY is the same in both directions, but COPY TO changes no rows.
        let copied_out = std::mem::replace(&mut self.state, State::Open) == State::CopiedOut;
        Ok(ExchangeEvent::Affected(if copied_out { 0 } else { rows }))
    }

    #[cold]
    fn refuse(&mut self, payload: &[u8]) -> Result<(), Error> {
        let report = Report::parse(payload)?;
        if report.severity.ends_session() {
            // No ReadyForQuery will follow.
            return Err(report.into());
        }
        if !matches!(self.refusal, Some(Error::Server { .. })) {
            self.refusal = Some(report.into());
        }
        self.state = State::Refused;
        Ok(())
    }

    #[inline]
    fn end_answer<'a>(&mut self) -> Result<Option<ExchangeEvent<'a>>, Error> {
        self.state = State::Ended;
        match self.refusal.take() {
            Some(refusal) => Err(refusal),
            None => Ok(Some(ExchangeEvent::End)),
        }
    }
}
