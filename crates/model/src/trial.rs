//! What the coordinator tells the load process, and what it hears back: the protocol of `__load`,
//! one JSON document in on stdin, one [`LoadMessage`] a line out on stdout.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use ciphertoll_vocabulary::{
    AddressFamily, Engine, Group, Identity, Phase, SecurityLevel, Suite, TlsLibrary, TlsVersion, Verification,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::factor::{Auth, Clients, Compressor, Ctx, DocumentsLogin, Resumption, TlsStart};
use crate::script::Script;

/// Everything a load process needs for one trial. Carries no secret, only the file that holds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialSpec {
    /// Whose protocol is spoken.
    pub engine: Engine,
    /// Where the server listens.
    pub endpoint: Endpoint,
    /// How the client proves who it is.
    pub auth: Auth,
    /// The user to log in as.
    pub user: String,
    /// A file, 0600, whose whole content is the password.
    pub password_file: PathBuf,
    /// The database to use.
    pub database: Option<String>,
    /// What a URL of a server of documents says of logging in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<DocumentsLogin>,
    /// TLS, where the path has it.
    pub tls: Option<TlsSpec>,
    /// What messages are compressed with, where the path has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compressor: Option<Compressor>,
    /// What one operation is.
    pub work: Work,
    /// When operations begin.
    pub pace: TrialPace,
    /// How many clients work at once.
    pub clients: Clients,
    /// How many threads share them.
    pub threads: u16,
    /// Dropped before the window opens.
    pub warm_up_ns: u64,
    /// Length of the window.
    pub window_ns: u64,
    /// Seed of the keys that are read.
    pub seed: u64,
    /// The number of the first record that is inserted; by the seed and the time, where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_insert: Option<u64>,
    /// Most operations a second that the clients of a closed loop begin, together; no limit where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_per_s: Option<f64>,
    /// The processors that the load process keeps to; all, where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processors: Option<Vec<u16>>,
    /// The network that the load process joins; its caller's, where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Spun away inside each operation: the known effect of the truth experiment. 0 otherwise.
    pub injected_delay_ns: u64,
}

/// A network of our own, by files that lead into it. Joined before there is a second thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// The user namespace that the network is in; none where it was made as root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<PathBuf>,
    /// The network namespace.
    pub network: PathBuf,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    /// TCP. On loopback the clients spread their source addresses over 127.0.0.0/8, so that churn
    /// does not run out of ports.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
    /// TCP, at a name that is looked up for each connect, or at an address whose clients all use their own.
    Host {
        /// The name or the address.
        host: String,
        /// The port.
        port: u16,
        /// Which of the name's addresses are used.
        family: AddressFamily,
    },
}

/// How the client does TLS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsSpec {
    /// The one version offered.
    pub version: TlsVersion,
    /// The CA that must have signed the server's certificate; one of the system's where absent.
    pub ca_file: Option<PathBuf>,
    /// How far the certificate is verified.
    #[serde(default)]
    pub verification: Verification,
    /// The name or address the certificate must carry.
    pub server_name: String,
    /// Who builds the context.
    pub ctx: Ctx,
    /// How TLS begins.
    #[serde(default)]
    pub start: TlsStart,
    /// The one suite offered; the library's defaults where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suite: Option<Suite>,
    /// The one group offered; the library's defaults where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Group>,
    /// Whether sessions are taken up again.
    #[serde(default)]
    pub resumption: Resumption,
    /// What the certificate's key asks of the client: a weak one lowers its security level.
    #[serde(default, rename = "strength")]
    pub security_level: SecurityLevel,
    /// Whose TLS the client uses.
    #[serde(default)]
    pub library: TlsLibrary,
    /// What the client shows of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
}

/// What one operation does on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Connect and close.
    Connect,
    /// Connect, the script's first step as text, close; all of it timed.
    ConnectQuery(Script),
    /// The same, and only the query is timed.
    FirstQuery(Script),
    /// Transactions on connections that are opened before the window and stay.
    Transactions(Script),
}

/// When operations begin.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialPace {
    /// Each client's next when its last has ended.
    Closed,
    /// By a Poisson schedule, whether or not earlier ones have ended; timed from the intended start.
    Open {
        /// Of all clients together.
        per_s: f64,
    },
}

