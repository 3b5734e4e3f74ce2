//! The plan: every trial of every block in its random order, made before the run begins. Pure data; what the run
//! determines later (calibration, the decision to stop) are events.

mod also;
pub(crate) mod baseline;
mod comparisons;
mod longer;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use self::also::{also_of, only_at_rest_differs};
use crate::cell::{Arm, Cell, Skipped, Treatment};
use crate::duration::Span;
use crate::factor::{
    AtRest, Auth, ConnectionUse, Factor, Pace, Path, QueryLanguage, ServerLevel, TlsVersion,
};
use crate::hosts::{LoadHosts, ServerHost};
use crate::is_default;
use crate::noise::{LatenessLimit, NoiseLimits, StealLimit};
use crate::settings::Settings;
use crate::spec::{CpuPinning, Grid, Prepare, Size, Spec, SpecError};
use crate::storage::Storage;

pub use baseline::{Baseline, BaselineError};
pub use comparisons::Unlike;
use comparisons::grouped;
pub use longer::{LongerTrials, OPERATIONS_LEAST, OPERATIONS_WANTED};

/// The maximum number of blocks, and the last analysis.
pub const MAX_BLOCKS: u32 = 30;
/// With fewer blocks there are no verdicts.
pub const MIN_BLOCKS_FOR_VERDICTS: u32 = 6;
/// After how many blocks the data are analysed. Few times, as each one is a chance to stop on luck.
pub const LOOKS: [u32; 5] = [6, 10, 15, 20, 30];

/// The default rate limit of connects to a server at a URL.
pub const SAFE_CONNECTS_PER_S: u32 = 20;
/// The default maximum of clients of a server at a URL.
pub const SAFE_CLIENTS: u16 = 4;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The writer's [`crate::SCHEMA_VERSION`].
    pub schema_version: u32,
    pub name: String,
    pub seed: u64,
    /// What cells are compared with.
    pub baseline: Baseline,
    /// What cells are compared with in addition: with one authentication, driver or kind of encryption at rest, if
    /// several are measured in a comparison of paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub also: Option<Baseline>,
    /// Every cell, in the order of reports. Visits refer to them by index.
    pub cells: Vec<Cell>,
    /// The comparisons: cells that share a baseline cell.
    pub strata: Vec<Stratum>,
    /// What was requested and is not measured.
    pub skipped: Vec<Skipped>,
    /// Workloads that drivers do differently, so that these drivers are not compared by them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unlike: Vec<Unlike>,
    /// The trials by block; block 0 is calibration.
    pub blocks: Vec<Block>,
    /// After how many blocks the data are analysed.
    pub looks: Vec<u32>,
    /// Warm-up and window; see [`Plan::timing_of`].
    pub timing: Timing,
    /// Longer timing of operations over a long link.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub longer: Vec<LongerTrials>,
    /// No block begins after this time.
    pub budget: Option<Span>,
    pub verdicts: Verdicts,
    /// Half-widths of "the same".
    pub margins: Margins,
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_steal: StealLimit,
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_lateness: LatenessLimit,
    #[serde(default)]
    pub pin: CpuPinning,
    #[serde(default, skip_serializing_if = "is_default")]
    pub storage: Storage,
    /// Additional settings of private servers, by engine.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    pub settings: Settings,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// The statement of [`Workload::Query`](crate::Workload::Query).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// Rate limit of operations on a server at a URL; see [`Plan::rate_limit_per_s`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rate: Option<u32>,
    /// Hosts that the clients are divided over; this machine if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub load_hosts: Vec<LoadHosts>,
    /// The host of the servers at URLs, where their CPU time is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_host: Option<ServerHost>,
}

/// A limitation of a server, found before the plan was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub server: String,
    pub what: Refused,
    pub reason: String,
}

type CellConstraint<'a> = dyn Fn(&Cell) -> Option<String> + 'a;

/// What is known of servers and drivers before the plan is made.
#[derive(Clone, Copy, Default)]
pub struct Limitations<'a> {
    pub refusals: &'a [Refusal],
    /// Workloads that drivers do differently.
    pub unlike: &'a [Unlike],
    /// Why a cell's driver does not support it.
    pub obstacle: Option<&'a CellConstraint<'a>>,
}

