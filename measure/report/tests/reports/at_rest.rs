//! Runs with encrypted files: what is compared, and what was found in them.

use ciphertoll_model::{AtRest, Ending, Event, Metric, Setting, Spec, Storage, Workload};
use ciphertoll_report::{Plot, Style, csv, html, json, markdown, terminal};
use ciphertoll_stats::{CellAnalysis, CellRole, Estimate, UnevenCheckpoints, UnevenPairs, Verdict};
use serde_json::Value;

use crate::fixture::{Run, estimate, measured, quick, ratio_of};

#[test]
fn a_run_with_encrypted_files() {
    let spec = "[[grid]]\nserver = [\"mariadb\"]\npath = [\"plain\"]\nworkload = [\"point-select\"]\nclients = [8]\n\
                at-rest = [\"none\", \"native\", \"gocryptfs\", \"fscrypt\"]\n";
    let mut run = measured(&Spec::from_toml(spec).unwrap(), 10);
    for comparison in run.own_comparisons() {
        ratio_of(comparison, Metric::RatePerS, 0.91, 0.02, Some(Verdict::Differs));
        ratio_of(comparison, Metric::CpuUsPerOpTotal, 1.12, 0.02, Some(Verdict::Differs));
    }
    for (at_rest, files_with_marker) in
        [(AtRest::None, 2), (AtRest::Native, 0), (AtRest::Gocryptfs, 0), (AtRest::Fscrypt, 0)]
    {
        let server = "mariadb".to_owned();
        let kernel_cipher = (at_rest == AtRest::Fscrypt).then(|| "xts(ecb(aes-fixed-time))".to_owned());
        run.push(Event::AtRestProven {
            server,
            at_rest,
            files: 180,
            bytes: 130_400_000,
            files_with_marker,
            kernel_cipher,
        });
    }
    run.end(Ending::Complete);
    run.plan.storage = Storage::Tmpfs;
    insta::assert_snapshot!(terminal(&run.report(), Style::Plain, 100));
    let document: Value = serde_json::from_str(&json(&run.report()).unwrap()).unwrap();
    assert_eq!(document["storage"], "tmpfs");
    let proofs = document["at_rest_proofs"].as_array().unwrap();
    let found =
        |proof: &Value| (proof["at_rest"].as_str().unwrap().to_owned(), proof["files_with_marker"].as_u64());
    let found: Vec<(String, Option<u64>)> = proofs.iter().map(found).collect();
    let wanted = [("none", 2), ("native", 0), ("gocryptfs", 0), ("fscrypt", 0)];
    assert_eq!(found, wanted.map(|(level, files)| (level.to_owned(), Some(files))));
    assert!(proofs.iter().all(|proof| proof["server"] == "mariadb" && proof["bytes"] == 130_400_000));
    let kernels: Vec<&Value> = proofs.iter().filter_map(|proof| proof.get("kernel_cipher")).collect();
    assert_eq!(kernels, ["xts(ecb(aes-fixed-time))"]);
}

/// Runs before these fields came, and runs of which files say nothing.
#[test]
fn a_run_without_files_says_nothing_of_them() {
    let mut run = measured(&Spec::from_toml("[[grid]]\n").unwrap(), 10);
    run.end(Ending::Complete);
    let document: Value = serde_json::from_str(&json(&run.report()).unwrap()).unwrap();
    assert!(document.get("at_rest_proofs").is_none() && document.get("storage").is_none());
}

/// A library without its cipher is told from one that has it wherever it is named.
#[test]
fn what_is_not_encrypted_is_said_not_to_be() {
    let spec = "[[grid]]\nserver = [\"postgres\"]\npath = [\"plain\"]\nworkload = [\"point-select\"]\nclients = [8]\n\
                at-rest = [\"none\", \"tde\", \"tde+cipher=null\"]\n";
    let mut run = measured(&Spec::from_toml(spec).unwrap(), 10);
    for comparison in run.own_comparisons() {
        ratio_of(comparison, Metric::CpuUsPerOpTotal, 1.12, 0.02, Some(Verdict::Differs));
    }
    for (level, files_with_marker) in [("none", 2), ("tde", 0), ("tde+cipher=null", 2)] {
        let (server, at_rest) = ("postgres".to_owned(), level.parse().unwrap());
        run.push(Event::AtRestProven {
            server,
            at_rest,
            files: 980,
            bytes: 42_000_000,
            files_with_marker,
            kernel_cipher: None,
        });
    }
    run.end(Ending::Complete);
    let text = terminal(&run.report(), Style::Plain, 100);
    assert!(text.contains("tde+cipher=null is not encrypted"), "{text}");
    assert!(text.contains("tde encrypts pages between"), "{text}");
    assert!(
        text.contains("at rest: tde+cipher=null: the written marker was found unencrypted in 2 of"),
        "{text}"
    );
}

/// A study of which the scale says how much of the data is cached.
pub(crate) fn by_its_cache() -> Run {
    let spec = "name = \"postgres-tde-2021\"\n[set.postgres]\nshared_buffers = \"256MB\"\n[[grid]]\n\
                server = [\"postgres\"]\npath = [\"plain\"]\nworkload = [\"select-only\", \"tpcb-like\"]\n\
                clients = [2]\nscale = [800000, 7800000]\nat-rest = [\"none\", \"tde\"]\n";
    let mut run = measured(&Spec::from_toml(spec).unwrap(), 10);
    for comparison in run.own_comparisons() {
        ratio_of(comparison, Metric::RatePerS, 0.91, 0.02, Some(Verdict::Differs));
    }
    run.end(Ending::Complete);
    run
}

