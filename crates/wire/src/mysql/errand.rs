//! Internal commands: a proxy sends them on its own behalf and does not forward the responses. They reset a
//! session after its client has left, and check whether the server responds.
//!
//! Measured with MariaDB 10.11 and 11.8 and MySQL 8.0: `COM_RESET_CONNECTION` resets variables, temporary
//! tables, locks, statements and the transaction, but neither the default database nor `COM_SET_OPTION`, nor
//! `FOUND_ROWS()`. For settings see [`super::initial_state`].

use super::{
    Capabilities, Error, Response, Row, RowsReader, Statements,
    beginning::{self, Beginning, Settings, Values},
    command::{
        encode_init_db, encode_multi_statements, encode_ping, encode_query_on, encode_reset_connection,
    },
    err::refuse_err,
    ok::OkPacket,
    packet::Packets,
    relay::{MultiStatements, Remains},
};

/// Returns no row, so that `FOUND_ROWS()` is 0. Statements other than SELECT leave it unchanged.
const FIND_NOTHING: &str = "SELECT 1 FROM DUAL WHERE 0";
/// Returns no row if the session has no default database. No command can unset one.
const FIND_DATABASE: &str = "SELECT 1 FROM DUAL WHERE DATABASE() IS NOT NULL";
const MAX_PARTS: usize = 8;

/// Reads the responses to internal commands.
#[derive(Debug)]
pub struct Errand {
    parts: [Part; MAX_PARTS],
    /// The number of expected responses, and of those that have been read.
    count: usize,
    at: usize,
    packets: Packets,
    rows: RowsReader,
    refusal: Option<Error>,
    condition: Condition,
}

/// The state of the session after the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    AsAsked,
    /// A client has chosen a default database, and the session had none after login.
    OtherDatabase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// An OK or an EOF.
    Word,
    /// The settings after a reset.
    Settings,
    /// An empty result set, unless the state differs.
    Nothing,
}

impl Errand {
    /// Appends the commands that reset a session to its state after login. All responses of its client must
    /// have been read. `capabilities` are those of the connection.
    pub fn reset(
        capabilities: Capabilities,
        beginning: &Beginning,
        remains: Remains,
        out: &mut Vec<u8>,
    ) -> Result<Self, Error> {
        let mut errand = Self::new(capabilities);
        encode_reset_connection(out);
        errand.expect(Part::Word);
        if remains.statements == MultiStatements::Changed {
            let several = capabilities.contains(Capabilities::MULTI_STATEMENTS);
            encode_multi_statements(out, if several { Statements::Several } else { Statements::One });
            errand.expect(Part::Word);
        }
        match &beginning.settings {
            Settings::AtLogin(values) => {
                // Not before the first reset: a change of `autocommit` would commit the client's open
                // transaction.
                encode_query_on(capabilities, out, beginning::DISTURB)?;
                errand.expect(Part::Word);
                encode_reset_connection(out);
                errand.expect(Part::Word);
                beginning::ask(capabilities, out)?;
                errand.expect(Part::Settings);
                encode_query_on(capabilities, out, &values.making())?;
                errand.expect(Part::Word);
            }
            Settings::Restored(None) => {}
            Settings::Restored(Some(statement)) => {
                encode_query_on(capabilities, out, statement)?;
                errand.expect(Part::Word);
            }
        }
        match &beginning.database {
            Some(database) => {
                encode_init_db(out, database)?;
                errand.expect(Part::Word);
                encode_query_on(capabilities, out, FIND_NOTHING)?;
            }
            None => encode_query_on(capabilities, out, FIND_DATABASE)?,
        }
        errand.expect(Part::Nothing);
        Ok(errand)
    }

    /// Appends a ping.
    pub fn ping(capabilities: Capabilities, out: &mut Vec<u8>) -> Self {
        let mut errand = Self::new(capabilities);
        encode_ping(out);
        errand.expect(Part::Word);
        errand
    }

    /// Sends nothing and expects nothing except a final ERR of the server.
    pub fn nothing() -> Self {
        Self::new(Capabilities::default())
    }

    fn new(capabilities: Capabilities) -> Self {
        Self {
            parts: [Part::Word; MAX_PARTS],
            count: 0,
            at: 0,
            packets: Packets::answer(),
            rows: beginning::reader(capabilities),
            refusal: None,
            condition: Condition::AsAsked,
        }
    }

    fn expect(&mut self, part: Part) {
        self.parts[self.count] = part;
        self.count += 1;
    }

    /// Takes whole packets from the front of `input` and returns the outcome once all responses have been
    /// read. A refusal by the server is returned only then, so that the connection awaits the next command.
    /// After any other error the connection is unusable. [`Self::nothing`] never completes.
    ///
    /// What the first reset of a connection shows is stored in `initial_state`.
    pub fn step(
        &mut self,
        input: &mut &[u8],
        beginning: &mut Option<Beginning>,
    ) -> Result<Response<Condition>, Error> {
        if self.count == 0 {
            return self.unasked(input);
        }
        while self.at < self.count {
            let part = self.parts[self.at];
            let answered = match part {
                Part::Word => self.word(input),
                Part::Settings | Part::Nothing => self.rows.step(input).and_then(|rows| match rows {
                    Response::NeedInput => Ok(Response::NeedInput),
                    Response::Done(rows) => self.learn(part, rows, beginning),
                }),
            };
            match answered {
                Ok(Response::NeedInput) => return Ok(Response::NeedInput),
                Ok(Response::Done(())) => {}
                Err(refusal @ Error::Server { .. }) => {
                    self.refusal.get_or_insert(refusal);
                }
                Err(error) => return Err(error),
            }
            self.at += 1;
            self.packets = Packets::answer();
            self.rows.reset();
        }
        self.refusal.take().map_or(Ok(Response::Done(self.condition)), Err)
    }

    fn word(&mut self, input: &mut &[u8]) -> Result<Response<()>, Error> {
        let Some(payload) = self.packets.take(input, "answer to the proxy")? else {
            return Ok(Response::NeedInput);
        };
        refuse_err(payload)?;
        OkPacket::parse_any(payload)?;
        Ok(Response::Done(()))
    }

    fn learn(
        &mut self,
        part: Part,
        rows: Vec<Row>,
        beginning: &mut Option<Beginning>,
    ) -> Result<Response<()>, Error> {
        if part == Part::Nothing {
            if !rows.is_empty() {
                self.condition = Condition::OtherDatabase;
            }
            return Ok(Response::Done(()));
        }
        let reset = Values::read(rows)?;
        if let Some(Beginning { settings, .. }) = beginning
            && let Settings::AtLogin(login) = settings
        {
            *settings = Settings::Restored(login.restoring(&reset));
        }
        Ok(Response::Done(()))
    }

    fn unasked(&mut self, input: &mut &[u8]) -> Result<Response<Condition>, Error> {
        match self.word(input)? {
            Response::NeedInput => Ok(Response::NeedInput),
            Response::Done(()) => {
                Err(Error::Protocol { message: "answer to the proxy", reason: "nothing was asked" })
            }
        }
    }
}
