//! SIGUSR2: an upgrade without a lost connection. This process starts the program anew; the new process inherits the
//! listening sockets ([`crate::Inheritance`]). When it is ready, this process accepts no more clients, serves its
//! clients until they leave, and ends.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::signal::{Signal, raise};

use crate::admin::AdminSocket;
use crate::engine::{HandedOver, NoAnswer};
use crate::inheritance::{MAX_SOCKETS, await_ready, say_yours, send};
use crate::log::{Level, Log};
use crate::notify::Notifier;
use crate::running::RunningServer;
use crate::settings::ListenAddress;

/// The flag of the new process.
const FLAG: &str = "--take-over";

#[derive(Debug, thiserror::Error)]
enum UpgradeError {
    #[error("cannot start {}: {source}", program.display())]
    NotStarted { program: PathBuf, source: io::Error },
    #[error("the new process did not become ready; it has logged why: {0}")]
    NotReady(io::Error),
    #[error("there are more than {MAX_SOCKETS} listening sockets")]
    TooManySockets,
    #[error("cannot duplicate the listening sockets, or the proxy is stopping")]
    NoSockets,
    #[error("a worker does not answer, so the proxy stops")]
    Stuck,
    #[error(
        "databases are paused or disabled, which the new process would not know: RESUME and ENABLE them first"
    )]
    Restricted,
}

/// Starts new processes on request.
pub struct Upgrader {
    servers: Vec<RunningServer>,
    notifier: Notifier,
    log: Log,
    /// Where this process's program was when it was started: an upgrade puts a newer one there.
    program: PathBuf,
    admin: Option<AdminSocket>,
    handover: HandoverLock,
    /// The new process serves.
    is_done: bool,
}

/// Held while sockets are handed over. Without clients the workers end at once then, and the process must not exit before
/// the new one knows that the sockets are its own.
#[derive(Clone, Default)]
pub struct HandoverLock(Arc<Mutex<()>>);

impl HandoverLock {
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when no handover is in progress.
    pub fn wait(&self) {
        drop(self.lock());
    }
}

impl Upgrader {
    pub fn new(
        servers: Vec<RunningServer>,
        notifier: Notifier,
        log: Log,
        admin: Option<AdminSocket>,
    ) -> io::Result<Self> {
        let (program, handover) = (env::current_exe()?, HandoverLock::default());
        Ok(Self { servers, notifier, log, program, admin, handover, is_done: false })
    }

    pub fn handover(&self) -> HandoverLock {
        self.handover.clone()
    }

    /// Upgrades, once. After a failure it can be repeated.
    pub fn upgrade(&mut self) {
        if self.is_done {
            return;
        }
        match self.start_new_process() {
            Ok(mut child) => {
                self.is_done = true;
                // The new process is this one's child: its end must be read.
                let _ = child.wait();
            }
            Err(error) => self.log.event(Level::Warn, "upgrade-failed", &[("reason", &error)]),
        }
    }

    fn start_new_process(&self) -> Result<Child, UpgradeError> {
        if self.servers.iter().any(|server| server.console.link().operations().has_restrictions()) {
            return Err(UpgradeError::Restricted);
        }
        let sockets = self.sockets()?;
        let not_started = |source| UpgradeError::NotStarted { program: self.program.clone(), source };
        let (ours, theirs) = UnixStream::pair().map_err(not_started)?;
        let mut child = Command::new(&self.program)
            .args(arguments_of_new_process(env::args_os()))
            .stdin(OwnedFd::from(theirs))
            .spawn()
            .map_err(not_started)?;
        self.log.event(Level::Info, "upgrading", &[("pid", &child.id())]);
        let is_ready = send(&ours, &sockets).and_then(|()| await_ready(&ours));
        drop(sockets);
        let handed_over =
            is_ready.map_err(UpgradeError::NotReady).and_then(|()| self.hand_over(&ours, child.id()));
        if let Err(error) = handed_over {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        Ok(child)
    }

    fn sockets(&self) -> Result<Vec<(ListenAddress, OwnedFd)>, UpgradeError> {
        let no_sockets = |_: io::Error| UpgradeError::NoSockets;
        let mut sockets = Vec::new();
        for RunningServer { listen, control, .. } in &self.servers {
            let own = control.sockets().map_err(|NoAnswer| UpgradeError::NoSockets)?;
            sockets.extend(listen.iter().cloned().zip(own));
        }
        if let Some(admin) = &self.admin {
            sockets.push((admin.address.clone(), admin.socket.try_clone().map_err(no_sockets)?));
        }
        if sockets.len() > MAX_SOCKETS { Err(UpgradeError::TooManySockets) } else { Ok(sockets) }
    }

    /// If it succeeds, the sockets and their files are the new process's.
    fn hand_over(&self, stream: &UnixStream, pid: u32) -> Result<(), UpgradeError> {
        let _lock = self.handover.lock();
        // While these are locked, no command of the console can pause anything.
        let mut decided: Vec<_> = self.servers.iter().map(|server| server.console.link().decided()).collect();
        if decided.iter().any(|decided| decided.operations.has_restrictions()) {
            return Err(UpgradeError::Restricted);
        }
        let mut given_away = 0;
        for (server, decided) in self.servers.iter().zip(&mut decided) {
            match server.control.hand_over() {
                Ok(HandedOver::Done) => {
                    decided.is_handed_over = true;
                    given_away += 1;
                }
                // It was told to stop, and so were the others.
                Ok(HandedOver::IsStopping) if given_away == 0 => return Err(UpgradeError::NoSockets),
                Ok(HandedOver::IsStopping) | Err(NoAnswer) => {
                    // Some workers may accept no clients any more: the supervisor must start the proxy anew.
                    let _ = raise(Signal::SIGTERM);
                    return Err(UpgradeError::Stuck);
                }
            }
        }
        if let Some(admin) = &self.admin {
            admin.ownership.give_up();
        }
        self.notifier.main_process(pid);
        if let Err(error) = say_yours(stream) {
            // The new process has ended, and this one accepts no clients: its supervisor must start it anew.
            let _ = raise(Signal::SIGTERM);
            return Err(UpgradeError::NotReady(error));
        }
        self.log.event(Level::Info, "upgraded", &[("pid", &pid)]);
        Ok(())
    }
}

fn arguments_of_new_process(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let own = arguments.skip(1).filter(|argument| argument != FLAG);
    own.chain([OsString::from(FLAG)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_process_gets_the_same_arguments_and_one_flag() {
        let arguments = |words: &[&str]| arguments_of_new_process(words.iter().map(OsString::from));
        let expected = ["--config", "x.toml", FLAG];
        assert_eq!(arguments(&["ciphertoll-proxy", "--config", "x.toml"]), expected);
        assert_eq!(arguments(&["ciphertoll-proxy", "--config", "x.toml", FLAG]), expected);
    }
}
