//! What holds for every plan, whatever was asked.

use std::collections::BTreeSet;

use ciphertoll_model::plan::{LOOKS, MIN_BLOCKS_FOR_VERDICTS};
use ciphertoll_model::{
    Arm, AtRest, Auth, Cell, Driver, Factor, Grid, Link, Pace, Path, Plan, SCHEMA_VERSION, Spec, Stratum,
    Treatment, Verdicts,
};
use proptest::prelude::*;

use crate::levels;

fn ids<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> BTreeSet<String> {
    cells.into_iter().map(ToString::to_string).collect()
}

/// Everything that a grid asks for, as it was asked.
fn combinations(grid: &Grid) -> Vec<Cell> {
    let mut treatments = Vec::new();
    for server in &grid.server {
        for &path in &grid.path {
            treatments.extend(grid.ctx.iter().map(|&ctx| {
                let treatment = Treatment {
                    server: server.clone(),
                    path,
                    auth: Auth::Native,
                    ctx: Some(ctx),
                    driver: Driver::Native,
                    link: Link::Local,
                    at_rest: AtRest::None,
                };
                treatment.normalised()
            }));
        }
    }
    let mut cells = Vec::new();
    for treatment in treatments {
        for &workload in &grid.workload {
            for &clients in &grid.clients {
                let treatment = &treatment;
                for level in &grid.scale {
                    cells.extend(grid.pace.iter().map(|&pace| Cell {
                        treatment: treatment.clone(),
                        workload,
                        clients,
                        scale: level.to_string().parse().unwrap(),
                        relative: None,
                        pace,
                    }));
                }
            }
        }
    }
    cells
}

fn members(stratum: &Stratum) -> BTreeSet<usize> {
    stratum.treatments.iter().copied().chain([stratum.baseline]).collect()
}

