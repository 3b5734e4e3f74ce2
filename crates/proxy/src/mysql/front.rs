//! A client's login, from the greeting until it is known who it is and what it wants.

use std::collections::HashMap;
use std::sync::Arc;

use ciphertoll_wire::Secret;
use ciphertoll_wire::mysql::auth::caching_sha2::{CachedPassword, FAST_OK, FULL};
use ciphertoll_wire::mysql::auth::clear_password;
use ciphertoll_wire::mysql::auth::native_password::NONCE_BYTES;
use ciphertoll_wire::mysql::auth_switch::AuthSwitchRequest;
use ciphertoll_wire::mysql::change_user::ChangeUser;
use ciphertoll_wire::mysql::greeting_template::GreetingTemplate;
use ciphertoll_wire::mysql::handshake_response::HandshakeResponse;
use ciphertoll_wire::mysql::server::{
    ClientMessage, StoredPassword, read_auth_response, read_login, write_auth_switch, write_more_data,
};
use ciphertoll_wire::mysql::{self, Plugin, Terms};

use super::refusal;
use super::wanted::{Entry, Wanted};
use crate::dialect::{self, FrontStep};
use crate::refusal::Refusal;

/// Of the client's login, or of its request for TLS: the greeting has 0.
const LOGIN_NUMBER: u8 = 1;
/// Of the first answer to a command, which has 0.
const ANSWER_NUMBER: u8 = 1;
/// `ER_SECURE_TRANSPORT_REQUIRED`.
const TLS_REQUIRED: u16 = 3159;
/// A random password of this length is nobody's.
const NOBODYS_BYTES: usize = 32;

/// What a client must do to be let in.
#[derive(Clone)]
pub enum Admission {
    /// Nothing: the kernel has said who it is.
    Granted,
    /// Nothing helps: the kernel has said who it is.
    Denied {
        /// Its user, if the kernel has said that.
        uid: Option<u32>,
    },
    /// Prove that it knows the password.
    Password(Arc<Gate>),
    /// Show a certificate with the name of the user whom it names.
    Certificate,
}

/// Whether a client's way is encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// It is not, and need not be.
    #[default]
    Plain,
    /// It must be, and is not yet.
    Wanted,
    /// It is.
    Encrypted {
        /// Who the client is by its certificate, if it has shown one that was verified.
        name: Option<String>,
    },
}

/// Judges proofs, by either plugin that a greeting's challenge suffices for, and passwords.
pub struct Gate {
    passwords: HashMap<String, Stored>,
    /// For users that are not there: it costs the same, and no password fits.
    decoy: Stored,
}

struct Stored {
    native: StoredPassword,
    sha2: CachedPassword,
}

/// What the next client is greeted with.
#[derive(Clone)]
pub struct Greeter {
    /// What holds for all clients.
    pub template: Arc<GreetingTemplate>,
    /// The client's number.
    pub connection_id: u32,
    /// Its challenge, from random bytes.
    pub nonce: [u8; NONCE_BYTES],
}

/// A client's login, stepped with its bytes.
pub struct Front {
    admission: Admission,
    way: Way,
    greeter: Greeter,
    stage: Stage,
    /// The number of the packet that the client expects next.
    sequence: u8,
}

enum Stage {
    Greet,
    AwaitLogin,
    /// Logged in on these terms, it says anew who it is.
    AwaitChange {
        terms: Terms,
    },
    /// The client was asked to use this plugin.
    AwaitProof {
        wanted: Wanted,
        plugin: Plugin,
    },
    /// The client was asked for the password itself, on its encrypted way.
    AwaitPassword {
        wanted: Wanted,
    },
    Over,
}

impl Gate {
    /// Lets in those who know the password of `user`; none where OpenSSL has no random bytes.
    pub fn new(user: &str, password: &Secret) -> Option<Self> {
        Self::of([(user, password)])
    }

