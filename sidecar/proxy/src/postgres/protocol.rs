//! The PostgreSQL protocol for the engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use ciphertoll_wire::postgres::command::encode_terminate;
use ciphertoll_wire::postgres::relay::{InternalCommand, NewTransactions, Recovery, ReportedRole, TimeLimit};
use ciphertoll_wire::postgres::sql::Remains;
use ciphertoll_wire::postgres::{
    ChannelBinding, Parameters, PostgresConnect, PostgresLogin, PostgresTlsMode, TransactionStatus,
};
use ciphertoll_wire::scram::KeyCache;
use ciphertoll_wire::session::{self, ServerInfo};
use ciphertoll_wire::{Response, Secret};
use foldhash::HashMap;

use super::auth_query::{CredentialLookup, SecretQuery};
use super::backend_state::{BackendState, Greeting, ResetContext};
use super::client_handshake::{ClientHandshake, CredentialStore};
use super::found_users::{FoundUsers, ProvenLogin};
use super::limit_errors;
use super::pool_key::PostgresKey;
use super::recent_logins::RecentLogins;
use super::session::ClientSession;
use super::startup_request::{StartupParameters, StartupRequest, cannot_fail};
use crate::client_auth::ClientAuth;
use crate::console_rules::{CONSOLE, ConsoleLogin};
use crate::credentials::{AnyUserPasswords, PasswordCell};
use crate::exceeded::Exceeded;
use crate::fingerprint::Fingerprint;
use crate::group_limits::GroupKind;
use crate::hosts::{RoleKind, ServerRole};
use crate::log::Log;
use crate::login_hosts::LoginHosts;
use crate::protocol::{
    AcquiredState, CancelBy, CancelPlan, CancelToken, CommandOutcome, ConnectPlan, PoolKey, Pooling,
    Protocol, ProtocolCommand, ResetNeed, ResetPolicy, SessionResult, StartFailed, remember,
};
use crate::random::RandomBytes;
use crate::refusal::Refusal;
use crate::settings::{DatabaseUser, ReplicationAccess, Settings, StartError};
use crate::url::UpstreamEncryption;

#[derive(Clone)]
pub struct Postgres {
    accounts: BTreeMap<Arc<str>, ServerAccount>,
    /// The key of each user, that of the server's URL first.
    default_keys: Vec<PostgresKey>,
    encryption: PostgresTlsMode,
    /// For unix sockets; `None` if the peer UID is enough.
    by_unix: Option<Arc<CredentialStore>>,
    /// For TCP; `None` if clients present certificates, or if TCP is not used.
    by_tcp: Option<Arc<CredentialStore>>,
    pooling: Pooling,
    reset: ResetPolicy,
    replication: ReplicationAccess,
    /// `None` if users whom the settings do not name are refused.
    lookup: Option<Arc<CredentialLookup>>,
    found: FoundUsers,
    /// The same if a command prints their passwords.
    any_user: Option<Arc<AnyUserPasswords>>,
    known_parameters: HashMap<PostgresKey, Parameters>,
    /// Empty in session pooling.
    recent_logins: RecentLogins,
    random: RandomBytes,
}

#[derive(Clone)]
struct ServerAccount {
    /// With the database of clients that name none.
    default_key: PostgresKey,
    password: Secret,
    /// In place of `password`.
    command: Option<Arc<PasswordCell>>,
    /// Saves hashing the password for each connection.
    keys: Arc<KeyCache>,
    fingerprint: Fingerprint,
}

impl Postgres {
    /// Remembers the settings of new connections.
    fn remember_parameters(&mut self, key: PostgresKey, parameters: Parameters) {
        if self.known_parameters.get(&key) != Some(&parameters) {
            self.recent_logins.clear();
            remember(&mut self.known_parameters, key, parameters);
        }
    }

    fn forget_parameters(&mut self, key: &PostgresKey) -> bool {
        let was_known = self.known_parameters.remove(key).is_some();
        if was_known {
            self.recent_logins.clear();
        }
        was_known
    }

    /// The end of a login; `None` if only the server can tell what it is.
    fn early_greeting(&self, key: &PostgresKey, request: &StartupRequest) -> Option<Greeting> {
        let known = self.known_parameters.get(key)?;
        let mut parameters = known.clone();
        for (name, value) in request.differing(known) {
            if !cannot_fail(name, value, known) {
                return None;
            }
            parameters.set(name.as_bytes(), value.as_bytes()).ok()?;
        }
        Greeting::new(&parameters).ok()
    }

