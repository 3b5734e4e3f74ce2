//! The protocol of `__load`: the coordinator sends a [`TrialSpec`] as JSON on stdin, the load process writes
//! [`LoadMessage`]s to stdout, one per line.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use ciphertoll_vocabulary::{
    AddressFamily, Engine, Identity, Legacy, NegotiatedNames, Phase, SecurityLevel, TlsParameters,
    Verification,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::factor::{Auth, Clients, Compressor, Ctx, DocumentsLogin, Resumption, TlsStart};
use crate::is_default;
use crate::script::Script;

/// The specification of a trial. Contains no secret, only the file that holds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialSpec {
    pub engine: Engine,
    pub endpoint: Endpoint,
    pub auth: Auth,
    pub user: String,
    /// A file with mode 0600 that contains only the password.
    pub password_file: PathBuf,
    pub database: Option<String>,
    /// Parameters of PostgreSQL's startup message that a URL has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub startup: Vec<(String, String)>,
    /// Login options of a document database at a URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<DocumentsLogin>,
    /// `None` if the path has no TLS.
    pub tls: Option<TlsSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compressor: Option<Compressor>,
    pub work: TrialOperation,
    pub pace: TrialPace,
    pub clients: Clients,
    /// Threads that share the clients.
    pub threads: u16,
    /// Time before the window opens.
    pub warm_up_ns: u64,
    pub window_ns: u64,
    pub seed: u64,
    /// The number of the first inserted record; derived from the seed and the time if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_insert: Option<u64>,
    /// Rate limit of a closed loop, over all clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_per_s: Option<f64>,
    /// Processors that the load process is pinned to; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processors: Option<Vec<u16>>,
    /// The network that the load process joins; its parent's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Always 0: drivers that were written for earlier versions read it.
    pub injected_delay_ns: u64,
    /// Share of the connects that do their work twice: the known effect of the truth experiments.
    #[serde(default, skip_serializing_if = "is_default")]
    pub repeated_share: f64,
    #[serde(default, skip_serializing_if = "is_default")]
    pub start: TrialStart,
}

/// When the warm-up of a load process begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialStart {
    /// As soon as its clients are ready.
    #[default]
    AtOnce,
    /// At the moment of a [`StartCommand`], after it has reported [`LoadMessage::Ready`]: so that the windows of
    /// several load processes coincide.
    WhenTold,
}

/// The second line on stdin of a load process that starts when told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartCommand {
    /// When the warm-up begins, by the `CLOCK_MONOTONIC` of the load process; at once if that is over.
    pub begin_at_ns: u64,
}

/// A private network, by files through which a single-threaded process can join it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// The user namespace of the network; absent if root made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<PathBuf>,
    pub network: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    /// TCP. On loopback, clients spread their source addresses over 127.0.0.0/8, so that churn does not exhaust local
    /// ports.
    Tcp(SocketAddr),
    Unix(PathBuf),
    /// TCP to a name that is looked up for each connect, or to an address without spreading source addresses.
    Host {
        host: String,
        port: u16,
        /// Which of the name's addresses are used.
        family: AddressFamily,
    },
}

/// A client's TLS settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsSpec {
    #[serde(flatten)]
    pub parameters: TlsParameters,
    /// The CA file that verifies the server; the system's CAs if absent.
    pub ca_file: Option<PathBuf>,
    #[serde(default)]
    pub verification: Verification,
    /// The name or address that the certificate must contain.
    pub server_name: String,
    pub ctx: Ctx,
    #[serde(default)]
    pub start: TlsStart,
    #[serde(default)]
    pub resumption: Resumption,
    /// A weak key or old version requires a lowered security level.
    #[serde(default, rename = "strength")]
    pub security_level: SecurityLevel,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
}

impl TlsSpec {
    /// A context per connect, full verification and full handshakes, as drivers do by default.
    #[must_use]
    pub fn new(parameters: TlsParameters, ca_file: Option<PathBuf>, server_name: &str) -> Self {
        Self {
            parameters,
            ca_file,
            verification: Verification::Full,
            server_name: server_name.to_owned(),
            ctx: Ctx::PerConnect,
            start: TlsStart::Requested,
            resumption: Resumption::Never,
            security_level: SecurityLevel::Default,
            identity: None,
        }
    }
}

