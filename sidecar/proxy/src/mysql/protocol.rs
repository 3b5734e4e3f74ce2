//! The protocol of MySQL and MariaDB for the engine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ciphertoll_wire::mysql::command::{encode_query, encode_quit};
use ciphertoll_wire::mysql::greeting_template::GreetingTemplate;
use ciphertoll_wire::mysql::relay::{Diagnostics, InternalCommand, OpenState, ReportedRole, ResetOutcome};
use ciphertoll_wire::mysql::sql::Remains;
use ciphertoll_wire::mysql::ssl_request::UTF8MB4;
use ciphertoll_wire::mysql::{
    self, Capabilities, MySqlConnect, MySqlLogin, MySqlTlsMode, Plugin, Terms, Transport,
};
use ciphertoll_wire::session::{self, ServerInfo};
use ciphertoll_wire::{Response, Secret};
use foldhash::HashMap;

use super::client_handshake::{ClientHandshake, GreetingContext};
use super::connection_ids::ConnectionIds;
use super::credential_store::CredentialStore;
use super::limit_errors;
use super::pass_through_auth::{PassThroughAuth, ProvenPassword};
use super::session::{BackendState, ClientSession, ReleasedState};
use super::startup_request::{PasswordProof, StartupRequest};
use crate::client_auth::ClientAuth;
use crate::credentials::{AnyUserPasswords, PasswordCell};
use crate::exceeded::Exceeded;
use crate::fingerprint::Fingerprint;
use crate::group_limits::GroupKind;
use crate::hosts::{RoleKind, ServerRole};
use crate::log::Log;
use crate::login_hosts::LoginHosts;
use crate::login_names::LoginNames;
use crate::protocol::{
    AcquiredState, CancelBy, CancelPlan, CancelToken, CommandOutcome, ConnectPlan, PoolKey, Pooling,
    Protocol, ProtocolCommand, ResetNeed, ResetPolicy, SessionResult, StartFailed, remember,
};
use crate::random::RandomBytes;
use crate::refusal::Refusal;
use crate::settings::{DatabaseUser, Settings, StartError, UnixAuth};
use crate::url::{ServerAddress, UpstreamEncryption};

/// Capabilities that transaction pooling does not offer: with cached metadata the server relies on
/// definitions that this client has, and query attributes stand where the text of a command is expected.
const NOT_SHARED: Capabilities = Capabilities::CACHE_METADATA.with(Capabilities::QUERY_ATTRIBUTES);
/// The capabilities of the first connection, which learns the server's greeting, and of connections that are
/// opened in advance before a client of their user has logged in. Every server accepts them.
const FIRST_TERMS: Terms = Terms {
    capabilities: Capabilities::LONG_FLAG.with(Capabilities::TRANSACTIONS).with(Capabilities::MULTI_RESULTS),
    character_set: UTF8MB4,
};

#[derive(Clone)]
pub struct MySql {
    accounts: BTreeMap<Arc<str>, ServerAccount>,
    /// That of the server's URL first; each with the capabilities that its clients used last.
    default_keys: Vec<MySqlKey>,
    /// The capabilities of each user's recent clients that used the default database; a worker tells changes only.
    client_terms: Arc<Mutex<HashMap<LoginNames, Terms>>>,
    encryption: MySqlTlsMode,
    transport: Transport,
    credentials: Option<Arc<CredentialStore>>,
    /// For users whom the settings do not name; `None` if they are refused.
    pass_through: Option<PassThroughAuth>,
    /// The same if a command prints their passwords.
    any_user: Option<Arc<AnyUserPasswords>>,
    /// The server's last greeting; `None` if it is not known or out of date.
    greeting: Option<Arc<GreetingTemplate>>,
    random: RandomBytes,
    connection_ids: ConnectionIds,
    pooling: Pooling,
    reset: ResetPolicy,
    /// Status flags of new connections: capabilities do not change them.
    known_status: HashMap<LoginNames, u16>,
}

#[derive(Clone, Debug)]
pub struct LearnedParameters {
    greeting: Option<Arc<GreetingTemplate>>,
    /// Status flags of new connections.
    status: Option<(LoginNames, u16)>,
}

