//! Runs with encrypted files: what is compared, and what was found in them.

use ciphertoll_model::{AtRest, Ending, Event, Metric, Spec};
use ciphertoll_report::{Style, terminal};
use ciphertoll_stats::{Role, Verdict};

use crate::fixture::{measured, toll};

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
