//! How a server reads texts, and statements that are prepared again on another connection: what they mean, and what
//! describes them.

use ciphertoll_wire::postgres::column::ValueFormat;
use ciphertoll_wire::postgres::command::{encode_bind, encode_execute};

use crate::followed::{
    Fixture, INT, TEXT, answers, close, column, describe, execute, flush, message, moved, parameter, parse,
    query, sync, tag, typed_parse,
};

#[test]
fn constants_keep_their_meaning_behind_a_set_that_is_not_reported() {
    let text = "SELECT xml '<a/>'";
    let (set, use_it) = (query("SET xmloption = document"), [execute("s"), sync()].concat());
    // The text comes on a connection that lacks the statement: it is prepared first.
    let mut fixture = moved(text, INT, &column("a", TEXT, 1));
    let again = [typed_parse("s", text, INT), describe("s"), sync()].concat();
    assert_eq!(fixture.up(&set, 1000), again);
    assert!(fixture.follow.is_preparing());
    let same = [&answers("1")[..], &parameter(INT), &column("a", TEXT, 1), &answers("Z")].concat();
    assert_eq!(fixture.down(&same, 3), b"");
    assert_eq!(fixture.continue_client(), set);
    fixture.down(&answers("CZ"), 3);
    assert_eq!(fixture.up(&use_it, 1000), use_it);

    // It cannot be prepared: it is not prepared later, with another meaning.
    let mut fixture = moved(text, INT, &column("a", TEXT, 1));
    fixture.up(&set, 1000);
    fixture.down(&answers("EZ"), 3);
    assert_eq!(fixture.continue_client(), set);
    fixture.down(&answers("CZ"), 3);
    assert_eq!(fixture.up(&use_it, 1000), use_it, "the server says that there is none");

    // The server would not skip what is behind the proxy's `Sync`: what is before must have succeeded.
    let mut fixture = moved(text, INT, &column("a", TEXT, 1));
    let first = parse("", "SET xmloption = document");
    assert_eq!(
        fixture.up(&[&first[..], &execute(""), &sync()].concat(), 1000),
        [&first[..], &flush()].concat()
    );
    assert_eq!(fixture.down(&answers("E"), 1000), answers("E"));
    assert_eq!(fixture.continue_client(), [execute(""), sync()].concat());
    assert_eq!(fixture.down(&answers("Z"), 1000), answers("Z"));

    // In the middle of a batch nothing can be prepared.
    let mut fixture = moved(text, INT, &column("a", TEXT, 1));
    let first =
        [parse("", "SELECT"), execute(""), parse("", "SET xmloption = document"), execute("")].concat();
    assert_eq!(fixture.up(&first, 1000), first);
    assert_eq!(fixture.up(&use_it, 1000), use_it);

    // A `SET` that the server has skipped changes nothing.
    for (answer, is_lost) in [("EZ", false), ("12C12CZ", true)] {
        let mut fixture = moved(text, INT, &column("a", TEXT, 1));
        let batch = [&first[..], &sync()].concat();
        assert_eq!(fixture.up(&batch, 1000), batch);
        fixture.down(&answers(answer), 1000);
        fixture.follow.settle();
        assert_eq!(fixture.up(&use_it, 1000) == use_it, is_lost);
    }
}

/// The proxy's commands that set a setting.
fn set(sql: &str) -> Vec<u8> {
    const NAME: &str = "ciphertoll: none";
    let mut out = parse(NAME, sql);
    encode_bind(&mut out, NAME, NAME, &[], ValueFormat::Text).expect("a short name");
    encode_execute(&mut out, NAME, 0).expect("a short name");
    out.extend(message(b'C', format!("P{NAME}\0").as_bytes()));
    out.extend(close(NAME));
    out
}

const SET: &str = "12C33";

/// A client has prepared a statement in one time zone, and is now on another connection with another one, in a transaction
/// or not.
fn in_another_zone(text: &str, transaction: &[u8]) -> Fixture {
    let mut fixture = moved(text, INT, &column("a", TEXT, 1));
    fixture.up(&query("BEGIN"), 1000);
    let zone = message(b'S', b"TimeZone\0Asia/Tokyo\0");
    fixture.down(&[answers("C"), zone, message(b'Z', transaction)].concat(), 1000);
    fixture
}

