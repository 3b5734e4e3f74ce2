//! The specification of a run, parsed once from arguments, a preset or TOML. Nothing afterwards parses a string.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::duration::Span;
use crate::factor::{
    AtRest, Auth, Clients, Ctx, Driver, Engine, Factor, Link, Pace, Path, Scale, ScaleBase, ScaleLevel,
    ServerKey, ServerLevel, TlsVersion, Workload,
};
use crate::hosts::{HostsError, LoadHosts, ServerHost, check_twice};
use crate::is_default;
use crate::noise::{LatenessLimit, StealLimit};
use crate::pinning::CpuPinning;
use crate::plan::baseline::as_text;
use crate::plan::{Baseline, BaselineError, MAX_BLOCKS};
use crate::profile::Profiling;
use crate::settings::Settings;
use crate::storage::Storage;

/// The specification of a run. Prints as equivalent TOML.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Spec {
    #[serde(default = "unnamed")]
    pub name: String,
    /// How long to measure.
    #[serde(default)]
    pub size: Size,
    /// Maximum number of blocks; the size's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u32>,
    /// Length of each trial's window; the size's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial_time: Option<Span>,
    /// No block begins after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Span>,
    /// Seed of all random orders; random if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// What everything is compared with, as `FACTOR=LEVEL`; plain or the first path if absent.
    #[serde(default, with = "as_text", skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Baseline>,
    /// The share of its CPU time that a trial may lose to the hypervisor; 3 % if absent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_steal: StealLimit,
    /// The mean lateness of a link's packets, as a share of its round trip; 1 % if absent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_lateness: LatenessLimit,
    /// Whether clients and servers use separate processors.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pin: CpuPinning,
    /// Whether each configuration is profiled after the last block.
    #[serde(default, skip_serializing_if = "is_default")]
    pub profile: Profiling,
    /// Storage of private servers' files.
    #[serde(default, skip_serializing_if = "is_default")]
    pub storage: Storage,
    /// The directory of scratch files; `/var/tmp` if absent. An absolute path once the specification is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch_dir: Option<PathBuf>,
    /// Additional settings of private servers, by engine.
    #[serde(default, rename = "set", skip_serializing_if = "Settings::is_empty")]
    pub settings: Settings,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// The statement of the workload `query`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The memory that relative scales refer to; determined if absent and needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Whether tables are created on servers at URLs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub prepare: Prepare,
    /// Rate limit of operations on servers at URLs; 20 connects per second if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rate: Option<u32>,
    /// Hosts that the clients are divided over; this machine if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub load_hosts: Vec<LoadHosts>,
    /// The host of the servers at URLs, where their CPU time is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_host: Option<ServerHost>,
    /// Each grid requests every combination of its levels.
    #[serde(rename = "grid")]
    pub grids: Vec<Grid>,
}

/// Every combination of the listed levels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Grid {
    pub server: Vec<ServerLevel>,
    pub path: Vec<Path>,
    /// Each engine's default if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Vec<Auth>>,
    pub ctx: Vec<Ctx>,
    pub driver: Vec<Driver>,
    pub link: Vec<Link>,
    pub at_rest: Vec<AtRest>,
    pub workload: Vec<Workload>,
    pub clients: Vec<Clients>,
    pub scale: Vec<ScaleLevel>,
    /// Closed loop, or rates of an open loop.
    pub pace: Vec<Pace>,
}

/// Whether tables are created on servers at URLs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prepare {
    /// Nothing is written there.
    #[default]
    No,
    /// In a database called `ciphertoll`.
    Yes,
}

/// How long to measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// 6 blocks of 0.75 s: minutes, wide margins, no p99.
    Quick,
    /// 2 blocks, no verdicts: checks that everything runs.
    Smoke,
    /// 6 blocks of 2 s.
    Small,
    /// 10 blocks of 2 s.
    #[default]
    Standard,
    /// 10 blocks of 10 s.
    Full,
}

impl Size {
    /// Default maximum of blocks.
    pub fn blocks(self) -> u32 {
        match self {
            Self::Smoke => 2,
            Self::Quick | Self::Small => 6,
            Self::Standard | Self::Full => 10,
        }
    }

