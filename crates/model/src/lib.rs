//! The vocabulary every room speaks: factors and levels with their one grammar, what was asked
//! ([`Spec`]), what will be done ([`Plan`]), what happened ([`Event`]), and what the process may
//! answer ([`ExitCode`]). Pure data; nothing here does I/O.

pub mod cell;
pub mod duration;
pub mod environment;
pub mod event;
pub mod exit;
pub mod factor;
pub mod metric;
pub mod plan;
pub mod spec;
pub mod trial;

pub use cell::{Arm, Cell, CellId, Skipped, Treatment};
pub use environment::{CryptoInstruction, Environment};
pub use event::{Ending, Event, Flag, LookDecision, Observation, Stamped, VoidReason};
pub use exit::ExitCode;
pub use factor::{
    AtRest, Auth, ChannelBinding, Clients, ConnectionUse, Ctx, Driver, Engine, Factor, Iterations,
    LevelError, Link, Path, Scale, ServerKey, ServerLevel, TlsPath, TlsVersion, Workload,
};
pub use metric::{Direction, Metric, Unit};
pub use plan::{Baseline, Block, Margins, Plan, Stratum, Timing, Verdicts, Visit};
pub use spec::{Grid, Size, Spec, SpecError};
pub use trial::{
    Endpoint, ErrorCount, Fault, LatencySummary, Leg, LegCount, LoadMessage, Phase, Statement, TlsSpec,
    TrialResult, TrialSpec,
};

/// Version of everything ciphertoll writes for later reading: events, plans and JSON reports.
pub const SCHEMA_VERSION: u32 = 1;
