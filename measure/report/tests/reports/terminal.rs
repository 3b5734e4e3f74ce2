//! What a person sees.

use ciphertoll_model::{Ending, ServerKey};
use ciphertoll_report::{Style, html, terminal};

use crate::fixture::{Run, against, contexts, keys, noisy, one_block, quick, smoke, troubled};

#[test]
fn a_quick_run_with_every_verdict() {
    let mut run = quick();
    run.end(Ending::Complete);
    insta::assert_snapshot!(terminal(&run.report(), Style::Plain, 100));
}

#[test]
fn at_80_columns_tables_are_split_and_phases_stand_upright() {
    let mut run = quick();
    run.end(Ending::Complete);
    insta::assert_snapshot!(terminal(&run.report(), Style::Plain, 80));
}

#[test]
fn a_smoke_run_has_numbers_and_no_verdicts() {
    insta::assert_snapshot!(terminal(&smoke().report(), Style::Plain, 100));
}

#[test]
fn settings_are_part_of_what_it_takes_to_do_it_again() {
    let mut run = smoke();
    run.plan.settings.set("mariadb.sql_mode=ANSI".parse().unwrap());
    let text = terminal(&run.report(), Style::Plain, 100).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(" · settings: mariadb.sql_mode=ANSI · "), "{text}");
}

#[test]
fn what_cannot_be_told_is_said_once() {
    insta::assert_snapshot!(answer(&noisy()));
}

#[test]
fn an_interrupted_run_says_so_first() {
    let mut run = quick();
    run.analysis.blocks_completed = 3;
    for cell in run.cells() {
        cell.blocks_used = 3;
    }
    for comparison in &mut run.analysis.comparisons {
        comparison.ratios.values_mut().for_each(|ratio| ratio.verdict = None);
    }
    run.end(Ending::Interrupted);
    insta::assert_snapshot!(terminal(&run.report(), Style::Plain, 100));
}

#[test]
fn skipped_voided_and_flagged_cells_are_named_with_their_reasons() {
    insta::assert_snapshot!(terminal(&troubled().report(), Style::Plain, 100));
}

#[test]
fn rows_name_the_context_where_it_varies() {
    insta::assert_snapshot!(terminal(&contexts().report(), Style::Plain, 100));
}

#[test]
fn what_a_connect_is_made_of_stands_in_a_table_of_shares() {
    for width in [100, 80] {
        let text = terminal(&keys().report(), Style::Plain, width);
        let (_, section) = text.split_once("Breakdown of connect time by key").unwrap();
        let section = section.split("\n\n").next().unwrap();
        insta::assert_snapshot!(format!("what_a_connect_is_made_of_at_{width}"), section);
    }
}

#[test]
fn a_single_key_is_not_worth_a_table() {
    let mut run = keys();
    run.analysis.comparisons.retain(|comparison| {
        let tls = comparison.cell.cell.treatment.path.as_tls();
        tls.is_none_or(|tls| tls.key == Some(ServerKey::Rsa4096))
    });
    assert!(!terminal(&run.report(), Style::Plain, 100).contains("Breakdown of connect time by key"));
    assert!(html(&run.report()).contains("Breakdown of connect time by key"));
}

#[test]
fn one_block_prints_no_number() {
    insta::assert_snapshot!(terminal(&one_block().report(), Style::Plain, 100));
}

#[test]
fn a_run_that_measured_nothing_says_that() {
    let mut run = quick();
    run.end(Ending::Failed);
    run.analysis = ciphertoll_stats::analyse(&run.plan, &run.events);
    insta::assert_snapshot!(terminal(&run.report(), Style::Plain, 100));
}

#[test]
fn servers_and_contexts_can_be_compared_too() {
    let servers = against("server=old:mariadb", "server = [\"old:mariadb\", \"new:mariadb\"]");
    insta::assert_snapshot!("against_a_server", answer(&servers));
    let contexts = against("ctx=shared", "ctx = [\"per-connect\", \"shared\"]");
    insta::assert_snapshot!("against_a_context", answer(&contexts));
}

/// The sentences, without the tables below them.
fn answer(run: &Run) -> String {
    let text = terminal(&run.report(), Style::Plain, 100);
    text.splitn(3, "\n\n").take(2).collect::<Vec<_>>().join("\n\n")
}

#[test]
fn every_line_fits() {
    for (run, width) in [quick(), smoke(), troubled(), contexts(), keys()]
        .iter()
        .flat_map(|run| [40, 60, 80, 100].map(|width| (run, width)))
    {
        for line in terminal(&run.report(), Style::Plain, width).lines() {
            assert!(line.chars().count() <= usize::from(width), "{width}: {line}");
        }
    }
}

#[test]
fn colours_change_nothing_but_colour() {
    let run = troubled();
    let coloured = terminal(&run.report(), Style::Colour, 100);
    let mut plain = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    plain.push_str(rest);
    let trimmed = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    assert_eq!(trimmed(&plain), trimmed(&terminal(&run.report(), Style::Plain, 100)));
    assert!(coloured.contains("\u{1b}[31m"), "what costs more is red");
}

#[test]
fn foreign_text_cannot_steer_the_terminal() {
    let text = terminal(&troubled().report(), Style::Plain, 100);
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
}
