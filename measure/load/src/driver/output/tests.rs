use super::super::find::find;
use super::*;
use crate::driver::file::{DriverFile, ToolFile, WorkloadName};

fn tool(name: &str) -> Box<ToolFile> {
    match find(name).unwrap().file() {
        DriverFile::Tool(tool) => tool.clone(),
        DriverFile::Program(_) => unreachable!("{name} is a tool"),
    }
}

fn text_rule(name: &str) -> TextRule {
    match tool(name).result {
        ResultRule::Text(rule) => *rule,
        ResultRule::Log(_) => unreachable!("{name} prints totals"),
    }
}

fn log_rule(rule: ResultRule) -> LogRule {
    match rule {
        ResultRule::Log(rule) => rule,
        ResultRule::Text(_) => unreachable!("pgbench keeps a log"),
    }
}

/// As sysbench 1.0.20 printed it.
const SYSBENCH: &str = "SQL statistics:
queries performed:
    read:                            9184
    write:                           2621
    other:                           1311
    total:                           13116
transactions:                        655    (653.20 per sec.)
queries:                             13116  (13079.86 per sec.)
ignored errors:                      1      (1.00 per sec.)
reconnects:                          0      (0.00 per sec.)

General statistics:
total time:                          1.0018s
total number of events:              655

Latency (ms):
     min:                                    0.62
     avg:                                    3.05
     max:                                   33.64
     95th percentile:                        9.06
     sum:                                 1998.93
";

#[test]
fn sysbench_is_read() {
    let outcome = text_rule("sysbench").read(SYSBENCH, 0).unwrap();
    assert_eq!((outcome.operations, outcome.statements, outcome.retries), (655, Some(13_116), 1));
    assert_eq!((outcome.window_ns, outcome.sum_ns), (1_001_800_000, Some(1_998_930_000.0)));
    assert_eq!((outcome.p50_ns, outcome.p95_ns, outcome.max_ns), (0, 9_060_000, 33_640_000));
}

#[test]
fn mysqlslap_is_read() {
    let printed = "Benchmark\n\tAverage number of seconds to run all queries: 1.492 seconds\n\t\
                   Number of clients running queries: 4\n\tAverage number of queries per client: 250\n";
    let outcome = text_rule("mysqlslap").read(printed, 1_000).unwrap();
    assert_eq!((outcome.operations, outcome.window_ns, outcome.sum_ns), (1_000, 1_492_000_000, None));
}

#[test]
fn a_missing_total_is_named() {
    let error = text_rule("sysbench").read("FATAL: nothing", 0).unwrap_err();
    assert!(error.starts_with("nothing matches 'transactions:"), "{error}");
}

/// Output of pgbench 15: one file for each thread.
const PGBENCH: [&str; 2] = [
    "0 1 9337 0 1795247994 554170\n0 2 833 0 1795247994 555008\n0 3 279 0 1795247994 555287\n",
    "1 1 1152 0 1795247994 546453\n1 2 715 0 1795247994 547183\n1 3 82 0 1795247994 547269\n",
];

#[test]
fn pgbench_is_read() {
    let outcome = log_rule(tool("pgbench").result).read(PGBENCH.into_iter()).unwrap();
    assert_eq!((outcome.operations, outcome.by_half), (6, [3, 3]));
    assert_eq!(outcome.samples_ns, [9_337_000, 833_000, 279_000, 1_152_000, 715_000, 82_000]);
    // From 544833, when the first operation began, to 555287.
    assert_eq!(outcome.window_ns, 10_454_000);
}

#[test]
fn a_connect_is_timed_from_the_previous_end() {
    let name = WorkloadName::of(ciphertoll_model::Workload::CONNECT_QUERY);
    let rule = tool("pgbench").workloads[&name].result.clone().unwrap();
    let outcome = log_rule(rule).read(PGBENCH.into_iter()).unwrap();
    // The beginning of a client's first operation is not known.
    assert_eq!(outcome.samples_ns, [838_000, 279_000, 730_000, 86_000]);
    assert_eq!(outcome.window_ns, 555_287_000 - 546_453_000);
}

#[test]
fn an_unexpected_log_is_an_error() {
    let rule = log_rule(tool("pgbench").result);
    let error = rule.read(["0 1 failed 0 1795247994 1\n"].into_iter()).unwrap_err();
    assert_eq!(error, "column 3 of \"0 1 failed 0 1795247994 1\" is not a number");
    assert!(rule.read([""].into_iter()).is_err());
}

#[test]
fn a_pattern_has_one_group() {
    let text = "operations = 'x: \\d+'\nseconds = { pattern = '(1)', unit = \"s\" }";
    let error = toml::from_str::<TextRule>(text).unwrap_err();
    assert!(error.to_string().contains("needs one group"), "{error}");
}
