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
    let again = [own(SHORT_LOCK_WAIT), typed_parse("s", text, INT), describe("s"), sync()].concat();
    assert_eq!(fixture.up(&set, 1000), again);
    assert!(fixture.follow.is_preparing());
    let described = [answers("1"), parameter(INT), column("a", TEXT, 1)].concat();
    let same = [&answers(OWN)[..], &described, &answers("Z")].concat();
    assert_eq!(fixture.down(&same, 3), b"");
    assert_eq!(fixture.continue_client(), set);
    fixture.down(&answers("CZ"), 3);
    assert_eq!(fixture.up(&use_it, 1000), use_it);

    // The same behind a portal that was not executed, which the text closes.
    let mut fixture = moved(text, INT, &column("a", TEXT, 1));
    let mut bound = parse("", "SELECT");
    encode_bind(&mut bound, "c", "", &[], ValueFormat::Text).expect("a portal");
    assert_eq!(fixture.up(&[&bound[..], &set].concat(), 1000), [&bound[..], &flush()].concat());
    assert_eq!(fixture.down(&answers("12"), 1000), answers("12"));
    assert_eq!(fixture.continue_client(), again);

    // It cannot be prepared, for example because its table is locked: it is not prepared later, with another meaning.
    for answer in [answers("EZ"), [&answers(OWN)[..], &answers("EZ")].concat()] {
        let mut fixture = moved(text, INT, &column("a", TEXT, 1));
        fixture.up(&set, 1000);
        assert_eq!(fixture.down(&answer, 3), b"");
        assert_eq!(fixture.continue_client(), set);
        fixture.down(&answers("CZ"), 3);
        assert_eq!(fixture.up(&use_it, 1000), use_it, "the server says that there is none");
    }

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

/// Within a transaction nothing is prepared first.
#[test]
fn what_ends_with_its_transaction_loses_no_statement() {
    let use_it = [execute("s"), sync()].concat();
    let text = "SELECT xml '<a/>'";
    for (sql, answer, is_lost) in [
        ("SET LOCAL xmloption = document", "CZ", false),
        ("SET LOCAL transform_null_equals = on", "CZ", false),
        ("SET xmloption = bogus", "EZ", false),
        ("SET xmloption = document", "CZ", true),
        ("DO ''", "CZ", true),
        ("SELECT set_config($1, $2, true)", "CZ", true),
    ] {
        let begun = || {
            let mut fixture = moved(text, INT, &column("a", TEXT, 1));
            fixture.up(&query("BEGIN"), 1000);
            fixture.down(&[answers("C"), message(b'Z', b"T")].concat(), 1000);
            fixture
        };
        let in_batch = [parse("", sql), execute(""), sync()].concat();
        for (commands, before) in [(query(sql), ""), (in_batch, "12")] {
            let mut fixture = begun();
            assert_eq!(fixture.up(&commands, 1000), commands);
            let status = if answer == "EZ" { b"E" } else { b"T" };
            let answer = [answers(before), answers(answer.trim_end_matches('Z')), message(b'Z', status)];
            fixture.down(&answer.concat(), 1000);
            if status == b"T" {
                let mut within = begun();
                within.up(&commands, 1000);
                within.down(&answer.concat(), 1000);
                assert_eq!(within.up(&use_it, 1000), use_it, "{sql}: it would mean something else");
            }
            fixture.up(&query("COMMIT"), 1000);
            fixture.down(&answers("CZ"), 1000);
            fixture.follow.settle();
            assert_eq!(fixture.up(&use_it, 1000) == use_it, is_lost, "{sql}");
        }
    }
}

/// A `DISCARD ALL` removes the statements.
#[test]
fn nothing_is_prepared_in_front_of_a_discard() {
    for (answer, is_there) in [([tag("DISCARD ALL"), answers("Z")].concat(), false), (answers("EZ"), true)] {
        let mut fixture = moved("SELECT xml '<a/>'", INT, &column("a", TEXT, 1));
        assert_eq!(fixture.up(&query("DISCARD ALL"), 1000), query("DISCARD ALL"));
        assert_eq!(fixture.down(&answer, 1000), answer);
        fixture.follow.settle();
        let use_it = [execute("s"), sync()].concat();
        assert_eq!(fixture.up(&use_it, 1000) != use_it, is_there, "if it fails, they stay");
    }
}

#[test]
fn a_text_that_may_name_any_statement_is_sent_although_one_cannot_be_prepared() {
    let (text, any) = ("SELECT xml '<a/>'", query("SELECT 1 AS U&\"d\\0061t\""));
    let mut fixture = moved(text, INT, &column("a", TEXT, 1));
    let again = [own(SHORT_LOCK_WAIT), typed_parse("s", text, INT), describe("s"), sync()].concat();
    assert_eq!(fixture.up(&any, 1000), again);
    assert_eq!(fixture.down(&[answers(OWN), answers("EZ")].concat(), 3), b"");
    assert_eq!(fixture.continue_client(), any);
}

