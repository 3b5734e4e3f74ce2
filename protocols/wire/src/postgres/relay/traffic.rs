//! Tracks the traffic between a client and a server that a proxy forwards: where messages start and end,
//! which replies are pending, and whether another client could take over the server connection.
//!
//! Each direction has one framer. Its messages are shown to the observers: the [`DatabaseCommandScanner`] and the
//! [`RemainsObserver`] and, in transaction pooling, the [`SessionFollower`]. Only the follower may delay a message, or insert one before it. Of
//! the server's messages, the relay itself reads the payloads of `ReadyForQuery`, `ParameterStatus` and
//! `NotificationResponse`.

use crate::{
    postgres::{
        codec::{
            kind,
            message::{self, Header, MAX_GATHERED_PAYLOAD_BYTES},
            parameters::{AssumedSetting, Parameters, parse_parameter_status},
            text_rules::TextEncoding,
            transaction::TransactionStatus,
        },
        error::Error,
        relay::{
            backend_model::{Outlook, Sent, SentKind},
            database_commands::{DatabaseCommandScanner, PreparedDatabaseCommands},
            framer::Framer,
            session_end::{CustomSettings, SessionEndObserver},
            session_follower::{
                Followed, FollowedModel, MessageAction, ReplyAction, SessionFollower, needed_bytes,
                write_probe,
            },
            session_remains::RemainsObserver,
        },
        server::{write_parameter_status, write_ready_for_query},
        sql::effects::Remains,
    },
    relay::{Departure, Goodbye, RoleDoubt, SessionProgress, Vacate},
};

/// The error of a server that accepts no writes, or of a transaction that does not (`read_only_sql_transaction`).
const READ_ONLY: &[u8] = b"\0C25006\0";
/// Enough of an error for its SQL state, which follows the severity, even if that is translated.
const STATE_BYTES: usize = 64;
/// A process ID in a message.
const PROCESS_BYTES: usize = size_of::<u32>();

/// One session between a client and a server, both logged in.
#[derive(Debug, Default)]
pub struct PostgresRelay {
    client_framer: Framer,
    server_framer: Framer,
    databases: DatabaseCommandScanner,
    /// In session pooling. In transaction pooling they move with the client.
    about_databases: PreparedDatabaseCommands,
    remains: RemainsObserver,
    session_end: SessionEndObserver,
    sync_hold: SyncHold,
    model: FollowedModel,
    /// Whether the current message of the server is not forwarded.
    drops: bool,
    /// Whether the next message of the server was read already, and is forwarded.
    forwards_next: bool,
    /// Whether the server's last message was an error. If it was, a proxy need not report another one.
    error_was_last: bool,
    role_doubt: RoleDoubt,
    own: Option<ProcessAlias>,
    /// Positions in the last bytes read where the server named the client's server process.
    named_at: Vec<usize>,
}

/// Whether the client's messages after a `Sync` must wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum SyncHold {
    #[default]
    None,
    /// The `Sync` has not come yet.
    AfterNext,
    Holding,
}

/// What to do with a client's bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct ClientBytes {
    /// The number of bytes to forward, from the front.
    pub pass_bytes: usize,
    /// Messages to send to the server next. If there are any, the rest must be processed again; otherwise it waits for
    /// more input.
    pub insert: Vec<u8>,
    /// Databases that must have no other connections before the bytes are forwarded.
    pub exclusive: Vec<Vacate>,
    pub goodbye: Goodbye,
}

/// What to do with a server's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerBytes {
    /// The number of bytes to forward, from the front.
    pub pass_bytes: usize,
    /// The number of bytes behind those to discard. If 0, the rest waits for more input.
    pub skip_bytes: usize,
    /// What the client gets in place of the discarded bytes.
    pub insert: Vec<u8>,
}

/// The process ID that the proxy gave the client, and the one that the server uses.
#[derive(Debug, Clone, Copy)]
struct ProcessAlias {
    told: [u8; PROCESS_BYTES],
    known: [u8; PROCESS_BYTES],
}

