use std::time::Duration;

use crate::Plan;

use super::*;

fn ratio_of(workload: Workload, data: f64, clients: u16, build: &str) -> f64 {
    let is_it = |published: &&Published| {
        let apart = published.data_to_cache.map(|then| (then - data).abs());
        (published.workload, published.clients.count(), published.of) == (workload, clients, Some(build))
            && apart.is_some_and(|apart| apart < 0.01 * data)
    };
    PRESET.published().iter().find(is_it).expect("a figure").ratio
}

#[test]
fn every_figure_is_on_to_off_of_one_build() {
    let all = PRESET.published();
    // 2 workloads, 3 scales, 5 of the 10 numbers of clients, 2 builds.
    assert_eq!(all.len(), 2 * 3 * 5 * 2);
    assert!(all.iter().all(|published| published.of.is_some() && published.ratio_sd.is_none()));
    let expected = [
        // 795300.37 ÷ 806152.21, 2548.15 ÷ 4493.65, 2547.17 ÷ 2565.76, 190149.0 ÷ 183379.49, by hand. 50 branches are
        // 784 MB of 17,180 MB.
        (Workload::SelectOnly, 0.045_6, 2, BUILDS[0], 0.986_539),
        (Workload::TpcbLike, 0.045_6, 2, BUILDS[0], 0.567_056),
        (Workload::TpcbLike, 0.045_6, 2, BUILDS[1], 0.992_755),
        (Workload::SelectOnly, 4.563, 6, BUILDS[1], 1.036_915),
    ];
    for (workload, data, clients, build, ratio) in expected {
        let found = ratio_of(workload, data, clients, build);
        assert!((found - ratio).abs() < 1e-5, "{workload} {clients} {build}: {found}");
    }
}

#[test]
fn clients_are_as_many_a_core() {
    let here = ["12", "16", "20", "24", "32", "40", "48"].map(clients);
    let counts = here.map(|clients| clients.map(Clients::count));
    assert_eq!(counts, [None, Some(2), None, Some(3), Some(4), Some(5), Some(6)]);
}

#[test]
fn the_data_have_the_same_share_of_the_buffers() {
    let rows = |size| {
        let plan = Plan::new(&spec(&PRESET.servers(), size), 1).unwrap();
        let mut branches: Vec<u32> = plan.cells.iter().map(|cell| cell.scale.branches()).collect();
        branches.sort_unstable();
        branches.dedup();
        branches
    };
    let branches: [Vec<u32>; 3] = [Size::Smoke, Size::Small, Size::Full].map(rows);
    assert_eq!(branches, [vec![1], vec![1, 8, 78], vec![3, 31, 313]]);
}

#[test]
fn every_setting_is_one_and_says_its_size() {
    let spec = spec(&PRESET.servers(), Size::Small);
    let set = spec.settings.of(Engine::Postgres);
    assert_eq!(set.len(), settings(256).len());
    let of = |name: &str| set.get(name).map(String::as_str);
    let memory = ["shared_buffers", "work_mem", "maintenance_work_mem", "effective_cache_size"].map(of);
    // 64 MB, 620 MB and 45 GB for 16 GB.
    assert_eq!(memory, [Some("256MB"), Some("1024kB"), Some("9920kB"), Some("720MB")]);
    let observed = ["track_io_timing", "track_functions", "bgwriter_flush_after"].map(of);
    assert_eq!(observed, [Some("on"), Some("pl"), Some("0")]);
}

#[test]
fn each_size_of_run_has_both_ends_and_its_time() {
    let figures = |size| {
        let plan = Plan::new(&spec(&PRESET.servers(), size), 1).unwrap();
        let shown = PRESET
            .published()
            .into_iter()
            .filter(|published| plan.cells.iter().any(|cell| published.has_equal(cell, &plan.settings)));
        (shown.count(), plan.expected_duration())
    };
    let (smoke, small, full) = (figures(Size::Smoke), figures(Size::Small), figures(Size::Full));
    assert_eq!((smoke.0, small.0, full.0), (4, 24, 60));
    assert!(smoke.1 < Duration::from_mins(2) && small.1 < Duration::from_mins(20), "{small:?}");
}

#[test]
fn another_engine_is_asked_for_nothing_of_postgres() {
    let spec = spec(&["mariadb".parse().unwrap()], Size::Smoke);
    assert!(spec.settings.is_empty() && spec.config.is_none());
}