#[test]
fn constants_are_read_with_the_settings_that_they_were_first_read_with() {
    let text = "SELECT timestamptz '2020-01-01'";
    let use_it = [execute("s"), sync()].concat();
    for (transaction, scope) in [(b"I", "SESSION"), (b"T", "LOCAL")] {
        let mut fixture = in_another_zone(text, transaction);
        let again = [
            set(&format!("SET {scope} TimeZone TO 'UTC'")),
            typed_parse("s", text, INT),
            describe("s"),
            set(&format!("SET {scope} TimeZone TO 'Asia/Tokyo'")),
        ];
        assert_eq!(fixture.up(&use_it, 1000), [&again.concat()[..], &use_it].concat());
        let prepared = [answers(SET), answers("1"), parameter(INT), column("a", TEXT, 1), answers(SET)];
        let down = [&prepared.concat()[..], &answers("2CZ")].concat();
        assert_eq!(fixture.down(&down, 3), answers("2CZ"), "the client gets nothing of it");
    }
    // Without a constant there is nothing to keep.
    let mut fixture = in_another_zone("SELECT now()", b"T");
    let again = [typed_parse("s", "SELECT now()", INT), describe("s")].concat();
    assert_eq!(fixture.up(&use_it, 1000), [&again[..], &use_it].concat());
}

#[test]
fn in_the_middle_of_a_batch_a_statement_with_another_meaning_is_not_prepared() {
    let use_it = [execute("s"), sync()].concat();
    for sql in
        ["SET LOCAL TIME ZONE 'Asia/Tokyo'", "SELECT set_config('TimeZone', 'Asia/Tokyo', true)", "DO ''"]
    {
        let mut fixture = in_another_zone("SELECT timestamptz '2020-01-01'", b"T");
        let batch = [parse("", sql), execute(""), use_it.clone()].concat();
        assert_eq!(fixture.up(&batch, 1000), batch, "{sql}: the server says that there is none");
    }
}

#[test]
fn in_a_transaction_only_what_the_client_asks_for_is_prepared() {
    for sql in ["SET TIME ZONE 'UTC'", "SET xmloption = document", "SELECT 1 AS U&\"d\\0061t\"", "DO ''"] {
        let mut fixture = in_another_zone("SELECT timestamptz '2020-01-01'", b"T");
        assert_eq!(fixture.up(&query(sql), 1000), query(sql), "it might fail, and abort the transaction");
    }
}

#[test]
fn a_statement_that_may_have_been_read_with_another_setting_pins() {
    let text = "SELECT timestamptz '2020-01-01'";
    let zone = message(b'S', b"TimeZone\0Asia/Tokyo\0");
    let pin = |batch: &[Vec<u8>], down: &[Vec<u8>]| {
        let mut fixture = in_another_zone("SELECT 1", b"T");
        fixture.up(&batch.concat(), 1000);
        fixture.down(&down.concat(), 1000);
        fixture.follow.settle().and_then(|effects| effects.pin)
    };
    let described = [answers("1"), parameter(INT), column("a", TEXT, 1)].concat();
    let batch = [parse("p", text), sync()];
    assert_eq!(pin(&batch, &[described.clone(), answers("Z")]), None);
    // A function, or a text that is not understood.
    let utc = message(b'S', b"TimeZone\0UTC\0");
    assert!(pin(&batch, &[described.clone(), utc, answers("Z")]).is_some());
    // It is set, and set back.
    let first = [parse("", "SET LOCAL TIME ZONE 'UTC'"), execute("")].concat();
    let batch = [first, parse("p", text), sync()];
    assert!(pin(&batch, &[answers("12C"), described.clone(), zone, answers("Z")]).is_some());
    // The server does not report it.
    let batch = [query("SET LOCAL xmloption = document"), parse("p", text), sync()];
    assert!(pin(&batch, &[answers("C"), message(b'Z', b"T"), described, answers("Z")]).is_some());
}

