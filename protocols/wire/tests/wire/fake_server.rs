//! A server for logins and responses, built from the crate's server side.

use ciphertoll_wire::Step;
use ciphertoll_wire::mysql::auth::caching_sha2::FAST_OK;
use ciphertoll_wire::mysql::auth_switch::AuthSwitchRequest;
use ciphertoll_wire::mysql::column::encode_text_column;
use ciphertoll_wire::mysql::err::ErrPacket;
use ciphertoll_wire::mysql::greeting::Greeting;
use ciphertoll_wire::mysql::handshake_response::HandshakeResponse;
use ciphertoll_wire::mysql::ok::OkPacket;
use ciphertoll_wire::mysql::server::{self, ClientMessage};
use ciphertoll_wire::mysql::{Capabilities, Error, MySqlConnect};

use crate::account::{Account, NONCE, Say, Way};

pub(crate) const NATIVE: &[u8] = b"mysql_native_password";

/// The capabilities of current servers, including TLS.
pub(crate) const OFFERED: Capabilities = Capabilities::LONG_PASSWORD
    .with(Capabilities::CONNECT_WITH_DB)
    .with(Capabilities::PROTOCOL_41)
    .with(Capabilities::SSL)
    .with(Capabilities::TRANSACTIONS)
    .with(Capabilities::SECURE_CONNECTION)
    .with(Capabilities::MULTI_STATEMENTS)
    .with(Capabilities::MULTI_RESULTS)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::PLUGIN_AUTH_LENENC)
    .with(Capabilities::DEPRECATE_EOF);

pub(crate) fn greeting(capabilities: Capabilities) -> Greeting<'static> {
    Greeting {
        version: b"5.5.5-10.11.19-MariaDB",
        connection_id: 42,
        nonce: NONCE,
        capabilities,
        character_set: 45,
        status: 2,
        plugin: NATIVE,
    }
}

/// The server's request after the login.
#[derive(Clone, Copy)]
pub(crate) enum Switch {
    /// The account's plugin, unless the client has offered it already.
    WhereNeeded,
    /// Always the account's plugin.
    Always,
    /// A plugin that the account does not have.
    To(&'static [u8]),
}

pub(crate) struct FakeServer {
    pub(crate) offered: Capabilities,
    pub(crate) user: &'static [u8],
    pub(crate) account: Account,
    /// The plugin that the greeting names.
    pub(crate) default_plugin: &'static [u8],
    pub(crate) switch: Switch,
    pub(crate) database: Option<Vec<u8>>,
    pub(crate) agreed: Capabilities,
    sequence: u8,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Greet,
    AwaitLogin,
    /// The plugin awaits the client's reply.
    Converse,
    Ended,
}

impl FakeServer {
    pub(crate) fn new(account: Account) -> Self {
        Self {
            offered: OFFERED,
            user: b"toll",
            account,
            default_plugin: NATIVE,
            switch: Switch::WhereNeeded,
            database: None,
            agreed: Capabilities::default(),
            sequence: 1,
            state: State::Greet,
        }
    }

    /// An account with `mysql_native_password`.
    pub(crate) fn native(password: &[u8]) -> Self {
        Self::new(Account::new(Way::Native, password))
    }