    /// The key of a client whose user the settings do not name.
    fn found_key(
        &self,
        parameters: &Arc<StartupParameters>,
        proven: &ProvenLogin,
    ) -> Result<PostgresKey, Refusal> {
        let user = &parameters.user;
        // The settings may have changed since its login.
        if self.lookup.as_ref().is_none_or(|lookup| lookup.configures(user)) {
            return Err(self.unknown_user(user, '"'));
        }
        self.found.add(user, proven);
        let key = PostgresKey::new(user, parameters.database.as_deref().unwrap_or(user));
        Ok(if parameters.replication.is_some() { key.dedicated(parameters) } else { key })
    }

    /// The key of a user whose password a command prints, with the database of clients that name none.
    fn any_user_key(&self, user: &str) -> Result<PostgresKey, Refusal> {
        let passwords = self.any_user.as_ref().ok_or_else(|| self.unknown_user(user, '"'))?;
        AnyUserPasswords::accept(user)?;
        Ok(PostgresKey::new(user, passwords.database().unwrap_or(user)))
    }

    fn login_as(&self, user: &str, password: Secret, database: Option<&str>) -> Arc<PostgresLogin> {
        let binding = match self.encryption {
            PostgresTlsMode::Plain => ChannelBinding::Disabled,
            _ => ChannelBinding::Preferred,
        };
        Arc::new(PostgresLogin {
            startup: Vec::new(),
            user: user.to_owned(),
            password,
            database: database.map(ToOwned::to_owned),
            encryption: self.encryption,
            channel_binding: binding,
        })
    }
}

impl ServerAccount {
    fn of(user: &DatabaseUser, max_iterations: u32) -> Self {
        Self {
            default_key: PostgresKey::new(&user.name, user.database.as_deref().unwrap_or(&user.name)),
            password: user.password.clone(),
            command: user.command.clone(),
            keys: Arc::new(KeyCache::with_max_iterations(max_iterations)),
            fingerprint: user.fingerprint(),
        }
    }
}

/// The passwords that clients must know; `None` if they all authenticate by other means.
fn credentials(settings: &Settings, by_tcp: bool) -> Result<Option<Arc<CredentialStore>>, StartError> {
    if !settings.needs_password(by_tcp) {
        return Ok(None);
    }
    let iterations = if by_tcp { settings.iterations.by_tcp } else { settings.iterations.by_unix };
    Ok(Some(Arc::new(CredentialStore::for_users(settings.passwords()?, iterations)?)))
}

fn lookup(settings: &Settings) -> Result<Option<Arc<CredentialLookup>>, StartError> {
    let Some(question) = SecretQuery::of(settings) else { return Ok(None) };
    let configured = settings.users.iter().map(|user| user.name.clone()).collect();
    let lookup = CredentialLookup::new(question, configured).map_err(|_| StartError::NoRandomBytes)?;
    Ok(Some(Arc::new(lookup)))
}

impl Protocol for Postgres {
    type Key = PostgresKey;
    type Handshake = ClientHandshake;
    type Request = Box<StartupRequest>;
    type BackendState = BackendState;
    type Session = ClientSession;
    type Command = InternalCommand;
    type ResetContext = ResetContext;
    /// Without parameters, other workers forget theirs.
    type Learned = (PostgresKey, Option<Parameters>);

    const SENDS_FIRST: bool = false;
    const CANCEL_BY: CancelBy = CancelBy::Token;

    fn from_settings(settings: &Settings) -> Result<Self, StartError> {
        let accounts: Vec<ServerAccount> = settings
            .users
            .iter()
            .map(|user| ServerAccount::of(user, settings.limits.scram_iterations))
            .collect();
        Ok(Self {
            default_keys: accounts.iter().map(|account| account.default_key.clone()).collect(),
            accounts: accounts
                .into_iter()
                .map(|account| (account.default_key.user().into(), account))
                .collect(),
            encryption: match settings.server.encryption {
                UpstreamEncryption::None => PostgresTlsMode::Plain,
                UpstreamEncryption::Tls { .. } => PostgresTlsMode::Tls,
            },
            by_unix: credentials(settings, false)?,
            by_tcp: credentials(settings, true)?,
            pooling: settings.pooling,
            reset: settings.reset,
            replication: settings.access.replication,
            lookup: lookup(settings)?,
            found: FoundUsers::default(),
            any_user: settings.password_sources().any_user,
            known_parameters: HashMap::default(),
            recent_logins: RecentLogins::default(),
            random: RandomBytes::default(),
        })
    }