    /// Default length of a trial's window.
    pub fn trial_time(self) -> Span {
        Span::from_millis(match self {
            Self::Quick => 750,
            Self::Smoke => 250,
            Self::Small | Self::Standard => 2_000,
            Self::Full => 10_000,
        })
    }
}

impl Default for Grid {
    fn default() -> Self {
        Self {
            server: vec![ServerLevel::of(Engine::MariaDb)],
            path: vec![Path::Plain, Path::tls(TlsVersion::Tls13, ServerKey::P256)],
            auth: None,
            ctx: vec![Ctx::PerConnect],
            driver: vec![Driver::Native],
            link: vec![Link::Local],
            at_rest: vec![AtRest::None],
            workload: vec![Workload::Connect],
            clients: vec![Clients::ONE],
            scale: vec![Scale::DEFAULT.into()],
            pace: vec![Pace::Closed],
        }
    }
}

impl Grid {
    /// The first factor without a level, if any.
    fn empty_factor(&self) -> Option<Factor> {
        let lengths = [
            (Factor::Server, self.server.len()),
            (Factor::Path, self.path.len()),
            (Factor::Auth, self.auth.as_ref().map_or(1, Vec::len)),
            (Factor::Ctx, self.ctx.len()),
            (Factor::Driver, self.driver.len()),
            (Factor::Link, self.link.len()),
            (Factor::AtRest, self.at_rest.len()),
            (Factor::Workload, self.workload.len()),
            (Factor::Clients, self.clients.len()),
            (Factor::Scale, self.scale.len()),
            (Factor::Pace, self.pace.len()),
        ];
        lengths.into_iter().find(|(_, length)| *length == 0).map(|(factor, _)| factor)
    }
}

/// A specification that cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error("{0}")]
    Toml(String),
    #[error("no level given for {}", .0.label())]
    NoLevel(Factor),
    #[error("nothing to measure: no [[grid]]")]
    NoGrid,
    #[error("nothing to measure: {id}: {reason}")]
    NothingPossible { id: String, reason: String },
    #[error(transparent)]
    Baseline(#[from] BaselineError),
    #[error("baseline {0} is not among the levels to be measured")]
    BaselineNotMeasured(Baseline),
    #[error(
        "servers \"{first}\" and \"{second}\" would both be called \"{name}\"; give them labels, such as {example}"
    )]
    SameName {
        /// Their name in a cell's id.
        name: String,
        first: String,
        second: String,
        /// The second server with a label.
        example: String,
    },
    #[error("{setting} applies to no server: no {engine} is measured")]
    SettingOfNobody { setting: String, engine: Engine },
    #[error("the workload query needs a statement: add --query")]
    NoQuery,
    #[error("--query gives a statement, but no workload runs it: add query to the workloads")]
    UnusedQuery,
    #[error("max-rate must be 1 or more")]
    NoRate,
    #[error("load-hosts: {0}")]
    Hosts(HostsError),
    #[error(
        "load host {hosts} cannot reach server {server}: private servers listen on this machine's loopback only; measure a \
         server at a URL (--url), or use exec: for a host that shares the loopback"
    )]
    PrivateServer { hosts: String, server: String },
    #[error(
        "pin = \"auto\" keeps clients and servers of one machine apart, and load-hosts has its clients elsewhere"
    )]
    PinnedElsewhere,
    #[error("server-host reads the CPU of a server at a URL, and none is measured: add --url")]
    ServerHostOfNobody,
    #[error("blocks must be 1 to {max}, not {asked}")]
    Blocks { asked: u32, max: u32 },
}

