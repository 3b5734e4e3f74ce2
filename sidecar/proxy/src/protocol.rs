//! What the engine requires of a protocol. PostgreSQL implements it in `postgres`, MySQL and MariaDB in
//! `mysql`.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use ciphertoll_net as net;
use ciphertoll_wire::Response;
pub use ciphertoll_wire::relay::SessionProgress;
use ciphertoll_wire::relay::{Departure, RoleDoubt};
use ciphertoll_wire::session::{self, ServerInfo};
use foldhash::HashMap;

use crate::client_auth::ClientAuth;
use crate::console_rules::ConsoleLogin;
use crate::credentials::PasswordCell;
use crate::exceeded::Exceeded;
use crate::fingerprint::Fingerprint;
use crate::group_limits::GroupKind;
use crate::hosts::ServerRole;
use crate::log::Log;
use crate::login_hosts::LoginHosts;
use crate::look_up::LookUp;
use crate::refusal::Refusal;
pub(crate) use crate::settings::{Pooling, ResetPolicy};
use crate::settings::{Settings, StartError};

mod outcome;

pub(crate) use outcome::PinState;
pub(crate) use outcome::{
    AcquiredState, CommandOutcome, Detached, FromClient, FromServer, PendingKill, Release, SessionPhase,
    SettingsResult,
};

/// A result with the error of either protocol.
pub(crate) type SessionResult<T> = Result<T, session::Error>;

