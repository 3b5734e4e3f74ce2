//! What the engine must know of a protocol. All else of one is in its own module.

use std::fmt::Debug;
use std::hash::Hash;

use ciphertoll_net as net;
use ciphertoll_wire::Response;
use ciphertoll_wire::postgres::relay::Patch;
use ciphertoll_wire::relay::{Goodbye, Vacate};
use ciphertoll_wire::session::{self, ServerInfo};
use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::mark::Mark;
use crate::refusal::Refusal;
use crate::settings::{Settings, StartError};

/// A protocol as the engine speaks it, and what of the settings is the protocol's. Each thread has its own, a clone of the
/// first one's; connections go from one thread to another, with all that belongs to them.
pub trait Dialect: Clone + Send + 'static {
    /// What connections have in common that clients can take from one another.
    type Key: Key + Send;
    /// A client's start-up.
    type Front: Front<Wanted = Self::Wanted> + Send;
    /// What a client has asked for in its start-up.
    type Wanted: Wanted + Send;
    /// What the server has said of a connection.
    type Facts: Send;
    /// A client on a server connection.
    type Session: Session<Wanted = Self::Wanted, Facts = Self::Facts, Remains = Self::Remains> + Send;
    /// Commands on the proxy's own account.
    type Errand: Errand<Facts = Self::Facts> + Send;
    /// What of a session its reset must know.
    type Remains: Copy + Send;
    /// What connections have taught of the server.
    type Lore: Clone + Send;

    /// Who says the first word between a client and the proxy.
    const FIRST_WORD: FirstWord;

    /// Takes what is the protocol's from the settings, and hashes passwords where clients must prove that they know them.
    fn of(settings: &Settings) -> Result<Self, StartError>;

    /// Goes on with the users, passwords and demands on clients of `newer`. What sessions have is theirs.
    fn renew(&mut self, newer: Self);

    /// Forgets what connections have taught: there will be new ones.
    fn forget(&mut self);

    /// A connection that must be opened before clients are let in, who are told what the server says of itself; none
    /// where that is known.
    fn unknown(&self) -> Option<Self::Key>;

    /// A connection could not be opened: what was known of the server may not hold any more.
    fn doubt(&mut self, error: &net::Error);

    /// What was learnt of connections of this key, or is not known any more; none where others need not know.
    fn lore(&self, key: &Self::Key) -> Option<Self::Lore>;

    /// Takes over what another thread has learnt.
    fn learn(&mut self, lore: Self::Lore);

    /// Begins a client's start-up.
    fn front(&self, admission: Admission) -> Self::Front;

    /// Begins the start-up of a client that has said, on this session's connection, that it logs in anew, see
    /// [`Goodbye::Anew`]; none where it cannot.
    fn front_anew(&self, _session: &Self::Session) -> Option<Self::Front> {
        None
    }

    /// Which connections a client can be given, or why it can have none.
    fn key(&self, wanted: &Self::Wanted) -> Result<Self::Key, Refusal>;

    /// What clients ask for that leave the database to others: one for each user, the server's URL's first.
    fn usual_keys(&self) -> &[Self::Key];

    /// What a connection would be logged in with now; none where its user is none of ours any more.
    fn mark(&self, key: &Self::Key) -> Option<Mark>;

    /// The login of a new connection; none where its user is none of ours any more.
    fn login(&self, key: &Self::Key) -> Option<Dialing>;

    /// What asks for the end of what a connection does, by a connection of its own; none if the protocol has no such.
    fn cancel(&self, facts: &Self::Facts) -> Option<Dialing>;

    /// What is known of a connection that has been logged in to; none if it is of another protocol.
    fn facts(&mut self, key: &Self::Key, info: ServerInfo) -> Option<Self::Facts>;

    /// Appends what a client is told that may begin, where that is known without a connection: the client gets one when
    /// it has something to say.
    fn greet_early(
        &self,
        key: &Self::Key,
        wanted: &mut Self::Wanted,
        ticket: Ticket,
        out: &mut Vec<u8>,
    ) -> Greeted;

    /// Gives a connection to a client. What the server is to be told first is appended to `to_server`, which must be
    /// empty, and what cannot fail of it may wait for what the client says.
    fn begin(
        &self,
        wanted: Self::Wanted,
        place: Place,
        facts: &mut Self::Facts,
        to_server: &mut Vec<u8>,
    ) -> Result<Self::Session, (Self::Wanted, session::Error)>;

    /// Brings a connection back to its beginning.
    fn reset(
        &self,
        remains: Self::Remains,
        facts: &mut Self::Facts,
        to_server: &mut Vec<u8>,
    ) -> Result<Self::Errand, session::Error>;

    /// Whether a connection that was left like this can be given to the next client with its reset in front of what that
    /// one says, so that the server hears nothing of that if the reset fails: see `Place::Taken`.
    fn takeover(&self, remains: Self::Remains) -> Takeover;

    /// Asks a server whether it is there.
    fn ping(&self, facts: &mut Self::Facts, to_server: &mut Vec<u8>) -> Result<Self::Errand, session::Error>;

    /// Whether a session has left behind what its client may ask for next, so that others have to wait a moment.
    fn is_held(&self, _: &Self::Remains) -> bool {
        false
    }

    /// Nothing is asked; what a server says unasked is read.
    fn nothing(&self) -> Self::Errand;

    /// Tells a server that the connection ends.
    fn goodbye(&self, to_server: &mut Vec<u8>);
}