    fn connect_by(&mut self, hosts: impl FnOnce() -> LoginHosts, log: Log) {
        if let Some(lookup) = &self.lookup {
            lookup.connect_by(hosts(), log);
        }
    }

    fn reload(&mut self, newer: Self) {
        let Self {
            accounts,
            default_keys,
            encryption,
            by_unix,
            by_tcp,
            pooling: _,
            reset: _,
            replication,
            lookup,
            found: _,
            any_user,
            known_parameters: _,
            recent_logins: _,
            random: _,
        } = newer;
        self.recent_logins.clear();
        let fingerprint = |key: &PostgresKey| (key.clone(), self.fingerprint(key));
        let before: HashMap<_, _> = self.known_parameters.keys().map(fingerprint).collect();
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
        self.default_keys = default_keys;
        (self.encryption, self.replication) = (encryption, replication);
        (self.lookup, self.any_user) = (lookup, any_user);
        if self.lookup.is_none() {
            self.found.clear();
        }
        (self.by_unix, self.by_tcp) = (by_unix, by_tcp);
        let mut known = std::mem::take(&mut self.known_parameters);
        known.retain(|key, _| before.get(key) == Some(&self.fingerprint(key)));
        self.known_parameters = known;
    }

    fn forget_learned(&mut self) {
        self.known_parameters.clear();
        self.recent_logins.clear();
    }

    fn learned(&self, key: &PostgresKey) -> Option<Self::Learned> {
        Some((key.clone(), self.known_parameters.get(key).cloned()))
    }

    fn learn(&mut self, (key, known): Self::Learned) {
        match known {
            Some(known) => self.remember_parameters(key, known),
            None => {
                self.forget_parameters(&key);
            }
        }
    }

    fn learn_again(&mut self, key: &PostgresKey, backend: &mut BackendState) -> bool {
        let is_new = std::mem::take(&mut backend.has_new_base) && self.pooling == Pooling::Transaction;
        if is_new {
            self.remember_parameters(key.clone(), backend.base.clone());
        }
        is_new
    }

    fn forget(&mut self, key: &PostgresKey) -> bool {
        self.forget_parameters(key)
    }

    fn handshake(&mut self, auth: ClientAuth) -> ClientHandshake {
        let credentials = if auth == ClientAuth::PasswordByUnix { &self.by_unix } else { &self.by_tcp };
        let nonce = if auth.needs_password() { self.random.take() } else { None };
        ClientHandshake::new(auth, credentials.clone())
            .with_caches(self.recent_logins.clone(), nonce)
            .with_replication(self.replication)
            .with_lookup(self.lookup.clone())
    }

    fn pool_key(&mut self, request: &Box<StartupRequest>) -> Result<PostgresKey, Refusal> {
        let parameters = &request.parameters;
        if let Some(proven) = &request.proven {
            return self.found_key(parameters, proven);
        }
        if let Some(key) = self.recent_logins.key(parameters) {
            return Ok(key.clone());
        }
        let own = match self.accounts.get(parameters.user.as_str()) {
            Some(account) => account.default_key.clone(),
            None => self.any_user_key(&parameters.user)?,
        };
        let key = match &parameters.database {
            Some(name) if name != own.database() => PostgresKey::new(own.user(), name),
            _ => own,
        };
        if parameters.replication.is_some() {
            return Ok(key.dedicated(parameters));
        }
        // Otherwise it is added with its greeting.
        if self.pooling == Pooling::Session {
            self.recent_logins.add(parameters, key.clone(), None);
        }
        Ok(key)
    }

    fn default_keys(&self) -> &[PostgresKey] {
        &self.default_keys
    }

    fn fingerprint(&self, key: &PostgresKey) -> Option<Fingerprint> {
        let account = self.accounts.get(key.user()).map(|account| account.fingerprint);
        let found = || self.found.get(key.user()).map(|proven| proven.fingerprint());
        let of_any_user = || self.any_user.as_ref().map(|passwords| passwords.fingerprint(key.user()));
        account.or_else(found).or_else(of_any_user)
    }