/// What one operation does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialOperation {
    /// Connect and close.
    Connect,
    /// Connect, the script's steps as text, close; everything is timed.
    ConnectQuery(Script),
    /// Connect, the script's only step as text, close; only the query is timed.
    FirstQuery(Script),
    /// Transactions on connections that are opened before the window.
    Transactions(Script),
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialPace {
    /// Closed loop: each client's next operation begins when its last one has ended.
    Closed,
    /// Open loop with a Poisson schedule; operations are timed from their intended start.
    Open {
        /// Over all clients.
        per_s: f64,
    },
}

/// A message of the load process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "message", content = "body")]
pub enum LoadMessage {
    /// The clients are ready and wait for the [`StartCommand`].
    Ready,
    /// After the [`StartCommand`]: the edges of the window, by the `CLOCK_MONOTONIC` of the load process.
    Begun {
        opens_at_ns: u64,
        closes_at_ns: u64,
    },
    WindowOpened,
    WindowClosed,
    /// Times of operations in the window, sent any number of times before `Finished`, by drivers without a histogram.
    Samples {
        latency_ns: Vec<u64>,
    },
    /// The last message of a successful trial.
    Finished(Box<TrialResult>),
    /// The last message of a failed trial.
    Failed {
        fault: FailureOrigin,
        /// One line.
        message: String,
        #[serde(default)]
        kind: ErrorKind,
    },
}

/// Where the cause of a failed trial is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureOrigin {
    /// The server refused, or broke the protocol.
    Server,
    /// TLS failed: certificate, version or suite.
    Tls,
    /// This machine ran out of a resource.
    Host,
    /// A bug in ciphertoll.
    Internal,
}

/// The measurements of a load process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    pub operations: u64,
    /// Operations completed in the whole trial, which the server's counters, read before and after it, are divided
    /// by. Absent if the driver does not know.
    #[serde(default)]
    pub operations_in_all: Option<u64>,
    /// Operations completed in each half of the window, which agree in a steady trial. Zeros if unknown.
    #[serde(default)]
    pub operations_by_half: [u64; 2],
    /// Statements answered in the window, for operations of several statements.
    #[serde(default)]
    pub statements: Option<u64>,
    #[serde(default)]
    pub retries: u64,
    /// Open loop: operations due in the window that did not complete in time.
    #[serde(default)]
    pub unfinished: u64,
    pub window_ns: u64,
    /// Failed operations by message, including the warm-up.
    #[serde(default)]
    pub errors: Vec<ErrorCount>,
    /// Times of operations; in an open loop, from their intended start. All zeros: see the samples.
    #[serde(default)]
    pub latency: LatencySummary,
    /// Open loop: times from the actual start.
    #[serde(default)]
    pub service: Option<LatencySummary>,
    /// Open loop: how late the load process was although a client was free.
    #[serde(default)]
    pub schedule_lag: Option<LatencySummary>,
    /// Sum of each phase over all operations, ns. The phases of a connect sum to its time.
    #[serde(default)]
    pub phase_sums_ns: BTreeMap<Phase, u64>,
    /// All samples as an HDR histogram of nanoseconds, V2, base64. Empty: see the samples.
    #[serde(default)]
    pub histogram_base64: String,
    /// The negotiated parameters, and on how many connections; empty if the driver does not know.
    #[serde(default)]
    pub legs: Vec<LegCount>,
    /// User and system CPU time of the load process in the window.
    pub client_cpu_ns: u64,
    pub client_rss_peak_bytes: u64,
    /// Median of the TCP connects in the window; absent if none was timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_connect_ns_p50: Option<u64>,
    /// Local ports available for connects to this endpoint.
    #[serde(default)]
    pub usable_ports: Option<u64>,
    /// Only of a load process that starts when told: what the sum over several needs in addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub further_histograms: Option<Box<FurtherHistograms>>,
}

/// Histograms like [`TrialResult::histogram_base64`]; empty if there was nothing to record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FurtherHistograms {
    pub service_base64: String,
    pub schedule_lag_base64: String,
    pub tcp_connect_base64: String,
}

/// An error and its number of occurrences.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorCount {
    /// One line without secrets.
    pub message: String,
    pub count: u64,
    #[serde(default)]
    pub kind: ErrorKind,
}

/// Errors that need more than counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    #[default]
    Other,
    /// The server has reached a connection limit: others may need the remaining connections.
    TooManyConnections,
}

/// Times of operations in the window, ns. The sum is exact; percentiles have three significant digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    pub count: u64,
    pub sum_ns: u64,
    pub p50_ns: u64,
    pub p95_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

