//! What was observed, as it is printed: the document of `observe --format json`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an observer saw, and for how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "ciphertoll observation")]
pub struct Observation {
    /// Where the packets came from: a file's name, or `-`.
    pub source: String,
    /// When the first segment of a database connection was captured, by RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_at: Option<String>,
    /// From the first to the last segment of a database connection.
    pub seconds: f64,
    pub segments: u64,
    /// The ports that were looked at, each with its protocol: `5432=postgres`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// Frames that could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<SkippedFrames>,
    /// Packets that the kernel dropped, as the capture reports; all counts are then lower bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
    /// Whether the file ends within a packet.
    pub truncated: bool,
    /// Connections that were no longer followed because there were too many.
    pub evicted: u64,
    /// Connections of further pairs: there were too many pairs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub uncounted: u64,
    /// Whether names of users and databases were kept, of logins without encryption.
    #[serde(default, skip_serializing_if = "is_false")]
    pub names: bool,
    /// Those that cost most first.
    pub pairs: Vec<Pair>,
    /// What servers accept, if they were asked: `--probe`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ServerProbe>,
    /// The worst first.
    pub findings: Vec<ObservedFinding>,
}

/// Frames that have no TCP segment that could be read, by the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SkippedFrames {
    /// Of a link type that is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknown_link_types: u64,
    /// The last of these link types, by its number in capture files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_type: Option<u32>,
    /// Fragments of IP packets with TCP.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fragments: u64,
    /// With a header that is cut by the snap length.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub truncated: u64,
    /// With a header that contradicts itself.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub malformed: u64,
    /// Not IP, or not TCP: nothing of a database is missing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub other_protocols: u64,
}

/// The connections from one client address to one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pair {
    pub client: String,
    pub server: String,
    /// The client's host name, if it was looked up: `--resolve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_name: Option<String>,
    /// The server's host name, if it was looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// `postgres`, `mysql` or `mongodb`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    pub connections: Connections,
    /// Over the time from the first to the last segment of all pairs. A few connects have no rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connects_per_s: Option<f64>,
    pub bytes: Bytes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_ms: Option<Quantiles>,
    /// From SYN to the server's answer that ends the login, as the client sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_ms: Option<Quantiles>,
    /// The phases of a connect, by the names of reports. `client` is what the client does between them: on each connection these
    /// add up to the connect. Their medians need not.
    pub phases: Vec<PhaseTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queries: Option<Queries>,
    pub encryption: Vec<Encryption>,
    pub logins: Vec<PlainLogin>,
    pub failures: Vec<FailureCount>,
    /// Who connected to what without encryption, if names were kept: those with most connections first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<ObservedUser>,
    /// Connections with users or databases that are not in this list: there were too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub other_users: u64,
    /// What its connections cost on a machine like that of a calibration; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<PairCost>,
    /// The processes of this machine that had its connections, at most 20; those with most connections first. Live only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ClientProcess>,
}

/// Processes of the same name in the same container or service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClientProcess {
    /// As the kernel names the process: at most 15 bytes.
    pub name: String,
    /// The first 12 characters of the ID of its container; of an LXC container, the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Its systemd service, if it is in no container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Those that were open when the tables of sockets were read, idle ones included. Short connections are mostly missed.
    pub connections: u64,
}

/// What the connections of a pair cost: each by the configuration of a run that is nearest to how it is encrypted, with
/// short queries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PairCost {
    /// The run whose cost model was used.
    pub run: String,
    /// The configurations of the run that stand for the connections.
    pub paths: Vec<PathShare>,
    /// The share of connections for which the run has no configuration. They are taken to cost what the others cost.
    pub unknown_share: f64,
    /// Connections that began before, whose queries are not known: what they cost is not in any of these numbers.
    pub without_began_before: u64,
    /// CPU time of clients, server and the processes between them ÷ time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<Estimated>,
    /// What is more than without encryption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption_cores: Option<Estimated>,
    /// What the sidecar would save; absent if the run did not measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<SidecarSaving>,
    /// What the run lacks.
    pub missing: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PathShare {
    /// As a level of `ciphertoll run --path`.
    pub path: String,
    pub share: f64,
}

/// Below 0, the sidecar costs more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SidecarSaving {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<Estimated>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_ms: Option<Estimated>,
}

