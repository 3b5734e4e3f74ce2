//! `POST /console` of the admin address: one command, one answer.

use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_net::{Channel, Error, Reactor, Received, Sent, WatchedEvents};

use super::execute::{Caller, CallerState, CommandFailure, ConsoleReply, execute, stop_at_once};
use super::messages::HELP;
use crate::console_rules::Role;
use crate::engine::ControlHandle;
use crate::http::{HttpResponse, JSON, ResponseFormat, TEXT};
use crate::protocol::Protocol;

const SEND_TIMEOUT: Duration = Duration::from_secs(10);
const EVENT: usize = 0;
/// Stands in the log in place of the name of a user.
const USER: &str = "admin address";

/// Carries out a command on a separate thread. The channel is not registered with any reactor.
pub(super) fn serve_request<P: Protocol>(
    channel: Channel,
    text: String,
    format: ResponseFormat,
    role: Role,
    control: &ControlHandle<P>,
) {
    let is_on = control.console().facts().is_some_and(|facts| facts.rules.is_some());
    let session = if is_on { control.console().begin_request(role) } else { None };
    let Some(session) = session else {
        let refusal = if is_on {
            HttpResponse::text("503 Service Unavailable", "too many commands of the console\n")
        } else {
            HttpResponse::text("404 Not Found", "the settings have no [console]\n")
        };
        let mut channel = channel;
        refusal.write(channel.output());
        // It fits into the socket's buffer; the client may have left.
        let _ = channel.send();
        return;
    };
    let control = control.clone();
    let serve = move || {
        let mut caller = HttpCaller { channel };
        // It counts until its client has read the response.
        let counted = session;
        let response = answer(&control, &text, format, role, &mut caller);
        response.write(caller.channel.output());
        // The client may have left.
        let _ = caller.flush();
        drop(counted);
        if matches!(response.status, STOPS) {
            stop_at_once(&control);
        }
    };
    // Without a thread the connection is closed.
    let _ = thread::Builder::new().name("console".to_owned()).spawn(serve);
}

/// The proxy stops after this response.
const STOPS: &str = "202 Accepted";

fn answer<P: Protocol>(
    control: &ControlHandle<P>,
    text: &str,
    format: ResponseFormat,
    role: Role,
    caller: &mut HttpCaller,
) -> HttpResponse {
    let (tag, reply) = match execute(control, text, USER, role, caller) {
        Ok(done) => done,
        Err(CommandFailure { message, .. }) => {
            return HttpResponse::text("409 Conflict", &format!("{message}\n"));
        }
    };
    let done = |status, text: &str| match format {
        ResponseFormat::Text => HttpResponse::text(status, &format!("{text}\n")),
        ResponseFormat::Json => {
            let body = serde_json::json!({ "done": text }).to_string() + "\n";
            HttpResponse { status, content_type: JSON, body }
        }
    };
    match reply {
        ConsoleReply::StopsAtOnce => done(STOPS, tag),
        ConsoleReply::Help => HttpResponse::text("200 OK", HELP.trim_start_matches('\n')),
        ConsoleReply::Done(_) => done("200 OK", tag),
        ConsoleReply::Table(table) => match format {
            ResponseFormat::Text => {
                HttpResponse { status: "200 OK", content_type: TEXT, body: table.to_text() }
            }
            ResponseFormat::Json => HttpResponse {
                status: "200 OK",
                content_type: JSON,
                body: table.to_json().to_string() + "\n",
            },
        },
    }
}

struct HttpCaller {
    channel: Channel,
}

impl Caller for HttpCaller {
    fn state(&mut self) -> CallerState {
        match self.channel.receive_input() {
            Ok(Received::Closed) | Err(_) => CallerState::IsGone,
            Ok(_) => {
                // Nothing can follow the request.
                let unread = self.channel.input().len();
                self.channel.consume(unread);
                CallerState::Waits
            }
        }
    }
}

impl HttpCaller {
    fn flush(&mut self) -> Result<(), Error> {
        let mut reactor = Reactor::new()?;
        reactor.register(&mut self.channel, EVENT, WatchedEvents::Both)?;
        let until = Instant::now() + SEND_TIMEOUT;
        while self.channel.send()? == Sent::Blocked && Instant::now() < until {
            // On a unix socket, room to send may not be announced: look again.
            reactor.wait(Duration::from_millis(100))?.for_each(drop);
        }
        Ok(())
    }
}