/// A protocol, with the settings that depend on it. Each worker has its own clone. Connections move between
/// workers together with everything that belongs to them.
pub trait Protocol: Clone + Send + 'static {
    type Key: PoolKey + Send;
    type Handshake: ProtocolHandshake<Request = Self::Request> + Send;
    type Request: ProtocolRequest + Send;
    type BackendState: Send;
    /// A client on a server connection.
    type Session: ProtocolSession<
            Request = Self::Request,
            BackendState = Self::BackendState,
            ResetContext = Self::ResetContext,
        > + Send;
    type Command: ProtocolCommand<BackendState = Self::BackendState> + Send;
    /// What a reset must know of the session before it.
    type ResetContext: Copy + Send;
    /// What connections teach about the server, for other workers.
    type Learned: Clone + Send;

    /// Whether the proxy sends first, as soon as a client has connected.
    const SENDS_FIRST: bool;
    const CANCEL_BY: CancelBy;

    /// Prepares the protocol's part of the settings; hashes passwords that clients must prove to know.
    fn from_settings(settings: &Settings) -> Result<Self, StartError>;

    /// Sets how connections are opened outside of the engine.
    fn connect_by(&mut self, _: impl FnOnce() -> LoginHosts, _: Log) {}

    /// Replaces users, passwords and authentication rules. Running sessions are not affected.
    fn reload(&mut self, newer: Self);

    /// Forgets what connections have taught, because the way to the server has changed.
    fn forget_learned(&mut self);

    /// The key of a connection that must be opened before clients are greeted, because the greeting repeats
    /// the server's own; `None` once that is known.
    fn discovery_key(&self) -> Option<Self::Key> {
        None
    }

    /// Reports a failed connect. What was learned about the server may be out of date.
    fn connect_failed(&mut self, _: &net::Error) {}

    /// What other workers should know after a change for this key; `None` if there is nothing.
    fn learned(&self, key: &Self::Key) -> Option<Self::Learned>;

    fn learn(&mut self, learned: Self::Learned);

    /// Remembers what an idle connection has shown since the last call. Returns whether that is new.
    fn learn_again(&mut self, _: &Self::Key, _: &mut Self::BackendState) -> bool {
        false
    }

    /// Forgets what is known of a database, because no connection to it is open any more and the server has ended the last
    /// one, or refuses others. Returns whether anything was known.
    fn forget(&mut self, _: &Self::Key) -> bool {
        false
    }

    fn handshake(&mut self, auth: ClientAuth) -> Self::Handshake;

    /// For a client that changes its user during this session, see [`Goodbye::ChangeUser`](ciphertoll_wire::relay::Goodbye::ChangeUser); `None` if it cannot.
    fn change_user_handshake(&self, _session: &Self::Session) -> Option<Self::Handshake> {
        None
    }

    fn pool_key(&mut self, request: &Self::Request) -> Result<Self::Key, Refusal>;

    /// The keys of clients that name no database: one per user, that of the server's URL first.
    fn default_keys(&self) -> &[Self::Key];

    /// Refuses a user whom the configuration does not have. `quote` is the server's quotation mark of names.
    fn unknown_user(&self, user: &str, quote: char) -> Refusal {
        let message = match self.default_keys() {
            [own] => {
                format!(
                    "this proxy logs in as {quote}{}{quote} only, not as {quote}{user}{quote}",
                    own.user()
                )
            }
            _ => format!("this proxy does not log in as {quote}{user}{quote}"),
        };
        Refusal::new(Refusal::WHO, message)
    }

    /// The fingerprint of the credentials of new connections; `None` if the configuration has no such user.
    fn fingerprint(&self, key: &Self::Key) -> Option<Fingerprint>;

    /// A user with connections needs its password, if a command prints it, for further connections and requests to cancel.
    fn keep_password(&self, key: &Self::Key);

    /// The password of this user, if it comes from a command.
    fn password_cell(&self, key: &Self::Key) -> Option<Arc<PasswordCell>>;

    /// The login of a new connection; `None` if the configuration has no such user.
    fn connect_plan(&self, key: &Self::Key) -> Option<ConnectPlan>;

    /// A cancel request for the current command of a connection; `None` if that cannot be named.
    fn cancel_plan(&self, key: &Self::Key, backend: &Self::BackendState) -> Option<CancelPlan>;

    /// Refuses a client whose user or database has `limit` clients.
    fn too_many_clients(&self, kind: GroupKind, name: &str, limit: usize) -> Refusal;

    /// Why a client is disconnected; `None` if the server does not say so in such a case.
    fn timed_out(&self, exceeded: Exceeded) -> Option<Refusal>;

    /// The state of a connection that has just logged in; `None` if the server speaks another protocol.
    fn backend_state(&mut self, key: &Self::Key, info: ServerInfo) -> Option<Self::BackendState>;

    /// A connection can be given to clients, whose logins may then be completed by what it has reported.
    /// Nothing is learned from a connection to a host without the role that clients need.
    fn learn_from(&mut self, key: &Self::Key, backend: &mut Self::BackendState);

    /// Completes a client's login without a server connection if everything that the greeting needs is known;
    /// otherwise returns false. The client acquires a connection with its first command.
    fn greet_early(
        &mut self,
        key: &Self::Key,
        request: &mut Self::Request,
        cancel_token: CancelToken,
        out: &mut Vec<u8>,
    ) -> bool;

    /// Starts a client's session on a connection. Commands that must come first are appended to `to_server`,
    /// which must be empty. Commands that cannot fail may be sent together with the client's first command.
    fn start_session(
        &self,
        request: Self::Request,
        acquired: AcquiredState,
        backend: &mut Self::BackendState,
        to_server: &mut Vec<u8>,
    ) -> Result<Box<Self::Session>, Box<StartFailed<Self::Request>>>;

    fn reset(
        &self,
        context: Self::ResetContext,
        backend: &mut Self::BackendState,
        to_server: &mut Vec<u8>,
    ) -> SessionResult<Self::Command>;

    /// The reset that must come before another client's first command.
    fn reset_need(&self, context: Self::ResetContext) -> ResetNeed;

    /// Whether a reset and this client's settings make a connection as the client has left its last one.
    fn accepts(&self, _: &Self::BackendState, _: &Self::Request) -> bool {
        true
    }

    /// A command that shows whether the server still answers.
    fn ping(&self, backend: &mut Self::BackendState, to_server: &mut Vec<u8>)
    -> SessionResult<Self::Command>;

    /// A command that asks the server for its role, which [`Self::take_role`] returns when it is answered.
    fn ask_role(
        &self,
        backend: &mut Self::BackendState,
        to_server: &mut Vec<u8>,
    ) -> SessionResult<Self::Command>;

    /// The role that the server has told; `None` if it has not.
    fn take_role(&self, backend: &mut Self::BackendState) -> Option<ServerRole>;

    /// Whether the server has reported unasked that it is a standby; `None` if it does not report that.
    fn reported_standby(&self, _: &Self::BackendState) -> Option<bool> {
        None
    }

    /// Whether the session left diagnostics that its client may ask for next (`SHOW WARNINGS`). Then other
    /// clients wait a moment for this connection.
    fn holds_diagnostics(&self, _: &Self::ResetContext) -> bool {
        false
    }

    /// Sends nothing; reads what the server sends unasked.
    fn idle_command(&self) -> Self::Command;

    /// Appends the message that ends a connection.
    fn terminate(&self, to_server: &mut Vec<u8>);

    /// A client that logs in to the console instead of a database.
    fn console_login(&self, _: &Self::Request) -> Option<ConsoleLogin> {
        None
    }

    /// By which the server knows a connection.
    fn server_process(&self, _: &Self::BackendState) -> Option<u32> {
        None
    }

    /// The name that the client of a connection has given.
    fn application_name(&self, _: &Self::BackendState) -> Option<String> {
        None
    }
}

