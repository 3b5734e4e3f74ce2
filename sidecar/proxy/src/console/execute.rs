//! Carries out commands. The thread that calls it may wait, for minutes if need be.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::command::{Command, CommandError, Show, ShutdownMode};
use super::show::{self, Snapshot, Sockets};
use super::stats::Statistics;
use super::table::{ConsoleTable, row};
use crate::console_facts::Facts;
use crate::console_rules::{CONSOLE, Role};
use crate::engine::{ChangeError, ControlHandle, NoAnswer, ServerControl, WaitingClients};
use crate::log::Level;
use crate::operations::{OperationError, Scope};
use crate::protocol::Protocol;

/// How often a command that waits looks whether its client is still there, if nothing else wakes it.
const LOOK: Duration = Duration::from_millis(250);

/// What a command that waits must know of its client.
pub(super) trait Caller {
    fn state(&mut self) -> CallerState;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallerState {
    Waits,
    /// It has cancelled the command.
    HasCancelled,
    IsGone,
}

#[derive(Debug)]
pub(super) enum ConsoleReply {
    Table(ConsoleTable),
    Help,
    /// With a notice, if there is one.
    Done(Option<&'static str>),
    /// The caller is told that the proxy stops, if that is possible, and then calls [`stop_at_once`].
    StopsAtOnce,
}

/// An error message with its SQL state.
#[derive(Debug)]
pub(super) struct CommandFailure {
    pub(super) sqlstate: [u8; 5],
    pub(super) message: String,
}

impl CommandFailure {
    /// PgBouncer gives all its errors this state.
    fn new(message: impl Into<String>) -> Self {
        Self { sqlstate: *b"08P01", message: message.into() }
    }

    fn with_state(sqlstate: [u8; 5], message: &str) -> Self {
        Self { sqlstate, message: message.to_owned() }
    }
}

impl From<NoAnswer> for CommandFailure {
    fn from(error: NoAnswer) -> Self {
        Self::new(error.to_string())
    }
}

impl From<ChangeError> for CommandFailure {
    fn from(error: ChangeError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<CommandError> for CommandFailure {
    fn from(error: CommandError) -> Self {
        Self::new(error.to_string())
    }
}

/// Carries out the command in `text`, for `user` or an equivalent. Returns its tag and its reply.
pub(super) fn execute<P: Protocol>(
    control: &ControlHandle<P>,
    text: &str,
    user: &str,
    role: Role,
    caller: &mut dyn Caller,
) -> Result<(&'static str, ConsoleReply), CommandFailure> {
    control.console().count_command();
    let facts = control.console().facts().ok_or(NoAnswer)?;
    let command = Command::parse(text)?;
    if role == Role::Stats && !command.only_shows() {
        return Err(CommandFailure::new("admin access needed"));
    }
    if !command.only_shows() {
        let fields: [(&str, &dyn std::fmt::Display); 2] = [("command", &text), ("user", &user)];
        facts.log.event(Level::Info, "console", &fields);
    }
    if command.database() == Some(CONSOLE) {
        let what = command.tag().to_ascii_lowercase();
        return Err(CommandFailure::new(format!("cannot {what} admin db: {CONSOLE}")));
    }
    let tag = command.tag();
    let reply = Execution { control, facts, caller }.run(command);
    if let Err(CommandFailure { message, .. }) = &reply {
        let fields: [(&str, &dyn std::fmt::Display); 2] = [("command", &text), ("reason", message)];
        control.console().facts().ok_or(NoAnswer)?.log.event(Level::Info, "console-refused", &fields);
    }
    reply.map(|reply| (tag, reply))
}

/// The process ends soon after.
pub(super) fn stop_at_once<P: Protocol>(control: &ControlHandle<P>) {
    // A worker that does not answer has ended already.
    let _ = control.stop(true, WaitingClients::Served);
}

struct Execution<'a, P: Protocol> {
    control: &'a ControlHandle<P>,
    facts: Arc<Facts>,
    caller: &'a mut dyn Caller,
}

/// The result of waiting for server connections to close.
enum Waited {
    NoneLeft,
    Cancelled,
    CallerIsGone,
    /// The command that waits no longer applies.
    Obsolete,
}

impl<P: Protocol> Execution<'_, P> {
    fn run(mut self, command: Command) -> Result<ConsoleReply, CommandFailure> {
        match command {
            Command::Show(Show::Help) => return Ok(ConsoleReply::Help),
            Command::Show(show) => return self.show(show).map(ConsoleReply::Table),
            Command::ShowParameter(name, value) => {
                let mut table = ConsoleTable::new("s", name);
                table.push(row![value]);
                return Ok(ConsoleReply::Table(table));
            }
            Command::SetParameter => return Ok(ConsoleReply::Done(Some("SET ignored"))),
            Command::Set => {
                let message = "SET is not supported: change the configuration file and use RELOAD";
                return Err(CommandFailure::with_state(*b"0A000", message));
            }
            Command::Suspend => {
                let message = "SUSPEND is not supported: use PAUSE, or SIGUSR2 for an upgrade";
                return Err(CommandFailure::with_state(*b"0A000", message));
            }
            Command::Pause(scope) => self.pause(&scope)?,
            Command::Resume(scope) => self.resume(&scope)?,
            Command::Reconnect(scope) => {
                self.control.change_operations(|operations| operations.reconnect(&scope, Instant::now()))?;
            }
            Command::Disable(name) => {
                self.control.change_operations(|operations| operations.set_disabled(&name, true))?;
            }
            Command::Enable(name) => {
                self.control.change_operations(|operations| operations.set_disabled(&name, false))?;
            }
            Command::Kill(scope) => self.kill(&scope)?,
            Command::KillClient(number) => {
                if !self.control.kill_client(number)? {
                    return Err(CommandFailure::new("client not found"));
                }
            }
            Command::WaitClose(scope) => self.wait_close(&scope)?,
            Command::Reload => {
                if !self.control.console().reload() {
                    let message = "RELOAD failed, see logs for additional details";
                    return Err(CommandFailure::with_state(*b"F0000", message));
                }
            }
            Command::Shutdown(_) if self.has_other_servers() => {
                let message =
                    "SHUTDOWN would stop the other servers of this process: send it SIGTERM instead";
                return Err(CommandFailure::with_state(*b"55000", message));
            }
            Command::Shutdown(ShutdownMode::AtOnce) => return Ok(ConsoleReply::StopsAtOnce),
            Command::Shutdown(ShutdownMode::WaitForClients) => {
                self.control.stop(false, WaitingClients::Served)?;
            }
            Command::Shutdown(ShutdownMode::WaitForServers) => self.stop_after_servers()?,
        }
        Ok(ConsoleReply::Done(None))
    }