#[test]
fn a_statement_that_names_another_finds_it() {
    let mut fixture = moved("INSERT INTO t VALUES ($1)", INT, &answers("n"));
    // On another connection the client has prepared a statement that deallocates it.
    fixture.up(&[parse("d", "DEALLOCATE s"), sync()].concat(), 1000);
    fixture.down(&[answers("11"), parameter(INT), answers("nZ")].concat(), 1000);
    fixture.moves();
    let inserted = fixture.up(&query("EXECUTE d"), 1000);
    let has = |part: &[u8]| inserted.windows(part.len()).any(|bytes| bytes == part);
    assert!(has(b"DEALLOCATE s\0") && has(&typed_parse("s", "", INT)), "the one that it deallocates, too");
}

#[test]
fn a_text_that_executes_a_statement_has_its_effects() {
    // By a text, by a statement of the protocol, and by a statement that executes another one.
    let prepared = |sql| [parse("s", "SELECT 1"), parse("a", sql), sync()].concat();
    for (sql, done) in [("DEALLOCATE s", tag("DEALLOCATE")), ("SET work_mem = 1", tag("SET"))] {
        for (use_it, before) in [
            (query("EXECUTE a"), ""),
            ([parse("", "EXECUTE a"), execute(""), sync()].concat(), "12"),
            ([parse("b", "EXECUTE a"), sync(), query("EXPLAIN ANALYZE EXECUTE b")].concat(), "1Z"),
        ] {
            let mut fixture = Fixture::default();
            fixture.up(&prepared(sql), 1000);
            fixture.down(&answers("1tn1tnZ"), 1000);
            fixture.up(&use_it, 1000);
            fixture.down(&[answers(before), done.clone(), answers("Z")].concat(), 1000);
            let settings = fixture.follow.settle().unwrap_or_default().settings;
            assert_eq!(settings.is_empty(), sql.starts_with("DEALLOCATE"), "{sql}");
            fixture.moves();
            let ask = [describe("s"), sync()].concat();
            let is_gone = fixture.up(&ask, 1000) == ask;
            assert_eq!(is_gone, sql.starts_with("DEALLOCATE"), "{sql}");
        }
    }
}

#[test]
fn the_statement_without_a_name_survives_deallocations() {
    for sql in ["DEALLOCATE ALL", "DISCARD ALL"] {
        let mut fixture = Fixture::default();
        let ask = [parse("s", "SELECT 1"), parse("", sql), describe(""), execute(""), sync()].concat();
        fixture.up(&ask, 1000);
        fixture.down(&[answers("1tn1tn2"), tag(sql), answers("Z")].concat(), 1000);
        fixture.moves();
        let ask = [describe("s"), sync()].concat();
        assert_eq!(fixture.up(&ask, 1000), ask, "there is none");
        fixture.down(&answers("EZ"), 1000);
        let use_it = [execute(""), sync()].concat();
        assert!(fixture.up(&use_it, 1000).len() > use_it.len(), "it is prepared again");
    }
}

#[test]
fn a_fetch_with_a_name_stays_on_its_connection() {
    let mut fixture = Fixture::default();
    fixture.up(&[parse("f", "FETCH 1 FROM c"), sync()].concat(), 1000);
    fixture.down(&answers("1Z"), 1000);
    assert!(fixture.follow.settle().unwrap_or_default().pin.is_some());
}

#[test]
fn nothing_is_prepared_while_one_of_the_statements_is_open() {
    let mut fixture = Fixture::default();
    let both = [parse("a", "INSERT INTO t DEFAULT VALUES"), parse("b", "DELETE FROM t"), sync()].concat();
    fixture.up(&both, 1000);
    fixture.down(&answers("1tn1tnZ"), 1000);
    fixture.moves();
    // Whether `b` exists depends on answers; `a` is certainly missing.
    let again = [close("b"), parse("b", "DELETE FROM u"), sync()].concat();
    let execute_both = query("EXECUTE a; EXECUTE b");
    let first = fixture.up(&[&again[..], &execute_both].concat(), 1000);
    assert_eq!(first, [close("b"), parse("b", "DELETE FROM u"), describe("b"), sync()].concat());
    fixture.down(&answers("31tnZ"), 1000);
    let then = [parse("a", "INSERT INTO t DEFAULT VALUES"), sync()].concat();
    assert_eq!(fixture.continue_client(), then);
    assert_eq!(fixture.down(&answers("1Z"), 1000), b"");
    assert_eq!(fixture.continue_client(), execute_both);
}

