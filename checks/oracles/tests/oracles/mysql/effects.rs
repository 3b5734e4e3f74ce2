//! The sidecar finds exactly the settings that a server changes for a text, with any literals and comments.
//!
//! Texts have statements that change settings, in the open and within literals, names and comments. The server runs them;
//! the changed settings are compared with the found ones.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;

use ciphertoll_net::blocking::Client;
use ciphertoll_wire::mysql::sql::{Effects, Escapes};
use ciphertoll_wire::mysql::{self, StatementsPerQuery};
use ciphertoll_wire::session::Login;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::fixture::Fixture;
use crate::ours;

const CASES: u32 = 500;
/// The minimum of texts that the server must accept; with fewer the comparison shows little.
const LEAST_UNDERSTOOD: u32 = CASES / 8;
/// Stands for the name of a setting.
const NAME: char = '@';
const MARK: &str = "; SET @ = 17; ";
/// None of them is 17 by default, or has an effect here.
const SETTINGS: [&str; 8] = [
    "auto_increment_increment",
    "auto_increment_offset",
    "div_precision_increment",
    "lock_wait_timeout",
    "max_sort_length",
    "net_retry_count",
    "interactive_timeout",
    "wait_timeout",
];
/// Fragments that look like the start or end of a construct.
const PIECES: [&str; 25] = [
    "'", "''", "\\", "\\'", "\\\\", "\"", "\\\"", "\"\"", "`", "-- ", "--", "--\t", "#", "/*", "*/", "/*!",
    "/*M!", "/*+ ", "\n", ";", " ", "x", "é", MARK, MARK,
];

pub(super) fn settings_are_found_where_the_server_finds_them(fixture: &mut Fixture) {
    let Login::MySql(login) = ours::login(&fixture.plain()) else { unreachable!("another protocol's login") };
    let login = mysql::MySqlLogin { statements: StatementsPerQuery::Several, ..(*login).clone() };
    let client = Client::connect(&fixture.plain().address, Login::MySql(Arc::new(login)), None);
    let client = RefCell::new(client.expect("the login succeeds"));
    for (mode, escapes) in [
        ("", Escapes::Backslash),
        ("NO_BACKSLASH_ESCAPES", Escapes::None),
        ("ANSI_QUOTES", Escapes::Backslash),
        ("ANSI_QUOTES,NO_BACKSLASH_ESCAPES", Escapes::None),
    ] {
        let understood = Cell::new(0);
        let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
        let checked = TestRunner::new(config).run(&text(escapes), |text| {
            let (changed, outcome) = run(&mut client.borrow_mut(), mode, &text);
            understood.set(understood.get() + u32::from(outcome == Outcome::Understood));
            compare(&text, escapes, &changed, outcome)
        });
        checked.unwrap_or_else(|error| panic!("sql_mode = '{mode}': {error}"));
        assert!(understood.get() >= LEAST_UNDERSTOOD, "{} texts were understood ({mode})", understood.get());
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Understood,
    /// A statement was refused, and those after it were not run.
    Refused,
}

/// The settings that the server has changed.
fn run(client: &mut Client, mode: &str, text: &str) -> (BTreeSet<String>, Outcome) {
    client.query("SET sql_mode = ''").expect("a setting");
    let defaults = SETTINGS.map(|name| format!("{name} = DEFAULT")).join(", ");
    client.query(&format!("SET {defaults}, sql_mode = '{mode}'")).expect("the settings");
    let before = values(client);
    let outcome = if client.query(text).is_ok() { Outcome::Understood } else { Outcome::Refused };
    let after = values(client);
    let changed =
        SETTINGS.iter().zip(before.into_iter().zip(after)).filter(|(_, (before, after))| before != after);
    (changed.map(|(name, _)| (*name).to_owned()).collect(), outcome)
}

fn values(client: &mut Client) -> Vec<Option<Vec<u8>>> {
    let looks = SETTINGS.map(|name| format!("@@{name}")).join(", ");
    client.query(&format!("SELECT {looks}")).expect("the settings").into_iter().flatten().collect()
}

fn compare(
    text: &str,
    escapes: Escapes,
    changed: &BTreeSet<String>,
    outcome: Outcome,
) -> Result<(), TestCaseError> {
    let effects = Effects::of(text.as_bytes(), escapes);
    if effects.pin.is_some() {
        return Ok(());
    }
    let found: BTreeSet<String> = effects.settings.into_iter().collect();
    prop_assert!(found.is_superset(changed), "{:?}: {:?} are changed, {:?} were found", text, changed, found);
    if outcome == Outcome::Understood {
        prop_assert_eq!(&found, changed, "{:?}", text);
    }
    Ok(())
}

fn text(escapes: Escapes) -> impl Strategy<Value = String> {
    let statement = prop_oneof![
        3 => select(escapes),
        2 => blank().prop_map(|blank| format!("SET{blank}@ = 17")),
    ];
    prop::collection::vec((statement, blank()), 1..5).prop_map(|statements| {
        let statements = statements.iter().map(|(statement, blank)| format!("{statement}{blank}"));
        let mut names = SETTINGS.iter().cycle();
        let name = |character| match character {
            NAME => names.next().map(|name| (*name).to_owned()).unwrap_or_default(),
            other => other.to_string(),
        };
        statements.collect::<Vec<_>>().join(";").chars().map(name).collect()
    })
}

fn select(escapes: Escapes) -> impl Strategy<Value = String> {
    let item = (literal(escapes), blank(), prop::option::of(alias()));
    prop::collection::vec(item, 1..4).prop_map(|items| {
        let item = |(literal, blank, alias): (String, String, Option<String>)| {
            format!("{literal}{blank}{}", alias.unwrap_or_default())
        };
        format!("SELECT {}", items.into_iter().map(item).collect::<Vec<_>>().join(","))
    })
}

fn content() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..5).prop_map(|pieces| pieces.concat())
}