/// The reset that a connection needs before another client uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetNeed {
    /// The server must have answered it.
    Awaited,
    /// It is sent with the client's first command, which the server skips if the reset fails: see
    /// [`AcquiredState::ResetPending`].
    Pipelined,
    /// None but the client's settings, which are sent in the same way: the sessions have left nothing else.
    SettingsOnly,
    /// None: the sessions have left what a reset would leave, or only what the policy allows.
    None,
}

impl ResetNeed {
    /// Whether the client need not wait for it.
    pub fn is_pipelined(self) -> bool {
        matches!(self, Self::Pipelined | Self::SettingsOnly)
    }
}

/// Databases about which something is remembered. Clients of others log in with a server connection.
const MAX_KNOWN: usize = 64;

/// Remembers what connections of this key have taught, unless clients have named too many databases.
pub(crate) fn remember<K: Eq + Hash, V>(known: &mut HashMap<K, V>, key: K, value: V) {
    if known.len() < MAX_KNOWN || known.contains_key(&key) {
        known.insert(key, value);
    }
}

/// Connections with equal keys are interchangeable.
pub trait PoolKey: Clone + Debug + Eq + Hash {
    fn user(&self) -> &str;

    fn database(&self) -> &str;

    /// Whether such a connection serves one client and ends with it.
    fn is_dedicated(&self) -> bool {
        self.replication().is_some()
    }

    /// The kind of replication for which such a connection is used, as PgBouncer's console names it.
    fn replication(&self) -> Option<&'static str> {
        None
    }
}

/// A client's handshake, driven by the bytes it sends.
pub trait ProtocolHandshake {
    type Request;

    /// Takes whole messages from the front of `input` and appends the answer to `out`. Any step
    /// except [`HandshakeStep::NeedInput`] is the last one.
    fn step(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> HandshakeStep<Self::Request>;

    /// The client connection uses TLS now. `name` is the common name of the client's verified certificate.
    fn tls_established(&mut self, name: Option<String>);

    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>);

    /// The client may log in to the console as its own user without a password.
    fn trust_console(&mut self) {}
}

pub trait ProtocolRequest {
    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>);

    /// Whether a command at the front of these bytes is complete, and may be answered.
    fn has_command(&self, input: &[u8]) -> bool;

    /// Classifies the first bytes that a client without a connection sends.
    fn first_input(&self, input: &[u8]) -> FirstInput;

    /// Carries out commands at the front of `input` that have no response and need no connection, for a client that has
    /// none. Returns their length.
    fn take_unanswered(&mut self, _input: &[u8]) -> usize {
        0
    }

    /// The name that the client has given.
    fn application_name(&self) -> Option<String> {
        None
    }

    /// Whether another client has killed this one while it has no connection.
    fn pending_kill(&self) -> PendingKill {
        PendingKill::None
    }

    /// Cancels the command at the front of `input`, which no server has received. Appends the response to
    /// `out` and returns the length of the command; `None` if it is not complete yet.
    fn cancel_command(&self, input: &[u8], out: &mut Vec<u8>) -> Option<usize>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstInput {
    /// No connection is acquired for it yet.
    Incomplete,
    /// A message of so many bytes that no server needs. Not all of it may have arrived.
    Ignored(usize),
    Terminate,
    Command,
}

/// A client on a server connection, and the traffic between the two.
pub trait ProtocolSession: Sized {
    /// What moves with a client from one connection to the next.
    type Request;
    type BackendState;
    type ResetContext;

    /// Whether the client may send commands only after the server has accepted its settings. What was appended
    /// for the server must then be sent now; otherwise it may be sent together with the client's first command.
    fn awaits_settings(&self) -> bool;

    /// Appends the end of the login.
    fn greet(
        &mut self,
        backend: &mut Self::BackendState,
        cancel_token: CancelToken,
        out: &mut Vec<u8>,
    ) -> SessionResult<()>;

    /// Appends what has changed for a client that was on another connection before.
    fn report_changed_settings(&self, _: &Self::BackendState, _: &mut Vec<u8>) -> SessionResult<()> {
        Ok(())
    }

    /// Processes the client's next bytes, with earlier ones that were not passed on. An error is the client's fault.
    fn process_client(&mut self, input: &[u8], backend: &mut Self::BackendState)
    -> SessionResult<FromClient>;

