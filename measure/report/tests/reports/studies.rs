//! Pages of runs that repeat a published study.

use ciphertoll_model::presets::{Claim, PRESETS, Preset, Published};
use ciphertoll_model::{Ending, MetricDirection, Plan, Size};
use ciphertoll_report::{html, json, markdown};
use serde_json::Value;

use crate::fixture::{Run, measured_as, ratio_of};

/// Every cell of the largest run, with the published ratios as the measured ones.
fn as_published(preset: &Preset) -> Run {
    with_ratios(preset, 1.0)
}

/// The published ratios times this factor.
fn with_ratios(preset: &Preset, factor: f64) -> Run {
    let plan = Plan::new(&preset.spec(&preset.servers(), Size::Full), 1).unwrap();
    let settings = plan.settings.clone();
    // Of several builds, one that the study does not doubt, and whose tpcb-like is not of another compiler.
    let is_chosen = |one: &Published| !matches!(one.of, Some("mysql-5.6.13" | "tde-gcc4.8"));
    let published: Vec<Published> = preset.published().into_iter().filter(is_chosen).collect();
    let mut run = measured_as(plan, 10);
    for comparison in run.own_comparisons() {
        let cell = comparison.cell.cell.clone();
        for one in published.iter().filter(|one| one.has_equal(&cell, &settings)) {
            ratio_of(comparison, one.metric, one.ratio * factor, 0.001, None);
        }
    }
    run.end(Ending::Complete);
    run
}

fn studies() -> impl Iterator<Item = &'static Preset> {
    PRESETS.iter().filter(|preset| preset.study.is_some())
}

/// The same text without what keeps numbers and units on one line.
fn unflowed(page: &str) -> String {
    page.replace('\u{a0}', " ").replace(['\u{2060}', '\\'], "").replace("&#39;", "'")
}

#[test]
fn every_published_number_is_on_the_page_with_a_mark_and_a_reason() {
    for preset in studies() {
        let run = as_published(preset);
        let [page, text] = [html(&run.report()), markdown(&run.report())].map(|page| unflowed(&page));
        let document: Value = serde_json::from_str(&json(&run.report()).unwrap()).unwrap();
        let rows = document["study"]["numbers"].as_array().unwrap();
        let numbers = preset.numbers();
        let servers = rows.len() / numbers.len();
        assert!(servers >= 1 && rows.len() == servers * numbers.len(), "{}", preset.name);
        for number in &numbers {
            for place in [&page, &text] {
                assert!(place.contains(&number.printed), "{}: {number:?}", preset.name);
                assert!(place.contains(&number.subject), "{}: {number:?}", preset.name);
            }
        }
        for row in rows {
            let mark = row["comparison"].as_str().unwrap();
            assert!(["agree", "differ", "not comparable"].contains(&mark), "{row}");
            assert!(!row["reason"].as_str().unwrap().is_empty(), "{row}");
        }
    }
}

#[test]
fn a_page_begins_with_the_study_in_five_sentences() {
    for preset in studies() {
        let run = as_published(preset);
        let study = preset.study.as_ref().unwrap();
        let page = unflowed(&html(&run.report()));
        let main = page.split_once("<main").unwrap().1;
        let places: Vec<usize> =
            study.sentences.iter().map(|sentence| main.find(sentence).expect(sentence)).collect();
        let table = main.find("<table").unwrap();
        assert!(places.is_sorted() && places[4] < table, "{}", preset.name);
        for conclusion in study.conclusions {
            assert!(main.contains(conclusion.said), "{}: {}", preset.name, conclusion.said);
        }
        let text = unflowed(&markdown(&run.report()));
        assert!(study.sentences.iter().all(|sentence| text.contains(sentence)), "{}", preset.name);
    }
}

/// What the authors concluded holds for their own numbers.
#[test]
fn the_published_numbers_agree_with_themselves_and_their_conclusions() {
    for preset in studies() {
        let run = as_published(preset);
        let document: Value = serde_json::from_str(&json(&run.report()).unwrap()).unwrap();
        let rows = document["study"]["numbers"].as_array().unwrap();
        assert!(rows.iter().filter(|row| row["comparison"] == "agree").count() >= 3, "{}", preset.name);
        let conclusions = &preset.study.as_ref().unwrap().conclusions;
        for tested in document["study"]["conclusions"].as_array().unwrap() {
            let is_it = |claim: &Claim| match claim {
                // All levels of these runs are alike.
                Claim::NotTested(_) | Claim::Higher { .. } => "not tested",
                Claim::Costs { .. } | Claim::Dearer { .. } | Claim::Alike { .. } => "holds here",
            };
            let conclusion = conclusions.iter().find(|one| tested["said"] == one.said).unwrap();
            assert_eq!(tested["standing"], is_it(&conclusion.claim), "{}: {tested}", preset.name);
        }
    }
}

/// Times per operation: the reciprocal of a rate.
#[test]
fn costs_are_more_where_encryption_costs_more() {
    for preset in studies() {
        let run = as_published(preset);
        let document: Value = serde_json::from_str(&json(&run.report()).unwrap()).unwrap();
        let rows = document["study"]["numbers"].as_array().unwrap();
        for (row, number) in rows.iter().zip(preset.numbers()) {
            let Some(place) = number.place.filter(|_| number.unlike.is_none()) else { continue };
            let slower = match place.metric.direction() {
                MetricDirection::HigherIsBetter => place.ratio < 1.0,
                MetricDirection::LowerIsBetter => place.ratio > 1.0,
            };
            assert_eq!(row["published_cost"].as_f64().unwrap() > 1.0, slower, "{row}");
        }
    }
}

#[test]
fn twice_the_published_cost_differs() {
    for preset in studies() {
        let run = with_ratios(preset, 2.0);
        let document: Value = serde_json::from_str(&json(&run.report()).unwrap()).unwrap();
        let rows = document["study"]["numbers"].as_array().unwrap();
        let marks: Vec<&str> = rows.iter().map(|row| row["comparison"].as_str().unwrap()).collect();
        let of = |kind: &str| marks.iter().filter(|mark| **mark == kind).count();
        // Twice the cost of one build may be that of another.
        assert!(of("differ") > 2 * of("agree"), "{}: {marks:?}", preset.name);
    }
}
