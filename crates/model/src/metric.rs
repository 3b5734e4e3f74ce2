//! Everything that is measured: a closed set, each metric with its unit and its direction.

use serde::{Deserialize, Serialize};

use crate::trial::Phase;

/// The unit a metric's name ends in or contains.
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
    /// How many.
    Count,
}

/// Which way is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A toll below 1 is worse: rates.
    HigherIsBetter,
    /// A toll above 1 is worse: everything else.
    LowerIsBetter,
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $metric:ident = $label:literal, $unit:ident, $title:literal;)+) => {
        /// A measured quantity. Names carry their units; phases are means, so that they add up.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
                 schemars::JsonSchema)]
        pub enum Metric { $($(#[$doc])* #[serde(rename = $label)] $metric),+ }

        impl Metric {
            /// Every metric, in the order of reports.
            pub const ALL: &'static [Self] = &[$(Self::$metric),+];

            /// The name in the record and in JSON.
            pub fn label(self) -> &'static str {
                match self { $(Self::$metric => $label),+ }
            }

            /// A few plain words for a person.
            pub fn title(self) -> &'static str {
                match self { $(Self::$metric => $title),+ }
            }

            /// The unit.
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
    /// Statements answered in the window ÷ window, where an operation is more than one.
    StatementsPerS = "statements_per_s", PerSecond, "statements";
    /// Open loop: mean time from an operation's real start. `latency_ns_…` is from the intended one.
    ServiceNsMean = "service_ns_mean", Nanoseconds, "mean service time";
    /// Open loop: its median.
    ServiceNsP50 = "service_ns_p50", Nanoseconds, "median service time";
    /// Open loop: its 95th percentile; absent below 200 samples in the trial.
    ServiceNsP95 = "service_ns_p95", Nanoseconds, "p95 service time";
    /// Open loop: its 99th percentile; absent below 1,000 samples in the trial.
    ServiceNsP99 = "service_ns_p99", Nanoseconds, "p99 service time";
    /// Open loop: how late the load process itself was, 99th percentile.
    ScheduleLagNsP99 = "schedule_lag_ns_p99", Nanoseconds, "p99 schedule lag";
    /// CPU of the load process.
    CpuUsPerOpClient = "cpu_us_per_op_client", CpuMicroseconds, "client CPU";
    /// CPU of the processes between client and server: the ends of a tunnel, a proxy.
    CpuUsPerOpMiddle = "cpu_us_per_op_middle", CpuMicroseconds, "middle CPU";
    /// CPU of the server.
    CpuUsPerOpServer = "cpu_us_per_op_server", CpuMicroseconds, "server CPU";
    /// CPU of all roles but the link.
    CpuUsPerOpTotal = "cpu_us_per_op_total", CpuMicroseconds, "total CPU";
    /// Peak resident memory of the load process.
    RssBytesClient = "rss_bytes_client", Bytes, "client memory";
    /// Peak resident memory of the server.
    RssBytesServer = "rss_bytes_server", Bytes, "server memory";
    /// Peak resident memory of a proxy.
    RssBytesMiddle = "rss_bytes_middle", Bytes, "proxy memory";
    /// Bringing a tunnel or a proxy up before the trial: from starting its processes to their being ready, of a proxy its
    /// first connection to the server included. No operation waits for it.
    SetUpNs = "setup_ns", Nanoseconds, "set-up";
    /// Pages that came from the server's files into its buffers, those read ahead included ÷ operations.
    PagesReadPerOperation = "pages_read_per_operation", Count, "pages read";
    /// Pages that went from the server's buffers to its files ÷ operations.
    PagesWrittenPerOperation = "pages_written_per_operation", Count, "pages written";
    /// Both: what encryption at rest is paid for.
    PageCrossingsPerOperation = "page_crossings_per_operation", Count, "page crossings";
    /// Bytes of WAL or redo that were written ÷ operations.
    WalBytesPerOperation = "wal_bytes_per_operation", Bytes, "WAL or redo";
    /// Whole pages in the WAL: the first change of a page after a checkpoint ÷ operations.
    FullPageImagesPerOperation = "full_page_images_per_operation", Count, "full-page images";
    /// Times that WAL or redo was made to go to the disk ÷ operations.
    WalSyncsPerOperation = "wal_syncs_per_operation", Count, "syncs of WAL or redo";
    /// Checkpoints that began in the trial, its warm-up included.
    CheckpointsBegun = "checkpoints_begun", Count, "checkpoints begun";
    /// Checkpoints that were completed in the trial, its warm-up included.
    CheckpointsCompleted = "checkpoints_completed", Count, "checkpoints completed";
    /// Redo that a recovery would begin with at the end of the trial.
    CheckpointAgeBytes = "checkpoint_age_bytes", Bytes, "age of the checkpoint";
    /// Median time of a sync of 8 KiB where the server's files are, by a probe before the block's first trial there.
    FsyncNsP50 = "fsync_ns_p50", Nanoseconds, "median sync";
    /// 99th percentile of the same.
    FsyncNsP99 = "fsync_ns_p99", Nanoseconds, "p99 sync";
    /// Mean of looking up the server's name.
    PhaseNsDns = "phase_ns_dns", Nanoseconds, "name look-up";
    /// Mean of `socket()` to connected.
    PhaseNsTcpConnect = "phase_ns_tcp_connect", Nanoseconds, "TCP connect";
    /// Mean of connected to the server's greeting.
    PhaseNsServerGreeting = "phase_ns_server_greeting", Nanoseconds, "greeting";
    /// Mean of building the client's TLS context.
    PhaseNsTlsContext = "phase_ns_tls_context", Nanoseconds, "TLS context";
    /// Mean of asking for TLS in the database's protocol.
    PhaseNsTlsRequest = "phase_ns_tls_request", Nanoseconds, "TLS request";
    /// Mean of the TLS handshake.
    PhaseNsTlsHandshake = "phase_ns_tls_handshake", Nanoseconds, "TLS handshake";
    /// Mean of authentication.
    PhaseNsAuth = "phase_ns_auth", Nanoseconds, "authentication";
    /// Mean of authenticated to ready for commands.
    PhaseNsReady = "phase_ns_ready", Nanoseconds, "ready";
    /// Mean of the first query of a fresh connection.
    PhaseNsFirstQuery = "phase_ns_first_query", Nanoseconds, "first query";
    /// Mean of the orderly close.
    PhaseNsClose = "phase_ns_close", Nanoseconds, "close";
}

impl Metric {
    /// Which way is worse.
    pub fn direction(self) -> Direction {
        match self {
            Self::RatePerS | Self::StatementsPerS => Direction::HigherIsBetter,
            _ => Direction::LowerIsBetter,
        }
    }

    /// Whether it is a count of things, of which none is as good a number as any.
    pub fn may_be_zero(self) -> bool {
        matches!(self, Self::WalBytesPerOperation | Self::CheckpointAgeBytes) || self.unit() == Unit::Count
    }

    /// Whether it is a part of an operation's mean time.
    pub fn is_phase(self) -> bool {
        Phase::ALL.into_iter().any(|phase| Self::of_phase(phase) == self)
    }

    /// The metric that reports `phase`.
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