/// What a server does not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Anything: it is not installed, and the user did not name it.
    Everything,
    /// A server at a URL: this TLS version, or connections without TLS (`None`).
    Transport(Option<TlsVersion>),
}

/// A comparison: cells that are equal in every factor except the baseline's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stratum {
    /// Index of the baseline cell.
    pub baseline: usize,
    /// Indices of the cells compared with it.
    pub treatments: Vec<usize>,
    /// The compared factor, if it is not the baseline's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<Factor>,
}

impl Stratum {
    /// Whether `cell` is the baseline or one of the treatments.
    pub fn has(&self, cell: usize) -> bool {
        self.baseline == cell || self.treatments.contains(&cell)
    }
}

/// One visit to every cell, in random order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// 0 is calibration.
    pub number: u32,
    pub visits: Vec<Visit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visit {
    /// Index into [`Plan::cells`].
    pub cell: usize,
    pub arm: Arm,
}

/// Duration of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    pub warm_up: Span,
    /// Measured.
    pub window: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdicts {
    /// Six blocks or more are planned.
    Rendered,
    /// There are too few blocks.
    Withheld,
}

/// Half-widths δ within which two cells count as the same, as a share: 0.03 is 3 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Margins {
    /// For rates and CPU per operation.
    pub rate_and_cpu: f64,
    /// For times.
    pub latency: f64,
}

impl Plan {
    /// Makes the plan of a specification. The same specification and seed give the same plan.
    pub fn new(spec: &Spec, seed: u64) -> Result<Self, SpecError> {
        Self::knowing(spec, seed, &Limitations::default())
    }

    /// Like [`Plan::new`], with known limitations of servers and drivers.
    pub fn knowing(spec: &Spec, seed: u64, limitations: &Limitations<'_>) -> Result<Self, SpecError> {
        let unlike = limitations.unlike;
        spec.validate()?;
        let (cells, skipped) = cells_of(spec, limitations);
        if let (true, Some(Skipped { id, reason, .. })) = (cells.is_empty(), skipped.first()) {
            return Err(SpecError::NothingPossible { id: id.clone(), reason: reason.clone() });
        }
        let baseline = baseline_of(spec, &cells)?;
        let also = also_of(&baseline, &cells);
        let strata = strata_of(&cells, &baseline, also.as_ref(), unlike);
        let unlike = unlike.iter().filter(|unlike| unlike.concerns(&cells)).cloned().collect();
        let count = spec.blocks.unwrap_or_else(|| spec.size.blocks());
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let calibration = (0..cells.len()).map(|cell| Visit { cell, arm: Arm::Main });
        let mut blocks = vec![Block { number: 0, visits: calibration.collect() }];
        blocks.extend((1..=count).map(|number| shuffled_block(number, &strata, &mut random)));
        let timing = Timing::of(spec);
        Ok(Self {
            schema_version: crate::SCHEMA_VERSION,
            name: spec.name.clone(),
            seed,
            baseline,
            also,
            longer: LongerTrials::of(spec, &cells, timing),
            cells,
            strata,
            skipped,
            unlike,
            blocks,
            looks: LOOKS.into_iter().filter(|look| *look < count).chain([count]).collect(),
            timing,
            budget: spec.budget,
            verdicts: if count < MIN_BLOCKS_FOR_VERDICTS { Verdicts::Withheld } else { Verdicts::Rendered },
            margins: Margins {
                rate_and_cpu: 0.03,
                latency: if spec.size == Size::Quick { 0.10 } else { 0.05 },
            },
            max_steal: spec.max_steal,
            max_lateness: spec.max_lateness,
            pin: spec.pin,
            storage: spec.storage,
            settings: spec.settings.clone(),
            config: spec.config.clone(),
            query: spec.query.clone(),
            max_rate: spec.max_rate,
            load_hosts: spec.load_hosts.clone(),
            server_host: spec.server_host.clone(),
        })
    }

    /// How much noise of the machine a valid trial may have.
    pub fn noise_limits(&self) -> NoiseLimits {
        NoiseLimits { steal: self.max_steal, lateness: self.max_lateness }
    }

    /// The number of blocks without calibration.
    pub fn counted_blocks(&self) -> u32 {
        self.blocks.len().saturating_sub(1) as u32
    }

