//! The sidecar finds exactly the statements that a server runs for a text, with any literals and comments.
//!
//! Texts have statements that leave a mark, in the open and within literals, names and comments. The server runs them; the
//! resulting marks are compared with the found ones.

use std::cell::Cell;
use std::collections::BTreeSet;

use ciphertoll_net::blocking::Client;
use ciphertoll_wire::postgres::sql::{Effects, StringSyntax};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::fixture::Fixture;
use crate::ours;

const CASES: u32 = 1_000;
/// The minimum of texts that the server must accept; with fewer the comparison shows little.
const LEAST_UNDERSTOOD: u32 = CASES / 4;
/// Stands for the number of a mark.
const NUMBER: char = '@';
const MARK: &str = "; SET probe.s@ = 1; ";
/// Fragments that look like the start or end of a construct.
const PIECES: [&str; 28] = [
    "'", "''", "\\", "\\'", "\\\\", "\"", "$", "$$", "$a$", "$a", "$1", "--", "/*", "*/", "*", "/", "-",
    "\n", "\r", ";", " ", "E", "e'", "x", "é", "U&", MARK, MARK,
];

pub(super) fn statements_are_found_where_the_server_finds_them(fixture: &mut Fixture) {
    let mut client = ours::client(&fixture.plain()).expect("the login succeeds");
    for (strings, value) in [(StringSyntax::Standard, "on"), (StringSyntax::Escaped, "off")] {
        let begin = format!(
            "SET standard_conforming_strings = {value}; SET escape_string_warning = off; \
             SET backslash_quote = on; SET client_min_messages = error"
        );
        let understood = Cell::new(0);
        let client = std::cell::RefCell::new(&mut client);
        let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
        let checked = TestRunner::new(config).run(&text(strings), |text| {
            let marks = run(&mut client.borrow_mut(), &begin, &text);
            understood.set(understood.get() + u32::from(marks.is_some()));
            marks.map_or(Ok(()), |marks| compare(&text, strings, &marks))
        });
        checked.unwrap_or_else(|error| panic!("standard_conforming_strings = {value}: {error}"));
        assert!(understood.get() >= LEAST_UNDERSTOOD, "{} texts were understood ({value})", understood.get());
    }
}

/// The resulting marks on the server; `None` if it refused the text.
fn run(client: &mut Client, begin: &str, text: &str) -> Option<BTreeSet<usize>> {
    client.query("DISCARD ALL").expect("a session as new");
    client.query(begin).expect("the settings");
    client.query(text).ok()?;
    let count = text.matches("probe.s").count();
    let looks = (0..count).map(|number| format!("current_setting('probe.s{number}', true)"));
    let looks: Vec<String> = std::iter::once("'0'".to_owned()).chain(looks).collect();
    let rows = client.query(&format!("SELECT {}", looks.join(", "))).expect("the marks");
    let values = rows.into_iter().next().expect("a row").into_iter().skip(1);
    Some(
        values
            .enumerate()
            .filter(|(_, value)| value.as_deref() == Some(b"1"))
            .map(|(number, _)| number)
            .collect(),
    )
}

fn compare(text: &str, strings: StringSyntax, marks: &BTreeSet<usize>) -> Result<(), TestCaseError> {
    let read = |strings| {
        let effects = Effects::of(text.as_bytes(), strings);
        let numbers = effects
            .settings
            .iter()
            .filter_map(|name| str::from_utf8(name).ok()?.strip_prefix("probe.s")?.parse().ok());
        (numbers.collect::<BTreeSet<usize>>(), effects.pin)
    };
    let (found, pin) = read(strings);
    prop_assert!(pin.is_none(), "{:?} pins for {:?}", text, pin);
    prop_assert_eq!(&found, marks, "{:?}", text);
    let (found, pin) = read(StringSyntax::Unknown);
    prop_assert!(pin.is_some() || found == *marks, "{:?}, not knowing: {:?}", text, found);
    Ok(())
}

