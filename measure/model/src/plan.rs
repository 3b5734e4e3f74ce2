//! The plan: every trial of every block in its random order, made before the run begins. Pure data; what the run
//! determines later (calibration, the decision to stop) are events.

mod also;
pub(crate) mod baseline;
mod comparisons;
mod longer;
mod parts;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use self::also::{also_of, only_at_rest_differs};
use crate::cell::{Arm, Cell, Skipped, Treatment};
use crate::factor::{AtRest, Auth, Path, QueryLanguage, ServerLevel};
use crate::spec::{Grid, Prepare, Size, Spec, SpecError};

pub use baseline::{Baseline, BaselineError};
pub use longer::{OPERATIONS_LEAST, OPERATIONS_WANTED};
pub use parts::{
    Block, LOOKS, Limitations, LongerTrials, MAX_BLOCKS, MIN_BLOCKS_FOR_VERDICTS, Margins, Plan, Refusal,
    Refused, SAFE_CLIENTS, SAFE_CONNECTS_PER_S, SAFE_OPERATIONS_PER_S, Stratum, Timing, Unlike, Verdicts,
    Visit,
};

use self::comparisons::grouped;

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
        let at_url = cells.iter().any(|cell| cell.treatment.server.url.is_some());
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
            profile: spec.profile,
            storage: spec.storage,
            settings: spec.settings.clone(),
            config: spec.config.clone(),
            query: spec.query.clone(),
            max_rate: spec.max_rate,
            max_operations: at_url.then_some(SAFE_OPERATIONS_PER_S),
            load_hosts: spec.load_hosts.clone(),
            server_host: spec.server_host.clone(),
        })
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
    let transport = Refused::Transport(cell.treatment.path.as_tls().map(|tls| tls.parameters.version));
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
