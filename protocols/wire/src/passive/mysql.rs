//! The protocol of MySQL and MariaDB, from outside.

use crate::mysql::codec::auth_switch::AuthSwitchRequest;
use crate::mysql::codec::capabilities::Capabilities;
use crate::mysql::codec::greeting::Greeting;
use crate::mysql::codec::handshake_response::HandshakeResponse;
use crate::mysql::codec::ssl_request::SslRequest;
use crate::passive::event::{AuthMethod, Content, Event, FailureCode};
use crate::passive::messages::{MessageLayout, Messages, Next};
use crate::side::ConnectionSide;

const OK: u8 = 0x00;
const AUTH_SWITCH: u8 = 0xfe;
const ERR: u8 = 0xff;

const COM_QUIT: u8 = 0x01;
const COM_QUERY: u8 = 0x03;
const COM_STMT_EXECUTE: u8 = 0x17;
const COM_STMT_BULK_EXECUTE: u8 = 0xfa;
/// The method of a client that sends no proof of a password; a request for another plugin may follow.
const NO_PASSWORD: &[u8] = b"none";
/// The plugin of servers and clients that name none.
const UNNAMED_PLUGIN: &[u8] = b"mysql_native_password";

#[derive(Clone, Debug, Default)]
pub(super) struct MySqlMachine {
    client: Messages,
    server: Messages,
    phase: MySqlPhase,
    server_capabilities: Capabilities,
    server_plugin: Vec<u8>,
    /// Whether messages are compressed once the client is logged in.
    is_compressed: bool,
    awaits_answer: bool,
    is_tls: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MySqlPhase {
    #[default]
    Greeting,
    Login,
    Commands,
    Opaque,
}

impl MySqlMachine {
    /// Reads one side's next bytes. Returns what is TLS.
    pub(super) fn read<'a>(
        &mut self,
        side: ConnectionSide,
        mut content: Content<'a>,
        events: &mut impl FnMut(Event),
    ) -> Option<Content<'a>> {
        loop {
            if self.is_tls {
                return Some(content);
            }
            let goes_on = match side {
                ConnectionSide::Client => self.client_message(&mut content, events),
                ConnectionSide::Server => self.server_message(&mut content, events),
            };
            if !goes_on {
                return None;
            }
        }
    }

    fn layout(&self) -> MessageLayout {
        if self.is_compressed && self.phase == MySqlPhase::Commands {
            MessageLayout::MySqlCompressed
        } else {
            MessageLayout::MySql
        }
    }

    fn client_message(&mut self, content: &mut Content<'_>, events: &mut impl FnMut(Event)) -> bool {
        let layout = self.layout();
        if self.phase == MySqlPhase::Opaque {
            return false;
        }
        let Self { client, phase, server_capabilities, server_plugin, is_compressed, is_tls, .. } = self;
        match client.next(content, layout) {
            Next::Message { header, body, body_bytes } => match phase {
                // The login follows the server's greeting, and its answers to further requests follow the login.
                MySqlPhase::Greeting if SslRequest::is(body) => *is_tls = true,
                MySqlPhase::Greeting => {
                    events(Event::LoginStarted);
                    *phase = MySqlPhase::Login;
                    if let Ok(login) = HandshakeResponse::parse(body) {
                        let plugin =
                            login.plugin.filter(|plugin| !plugin.is_empty()).unwrap_or(server_plugin);
                        // Without a password there is nothing to hash, whatever the plugin.
                        let has_password = !login.auth_response.is_empty();
                        events(Event::Login(AuthMethod::named(if has_password {
                            plugin
                        } else {
                            NO_PASSWORD
                        })));
                        let shared = |flag: Capabilities| {
                            login.head.capabilities.contains(flag) && server_capabilities.contains(flag)
                        };
                        *is_compressed =
                            shared(Capabilities::COMPRESS) || shared(Capabilities::ZSTD_COMPRESSION);
                    }
                }
                MySqlPhase::Login | MySqlPhase::Opaque => {}
                MySqlPhase::Commands => {
                    if let Some(command) = command(layout, header, body, body_bytes) {
                        self.command(command, events);
                    }
                }
            },
            Next::Starved => return false,
            Next::Lost => return self.lost(events),
        }
        true
    }

    fn command(&mut self, command: u8, events: &mut impl FnMut(Event)) {
        match command {
            COM_QUERY | COM_STMT_EXECUTE | COM_STMT_BULK_EXECUTE => {
                self.awaits_answer = true;
                events(Event::Query);
            }
            COM_QUIT => events(Event::Terminate),
            _ => {}
        }
    }

    fn server_message(&mut self, content: &mut Content<'_>, events: &mut impl FnMut(Event)) -> bool {
        let layout = self.layout();
        if self.phase == MySqlPhase::Opaque {
            return false;
        }
        let Self { server, phase, server_capabilities, server_plugin, is_compressed, awaits_answer, .. } =
            self;
        match server.next(content, layout) {
            Next::Message { body, .. } => match (*phase, body.first()) {
                (MySqlPhase::Commands, _) => {
                    if std::mem::take(awaits_answer) {
                        events(Event::Answer);
                    }
                }
                (MySqlPhase::Greeting | MySqlPhase::Login, Some(&ERR)) => {
                    let code =
                        body.get(1..3).and_then(|code| code.try_into().ok()).map_or(0, u16::from_le_bytes);
                    events(Event::Refused(FailureCode::Number(u32::from(code))));
                }
                (MySqlPhase::Greeting, _) => match Greeting::parse(body) {
                    Ok(greeting) => {
                        *server_capabilities = greeting.capabilities;
                        let plugin =
                            if greeting.plugin.is_empty() { UNNAMED_PLUGIN } else { greeting.plugin };
                        plugin.clone_into(server_plugin);
                        events(Event::Greeting);
                    }
                    Err(_) => return self.lost(events),
                },
                (MySqlPhase::Login, Some(&OK)) => {
                    *phase = MySqlPhase::Commands;
                    events(Event::LoggedIn);
                    if *is_compressed {
                        events(Event::Compressed);
                    }
                }
                (MySqlPhase::Login, Some(&AUTH_SWITCH)) => {
                    if let Ok(request) = AuthSwitchRequest::parse(body) {
                        events(Event::Login(AuthMethod::named(request.plugin)));
                    }
                }
                (MySqlPhase::Login | MySqlPhase::Opaque, _) => {}
            },
            Next::Starved => return false,
            Next::Lost => return self.lost(events),
        }
        true
    }

    fn lost(&mut self, events: &mut impl FnMut(Event)) -> bool {
        if self.phase != MySqlPhase::Opaque {
            events(Event::Lost);
        }
        self.phase = MySqlPhase::Opaque;
        false
    }
}

/// The command that a packet begins; `None` if it continues another message, or is data for the server.
fn command(layout: MessageLayout, header: &[u8], body: &[u8], body_bytes: u64) -> Option<u8> {
    // Each command begins with the sequence number 0.
    if header[3] != 0 {
        return None;
    }
    match layout {
        // A packet that is compressed hides its command: most are queries.
        MessageLayout::MySqlCompressed if header[4..7] != [0; 3] => Some(COM_QUERY),
        MessageLayout::MySqlCompressed => body.get(4).copied(),
        // Only the last packet of a long message may be empty.
        _ if body_bytes == 0 => None,
        _ => body.first().copied(),
    }
}