    /// Lets in those who know the password of the one of these whom they name; none where OpenSSL has no random bytes.
    pub fn of<'a>(users: impl IntoIterator<Item = (&'a str, &'a Secret)>) -> Option<Self> {
        let mut nobodys = [0; NOBODYS_BYTES];
        openssl::rand::rand_bytes(&mut nobodys).ok()?;
        let passwords =
            users.into_iter().map(|(user, password)| (user.to_owned(), Stored::of(password.expose())));
        Some(Self { passwords: passwords.collect(), decoy: Stored::of(&nobodys) })
    }

    fn stored(&self, user: &str) -> &Stored {
        self.passwords.get(user).unwrap_or(&self.decoy)
    }

    fn accepts(&self, user: &str, plugin: Plugin, nonce: &[u8; NONCE_BYTES], proof: &[u8]) -> bool {
        let stored = self.stored(user);
        match plugin {
            Plugin::NativePassword => stored.native.accepts(nonce, proof),
            Plugin::CachingSha2Password => stored.sha2.accepts(nonce, proof),
            Plugin::Ed25519 | Plugin::Parsec => false,
        }
    }
}

impl Stored {
    fn of(password: &[u8]) -> Self {
        Self { native: StoredPassword::of(password), sha2: CachedPassword::of(password) }
    }
}

impl Greeter {
    /// Makes a challenge of random bytes: as servers', without what ends a text or parts a hash.
    pub fn new(template: Arc<GreetingTemplate>, connection_id: u32, random: [u8; NONCE_BYTES]) -> Self {
        let nonce = random.map(|byte| match byte & 0x7f {
            0 => b'0',
            b'$' => b'%',
            plain => plain,
        });
        Self { template, connection_id, nonce }
    }
}

impl Front {
    /// A client that was not greeted yet.
    pub fn new(admission: Admission, greeter: Greeter) -> Self {
        Self { admission, way: Way::Plain, greeter, stage: Stage::Greet, sequence: 0 }
    }

    /// The same for one who must log in by TLS, which it is offered.
    pub fn by_tls(admission: Admission, greeter: Greeter) -> Self {
        Self { way: Way::Wanted, ..Self::new(admission, greeter) }
    }

    /// A client that was greeted so, was let in on these terms, came by this way, and logs in anew (`COM_CHANGE_USER`). Its
    /// proof is for the greeting's challenge, as servers and clients have it.
    pub fn anew(admission: Admission, way: Way, greeter: Greeter, terms: Terms) -> Self {
        let stage = Stage::AwaitChange { terms };
        Self { way, stage, sequence: ANSWER_NUMBER, ..Self::new(admission, greeter) }
    }

    /// The client's way is encrypted now. By its certificate, if it has shown one that was verified, it is `name`.
    pub fn encrypted(&mut self, name: Option<String>) {
        self.way = Way::Encrypted { name };
        self.stage = Stage::AwaitLogin;
    }

    /// How the client has come in, who was let in so.
    pub(super) fn entry(&self, admission: dialect::Admission) -> Entry {
        Entry { admission, way: self.way.clone(), nonce: self.greeter.nonce }
    }