    /// The rate limit for clients of `cell` in a closed loop. A server at a URL has one by default, so that it is not
    /// flooded with connects by accident.
    pub fn rate_limit_per_s(&self, cell: &Cell) -> Option<u32> {
        let connects = cell.workload.connection_use() == ConnectionUse::PerOperation;
        cell.treatment.server.url.as_ref()?;
        self.max_rate.or(connects.then_some(SAFE_CONNECTS_PER_S))
    }

    /// Baselines whose capacity must be measured first, as cells have a pace relative to it.
    pub fn paced_baselines(&self) -> Vec<usize> {
        let mut baselines: Vec<usize> = self.strata.iter().map(|stratum| stratum.baseline).collect();
        baselines.retain(|&cell| matches!(self.cells[cell].pace, Pace::OfBaselineCapacity(_)));
        baselines.sort_unstable();
        baselines.dedup();
        baselines
    }

    /// The cell that `cell` is compared with; itself for a baseline or a cell without comparison.
    pub fn baseline_of(&self, cell: usize) -> usize {
        self.strata.iter().find(|stratum| stratum.has(cell)).map_or(cell, |stratum| stratum.baseline)
    }

    /// The servers in order of appearance, without duplicates.
    pub fn servers(&self) -> Vec<&ServerLevel> {
        let mut servers = Vec::new();
        for cell in &self.cells {
            if !servers.contains(&&cell.treatment.server) {
                servers.push(&cell.treatment.server);
            }
        }
        servers
    }
}

fn cells_of(spec: &Spec, limitations: &Limitations<'_>) -> (Vec<Cell>, Vec<Skipped>) {
    let mut cells: Vec<Cell> = Vec::new();
    let mut skipped: Vec<Skipped> = Vec::new();
    for grid in &spec.grids {
        for cell in combinations(grid) {
            let redundancy = || cell.redundancy(grid.ctx[0]).map(ToOwned::to_owned);
            let reason = cell
                .impossibility()
                .or_else(|| unprepared(&cell, spec.prepare))
                .or_else(|| refused(&cell, limitations.refusals))
                .or_else(|| if spec.load_hosts.is_empty() { None } else { cell.impossible_on_hosts() })
                .or_else(redundancy)
                .or_else(|| limitations.obstacle?(&cell.clone().normalised()));
            let unmeasured = Skipped::cell(&cell, String::new());
            let scaled = reason.map_or_else(|| cell.scaled(&spec.settings, spec.memory_bytes), Err);
            match scaled.map(Cell::normalised) {
                Ok(cell) if !cells.contains(&cell) => cells.push(cell),
                Ok(_) => {}
                Err(reason) => {
                    let skip = Skipped { reason, ..unmeasured };
                    if !skipped.contains(&skip) {
                        skipped.push(skip);
                    }
                }
            }
        }
    }
    // A cell that one grid skips as redundant may be requested by another.
    skipped.retain(|skip| cells.iter().all(|cell| cell.to_string() != skip.id));
    (cells, skipped)
}

/// Tables are created at a URL only if requested.
fn unprepared(cell: &Cell, prepare: Prepare) -> Option<String> {
    let server = &cell.treatment.server;
    let dataset = cell.workload.dataset(server.engine);
    let needs = server.url.is_some() && dataset.is_some() && prepare == Prepare::No;
    needs.then(|| {
        let name = server.short_name();
        match server.engine.query_language() {
            QueryLanguage::Sql => format!(
                "it reads tables that {name} lacks: --prepare creates them in a database called ciphertoll"
            ),
            QueryLanguage::Documents => format!(
                "it reads documents that {name} lacks: --prepare loads them into a database called \
                 ciphertoll"
            ),
        }
    })
}

fn refused(cell: &Cell, refusals: &[Refusal]) -> Option<String> {
    let transport = Refused::Transport(cell.treatment.path.as_tls().map(|tls| tls.version));
    let name = cell.treatment.server.short_name();
    let concerns = |refusal: &&Refusal| {
        refusal.server == name && (refusal.what == transport || refusal.what == Refused::Everything)
    };
    refusals.iter().find(concerns).map(|refusal| refusal.reason.clone())
}