    fn has_other_servers(&self) -> bool {
        self.control.console().facts().is_some_and(|facts| facts.log.has_server())
    }

    /// Returns when the scope has no open server connections.
    fn pause(&mut self, scope: &Scope) -> Result<(), CommandFailure> {
        self.control.change_operations(|operations| operations.pause(scope))?;
        let control = self.control;
        let is_paused = || {
            let operations = control.console().operations();
            match scope {
                Scope::All => operations.is_all_paused(),
                Scope::Database(name) => operations.is_paused(name),
            }
        };
        match self.wait_for_none(|| control.count_open(scope), is_paused)? {
            Waited::NoneLeft => Ok(()),
            Waited::Cancelled => {
                // Another session may have been faster.
                let _ = control.change_operations(|operations| operations.resume(scope, Instant::now()));
                Err(CommandFailure::with_state(*b"57014", "canceling statement due to user request: resumed"))
            }
            Waited::Obsolete => Err(CommandFailure::new("another session has resumed it meanwhile")),
            // As with PgBouncer, the pause stays in force.
            Waited::CallerIsGone => {
                Err(CommandFailure::new("the client of a PAUSE has left; the pause stays in force"))
            }
        }
    }

    fn resume(&mut self, scope: &Scope) -> Result<(), CommandFailure> {
        if self.control.status()?.draining {
            return Err(CommandFailure::new("pooler is shutting down"));
        }
        Ok(self.control.change_operations(|operations| operations.resume(scope, Instant::now()))?)
    }

