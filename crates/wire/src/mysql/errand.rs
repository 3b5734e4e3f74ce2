//! Commands that one between client and server runs on its own account, and their answers, which nobody is passed: the
//! reset when a client has left.
//!
//! Measured with MariaDB 10.11 and 11.8 and `MySQL` 8.0: `COM_RESET_CONNECTION` undoes a session's variables, tables,
//! locks, statements and transaction, but neither the default database nor `COM_SET_OPTION`, nor what `FOUND_ROWS()`
//! says; of the settings see [`super::beginning`].

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

/// Finds nothing, so that `FOUND_ROWS()` says 0: statements that are no SELECT leave it as it was.
const FIND_NOTHING: &str = "SELECT 1 FROM DUAL WHERE 0";
/// Finds nothing, too, in a session without a database; no command could bring one back to having none.
const FIND_DATABASE: &str = "SELECT 1 FROM DUAL WHERE DATABASE() IS NOT NULL";
const MAX_PARTS: usize = 8;

/// Reads the answers to what was sent on one's own account.
#[derive(Debug)]
pub struct Errand {
    parts: [Part; MAX_PARTS],
    /// How many parts there are, and how many of them are answered.
    count: usize,
    at: usize,
    packets: Packets,
    rows: RowsReader,
    refusal: Option<Error>,
    condition: Condition,
}

/// How a session is when all is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// As it was asked to be.
    AsAsked,
    /// A client has chosen a database, and the session had none at its beginning.
    OtherDatabase,
}

/// A command's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// An OK or an EOF.
    Word,
    /// The settings as a reset has left them.
    Settings,
    /// No rows, where all is as it should be.
    Nothing,
}

impl Errand {
    /// Appends what brings a session back to its beginning; it must have been left with all answered. `capabilities` are
    /// those of the connection.
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
                // Not before the first reset: a change of `autocommit` would commit what a client has left open.
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

    /// Appends the question whether the server is there.
    pub fn ping(capabilities: Capabilities, out: &mut Vec<u8>) -> Self {
        let mut errand = Self::new(capabilities);
        encode_ping(out);
        errand.expect(Part::Word);
        errand
    }

    /// Nothing is asked, and nothing may come but the server's last words.
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

    /// Takes whole packets from the front of `input`; how the session is, once all is answered. The server's refusal is
    /// returned only then, so that the connection awaits the next command. After any other error it is of no more use. Of
    /// [`Self::nothing`] there is no end.
    ///
    /// What a connection's first reset shows is kept in `beginning`.
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
