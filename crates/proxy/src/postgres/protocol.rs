//! The PostgreSQL protocol for the engine.

use std::collections::HashMap;
use std::sync::Arc;

use ciphertoll_wire::postgres::command::encode_terminate;
use ciphertoll_wire::postgres::relay::{InternalCommand, first_command_bytes};
use ciphertoll_wire::postgres::server::{
    Authentication, Report, write_authentication, write_backend_key_data, write_error,
    write_parameter_status, write_ready_for_query,
};
use ciphertoll_wire::postgres::{
    CancelKey, ChannelBinding, Error, Parameters, PostgresConnect, PostgresLogin, PostgresTlsMode, Severity,
    TransactionStatus,
};
use ciphertoll_wire::scram::KeyCache;
use ciphertoll_wire::session::{self, ServerInfo};
use ciphertoll_wire::{Response, Secret};

use crate::fingerprint::{Fingerprint, FingerprintBuilder};
use crate::postgres::backend_state::BackendState;
use crate::postgres::client_handshake::{self, ClientHandshake, CredentialStore};
use crate::postgres::session::{ClientSession, digest};
use crate::postgres::startup_request::{StartupRequest, cannot_fail};
use crate::protocol::{
    self, AcquiredState, CancelToken, ClientAuth, CommandOutcome, ConnectPlan, Detached, EarlyGreeting,
    FirstInput, FirstSpeaker, FromClient, FromServer, HandshakeStep, Pooling, Protocol, Release, ResetMode,
    StartMode, TlsPolicy,
};
use crate::refusal::Refusal;
use crate::settings::{DatabaseUser, ListenAddress, Settings, StartError, UnixAuth};
use crate::url;

/// Databases whose settings are remembered. Clients of others log in with a server connection.
const MAX_KNOWN: usize = 64;

/// The protocol, with the users that it logs in as.
#[derive(Clone)]
pub struct Postgres {
    accounts: HashMap<Arc<str>, ServerAccount>,
    /// The key of each user, that of the server's URL first.
    default_keys: Vec<PostgresKey>,
    encryption: PostgresTlsMode,
    /// For unix sockets; `None` if the peer UID is enough.
    by_unix: Option<Arc<CredentialStore>>,
    /// For TCP; `None` if clients present certificates, or if TCP is not used.
    by_tcp: Option<Arc<CredentialStore>>,
    pooling: Pooling,
    /// The settings that the server reports on a new connection.
    known_parameters: HashMap<PostgresKey, Parameters>,
}

/// A user that the proxy logs in as.
#[derive(Clone)]
struct ServerAccount {
    /// With the database of clients that name none.
    default_key: PostgresKey,
    password: Secret,
    /// Saves hashing the password for each connection.
    keys: Arc<KeyCache>,
    fingerprint: Fingerprint,
}

/// User and database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PostgresKey {
    user: Arc<str>,
    database: Arc<str>,
}

impl Postgres {
    fn login_as(&self, user: &str, password: Secret, database: Option<&str>) -> Arc<PostgresLogin> {
        let binding = match self.encryption {
            PostgresTlsMode::Plain => ChannelBinding::Disabled,
            _ => ChannelBinding::Preferred,
        };
        Arc::new(PostgresLogin {
            user: user.to_owned(),
            password,
            database: database.map(ToOwned::to_owned),
            encryption: self.encryption,
            channel_binding: binding,
        })
    }

    fn unknown_user(&self, other: &str) -> Refusal {
        let message = match self.default_keys.as_slice() {
            [own] => format!("this proxy logs in as \"{}\" only, not as \"{other}\"", own.user),
            _ => format!("this proxy does not log in as \"{other}\""),
        };
        Refusal::new(Refusal::WHO, message)
    }
}

impl ServerAccount {
    fn of(user: &DatabaseUser, max_iterations: u32) -> Self {
        let mut fingerprint = FingerprintBuilder::default();
        fingerprint.add(user.name.as_bytes());
        fingerprint.add(user.password.expose());
        Self {
            default_key: PostgresKey {
                user: user.name.as_str().into(),
                database: user.database.as_deref().unwrap_or(&user.name).into(),
            },
            password: user.password.clone(),
            keys: Arc::new(KeyCache::with_max_iterations(max_iterations)),
            fingerprint: fingerprint.finish(),
        }
    }
}

fn credentials(settings: &Settings, iterations: u32) -> Result<Arc<CredentialStore>, StartError> {
    if let Some(user) = settings.users.iter().find(|user| user.password.expose().is_empty()) {
        return Err(StartError::NoPassword(user.name.clone()));
    }
    let users = settings.users.iter().map(|user| (user.name.as_str(), &user.password));
    Ok(Arc::new(CredentialStore::for_users(users, iterations)?))
}