    /// New clients wait until the scope is resumed.
    fn kill(&mut self, scope: &Scope) -> Result<(), CommandFailure> {
        let paused = self.control.change_operations(|operations| operations.pause(scope));
        match (paused, scope) {
            (Err(ChangeError::Refused(OperationError::DatabaseAlreadyPaused(_))), Scope::Database(_)) => {}
            (paused, _) => paused?,
        }
        Ok(self.control.kill(scope)?)
    }

    fn wait_close(&mut self, scope: &Scope) -> Result<(), CommandFailure> {
        let control = self.control;
        match self.wait_for_none(|| control.count_closing(scope), || true)? {
            Waited::NoneLeft => Ok(()),
            Waited::Cancelled => {
                Err(CommandFailure::with_state(*b"57014", "canceling statement due to user request"))
            }
            Waited::Obsolete | Waited::CallerIsGone => Err(CommandFailure::new("the client has left")),
        }
    }

    fn wait_for_none(
        &mut self,
        count: impl Fn() -> Result<usize, NoAnswer>,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Waited, CommandFailure> {
        let link = Arc::clone(self.control.console());
        loop {
            // Before the count, so that no end is missed between the two.
            let seen = link.notices();
            if !is_wanted() {
                return Ok(Waited::Obsolete);
            }
            if count()? == 0 {
                return Ok(Waited::NoneLeft);
            }
            match self.caller.state() {
                CallerState::Waits => link.await_notice(seen, LOOK),
                CallerState::HasCancelled => return Ok(Waited::Cancelled),
                CallerState::IsGone => return Ok(Waited::CallerIsGone),
            }
        }
    }

    /// Stops when the last server connection is released; another thread waits for that.
    fn stop_after_servers(&mut self) -> Result<(), CommandFailure> {
        match self.control.change_operations(|operations| operations.pause(&Scope::All)) {
            Ok(()) | Err(ChangeError::Refused(OperationError::AlreadyPaused)) => {}
            Err(error) => return Err(error.into()),
        }
        self.control.stop(false, WaitingClients::Refused)?;
        let control = self.control.clone();
        let wait = move || {
            let link = control.console();
            loop {
                let seen = link.notices();
                // Workers that do not answer have ended, because their last clients have left.
                if control.count_open(&Scope::All).unwrap_or(0) == 0 {
                    return stop_at_once(&control);
                }
                link.await_notice(seen, LOOK);
            }
        };
        let started = thread::Builder::new().name("shutdown".to_owned()).spawn(wait);
        started.map(drop).map_err(|error| CommandFailure::new(format!("cannot start a thread: {error}")))
    }

    fn show(&self, show: Show) -> Result<ConsoleTable, CommandFailure> {
        let statistics = || {
            let commands = self.control.console().commands();
            Ok::<_, NoAnswer>(Statistics::of(self.control.usage()?, commands))
        };
        Ok(match show {
            Show::Stats => statistics()?.stats(),
            Show::StatsTotals => statistics()?.totals(),
            Show::StatsAverages => statistics()?.averages(),
            Show::Totals => statistics()?.sums(),
            Show::Clients => self.snapshot()?.clients(),
            Show::Databases => self.snapshot()?.databases(),
            Show::Fds => self.snapshot()?.fds(),
            Show::Lists => self.snapshot()?.lists(self.control.names()?.len()),
            Show::Pools => self.snapshot()?.pools(),
            Show::Servers => self.snapshot()?.servers(),
            Show::Sockets => self.snapshot()?.sockets(Sockets::All),
            Show::ActiveSockets => self.snapshot()?.sockets(Sockets::Active),
            Show::Users => self.snapshot()?.users(),
            Show::Config => show::config(&self.facts),
            Show::Help | Show::Version => show::version(),
            Show::Mem => show::memory(),
            Show::DnsHosts => show::dns_hosts(self.control.names()?),
            Show::DnsZones => show::dns_zones(),
            Show::Peers => show::peers(),
            Show::PeerPools => show::peer_pools(),
            Show::State => show::state(&self.control.console().operations()),
        })
    }

    fn snapshot(&self) -> Result<Snapshot, NoAnswer> {
        let link = self.control.console();
        Ok(Snapshot {
            facts: Arc::clone(&self.facts),
            operations: link.operations(),
            clients: self.control.clients()?,
            servers: self.control.servers()?,
            sessions: link.sessions(),
            now: Instant::now(),
        })
    }
}
