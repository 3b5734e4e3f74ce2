//! Sessions that move to another connection: messages that are sent before earlier ones are answered.

use ciphertoll_wire::postgres::column::ValueFormat;
use ciphertoll_wire::postgres::command::{encode_bind, encode_execute};

use crate::followed::{
    Fixture, INT, TEXT, answers, close, column, describe, execute, flush, message, moved, parameter, parse,
    query, sync, typed_parse,
};

const READS: &str = "SELECT a FROM t WHERE b = $1";

/// The server's error for a statement whose columns have changed.
fn is_changed_type(told: &[u8]) -> bool {
    told.windows(7).any(|bytes| bytes == b"C0A000\0")
}

/// What the proxy sends by itself.
fn own(fixture: &mut Fixture) -> Vec<u8> {
    assert!(fixture.relay.owes_own(&fixture.follow));
    let mut own = Vec::new();
    fixture.relay.write_own(&mut fixture.follow, &mut own).expect("commands");
    own
}

#[test]
fn columns_are_compared_behind_the_answers_to_earlier_batches() {
    let use_it = [execute("s"), sync()].concat();
    for (first, answer) in [
        (sync(), "Z"),
        ([parse("", "SELEC"), execute(""), sync()].concat(), "EZ"),
        ([parse("", "SELECT 1"), execute(""), sync()].concat(), "12DCZ"),
    ] {
        for is_changed in [false, true] {
            let mut fixture = moved(READS, INT, &column("a", TEXT, 1));
            let sent = fixture.up(&[&first[..], &use_it].concat(), 1000);
            assert_eq!(sent, [&first[..], &typed_parse("s", READS, INT), &describe("s"), &use_it].concat());
            assert_eq!(fixture.down(&answers(answer), 1000), answers(answer));
            let now = column("a", if is_changed { INT } else { TEXT }, 1);
            let down = [&answers("1")[..], &parameter(INT), &now, &answers("2DCZ")].concat();
            assert_eq!(fixture.down(&down, 7), if is_changed { Vec::new() } else { answers("2DCZ") });
            if is_changed {
                assert_eq!(fixture.up(&sync(), 1000), b"", "its error comes first");
                assert!(own(&mut fixture).starts_with(&close("s")));
                let told = fixture.down(&answers("3EZ"), 7);
                assert!(is_changed_type(&told) && told.ends_with(&answers("Z")), "{answer}");
            }
        }
    }
}

/// What was executed speculatively fails behind the command of the proxy that fails in its place.
#[test]
fn an_error_in_front_of_the_one_that_the_proxy_causes_takes_its_place() {
    let mut fixture = moved(READS, INT, &column("a", TEXT, 1));
    let rest = [parse("", "SELECT 1"), sync()].concat();
    let sent = fixture.up(&[&execute("s")[..], &rest].concat(), 1000);
    assert!(sent.ends_with(&[execute("s"), flush()].concat()));
    assert_eq!(fixture.down(&[answers("1"), parameter(INT), column("a", INT, 1)].concat(), 1000), b"");
    assert!(own(&mut fixture).starts_with(&close("s")));
    let told = fixture.down(&answers("2E"), 1000);
    assert!(is_changed_type(&told), "{told:?}");
    assert_eq!(fixture.continue_client(), rest);
    assert_eq!(fixture.down(&answers("Z"), 1000), answers("Z"));
}

const ADDS: &str = "INSERT INTO u DEFAULT VALUES";

fn bind(portal: &str, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_bind(&mut bytes, portal, name, &[], ValueFormat::Text).expect("a portal");
    bytes
}

fn run(portal: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_execute(&mut bytes, portal, 0).expect("a portal");
    bytes
}