/// White space and comments; some comments are unterminated.
fn blank() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just(" ".to_owned()),
        1 => (content(), prop::sample::select(vec!["-- ", "--\t", "#", "--\n"])).prop_map(|(content, mark)| {
            format!(" {mark}{}\n", content.replace('\n', " "))
        }),
        1 => content().prop_map(|content| format!(" /* {} */ ", content.replace('*', "x"))),
        1 => (content(), prop::sample::select(vec!["/*", "/*!", "/*M!", "/*+", "/*!50000 "])).prop_map(
            |(content, mark)| format!(" {mark}{content} */ ")
        ),
    ]
}

fn alias() -> impl Strategy<Value = String> {
    (content(), prop::sample::select(vec!["`", "\""])).prop_map(|(content, quote)| {
        format!(" AS {quote}x{}x{quote}", content.replace(quote, &quote.repeat(2)))
    })
}

/// A literal of any kind, well-formed or random.
fn literal(escapes: Escapes) -> impl Strategy<Value = String> {
    let quoted = move |content: &str, quote: &str| {
        let content = match escapes {
            Escapes::Backslash => content.replace('\\', "\\\\"),
            Escapes::None => content.to_owned(),
        };
        format!("{quote}{}{quote}", content.replace(quote, &quote.repeat(2)))
    };
    prop_oneof![
        3 => (content(), prop::sample::select(vec!["'", "\""])).prop_map(move |(content, quote)| quoted(&content, quote)),
        1 => content().prop_map(move |content| format!("N{}", quoted(&content, "'"))),
        1 => (content(), content()).prop_map(move |(first, second)| {
            format!("{} \n{}", quoted(&first, "'"), quoted(&second, "'"))
        }),
        2 => content().prop_map(|content| format!("'{content}'")),
        1 => content().prop_map(|content| format!("\"{content}\"")),
        1 => Just("1--2".to_owned()),
        1 => Just("x'1F'".to_owned()),
    ]
}