/// A value with its 95 % interval, if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimated {
    pub value: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Connections {
    /// Whose beginning was seen.
    pub begun: u64,
    /// Of these, that could be used, as far as is known: without those that failed, or ended without a login.
    pub sessions: u64,
    /// That were open before.
    pub began_before: u64,
    /// That were still open at the end.
    pub open: u64,
    /// That only asked the server to cancel a query. They are not counted as begun.
    pub cancel_requests: u64,
    /// That could not be read, in part or at all: their queries are not counted.
    pub unread: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bytes {
    pub by_client: u64,
    pub by_server: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quantiles {
    pub median: f64,
    pub p95: f64,
    pub max: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseTime {
    pub phase: String,
    pub ms: Quantiles,
}

/// Queries per connection, of connections whose beginning was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Queries {
    /// Whether some were counted by turns of direction inside of TLS: fewer than were sent if the client does not wait for
    /// answers, more if it prepares statements or copies.
    pub by_turns: bool,
    pub median: u64,
    pub p95: u64,
    pub max: u64,
    /// How many connections had how many queries.
    pub distribution: Vec<Share>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Share {
    pub queries: u64,
    pub connections: u64,
}

/// How so many connections were encrypted: as the server selected.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Encryption {
    pub kind: EncryptionKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suite: Option<String>,
    /// The key exchange group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The server's signature; hidden in TLS 1.3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// The groups that the client offered.
    pub offered_groups: Vec<String>,
    pub connections: u64,
    /// Of these, that could be used, as far as is known.
    pub sessions: u64,
    pub resumed: u64,
    /// Handshakes with a HelloRetryRequest, which costs a round trip.
    pub hello_retries: u64,
    /// Handshakes in which the client had computed a key share that the server did not use.
    pub unused_key_shares: u64,
    /// In which the client offered to resume a session.
    pub offered_sessions: u64,
    /// In which the client sent a certificate; hidden in TLS 1.3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificates: Option<u64>,
    /// The server's certificate, up to TLS 1.2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Certificate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EncryptionKind {
    /// Nothing is encrypted.
    None,
    /// Nothing is encrypted, because the server refused TLS.
    Refused,
    /// Nothing was encrypted, and the connection ended before the client sent anything secret: for example, because the server
    /// requires TLS.
    Rejected,
    /// A TLS handshake that was completed.
    Tls,
    /// A TLS handshake that was not completed.
    TlsFailed,
    /// GSSAPI.
    Gss,
    /// The connection was open before, or could not be read.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Certificate {
    pub subject: String,
    pub issuer: String,
    /// As `rsa2048` or `p256`.
    pub key: String,
    /// The first day on which it is valid, as OpenSSL prints it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<String>,
    /// The last day on which it is valid, as OpenSSL prints it.
    pub not_after: String,
    /// Days from the capture to that day; negative if it had passed.
    pub days_left: i64,
    /// Hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// The algorithm by which the issuer signed it, by OpenSSL's name: `sha256WithRSAEncryption`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// SHA-256 of the certificate, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// What a server accepts, by asking it. Nothing of it was verified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerProbe {
    pub server: String,
    /// Why it could not be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The newest first. None: the server has no TLS.
    pub versions: Vec<AcceptedVersion>,
    /// The key exchange groups of TLS 1.3 that it accepts, in its order if it has one.
    pub groups: Vec<String>,
    /// What it selects if a client offers weak suites only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weak_suite: Option<String>,
    /// The server's certificate, and those that it sends with it. Days left are as of the probe.
    pub certificates: Vec<Certificate>,
    /// When it was asked, by RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<String>,
    /// The server name that was sent (SNI): `--server-name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// What could not be found out, or not all of it: what is missing there need not be refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<ProbePart>,
    /// Why, for the first of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_because: Option<String>,
}

/// What a probe asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProbePart {
    Certificates,
    /// Those before TLS 1.3.
    OlderVersions,
    WeakSuites,
    /// Of TLS 1.3.
    Groups,
}

/// A version of TLS, with the suite that a server selects in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AcceptedVersion {
    pub version: String,
    pub suite: String,
}

/// Logins that were not encrypted, those that the server refused included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlainLogin {
    pub method: String,
    pub connections: u64,
}

/// A user and a database in logins that were not encrypted, those that the server refused included. Of MongoDB, it is the
/// database that knows the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedUser {
    pub user: String,
    /// Absent if the login named none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    pub connections: u64,
}

/// Connections that failed before they could be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailureCount {
    /// `refused 28P01`, `tls alert unknown_ca by the client`, `reset by the server`.
    pub reason: String,
    pub connections: u64,
}

/// Something to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedFinding {
    pub kind: FindingKind,
    /// `any client` if the server was asked.
    pub client: String,
    pub server: String,
    /// What was seen, in one sentence.
    pub seen: String,
    /// What to do, in one sentence.
    pub todo: String,
}

/// The worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    PasswordInClear,
    PasswordWeaklyHashed,
    NotEncrypted,
    ObsoleteVersion,
    WeakSuite,
    NoForwardSecrecy,
    WeakKey,
    WeakGroup,
    CertificateExpires,
    HandshakesFail,
    HelloRetry,
    UnusedKeyShare,
    NotResumed,
    NotPostQuantum,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(value: &bool) -> bool {
    !*value
}