    /// Processes the server's next bytes, with earlier ones that were neither skipped nor passed on. After an error the
    /// connection must be closed.
    fn process_server(&mut self, input: &[u8], backend: &mut Self::BackendState)
    -> SessionResult<FromServer>;

    /// Whether the server has given an error since the last call that may mean that it has lost its role.
    fn take_role_doubt(&mut self) -> RoleDoubt {
        RoleDoubt::None
    }

    /// Whether too many responses are owed to read more from the client now.
    fn is_full(&self) -> bool {
        false
    }

    /// Whether the client's last bytes get no answer, and none is owed: the session's phase may have changed without bytes of
    /// the server.
    fn awaits_nothing(&self) -> bool {
        false
    }

    /// What happens if the client sends nothing more.
    fn departure(&self) -> Departure;

    /// What the client and the server are doing.
    fn progress(&self) -> SessionProgress;

    /// Tells the client why its command will be cancelled, if the server does not and the protocol allows it now.
    fn announce(&self, _: Exceeded, _: &mut Vec<u8>) {}

    /// Whether an error message can be sent to the client now, without being taken for a part of a response.
    fn can_send_error(&self) -> bool;

    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>);

    /// The server has refused the client's settings: appends the error as the answer to the first command in `input`,
    /// and returns the length of that, or 0 if the command comes again without these settings. The session can then be
    /// detached. `None` if this is not possible.
    fn refuse_command(&mut self, _: &Refusal, _: &[u8], _: &mut Vec<u8>) -> Option<usize> {
        None
    }

    /// Appends queries for the settings that move with the client, see [`SessionPhase::NeedsQuery`].
    fn query_settings(&mut self, backend: &Self::BackendState, to_server: &mut Vec<u8>) -> SessionResult<()>;

    /// Whether the reset that is due waits for the client's first command.
    fn owes_reset(&self) -> bool {
        false
    }

    /// Appends the reset that is due. Until the server has answered, the client must wait.
    fn send_reset(&mut self, _: &mut Vec<u8>) {}

    /// Whether the session can be detached before the client has sent a command.
    fn can_detach(&self) -> bool;

    fn detach(
        self: Box<Self>,
        backend: &mut Self::BackendState,
    ) -> SessionResult<Detached<Self::Request, Self::ResetContext>>;

    fn release(&self, backend: &mut Self::BackendState) -> SessionResult<Release<Self::ResetContext>>;
}

/// A command that the proxy sends on its own behalf. Its responses are not passed to a client.
pub trait ProtocolCommand {
    type BackendState;

    /// Takes whole messages from the front of `input`. An error from the server is returned when all
    /// responses are read; after any other error the connection must be closed.
    fn step(
        &mut self,
        input: &mut &[u8],
        backend: &mut Self::BackendState,
    ) -> SessionResult<Response<CommandOutcome>>;
}

/// The last step, or `None` if the next state can be entered without more input.
pub(crate) type HandshakeResult<W> = Result<Option<HandshakeStep<W>>, Refusal>;

/// Enters states until one of them has a step.
pub(crate) fn next_step<W>(mut advance: impl FnMut() -> HandshakeResult<W>) -> HandshakeStep<W> {
    loop {
        match advance() {
            Ok(None) => {}
            Ok(Some(step)) => return step,
            Err(refusal) => return HandshakeStep::Refuse(refusal),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum HandshakeStep<W> {
    NeedInput,
    /// The client starts TLS, if it has not already. [`ProtocolHandshake::tls_established`] follows.
    StartTls,
    /// This must be done before the next step. No input is taken until then.
    LookUp(LookUp),
    /// The client is authenticated. It has not been told so.
    Login(W),
    /// The client cancels the command of the client to which the proxy has sent these.
    Cancel {
        process_id: u32,
        key: Vec<u8>,
    },
    Refuse(Refusal),
    /// The client does not speak the protocol and would not understand an error message.
    HangUp(&'static str),
}

pub struct ConnectPlan {
    pub login: session::Login,
    pub machine: session::Connect,
}

/// A connection that cancels a command. The server closes it when the command is cancelled.
pub struct CancelPlan {
    pub connect: ConnectPlan,
    /// To be sent after the login.
    pub commands: Vec<u8>,
}

/// How clients cancel commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelBy {
    /// By a request on another connection, with the [`CancelToken`] of the client.
    Token,
    /// By a command such as `KILL`.
    Command,
}

/// What a client must present to cancel its commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelToken {
    /// Unique among clients.
    pub process_id: u32,
    pub secret: [u8; 4],
}

/// A session that could not be started. The client has not lost its request.
#[derive(Debug)]
pub struct StartFailed<W> {
    pub request: W,
    pub error: session::Error,
}
