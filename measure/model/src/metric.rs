//! Metrics: a closed set, each with its unit and its direction.

use ciphertoll_vocabulary::Phase;
use serde::{Deserialize, Serialize};

/// The unit that a metric's name contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Operations per second.
    PerSecond,
    /// Nanoseconds.
    Nanoseconds,
    /// Microseconds of CPU per operation.
    CpuMicroseconds,
    /// Bytes.
    Bytes,
    /// A number of things.
    Count,
}

/// Which direction is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricDirection {
    /// Rates: a ratio below 1 is worse.
    HigherIsBetter,
    /// Everything else: a ratio above 1 is worse.
    LowerIsBetter,
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $metric:ident = $label:literal, $unit:ident, $title:literal;)+) => {
        /// A metric. Names contain their unit; phases are means, so that they add up.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
                 schemars::JsonSchema)]
        pub enum Metric { $($(#[$doc])* #[serde(rename = $label)] $metric),+ }

        impl Metric {
            /// Every metric, in the order of reports.
            pub const ALL: &'static [Self] = &[$(Self::$metric),+];

            /// The name in records and in JSON.
            pub fn label(self) -> &'static str {
                match self { $(Self::$metric => $label),+ }
            }

            /// The name in text.
            pub fn title(self) -> &'static str {
                match self { $(Self::$metric => $title),+ }
            }

            pub fn unit(self) -> Unit {
                match self { $(Self::$metric => Unit::$unit),+ }
            }
        }
    };
}

