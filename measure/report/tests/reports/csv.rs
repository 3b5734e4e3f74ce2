//! Numbers for a spreadsheet.

use ciphertoll_report::{Plot, csv};

use crate::fixture::{hostile, keys, one_block, quick};
use crate::linked::linked;
use crate::simulated::simulated;

#[test]
fn every_plot_has_rows_as_wide_as_its_header() {
    let (near, far) = (simulated(), linked());
    for plot in Plot::ALL {
        let run = if plot == Plot::Rtt { &far } else { &near };
        let text = csv(&run.report(), plot);
        assert!(text.ends_with("\r\n"), "{}", plot.label());
        let widths: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
        assert!(widths.len() > 1 && widths.iter().all(|width| *width == widths[0]), "{}", plot.label());
        let header = text.lines().next().unwrap();
        assert!(
            header.starts_with("cell,server,path,auth,ctx,driver,link,at_rest,workload,clients,scale,pace")
        );
    }
}

#[test]
fn the_tolls_of_a_quick_run() {
    insta::assert_snapshot!(csv(&quick().report(), Plot::Tolls).replace('\r', ""));
}

#[test]
fn the_first_blocks_of_a_run() {
    let text = csv(&simulated().report(), Plot::Blocks).replace('\r', "");
    insta::assert_snapshot!(text.lines().take(16).collect::<Vec<_>>().join("\n"));
}

#[test]
fn only_connects_have_phases() {
    let text = csv(&simulated().report(), Plot::Phases);
    assert_eq!(text.lines().count(), 1 + 3, "plain and two versions of TLS");
    let plain = text.lines().find(|line| line.contains("/plain/")).unwrap();
    let header = text.lines().next().unwrap();
    let column = header.split(',').position(|name| name == "phase_ns_tls_handshake").unwrap();
    assert_eq!(plain.split(',').nth(column), Some(""), "absent, not 0");
}

#[test]
fn what_connects_are_made_of() {
    insta::assert_snapshot!(csv(&keys().report(), Plot::ConnectCost).replace('\r', ""));
}

/// Records of before timed no primitives.
#[test]
fn without_primitives_nothing_is_divided() {
    assert_eq!(csv(&quick().report(), Plot::ConnectCost).lines().count(), 1);
}

#[test]
fn what_has_no_interval_is_absent() {
    for plot in Plot::ALL {
        let text = csv(&one_block().report(), plot);
        assert_eq!(text.lines().count(), 1, "{}: {text}", plot.label());
    }
}

#[test]
fn nothing_foreign_breaks_a_row() {
    let text = csv(&hostile().report(), Plot::Levels);
    let widths: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
    assert!(widths.iter().all(|width| *width == widths[0]), "{text}");
}
