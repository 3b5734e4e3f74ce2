//! Internal commands: a proxy sends them on its own behalf and does not forward the responses. They reset a
//! session after its client has left, and check whether the server responds.
//!
//! Measured with MariaDB 10.11 and 11.8 and MySQL 8.0: `COM_RESET_CONNECTION` resets variables, temporary
//! tables, locks, statements and the transaction, but neither the default database nor `COM_SET_OPTION`, nor
//! `FOUND_ROWS()`. For settings see [`initial_state`].

use crate::{
    mysql::{
        client::rows::MySqlRowsReader,
        codec::{
            capabilities::Capabilities,
            command::{
                StatementsPerQuery, encode_init_db, encode_multi_statements, encode_ping, encode_query_on,
                encode_reset_connection,
            },
            err::refuse_err,
            ok::OkPacket,
            packet::PacketReader,
        },
        error::Error,
        relay::{
            initial_state::{self, InitialState, SettingValues, SettingsRestore, StateTracking},
            role::ReportedRole,
            session_end::SocketLimits,
            traffic::{MultiStatements, OpenState},
        },
    },
    response::{Response, Row},
};

/// Returns no row, so that `FOUND_ROWS()` is 0. Statements other than SELECT leave it unchanged.
const FIND_NOTHING: &str = "SELECT 1 FROM DUAL WHERE 0";
/// Returns no row if the session has no default database. No command can unset one.
const FIND_DATABASE: &str = "SELECT 1 FROM DUAL WHERE DATABASE() IS NOT NULL";
const MAX_REPLIES: usize = 10;
/// The variables that show whether the server accepts writes. A server reports those that it has.
const ROLE_VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only','super_read_only',\
                              'innodb_read_only','wsrep_on','wsrep_provider')";
const ROLE_STATUS: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_ready','wsrep_local_state')";
/// Refused by servers without Group Replication's table, and without the privilege.
const ROLE_MEMBER: &str = "SELECT 'group_member_state',MEMBER_STATE FROM \
                           performance_schema.replication_group_members WHERE MEMBER_ID=@@server_uuid";
/// A reset has restored the values; this sets the limits of the socket.
const SET_SOCKET_LIMITS: &str = "SET net_write_timeout=@@net_write_timeout,net_retry_count=@@net_retry_count";

/// Reads the responses to internal commands.
#[derive(Debug)]
pub struct InternalCommand {
    replies: [ExpectedReply; MAX_REPLIES],
    /// The number of expected responses, and of those that have been read.
    count: usize,
    at: usize,
    packets: PacketReader,
    rows: MySqlRowsReader,
    refusal: Option<Error>,
    outcome: ResetOutcome,
    /// The status flags behind the last OK.
    status: u16,
    /// The rows of [`InternalCommand::ask_role`].
    role: Vec<Row>,
    purpose: Purpose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Reset,
    Ping,
    Role,
}

/// The state of the session after the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetOutcome {
    Restored,
    /// A client has chosen a default database, and the session had none after login.
    OtherDatabase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedReply {
    /// An OK or an EOF.
    Ok,
    /// The settings after a reset.
    Settings,
    /// An empty result set, unless the state differs.
    NoRows,
    /// Whether the server reports changes of the state.
    Tracking,
    /// Names and values.
    Role,
    /// The same, or an ERR.
    RoleIfAny,
}

impl InternalCommand {
    /// Appends the commands that reset a session to its state after login. All responses of its client must
    /// have been read. `capabilities` are those of the connection.
    pub fn reset(
        capabilities: Capabilities,
        initial_state: &InitialState,
        open_state: OpenState,
        out: &mut Vec<u8>,
    ) -> Result<Self, Error> {
        let mut command = Self { purpose: Purpose::Reset, ..Self::new(capabilities) };
        encode_reset_connection(out);
        command.expect(ExpectedReply::Ok);
        if open_state.statements == MultiStatements::Changed {
            let several = capabilities.contains(Capabilities::MULTI_STATEMENTS);
            encode_multi_statements(
                out,
                if several { StatementsPerQuery::Several } else { StatementsPerQuery::One },
            );
            command.expect(ExpectedReply::Ok);
        }
        match &initial_state.settings {
            SettingsRestore::AtLogin(values) => {
                // Not before the first reset: a change of `autocommit` would commit the client's open
                // transaction.
                encode_query_on(capabilities, out, initial_state::DISTURB)?;
                command.expect(ExpectedReply::Ok);
                encode_reset_connection(out);
                command.expect(ExpectedReply::Ok);
                initial_state::encode_query_settings(capabilities, out)?;
                command.expect(ExpectedReply::Settings);
                encode_query_on(capabilities, out, &values.set_statement())?;
                command.expect(ExpectedReply::Ok);
            }
            SettingsRestore::Restored(None) => {}
            SettingsRestore::Restored(Some(statement)) => {
                encode_query_on(capabilities, out, statement)?;
                command.expect(ExpectedReply::Ok);
            }
        }
        if open_state.socket_limits == SocketLimits::Changed {
            encode_query_on(capabilities, out, SET_SOCKET_LIMITS)?;
            command.expect(ExpectedReply::Ok);
        }
        match &initial_state.database {
            Some(database) => {
                encode_init_db(out, database)?;
                command.expect(ExpectedReply::Ok);
                encode_query_on(capabilities, out, FIND_NOTHING)?;
            }
            None => encode_query_on(capabilities, out, FIND_DATABASE)?,
        }
        command.expect(ExpectedReply::NoRows);
        if initial_state.tracking == StateTracking::On {
            encode_query_on(capabilities, out, initial_state::TRACK)?;
            command.expect(ExpectedReply::Tracking);
        }
        Ok(command)
    }