proptest! {
    #[test]
    fn the_same_seed_gives_the_same_plan(spec in levels::spec(), seed: u64) {
        prop_assert_eq!(Plan::new(&spec, seed), Plan::new(&spec, seed));
    }

    /// The seed orders; it chooses nothing.
    #[test]
    fn another_seed_changes_nothing_but_the_order(spec in levels::spec(), seed: u64, other: u64) {
        let one = Plan::new(&spec, seed).unwrap();
        let two = Plan::new(&spec, other).unwrap();
        for (block, theirs) in one.blocks.iter().zip(&two.blocks) {
            let sorted = |visits: &[ciphertoll_model::Visit]| {
                let mut visits: Vec<_> = visits.iter().map(|visit| (visit.cell, visit.arm)).collect();
                visits.sort_unstable();
                visits
            };
            prop_assert_eq!(sorted(&block.visits), sorted(&theirs.visits));
        }
        prop_assert_eq!(Plan { seed, blocks: one.blocks.clone(), ..two }, one);
    }

    #[test]
    fn what_was_asked_is_measured_or_skipped(spec in levels::spec()) {
        let plan = Plan::new(&spec, 1).unwrap();
        let measured = ids(&plan.cells);
        let skipped: BTreeSet<_> = plan.skipped.iter().map(|skip| skip.id.clone()).collect();
        prop_assert_eq!(measured.len(), plan.cells.len(), "a cell twice");
        prop_assert_eq!(skipped.len(), plan.skipped.len(), "a skip twice");
        prop_assert!(measured.is_disjoint(&skipped));
        let asked: Vec<Cell> = spec.grids.iter().flat_map(combinations).collect();
        for cell in &asked {
            let found = measured.contains(&cell.clone().normalised().to_string()) || skipped.contains(&cell.to_string());
            prop_assert!(found, "{} is lost", cell);
        }
        let normal: Vec<Cell> = asked.iter().cloned().map(Cell::normalised).collect();
        prop_assert!(measured.is_subset(&ids(&normal)), "a cell that nobody asked for");
        prop_assert!(skipped.is_subset(&ids(&asked)), "a skip that nobody asked for");
    }

    /// Nothing is skipped whose like is not measured.
    #[test]
    fn what_is_skipped_has_a_stand_in(spec in levels::spec()) {
        let plan = Plan::new(&spec, 1).unwrap();
        for cell in spec.grids.iter().flat_map(combinations) {
            let stand_in = plan.cells.iter().any(|measured| {
                let mut like = cell.clone();
                like.treatment.ctx = measured.treatment.ctx;
                *measured == like.normalised()
            });
            prop_assert!(stand_in, "nothing stands in for {}", cell);
        }
    }

    #[test]
    fn strata_partition_the_cells(spec in levels::spec()) {
        let plan = Plan::new(&spec, 1).unwrap();
        let mut all: Vec<usize> = plan.strata.iter().flat_map(members).collect();
        all.sort_unstable();
        prop_assert_eq!(all, (0..plan.cells.len()).collect::<Vec<_>>());
    }

    /// By default the baseline is a path, and a path without TLS has no context to be equal in.
    #[test]
    fn a_cell_equals_its_baseline_in_all_but_the_path(spec in levels::spec()) {
        let plan = Plan::new(&spec, 1).unwrap();
        for stratum in &plan.strata {
            let baseline = &plan.cells[stratum.baseline];
            for &treatment in &stratum.treatments {
                let mut like = plan.cells[treatment].clone();
                prop_assert_ne!(like.treatment.path, baseline.treatment.path);
                like.treatment.path = baseline.treatment.path;
                if like.treatment.ctx.is_none() || baseline.treatment.ctx.is_none() {
                    like.treatment.ctx = baseline.treatment.ctx;
                }
                prop_assert_eq!(&like, baseline);
            }
        }
    }

    #[test]
    fn a_block_visits_every_cell_once_and_every_baseline_again(spec in levels::spec(), seed: u64) {
        let plan = Plan::new(&spec, seed).unwrap();
        let mut expected: Vec<_> = (0..plan.cells.len()).map(|cell| (cell, Arm::Main)).collect();
        let calibration: Vec<_> = plan.blocks[0].visits.iter().map(|visit| (visit.cell, visit.arm)).collect();
        prop_assert_eq!(&calibration, &expected);
        expected.extend(plan.strata.iter().map(|stratum| (stratum.baseline, Arm::Repeat)));
        expected.sort_unstable();
        for block in &plan.blocks[1..] {
            let mut visits: Vec<_> = block.visits.iter().map(|visit| (visit.cell, visit.arm)).collect();
            visits.sort_unstable();
            prop_assert_eq!(&visits, &expected);
        }
    }

    /// What is compared stays close in time.
    #[test]
    fn a_block_finishes_a_stratum_before_the_next(spec in levels::spec(), seed: u64) {
        let plan = Plan::new(&spec, seed).unwrap();
        let strata: Vec<_> = plan.strata.iter().map(members).collect();
        for block in &plan.blocks[1..] {
            let of = |cell: usize| strata.iter().position(|stratum| stratum.contains(&cell));
            let mut order: Vec<_> = block.visits.iter().map(|visit| of(visit.cell)).collect();
            order.dedup();
            prop_assert_eq!(order.len(), strata.len());
        }
    }

    #[test]
    fn blocks_and_looks_fit_together(spec in levels::spec()) {
        let plan = Plan::new(&spec, 1).unwrap();
        let count = spec.blocks.unwrap_or_else(|| spec.size.blocks());
        let numbers: Vec<_> = plan.blocks.iter().map(|block| block.number).collect();
        prop_assert_eq!(numbers, (0..=count).collect::<Vec<_>>());
        prop_assert_eq!(plan.counted_blocks(), count);
        prop_assert!(plan.looks.is_sorted_by(|one, next| one < next));
        prop_assert_eq!(plan.looks.last(), Some(&count));
        prop_assert!(plan.looks.iter().all(|look| LOOKS.contains(look) || *look == count));
        prop_assert!(LOOKS.iter().all(|look| plan.looks.contains(look) || *look > count));
        let verdicts = if count >= MIN_BLOCKS_FOR_VERDICTS { Verdicts::Rendered } else { Verdicts::Withheld };
        prop_assert_eq!(plan.verdicts, verdicts);
        prop_assert_eq!(plan.schema_version, SCHEMA_VERSION);
    }

    #[test]
    fn a_run_takes_at_least_its_windows(spec in levels::spec()) {
        let plan = Plan::new(&spec, 1).unwrap();
        let visits: usize = plan.blocks[1..].iter().map(|block| block.visits.len()).sum();
        prop_assert!(plan.expected_duration() >= plan.timing.window.duration() * visits as u32);
        prop_assert!(plan.timing.window == spec.trial_time.unwrap_or_else(|| spec.size.trial_time()));
    }

    #[test]
    fn json_round_trip(spec in levels::spec(), seed: u64) {
        let plan = Plan::new(&spec, seed).unwrap();
        let json = serde_json::to_string(&plan).unwrap();
        prop_assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
    }

    /// `compare` joins two runs by it.
    #[test]
    fn an_id_names_every_factor(spec in levels::spec()) {
        for cell in &Plan::new(&spec, 1).unwrap().cells {
            let Cell { treatment, workload, clients, scale, relative: _, pace } = cell;
            let mut expected = vec![
                treatment.server.short_name(),
                treatment.path.to_string(),
                treatment.auth.to_string(),
                treatment.ctx.map_or_else(|| "-".to_owned(), |ctx| ctx.to_string()),
                treatment.driver.to_string(),
                treatment.link.to_string(),
                treatment.at_rest.to_string(),
                workload.to_string(),
                clients.to_string(),
                scale.to_string(),
            ];
            // A closed loop goes without saying.
            expected.extend((*pace != Pace::Closed).then(|| pace.to_string()));
            prop_assert_eq!(cell.id().0, expected.join("/"));
        }
    }
}