/// Every combination of the grid's levels. The load varies slowest, so that strata stay together.
fn combinations(grid: &Grid) -> impl Iterator<Item = Cell> {
    let mut cells = Vec::new();
    for server in &grid.server {
        for &workload in &grid.workload {
            for &clients in &grid.clients {
                for &level in &grid.scale {
                    for &pace in &grid.pace {
                        let treatments = treatments(grid, server).into_iter();
                        cells.extend(treatments.map(|treatment| Cell {
                            treatment,
                            workload,
                            clients,
                            scale: level.rows(),
                            relative: level.relative(),
                            pace,
                        }));
                    }
                }
            }
        }
    }
    cells.into_iter()
}

fn treatments(grid: &Grid, server: &ServerLevel) -> Vec<Treatment> {
    let mut treatments = Vec::new();
    let default_auth = [match server.url {
        Some(_) => Auth::AsAsked,
        None => Auth::default_of(server.engine),
    }];
    for &auth in grid.auth.as_deref().unwrap_or(&default_auth) {
        for driver in &grid.driver {
            for &link in &grid.link {
                for &at_rest in &grid.at_rest {
                    for &path in &grid.path {
                        treatments.extend(grid.ctx.iter().map(|&ctx| {
                            let (server, driver, ctx) = (server.clone(), driver.clone(), Some(ctx));
                            Treatment { server, path, auth, ctx, driver, link, at_rest }.normalised()
                        }));
                    }
                }
            }
        }
    }
    treatments
}

/// The specified baseline. By default: no encryption at rest if only that is compared; else plain, if measured; else
/// the first path.
fn baseline_of(spec: &Spec, cells: &[Cell]) -> Result<Baseline, SpecError> {
    let baseline = match &spec.baseline {
        Some(baseline) => baseline.clone(),
        None if only_at_rest_differs(cells) => Baseline::AtRest(AtRest::None),
        None if cells.iter().any(|cell| cell.treatment.path == Path::Plain) => Baseline::Path(Path::Plain),
        None => Baseline::Path(cells.first().ok_or(SpecError::NoGrid)?.treatment.path),
    };
    if cells.iter().any(|cell| baseline.is_level_of(cell)) {
        Ok(baseline)
    } else {
        Err(SpecError::BaselineNotMeasured(baseline))
    }
}

/// Groups cells by the cell they are compared with. A cell whose counterpart is not measured is a stratum of its own
/// without comparison, unless it is part of an additional comparison.
fn strata_of(
    cells: &[Cell],
    baseline: &Baseline,
    also: Option<&Baseline>,
    unlike: &[Unlike],
) -> Vec<Stratum> {
    let mut strata = grouped(cells, baseline, None, unlike);
    let Some(also) = also else { return strata };
    let mut others = grouped(cells, also, Some(also.factor()), unlike);
    others.retain(|stratum| !stratum.treatments.is_empty());
    let compared = |cell: usize| others.iter().any(|stratum| stratum.has(cell));
    strata.retain(|stratum| !stratum.treatments.is_empty() || !compared(stratum.baseline));
    strata.append(&mut others);
    strata
}

/// Strata in random order and, within each, its cells and the baseline's second copy in random order, so that
/// compared trials are close in time. Strata that share a cell are merged, so that no cell is measured twice.
fn shuffled_block(number: u32, strata: &[Stratum], random: &mut Pcg64Mcg) -> Block {
    let mut order = groups_of(strata);
    order.shuffle(random);
    let visits = order.into_iter().flat_map(|mut visits| {
        visits.shuffle(random);
        visits
    });
    Block { number, visits: visits.collect() }
}

/// The visits of strata, with strata that share cells merged.
fn groups_of(strata: &[Stratum]) -> Vec<Vec<Visit>> {
    let mut groups: Vec<Vec<Visit>> = Vec::new();
    for stratum in strata {
        let baseline = [Arm::Main, Arm::Repeat].map(|arm| Visit { cell: stratum.baseline, arm });
        let treatments = stratum.treatments.iter().map(|&cell| Visit { cell, arm: Arm::Main });
        let mut visits: Vec<Visit> = baseline.into_iter().chain(treatments).collect();
        let shares = |group: &Vec<Visit>| group.iter().any(|visit| stratum.has(visit.cell));
        for group in groups.extract_if(.., |group| shares(group)).collect::<Vec<_>>() {
            let missing: Vec<Visit> = visits.into_iter().filter(|visit| !group.contains(visit)).collect();
            visits = group;
            visits.extend(missing);
        }
        groups.push(visits);
    }
    groups
}