impl Protocol for Postgres {
    type Key = PostgresKey;
    type Handshake = ClientHandshake;
    type Request = StartupRequest;
    type BackendState = BackendState;
    type Session = ClientSession;
    type Command = InternalCommand;
    type ResetContext = TransactionStatus;
    type Learned = (PostgresKey, Parameters);

    const FIRST_SPEAKER: FirstSpeaker = FirstSpeaker::Client;

    fn from_settings(settings: &Settings) -> Result<Self, StartError> {
        let listens_on =
            |by_tcp: bool| settings.listen.iter().any(|at| matches!(at, ListenAddress::Tcp(_)) == by_tcp);
        let certificates = settings.tls.as_ref().is_some_and(|service| service.clients.is_some());
        let needs_unix_password = listens_on(false) && settings.unix_auth != UnixAuth::Peer;
        let needs_tcp_password = listens_on(true) && !certificates;
        let credentials =
            |is_needed: bool, iterations| is_needed.then(|| credentials(settings, iterations)).transpose();
        let accounts: Vec<ServerAccount> = settings
            .users
            .iter()
            .map(|user| ServerAccount::of(user, settings.limits.scram_iterations))
            .collect();
        Ok(Self {
            default_keys: accounts.iter().map(|account| account.default_key.clone()).collect(),
            accounts: accounts
                .into_iter()
                .map(|account| (Arc::clone(&account.default_key.user), account))
                .collect(),
            encryption: match settings.server.encryption {
                url::UpstreamEncryption::None => PostgresTlsMode::Plain,
                url::UpstreamEncryption::Tls { .. } => PostgresTlsMode::Tls,
            },
            by_unix: credentials(needs_unix_password, settings.iterations.by_unix)?,
            by_tcp: credentials(needs_tcp_password, settings.iterations.by_tcp)?,
            pooling: settings.pooling,
            known_parameters: HashMap::new(),
        })
    }

    fn reload(&mut self, newer: Self) {
        let Self { accounts, default_keys, encryption, by_unix, by_tcp, pooling: _, known_parameters: _ } =
            newer;
        let older = std::mem::replace(&mut self.accounts, accounts);
        for (user, account) in &mut self.accounts {
            let limit = account.keys.max_iterations();
            let is_same = |known: &&ServerAccount| {
                known.fingerprint == account.fingerprint && known.keys.max_iterations() == limit
            };
            if let Some(known) = older.get(user).filter(is_same) {
                account.keys = Arc::clone(&known.keys);
            }
        }
        let fingerprint = |accounts: &HashMap<_, ServerAccount>, key: &PostgresKey| {
            accounts.get(&key.user).map(|own| own.fingerprint)
        };
        let accounts = &self.accounts;
        self.known_parameters.retain(|key, _| fingerprint(&older, key) == fingerprint(accounts, key));
        self.default_keys = default_keys;
        self.encryption = encryption;
        (self.by_unix, self.by_tcp) = (by_unix, by_tcp);
    }

    fn forget_learned(&mut self) {
        self.known_parameters.clear();
    }

    fn discovery_key(&self) -> Option<PostgresKey> {
        None
    }

    fn connect_failed(&mut self, _: &ciphertoll_net::Error) {}

    fn learned(&self, key: &PostgresKey) -> Option<Self::Learned> {
        self.known_parameters.get(key).map(|known| (key.clone(), known.clone()))
    }

    fn learn(&mut self, (key, known): Self::Learned) {
        if self.known_parameters.len() < MAX_KNOWN || self.known_parameters.contains_key(&key) {
            self.known_parameters.insert(key, known);
        }
    }

    fn handshake(&self, auth: ClientAuth) -> ClientHandshake {
        let password = |credentials: &Option<Arc<CredentialStore>>| {
            // Without a credential to check, no client is accepted.
            credentials.clone().map_or(
                client_handshake::AuthRequirement::Denied { uid: None },
                client_handshake::AuthRequirement::Password,
            )
        };
        match auth {
            ClientAuth::Granted => ClientHandshake::new(client_handshake::AuthRequirement::Granted),
            ClientAuth::Denied { uid } => {
                ClientHandshake::new(client_handshake::AuthRequirement::Denied { uid: Some(uid) })
            }
            ClientAuth::PasswordByUnix => ClientHandshake::new(password(&self.by_unix)),
            ClientAuth::PasswordByTcp(TlsPolicy::Off) => ClientHandshake::new(password(&self.by_tcp)),
            ClientAuth::PasswordByTcp(TlsPolicy::Required) => ClientHandshake::by_tls(password(&self.by_tcp)),
            ClientAuth::Certificate => {
                ClientHandshake::by_tls(client_handshake::AuthRequirement::Certificate)
            }
        }
    }