/// Statements with marks, numbered.
fn text(strings: StringSyntax) -> impl Strategy<Value = String> {
    let statement = prop_oneof![
        3 => select(strings),
        2 => blank().prop_map(|blank| format!("SET{blank}probe.s@ = 1")),
    ];
    prop::collection::vec((statement, blank()), 1..5).prop_map(|statements| {
        let statements = statements.iter().map(|(statement, blank)| format!("{statement}{blank}"));
        let text = statements.collect::<Vec<_>>().join(";");
        let mut numbers = 0..;
        let number = |character| match character {
            NUMBER => numbers.next().map(|number: usize| number.to_string()).unwrap_or_default(),
            other => other.to_string(),
        };
        text.chars().map(number).collect()
    })
}

fn select(strings: StringSyntax) -> impl Strategy<Value = String> {
    let item = (literal(strings), blank(), prop::option::of(content()), blank());
    prop::collection::vec(item, 1..4).prop_map(|items| {
        let item = |(literal, before, alias, behind): (String, String, Option<String>, String)| {
            let alias = alias.map(|alias| format!(" AS \"x{}\"", alias.replace('"', "\"\"")));
            format!("{literal}{before}{}{behind}", alias.unwrap_or_default())
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
        3 => Just(" ".to_owned()),
        1 => Just("\n\t".to_owned()),
        1 => (content(), prop::sample::select(vec!["\n", "\r", "\n'; -- '\n"])).prop_map(|(content, end)| {
            format!(" --{}{end}", content.replace(['\n', '\r'], " "))
        }),
        1 => content().prop_map(|content| format!(" /* {content} */ ")),
        1 => content().prop_map(|content| format!(" /* /*{} */ */ ", content.replace(['*', '/'], ""))),
    ]
}

/// A literal of any kind, well-formed or random.
fn literal(strings: StringSyntax) -> impl Strategy<Value = String> {
    let plain = move |content: &str| match strings {
        StringSyntax::Escaped => escaped(content),
        _ => doubled(content),
    };
    prop_oneof![
        3 => (content(), prop::sample::select(vec!["", "N", "n"])).prop_map(move |(content, mark)| {
            format!("{mark}'{}'", plain(&content))
        }),
        2 => (content(), prop::sample::select(vec!["", "N", "E"])).prop_map(|(content, mark)| {
            format!("{mark}'{content}'")
        }),
        3 => (content(), prop::sample::select(vec!["E", "e"])).prop_map(|(content, mark)| {
            format!("{mark}'{}'", escaped(&content))
        }),
        1 => content().prop_map(|content| format!("U&'{}'", doubled(&content.replace('\\', "\\\\")))),
        1 => prop::sample::select(vec!["B'01'", "x'1F'", "X'1'\n'F'", "b'' -- '\n '1'"]).prop_map(ToOwned::to_owned),
        // It continues on another line.
        2 => (content(), content(), blank()).prop_map(|(first, second, blank)| {
            format!("E'{}'{}\n'{}'", escaped(&first), blank, escaped(&second))
        }),
        2 => (content(), content(), blank()).prop_map(move |(first, second, blank)| {
            format!("'{}'{}\n'{}'", plain(&first), blank, plain(&second))
        }),
        2 => (content(), prop::sample::select(vec!["$$", "$q$", "$Q1_é$"])).prop_map(|(content, tag)| {
            format!("{tag}{content}{tag}")
        }),
    ]
}

fn doubled(content: &str) -> String {
    content.replace('\'', "''")
}

/// Quotes are doubled and escaped in turn.
fn escaped(content: &str) -> String {
    let mut quotes = ["\\'", "''"].into_iter().cycle();
    let character = |character| match character {
        '\\' => "\\\\".to_owned(),
        '\'' => quotes.next().unwrap_or_default().to_owned(),
        other => other.to_string(),
    };
    content.chars().map(character).collect()
}