    /// Appends a ping.
    pub fn ping(capabilities: Capabilities, out: &mut Vec<u8>) -> Self {
        let mut command = Self::new(capabilities);
        encode_ping(out);
        command.expect(ExpectedReply::Ok);
        command
    }

    /// Appends queries for the role of the server. A session that was reset stays as it was. [`Self::role`] has the
    /// result.
    pub fn ask_role(capabilities: Capabilities, out: &mut Vec<u8>) -> Result<Self, Error> {
        let mut command = Self { purpose: Purpose::Role, ..Self::new(capabilities) };
        for (sql, reply) in [
            (ROLE_VARIABLES, ExpectedReply::Role),
            (ROLE_STATUS, ExpectedReply::Role),
            (ROLE_MEMBER, ExpectedReply::RoleIfAny),
            (FIND_NOTHING, ExpectedReply::NoRows),
        ] {
            encode_query_on(capabilities, out, sql)?;
            command.expect(reply);
        }
        Ok(command)
    }

    /// What [`Self::ask_role`] has shown; `None` for any other command.
    pub fn role(&self) -> Option<ReportedRole> {
        (self.purpose == Purpose::Role).then(|| ReportedRole::of(&self.role))
    }

    /// Sends nothing and expects nothing except a final ERR of the server.
    pub fn nothing() -> Self {
        Self::new(Capabilities::default())
    }

    fn new(capabilities: Capabilities) -> Self {
        Self {
            replies: [ExpectedReply::Ok; MAX_REPLIES],
            count: 0,
            at: 0,
            packets: PacketReader::for_response(),
            rows: initial_state::reader(capabilities),
            refusal: None,
            outcome: ResetOutcome::Restored,
            status: 0,
            role: Vec::new(),
            purpose: Purpose::Ping,
        }
    }

    /// The status flags after a reset; `None` if the command resets nothing.
    pub fn reset_status(&self) -> Option<u16> {
        (self.purpose == Purpose::Reset).then_some(self.status)
    }

    fn expect(&mut self, reply: ExpectedReply) {
        self.replies[self.count] = reply;
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
        initial_state: &mut Option<InitialState>,
    ) -> Result<Response<ResetOutcome>, Error> {
        if self.count == 0 {
            return self.read_unsolicited(input);
        }
        while self.at < self.count {
            let reply = self.replies[self.at];
            let answered = match reply {
                ExpectedReply::Ok => self.read_ok(input),
                ExpectedReply::Tracking => self.read_tracking(input, initial_state),
                ExpectedReply::Settings
                | ExpectedReply::NoRows
                | ExpectedReply::Role
                | ExpectedReply::RoleIfAny => self.rows.step(input).and_then(|rows| match rows {
                    Response::NeedInput => Ok(Response::NeedInput),
                    Response::Done(rows) => self.learn(reply, rows, initial_state),
                }),
            };
            match answered {
                Ok(Response::NeedInput) => return Ok(Response::NeedInput),
                Ok(Response::Done(())) => {}
                Err(Error::Server { .. }) if reply == ExpectedReply::RoleIfAny => {}
                Err(refusal @ Error::Server { .. }) => {
                    self.refusal.get_or_insert(refusal);
                }
                Err(error) => return Err(error),
            }
            self.at += 1;
            self.packets = PacketReader::for_response();
            self.rows.reset();
        }
        self.refusal.take().map_or(Ok(Response::Done(self.outcome)), Err)
    }

    fn read_ok(&mut self, input: &mut &[u8]) -> Result<Response<()>, Error> {
        let Some(payload) = self.packets.take(input, "response to the proxy")? else {
            return Ok(Response::NeedInput);
        };
        refuse_err(payload)?;
        self.status = OkPacket::parse_any(payload)?.status;
        Ok(Response::Done(()))
    }

    fn read_tracking(
        &mut self,
        input: &mut &[u8],
        initial_state: &mut Option<InitialState>,
    ) -> Result<Response<()>, Error> {
        let Some(tracking) = StateTracking::read(&mut self.packets, input)? else {
            return Ok(Response::NeedInput);
        };
        if let Some(initial_state) = initial_state {
            initial_state.tracking = tracking;
        }
        Ok(Response::Done(()))
    }

    fn learn(
        &mut self,
        reply: ExpectedReply,
        rows: Vec<Row>,
        initial_state: &mut Option<InitialState>,
    ) -> Result<Response<()>, Error> {
        if reply == ExpectedReply::NoRows {
            if !rows.is_empty() {
                self.outcome = ResetOutcome::OtherDatabase;
            }
            return Ok(Response::Done(()));
        }
        if matches!(reply, ExpectedReply::Role | ExpectedReply::RoleIfAny) {
            self.role.extend(rows);
            return Ok(Response::Done(()));
        }
        let reset = SettingValues::read(rows)?;
        if let Some(InitialState { settings, .. }) = initial_state
            && let SettingsRestore::AtLogin(login) = settings
        {
            *settings = SettingsRestore::Restored(login.restore_statement(&reset));
        }
        Ok(Response::Done(()))
    }

    fn read_unsolicited(&mut self, input: &mut &[u8]) -> Result<Response<ResetOutcome>, Error> {
        match self.read_ok(input)? {
            Response::NeedInput => Ok(Response::NeedInput),
            Response::Done(()) => Err(Error::protocol("response to the proxy", "it is unsolicited")),
        }
    }
}