/// What connections have in common that clients can take from one another.
pub trait Key: Clone + Debug + Eq + Hash {
    /// As whom.
    fn user(&self) -> &str;

    /// To which database.
    fn database(&self) -> &str;
}

/// A client's start-up, stepped with its bytes.
pub trait Front {
    /// What it ends with.
    type Wanted;

    /// Takes whole messages from the front of `input` and appends to `out` what is to be sent. After anything but
    /// [`FrontStep::NeedInput`] it is over.
    fn step(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> FrontStep<Self::Wanted>;

    /// The client's way is encrypted now. By its certificate, if it has shown one that was verified, it is `name`.
    fn encrypted(&mut self, name: Option<String>);

    /// Appends why the client is not let in.
    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>);
}

/// What a client has asked for.
pub trait Wanted {
    /// Appends why it cannot have it.
    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>);

    /// What these bytes of a client without a connection begin with.
    fn beginning(&self, input: &[u8]) -> Beginning;

    /// What is to become of the client, which has no connection.
    fn order(&self) -> Order {
        Order::None
    }

    /// Ends what these bytes ask, which no server has heard of: so many of them are answered for by what is appended to
    /// `out`. None if the end of it has not come yet.
    fn cancel(&self, input: &[u8], out: &mut Vec<u8>) -> Option<usize>;
}

/// What a client without a connection says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// Less than tells: nobody's connection is held for that.
    NotYet,
    /// It leaves.
    Goodbye,
    /// Something for a server.
    Command,
}

/// A client on a server connection, with what passes between the two.
pub trait Session: Sized {
    /// What goes with a client from one connection to the next.
    type Wanted;
    /// What the server has said of the connection.
    type Facts;
    /// What its reset must know.
    type Remains;

    /// When the client is told that it may begin.
    fn start(&self) -> Start;

    /// Appends what a client is told that may begin.
    fn greet(&mut self, facts: &Self::Facts, ticket: Ticket, out: &mut Vec<u8>)
    -> Result<(), session::Error>;

    /// Appends what a client is told that has been on another connection before.
    fn greet_again(&self, facts: &Self::Facts, out: &mut Vec<u8>) -> Result<(), session::Error>;

    /// Looks at the client's next bytes, those that were not passed on before and newer ones. An error is the client's.
    fn client_said(&mut self, input: &[u8], facts: &mut Self::Facts) -> Result<FromClient, session::Error>;

    /// Looks at the server's next bytes, those that were neither skipped nor passed on before and newer ones. After an
    /// error the connection is of no more use.
    fn server_said(&mut self, input: &[u8], facts: &mut Self::Facts) -> Result<FromServer, session::Error>;

    /// Whether the client must be answered before more of what it says is read.
    fn is_full(&self) -> bool {
        false
    }

    /// Whether the client can be told more of what has become of the server.
    fn wants_a_reason(&self) -> bool;

    /// Appends why it ends.
    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>);

    /// Asks the server for what the client must take along, see [`Then::Asks`].
    fn ask(&mut self, facts: &Self::Facts, to_server: &mut Vec<u8>) -> Result<(), session::Error>;

    /// Whether it can be parted before the client has said anything.
    fn can_be_parted(&self) -> bool;

    /// Ends a session that rests.
    fn part(self, facts: &mut Self::Facts) -> Result<Parted<Self::Wanted, Self::Remains>, session::Error>;

    /// What is left behind.
    fn leave(self, facts: &mut Self::Facts) -> Result<Leaving<Self::Remains>, session::Error>;
}

/// Commands on the proxy's own account, whose answers nobody is passed.
pub trait Errand {
    /// What the server has said of the connection.
    type Facts;

    /// Takes whole messages from the front of `input`. The server's refusal is returned when all is answered; after any
    /// other error the connection is of no more use.
    fn step(
        &mut self,
        input: &mut &[u8],
        facts: &mut Self::Facts,
    ) -> Result<Response<Settled>, session::Error>;
}

/// Who speaks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstWord {
    /// The client.
    Client,
    /// The proxy, as soon as the client has come.
    Proxy,
}

/// How a client comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The kernel has said who it is, and that is enough.
    Granted,
    /// The kernel has said who it is, and nothing helps.
    Denied {
        /// Its user.
        uid: u32,
    },
    /// It has come by unix socket, and must prove that it knows the password.
    PasswordByUnix,
    /// It has come by TCP, and must prove that it knows the password.
    PasswordByTcp(Way),
    /// It must begin with TLS and show a certificate with the name of the user whom it names.
    Certificate,
}

