//! A session of the console over a listener: PostgreSQL's simple query protocol.

use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_net::{Channel, Error, Reactor, Received, Sent, WatchedEvents};
use ciphertoll_wire::postgres::server::{FrontendMessage, read_frontend};
use ciphertoll_wire::postgres::{self, Severity};

use super::execute::{Caller, CallerState, CommandFailure, ConsoleReply, execute, stop_at_once};
use super::messages::{
    HELP, write_done, write_failure, write_greeting, write_notice, write_ready, write_table,
};
use crate::console_link::{ConsoleClient, SessionGuard};
use crate::console_rules::not_allowed;
use crate::engine::ControlHandle;
use crate::log::Level;
use crate::protocol::Protocol;

/// Far longer than any command.
const MAX_QUERY_BYTES: usize = 4 << 10;
/// How long a client may take to read an answer.
const SEND_TIMEOUT: Duration = Duration::from_mins(1);
/// How long a client may be silent for the kernel.
const VANISHED_AFTER: Duration = Duration::from_mins(1);
const EVENT: usize = 0;

/// Serves clients that log in to the database `pgbouncer`, each on its own thread, until the process ends.
/// `reload` reads the settings again and returns whether they are in force.
pub(super) fn open_console<P: Protocol>(
    control: &ControlHandle<P>,
    reload: impl Fn() -> bool + Send + Sync + 'static,
) {
    control.console().set_reload(reload);
    let served_by = control.clone();
    control.console().set_door(move |client: ConsoleClient| {
        let control = served_by.clone();
        let serve = move || {
            // The client notices the end of the connection, whatever the reason.
            let _ = ConsoleSession::serve(client, &control);
        };
        if let Err(error) = thread::Builder::new().name("console".to_owned()).spawn(serve)
            && let Some(facts) = served_by.console().facts()
        {
            facts.log.event(Level::Warn, "console-failed", &[("reason", &error)]);
        }
    });
}

struct ConsoleSession {
    channel: Channel,
    reactor: Reactor,
    session: SessionGuard,
}

/// Why a session ends.
enum End {
    Left,
    Failed,
}

impl From<Error> for End {
    fn from(_: Error) -> Self {
        Self::Failed
    }
}

impl From<postgres::Error> for End {
    fn from(_: postgres::Error) -> Self {
        Self::Failed
    }
}

impl Caller for ConsoleSession {
    fn state(&mut self) -> CallerState {
        if self.session.take_cancelled() {
            return CallerState::HasCancelled;
        }
        // What the client sends meanwhile waits, as long as it is not too much.
        if self.channel.input().len() <= MAX_QUERY_BYTES
            && matches!(self.channel.receive_input(), Ok(Received::Closed) | Err(_))
        {
            return CallerState::IsGone;
        }
        CallerState::Waits
    }
}

impl ConsoleSession {
    fn serve<P: Protocol>(client: ConsoleClient, control: &ControlHandle<P>) -> Result<(), End> {
        let ConsoleClient { mut channel, login, peer, secret, session } = client;
        let reactor = Reactor::new()?;
        reactor.register(&mut channel, EVENT, WatchedEvents::Both)?;
        // A peer that vanishes does not keep its place. Unix sockets do not have this option and do not need
        // it.
        let _ = channel.limit_silence(VANISHED_AFTER);
        write_greeting(channel.output(), session.process_id, secret)?;
        let mut own = Self { channel, reactor, session };
        own.flush()?;
        loop {
            let Some(text) = own.next_query()? else { return Err(End::Left) };
            // A cancel request that came too late.
            own.session.take_cancelled();
            // The settings may be others than at the login.
            let facts = control.console().facts();
            let rules = facts.as_ref().and_then(|facts| facts.rules.as_ref());
            let Some(role) = rules.and_then(|rules| rules.role(&login, peer)) else {
                own.end(*b"28000", &not_allowed(&login.user))?;
                return Err(End::Left);
            };
            let reply = execute(control, &text, &login.user, role, &mut own);
            let out = own.channel.output();
            match reply {
                Ok((_, ConsoleReply::StopsAtOnce)) => {
                    // As with PgBouncer, the connection lasts until the process ends.
                    stop_at_once(control);
                    return own.await_end();
                }
                Ok((tag, ConsoleReply::Table(table))) => {
                    write_table(out, &table)?;
                    write_done(out, tag)?;
                }
                Ok((tag, ConsoleReply::Help)) => {
                    write_notice(out, "Console usage", Some(HELP))?;
                    write_done(out, tag)?;
                }
                Ok((tag, ConsoleReply::Done(notice))) => {
                    if let Some(notice) = notice {
                        write_notice(out, notice, None)?;
                    }
                    write_done(out, tag)?;
                }
                Err(CommandFailure { sqlstate, message }) => {
                    write_failure(out, Severity::Error, sqlstate, &message)?;
                    write_ready(out);
                }
            }
            own.flush()?;
        }
    }

    /// The text of the next query; `None` if the client has said goodbye.
    fn next_query(&mut self) -> Result<Option<String>, End> {
        loop {
            let mut input = self.channel.input();
            let before = input.len();
            let query = match read_frontend(&mut input, MAX_QUERY_BYTES) {
                Ok(None) => None,
                Ok(Some(FrontendMessage::Query(text))) => Some(String::from_utf8_lossy(text).into_owned()),
                Ok(Some(FrontendMessage::Terminate)) => return Ok(None),
                Ok(Some(
                    FrontendMessage::Parse { .. }
                    | FrontendMessage::Bind(_)
                    | FrontendMessage::Execute { .. },
                )) => return self.refuse("extended query protocol not supported by admin console"),
                Ok(Some(_)) | Err(_) => return self.refuse("unsupported packet type for admin console"),
            };
            let consumed = before - input.len();
            self.channel.consume(consumed);
            if query.is_some() {
                return Ok(query);
            }
            match self.channel.receive_input()? {
                Received::Drained | Received::MoreLikely => {}
                Received::Closed => return Err(End::Left),
                Received::WouldBlock => self.wait(None)?,
            }
        }
    }

    fn refuse(&mut self, message: &str) -> Result<Option<String>, End> {
        self.end(*b"08P01", message)?;
        Err(End::Left)
    }

    fn end(&mut self, sqlstate: [u8; 5], message: &str) -> Result<(), End> {
        write_failure(self.channel.output(), Severity::Fatal, sqlstate, message)?;
        self.flush()
    }

    /// Waits for input or room to send.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), End> {
        let timeout = timeout.unwrap_or(SEND_TIMEOUT);
        self.reactor.wait(timeout)?.for_each(drop);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), End> {
        let until = Instant::now() + SEND_TIMEOUT;
        while self.channel.send()? == Sent::Blocked {
            // On a unix socket, room to send may not be announced: look again.
            self.wait(Some(Duration::from_millis(100)))?;
            if Instant::now() >= until {
                return Err(End::Failed);
            }
        }
        Ok(())
    }

    fn await_end(&mut self) -> Result<(), End> {
        loop {
            if matches!(self.channel.receive_input()?, Received::Closed) {
                return Err(End::Left);
            }
            self.wait(None)?;
            let unread = self.channel.input().len();
            self.channel.consume(unread);
        }
    }
}