#[test]
fn no_other_portal_runs_before_columns_are_compared() {
    let (first, again) = ([parse("", ADDS), bind("p", "")].concat(), typed_parse("s", READS, INT));
    for piece in [1, 1000] {
        let mut fixture = moved(READS, INT, &column("a", TEXT, 1));
        let batch = [&first[..], &execute("s"), &run("p"), &sync()].concat();
        let sent = fixture.up(&batch, piece);
        assert_eq!(sent, [&first[..], &again, &describe("s"), &execute("s"), &flush()].concat());
        let changed = [answers("121"), parameter(INT), column("a", INT, 1), answers("2DC")].concat();
        assert_eq!(fixture.down(&changed, piece), answers("12"));
        assert!(own(&mut fixture).starts_with(&close("s")));
        assert!(is_changed_type(&fixture.down(&answers("3E"), piece)));
        assert_eq!(fixture.continue_client(), [run("p"), sync()].concat(), "the server skips it");
    }
    // The statement's portal has a name, as another one might.
    let mut fixture = moved(READS, INT, &column("a", TEXT, 1));
    let rest = [bind("q", "s"), run("q"), run("p"), sync()].concat();
    let sent = fixture.up(&[&first[..], &rest].concat(), 1000);
    assert_eq!(sent, [&first[..], &again, &describe("s"), &flush()].concat());
    let changed = [answers("121"), parameter(INT), column("a", INT, 1)].concat();
    assert_eq!(fixture.down(&changed, 1000), answers("12"));
    let sent = fixture.continue_client();
    assert!(sent.starts_with(&close("s")) && sent.ends_with(&rest), "a message that fails is in front");
}

/// Which statement it is depends on a `Parse` or `Close` of an earlier batch, which fails.
#[test]
fn a_statement_that_was_not_replaced_has_its_effects() {
    for first in [
        [parse("s", "SELECT 1"), sync()].concat(),
        [parse("", "SELEC"), close("s"), sync()].concat(),
        [parse("", "SELEC"), close("s"), parse("s", "SELECT 1"), sync()].concat(),
        [parse("s", "SELECT 1"), sync(), parse("s", "SELECT 2"), sync()].concat(),
    ] {
        for (use_it, answer) in [
            ([execute("s"), sync()].concat(), "2CZ"),
            (query("EXECUTE s"), "CZ"),
            ([parse("", "EXECUTE s"), execute(""), sync()].concat(), "12CZ"),
        ] {
            let mut fixture = Fixture::default();
            fixture.up(&[parse("s", "SET work_mem = '9MB'"), sync()].concat(), 1000);
            fixture.down(&answers("1tnZ"), 1000);
            fixture.up(&[first.clone(), use_it].concat(), 1000);
            let batches = first.windows(5).filter(|bytes| bytes == b"S\0\0\0\x04").count();
            fixture.down(&answers(&"EZ".repeat(batches)), 1000);
            fixture.continue_client();
            assert_eq!(fixture.down(&answers(answer), 1000), answers(answer));
            let settings = fixture.follow.settle().unwrap_or_default().settings;
            assert_eq!(settings, [b"work_mem"], "{answer} {}", String::from_utf8_lossy(&first));
        }
    }
}

#[test]
fn a_batch_waits_for_earlier_ones_only_if_it_matters() {
    let use_it = [execute("s"), sync()].concat();
    // A new name, or the same text: the next batch need not wait.
    for known in [None, Some("SELECT 1")] {
        let mut fixture = Fixture::default();
        if let Some(sql) = known {
            fixture.up(&[parse("s", sql), sync()].concat(), 1000);
            fixture.down(&answers("1tnZ"), 1000);
        }
        let first = [parse("s", "SELECT 1"), describe("s"), sync()].concat();
        assert_eq!(fixture.up(&[&first[..], &use_it].concat(), 1000), [&first[..], &use_it].concat());
    }
}

/// SQL fetches from a portal with a name, as from a cursor.
#[test]
fn a_portal_that_a_text_may_execute_has_effects() {
    for (portal, settings) in [("p", &[b"work_mem"][..]), ("", &[])] {
        let mut fixture = Fixture::default();
        fixture.up(&query("BEGIN"), 1000);
        fixture.down(&[answers("C"), message(b'Z', b"T")].concat(), 1000);
        let call = parse("", "SELECT set_config('work_mem', '9MB', false)");
        fixture.up(&[call, bind(portal, ""), sync(), query("FETCH ALL FROM p")].concat(), 1000);
        fixture.down(&[answers("12"), message(b'Z', b"T"), answers("TDCZ")].concat(), 1000);
        assert_eq!(fixture.follow.settle().unwrap_or_default().settings, settings, "{portal}");
    }
}
