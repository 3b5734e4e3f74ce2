//! What `ciphertoll observe` saw, as Markdown, CSV, a page and a schema; with text that peers chose, too.

use ciphertoll_observe::Observation;
use ciphertoll_report::{observation_csv, observation_html, observation_markdown, observation_schema};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::browser::{evaluated, page_laid_out, seen_page};
use crate::hostile::{sample, text, with_text};
use crate::schema::{fault, golden};

#[test]
fn a_ticket_has_the_facts_as_tables_and_the_findings_as_a_list() {
    insta::assert_snapshot!(observation_markdown(&sample()));
}

#[test]
fn a_spreadsheet_has_a_row_for_each_pair_and_kind_of_encryption() {
    let rows = parsed(&observation_csv(&sample()));
    // Transposed: a column per row of the spreadsheet would be too wide to read.
    let columns =
        (0..rows[0].len()).map(|at| rows.iter().map(|row| row[at].as_str()).collect::<Vec<_>>().join(" | "));
    insta::assert_snapshot!(columns.collect::<Vec<_>>().join("\n"));
}

#[test]
fn an_observation_without_connections_has_every_format() {
    let nothing = Observation { pairs: Vec::new(), findings: Vec::new(), ..sample() };
    assert!(observation_html(&nothing).contains("No database connection was seen."));
    assert!(observation_markdown(&nothing).contains("No database connection was seen."));
    assert_eq!(parsed(&observation_csv(&nothing)).len(), 1, "the header");
}

#[test]
fn lists_that_are_too_long_say_what_is_left_out() {
    let mut many = sample();
    let (pair, finding) = (many.pairs[2].clone(), many.findings[0].clone());
    many.pairs.resize(300, pair);
    many.findings.resize(300, finding);
    let markdown = observation_markdown(&many);
    assert!(markdown.contains("275 pairs more") && markdown.contains("275 findings more"), "{markdown}");
    let page = observation_html(&many);
    assert!(page.contains("100 pairs more") && page.contains("100 findings more"));
    assert_eq!(parsed(&observation_csv(&many)).len(), 1 + 3 + 2 + 298, "a spreadsheet has all");
}

#[test]
fn the_schema_of_an_observation_is_the_golden_one_and_observations_keep_to_it() {
    let schema: Value = serde_json::from_str(&observation_schema()).unwrap();
    let golden: Value =
        serde_json::from_str(&golden("observation.schema.json", &observation_schema())).unwrap();
    assert_eq!(schema, golden, "documents only grow: UPDATE_GOLDEN=1 writes the schema anew");
    for observation in [sample(), with_text(&["x".to_owned()])] {
        let document = serde_json::to_value(&observation).unwrap();
        assert_eq!(fault(&schema, &document), None);
        let read: Observation = serde_json::from_value(document).unwrap();
        assert_eq!(read, observation);
    }
}

#[test]
fn the_page_of_an_observation_is_whole_by_itself() {
    let page = observation_html(&sample());
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("src="));
    let Some(seen) = seen_page(&page) else { return };
    seen.assert_quiet();
    seen.assert_alone();
    let button = seen.dom.split_once("<button").expect("there is a button").1;
    assert!(!button.split_once('>').expect("a tag ends").0.contains("hidden"), "the script ran");
}

#[test]
fn the_page_of_an_observation_fits_a_phone() {
    for observation in [sample(), with_text(&["wide".repeat(100)])] {
        let Some((width, _)) = page_laid_out(&observation_html(&observation), 390) else { return };
        assert!(width <= 390, "{width}");
    }
}

/// With all columns, and addresses that are as long as addresses may be.
#[test]
fn the_table_of_connections_fits_a_desktop() {
    let mut observation = sample();
    for pair in &mut observation.pairs {
        pair.client = "2001:0db8:85a3:1234:5678:8a2e:0370:7334".to_owned();
        pair.server_name = Some("orders-primary.databases.eu-west.example.com".to_owned());
        pair.connections.began_before = 12_345_678;
        let estimate = json!({ "value": 0.875, "low": -0.0123, "high": 12.5 });
        let cost = json!({
            "run": "20261121T000000Z-calibrate-aaaa", "paths": [], "unknown_share": 0.0, "without_began_before": 0,
            "missing": [], "cores": estimate, "sidecar": { "cores": estimate, "connect_ms": estimate },
        });
        pair.cost = Some(serde_json::from_value(cost).expect("a cost"));
    }
    let page = observation_html(&observation);
    for heading in ["began", "cost", "sidecar saves", "failed"] {
        assert!(page.replace('\u{a0}', " ").contains(heading), "{heading}");
    }
    let widths =
        "['clientWidth', 'scrollWidth'].map(name => page.querySelector('.answer .scroll')[name]).join(' ')";
    let Some(widths) = evaluated(&page, 1280, widths) else { return };
    let (shown, whole) = widths.split_once(' ').expect("two numbers");
    let [shown, whole] = [shown, whole].map(|width| width.parse::<u32>().expect("a width"));
    assert!(whole <= shown && shown > 800, "{whole} of {shown}");
}

#[test]
fn markup_of_peers_does_nothing() {
    const MARKUP: &str = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&";
    let page = observation_html(&with_text(&[MARKUP.to_owned()]));
    assert_eq!(page.matches("<script").count(), 1, "the page's own");
    let Some(seen) = seen_page(&page) else { return };
    seen.assert_quiet();
    seen.assert_alone();
    assert!(!seen.dom.contains("<img"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_text_of_peers_breaks_a_format(texts in prop::collection::vec(text(), 1..6)) {
        let (observation, plain) = (with_text(&texts), with_text(&["x".to_owned()]));
        // A spreadsheet: as many fields in every row, and no formula.
        let rows = parsed(&observation_csv(&observation));
        prop_assert_eq!(rows.len(), parsed(&observation_csv(&plain)).len());
        for row in &rows {
            prop_assert_eq!(row.len(), rows[0].len());
            let is_formula = |field: &&String| {
                field.trim_start().starts_with(['=', '+', '-', '@']) && field.parse::<f64>().is_err()
            };
            prop_assert_eq!(row.iter().find(is_formula), None);
        }
        // Markdown: as many lines, and columns in each row of a table.
        let (markdown, expected) = (observation_markdown(&observation), observation_markdown(&plain));
        let has_control = |text: &str| text.chars().any(|c| c != '\n' && c.is_control());
        prop_assert!(!markdown.contains("<script") && !has_control(&markdown));
        let bars = |text: &str| -> Vec<usize> {
            let row = |line: &&str| line.starts_with('|');
            let cells = |line: &str| line.replace("\\\\", "").replace("\\|", "").matches('|').count();
            text.lines().filter(row).map(cells).collect()
        };
        let mut columns = bars(&markdown);
        columns.dedup();
        let mut expected = bars(&expected);
        expected.dedup();
        prop_assert!(columns.iter().all(|count| expected.contains(count)), "{}", markdown);
        // The page: as many elements.
        let page = observation_html(&observation);
        prop_assert_eq!(page.matches("<script").count(), 1);
        prop_assert!(!has_control(&page));
    }
}

/// RFC 4180, read by another way than it is written.
fn parsed(csv: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut field) = (Vec::new(), Vec::new(), String::new());
    let (mut quoted, mut characters) = (false, csv.chars().peekable());
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.next_if_eq(&'"').is_some() => field.push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut field)),
            '\r' if !quoted && characters.next_if_eq(&'\n').is_some() => {
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
            }
            other => field.push(other),
        }
    }
    assert!(!quoted && row.is_empty() && field.is_empty(), "the last line ends");
    rows
}