#[test]
fn a_fetch_is_never_described() {
    let fetch = parse("", "FETCH ALL IN \"c\"");
    let mut fixture = Fixture::default();
    let use_it = [fetch.clone(), execute(""), sync()].concat();
    assert_eq!(fixture.up(&use_it, 1000), use_it);
    fixture.down(&answers("12DCZ"), 3);
    fixture.moves();
    let again = [execute(""), sync()].concat();
    assert!(fixture.up(&again, 1000).ends_with(&again), "it is prepared, and not described");
}

#[test]
fn the_types_of_parameters_come_before_what_fails_in_a_description() {
    let (sql, ask) = ("DELETE FROM t WHERE b = $1 RETURNING a", [describe("s"), sync()].concat());
    let again = [typed_parse("s", sql, INT), describe("s"), flush()].concat();
    let mut fixture = moved(sql, INT, &column("a", TEXT, 1));
    assert_eq!(fixture.up(&ask, 1000), again);
    assert_eq!(fixture.down(&answers("EZ"), 3), [parameter(INT), answers("EZ")].concat());

    let mut fixture = moved(sql, INT, &column("a", TEXT, 1));
    fixture.up(&ask, 1000);
    fixture.down(&[answers("1"), parameter(INT), column("b", TEXT, 1)].concat(), 3);
    fixture.continue_client();
    let down = fixture.down(&answers("3EZ"), 4);
    assert!(down.starts_with(&parameter(INT)) && down.windows(7).any(|bytes| bytes == b"C0A000\0"));
}

#[test]
fn a_statement_without_rows_is_described_without_its_tables() {
    let sql = "INSERT INTO t VALUES ($1)";
    let mut fixture = moved(sql, INT, &answers("n"));
    let empty = typed_parse("s", "", INT);
    let (ask, use_it) = ([describe("s")].concat(), [execute("s"), sync()].concat());
    let sent = fixture.up(&[&ask[..], &ask, &use_it].concat(), 1000);
    let again = [close("s"), typed_parse("s", sql, INT)].concat();
    assert_eq!(sent, [&empty[..], &ask, &ask, &again, &use_it].concat());
    let (described, down) = ([parameter(INT), answers("n")].concat(), answers("312CZ"));
    let down = fixture.down(&[&answers("1")[..], &described, &described, &down].concat(), 3);
    assert_eq!(down, [&described[..], &described, &answers("2CZ")].concat());
}

#[test]
fn a_portal_that_is_suspended_or_fails_has_effects() {
    for answer in ["12DsZ", "12DEZ"] {
        let mut fixture = Fixture::default();
        let call = "SELECT set_config('work_mem', '8MB', false)";
        fixture.up(&[parse("", call), execute(""), sync()].concat(), 1000);
        fixture.down(&answers(answer), 1000);
        assert_eq!(fixture.follow.settle().unwrap_or_default().settings, [b"work_mem".to_vec()], "{answer}");
    }
}

#[test]
fn a_statement_is_prepared_behind_others_of_its_batch() {
    let (sql, set) = ("INSERT INTO t VALUES ($1)", [parse("", "SET work_mem = 1"), execute("")].concat());
    let mut fixture = moved(sql, INT, &answers("n"));
    let use_it = [execute("s"), sync()].concat();
    let again = typed_parse("s", sql, INT);
    assert_eq!(fixture.up(&[&set[..], &use_it].concat(), 1000), [&set[..], &again, &use_it].concat());

    // Only a `DEALLOCATE` of this one matters.
    for (text, name, is_again) in [("DEALLOCATE t", "s", true), ("DEALLOCATE s", "s", false)] {
        let mut fixture = moved(sql, INT, &answers("n"));
        let first = [parse("", text), execute("")].concat();
        let server_gets = fixture.up(&[&first[..], &execute(name), &sync()].concat(), 1000);
        assert_eq!(server_gets.windows(again.len()).any(|bytes| bytes == again), is_again, "{text}");
    }
}

