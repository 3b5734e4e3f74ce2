//! What reports say of a hybrid key exchange.

use ciphertoll_model::{Ending, Group, Link, Metric, Spec};
use ciphertoll_report::{Style, html, summary, terminal};
use ciphertoll_stats::{Doubt, Verdict};

use crate::fixture::{Run, measured, ratio_of};

const HEADING: &str = "Post-quantum key exchange";

/// Both groups on two servers, of which one has no hybrid group, over four links.
fn hybrid(verdicts: impl Fn(Link) -> (f64, Verdict)) -> Run {
    let spec = "baseline = \"path=tls1.3-p256+group=x25519\"\n[[grid]]\nserver = [\"mariadb\", \"mysql-9.7\"]\n\
         path = [\"tls1.3-p256+group=x25519\", \"tls1.3-p256+group=x25519mlkem768\", \"tls1.3-p256+group=p256\"]\n\
         link = [\"local\", \"10ms\", \"45ms\", \"45ms+loss=1%\"]\nworkload = [\"connect-query\"]\nclients = [1]\n";
    let mut run = measured(&Spec::from_toml(spec).unwrap(), 10);
    for comparison in run.own_comparisons() {
        let treatment = &comparison.cell.cell.treatment;
        let is_hybrid = treatment.path.as_tls().unwrap().parameters.group == Some(Group::X25519MlKem768);
        let (ratio, verdict) = if is_hybrid { verdicts(treatment.link) } else { (3.0, Verdict::Differs) };
        ratio_of(comparison, Metric::LatencyNsMean, ratio, 0.01, Some(verdict));
        ratio_of(comparison, Metric::CpuUsPerOpTotal, ratio, 0.01, Some(verdict));
    }
    run.end(Ending::Complete);
    run
}

/// The sentences, without line breaks.
fn said(run: &Run) -> String {
    let text = terminal(&run.report(), Style::Plain, 100);
    let section = text.split_once(HEADING).expect("the section").1;
    let end = section.find("\n\n").unwrap_or(section.len());
    section[..end].split_whitespace().collect::<Vec<_>>().join(" ")
}

const SAME: Verdict = Verdict::SameWithin { margin: 0.05 };

#[test]
fn each_server_has_its_cost_and_the_link_that_hides_it() {
    let run = hybrid(|link| match link {
        Link::Local => (1.13, Verdict::Differs),
        _ => (1.01, SAME),
    });
    let said = said(&run);
    let mariadb = "with x25519mlkem768 instead of x25519, a connect's latency is 1.13 × (1.12–1.14), its CPU time \
         1.13 × (1.12–1.14) on the local link. Nothing of it can be seen in the latency over 10ms and longer: \
         1.01 × (1.00–1.02), less than 5 %.";
    assert!(said.contains(mariadb), "{said}");
    let mysql = "no hybrid connect was measured: MySQL 9.7 supports NIST curves only, not x25519mlkem768.";
    assert!(said.contains(mysql), "{said}");
    let summary = summary(&run.report(), Style::Plain, 80);
    assert!(summary.contains("instead of x25519") && summary.lines().count() <= 25, "{summary}");
    let page = html(&run.report());
    let answer = page.split_once("id=\"answer\"").unwrap().1.split_once("</section>").unwrap().0;
    assert!(answer.contains("NIST curves only"), "the first screen has it");
}

#[test]
fn what_no_link_hides_is_said() {
    let said = said(&hybrid(|_| (1.13, Verdict::Differs)));
    assert!(said.contains("on the local link. It is still seen over 45ms: 1.13 × (1.12–1.14)."), "{said}");
    let said = self::said(&hybrid(|_| (1.0, SAME)));
    assert!(said.contains("Nothing of it can be seen in the latency on any measured link"), "{said}");
}

#[test]
fn a_difference_that_is_not_shown_is_no_sameness() {
    let unknown = Verdict::Inconclusive {
        smallest_detectable_difference: 0.29,
        blocks_needed: None,
        why: Doubt::TooFewBlocks,
    };
    let said = said(&hybrid(|_| (1.07, unknown)));
    let doubt = "The run does not show whether the latency differs over 45ms: the smallest detectable difference is 29 %.";
    assert!(said.contains(doubt) && !said.contains("can be seen"), "{said}");
}

#[test]
fn a_run_without_hybrid_groups_has_no_such_section() {
    let run = crate::fixture::quick();
    assert!(!terminal(&run.report(), Style::Plain, 100).contains(HEADING));
}