/// User, database, and the capabilities of the login.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MySqlKey {
    names: LoginNames,
    terms: Terms,
}

#[derive(Clone)]
struct ServerAccount {
    /// With the database of clients that name none.
    default_key: MySqlKey,
    /// The capabilities of its last client in this worker that used that database.
    last_terms: Option<Terms>,
    password: Secret,
    /// In place of `password`.
    command: Option<Arc<PasswordCell>>,
    fingerprint: Fingerprint,
}

impl MySql {
    /// The password of a user whom the settings do not name.
    fn proven(&self, user: &str) -> Option<Arc<ProvenPassword>> {
        self.pass_through.as_ref()?.proven().get(user)
    }

    /// The key of a client whose user the settings do not name.
    fn unconfigured_key(&self, request: &StartupRequest) -> Result<MySqlKey, Refusal> {
        let is_proven = || request.proof == PasswordProof::Server && self.proven(&request.user).is_some();
        let database = match &self.any_user {
            Some(passwords) => {
                AnyUserPasswords::accept(&request.user)?;
                passwords.database()
            }
            None if is_proven() => None,
            None => return Err(self.unknown_user(&request.user, '\'')),
        };
        Ok(MySqlKey {
            names: LoginNames::new(&request.user, request.database.as_deref().or(database)),
            terms: request.terms,
        })
    }

    fn client_terms(&self) -> MutexGuard<'_, HashMap<LoginNames, Terms>> {
        self.client_terms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses the capabilities of recent clients for connections that are opened in advance.
    fn use_client_terms(&mut self) {
        let terms_by_user = self.client_terms.lock().unwrap_or_else(PoisonError::into_inner);
        for key in &mut self.default_keys {
            if let Some(terms) = terms_by_user.get(&key.names) {
                key.terms = *terms;
            }
        }
    }
}

impl ServerAccount {
    fn of(user: &DatabaseUser) -> Self {
        let names = LoginNames::new(&user.name, user.database.as_deref());
        Self {
            default_key: MySqlKey { names, terms: FIRST_TERMS },
            last_terms: None,
            password: user.password.clone(),
            command: user.command.clone(),
            fingerprint: user.fingerprint(),
        }
    }
}

/// The passwords that clients must know; `None` if they all authenticate by other means.
fn credentials(settings: &Settings) -> Result<Option<Arc<CredentialStore>>, StartError> {
    if !settings.needs_password(true) && !settings.needs_password(false) {
        return Ok(None);
    }
    let credentials = CredentialStore::for_users(settings.passwords()?);
    credentials.map(Arc::new).map(Some).ok_or(StartError::NoRandomBytes)
}

impl Protocol for MySql {
    type Key = MySqlKey;
    type Handshake = Option<ClientHandshake>;
    type Request = Box<StartupRequest>;
    type BackendState = BackendState;
    type Session = ClientSession;
    type Command = InternalCommand;
    type ResetContext = ReleasedState;
    type Learned = LearnedParameters;

    const SENDS_FIRST: bool = true;
    const CANCEL_BY: CancelBy = CancelBy::Command;

    fn from_settings(settings: &Settings) -> Result<Self, StartError> {
        if settings.unix_auth == UnixAuth::Scram {
            return Err(StartError::ScramInMySql);
        }
        let server = &settings.server;
        let accounts: Vec<ServerAccount> = settings.users.iter().map(ServerAccount::of).collect();
        Ok(Self {
            default_keys: accounts.iter().map(|account| account.default_key.clone()).collect(),
            accounts: accounts
                .into_iter()
                .map(|account| (account.default_key.user().into(), account))
                .collect(),
            client_terms: Arc::default(),
            encryption: match server.encryption {
                UpstreamEncryption::None => MySqlTlsMode::Plain,
                UpstreamEncryption::Tls { .. } => MySqlTlsMode::Tls,
            },
            transport: match server.address {
                ServerAddress::Host { .. } => Transport::Tcp,
                ServerAddress::Socket(_) => Transport::UnixSocket,
            },
            credentials: credentials(settings)?,
            pass_through: PassThroughAuth::of(settings),
            any_user: settings.password_sources().any_user,
            greeting: None,
            random: RandomBytes::default(),
            connection_ids: ConnectionIds::default(),
            pooling: settings.pooling,
            reset: settings.reset,
            known_status: HashMap::default(),
        })
    }