impl Spec {
    /// Parses what [`Spec::to_toml`] prints, or what a user wrote.
    pub fn from_toml(text: &str) -> Result<Self, SpecError> {
        let spec: Self = toml::from_str(text).map_err(|error| SpecError::Toml(one_line(&error, text)))?;
        spec.validate()?;
        Ok(spec)
    }

    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }

    /// Whether a scale is relative to the memory.
    pub fn asks_for_memory(&self) -> bool {
        let is_of_memory =
            |level: &ScaleLevel| level.relative().is_some_and(|it| it.whole() == ScaleBase::Memory);
        self.grids.iter().flat_map(|grid| &grid.scale).any(is_of_memory)
    }

    /// Checks what the types do not guarantee.
    pub fn validate(&self) -> Result<(), SpecError> {
        if self.grids.is_empty() {
            return Err(SpecError::NoGrid);
        }
        if let Some(factor) = self.grids.iter().find_map(Grid::empty_factor) {
            return Err(SpecError::NoLevel(factor));
        }
        check_names(self.grids.iter().flat_map(|grid| &grid.server))?;
        self.check_settings()?;
        self.check_query()?;
        self.check_hosts()?;
        let blocks = self.blocks.unwrap_or_else(|| self.size.blocks());
        if !(1..=MAX_BLOCKS).contains(&blocks) {
            return Err(SpecError::Blocks { asked: blocks, max: MAX_BLOCKS });
        }
        Ok(())
    }

    /// The statement and the workload `query` require each other.
    fn check_query(&self) -> Result<(), SpecError> {
        if self.max_rate == Some(0) {
            return Err(SpecError::NoRate);
        }
        let measured = self.grids.iter().any(|grid| grid.workload.contains(&Workload::Query));
        match (&self.query, measured) {
            (None, true) => Err(SpecError::NoQuery),
            (Some(_), false) => Err(SpecError::UnusedQuery),
            _ => Ok(()),
        }
    }

    /// Private servers are out of reach of other machines, and a host that is listed twice would be counted twice.
    fn check_hosts(&self) -> Result<(), SpecError> {
        check_twice(&self.load_hosts).map_err(SpecError::Hosts)?;
        let servers = || self.grids.iter().flat_map(|grid| &grid.server);
        let far = self.load_hosts.iter().find(|hosts| !hosts.may_share_loopback());
        let private = servers().find(|server| server.url.is_none());
        if let Some((hosts, server)) = far.zip(private) {
            let (hosts, server) = (hosts.to_string(), server.short_name());
            return Err(SpecError::PrivateServer { hosts, server });
        }
        if !self.load_hosts.is_empty() && self.pin == CpuPinning::Auto {
            return Err(SpecError::PinnedElsewhere);
        }
        if self.server_host.is_some() && servers().all(|server| server.url.is_none()) {
            return Err(SpecError::ServerHostOfNobody);
        }
        Ok(())
    }

    /// A setting of an engine that is not measured is an error.
    fn check_settings(&self) -> Result<(), SpecError> {
        let is_private = |server: &ServerLevel, engine| server.engine == engine && server.url.is_none();
        let measured =
            |engine| self.grids.iter().flat_map(|grid| &grid.server).any(|server| is_private(server, engine));
        match self.settings.iter().find(|setting| !measured(setting.engine())) {
            Some(setting) => {
                Err(SpecError::SettingOfNobody { setting: setting.to_string(), engine: setting.engine() })
            }
            None => Ok(()),
        }
    }
}

/// Two servers of the same name would share cell ids, so that `compare` could not distinguish them.
fn check_names<'a>(servers: impl Iterator<Item = &'a ServerLevel>) -> Result<(), SpecError> {
    let mut named: BTreeMap<String, &ServerLevel> = BTreeMap::new();
    for server in servers {
        let name = server.short_name();
        let first = *named.entry(name.clone()).or_insert(server);
        if first != server {
            let label = if name == "a" { "b" } else { "a" };
            let example = ServerLevel { label: Some(label.to_owned()), ..server.clone() }.to_string();
            let (first, second) = (first.to_string(), server.to_string());
            return Err(SpecError::SameName { name, first, second, example });
        }
    }
    Ok(())
}

fn one_line(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().replace('\n', " ");
    match error.span() {
        Some(span) => {
            let lines_before = text[..span.start.min(text.len())].matches('\n').count();
            format!("line {}: {message}", lines_before + 1)
        }
        None => message,
    }
}

fn unnamed() -> String {
    "run".to_owned()
}
