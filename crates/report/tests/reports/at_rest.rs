//! Runs with encrypted files: what is compared, and what was found in them.

use ciphertoll_model::{AtRest, Ending, Event, Metric, Setting, Spec};
use ciphertoll_report::{Style, json, terminal};
use ciphertoll_stats::{Role, Verdict};

use crate::fixture::{Run, measured, toll};

#[test]
fn a_run_with_encrypted_files() {
    let spec = "[[grid]]\nserver = [\"mariadb\"]\npath = [\"plain\"]\nworkload = [\"point-select\"]\nclients = [8]\n\
                at-rest = [\"none\", \"native\", \"gocryptfs\"]\n";
    let mut run = measured(&Spec::from_toml(spec).unwrap(), 10);
    for cell in run.analysis.cells.iter_mut().filter(|cell| cell.role == Role::Treatment) {
        toll(cell, Metric::RatePerS, 0.91, 0.02, Some(Verdict::Differs));
        toll(cell, Metric::CpuUsPerOpTotal, 1.12, 0.02, Some(Verdict::Differs));
    }
    for (at_rest, files_with_marker) in [(AtRest::None, 2), (AtRest::Native, 0), (AtRest::Gocryptfs, 0)] {
        let server = "mariadb".to_owned();
        run.push(Event::AtRestProven { server, at_rest, files: 180, bytes: 130_400_000, files_with_marker });
    }
    run.end(Ending::Complete);
    insta::assert_snapshot!(terminal(&run.report(), Style::Plain, 100));
}

/// A study of which the scale says how much of the data is cached.
fn by_its_cache() -> Run {
    let spec = "name = \"postgres-tde-2021\"\n[set.postgres]\nshared_buffers = \"256MB\"\n[[grid]]\n\
                server = [\"postgres\"]\npath = [\"plain\"]\nworkload = [\"select-only\", \"tpcb-like\"]\n\
                clients = [2]\nscale = [800000, 7800000]\nat-rest = [\"none\", \"gocryptfs\"]\n";
    let mut run = measured(&Spec::from_toml(spec).unwrap(), 10);
    for cell in run.analysis.cells.iter_mut().filter(|cell| cell.role == Role::Treatment) {
        toll(cell, Metric::RatePerS, 0.91, 0.02, Some(Verdict::Differs));
    }
    run.end(Ending::Complete);
    run
}

#[test]
fn figures_stand_beside_cells_with_the_same_share_of_the_cache() {
    let run = by_its_cache();
    let text = terminal(&run.report(), Style::Plain, 100);
    let (_, published) = text.split_once("Published and measured").unwrap();
    insta::assert_snapshot!(
        published.split_once("What was negotiated").map_or(published, |(table, _)| table)
    );
    // 78 branches are more than the buffers hold, 8 are not.
    assert!(text.contains("tpcb-like with scale 7800000"), "{text}");
    assert!(!text.contains("with scale 800000:"), "{text}");
}

/// Files in the clear have nothing published, and other buffers are of another study.
#[test]
fn no_figure_stands_beside_what_is_not_its_equal() {
    let machines = |run: &Run| json(&run.report()).unwrap().matches("\"others\"").count();
    let mut run = by_its_cache();
    // One for each encrypted cell: 2 workloads, 2 scales.
    assert_eq!(machines(&run), 4);
    run.plan.settings.extend("postgres.shared_buffers=512MB".parse::<Setting>());
    assert_eq!(machines(&run), 0);
}