/// A replacement for bytes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patch {
    /// The position of the bytes to replace.
    pub at: usize,
    /// The replacement.
    pub bytes: [u8; PROCESS_BYTES],
}

/// The state of a session after its client has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    /// All responses were read; the server awaits commands.
    Clean(TransactionStatus),
    /// What the server sends next is unknown, for this reason.
    Unknown(&'static str),
}

impl PostgresRelay {
    pub fn new() -> Self {
        Self::default()
    }

    /// For a client that has its connection until it leaves.
    pub fn unpooled() -> Self {
        let session_end = SessionEndObserver::new(CustomSettings::Observed);
        Self { session_end, ..Self::default() }
    }

    /// Why the connection cannot be handed on: only the end of the session undoes what its client has done.
    pub fn ends_with_client(&self) -> Option<&'static str> {
        self.session_end.reason()
    }

    /// From now on, [`Self::remains`] is known.
    pub fn observe_remains(&mut self) {
        self.remains = RemainsObserver::observing();
    }

    /// What the client's texts may have left on the connection.
    pub fn remains(&self) -> Remains {
        self.remains.remains()
    }

    /// Sets the process ID that the client was given (`told`) and the one that the server uses (`known`). The
    /// client's own notifications must have the former: see [`Self::patches`].
    pub fn names_process(&mut self, known: u32, told: u32) {
        self.own = Some(ProcessAlias { told: told.to_be_bytes(), known: known.to_be_bytes() });
    }

    /// Replacements for the bytes that [`Self::process_server`] has read last, to apply before they are
    /// forwarded.
    pub fn patches(&mut self) -> Vec<Patch> {
        let Some(own) = self.own else { return Vec::new() };
        std::mem::take(&mut self.named_at).into_iter().map(|at| Patch { at, bytes: own.told }).collect()
    }

    /// Nothing is forwarded after the client's next `Sync` until [`Self::release_hold`].
    pub fn hold_after_sync(&mut self) {
        self.sync_hold = SyncHold::AfterNext;
    }

    pub fn release_hold(&mut self) {
        self.sync_hold = SyncHold::None;
    }

    /// Whether the `Sync` of [`Self::hold_after_sync`] was forwarded.
    pub fn is_held(&self) -> bool {
        self.sync_hold == SyncHold::Holding
    }

    /// How many `ReadyForQuery`s end the answers to everything that the client has sent; `None` if it has sent a part of
    /// a message or batch.
    pub fn unanswered_batches(&self) -> Option<usize> {
        let ends = |sent: &Sent<_>| sent.kind.ends_with_ready();
        let is_whole = self.client_framer.is_between_messages()
            && !self.model.is_in_doubt()
            && self.model.newest_first().next().is_some_and(ends);
        is_whole.then(|| self.model.newest_first().filter(|sent| ends(sent)).count())
    }

    /// Reads the next bytes from the client: those that were not forwarded before, and newer ones. `parameters` are
    /// the server's reported settings. `followed` is for transaction pooling.
    pub fn process_client(
        &mut self,
        input: &[u8],
        parameters: &Parameters,
        mut followed: Option<Followed<'_>>,
    ) -> Result<ClientBytes, Error> {
        let mut result =
            ClientBytes { pass_bytes: 0, insert: Vec::new(), exclusive: Vec::new(), goodbye: Goodbye::None };
        let at = &mut result.pass_bytes;
        loop {
            let piece = self.client_framer.read(input, at);
            let about_databases = match &mut followed {
                Some(followed) => &mut followed.statements.about_databases,
                None => &mut self.about_databases,
            };
            self.databases.read(piece, about_databases, &mut result.exclusive);
            self.remains.read(piece);
            self.session_end.read(piece);
            if let Some(followed) = &mut followed {
                followed.read(piece, &mut self.model);
            }
            let rest = &input[*at..];
            let Some(header) = self.client_framer.next_header(rest)? else { break };
            if self.sync_hold == SyncHold::Holding {
                break;
            }
            if header.kind == kind::TERMINATE {
                result.goodbye = Goodbye::Said;
                break;
            }
            let mut note = None;
            if let Some(followed) = &mut followed {
                match followed.begin(header, rest, parameters, &mut self.model)? {
                    MessageAction::Forward(made) => note = made,
                    MessageAction::NeedInput => break,
                    MessageAction::InsertBefore(insert) => {
                        result.insert = insert;
                        break;
                    }
                }
            } else if self.model.is_full() {
                break;
            }
            match SentKind::of(header.kind) {
                Some(kind) => {
                    if kind == SentKind::Sync && self.sync_hold == SyncHold::AfterNext {
                        self.sync_hold = SyncHold::Holding;
                    }
                    self.model.send(kind, note);
                }
                None if header.kind == kind::FLUSH => {}
                None => return Err(Error::protocol("command", "an unknown kind of message")),
            }
            let about_databases = followed.as_ref().map(|followed| &followed.statements.about_databases);
            self.databases.begin(header.kind, about_databases.unwrap_or(&self.about_databases));
            self.remains.begin(header.kind, parameters.string_syntax());
            self.session_end.begin(header.kind, parameters);
            self.client_framer.begin(header, at);
        }
        Ok(result)
    }

    /// Reads the next bytes from the server: those beyond the last [`ServerBytes`], and newer ones. A partial header
    /// or a short message may wait. Reported settings are stored in `parameters`.
    pub fn process_server(
        &mut self,
        input: &[u8],
        parameters: &mut Parameters,
        mut followed: Option<Followed<'_>>,
    ) -> Result<ServerBytes, Error> {
        let mut bytes = ServerBytes { pass_bytes: 0, skip_bytes: 0, insert: Vec::new() };
        let mut at = 0;
        loop {
            let start = at;
            self.server_framer.read(input, &mut at);
            if self.drops {
                bytes.skip_bytes += at - start;
                self.drops = !self.server_framer.is_between_messages();
            } else if bytes.skip_bytes == 0 {
                bytes.pass_bytes = at;
            }
            let rest = &input[at..];
            let Some(header) = self.server_framer.next_header(rest)? else { break };
            let Some(payload) = self.needed_payload(header, rest, followed.as_ref())? else { break };
            let action = if std::mem::take(&mut self.forwards_next) {
                ReplyAction::Forward
            } else {
                self.read_message(header, payload, parameters, followed.as_mut())?
            };
            match action {
                // What was dropped comes first.
                ReplyAction::Forward if bytes.skip_bytes > 0 => {
                    self.forwards_next = true;
                    break;
                }
                ReplyAction::Forward => {
                    if header.kind == kind::NOTIFICATION_RESPONSE
                        && self.own.is_some_and(|own| payload == own.known)
                    {
                        self.named_at.push(at + message::HEADER_BYTES);
                    }
                    self.server_framer.begin(header, &mut at);
                }
                ReplyAction::Discard => self.drop_message(header, &mut at, &mut bytes),
                ReplyAction::Replace(insert) => {
                    self.drop_message(header, &mut at, &mut bytes);
                    let start = at;
                    self.server_framer.read(input, &mut at);
                    bytes.skip_bytes += at - start;
                    bytes.insert = insert;
                    break;
                }
            }
        }
        if let Some(followed) = &mut followed {
            followed.end_wait();
        }
        Ok(bytes)
    }

    fn drop_message(&mut self, header: Header, at: &mut usize, bytes: &mut ServerBytes) {
        let start = *at;
        self.server_framer.begin(header, at);
        bytes.skip_bytes += *at - start;
        self.drops = true;
    }

    /// Reads a message of the server, with the part of its payload that is needed.
    #[inline]
    fn read_message(
        &mut self,
        header: Header,
        payload: &[u8],
        parameters: &mut Parameters,
        followed: Option<&mut Followed<'_>>,
    ) -> Result<ReplyAction, Error> {
        self.error_was_last = header.kind == kind::ERROR_RESPONSE;
        if self.error_was_last
            && payload.windows(READ_ONLY.len()).take(STATE_BYTES).any(|part| part == READ_ONLY)
        {
            self.role_doubt = RoleDoubt::Raised;
        }
        match header.kind {
            kind::PARAMETER_STATUS => {
                let (name, value) = parse_parameter_status(payload)?;
                parameters.set(name, value)?;
                if parameters.encoding() == TextEncoding::Ambiguous {
                    // Texts that are on their way are read so, too.
                    self.session_end.reads_ambiguous();
                }
                return Ok(ReplyAction::Forward);
            }
            kind::READY_FOR_QUERY => {
                let transaction = TransactionStatus::parse(payload)?;
                let settled = parameters.settle()?;
                let action = if let Some(followed) = followed {
                    followed.read_ready(transaction, parameters, &mut self.model)
                } else {
                    self.model.receive_ready(transaction);
                    ReplyAction::Forward
                };
                return with_settings(&settled, action, transaction);
            }
            kind::DATA_ROW
            | kind::ROW_DESCRIPTION
            | kind::COMMAND_COMPLETE
            | kind::EMPTY_QUERY_RESPONSE
            | kind::PARSE_COMPLETE
            | kind::BIND_COMPLETE
            | kind::CLOSE_COMPLETE
            | kind::PARAMETER_DESCRIPTION
            | kind::NO_DATA
            | kind::PORTAL_SUSPENDED
            | kind::NOTICE_RESPONSE
            | kind::NOTIFICATION_RESPONSE
            | kind::COPY_DATA
            | kind::COPY_DONE
            | kind::COPY_IN_RESPONSE
            | kind::COPY_OUT_RESPONSE
            | kind::FUNCTION_CALL_RESPONSE
            | kind::ERROR_RESPONSE => {}
            _ => return Err(Error::protocol("response", "an unexpected message")),
        }
        if let Some(followed) = followed {
            return followed.read_reply(header, payload, &mut self.model);
        }
        self.model.receive(header.kind);
        Ok(ReplyAction::Forward)
    }

    /// The part of the server's message that is read; empty for most messages. `None` until it has arrived.
    #[inline]
    fn needed_payload<'a>(
        &mut self,
        header: Header,
        input: &'a [u8],
        followed: Option<&Followed<'_>>,
    ) -> Result<Option<&'a [u8]>, Error> {
        let needed_bytes = match header.kind {
            kind::READY_FOR_QUERY | kind::PARAMETER_STATUS => {
                if header.payload_bytes > MAX_GATHERED_PAYLOAD_BYTES {
                    let (length, limit) = (header.payload_bytes, MAX_GATHERED_PAYLOAD_BYTES);
                    return Err(Error::MessageTooLarge { length, limit });
                }
                header.payload_bytes
            }
            kind::NOTIFICATION_RESPONSE => header.payload_bytes.min(PROCESS_BYTES),
            kind::ERROR_RESPONSE => {
                let needed = if followed.is_some() { needed_bytes(header, &mut self.model)? } else { 0 };
                needed.max(header.payload_bytes.min(STATE_BYTES))
            }
            _ if followed.is_some() => needed_bytes(header, &mut self.model)?,
            _ => 0,
        };
        Ok(input.get(message::HEADER_BYTES..message::HEADER_BYTES + needed_bytes))
    }

    fn outlook(&self) -> Outlook {
        // The client has not got the message that the model has read.
        if self.forwards_next { Outlook::Owed } else { self.model.outlook() }
    }

    pub fn connection_state(&self) -> ConnectionState {
        if !self.client_framer.is_between_messages() {
            return ConnectionState::Unknown("the client left in the middle of a message");
        }
        match self.outlook() {
            Outlook::Unknown(reason) => ConnectionState::Unknown(reason),
            Outlook::Clean if self.server_framer.is_between_messages() => {
                ConnectionState::Clean(self.model.transaction())
            }
            _ if self.model.is_copying_in() => {
                ConnectionState::Unknown("the client left in the middle of a COPY")
            }
            _ => ConnectionState::Unknown("the client left before all responses were read"),
        }
    }

    /// Whether only another `ReadyForQuery` may follow what the server has sent.
    fn may_be_clean(&self) -> bool {
        self.outlook() == Outlook::CleanUnlessMore
            && self.client_framer.is_between_messages()
            && self.server_framer.is_between_messages()
    }

    pub fn progress(&self) -> SessionProgress {
        let is_within =
            !self.client_framer.is_between_messages() || !self.server_framer.is_between_messages();
        match self.outlook() {
            Outlook::Unknown(_) => SessionProgress::Unknown,
            Outlook::Owed | Outlook::Unfinished => SessionProgress::Busy,
            Outlook::Clean | Outlook::CleanUnlessMore if is_within => SessionProgress::Busy,
            Outlook::Clean | Outlook::CleanUnlessMore => match self.model.transaction() {
                TransactionStatus::Idle => SessionProgress::Idle,
                _ => SessionProgress::InTransaction,
            },
        }
    }

    /// What happens if the client sends nothing more.
    pub fn departure(&self) -> Departure {
        match self.outlook() {
            Outlook::Owed => Departure::WhenAnswered,
            Outlook::CleanUnlessMore | Outlook::Unfinished | Outlook::Unknown(_) => Departure::WhenClosed,
            Outlook::Clean => Departure::Now,
        }
    }

    /// Whether too many answers are owed to send more.
    pub fn is_full(&self) -> bool {
        self.model.is_full()
    }

    /// Whether the server must be sent [`Self::write_own`] before the session can go on or be detached.
    pub fn owes_own(&self, follower: &SessionFollower) -> bool {
        follower.owes_failure() || self.may_be_clean()
    }

    /// Appends commands of the proxy whose answers the client does not get.
    pub fn write_own(&mut self, follower: &mut SessionFollower, out: &mut Vec<u8>) -> Result<(), Error> {
        if follower.owes_failure() {
            follower.write_failure(out, &mut self.model)
        } else {
            write_probe(out, &mut self.model)
        }
    }

    /// Whether the proxy may append its own message to the bytes forwarded to the client.
    pub fn between_answers(&self) -> bool {
        self.server_framer.is_between_messages()
    }

    /// Whether the server's last message was an error: if it closes the connection now, the client knows why.
    pub fn error_was_last(&self) -> bool {
        self.error_was_last
    }

    /// Whether an error since the last call may mean that the server has lost its role.
    pub fn take_role_doubt(&mut self) -> RoleDoubt {
        std::mem::take(&mut self.role_doubt)
    }
}