    fn connect_by(&mut self, hosts: impl FnOnce() -> LoginHosts, log: Log) {
        if let Some(pass_through) = &self.pass_through {
            pass_through.connect_by(hosts(), log);
        }
    }

    fn reload(&mut self, newer: Self) {
        let Self {
            accounts, default_keys, encryption, transport, credentials, pass_through, any_user, ..
        } = newer;
        self.any_user = any_user;
        self.pass_through = pass_through.map(|newer| newer.after(self.pass_through.as_ref()));
        (self.accounts, self.default_keys) = (accounts, default_keys);
        (self.encryption, self.transport, self.credentials) = (encryption, transport, credentials);
        self.known_status.clear();
        let default_keys = &self.default_keys;
        self.client_terms().retain(|names, _| default_keys.iter().any(|key| key.names == *names));
        self.use_client_terms();
    }

    fn forget_learned(&mut self) {
        // The greeting stays valid. The status flags after a login may have changed.
        self.known_status.clear();
    }

    fn discovery_key(&self) -> Option<MySqlKey> {
        if self.greeting.is_some() {
            return None;
        }
        // Every server accepts these capabilities.
        Some(MySqlKey { terms: FIRST_TERMS, ..self.default_keys.first()?.clone() })
    }

    fn connect_failed(&mut self, error: &ciphertoll_net::Error) {
        // The server's greeting has changed, so clients must not be greeted with the old one.
        let greeting = matches!(
            error,
            ciphertoll_net::Error::Protocol(session::Error::MySql(mysql::Error::Protocol {
                message: "greeting",
                ..
            }))
        );
        if greeting {
            self.greeting = None;
            self.known_status.clear();
        }
    }

    fn learned(&self, key: &MySqlKey) -> Option<LearnedParameters> {
        let status = self.known_status.get(&key.names).copied();
        Some(LearnedParameters {
            greeting: self.greeting.clone(),
            status: status.map(|status| (key.names.clone(), status)),
        })
    }

    fn learn(&mut self, learned: LearnedParameters) {
        if self.greeting != learned.greeting {
            self.greeting = learned.greeting;
            self.known_status.clear();
        }
        if let Some((names, status)) = learned.status {
            remember(&mut self.known_status, names, status);
        }
    }

    fn handshake(&mut self, auth: ClientAuth) -> Self::Handshake {
        let template = Arc::clone(self.greeting.as_ref()?);
        let greeting = GreetingContext::new(template, self.connection_ids.next_id(), self.random.take()?);
        let handshake = ClientHandshake::new(auth, self.credentials.clone(), greeting);
        Some(handshake.with_pass_through(self.pass_through.clone()))
    }

    fn change_user_handshake(&self, session: &ClientSession) -> Option<Self::Handshake> {
        let (context, template) = (session.login_context()?.clone(), Arc::clone(self.greeting.as_ref()?));
        let handshake = ClientHandshake::change_user(context, self.credentials.clone(), template);
        Some(Some(handshake.with_pass_through(self.pass_through.clone())))
    }

    fn pool_key(&mut self, request: &Box<StartupRequest>) -> Result<MySqlKey, Refusal> {
        let Some(account) = self.accounts.get_mut(request.user.as_str()) else {
            return self.unconfigured_key(request);
        };
        let (own, terms) = (&account.default_key.names, request.terms);
        if let Some(name) = request.database.as_deref().filter(|name| own.database() != Some(name)) {
            return Ok(MySqlKey { names: LoginNames::new(own.user(), Some(name)), terms });
        }
        let names = own.clone();
        if account.last_terms.replace(terms) != Some(terms) {
            self.client_terms().insert(names.clone(), terms);
        }
        Ok(MySqlKey { names, terms })
    }

