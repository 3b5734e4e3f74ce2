//! Factors and levels, the specification of a run ([`Spec`]), its plan ([`Plan`]), what happened ([`Event`]), the
//! protocol of trials, metrics and exit codes ([`ExitCode`]). Pure data without I/O.
//!
//! # Where to change what
//!
//! - a modifier of a TLS path (`+…`): `model::factor::tls_path`, `model::trial` (`TlsSpec`), then as above; what the
//!   server needs, `lab::tls::credentials`
//! - a level of another factor: `model::factor`, then follow the compiler, usually to `lab` and
//!   `experiment::layers`
//! - round trips of a connect: `model::round_trips`, tested on real servers by `lab` and `cli`; shown by
//!   `report::view::round_trips`
//! - the length of trials over long links: `model::plan::longer`
//! - an exit code: `model::exit` and `docs/exit-codes.md`; a test compares them

mod absence;
pub mod cache;
pub mod cell;
pub mod duration;
pub mod environment;
pub mod event;
pub mod exit;
pub mod factor;
pub mod hosts;
mod labelled;
pub mod metric;
pub mod noise;
mod pinning;
pub mod plan;
pub mod presets;
pub mod primitive;
mod profile;
mod quick;
pub mod round_trips;
pub mod script;
pub mod settings;
pub mod spec;
pub mod storage;
pub mod trial;
pub mod ycsb;

pub use absence::Absence;
pub use cell::{Arm, Cell, CellId, Skipped, Treatment};
pub use ciphertoll_vocabulary::{
    AddressFamily, Conninfo, Engine, Group, Identity, Legacy, Phase, QueryLanguage, ReadPreference,
    SecurityLevel, ServerKey, SqlUrl, Suite, TargetSession, TlsLibrary, TlsParameters, TlsVersion,
    Verification, parse_with_unit,
};
pub use environment::{ConnectedHost, CryptoInstruction, Environment, HostRole};
pub use event::{
    Ending, Event, Flag, HostUse, HostsUse, LinkKind, LookDecision, Observation, TimestampedEvent, VoidReason,
};
pub use exit::ExitCode;
pub use factor::{
    AtRest, Auth, Bytes, ChainLength, ChannelBinding, ClientCertificate, Clients, Compressor, ConnectionUse,
    Ctx, Dataset, DebianRelease, DocumentsLogin, DocumentsUrl, Driver, DriverName, Factor, FindAny,
    Iterations, LevelError, Link, LinkShape, LoginMechanism, NO_AES_128, OpenVpnCipher, Pace, Path, Percent,
    PoolMode, Proxy, ProxyConfiguration, ProxyDefinition, ProxyFront, ProxyListen, ProxyProgram,
    ProxyProtocol, ProxySite, ProxySource, Queries, RelativeScale, Resumption, Scale, ScaleBase, ScaleLevel,
    ServerLevel, ServerUrl, SetConnection, SocketAuth, SshCipher, SshSession, SshTunnel, Tde, TdeCipher,
    TdeTarget, TlsDemand, TlsPath, TlsStart, Tunnel, UrlError, UrlFileContent, UrlFileOption, UrlHost,
    UrlPlace, UrlTls, Workload, YcsbMix,
};
pub use hosts::{ExecPrefix, HostName, HostsError, KubernetesHosts, KubernetesName, LoadHosts, ServerHost};
pub use metric::{Metric, MetricDirection, Unit};
pub use noise::{LatenessLimit, LimitError, NoiseLimits, StealLimit};
pub use pinning::CpuPinning;
pub use plan::{
    Baseline, BaselineError, Block, Limitations, LongerTrials, Margins, Plan, Refusal, Refused, SAFE_CLIENTS,
    SAFE_CONNECTS_PER_S, SAFE_OPERATIONS_PER_S, Stratum, Timing, Unlike, Verdicts, Visit,
};
pub use primitive::{KeyExchangeTime, SignatureTime};
pub use profile::{CpuPart, Profile, ProfiledRole, Profiling};
pub use round_trips::RoundTrips;
pub use script::{Branch, Draw, Script, ScriptStatement, ScriptStep, StatementProtocol};
pub use settings::{Setting, SettingError, Settings};
pub use spec::{Grid, Prepare, Size, Spec, SpecError};
pub use storage::{Storage, StorageError};
pub use trial::{
    Endpoint, ErrorCount, ErrorKind, FailureOrigin, FurtherHistograms, HandshakeSize, KeyShare,
    LatencySummary, Leg, LegCount, LoadMessage, Namespace, StartCommand, TlsSpec, TrialOperation, TrialPace,
    TrialResult, TrialSpec, TrialStart,
};

/// Version of the files that ciphertoll writes: events, plans and JSON reports.
pub const SCHEMA_VERSION: u32 = 1;

/// For `skip_serializing_if`.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