    fn keep_password(&self, key: &PostgresKey) {
        if let Some(passwords) = &self.any_user {
            passwords.keep(key.user());
        }
    }

    fn password_cell(&self, key: &PostgresKey) -> Option<Arc<PasswordCell>> {
        match self.accounts.get(key.user()) {
            Some(account) => account.command.clone(),
            None => self.any_user.as_ref().map(|passwords| passwords.cell(key.user())),
        }
    }

    fn connect_plan(&self, key: &PostgresKey) -> Option<ConnectPlan> {
        let mut server_user = key.user();
        let fetched;
        let (password, keys) = match (self.password_cell(key), self.accounts.get(key.user())) {
            (Some(cell), _) => {
                fetched = cell.login()?;
                server_user = &fetched.user;
                (fetched.password.clone(), Arc::clone(&fetched.keys))
            }
            (None, Some(account)) => (account.password.clone(), Arc::clone(&account.keys)),
            (None, None) => (Secret::new(Vec::new()), self.found.get(key.user())?.keys()),
        };
        let mut login = self.login_as(server_user, password, Some(key.database()));
        let machine = match key.client() {
            None => PostgresConnect::pooled(Arc::clone(&login), keys),
            Some(client) => {
                login = Arc::new(PostgresLogin { startup: client.dedicated(), ..(*login).clone() });
                PostgresConnect::dedicated(Arc::clone(&login), keys)
            }
        };
        Some(ConnectPlan {
            login: session::Login::Postgres(login),
            machine: session::Connect::Postgres(machine),
        })
    }

    fn cancel_plan(&self, _: &PostgresKey, backend: &BackendState) -> Option<CancelPlan> {
        let (process_id, key) = backend.cancel.clone()?;
        let user = self.default_keys.first()?.user();
        // A cancel request needs no login.
        let login = self.login_as(user, Secret::new(Vec::new()), None);
        let machine = PostgresConnect::cancelling(Arc::clone(&login), process_id, key);
        let connect = ConnectPlan {
            login: session::Login::Postgres(login),
            machine: session::Connect::Postgres(machine),
        };
        Some(CancelPlan { connect, commands: Vec::new() })
    }

    fn too_many_clients(&self, kind: GroupKind, name: &str, limit: usize) -> Refusal {
        limit_errors::too_many_clients(kind, name, limit)
    }

    fn timed_out(&self, exceeded: Exceeded) -> Option<Refusal> {
        Some(limit_errors::timed_out(exceeded))
    }

    fn backend_state(&mut self, _: &PostgresKey, info: ServerInfo) -> Option<BackendState> {
        let ServerInfo::Postgres(info) = info else { return None };
        Some(BackendState::new(info))
    }

    fn learn_from(&mut self, key: &PostgresKey, backend: &mut BackendState) {
        if self.pooling == Pooling::Transaction && !key.is_dedicated() {
            self.remember_parameters(key.clone(), backend.base.clone());
        }
    }

    fn greet_early(
        &mut self,
        key: &PostgresKey,
        request: &mut Box<StartupRequest>,
        cancel_token: CancelToken,
        out: &mut Vec<u8>,
    ) -> bool {
        let parameters = &request.parameters;
        if self.recent_logins.greeting(parameters).is_none() {
            let Some(greeting) = self.early_greeting(key, request) else { return false };
            self.recent_logins.add(parameters, key.clone(), Some(greeting));
        }
        let Some(greeting) = self.recent_logins.greeting(parameters) else { return false };
        request.sent_digest = greeting.digest;
        request.process_id = Some(cancel_token.process_id);
        greeting.write(cancel_token, out).is_ok()
    }

    fn start_session(
        &self,
        request: Box<StartupRequest>,
        acquired: AcquiredState,
        backend: &mut BackendState,
        to_server: &mut Vec<u8>,
    ) -> Result<Box<ClientSession>, Box<StartFailed<Box<StartupRequest>>>> {
        if request.parameters.replication.is_some() {
            return Ok(ClientSession::begin_dedicated());
        }
        if self.reset == ResetPolicy::Always {
            backend.remains = Remains::Anything;
        }
        match self.pooling {
            Pooling::Session => ClientSession::begin_unpooled(&request, acquired, backend, to_server)
                .map_err(|error| Box::new(StartFailed { request, error: error.into() })),
            Pooling::Transaction => ClientSession::begin_pooled(request, acquired, backend, to_server),
        }
    }

