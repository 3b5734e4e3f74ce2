//! What is said before anything is done.

use ciphertoll_model::{Engine, Factor, Metric, Plan, ServerLevel, Size, Spec, Storage};
use ciphertoll_report::{ComparisonReport, comparison, comparison_json, dry_run, plan_summary};
use ciphertoll_stats::{Change, ChangeVerdict, RunComparison};

use crate::fixture::{estimate, grid, id};

#[test]
fn a_plan_in_two_lines() {
    let mut spec = Spec::quick(&[ServerLevel::of(Engine::MariaDb)]);
    insta::assert_snapshot!("quick_summary", plan_summary(&Plan::new(&spec, 42).unwrap()));
    spec.size = Size::Smoke;
    insta::assert_snapshot!("smoke_summary", plan_summary(&Plan::new(&spec, 42).unwrap()));
}

#[test]
fn a_dry_run_shows_everything_that_would_be_done() {
    let spec = Spec::quick(&[ServerLevel::of(Engine::MariaDb)]);
    insta::assert_snapshot!(dry_run(&Plan::new(&spec, 42).unwrap()));
}

#[test]
fn a_dry_run_says_what_servers_are_started_with() {
    let plan = grid(
        "[set.mariadb]\ninnodb_flush_log_at_trx_commit = 2\nsql_mode = \"ANSI\"\n[[grid]]\nserver = [\"mariadb\"]\n",
    );
    let said = "settings       mariadb.innodb_flush_log_at_trx_commit=2, mariadb.sql_mode=ANSI\n";
    assert!(dry_run(&plan).contains(said), "{}", dry_run(&plan));
}

#[test]
fn a_dry_run_says_where_the_files_are() {
    let mut spec = Spec::quick(&[ServerLevel::of(Engine::MariaDb)]);
    let said = |spec: &Spec| dry_run(&Plan::new(spec, 1).unwrap());
    assert!(!said(&spec).contains("storage"), "{}", said(&spec));
    spec.storage = Storage::Tmpfs;
    assert!(said(&spec).contains("storage        tmpfs: in memory\n"), "{}", said(&spec));
}

#[test]
fn runs_under_different_conditions_are_said_to_be_so() {
    let spec = Spec::quick(&[ServerLevel::of(Engine::MariaDb)]);
    let mut other = spec.clone();
    other.storage = Storage::Tmpfs;
    other.settings.set("mariadb.sync_binlog=1".parse().unwrap());
    let [base, new] = [&spec, &other].map(|spec| Plan::new(spec, 1).unwrap());
    let nothing = RunComparison { changes: Vec::new(), only_in_base: Vec::new(), only_in_new: Vec::new() };
    let said = |plans: [&Plan; 2]| {
        comparison(&ComparisonReport { base: "one", new: "two", plans, comparison: &nothing }, 100)
    };
    assert!(!said([&base, &base]).contains("conditions"), "{}", said([&base, &base]));
    insta::assert_snapshot!("conditions", said([&base, &new]));
}

#[test]
fn a_dry_run_with_skipped_cells_and_two_servers() {
    let plan = grid(
        "name = \"contexts\"\nbudget = \"30m\"\n[[grid]]\nserver = [\"mariadb-10.11\", \"new:mariadb=/opt/mariadb\"]\n\
         path = [\"plain\", \"tls1.3-p256\"]\nctx = [\"per-connect\", \"shared\"]\n\
         workload = [\"connect\", \"point-select\"]\nclients = [\"1\", \"8\"]\n",
    );
    insta::assert_snapshot!(dry_run(&plan));
}

/// A connect to PostgreSQL by TLS 1.3 and SCRAM waits for up to 7 round trips.
#[test]
fn trials_over_long_links_are_long_enough_and_the_plan_says_so() {
    let of = |rest: &str| {
        grid(&format!(
            "{rest}[[grid]]\nserver = [\"postgres\"]\npath = [\"plain\", \"tls1.3-p256\"]\n\
             link = [\"45ms\", \"170ms\"]\nworkload = [\"connect\"]\nclients = [4]\n"
        ))
    };
    insta::assert_snapshot!("longer_trials", plan_summary(&of("")));
    insta::assert_snapshot!("longer_trials_than_asked_for", plan_summary(&of("trial-time = \"2s\"\n")));
    let said = dry_run(&of("trial-time = \"2s\"\n"));
    assert!(
        said.contains("400ms of warm-up, window of 2s; connect over 170ms: 3570ms after 1190ms\n"),
        "{said}"
    );
}

#[test]
fn the_summary_says_what_happens_to_external_servers() {
    let mut spec = Spec::quick_at(&["staging=postgres://app@db.example/shop".parse().unwrap()]);
    let said = |spec: &Spec| plan_summary(&Plan::new(spec, 1).unwrap()).lines().last().unwrap().to_owned();
    assert_eq!(
        said(&spec),
        "Connects to staging with up to 4 clients at a time, at most 20 connects/s, 1000 queries/s and 16.4 MB/s of \
         results. Its CPU time is not measured: add --server-host ssh:db.example."
    );
    spec.max_rate = Some(100);
    spec.prepare = ciphertoll_model::Prepare::Yes;
    spec.grids[1].workload = vec!["point-select".parse().unwrap()];
    spec.grids[0].server.push("mariadb".parse().unwrap());
    assert_eq!(
        said(&spec),
        "Connects to staging with up to 4 clients at a time, at most 100 connects/s and 100 queries/s; tables are created in its \
         database ciphertoll. Its CPU time is not measured: add --server-host ssh:db.example. Private servers are started as well."
    );
}

/// A cell can be compared with two baselines: the heading names the one that is not the run's own.
#[test]
fn a_comparison_in_a_second_factor_names_its_baseline() {
    let plan = Plan::new(&Spec::quick(&[ServerLevel::of(Engine::MariaDb)]), 1).unwrap();
    let change = |factor, compared_with, verdict| Change {
        id: id("postgres/tls1.3-p256/scram-4096"),
        compared_with: id(compared_with),
        factor,
        metric: Metric::LatencyNsMean,
        base: estimate(2.0, 0.02),
        new: estimate(3.0, 0.02),
        ratio: estimate(1.5, 0.03),
        p_adjusted: 0.01,
        verdict,
    };
    let smallest = ChangeVerdict::Inconclusive { smallest_detectable_change: 0.62 };
    let changes = vec![
        change(None, "postgres/plain/scram-4096", ChangeVerdict::Regression),
        change(Some(Factor::Auth), "postgres/tls1.3-p256/trust", smallest),
    ];
    let compared = RunComparison { changes, only_in_base: Vec::new(), only_in_new: Vec::new() };
    let report = ComparisonReport { base: "one", new: "two", plans: [&plan, &plan], comparison: &compared };
    insta::assert_snapshot!(comparison(&report, 100));
    let document: serde_json::Value = serde_json::from_str(&comparison_json(&report).unwrap()).unwrap();
    assert_eq!(document["changes"][0]["compared_with"], "postgres/plain/scram-4096");
    assert_eq!(document["changes"][1]["compared_with"], "postgres/tls1.3-p256/trust");
}