/// Without digits, and without `<`.
#[test]
fn any_string_may_be_a_document() {
    let mut fixture = moved("SELECT 'abc'::XML", INT, &column("a", TEXT, 1));
    assert_ne!(fixture.up(&query("SET xmloption = document"), 1000), query("SET xmloption = document"));
}

pub(crate) const SHORT_LOCK_WAIT: &str =
    "SELECT WHERE pg_catalog.set_config('lock_timeout', '10ms', true) IS NULL";

/// The messages of a command of the proxy.
pub(crate) fn own(sql: &str) -> Vec<u8> {
    const NAME: &str = "ciphertoll: none";
    let mut out = close(NAME);
    out.extend(parse(NAME, sql));
    encode_bind(&mut out, NAME, NAME, &[], ValueFormat::Text).expect("a short name");
    encode_execute(&mut out, NAME, 0).expect("a short name");
    out.extend(message(b'C', format!("P{NAME}\0").as_bytes()));
    out.extend(close(NAME));
    out
}

/// Their answers.
pub(crate) const OWN: &str = "312C33";

/// A client has prepared a statement in one time zone, and is now on another connection with another one, in a transaction
/// or not.
pub(crate) fn in_another_zone(text: &str, transaction: &[u8]) -> Fixture {
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
    let prepared = [answers(OWN), answers("1"), parameter(INT), column("a", TEXT, 1), answers(OWN)].concat();
    // In the transaction.
    let mut fixture = in_another_zone(text, b"T");
    assert_eq!(fixture.up(&use_it, 1000), [again_in_utc(text, "LOCAL"), use_it.clone()].concat());
    let down = [&prepared[..], &answers("2CZ")].concat();
    assert_eq!(fixture.down(&down, 3), answers("2CZ"), "the client gets nothing of it");
    // In a batch of the proxy: behind a `SET`, a `CREATE DATABASE` would be refused.
    let mut fixture = in_another_zone(text, b"I");
    assert_eq!(fixture.up(&use_it, 1000), [again_in_utc(text, "SESSION"), sync()].concat());
    assert!(fixture.follow.is_preparing());
    assert_eq!(fixture.down(&[&prepared[..], &answers("Z")].concat(), 3), b"");
    assert_eq!(fixture.continue_client(), use_it);
    assert!(!fixture.follow.is_preparing());
    assert_eq!(fixture.down(&answers("2CZ"), 3), answers("2CZ"));
    // A `Sync` would close the client's portal.
    let mut fixture = in_another_zone(text, b"I");
    let mut portal = parse("", "SELECT 1");
    encode_bind(&mut portal, "p", "", &[], ValueFormat::Text).expect("a portal");
    let sent = fixture.up(&[&portal[..], &use_it].concat(), 1000);
    assert_eq!(sent, [portal, again_in_utc(text, "SESSION"), use_it.clone()].concat());
    // Without a constant there is nothing to keep.
    let mut fixture = in_another_zone("SELECT now()", b"T");
    let again = [typed_parse("s", "SELECT now()", INT), describe("s")].concat();
    assert_eq!(fixture.up(&use_it, 1000), [&again[..], &use_it].concat());
}

/// Prepares the statement again, in the time zone of its first preparation.
pub(crate) fn again_in_utc(text: &str, scope: &str) -> Vec<u8> {
    let before = own(&format!("SET {scope} TimeZone TO 'UTC'"));
    let behind = own(&format!("SET {scope} TimeZone TO 'Asia/Tokyo'"));
    [before, typed_parse("s", text, INT), describe("s"), behind].concat()
}

/// The client gets the error of what the proxy has sent on its own, once, as that of its command.
#[test]
fn a_batch_of_the_proxy_may_fail_anywhere() {
    let text = "SELECT timestamptz '2020-01-01'";
    let use_it = [execute("s"), sync()].concat();
    for prepared in [0, OWN.len(), OWN.len() + 1] {
        let mut fixture = in_another_zone(text, b"I");
        fixture.up(&use_it, 1000);
        let down = answers(&[&format!("{OWN}1")[..prepared], "EZ"].concat());
        assert_eq!(fixture.down(&down, 3), b"", "{prepared}");
        let (is_there, sent) = (prepared > OWN.len(), fixture.continue_client());
        assert_eq!((sent.starts_with(&close("s")), sent.ends_with(&use_it)), (is_there, is_there));
        let closed = if is_there { "3" } else { "" };
        assert_eq!(fixture.down(&answers(&format!("{closed}E")), 3), answers("E"), "{prepared}");
        fixture.continue_client();
        assert_eq!(fixture.down(&answers("Z"), 3), answers("Z"), "{prepared}");
    }
}