    fn pool_key(&self, request: &StartupRequest) -> Result<PostgresKey, Refusal> {
        let account = self.accounts.get(request.user.as_str());
        let own =
            account.map(|account| &account.default_key).ok_or_else(|| self.unknown_user(&request.user))?;
        Ok(match &request.database {
            Some(name) if **name != *own.database => {
                PostgresKey { user: Arc::clone(&own.user), database: name.as_str().into() }
            }
            _ => own.clone(),
        })
    }

    fn default_keys(&self) -> &[PostgresKey] {
        &self.default_keys
    }

    fn fingerprint(&self, key: &PostgresKey) -> Option<Fingerprint> {
        self.accounts.get(&key.user).map(|account| account.fingerprint)
    }

    fn connect_plan(&self, key: &PostgresKey) -> Option<ConnectPlan> {
        let account = self.accounts.get(&key.user)?;
        let login = self.login_as(&key.user, account.password.clone(), Some(&key.database));
        let machine = PostgresConnect::pooled(Arc::clone(&login), Arc::clone(&account.keys));
        Some(ConnectPlan {
            login: session::Login::Postgres(login),
            machine: session::Connect::Postgres(machine),
        })
    }

    fn cancel_plan(&self, backend: &BackendState) -> Option<ConnectPlan> {
        let (process_id, key) = backend.cancel.clone()?;
        let user = &self.default_keys.first()?.user;
        // A cancel request needs no login.
        let login = self.login_as(user, Secret::new(Vec::new()), None);
        let machine = PostgresConnect::cancelling(Arc::clone(&login), process_id, key);
        Some(ConnectPlan {
            login: session::Login::Postgres(login),
            machine: session::Connect::Postgres(machine),
        })
    }

    fn backend_state(&mut self, key: &PostgresKey, info: ServerInfo) -> Option<BackendState> {
        let ServerInfo::Postgres(info) = info else { return None };
        let backend = BackendState::new(info);
        if self.pooling == Pooling::Transaction
            && (self.known_parameters.len() < MAX_KNOWN || self.known_parameters.contains_key(key))
        {
            self.known_parameters.insert(key.clone(), backend.base.clone());
        }
        Some(backend)
    }

    fn greet_early(
        &self,
        key: &PostgresKey,
        request: &mut StartupRequest,
        cancel_token: CancelToken,
        out: &mut Vec<u8>,
    ) -> EarlyGreeting {
        let Some(known) = self.known_parameters.get(key) else { return EarlyGreeting::NeedsConnection };
        let settings = request.differing(known);
        // Only the server can tell whether other settings are valid.
        if !settings.iter().all(|(name, value)| cannot_fail(name, value, known)) {
            return EarlyGreeting::NeedsConnection;
        }
        let mut parameters = known.clone();
        for (name, value) in settings {
            if parameters.set(name.as_bytes(), value.as_bytes()).is_err() {
                return EarlyGreeting::NeedsConnection;
            }
        }
        request.sent_digest = digest(&parameters);
        request.process_id = Some(cancel_token.process_id);
        if write_greeting(&parameters, cancel_token, out).is_err() {
            EarlyGreeting::NeedsConnection
        } else {
            EarlyGreeting::Sent
        }
    }

    fn start_session(
        &self,
        request: StartupRequest,
        acquired: AcquiredState,
        backend: &mut BackendState,
        to_server: &mut Vec<u8>,
    ) -> Result<ClientSession, (StartupRequest, session::Error)> {
        match self.pooling {
            Pooling::Session => {
                ClientSession::begin(&request, backend, to_server).map_err(|error| (request, error.into()))
            }
            Pooling::Transaction => ClientSession::begin_pooled(request, acquired, backend, to_server)
                .map_err(|failed| (failed.request, failed.error.into())),
        }
    }

    fn reset(
        &self,
        context: TransactionStatus,
        backend: &mut BackendState,
        to_server: &mut Vec<u8>,
    ) -> Result<InternalCommand, session::Error> {
        backend.prepared.clear();
        Ok(InternalCommand::reset(context, to_server)?)
    }

    fn reset_mode(&self, context: TransactionStatus) -> ResetMode {
        match (self.pooling, context) {
            (Pooling::Transaction, TransactionStatus::Idle) => ResetMode::Pipelined,
            _ => ResetMode::Awaited,
        }
    }

    fn ping(&self, _: &mut BackendState, to_server: &mut Vec<u8>) -> Result<InternalCommand, session::Error> {
        Ok(InternalCommand::ping(to_server)?)
    }

    fn idle_command(&self) -> InternalCommand {
        InternalCommand::nothing()
    }