#[test]
fn figures_stand_beside_cells_with_the_same_share_of_the_cache() {
    let run = by_its_cache();
    let text = terminal(&run.report(), Style::Plain, 100);
    let (_, published) = text.split_once("Compared with the published study").unwrap();
    insta::assert_snapshot!(published.split_once("Negotiated on").map_or(published, |(table, _)| table));
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

/// Two servers, one load that is cached and one that is not, and checkpoints here and there.
pub(crate) fn crossed() -> Run {
    let spec = "[[grid]]\nserver = [\"mariadb\", \"postgres\"]\npath = [\"plain\"]\nclients = [8]\n\
                workload = [\"oltp-read-write\", \"point-select\"]\nat-rest = [\"none\", \"gocryptfs\"]\n";
    let mut run = measured(&Spec::from_toml(spec).unwrap(), 10);
    let is_postgres = |cell: &CellAnalysis| cell.cell.treatment.server.short_name() == "postgres";
    let writes = |cell: &CellAnalysis| cell.cell.workload == Workload::OltpReadWrite;
    for cell in run.cells() {
        cell.metrics.extend(counts(is_postgres(cell), writes(cell), cell.role == CellRole::Treatment));
    }
    for comparison in run.own_comparisons() {
        let more = if writes(&comparison.cell) { 1.9 } else { 1.01 };
        ratio_of(comparison, Metric::CpuUsPerOpTotal, more, 0.02, Some(Verdict::Differs));
        ratio_of(comparison, Metric::RatePerS, 1.0 / more, 0.02, Some(Verdict::Differs));
        if writes(&comparison.cell) && is_postgres(&comparison.cell) {
            comparison.cell.checkpoints =
                UnevenCheckpoints { blocks: vec![3, 8], pairs: UnevenPairs::Dropped };
        }
    }
    run.repeat(0).cell.checkpoints = UnevenCheckpoints { blocks: vec![1, 2, 4], pairs: UnevenPairs::Counted };
    run.end(Ending::Complete);
    run
}

fn counts(is_postgres: bool, writes: bool, encrypted: bool) -> Vec<(Metric, Estimate)> {
    let [read, written] = if writes { [21.4, 6.72] } else { [0.0, 0.0] };
    let sync_ns = if encrypted { 912_000.0 } else { 341_000.0 };
    let mut counts = vec![
        (Metric::PagesReadPerOperation, estimate(read, 0.02)),
        (Metric::PagesWrittenPerOperation, estimate(written, 0.05)),
        (Metric::PageCrossingsPerOperation, estimate(read + written, 0.02)),
        (Metric::WalBytesPerOperation, estimate(if writes { 4_310.0 } else { 0.0 }, 0.03)),
        (Metric::FsyncNsP50, estimate(sync_ns, 0.08)),
        (Metric::FsyncNsP99, estimate(sync_ns * 2.9, 0.4)),
    ];
    if is_postgres {
        counts.extend([
            (Metric::FullPageImagesPerOperation, estimate(if writes { 0.31 } else { 0.0 }, 0.2)),
            (Metric::CheckpointsBegun, estimate(if writes { 0.2 } else { 0.0 }, 0.9)),
        ]);
    } else {
        counts.push((Metric::CheckpointAgeBytes, estimate(71_200_000.0, 0.1)));
    }
    counts
}

#[test]
fn what_crosses_to_files_stands_beside_their_toll() {
    let run = crossed();
    let text = terminal(&run.report(), Style::Plain, 110);
    let crossing: String =
        text.split("\n\n").filter(|part| part.contains("Page and log I/O")).collect::<Vec<_>>().join("\n\n");
    let said: Vec<&str> = text.lines().skip_while(|line| !line.contains("Pages, WAL or redo")).collect();
    insta::assert_snapshot!(format!("{crossing}\n…\n{}", said.join("\n")));
    assert!(markdown(&run.report()).contains("**Page and log I/O · "));
}

#[test]
fn tolls_are_plotted_against_what_crosses() {
    let page = html(&crossed().report());
    for id in ["crossings-cpu-us-per-op-total", "crossings-rate-per-s"] {
        let figure = page.split_once(&format!("<figure id=\"{id}\"")).unwrap().1;
        let figure = figure.split_once("</figure>").unwrap().0;
        let svg = figure.split_once("</svg>").unwrap().0;
        // A point for each encrypted cell, and two more in the key.
        assert_eq!(svg.matches("class=\"mark point\"").count(), 4, "{id}");
        assert!(svg.contains(">none</text>") && svg.contains(">oltp-read-write</text>"), "{id}");
    }
    insta::assert_snapshot!(csv(&crossed().report(), Plot::Crossings).replace('\r', ""));
}

#[test]
fn machines_are_told_of_uneven_checkpoints() {
    let document: Value = serde_json::from_str(&json(&crossed().report()).unwrap()).unwrap();
    let cells = document["cells"].as_array().unwrap();
    let uneven: Vec<&Value> = cells.iter().filter_map(|cell| cell.get("uneven_checkpoints")).collect();
    assert_eq!(uneven, [&serde_json::json!({ "blocks": [3, 8], "pairs": "dropped" })]);
    assert_eq!(cells[0]["metrics"]["pages_read_per_operation"]["value"], 21.4);
}

/// Where files are not compared, nothing is said of them.
#[test]
fn ordinary_reports_are_as_short_as_ever() {
    let mut run = quick();
    run.end(Ending::Complete);
    let before = [terminal(&run.report(), Style::Plain, 100), markdown(&run.report()), html(&run.report())];
    for cell in run.cells() {
        cell.metrics.extend(counts(true, true, false));
    }
    let after = [terminal(&run.report(), Style::Plain, 100), markdown(&run.report()), html(&run.report())];
    assert_eq!(before, after);
}