    fn default_keys(&self) -> &[MySqlKey] {
        &self.default_keys
    }

    fn fingerprint(&self, key: &MySqlKey) -> Option<Fingerprint> {
        let account = self.accounts.get(key.user()).map(|account| account.fingerprint);
        let proven = || self.proven(key.user()).map(|proven| proven.fingerprint);
        let of_any_user = || self.any_user.as_ref().map(|passwords| passwords.fingerprint(key.user()));
        account.or_else(proven).or_else(of_any_user)
    }

    fn keep_password(&self, key: &MySqlKey) {
        if let Some(passwords) = &self.any_user {
            passwords.keep(key.user());
        }
    }

    fn password_cell(&self, key: &MySqlKey) -> Option<Arc<PasswordCell>> {
        match self.accounts.get(key.user()) {
            Some(account) => account.command.clone(),
            None => self.any_user.as_ref().map(|passwords| passwords.cell(key.user())),
        }
    }

    fn connect_plan(&self, key: &MySqlKey) -> Option<ConnectPlan> {
        let (user, password) = match (self.password_cell(key), self.accounts.get(key.user())) {
            (Some(cell), _) => {
                let fetched = cell.login()?;
                (fetched.user.clone(), fetched.password.clone())
            }
            (None, Some(account)) => (key.user().to_owned(), account.password.clone()),
            (None, None) => (key.user().to_owned(), self.proven(key.user())?.password.clone()),
        };
        let plugin = self.greeting.as_ref().map_or(Plugin::default(), |greeting| greeting.plugin());
        let login = Arc::new(MySqlLogin {
            database: key.names.database().map(ToOwned::to_owned),
            encryption: self.encryption,
            transport: self.transport,
            plugin,
            ..MySqlLogin::new(user, password)
        });
        let machine = MySqlConnect::pooled(Arc::clone(&login), key.terms);
        Some(ConnectPlan { login: session::Login::MySql(login), machine: session::Connect::MySql(machine) })
    }

    fn cancel_plan(&self, key: &MySqlKey, backend: &BackendState) -> Option<CancelPlan> {
        // A text without attributes, which every server takes.
        let connect = self.connect_plan(&MySqlKey { terms: FIRST_TERMS, ..key.clone() })?;
        let mut commands = Vec::new();
        encode_query(&mut commands, &format!("KILL QUERY {}", backend.connection_id)).ok()?;
        encode_quit(&mut commands);
        Some(CancelPlan { connect, commands })
    }

    fn too_many_clients(&self, kind: GroupKind, name: &str, limit: usize) -> Refusal {
        limit_errors::too_many_clients(kind, name, limit)
    }

    fn timed_out(&self, exceeded: Exceeded) -> Option<Refusal> {
        let version = self.greeting.as_ref().map_or(&b""[..], |greeting| greeting.version());
        limit_errors::timed_out(exceeded, version)
    }

    fn backend_state(&mut self, key: &MySqlKey, info: ServerInfo) -> Option<BackendState> {
        let ServerInfo::MySql(info) = info else { return None };
        self.use_client_terms();
        let greeting = match self.pooling {
            Pooling::Session => info.greeting.clone(),
            Pooling::Transaction => info.greeting.clone().without(NOT_SHARED),
        };
        let database = key.names.database().map(ToOwned::to_owned);
        let greeting = Some(Box::new(greeting));
        Some(BackendState { greeting, ..BackendState::of(&info, database, self.reset) })
    }

    fn learn_from(&mut self, key: &MySqlKey, backend: &mut BackendState) {
        let Some(greeting) = backend.greeting.take() else { return };
        if self.greeting.as_deref() != Some(&*greeting) {
            self.greeting = Some(Arc::new(*greeting));
            self.known_status.clear();
        }
        if self.pooling == Pooling::Transaction {
            remember(&mut self.known_status, key.names.clone(), backend.status);
        }
    }

    fn greet_early(
        &mut self,
        key: &MySqlKey,
        request: &mut Box<StartupRequest>,
        _: CancelToken,
        out: &mut Vec<u8>,
    ) -> bool {
        let status = self.known_status.get(&key.names);
        status.is_some_and(|status| request.greet(*status, &self.connection_ids, out).is_ok())
    }

