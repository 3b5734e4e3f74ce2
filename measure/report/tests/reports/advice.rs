//! Which path is advised, and why.

use ciphertoll_model::{Ctx, Metric, Spec, Workload};
use ciphertoll_report::{Style, html, markdown, summary};
use ciphertoll_stats::Verdict;

use crate::fixture::{Run, TLS12, TLS13, against, contexts, measured, one_block, quick, ratio_of, smoke};

/// The line that begins with the advice.
fn advice(run: &Run) -> Option<String> {
    markdown(&run.report()).lines().find(|line| line.starts_with("**Switch on")).map(str::to_owned)
}

#[test]
fn the_newest_protocol_is_advised_and_what_an_older_one_would_save_is_said() {
    let mut run = quick();
    let advised = advice(&run).unwrap();
    assert!(advised.starts_with("**Switch on TLS 1.3 with a P-256 certificate.**"), "{advised}");
    assert!(advised.contains("TLS 1.2 costs less under some loads, but is the older protocol."), "{advised}");
    for (workload, metric, ratio) in
        [(Workload::Connect, Metric::LatencyNsMean, 3.1), (Workload::PointSelect, Metric::RatePerS, 0.88)]
    {
        ratio_of(run.comparison(workload, TLS12), metric, ratio, 0.05, Some(Verdict::Differs));
    }
    let advised = advice(&run).unwrap();
    assert!(advised.contains("TLS 1.2 is not known to cost less."), "{advised}");
}

#[test]
fn the_summary_advises_too_without_the_terms_of_the_cost_model() {
    let said = summary(&quick().report(), Style::Plain, 100);
    assert!(said.contains("What to do\n· Switch on TLS 1.3 with a P-256 certificate. "), "{said}");
    assert!(!summary(&one_block().report(), Style::Plain, 100).contains("What to do"));
}

#[test]
fn the_cheapest_of_equals_is_advised_by_the_loads_that_all_have_in_common() {
    let mut run = contexts();
    for comparison in run.own_comparisons() {
        let cell = comparison.cell.cell.clone();
        if cell.treatment.ctx == Some(Ctx::Shared) {
            ratio_of(comparison, Metric::RatePerS, 0.6, 0.03, Some(Verdict::Differs));
        }
        // Selects cost almost nothing with either context, which favours neither.
        if cell.workload == Workload::PointSelect && cell.treatment.path == TLS13 {
            ratio_of(comparison, Metric::RatePerS, 0.99, 0.01, Some(Verdict::SameWithin { margin: 0.03 }));
        }
    }
    let advised = advice(&run).unwrap();
    assert_eq!(
        advised,
        "**Switch on TLS 1.3 with a P-256 certificate and one shared TLS context.** The TLS 1.3 path with the lowest \
         cost."
    );
    let page = html(&run.report());
    let chosen = page.split_once("class=\"chosen\"").unwrap().1.split_once("class=\"rest\"").unwrap().0;
    assert!(chosen.contains("point-select"), "what selects cost is said of either");
    assert!(chosen.contains("one shared TLS context") && !chosen.contains("a TLS context per connect"));
}

#[test]
fn a_pool_is_advised_only_where_it_would_save_most() {
    let saving = "Keep connections open, for example in a pool";
    let mut run = quick();
    assert!(markdown(&run.report()).contains(saving));
    ratio_of(
        run.comparison(Workload::PointSelect, TLS13),
        Metric::RatePerS,
        0.3,
        0.05,
        Some(Verdict::Differs),
    );
    assert!(!markdown(&run.report()).contains(saving), "selects cost as much");
}

/// The study of 2013, whose TLS is obsolete and whose connects cost 190 times as much.
#[test]
fn legacy_cryptography_is_never_advised_and_the_command_for_a_modern_path_is() {
    const LEGACY: &str = "tls1.2-rsa4096+suite=DHE-RSA-AES256-SHA";
    let mut run = one_path(LEGACY);
    let text = summary(&run.report(), Style::Plain, 100);
    let command = "ciphertoll run --server mariadb --path plain,tls1.3-p256";
    for text in [&text, &markdown(&run.report()), &html(&run.report())] {
        assert!(!text.contains("Switch on TLS"), "{text}");
        assert!(text.contains("Switch on none of the measured TLS paths (a legacy cipher suite"), "{text}");
    }
    assert!(text.replace("\n  ", " ").contains(command), "{text}");
    // A path of today whose connections negotiated a suite of yesterday.
    run = one_path("tls1.2-rsa2048");
    assert!(advice(&run).unwrap().contains("TLS 1.2 with an RSA-2048 certificate"));
    for cell in run.cells() {
        for count in cell.legs.iter_mut().filter(|count| count.leg.tls_version.is_some()) {
            count.leg.suite = Some("TLS_RSA_WITH_3DES_EDE_CBC_SHA".to_owned());
        }
    }
    assert_eq!(advice(&run).unwrap().split(" (").next(), Some("**Switch on none of the measured TLS paths"));
}

/// Another run of the same URL would not verify the server either.
#[test]
fn a_server_that_is_not_verified_is_to_be_verified_first() {
    let url = "mine=postgres://app@db.mine/shop?sslmode=verify-ca&sslrootcert=ca.pem";
    let spec = format!(
        "baseline = \"path=tls1.3\"\n[[grid]]\nserver = [\"{url}\"]\npath = [\"tls1.3\", \"tls1.2\"]\n\
                        workload = [\"connect\"]\nclients = [\"1\"]\n"
    );
    let run = measured(&Spec::from_toml(&spec).unwrap(), 10);
    let text = markdown(&run.report());
    assert!(text.contains("Switch on none of the measured TLS paths"), "{text}");
    assert!(text.contains("with a URL that verifies the server"), "{text}");
}

fn one_path(path: &str) -> Run {
    let spec =
        format!("[[grid]]\npath = [\"plain\", \"{path}\"]\nworkload = [\"connect\"]\nclients = [\"1\"]\n");
    let mut run = measured(&Spec::from_toml(&spec).unwrap(), 10);
    for comparison in run.own_comparisons() {
        ratio_of(comparison, Metric::LatencyNsMean, 193.0, 0.03, Some(Verdict::Differs));
    }
    run
}

#[test]
fn nothing_is_advised_where_nothing_was_found_out() {
    assert_eq!(advice(&smoke()), None, "no verdicts");
    assert_eq!(advice(&one_block()), None, "no intervals");
    assert_eq!(advice(&against("ctx=shared", "ctx = [\"per-connect\", \"shared\"]")), None, "no plain path");
    assert!(html(&one_block().report()).contains("No answer yet"));
}