/// What a client's start-up goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As it comes.
    Plain,
    /// TLS, with which it must begin.
    Tls,
}

/// What a step of a start-up has come to.
#[derive(Debug, PartialEq, Eq)]
pub enum FrontStep<W> {
    /// The client must go on.
    NeedInput,
    /// The client begins with TLS, if it has not yet. When that is done, the start-up is told.
    StartTls,
    /// The client is in, and shall have a session. It has not been told so.
    Login(W),
    /// The client wants the command of another one to end.
    Cancel {
        /// What the other one was told as its process.
        process_id: u32,
        /// What the other one was told as its key.
        key: Vec<u8>,
    },
    /// The client is not let in.
    Refuse(Refusal),
    /// The client does not speak the protocol, and would not understand a refusal.
    HangUp(&'static str),
}

/// What a connect is begun with.
pub struct Dialing {
    /// Who logs in.
    pub login: session::Login,
    /// The connect itself.
    pub machine: session::Connect,
}

/// What a client is told with which its commands can be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// No two clients have the same.
    pub process_id: u32,
    /// Nobody can guess it.
    pub secret: [u8; 4],
}

/// Whether a client has been told that it may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeted {
    /// It has.
    Done,
    /// It needs a connection first.
    NotYet,
}

/// When a client is told that it may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At once. What was written for the server may wait for what the client says first.
    Now,
    /// When the server has taken the client's settings. What was written for it must be sent.
    WhenSet,
}

/// What is to become of a client's bytes.
#[derive(Debug)]
pub struct FromClient {
    /// So many from the front are the server's.
    pub pass_bytes: usize,
    /// So many behind those are nobody's.
    pub drop_bytes: usize,
    /// What the server is to be told behind those that are its own. If it is not empty, the rest is to be looked at
    /// again.
    pub insert: Vec<u8>,
    /// Databases whose unused connections must be closed before anything is passed on.
    pub vacates: Vec<Vacate>,
    /// Whether a goodbye follows.
    pub goodbye: Goodbye,
}

impl FromClient {
    /// So many bytes are passed on, and nothing else is done.
    pub fn passes(pass_bytes: usize, goodbye: Goodbye) -> Self {
        Self { pass_bytes, drop_bytes: 0, insert: Vec::new(), vacates: Vec::new(), goodbye }
    }
}

/// What is to become of a server's bytes.
#[derive(Debug, Default)]
pub struct FromServer {
    /// So many from the front are nobody's.
    pub skip_bytes: usize,
    /// What the client is to be told before the next.
    pub news: News,
    /// So many behind those are the client's.
    pub pass_bytes: usize,
    /// What must be changed in those.
    pub patches: Vec<Patch>,
    /// So many behind those are nobody's. If there are any, the rest is to be looked at again.
    pub drop_bytes: usize,
    /// What the client is told in place of them.
    pub insert: Vec<u8>,
    /// What the session has come to.
    pub then: Then,
}

/// What a session has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Then {
    /// It goes on.
    #[default]
    GoesOn,
    /// Nothing is open: it can be parted.
    Rests,
    /// Nothing is open, but for what has to be asked before it can be parted.
    Asks,
    /// Nothing is open, but it cannot be parted, for this reason.
    Pinned(&'static str),
}

/// What others want to become of a client that has no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Nothing.
    None,
    /// What it waits for shall end.
    Cancel,
    /// It shall end.
    End,
}

/// Whose a connection was last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It was reset.
    Fresh,
    /// The same client's.
    Own,
    /// Another client's, and it has not been reset: that is to be written first.
    Taken,
}

/// Whether a connection can change hands without waiting for its reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// It can.
    AtOnce,
    /// The reset must be waited for.
    WhenReset,
}

/// How long a client has a server connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Pooling {
    /// Until it leaves.
    #[default]
    Session,
    /// Until its transaction ends: more clients than connections.
    Transaction,
}

/// What has become of a client's settings.
#[derive(Debug, Default)]
pub enum News {
    /// Nothing new.
    #[default]
    None,
    /// The server has taken them, or said what it was asked, and the client may begin or go on.
    Begins,
    /// The server does not take them.
    Refused(session::Error),
}

/// What is to be done with a server connection whose client has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving<R> {
    /// Nothing: the server has not heard of that client. What was written for it is to be dropped.
    Untouched,
    /// A reset.
    Reset(R),
    /// It must be closed, as nobody knows what the server will say next.
    Close(&'static str),
}

/// A client and a connection that belong together no more.
#[derive(Debug)]
pub struct Parted<W, R> {
    /// What goes with the client; none where sessions are not parted.
    pub wanted: Option<W>,
    /// What is left behind.
    pub leaving: Leaving<R>,
}

/// Where a connection stands when all is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It awaits commands, and nothing is open.
    Idle,
    /// It is not as it was at its beginning, for this reason, and no reset would help.
    Spoilt(&'static str),
}