    /// Runs until it needs input. Returns whether TLS must start.
    fn run(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> bool {
        loop {
            match self.state {
                State::Greet => {
                    let greeting = Greeting { plugin: self.default_plugin, ..greeting(self.offered) };
                    server::write_greeting(out, &greeting).unwrap();
                    self.state = State::AwaitLogin;
                }
                State::AwaitLogin => match server::read_login(input, self.sequence).unwrap() {
                    None => return false,
                    Some(ClientMessage::TlsRequest(request)) => {
                        assert!(request.capabilities.contains(Capabilities::SSL));
                        assert!(input.is_empty());
                        self.sequence += 1;
                        return true;
                    }
                    Some(ClientMessage::Login(login)) => {
                        self.sequence += 1;
                        self.judge_login(&login, out);
                    }
                },
                State::Converse => match server::read_auth_response(input, self.sequence).unwrap() {
                    None => return false,
                    Some(response) => {
                        self.sequence += 1;
                        let heard = self.account.hear(response);
                        self.say(heard, out);
                    }
                },
                State::Ended => return false,
            }
        }
    }

    fn judge_login(&mut self, login: &HandshakeResponse<'_>, out: &mut Vec<u8>) {
        self.database = login.database.map(<[u8]>::to_vec);
        self.agreed = login.head.capabilities;
        if login.user != self.user {
            return self.say(Say::Deny, out);
        }
        let plugin = self.account.plugin();
        let request = match self.switch {
            Switch::WhereNeeded if login.plugin == Some(plugin) && self.default_plugin == plugin => {
                let heard = self.account.hear(login.auth_response);
                return self.say(heard, out);
            }
            Switch::WhereNeeded | Switch::Always => {
                AuthSwitchRequest { plugin, data: self.account.challenge() }
            }
            Switch::To(plugin) => AuthSwitchRequest { plugin, data: &[] },
        };
        server::write_auth_switch(out, self.sequence, &request).unwrap();
        self.sequence += 1;
        self.state = State::Converse;
    }

    fn say(&mut self, say: Say, out: &mut Vec<u8>) {
        match say {
            Say::Ok => {
                server::write_ok(out, self.sequence, &OkPacket { status: 2, ..OkPacket::default() }).unwrap();
                self.state = State::Ended;
            }
            Say::Deny => {
                let message = b"Access denied for user 'toll'@'localhost' (using password: YES)";
                let err = ErrPacket { code: 1045, sql_state: *b"28000", message };
                server::write_err(out, self.sequence, &err).unwrap();
                self.state = State::Ended;
            }
            Say::FastOk => {
                server::write_more_data(out, self.sequence, &[FAST_OK]).unwrap();
                self.sequence += 1;
                self.say(Say::Ok, out);
            }
            Say::More(data) => {
                server::write_more_data(out, self.sequence, &data).unwrap();
                self.sequence += 1;
                self.state = State::Converse;
            }
            Say::Bare(data) => {
                self.sequence = server::write_payload(out, self.sequence, &data).unwrap();
                self.state = State::Converse;
            }
        }
    }
}

/// Connects client and server until the client has ended. Returns the steps other than `NeedInput`, and the client's
/// bytes.
pub(crate) fn join(
    client: &mut MySqlConnect,
    server: &mut FakeServer,
) -> Result<(Vec<Step>, Vec<u8>), Error> {
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let (mut steps, mut sent) = (Vec::new(), Vec::new());
    let mut server_wants_tls = false;
    loop {
        let mut input = to_client.as_slice();
        let step = client.step(&mut input, &mut to_server)?;
        to_client = input.to_vec();
        match step {
            Step::NeedInput => {}
            step => steps.push(step),
        }
        match step {
            Step::Done => return Ok((steps, sent)),
            Step::StartTls => assert!(server_wants_tls, "both sides start TLS at the same byte"),
            Step::OfferTls | Step::Phase(_) | Step::NeedInput => {
                sent.extend_from_slice(&to_server);
                let mut input = to_server.as_slice();
                server_wants_tls |= server.run(&mut input, &mut to_client);
                to_server = input.to_vec();
            }
        }
    }
}

/// Writes a command's response and numbers its packets.
pub(crate) struct Answer {
    pub(crate) bytes: Vec<u8>,
    sequence: u8,
    capabilities: Capabilities,
}

impl Answer {
    pub(crate) fn new(capabilities: Capabilities) -> Self {
        Self { bytes: Vec::new(), sequence: 1, capabilities }
    }

    pub(crate) fn payload(&mut self, payload: &[u8]) -> &mut Self {
        self.sequence = server::write_payload(&mut self.bytes, self.sequence, payload).unwrap();
        self
    }

    pub(crate) fn ok(&mut self, ok: &OkPacket) -> &mut Self {
        let mut payload = Vec::new();
        ok.encode(&mut payload);
        self.payload(&payload)
    }

    pub(crate) fn definitions(&mut self, columns: u8) -> &mut Self {
        for _ in 0..columns {
            let mut payload = Vec::new();
            encode_text_column(&mut payload, b"c", 45);
            self.payload(&payload);
        }
        if columns > 0 && !self.capabilities.contains(Capabilities::DEPRECATE_EOF) {
            self.end_of_rows(0);
        }
        self
    }

    pub(crate) fn end_of_rows(&mut self, status: u16) -> &mut Self {
        let mut payload = Vec::new();
        OkPacket { status, ..OkPacket::default() }.encode_end_of_rows(&mut payload, self.capabilities);
        self.payload(&payload)
    }

    pub(crate) fn result_set(
        &mut self,
        rows: &[Vec<Option<Vec<u8>>>],
        columns: u8,
        status: u16,
    ) -> &mut Self {
        self.payload(&[columns]).definitions(columns);
        for row in rows {
            let mut payload = Vec::new();
            for cell in row {
                match cell {
                    None => payload.push(0xfb),
                    Some(bytes) => put_cell(&mut payload, bytes),
                }
            }
            self.payload(&payload);
        }
        self.end_of_rows(status)
    }
}

fn put_cell(payload: &mut Vec<u8>, bytes: &[u8]) {
    if let Ok(length @ ..0xfb) = u8::try_from(bytes.len()) {
        payload.push(length);
    } else {
        payload.push(0xfe);
        payload.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    }
    payload.extend_from_slice(bytes);
}