/// The parameters negotiated on one hop of the path, as observed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Leg {
    /// Who opened the connection.
    pub from: String,
    /// Who accepted it.
    pub to: String,
    /// `tls1.3`; absent without TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_version: Option<String>,
    /// The cipher suite's IANA or OpenSSL name, or the tunnel's name of its cipher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suite: Option<String>,
    /// The key exchange group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The key type of the server's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Whether the session was resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed: Option<bool>,
    /// How many certificates the server sent; absent if the session was resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<u8>,
    /// Whether a HelloRetryRequest cost a round trip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hello_retry: Option<bool>,
    /// The authentication method that the server requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<String>,
    /// The client's TLS library, or the tunnel's or proxy's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub library: Option<String>,
    /// The negotiated compressor; absent without compression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compressor: Option<String>,
    /// The server's signature scheme in the handshake, by IANA's name; absent if it is not known (RSA in TLS 1.3), and
    /// if the session was resumed. In TLS 1.2, the names of ECDSA schemes mean any curve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// The version of a client library that was chosen by its version: `OpenSSL 3.5.9 …`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library_version: Option<String>,
    /// Key shares that the client sent and the server did not select.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unused_shares: Vec<KeyShare>,
}

/// A public key that a client sends for a group before it knows the server's choice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct KeyShare {
    pub group: String,
    pub bytes: u16,
}

/// A leg and the number of connections with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegCount {
    pub leg: Leg,
    pub connections: u64,
    /// Absent without TLS, and if the driver does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake: Option<HandshakeSize>,
}

/// The size of TLS handshakes, without bytes of the database's protocol: means over the connections, because
/// signatures differ by a few bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HandshakeSize {
    /// Read by the client until its handshake was complete.
    pub read_bytes: u64,
    /// Written by the client, its Finished included.
    pub written_bytes: u64,
    /// The server's first flight, without a HelloRetryRequest.
    pub first_flight_bytes: u64,
    /// TCP segments of the first flight, by the maximum segment size of the connection; absent on a unix socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<u64>,
}

impl Leg {
    /// Why no recommendation may name what was negotiated, if it is legacy. Tunnels' ciphers are judged by their level.
    pub fn legacy(&self) -> Option<Legacy> {
        let suite = self.suite.as_deref().filter(|_| self.tls_version.is_some());
        Legacy::observed(NegotiatedNames {
            version: self.tls_version.as_deref(),
            key: self.key.as_deref(),
            suite,
            group: self.group.as_deref(),
        })
    }
}

impl LegCount {
    /// Adds further connections with the same leg.
    pub fn add(&mut self, other: &Self) {
        self.handshake = match (self.handshake, other.handshake) {
            (Some(own), Some(others)) => Some(own.mean(self.connections, others, other.connections)),
            (own, others) => own.or(others),
        };
        self.connections += other.connections;
    }
}

impl HandshakeSize {
    fn mean(self, connections: u64, other: Self, of_other: u64) -> Self {
        let mean = |own: u64, others: u64| {
            let total = (connections + of_other).max(1);
            (own * connections + others * of_other + total / 2) / total
        };
        Self {
            read_bytes: mean(self.read_bytes, other.read_bytes),
            written_bytes: mean(self.written_bytes, other.written_bytes),
            first_flight_bytes: mean(self.first_flight_bytes, other.first_flight_bytes),
            segments: self.segments.max(other.segments),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(connections: u64, bytes: Option<u64>) -> LegCount {
        let size = |bytes| HandshakeSize {
            read_bytes: bytes,
            written_bytes: 2 * bytes,
            first_flight_bytes: bytes,
            segments: Some(bytes.div_ceil(1_448)),
        };
        LegCount { leg: Leg::default(), connections, handshake: bytes.map(size) }
    }

    #[test]
    fn sizes_are_weighted_by_connections() {
        let mut sum = count(3, Some(1_000));
        sum.add(&count(1, Some(2_001)));
        assert_eq!(sum.connections, 4);
        let size = sum.handshake.unwrap();
        assert_eq!((size.read_bytes, size.written_bytes, size.segments), (1_250, 2_501, Some(2)));
    }

    #[test]
    fn an_unknown_size_changes_no_mean() {
        let mut sum = count(3, None);
        sum.add(&count(1, Some(2_000)));
        sum.add(&count(10, None));
        assert_eq!(sum.connections, 14);
        assert_eq!(sum.handshake.unwrap().read_bytes, 2_000);
    }
}
