//! Scales in relation to a cache: what they come to on each server, and what is compared then.

use ciphertoll_model::{Engine, Plan, Spec};

/// A plan of these lines of TOML, the last of which are a grid's.
#[track_caller]
fn plan(text: &str) -> Plan {
    Plan::new(&Spec::from_toml(text).unwrap(), 1).unwrap()
}

/// `LEVEL ROWS` of each cell.
fn scales(plan: &Plan) -> Vec<String> {
    plan.cells.iter().map(|cell| format!("{} {}", cell.scale_level(), cell.scale)).collect()
}

fn reasons(plan: &Plan) -> Vec<&str> {
    plan.skipped.iter().map(|skip| skip.reason.as_str()).collect()
}

#[test]
fn rows_fill_so_much_of_the_buffers() {
    let grid = "[[grid]]\nserver = [\"mariadb\", \"postgres\"]\npath = [\"plain\"]\nworkload = [\"oltp-read-only\"]\n\
                scale = [\"0.5cache\", \"2cache\", 1000]";
    let default = plan(grid);
    // 128 MiB, 241.5 and 263.7 bytes a row, by hand.
    let expected =
        ["0.5cache 277883", "2cache 1111534", "1000 1000", "0.5cache 254489", "2cache 1017958", "1000 1000"];
    assert_eq!(scales(&default), expected);
    let set = format!(
        "[set.mariadb]\ninnodb_buffer_pool_size = \"32M\"\n[set.postgres]\nshared_buffers = 8192\n{grid}"
    );
    // A quarter of the one, half of the other.
    let expected =
        ["0.5cache 69471", "2cache 277883", "1000 1000", "0.5cache 127245", "2cache 508979", "1000 1000"];
    assert_eq!(scales(&plan(&set)), expected);
}

#[test]
fn tables_of_pgbench_have_whole_branches_and_at_least_one() {
    let of = |levels: &str| {
        scales(&plan(&format!(
            "memory-bytes = 1073741824\n[[grid]]\nserver = [\"postgres\"]\npath = [\"plain\"]\nworkload = [\"tpcb-like\"]\n\
             scale = [{levels}]"
        )))
    };
    // A branch has 15.68 MB: 0.0856 GB are 5.5 of them, 1.2 GiB are 82.2.
    assert_eq!(of("\"0.01cache\", \"0.5cache\""), ["0.01cache 100000", "0.5cache 400000"]);
    assert_eq!(of("\"1.2mem\", \"0.08mem\""), ["1.2mem 8200000", "0.08mem 500000"]);
}

#[test]
fn what_comes_to_no_number_of_rows_says_why() {
    let of = |head: &str, server: &str, workload: &str, scale: &str| {
        let text = format!(
            "{head}\n[[grid]]\nserver = [\"{server}\"]\npath = [\"plain\"]\nworkload = [\"connect\", \"{workload}\"]\n\
             scale = [1000, \"{scale}\"]"
        );
        reasons(&plan(&text)).into_iter().map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    let no_tables = "connect reads no tables, so 0.5cache is no number of rows";
    assert_eq!(of("", "mariadb", "point-select", "0.5cache"), [no_tables]);
    assert_eq!(
        of("", "ferretdb", "find-one", "0.5cache"),
        [no_tables, "the size of a row in FerretDB is unknown: give its scale in rows"]
    );
    assert_eq!(
        of("[set.postgres]\nshared_buffers = \"1.5GB\"", "postgres", "select-only", "0.5cache"),
        [no_tables, "cannot parse the size in postgres.shared_buffers: give its scale in rows"]
    );
    assert_eq!(of("", "mariadb", "point-select", "0.5mem")[1..], ["the size of the memory is unknown"]);
    assert_eq!(
        of("memory-bytes = 1099511627776", "mariadb", "point-select", "1mem")[1..],
        ["1mem is more than the maximum of 1000000000 rows: give its scale in rows"]
    );
}

/// Their rows differ, what was asked for does not.
#[test]
fn servers_are_compared_by_what_was_asked_for() {
    let plan = plan(
        "baseline = \"server=mariadb\"\n[[grid]]\nserver = [\"mariadb\", \"postgres\"]\npath = [\"plain\"]\n\
         auth = [\"trust\"]\nworkload = [\"oltp-read-only\"]\nscale = [\"0.5cache\", \"2cache\"]",
    );
    let strata: Vec<_> =
        plan.strata.iter().map(|stratum| (stratum.baseline, &stratum.treatments[..])).collect();
    assert_eq!(strata, [(0, &[2][..]), (1, &[3])]);
    assert!(plan.cells[0].scale != plan.cells[2].scale);
    assert_eq!(
        plan.cells[2].to_string(),
        "postgres/plain/trust/-/native/local/none/oltp-read-only/1/0.5cache"
    );
}

/// Only who spoke of the buffers has meant to leave them.
#[test]
fn rows_are_meant_to_be_cached_unless_somebody_said_otherwise() {
    let cached = |set: &str, scale: &str| {
        let text = format!(
            "{set}\n[[grid]]\nserver = [\"postgres\"]\npath = [\"plain\"]\nworkload = [\"oltp-read-only\"]\nscale = [{scale}]"
        );
        let plan = plan(&text);
        plan.cells[0].is_meant_to_be_cached(&plan.settings)
    };
    let large = "[set.postgres]\nshared_buffers = \"1GB\"";
    let small = "[set.postgres]\nshared_buffers = \"16MB\"";
    assert!(cached("", "1000000") && cached(large, "1000000") && !cached(small, "1000000"));
    assert!(cached("", "\"0.5cache\"") && cached(small, "\"0.5cache\""));
    assert!(!cached("", "\"0.9cache\"") && !cached(large, "\"2cache\""));
}

#[test]
fn sizes_of_tables_are_known_of_those_that_were_measured() {
    let cell = |text: &str| plan(&format!("[[grid]]\npath = [\"plain\"]\n{text}")).cells[0].clone();
    let bytes = cell("workload = [\"point-select\"]\nscale = [1000000]").tables_bytes().unwrap();
    assert!((bytes - 241.5e6).abs() < 1.0, "{bytes}");
    let bytes =
        cell("workload = [\"tpcb-like\"]\nserver = [\"postgres\"]\nscale = [1]").tables_bytes().unwrap();
    assert!((bytes - 15.68e6).abs() < 1.0, "{bytes}");
    assert_eq!(cell("workload = [\"connect\"]").tables_bytes(), None);
    assert_eq!(ciphertoll_model::cache::default_buffers(Engine::FerretDb), None);
}

#[test]
fn a_specification_keeps_its_levels() {
    let text = "memory-bytes = 1024\n[[grid]]\nscale = [10, \"0.5cache\", \"1.20mem\"]";
    let spec = Spec::from_toml(text).unwrap();
    assert!(spec.asks_for_memory());
    let written = spec.to_toml();
    assert!(written.contains("scale = [10, \"0.5cache\", \"1.2mem\"]"), "{written}");
    assert_eq!(Spec::from_toml(&written).unwrap(), spec);
}