/// A line from the load process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "message", content = "body")]
pub enum LoadMessage {
    /// The warm-up is over.
    WindowOpened,
    /// The window is over.
    WindowClosed,
    /// Times of operations in the window; as often as need be, before `Finished`. For drivers that keep
    /// no histogram.
    Samples {
        /// Nanoseconds.
        latency_ns: Vec<u64>,
    },
    /// All went well; the last message.
    Finished(Box<TrialResult>),
    /// It did not; the last message.
    Failed {
        /// Whose fault.
        fault: Fault,
        /// One line.
        message: String,
        /// What kind of failure.
        #[serde(default)]
        kind: ErrorKind,
    },
}

/// Whose fault a failed trial is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The server refused, or broke the protocol.
    Server,
    /// TLS failed: certificate, version or suite.
    Tls,
    /// This machine ran out of something.
    Host,
    /// ciphertoll itself.
    Internal,
}

/// What a load process measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    /// Operations completed in the window.
    pub operations: u64,
    /// Operations completed in the whole trial, before and after the window, too: what a server's counters, which are
    /// read before and after it, are divided by. Absent where the driver cannot tell.
    #[serde(default)]
    pub operations_in_all: Option<u64>,
    /// Operations completed in its first and second half: a steady trial's agree. Zeros: not known.
    #[serde(default)]
    pub operations_by_half: [u64; 2],
    /// Statements answered in the window, where an operation is more than one.
    #[serde(default)]
    pub statements: Option<u64>,
    /// Transactions that were rolled back and begun again.
    #[serde(default)]
    pub retries: u64,
    /// Open loop: operations that were due in the window and not done long after.
    #[serde(default)]
    pub unfinished: u64,
    /// The window as it was, not as it was planned.
    pub window_ns: u64,
    /// Operations that failed, by message, warm-up included.
    #[serde(default)]
    pub errors: Vec<ErrorCount>,
    /// Time of the operations; in an open loop, from their intended start. All zeros: see the samples.
    #[serde(default)]
    pub latency: LatencySummary,
    /// Open loop: their time from the real start.
    #[serde(default)]
    pub service: Option<LatencySummary>,
    /// Open loop: how late the load process was, though a client was free.
    #[serde(default)]
    pub schedule_lag: Option<LatencySummary>,
    /// Sum of each phase over the operations, ns. The phases of a connect sum to its time.
    #[serde(default)]
    pub phase_sums_ns: BTreeMap<Phase, u64>,
    /// Every sample, an HDR histogram of nanoseconds, V2, base64. Empty: see the samples.
    #[serde(default)]
    pub histogram_base64: String,
    /// What was negotiated, and on how many connections; none where the driver cannot tell.
    #[serde(default)]
    pub legs: Vec<LegCount>,
    /// User and system CPU of the load process in the window.
    pub client_cpu_ns: u64,
    /// Peak resident memory of the load process.
    pub client_rss_peak_bytes: u64,
    /// Median of the TCP connects in the window; absent where none was timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_connect_ns_p50: Option<u64>,
    /// Local ports that could be used for connects to this endpoint.
    #[serde(default)]
    pub usable_ports: Option<u64>,
}

/// An error and how often it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorCount {
    /// One line, no secret.
    pub message: String,
    /// How often.
    pub count: u64,
    /// What kind of error.
    #[serde(default)]
    pub kind: ErrorKind,
}

/// Errors that call for more than being counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Any other.
    #[default]
    Other,
    /// The server has no room for one more connection: others may need those that are left.
    TooManyConnections,
}

/// Time of the operations in the window, ns. The sum is exact; percentiles have three digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Samples.
    pub count: u64,
    /// Sum of all samples.
    pub sum_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 95th percentile.
    pub p95_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// What was negotiated on one hop of the path, as observed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Leg {
    /// Who opened the hop.
    pub from: String,
    /// Who answered.
    pub to: String,
    /// `tls1.3`; absent where the hop has no TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_version: Option<String>,
    /// The cipher suite, by its IANA or OpenSSL name; a tunnel's cipher, as the tunnel calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suite: Option<String>,
    /// The key-exchange group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The server certificate's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Whether the session was resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed: Option<bool>,
    /// How many certificates the server sent; absent where the session was resumed, as none is sent then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<u8>,
    /// Whether a HelloRetryRequest cost a round trip more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hello_retry: Option<bool>,
    /// How the client proved who it is: what the server really asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<String>,
    /// The client's TLS library; of a tunnel or a proxy, whose it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub library: Option<String>,
    /// What messages are compressed with, on which both have agreed; absent where they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compressor: Option<String>,
}

/// A leg, and on how many connections it was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegCount {
    /// What was negotiated.
    pub leg: Leg,
    /// On how many connections.
    pub connections: u64,
}