    fn start_session(
        &self,
        request: Box<StartupRequest>,
        acquired: AcquiredState,
        backend: &mut BackendState,
        to_server: &mut Vec<u8>,
    ) -> Result<Box<ClientSession>, Box<StartFailed<Box<StartupRequest>>>> {
        match self.pooling {
            Pooling::Session => ClientSession::begin(&request, backend, &self.connection_ids, to_server)
                .map_err(|error| Box::new(StartFailed { request, error: error.into() })),
            Pooling::Transaction => {
                ClientSession::begin_pooled(request, acquired, backend, &self.connection_ids, to_server)
            }
        }
    }

    fn reset(
        &self,
        released: ReleasedState,
        backend: &mut BackendState,
        to_server: &mut Vec<u8>,
    ) -> SessionResult<InternalCommand> {
        backend.prepared.clear();
        backend.remains = Remains::Nothing;
        // A session that was not told the initial state has not started, and needs no reset.
        let initial_state = backend.initial_state.as_ref().ok_or(mysql::Error::NotReset)?;
        Ok(InternalCommand::reset(backend.capabilities, initial_state, released.open_state, to_server)?)
    }

    fn reset_need(&self, released: ReleasedState) -> ResetNeed {
        // More remains only within the limit of the policy.
        let is_none = released.remains < Remains::Anything && released.open_state == OpenState::default();
        // Commands are answered one by one: those behind a failed reset would be executed.
        if is_none { ResetNeed::None } else { ResetNeed::Awaited }
    }

    fn ping(&self, backend: &mut BackendState, to_server: &mut Vec<u8>) -> SessionResult<InternalCommand> {
        Ok(InternalCommand::ping(backend.capabilities, to_server))
    }

    fn ask_role(
        &self,
        backend: &mut BackendState,
        to_server: &mut Vec<u8>,
    ) -> SessionResult<InternalCommand> {
        Ok(InternalCommand::ask_role(backend.capabilities, to_server)?)
    }

    fn take_role(&self, backend: &mut BackendState) -> Option<ServerRole> {
        backend.role.take()
    }

    fn holds_diagnostics(&self, released: &ReleasedState) -> bool {
        released.diagnostics == Diagnostics::Some
    }

    fn idle_command(&self) -> InternalCommand {
        InternalCommand::nothing()
    }

    fn server_process(&self, backend: &BackendState) -> Option<u32> {
        Some(backend.connection_id)
    }

    fn terminate(&self, to_server: &mut Vec<u8>) {
        encode_quit(to_server);
    }
}

impl PoolKey for MySqlKey {
    fn user(&self) -> &str {
        self.names.user()
    }

    fn database(&self) -> &str {
        self.names.database().unwrap_or_default()
    }
}

impl ProtocolCommand for InternalCommand {
    type BackendState = BackendState;

    fn step(
        &mut self,
        input: &mut &[u8],
        backend: &mut BackendState,
    ) -> SessionResult<Response<CommandOutcome>> {
        Ok(match Self::step(self, input, &mut backend.initial_state)? {
            Response::NeedInput => Response::NeedInput,
            Response::Done(ResetOutcome::Restored) => {
                backend.role = self.role().and_then(server_role);
                if let Some(status) = self.reset_status() {
                    backend.record_status(status);
                }
                Response::Done(CommandOutcome::Idle)
            }
            Response::Done(ResetOutcome::OtherDatabase) => Response::Done(CommandOutcome::Unusable(
                "a client has chosen a database, and the login had none",
            )),
        })
    }
}

/// A server that restricts writes is a standby: what else it is, it does not tell.
fn server_role(reported: ReportedRole) -> Option<ServerRole> {
    let kind = match reported {
        ReportedRole::ReadWrite => RoleKind::ReadWrite,
        ReportedRole::ReadOnly => RoleKind::Standby,
        ReportedRole::NotReady => RoleKind::NotReady,
        ReportedRole::Unknown => return None,
    };
    Some(ServerRole { kind, timeline: None })
}