    /// Takes whole packets from the front of `input` and appends to `out` what is to be sent. The first step must not
    /// wait for input. After anything but [`FrontStep::NeedInput`] it is over.
    pub fn step(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> FrontStep<Wanted> {
        loop {
            let step = match std::mem::replace(&mut self.stage, Stage::Over) {
                Stage::Greet => self.greet(out),
                Stage::AwaitLogin => self.login(input, out),
                Stage::AwaitChange { terms } => self.change(terms, input, out),
                Stage::AwaitProof { wanted, plugin } => Some(self.proof(wanted, plugin, input, out)),
                Stage::AwaitPassword { wanted } => Some(self.password(wanted, input)),
                Stage::Over => Some(FrontStep::HangUp("the login is over")),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// Appends why the client is not let in.
    pub fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        refusal::write(refusal, self.sequence, out);
    }

    fn greet(&mut self, out: &mut Vec<u8>) -> Option<FrontStep<Wanted>> {
        let Greeter { template, connection_id, nonce } = &self.greeter;
        // Only more than a gigabyte of version could not be written.
        let _ = match self.way {
            Way::Wanted => template.write_with_tls(*connection_id, *nonce, out),
            Way::Plain | Way::Encrypted { .. } => template.write(*connection_id, *nonce, out),
        };
        self.sequence = LOGIN_NUMBER + 1;
        self.stage = Stage::AwaitLogin;
        None
    }

    fn login(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Option<FrontStep<Wanted>> {
        match read_login(input, self.sequence - 1) {
            Ok(None) => {
                self.stage = Stage::AwaitLogin;
                Some(FrontStep::NeedInput)
            }
            Ok(Some(ClientMessage::TlsRequest(_))) if self.way == Way::Wanted => {
                // Its login has the next number.
                self.sequence += 1;
                Some(FrontStep::StartTls)
            }
            Ok(Some(ClientMessage::TlsRequest(_))) => {
                let message = "it asks for TLS, which was not offered: there is none in front of this proxy";
                Some(FrontStep::Refuse(Refusal::new(Refusal::UNSUPPORTED, message)))
            }
            Ok(Some(ClientMessage::Login(login))) => self.judge_login(&login, out),
            Err(error) => Some(broken(&error)),
        }
    }

    fn judge_login(&mut self, login: &HandshakeResponse<'_>, out: &mut Vec<u8>) -> Option<FrontStep<Wanted>> {
        if let Some(refusal) = self.not_let_in() {
            return Some(FrontStep::Refuse(refusal));
        }
        let Greeter { template, connection_id, .. } = &self.greeter;
        let wanted = match Wanted::read(login, template.capabilities(), *connection_id) {
            Ok(wanted) => wanted,
            Err(refusal) => return Some(FrontStep::Refuse(refusal)),
        };
        let begun = template.plugin();
        let plugin = match login.plugin {
            // Who knows no plugins knows this one.
            None => Plugin::NativePassword,
            Some(name) if name == begun.name() => begun,
            // Who says the password itself needs no challenge; where nothing is proved it is not looked at.
            Some(clear_password::NAME) if self.proves_nothing() => Plugin::NativePassword,
            Some(clear_password::NAME) if self.is_encrypted() => {
                return Some(self.judge_password(wanted, login.auth_response));
            }
            // With any other one the proof is not for the greeting's challenge.
            Some(name) => {
                self.switch(wanted, usable(name).unwrap_or(begun), out);
                return None;
            }
        };
        Some(self.judge(wanted, plugin, login.auth_response, out))
    }

    /// Why nothing that the client could show would help.
    fn not_let_in(&self) -> Option<Refusal> {
        if let Admission::Denied { uid } = self.admission {
            let who = uid.map_or("whoever comes here".to_owned(), |uid| format!("the user with id {uid}"));
            let message = format!("{who} may not use this proxy (--allow-uid)");
            return Some(Refusal::new(Refusal::WHO, message));
        }
        if self.way == Way::Wanted {
            let message = "this proxy lets clients in by TLS only";
            return Some(Refusal { number: Some(TLS_REQUIRED), ..Refusal::new(*b"HY000", message) });
        }
        None
    }

    /// Whether the client is known by other means than a password.
    fn proves_nothing(&self) -> bool {
        matches!(self.admission, Admission::Granted | Admission::Certificate)
    }

    fn is_encrypted(&self) -> bool {
        matches!(self.way, Way::Encrypted { .. })
    }

    /// The client names another user, or itself again.
    fn change(&mut self, terms: Terms, input: &mut &[u8], out: &mut Vec<u8>) -> Option<FrontStep<Wanted>> {
        let change = match ChangeUser::read(input) {
            Ok(Some(change)) => change,
            Ok(None) => {
                self.stage = Stage::AwaitChange { terms };
                return Some(FrontStep::NeedInput);
            }
            Err(error) => return Some(broken(&error)),
        };
        if let Some(refusal) = self.not_let_in() {
            return Some(FrontStep::Refuse(refusal));
        }
        let wanted = match Wanted::change(&change, terms, self.greeter.connection_id) {
            Ok(wanted) => wanted,
            Err(refusal) => return Some(FrontStep::Refuse(refusal)),
        };
        let named = change.plugin.map_or(Some(Plugin::NativePassword), usable);
        let plugin = match named {
            Some(plugin) => plugin,
            // By a plugin that is not known here nobody waits for more than an OK.
            None if self.proves_nothing() => Plugin::NativePassword,
            None if change.plugin == Some(clear_password::NAME) && self.is_encrypted() => {
                return Some(self.judge_password(wanted, change.auth_response));
            }
            None => {
                self.switch(wanted, self.greeter.template.plugin(), out);
                return None;
            }
        };
        Some(self.judge(wanted, plugin, change.auth_response, out))
    }

    /// Asks for a proof by this plugin.
    fn switch(&mut self, wanted: Wanted, plugin: Plugin, out: &mut Vec<u8>) {
        let challenge = [&self.greeter.nonce[..], b"\0"].concat();
        let request = AuthSwitchRequest { plugin: plugin.name(), data: &challenge };
        let _ = write_auth_switch(out, self.sequence, &request);
        self.sequence += 2;
        self.stage = Stage::AwaitProof { wanted, plugin };
    }

    fn proof(
        &mut self,
        wanted: Wanted,
        plugin: Plugin,
        input: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> FrontStep<Wanted> {
        match read_auth_response(input, self.sequence - 1) {
            Ok(None) => {
                self.stage = Stage::AwaitProof { wanted, plugin };
                FrontStep::NeedInput
            }
            Ok(Some(proof)) => self.judge(wanted, plugin, proof, out),
            Err(error) => broken(&error),
        }
    }

    fn judge(
        &mut self,
        wanted: Wanted,
        plugin: Plugin,
        proof: &[u8],
        out: &mut Vec<u8>,
    ) -> FrontStep<Wanted> {
        let is_right = match &self.admission {
            Admission::Granted => true,
            Admission::Denied { .. } => false,
            Admission::Password(gate) => gate.accepts(&wanted.user, plugin, &self.greeter.nonce, proof),
            Admission::Certificate => {
                matches!(&self.way, Way::Encrypted { name: Some(name) } if *name == wanted.user)
            }
        };
        if is_right {
            return self.let_in(wanted, plugin, proof, out);
        }
        let asks_on = plugin == Plugin::CachingSha2Password && !is_empty(proof) && self.is_encrypted();
        if asks_on && !self.proves_nothing() {
            // As servers do, whose cache may be behind.
            let _ = write_more_data(out, self.sequence, &[FULL]);
            self.sequence += 2;
            self.stage = Stage::AwaitPassword { wanted };
            return FrontStep::NeedInput;
        }
        wrong_password(&wanted.user, proof)
    }

    fn password(&mut self, wanted: Wanted, input: &mut &[u8]) -> FrontStep<Wanted> {
        match read_auth_response(input, self.sequence - 1) {
            Ok(None) => {
                self.stage = Stage::AwaitPassword { wanted };
                FrontStep::NeedInput
            }
            Ok(Some(answer)) => self.judge_password(wanted, answer),
            Err(error) => broken(&error),
        }
    }

    /// Of one who says the password itself, and ends it with a NUL.
    fn judge_password(&self, mut wanted: Wanted, answer: &[u8]) -> FrontStep<Wanted> {
        let password = clear_password::parse(answer).filter(|password| !password.is_empty());
        let is_right = match (&self.admission, password) {
            (Admission::Password(gate), Some(password)) => gate.stored(&wanted.user).sha2.is_of(password),
            _ => false,
        };
        if !is_right {
            return wrong_password(&wanted.user, answer);
        }
        wanted.sequence = self.sequence;
        FrontStep::Login(wanted)
    }

    fn let_in(
        &mut self,
        mut wanted: Wanted,
        plugin: Plugin,
        proof: &[u8],
        out: &mut Vec<u8>,
    ) -> FrontStep<Wanted> {
        // Who has said something by this plugin waits for a word before the OK.
        if plugin == Plugin::CachingSha2Password && !is_empty(proof) {
            let _ = write_more_data(out, self.sequence, &[FAST_OK]);
            self.sequence += 1;
        }
        wanted.sequence = self.sequence;
        FrontStep::Login(wanted)
    }
}

/// The plugins that a greeting's challenge suffices for.
fn usable(name: &[u8]) -> Option<Plugin> {
    [Plugin::NativePassword, Plugin::CachingSha2Password].into_iter().find(|plugin| plugin.name() == name)
}

/// Some plugins say the lack of a password with a NUL.
fn is_empty(proof: &[u8]) -> bool {
    matches!(proof, [] | [0])
}

/// In the server's words, whatever was wrong.
fn wrong_password(user: &str, proof: &[u8]) -> FrontStep<Wanted> {
    let using = if is_empty(proof) { "NO" } else { "YES" };
    let message = format!("Access denied for user '{user}'@'localhost' (using password: {using})");
    FrontStep::Refuse(Refusal::new(Refusal::PASSWORD, message))
}

fn broken(error: &mysql::Error) -> FrontStep<Wanted> {
    FrontStep::Refuse(Refusal::new(Refusal::PROTOCOL, error.to_string()))
}

#[cfg(test)]
mod tests;