/// The server sends it while the client's encoding is another one.
#[test]
fn an_error_in_another_encoding_is_reduced_to_ascii() {
    let error = |character: &[u8]| {
        message(b'E', &[&b"SERROR\0VERROR\0C42P01\0Mno t"[..], character, b"\0\0"].concat())
    };
    for (transaction, own_batch) in [(b"I", true), (b"T", false)] {
        let mut fixture = Fixture::default();
        fixture.parameters.set(b"client_encoding", b"LATIN1").expect("a setting");
        fixture.up(&[parse("s", "DELETE FROM t\u{e4}"), sync()].concat(), 1000);
        fixture.down(&answers("1tnZ"), 1000);
        fixture.moves();
        fixture.parameters.set(b"client_encoding", b"UTF8").expect("a setting");
        fixture.up(&query("BEGIN"), 1000);
        fixture.down(&[answers("C"), message(b'Z', transaction)].concat(), 1000);
        fixture.up(&[execute("s"), sync()].concat(), 1000);
        let down = [&answers(OWN)[..], &error(b"\xe4")].concat();
        let told = if own_batch {
            assert_eq!(fixture.down(&[down, answers("Z")].concat(), 3), b"");
            fixture.continue_client();
            fixture.down(&answers("E"), 3)
        } else {
            fixture.down(&down, 3)
        };
        assert_eq!(told, error(b"?"));
    }
}

/// What the server says of a statement that is missing is what has failed before.
#[test]
fn a_text_that_executes_a_statement_gets_its_error() {
    let text = query("EXECUTE s(1)");
    for state in ["26000", "25P02"] {
        let mut fixture = moved("INSERT INTO t VALUES ($1)", INT, &answers("n"));
        fixture.up(&query("BEGIN"), 1000);
        fixture.down(&[answers("C"), message(b'Z', b"T")].concat(), 1000);
        fixture.up(&text, 1000);
        assert_eq!(fixture.down(&[answers("E"), message(b'Z', b"E")].concat(), 1), b"");
        assert_eq!(fixture.continue_client(), text);
        let failed = message(b'E', format!("SERROR\0C{state}\0Mno\0\0").as_bytes());
        assert_eq!(fixture.down(&failed, 1), answers("E"), "{state}");
    }
}

#[test]
fn in_a_failed_transaction_a_text_finds_no_statement() {
    let text = query("ROLLBACK; EXECUTE s(1)");
    let failed = || {
        let mut fixture = moved("INSERT INTO t VALUES ($1)", INT, &answers("n"));
        fixture.up(&query("BEGIN; SELECT 1/0"), 1000);
        fixture.down(&[answers("CE"), message(b'Z', b"E")].concat(), 1000);
        fixture
    };
    let mut fixture = failed();
    assert_eq!(fixture.up(&text, 1000), text);
    let missing = message(b'E', b"SERROR\0C26000\0Mno\0\0");
    assert_eq!(fixture.down(&[answers("C"), missing.clone()].concat(), 1), [answers("C"), missing].concat());
    // It matters only whether it exists.
    let mut fixture = failed();
    let stand_in = [typed_parse("s", "", INT), sync()].concat();
    assert_eq!(fixture.up(&query("ROLLBACK; DEALLOCATE s"), 1000), stand_in);
    // The transaction may be over when the text is executed.
    let mut fixture = failed();
    let rollback = [parse("", "ROLLBACK"), execute(""), sync()].concat();
    assert_eq!(fixture.up(&[&rollback[..], &query("EXECUTE s(1)")].concat(), 1000), rollback);
    fixture.down(&answers("12CZ"), 1000);
    let again = [typed_parse("s", "INSERT INTO t VALUES ($1)", INT), sync()].concat();
    assert_eq!(fixture.continue_client(), again);
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
    // Locks outlive a failure, settings do not.
    for (answer, settings) in [("12DsZ", &["work_mem"][..]), ("12DEZ", &[])] {
        let mut fixture = Fixture::default();
        let call = "SELECT set_config('work_mem', '8MB', false), pg_advisory_lock(1)";
        fixture.up(&[parse("", call), execute(""), sync()].concat(), 1000);
        fixture.down(&answers(answer), 1000);
        let effects = fixture.follow.settle().expect("effects");
        assert_eq!(effects.pin, Some("an advisory lock"), "{answer}");
        let expected: Vec<_> = settings.iter().map(|name| name.as_bytes()).collect();
        assert_eq!(effects.settings, expected, "{answer}");
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

#[test]
fn a_statement_whose_name_depends_on_the_character_set_pins() {
    for (name, is_pinned) in [("s1", false), ("é", true), ("", false)] {
        let mut fixture = Fixture::default();
        fixture.up(&[parse(name, "SELECT 1"), sync()].concat(), 1000);
        fixture.down(&answers("1tnZ"), 1000);
        assert_eq!(fixture.follow.settle().is_some_and(|effects| effects.pin.is_some()), is_pinned, "{name}");
    }
}
