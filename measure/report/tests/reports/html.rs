//! The page: what it says, that it is whole, and that nothing foreign becomes markup.

use ciphertoll_model::Ending;
use ciphertoll_report::{Style, html, markdown, summary, terminal};

use crate::at_rest::{by_its_cache, crossed};
use crate::fixture::{Run, against, contexts, hostile, noisy, one_block, quick, smoke, troubled};
use crate::simulated::simulated;
use crate::what_if::{calibrated, calibrated_until};

#[test]
fn the_markup_of_a_small_page() {
    insta::assert_snapshot!(skeleton(&html(&one_block().report())));
}

#[test]
fn the_first_thing_said_is_the_answer() {
    let of = |run: &Run| text_of(section(&html(&run.report()), "answer"));
    let advised = of(&quick());
    assert!(
        advised.starts_with("TLS 1.3 with a P-256 certificate: the time to open a connection"),
        "{advised}"
    );
    assert!(advised.contains("What to do\nSwitch on TLS 1.3 with a P-256 certificate."), "{advised}");
    insta::assert_snapshot!(
        [quick(), smoke(), contexts(), noisy(), one_block()]
            .iter()
            .map(of)
            .collect::<Vec<_>>()
            .join("\n---\n")
    );
}

#[test]
fn what_to_do_is_the_decision_of_the_cost_model_for_each_server() {
    let answer = text_of(section(&html(&calibrated().report()), "answer"));
    let (_, what_to_do) = answer.split_once("What to do\n").unwrap();
    insta::assert_snapshot!(what_to_do);
}

#[test]
fn a_run_without_verdicts_advises_nothing() {
    let advises = |run: &Run| {
        let report = run.report();
        let texts = [html(&report), summary(&report, Style::Plain, 100), markdown(&report)];
        texts.map(|text| text.contains("Use ciphertoll-proxy"))
    };
    assert_eq!(advises(&calibrated_until(5, Ending::Interrupted)), [false; 3]);
    assert_eq!(advises(&calibrated_until(6, Ending::Interrupted)), [true; 3]);
}

#[test]
fn the_page_says_the_sentences_of_the_terminal() {
    for run in [quick(), smoke(), troubled(), contexts(), noisy(), simulated()] {
        let page = text_of(&html(&run.report())).replace('\n', " ");
        for sentence in verdicts(&run) {
            assert!(page.contains(&sentence), "{sentence}\nis not in\n{page}");
        }
    }
}

/// The sentence at the top.
fn headline(run: &Run) -> String {
    let page = html(&run.report());
    text_of(page.split_once("id=\"answer-heading\">").unwrap().1.split_once("</h2>").unwrap().0)
}

#[test]
fn the_first_sentence_has_the_worst_case_and_the_number_of_inconclusive_loads() {
    assert_eq!(
        headline(&simulated()),
        "TLS 1.3 with a P-256 certificate: the time to open a connection rises to 3.33 × (3.25–3.41) and the time per query rises by 13 % (11–15 %) in the worst case (point-select at 32 clients)."
    );
    assert_eq!(
        headline(&noisy()),
        "TLS 1.3 with a P-256 certificate: the time to open a connection rises to 3.11 × (2.93–3.29); inconclusive under 1 of 2 loads."
    );
    assert_eq!(
        headline(&crossed()),
        "at-rest gocryptfs, compared with none: on mariadb, the time per transaction rises by 90 % (86–94 %) in the worst case (oltp-read-write at 8 clients); on postgres, the time per transaction rises by 90 % (86–94 %) in the worst case (oltp-read-write at 8 clients)."
    );
    assert_eq!(
        headline(&against("auth=trust", "auth = [\"trust\", \"native\"]")),
        "auth native, compared with trust: the time to open a connection rises by 31 % (27–35 %) and the time per query falls by 11 % (8–13 %)."
    );
}

#[test]
fn a_field_of_the_matrix_has_a_mark_beside_its_colour() {
    let page = html(&noisy().report());
    let matrix = page.split_once("class=\"picture matrix\"").unwrap().1.split_once("</table>").unwrap().0;
    assert_eq!(matrix.matches("<th scope=\"row\"").count(), 3, "plain, TLS 1.3 and TLS 1.2");
    assert_eq!(matrix.matches("<th scope=\"col\"").count(), 3, "the name, connects and selects");
    let marks = [("worse", "▲"), ("better", "▼"), ("same", "="), ("negligible", "≈"), ("unsure", "?")];
    let mut fields = 0;
    for field in matrix.split("<td class=\"tone-").skip(1) {
        let (tone, field) = field.split_once('"').unwrap();
        let (_, mark) = marks.iter().find(|(name, _)| *name == tone).unwrap();
        assert!(field.starts_with(&format!(">\n<span class=\"value\">{mark} ")), "{field}");
        fields += 1;
    }
    assert_eq!(fields, 4);
}