/// Not by chance: with 24 visits the chance that two of ten blocks agree is nil.
#[test]
fn blocks_differ_in_their_order() {
    let grid = Grid { path: Path::all(), ..Grid::default() };
    let spec = Spec { blocks: Some(10), grids: vec![grid], ..Spec::quick(&[]) };
    let plan = Plan::new(&spec, 3).unwrap();
    for (index, block) in plan.blocks.iter().enumerate() {
        assert!(plan.blocks[..index].iter().all(|earlier| earlier.visits != block.visits));
    }
}

#[test]
fn ways_to_log_in_are_compared_beside_paths() {
    let grid = Grid { auth: Some(vec![Auth::Native, Auth::Trust]), ..Grid::default() };
    let only_plain = Grid { path: vec![Path::Plain], auth: Some(vec![Auth::Trust]), ..Grid::default() };
    for (grids, strata) in [(vec![grid], 4), (vec![Grid::default(), only_plain], 2)] {
        let plan = Plan::new(&Spec { grids, ..one(Vec::new()) }, 1).unwrap();
        assert_eq!(plan.also.as_ref().unwrap().to_string(), "auth=trust");
        assert_eq!(plan.strata.len(), strata);
        let compared = plan.strata.iter().filter(|stratum| stratum.factor == Some(Factor::Auth));
        for stratum in compared {
            assert_eq!(plan.cells[stratum.baseline].treatment.auth, Auth::Trust);
            assert_eq!(plan.cells[stratum.treatments[0]].treatment.auth, Auth::Native);
        }
        for block in &plan.blocks[1..] {
            let distinct: BTreeSet<_> = block.visits.iter().map(|visit| (visit.cell, visit.arm)).collect();
            assert_eq!(distinct.len(), block.visits.len(), "no cell is visited twice");
            let baselines = plan.strata.iter().map(|stratum| (stratum.baseline, Arm::Repeat));
            assert!(baselines.collect::<BTreeSet<_>>().is_subset(&distinct));
        }
    }
    assert_eq!(Plan::new(&one(vec![Grid::default()]), 1).unwrap().also, None);
}

fn one(grids: Vec<Grid>) -> Spec {
    Spec { grids, ..Spec::quick(&[]) }
}

/// Each with why it is skipped.
#[test]
fn what_no_proxy_can_do_is_skipped_with_the_reason() {
    for (levels, words) in [
        ("server = [\"mariadb\"]\npath = [\"plain\", \"pgbouncer\"]", "PostgreSQL's protocol only"),
        ("server = [\"postgres\"]\npath = [\"plain\", \"proxysql\"]", "MySQL's protocol only"),
        ("server = [\"postgres\"]\npath = [\"plain\", \"mysqlrouter\"]", "MySQL's protocol only"),
        (
            "server = [\"postgres\"]\npath = [\"plain\", \"proxy+tls=1.2-p256\"]",
            "negotiates the server's newest version",
        ),
        (
            "server = [\"postgres\"]\npath = [\"plain\", \"proxy+front=tcp\"]\nauth = [\"trust\"]",
            "auth=trust has none",
        ),
        (
            "server = [\"postgres\"]\npath = [\"tls1.3-p256\", \"proxy\"]\nauth = [\"cert\"]",
            "cannot present a client certificate",
        ),
        (
            "server = [\"postgres\"]\npath = [\"tls1.3-p256\", \"proxy\"]\nauth = [\"scram-4096+plus\"]",
            "needs a TLS channel",
        ),
        (
            "server = [\"postgres\"]\npath = [\"plain\", \"pgbouncer+front=tcp\"]\nlink = [\"5ms\"]",
            "only by its unix socket",
        ),
        (
            "server = [\"s=postgres://a@h/b\"]\npath = [\"plain\", \"proxy\"]",
            "a proxy needs a server that is started here",
        ),
    ] {
        let plan = Plan::new(&Spec::from_toml(&format!("[[grid]]\n{levels}\n")).unwrap(), 1).unwrap();
        let reasons: Vec<&str> = plan.skipped.iter().map(|skipped| skipped.reason.as_str()).collect();
        assert!(reasons.len() == 1 && reasons[0].contains(words), "{levels}: {reasons:?}");
        assert_eq!(plan.cells.len(), 1, "{levels}");
    }
}

/// In the clear on the client's side, it has no context to build, and is compared with plain in every context.
#[test]
fn a_proxy_is_measured_once_for_all_contexts() {
    let levels = "server = [\"postgres\"]\npath = [\"plain\", \"tls1.3-p256\", \"proxy\", \"pgbouncer\"]\n\
                  ctx = [\"per-connect\", \"shared\"]\nlink = [\"local\", \"5ms\"]";
    let plan = Plan::new(&Spec::from_toml(&format!("[[grid]]\n{levels}\n")).unwrap(), 1).unwrap();
    let proxied = plan.cells.iter().filter(|cell| cell.treatment.path.as_proxy().is_some());
    assert_eq!(proxied.clone().count(), 2 * 2);
    assert!(proxied.clone().all(|cell| cell.treatment.ctx.is_none()));
    assert_eq!(plan.strata.len(), 2, "one for each link");
    assert!(plan.strata.iter().all(|stratum| stratum.treatments.len() == 4));
}
