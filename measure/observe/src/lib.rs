//! What database connections do, seen from outside: from captured packets to pairs of a client and a server, how they are
//! encrypted, what a connect takes, how many queries follow, and what to change.
//!
//! Data flows one way: [`Capture`] yields frames, [`segment`] finds the TCP segment in each, `observer` gives it to its
//! connection, a `flow`. There, segments that acknowledge bytes which have not come are `waiting`, `stream` puts the bytes of each
//! direction in order, and `connection` reads them with `wire::passive` and `wire::tls`. `tally` counts connections that ended; [`Observation`] is what is printed.
//!
//! # Where to change what
//!
//! - a link type of captures: `observe::frame`; what a protocol shows: `wire::passive`; what TLS shows: `wire::tls`
//! - names of users and databases: `wire::passive`, `observe::accounts`; in words: `observe::users`
//! - queries inside of TLS: `observe::turns`; a finding: `observe::findings`; the first screen: `observe::text`
//! - names of clients' processes: `observe::clients`
//! - the cryptography bill of materials: `observe::cyclonedx`; the other formats: `report::observed`

mod accounts;
mod capture;
mod certificate;
mod clients;
mod connection;
mod cost;
mod cyclonedx;
mod distribution;
mod document;
mod endpoints;
mod error;
mod findings;
mod flow;
mod frame;
mod labels;
mod load;
mod memory;
mod names;
mod observation;
mod observer;
mod probe;
mod read;
mod stream;
mod tally;
mod text;
mod times;
mod turns;
mod users;
mod waiting;
mod words;

pub use capture::Capture;
pub use cyclonedx::cyclonedx;
pub use error::CaptureError;
pub use frame::{Frame, LinkType, PacketDirection, Segment, Skipped, TcpFlags, segment};
pub use labels::AddressLabels;
pub use load::ObservedLoad;
pub use observation::{
    AcceptedVersion, Bytes, Certificate, ClientProcess, Connections, Encryption, EncryptionKind, Estimated,
    FailureCount, FindingKind, Observation, ObservedFinding, ObservedUser, Pair, PairCost, PathShare,
    PhaseTime, PlainLogin, ProbePart, Quantiles, Queries, ServerProbe, Share, SidecarSaving, SkippedFrames,
};
pub use observer::Ports;
pub use probe::{Answer, Question, is_host_name};
pub use read::{SourceEnd, Watch};
pub use stream::{Content, Piece, Stream};
pub use text::{encryption_words, first_screen, limits};
pub use users::user_words;