/// In front of a `ReadyForQuery` the client is told of settings that have other values than it knows.
fn with_settings(
    changed: &[AssumedSetting],
    action: ReplyAction,
    transaction: TransactionStatus,
) -> Result<ReplyAction, Error> {
    if changed.is_empty() {
        return Ok(action);
    }
    let mut out = Vec::new();
    for (name, value) in changed {
        write_parameter_status(&mut out, name, value)?;
    }
    if action == ReplyAction::Forward {
        write_ready_for_query(&mut out, transaction);
    }
    Ok(ReplyAction::Replace(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::server::write_message;

    #[test]
    fn an_error_of_a_read_only_server_raises_a_doubt_once() {
        let doubt = |text: &[u8], cut: usize| {
            let mut relay = PostgresRelay::unpooled();
            let mut answer = Vec::new();
            write_message(&mut answer, kind::ERROR_RESPONSE, text).unwrap();
            let mut parameters = Parameters::default();
            let first = relay.process_server(&answer[..cut], &mut parameters, None).unwrap().pass_bytes;
            relay.process_server(&answer[first..], &mut parameters, None).unwrap();
            (relay.take_role_doubt(), relay.take_role_doubt())
        };
        let translated = b"S\xd0\x9e\xd0\xa8\xd0\x98\xd0\x91\xd0\x9a\xd0\x90\0VERROR\0C25006\0Mno writes\0\0";
        for cut in 0..translated.len() {
            assert_eq!(doubt(translated, cut), (RoleDoubt::Raised, RoleDoubt::None), "{cut}");
        }
        let other = b"SERROR\0VERROR\0C42601\0MC25006\0\0";
        assert_eq!(doubt(other, 0).0, RoleDoubt::None);
    }
}