#[test]
fn details_are_closed_and_hold_everything_but_the_first_screen() {
    let page = html(&simulated().report());
    assert!(!page.contains("<details open") && !page.contains("class=\"part\" open"));
    let (first, rest) = page.split_once("id=\"details\"").unwrap();
    let is_without = |part: &str| !first.contains(part) && rest.contains(part);
    for part in ["<svg", "Every comparison in words", "How far to trust this</h3>", "Environment"] {
        assert!(is_without(part), "{part}");
    }
}

#[test]
fn a_published_study_is_in_the_title_and_comes_first() {
    let page = html(&by_its_cache().report());
    let title = page.split_once("<title>").unwrap().1.split_once("</title>").unwrap().0;
    assert!(title.starts_with("Repeat of the published study postgres-tde-2021. What"), "{title}");
    let main = page.split_once("<main").unwrap().1;
    let [published, answer] = [">Published and measured<", "id=\"answer\""].map(|part| main.find(part));
    assert!(published.unwrap() < answer.unwrap());
    assert!(!html(&quick().report()).contains("Published and measured"));
    let own = html(&calibrated().report());
    assert!(!own.contains("published study"), "the preset calibrate repeats no study");
}

/// The sentences under the title of the terminal's report, each in one line.
fn verdicts(run: &Run) -> Vec<String> {
    let text = terminal(&run.report(), Style::Plain, 100);
    let (_, rest) = text.split_once("\n\n").unwrap();
    let mut sentences: Vec<String> = Vec::new();
    for line in rest.lines().take_while(|line| line.starts_with(' ') || !line.contains(" · ")) {
        match line.strip_prefix("  ").map(|line| line.split_at_checked(line.find(' ').unwrap_or(0))) {
            Some(Some((mark, words))) if mark.chars().count() == 1 => sentences.push(words.trim().to_owned()),
            Some(Some(("", words))) => {
                let sentence = sentences.last_mut().unwrap();
                sentence.push(' ');
                sentence.push_str(words.trim());
            }
            _ => {}
        }
    }
    assert!(!sentences.is_empty(), "{text}");
    sentences
}

#[test]
fn nothing_foreign_becomes_markup() {
    let run = hostile();
    let page = html(&run.report());
    assert_eq!(page.matches("<script").count(), 1, "the page's own");
    assert!(!page.contains("<img") && !page.contains("onerror=alert(2)>"));
    assert!(page.matches("&lt;script&gt;alert(1)&lt;/script&gt;").count() >= 8, "it is shown as it is");
    assert!(page.chars().all(|c| c == '\n' || !c.is_control()));
}

#[test]
fn the_page_asks_for_nothing() {
    let page = html(&simulated().report());
    for attribute in ["src=", "srcset=", "url(", "@import", "http://", "https://"] {
        assert!(!page.contains(attribute), "{attribute}");
    }
    let addresses = page.split("href=\"").skip(1);
    assert_eq!(addresses.clone().count(), 2, "to the answer, and to its limits");
    assert!(addresses.into_iter().all(|address| address.starts_with('#')), "links stay in the page");
    assert!(page.contains("default-src 'none'") || page.contains("default-src &#39;none&#39;"));
}

#[test]
fn every_id_is_given_once_and_every_reference_leads_somewhere() {
    for run in [simulated(), quick(), troubled(), contexts(), one_block()] {
        let page = html(&run.report());
        let ids = attributes(&page, "id");
        let mut distinct = ids.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), ids.len());
        let named = attributes(&page, "aria-labelledby");
        let linked = attributes(&page, "href");
        let wanted = named.iter().flat_map(|names| names.split(' '));
        let wanted = wanted.chain(linked.iter().map(|link| link.trim_start_matches('#')));
        for id in wanted {
            assert!(ids.contains(&id), "{id}");
        }
    }
}