metrics! {
    /// Operations completed by all clients in the window ÷ window.
    RatePerS = "rate_per_s", PerSecond, "rate";
    /// Mean time of an operation.
    LatencyNsMean = "latency_ns_mean", Nanoseconds, "mean latency";
    /// Median time of an operation.
    LatencyNsP50 = "latency_ns_p50", Nanoseconds, "median latency";
    /// 95th percentile; absent below 200 samples in the trial.
    LatencyNsP95 = "latency_ns_p95", Nanoseconds, "p95 latency";
    /// 99th percentile; absent below 1,000 samples in the trial.
    LatencyNsP99 = "latency_ns_p99", Nanoseconds, "p99 latency";
    /// Statements answered in the window ÷ window, for operations of several statements.
    StatementsPerS = "statements_per_s", PerSecond, "statements";
    /// Open loop: mean time from an operation's actual start; `latency_ns_…` is from the intended start.
    ServiceNsMean = "service_ns_mean", Nanoseconds, "mean service time";
    /// Open loop: median time from the actual start.
    ServiceNsP50 = "service_ns_p50", Nanoseconds, "median service time";
    /// Open loop: 95th percentile from the actual start; absent below 200 samples in the trial.
    ServiceNsP95 = "service_ns_p95", Nanoseconds, "p95 service time";
    /// Open loop: 99th percentile from the actual start; absent below 1,000 samples in the trial.
    ServiceNsP99 = "service_ns_p99", Nanoseconds, "p99 service time";
    /// Open loop: how late the load process began operations, 99th percentile.
    ScheduleLagNsP99 = "schedule_lag_ns_p99", Nanoseconds, "p99 schedule lag";
    /// CPU of the load process.
    CpuUsPerOpClient = "cpu_us_per_op_client", CpuMicroseconds, "client CPU";
    /// CPU of the processes between client and server: a tunnel's ends, a proxy.
    CpuUsPerOpMiddle = "cpu_us_per_op_middle", CpuMicroseconds, "middle CPU";
    /// CPU of the server.
    CpuUsPerOpServer = "cpu_us_per_op_server", CpuMicroseconds, "server CPU";
    /// CPU of all roles except the link.
    CpuUsPerOpTotal = "cpu_us_per_op_total", CpuMicroseconds, "total CPU";
    /// Peak resident memory of the load process.
    RssBytesClient = "rss_bytes_client", Bytes, "client memory";
    /// Peak resident memory of the server.
    RssBytesServer = "rss_bytes_server", Bytes, "server memory";
    /// Peak resident memory of a proxy.
    RssBytesMiddle = "rss_bytes_middle", Bytes, "proxy memory";
    /// Time to set up a tunnel or a proxy before the trial, a proxy's first connection to the server included. No
    /// operation waits for it.
    SetUpNs = "setup_ns", Nanoseconds, "set-up";
    /// Pages read from files into the server's buffers, including read-ahead ÷ operations.
    PagesReadPerOperation = "pages_read_per_operation", Count, "pages read";
    /// Pages written from the server's buffers to files ÷ operations.
    PagesWrittenPerOperation = "pages_written_per_operation", Count, "pages written";
    /// Pages read plus pages written: encryption at rest processes each.
    PageCrossingsPerOperation = "page_crossings_per_operation", Count, "page crossings";
    /// Bytes of WAL or redo written ÷ operations.
    WalBytesPerOperation = "wal_bytes_per_operation", Bytes, "WAL or redo";
    /// Full-page images in the WAL, written at the first change of a page after a checkpoint ÷ operations.
    FullPageImagesPerOperation = "full_page_images_per_operation", Count, "full-page images";
    /// Syncs of WAL or redo ÷ operations.
    WalSyncsPerOperation = "wal_syncs_per_operation", Count, "syncs of WAL or redo";
    /// Checkpoints started in the trial, including its warm-up.
    CheckpointsBegun = "checkpoints_begun", Count, "checkpoints begun";
    /// Checkpoints completed in the trial, including its warm-up.
    CheckpointsCompleted = "checkpoints_completed", Count, "checkpoints completed";
    /// Redo that a recovery would replay at the end of the trial.
    CheckpointAgeBytes = "checkpoint_age_bytes", Bytes, "age of the checkpoint";
    /// Median time of an 8 KiB sync on the storage of the server's files, probed before the block's first trial there.
    FsyncNsP50 = "fsync_ns_p50", Nanoseconds, "median sync";
    /// 99th percentile of these syncs.
    FsyncNsP99 = "fsync_ns_p99", Nanoseconds, "p99 sync";
    /// Mean time of the name lookup.
    PhaseNsDns = "phase_ns_dns", Nanoseconds, "name look-up";
    /// Mean time from `socket()` to connected.
    PhaseNsTcpConnect = "phase_ns_tcp_connect", Nanoseconds, "TCP connect";
    /// Mean time from connected to the server's greeting.
    PhaseNsServerGreeting = "phase_ns_server_greeting", Nanoseconds, "greeting";
    /// Mean time of building the client's TLS context.
    PhaseNsTlsContext = "phase_ns_tls_context", Nanoseconds, "TLS context";
    /// Mean time of requesting TLS in the database protocol.
    PhaseNsTlsRequest = "phase_ns_tls_request", Nanoseconds, "TLS request";
    /// Mean time of the TLS handshake.
    PhaseNsTlsHandshake = "phase_ns_tls_handshake", Nanoseconds, "TLS handshake";
    /// Mean time of the authentication.
    PhaseNsAuth = "phase_ns_auth", Nanoseconds, "authentication";
    /// Mean time from authenticated to ready for commands.
    PhaseNsReady = "phase_ns_ready", Nanoseconds, "ready";
    /// Mean time of the first query on a fresh connection.
    PhaseNsFirstQuery = "phase_ns_first_query", Nanoseconds, "first query";
    /// Mean time of the orderly close.
    PhaseNsClose = "phase_ns_close", Nanoseconds, "close";
}

impl Metric {
    pub fn direction(self) -> MetricDirection {
        match self {
            Self::RatePerS | Self::StatementsPerS => MetricDirection::HigherIsBetter,
            _ => MetricDirection::LowerIsBetter,
        }
    }

    /// Whether it is a count, which may be zero.
    pub fn may_be_zero(self) -> bool {
        matches!(self, Self::WalBytesPerOperation | Self::CheckpointAgeBytes) || self.unit() == Unit::Count
    }

    /// Whether it is a phase of an operation.
    pub fn is_phase(self) -> bool {
        Phase::ALL.into_iter().any(|phase| Self::of_phase(phase) == self)
    }

    pub fn of_phase(phase: Phase) -> Self {
        match phase {
            Phase::Dns => Self::PhaseNsDns,
            Phase::TcpConnect => Self::PhaseNsTcpConnect,
            Phase::ServerGreeting => Self::PhaseNsServerGreeting,
            Phase::TlsContext => Self::PhaseNsTlsContext,
            Phase::TlsRequest => Self::PhaseNsTlsRequest,
            Phase::TlsHandshake => Self::PhaseNsTlsHandshake,
            Phase::Auth => Self::PhaseNsAuth,
            Phase::Ready => Self::PhaseNsReady,
            Phase::FirstQuery => Self::PhaseNsFirstQuery,
            Phase::Close => Self::PhaseNsClose,
        }
    }
}

impl std::fmt::Display for Metric {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.label())
    }
}