/// The proxy makes the server fail for a statement whose columns have changed. On the server itself, only that statement would
/// have failed.
#[test]
fn the_statement_without_a_name_survives_a_failure_that_the_proxy_causes() {
    let mut fixture = moved("SELECT a FROM t WHERE b = $1", INT, &column("a", TEXT, 1));
    let unnamed = [parse("", "SELECT 1"), describe(""), sync()].concat();
    fixture.up(&unnamed, 1000);
    fixture.down(&answers("1tnZ"), 1000);
    fixture.up(&[execute("s"), sync()].concat(), 1000);
    let other = [answers("1"), parameter(INT), column("a", INT, 1), answers("2DCZ")].concat();
    assert_eq!(fixture.down(&other, 1000), b"");
    let mut own = Vec::new();
    fixture.relay.write_own(&mut fixture.follow, &mut own).expect("commands");
    assert!(fixture.down(&answers("3EZ"), 1000).ends_with(&answers("Z")));
    let use_it = [execute(""), sync()].concat();
    let sent = fixture.up(&use_it, 1000);
    assert_eq!(sent, use_it, "the server has it");
    assert!(!own.windows(6).any(|bytes| bytes == b"Q\0\0\0\x2cc"), "a text would have removed it");
}

/// Nobody asks the server about it: that may wait for a lock, or fail, when its client has left the connection.
#[test]
fn a_statement_without_a_name_that_was_not_described_stays_behind() {
    let mut fixture = Fixture::default();
    let use_it = [execute(""), sync()].concat();
    let first = [parse("", "SELECT a FROM t"), use_it.clone()].concat();
    assert_eq!(fixture.up(&first, 1000), first);
    assert_eq!(fixture.down(&answers("12DCZ"), 1000), answers("12DCZ"));
    assert_eq!(fixture.up(&use_it, 1000), use_it, "it is there");
    fixture.down(&answers("2DCZ"), 1000);
    fixture.moves();
    assert_eq!(fixture.up(&use_it, 1000), use_it, "the server says that there is none");
}

#[test]
fn notices_about_messages_of_the_proxy_are_dropped() {
    let mut fixture = moved("INSERT INTO t VALUES ($1)", INT, &answers("n"));
    fixture.up(&[execute("s"), sync()].concat(), 1000);
    assert_eq!(fixture.down(&answers("NN1N2NCNZ"), 3), answers("N2NCNZ"), "the first is about the `Parse`");
}

#[test]
fn texts_follow_the_server_setting() {
    let set = |fixture: &mut Fixture, value: &[u8]| {
        fixture.parameters.set(b"standard_conforming_strings", value).expect("a setting");
    };
    let (behind, within) = (r"SELECT '\'; LISTEN y", r"SELECT '\'; LISTEN y; --'");
    let pin = |commands: &[Vec<u8>], value: &[u8]| {
        let mut fixture = Fixture::default();
        set(&mut fixture, value);
        fixture.up(&commands.concat(), 1000);
        fixture.down(&answers(&"CZ".repeat(commands.len())), 1000);
        fixture.follow.settle().unwrap_or_default().pin
    };
    assert_eq!(pin(&[query(behind)], b"on"), Some("LISTEN"));
    assert_eq!(pin(&[query(within)], b"off"), None);
    assert_eq!(pin(&[query("SELECT 1"), query(within)], b"off"), None);
    // The setting is unknown between a command that may change it and the server's report.
    let not_known = Some("a literal that ends elsewhere if standard_conforming_strings has changed");
    assert_eq!(pin(&[query("DISCARD ALL"), query(within)], b"off"), not_known);
    let mut fixture = Fixture::default();
    set(&mut fixture, b"off");
    fixture.up(&query("DISCARD ALL"), 1000);
    fixture.down(&answers("CZ"), 1000);
    set(&mut fixture, b"on");
    fixture.up(&query(behind), 1000);
    fixture.down(&answers("CZ"), 1000);
    assert_eq!(fixture.follow.settle().unwrap_or_default().pin, Some("LISTEN"));
    // A portal changes it when it is executed, which the server reports before the `ReadyForQuery`.
    let mut fixture = Fixture::default();
    set(&mut fixture, b"on");
    fixture.up(&[parse("s", "SET standard_conforming_strings = off"), sync()].concat(), 1000);
    fixture.down(&answers("1tnZ"), 1000);
    fixture.up(&[execute("s"), parse("", within), execute(""), sync()].concat(), 1000);
    fixture.down(&answers("2C12CZ"), 1000);
    assert!(fixture.follow.settle().unwrap_or_default().pin.is_some());
}