    fn terminate(&self, to_server: &mut Vec<u8>) {
        encode_terminate(to_server);
    }
}

impl protocol::PoolKey for PostgresKey {
    fn user(&self) -> &str {
        &self.user
    }

    fn database(&self) -> &str {
        &self.database
    }
}

impl protocol::ProtocolHandshake for ClientHandshake {
    type Request = StartupRequest;

    fn step(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> HandshakeStep<StartupRequest> {
        Self::step(self, input, out)
    }

    fn tls_established(&mut self, name: Option<String>) {
        Self::tls_established(self, name);
    }

    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        refusal.write(out);
    }
}

impl protocol::ProtocolRequest for StartupRequest {
    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        refusal.write(out);
    }

    fn first_input(&self, input: &[u8]) -> FirstInput {
        match input {
            [b'X', ..] => FirstInput::Terminate,
            // A message type and a length.
            [_, _, _, _, _, ..] => FirstInput::Command,
            _ => FirstInput::Incomplete,
        }
    }

    fn cancel_command(&self, input: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let bytes = first_command_bytes(input)?;
        let report = Report {
            severity: Severity::Error,
            sqlstate: *b"57014",
            message: b"canceling statement due to user request, while it waited for a server connection",
        };
        write_error(out, &report).ok()?;
        write_ready_for_query(out, TransactionStatus::Idle);
        Some(bytes)
    }
}

impl protocol::ProtocolSession for ClientSession {
    type Request = StartupRequest;
    type BackendState = BackendState;
    type ResetContext = TransactionStatus;

    fn start_mode(&self) -> StartMode {
        Self::start_mode(self)
    }

    fn greet(
        &mut self,
        backend: &BackendState,
        cancel_token: CancelToken,
        out: &mut Vec<u8>,
    ) -> Result<(), session::Error> {
        self.record_process_id(backend, cancel_token.process_id);
        Ok(write_greeting(&backend.parameters, cancel_token, out)?)
    }

    fn report_changed_settings(
        &self,
        backend: &BackendState,
        out: &mut Vec<u8>,
    ) -> Result<(), session::Error> {
        for (name, value) in self.unsent_settings(backend).into_iter().flat_map(Parameters::iter) {
            write_parameter_status(out, name, value)?;
        }
        Ok(())
    }

    fn process_client(
        &mut self,
        input: &[u8],
        backend: &mut BackendState,
    ) -> Result<FromClient, session::Error> {
        Ok(self.process_client(input, backend)?)
    }

    fn process_server(
        &mut self,
        input: &[u8],
        backend: &mut BackendState,
    ) -> Result<FromServer, session::Error> {
        Ok(self.process_server(input, backend)?)
    }

    fn is_full(&self) -> bool {
        Self::is_full(self)
    }

    fn can_send_error(&self) -> bool {
        Self::can_send_error(self)
    }

    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        refusal.write(out);
    }

    fn query_settings(&mut self, _: &BackendState, to_server: &mut Vec<u8>) -> Result<(), session::Error> {
        Ok(Self::query_settings(self, to_server)?)
    }

    fn can_detach(&self) -> bool {
        Self::can_detach(self)
    }

    fn detach(
        self,
        backend: &mut BackendState,
    ) -> Result<Detached<StartupRequest, TransactionStatus>, session::Error> {
        Ok(Self::detach(self, backend)?)
    }

    fn release(self, backend: &mut BackendState) -> Result<Release<TransactionStatus>, session::Error> {
        Ok(Self::release(self, backend)?)
    }
}

impl protocol::ProtocolCommand for InternalCommand {
    type BackendState = BackendState;

    fn step(
        &mut self,
        input: &mut &[u8],
        backend: &mut BackendState,
    ) -> Result<Response<CommandOutcome>, session::Error> {
        Ok(match Self::step(self, input, &mut backend.parameters)? {
            Response::NeedInput => Response::NeedInput,
            Response::Done(TransactionStatus::Idle) => Response::Done(CommandOutcome::Idle),
            Response::Done(_) => {
                Response::Done(CommandOutcome::Unusable("the reset left a transaction open"))
            }
        })
    }
}

fn write_greeting(
    parameters: &Parameters,
    cancel_token: CancelToken,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    write_authentication(out, &Authentication::Ok)?;
    for (name, value) in parameters.iter() {
        write_parameter_status(out, name, value)?;
    }
    if let Some(key) = CancelKey::new(cancel_token.secret.to_vec()) {
        write_backend_key_data(out, cancel_token.process_id, &key)?;
    }
    write_ready_for_query(out, TransactionStatus::Idle);
    Ok(())
}

#[cfg(test)]
mod tests;