    fn reset(
        &self,
        context: ResetContext,
        backend: &mut BackendState,
        to_server: &mut Vec<u8>,
    ) -> SessionResult<InternalCommand> {
        backend.prepared.clear();
        backend.remains = Remains::Nothing;
        let time_limit = if context.has_short_timeout { TimeLimit::MayBeShort } else { TimeLimit::Long };
        Ok(InternalCommand::reset(context.transaction, time_limit, to_server)?)
    }

    fn accepts(&self, backend: &BackendState, request: &Box<StartupRequest>) -> bool {
        let can_set = !backend.may_have_temporary || request.value("temp_buffers").is_none();
        can_set && (backend.custom_settings == 0 || backend.custom_settings == request.custom_settings())
    }

    fn reset_need(&self, context: ResetContext) -> ResetNeed {
        let has_remains = context.remains == Remains::Anything;
        // In session pooling, locks and notifications must not outlive their client.
        let must_be_awaited = self.pooling == Pooling::Session && has_remains;
        if must_be_awaited || context.has_short_timeout || context.transaction != TransactionStatus::Idle {
            ResetNeed::Awaited
        } else if self.reset == ResetPolicy::Tracked && !has_remains {
            ResetNeed::SettingsOnly
        } else {
            ResetNeed::Pipelined
        }
    }

    fn ping(&self, _: &mut BackendState, to_server: &mut Vec<u8>) -> SessionResult<InternalCommand> {
        Ok(InternalCommand::ping(to_server)?)
    }

    fn ask_role(&self, _: &mut BackendState, to_server: &mut Vec<u8>) -> SessionResult<InternalCommand> {
        Ok(InternalCommand::ask_role(to_server)?)
    }

    fn take_role(&self, backend: &mut BackendState) -> Option<ServerRole> {
        backend.role.take()
    }

    fn reported_standby(&self, backend: &BackendState) -> Option<bool> {
        backend.parameters.get(b"in_hot_standby").map(|value| value == b"on")
    }

    fn idle_command(&self) -> InternalCommand {
        InternalCommand::nothing()
    }

    fn terminate(&self, to_server: &mut Vec<u8>) {
        encode_terminate(to_server);
    }

    fn console_login(&self, request: &Box<StartupRequest>) -> Option<ConsoleLogin> {
        let parameters = &request.parameters;
        let login = || ConsoleLogin { user: parameters.user.clone(), proof: request.proof };
        (parameters.database.as_deref() == Some(CONSOLE)).then(login)
    }

    fn server_process(&self, backend: &BackendState) -> Option<u32> {
        backend.cancel.as_ref().map(|(process_id, _)| *process_id)
    }

    fn application_name(&self, backend: &BackendState) -> Option<String> {
        let name = backend.parameters.get(b"application_name")?;
        Some(String::from_utf8_lossy(name).into_owned())
    }
}

impl ProtocolCommand for InternalCommand {
    type BackendState = BackendState;

    fn step(
        &mut self,
        input: &mut &[u8],
        backend: &mut BackendState,
    ) -> SessionResult<Response<CommandOutcome>> {
        Ok(match Self::step(self, input, &mut backend.parameters)? {
            Response::NeedInput => Response::NeedInput,
            Response::Done(TransactionStatus::Idle) => {
                backend.role = self.role().map(server_role);
                // Others are reported after the server's configuration has changed.
                if backend.base.digest() != backend.parameters.digest() {
                    backend.base = backend.parameters.clone();
                    backend.has_new_base = true;
                }
                Response::Done(CommandOutcome::Idle)
            }
            Response::Done(_) => {
                Response::Done(CommandOutcome::Unusable("the reset left a transaction open"))
            }
        })
    }
}

fn server_role(reported: ReportedRole) -> ServerRole {
    let kind = match (reported.recovery, reported.transactions) {
        (Recovery::InRecovery, _) => RoleKind::Standby,
        (Recovery::Ended, NewTransactions::ReadWrite) => RoleKind::ReadWrite,
        (Recovery::Ended, NewTransactions::ReadOnly) => RoleKind::ReadOnlyPrimary,
    };
    ServerRole { kind, timeline: reported.timeline }
}

#[cfg(test)]
mod tests;
