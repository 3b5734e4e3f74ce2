use super::*;

fn plan(rest: &str) -> Plan {
    let grid = "[[grid]]\nserver = [\"postgres\"]\npath = [\"plain\", \"tls1.3-p256\"]\n\
                workload = [\"connect-query\"]\nclients = [4]\n";
    Plan::new(
        &Spec::from_toml(&format!("{rest}\n{grid}link = [\"local\", \"45ms\", \"170ms\"]\n")).unwrap(),
        1,
    )
    .unwrap()
}

fn millis(timing: Timing) -> [u64; 2] {
    [timing.warm_up, timing.window].map(|span| span.duration().as_millis() as u64)
}

fn of_links(plan: &Plan, block: u32) -> Vec<(String, [u64; 2])> {
    let mut timings: Vec<_> = plan
        .cells
        .iter()
        .map(|cell| (cell.treatment.link.to_string(), millis(plan.timing_of(block, cell))))
        .collect();
    timings.dedup();
    timings
}

fn named(expected: [(&str, [u64; 2]); 3]) -> Vec<(String, [u64; 2])> {
    expected.map(|(link, timing)| (link.to_owned(), timing)).to_vec()
}

/// TLS 1.3 to PostgreSQL with SCRAM and a query takes 8 round trips, here of 45 ms and 170 ms.
#[test]
fn a_window_has_room_for_ten_operations_of_each_client() {
    let plan = plan("");
    let expected = [("local", [400, 2_000]), ("45ms", [720, 3_600]), ("170ms", [2_720, 13_600])];
    assert_eq!(of_links(&plan, 1), named(expected));
}

#[test]
fn a_given_window_has_room_for_three() {
    let plan = plan("trial-time = \"2s\"");
    let expected = [("local", [400, 2_000]), ("45ms", [400, 2_000]), ("170ms", [1_360, 4_080])];
    assert_eq!(of_links(&plan, 1), named(expected));
    assert_eq!(plan.longer.iter().map(|longer| longer.operations).collect::<Vec<_>>(), [3, 3]);
}

#[test]
fn calibration_has_room_for_three_operations() {
    for rest in ["", "trial-time = \"2s\""] {
        let expected = [("local", [400, 400]), ("45ms", [400, 1_080]), ("170ms", [1_360, 4_080])];
        assert_eq!(of_links(&plan(rest), 0), named(expected), "{rest}");
    }
}

#[test]
fn a_long_enough_window_stays() {
    let plan = plan("size = \"full\"\ntrial-time = \"30s\"");
    assert_eq!(plan.longer, []);
    let same = [6_000, 30_000];
    assert_eq!(of_links(&plan, 1), named([("local", same), ("45ms", same), ("170ms", same)]));
}

#[test]
fn the_expected_duration_includes_longer_trials() {
    let plan = plan("blocks = 2");
    // Both paths and the baseline's second copy over each of three links, and 120 ms for each trial.
    let counted = 2 * 3 * (2_400 + 4_320 + 16_320 + 3 * 120);
    let calibration = 2 * (800 + 1_480 + 5_440 + 3 * 120);
    assert_eq!(plan.expected_duration(), Duration::from_millis(counted + calibration));
}

#[test]
fn large_results_and_narrow_links_take_longer() {
    let text = "[[grid]]\npath = [\"plain\"]\nworkload = [\"bulk-read+bytes=1m\"]\n\
                link = [\"10ms\", \"10ms+rate=8mbit\"]\nclients = [1]\n";
    let plan = Plan::new(&Spec::from_toml(text).unwrap(), 1).unwrap();
    let operation = |cell: &Cell| expected_operation(cell).unwrap().as_millis();
    // The initial window of 14,600 bytes doubles with each round trip: seven of them.
    assert_eq!(operation(&plan.cells[0]), 70);
    assert_eq!(operation(&plan.cells[1]), 70 + 1_048);
}

#[test]
fn directly_joined_networks_are_not_a_long_link() {
    let text = "[[grid]]\npath = [\"plain\"]\nlink = [\"0ms\"]\nclients = [1]\n";
    assert_eq!(Plan::new(&Spec::from_toml(text).unwrap(), 1).unwrap().longer, []);
}
