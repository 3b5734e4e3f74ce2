//! A server for the login and for answers to commands, made of the server role's pieces.

use ciphertoll_wire::{
    Step,
    mysql::{
        Capabilities, Connect, Error,
        auth_switch::AuthSwitchRequest,
        column::encode_text_column,
        err::ErrPacket,
        greeting::Greeting,
        ok::OkPacket,
        server::{self, ClientMessage, StoredPassword},
    },
};

pub(crate) const NATIVE: &[u8] = b"mysql_native_password";
const NONCE: [u8; 20] = *b"abcdefghijklmnopqrst";
const SWITCH_NONCE: [u8; 20] = *b"ABCDEFGHIJKLMNOPQRST";

/// What servers offer today, TLS included.
pub(crate) const OFFERED: Capabilities = Capabilities::LONG_PASSWORD
    .with(Capabilities::CONNECT_WITH_DB)
    .with(Capabilities::PROTOCOL_41)
    .with(Capabilities::SSL)
    .with(Capabilities::TRANSACTIONS)
    .with(Capabilities::SECURE_CONNECTION)
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

/// Another plugin, or the same with another nonce, to ask for after the login.
#[derive(Clone, Copy)]
pub(crate) enum Switch {
    None,
    To(&'static [u8]),
}

pub(crate) struct FakeServer {
    pub(crate) offered: Capabilities,
    pub(crate) user: &'static [u8],
    pub(crate) password: Option<StoredPassword>,
    pub(crate) switch: Switch,
    pub(crate) database: Option<Vec<u8>>,
    sequence: u8,
    nonce: [u8; 20],
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Greet,
    AwaitLogin,
    AwaitSwitched,
    Ended,
}

impl FakeServer {
    pub(crate) fn new(password: &[u8]) -> Self {
        Self {
            offered: OFFERED,
            user: b"toll",
            password: (!password.is_empty()).then(|| StoredPassword::of(password)),
            switch: Switch::None,
            database: None,
            sequence: 1,
            nonce: NONCE,
            state: State::Greet,
        }
    }

    /// Runs until it wants input; whether it wants TLS now.
    fn run(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> bool {
        loop {
            match self.state {
                State::Greet => {
                    server::write_greeting(out, &greeting(self.offered)).unwrap();
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
                        self.database = login.database.map(<[u8]>::to_vec);
                        assert_eq!(login.plugin, Some(NATIVE));
                        self.sequence += 1;
                        let (user, response) = (login.user.to_vec(), login.auth_response.to_vec());
                        self.judge_login(&user, &response, out);
                    }
                },
                State::AwaitSwitched => match server::read_auth_response(input, self.sequence).unwrap() {
                    None => return false,
                    Some(response) => {
                        self.sequence += 1;
                        self.verdict(self.accepts(response), out);
                    }
                },
                State::Ended => return false,
            }
        }
    }

    fn judge_login(&mut self, user: &[u8], response: &[u8], out: &mut Vec<u8>) {
        if let Switch::To(plugin) = self.switch {
            let data = [&SWITCH_NONCE[..], &[0]].concat();
            server::write_auth_switch(out, self.sequence, &AuthSwitchRequest { plugin, data: &data })
                .unwrap();
            self.sequence += 1;
            self.nonce = SWITCH_NONCE;
            self.state = State::AwaitSwitched;
        } else {
            self.verdict(user == self.user && self.accepts(response), out);
        }
    }

    fn accepts(&self, response: &[u8]) -> bool {
        match &self.password {
            Some(stored) => stored.accepts(&self.nonce, response),
            None => response.is_empty(),
        }
    }

    fn verdict(&mut self, accepted: bool, out: &mut Vec<u8>) {
        if accepted {
            server::write_ok(out, self.sequence, &OkPacket { status: 2, ..OkPacket::default() }).unwrap();
        } else {
            let message = b"Access denied for user 'toll'@'localhost' (using password: YES)";
            server::write_err(out, self.sequence, &ErrPacket { code: 1045, sql_state: *b"28000", message })
                .unwrap();
        }
        self.state = State::Ended;
    }
}

/// Joins the two until the client has ended; the steps other than `NeedInput`, and all the client sent.
pub(crate) fn join(client: &mut Connect, server: &mut FakeServer) -> Result<(Vec<Step>, Vec<u8>), Error> {
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
            Step::Phase(_) | Step::NeedInput => {
                sent.extend_from_slice(&to_server);
                let mut input = to_server.as_slice();
                server_wants_tls |= server.run(&mut input, &mut to_client);
                to_server = input.to_vec();
            }
        }
    }
}

/// Writes a command's answer, numbering its packets.
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
        server::write_payload(&mut self.bytes, self.sequence, payload).unwrap();
        self.sequence = self.sequence.wrapping_add(1);
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
                    Some(bytes) => {
                        payload.push(u8::try_from(bytes.len()).expect("short cells"));
                        payload.extend_from_slice(bytes);
                    }
                }
            }
            self.payload(&payload);
        }
        self.end_of_rows(status)
    }
}