#[test]
fn headings_go_down_one_level_at_a_time() {
    for run in [simulated(), quick(), troubled(), one_block()] {
        let page = html(&run.report());
        let levels =
            page.match_indices("<h").filter_map(|(at, _)| page[at + 2..].chars().next()?.to_digit(10));
        let levels: Vec<u32> = levels.collect();
        assert_eq!(levels.iter().filter(|level| **level == 1).count(), 1);
        assert_eq!(levels[0], 1);
        assert!(levels.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{levels:?}");
    }
}

#[test]
fn every_chart_has_words_and_numbers_beside_it() {
    let page = html(&simulated().report());
    let figures: Vec<&str> =
        page.split("<figure").skip(1).map(|rest| rest.split("</figure>").next().unwrap()).collect();
    assert_eq!(
        figures.len(),
        19,
        "five of the connects, four of each of three selects, one over clients, one of what a connect is made of"
    );
    for figure in figures {
        assert!(figure.contains("<svg") && figure.contains("role=\"img\""));
        for element in ["title id", "desc id"] {
            let (_, rest) = figure.split_once(&format!("<{element}")).unwrap();
            assert!(!text_of(rest.split_once('<').unwrap().0.split_once('>').unwrap().1).is_empty());
        }
        assert!(
            figure.contains("<details>") && figure.contains("<caption") && figure.contains("scope=\"row\"")
        );
    }
}

#[test]
fn rates_are_drawn_against_clients_only_where_there_are_several() {
    assert!(html(&simulated().report()).contains("Rate by number of clients"));
    assert!(!html(&quick().report()).contains("Rate by number of clients"));
}

#[test]
fn the_same_record_gives_the_same_bytes() {
    assert_eq!(html(&simulated().report()), html(&simulated().report()));
}

/// Marks need 3:1 and text 4.5:1 (WCAG 2.2, 1.4.11 and 1.4.3).
#[test]
fn colours_can_be_told_from_their_ground() {
    const TEXT: [&str; 9] =
        ["text", "muted", "link", "worse", "better", "same", "negligible", "unsure", "caution"];
    let style = include_str!("../../src/html/assets/style.css");
    let (light, dark) = style.split_once("prefers-color-scheme: dark").unwrap();
    let dark = dark.split_once("* { box-sizing").unwrap().0;
    for theme in [light, dark] {
        let ground = luminance(theme, "ground");
        let contrast = |name: &str| contrast(luminance(theme, name), ground);
        for name in TEXT {
            assert!(contrast(name) >= 4.5, "{name}: {:.2}", contrast(name));
        }
        // Names stand inside the parts of bars, in the colour of the ground.
        for name in colours(theme).filter(|name| name.starts_with("phase-") || name.starts_with("series-")) {
            assert!(contrast(name) >= 4.5, "{name}: {:.2}", contrast(name));
        }
        for tone in ["worse", "better", "same", "negligible", "unsure"] {
            let field = luminance(theme, &format!("{tone}-ground"));
            for name in ["text", "muted", tone] {
                let contrast = self::contrast(luminance(theme, name), field);
                assert!(contrast >= 4.5, "{name} on {tone}: {contrast:.2}");
            }
        }
        for name in ["line", "margin-edge", "focus"] {
            assert!(contrast(name) >= 3.0, "{name}: {:.2}", contrast(name));
        }
        let caution = luminance(theme, "caution-ground");
        assert!(self::contrast(luminance(theme, "text"), caution) >= 4.5);
    }
}

fn colours(theme: &str) -> impl Iterator<Item = &str> {
    let declarations = theme.lines().filter_map(|line| line.trim().strip_prefix("--"));
    declarations.filter_map(|line| Some(line.split_once(':')?.0))
}

/// Relative luminance as WCAG defines it.
fn luminance(theme: &str, name: &str) -> f64 {
    let (_, rest) = theme.split_once(&format!("--{name}: #")).expect("every colour is in both themes");
    let channel = |from: usize| {
        let share = f64::from(u8::from_str_radix(&rest[from..from + 2], 16).unwrap()) / 255.0;
        if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * channel(0) + 0.7152 * channel(2) + 0.0722 * channel(4)
}

fn contrast(one: f64, other: f64) -> f64 {
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

/// Values of an attribute, in order.
fn attributes<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let opening = format!(" {name}=\"");
    page.split(opening.as_str()).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0)).collect()
}

/// Without what has its own tests: the style sheet, the scripts and the charts.
pub(crate) fn skeleton(page: &str) -> String {
    ["style", "script", "svg"].iter().fold(page.to_owned(), |page, element| {
        let (opening, closing) = (format!("<{element}"), format!("</{element}>"));
        let mut pieces = page.split(opening.as_str());
        let first = pieces.next().unwrap_or_default().to_owned();
        pieces.fold(first, |text, piece| {
            format!("{text}{opening}>…{closing}{}", piece.split_once(closing.as_str()).unwrap().1)
        })
    })
}

fn section<'a>(page: &'a str, id: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("id=\"{id}\"")).unwrap();
    rest.split_once('>').unwrap().1.split_once("</section>").unwrap().0
}

/// What is read, a line for each element that has any.
pub(crate) fn text_of(markup: &str) -> String {
    let mut text = String::new();
    for piece in markup.split('<') {
        let words = piece.split_once('>').map_or(piece, |(_, words)| words);
        text.push_str(words);
        text.push('\n');
    }
    for (entity, character) in [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&amp;", "&"),
        ("&nbsp;", " "),
        ("\u{a0}", " "),
        ("\u{2060}", ""),
    ] {
        text = text.replace(entity, character);
    }
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}
