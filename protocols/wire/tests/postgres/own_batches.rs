//! Statements that the proxy prepares again: in separate batches, and within the batches of the client.

use ciphertoll_wire::postgres::column::ValueFormat;
use ciphertoll_wire::postgres::command::{encode_bind, encode_execute};
use ciphertoll_wire::postgres::relay::Followed;

use crate::followed::{
    Fixture, INT, TEXT, answers, close, column, describe, execute, flush, message, moved, parameter, parse,
    query, sync,
};
use crate::prepared_again::{OWN, SHORT_LOCK_WAIT, again_in_utc, in_another_zone, own};

/// Servers cut a name within a character, and refuse the part that they compare.
#[test]
fn a_long_name_is_sent_whole() {
    let (name, text) = ("\u{e9}".repeat(40), "SELECT 'a1'");
    for sql in ["DO ''", "SET xmloption = document", "SELECT 1 AS U&\"d\\0061t\""] {
        let mut fixture = Fixture::default();
        fixture.up(&[parse(&name, text), sync()].concat(), 1000);
        fixture.down(&[answers("1t"), column("a", TEXT, 1), answers("Z")].concat(), 1000);
        fixture.moves();
        let again = [own(SHORT_LOCK_WAIT), parse(&name, text), describe(&name), sync()].concat();
        assert_eq!(fixture.up(&query(sql), 1000), again, "{sql}");
        let changed = [answers(OWN), answers("1t"), column("a", INT, 1), answers("Z")].concat();
        assert_eq!(fixture.down(&changed, 1000), b"");
        let closed = [close(&name), sync()].concat();
        assert_eq!(fixture.continue_client(), closed);
        let cancelled = message(b'E', b"SERROR\0C57014\0Mno\0\0");
        assert_eq!(fixture.down(&[cancelled, answers("Z")].concat(), 1000), b"");
        assert_eq!(fixture.continue_client(), closed, "again");
        assert_eq!(fixture.down(&answers("3Z"), 1000), b"");
        assert_eq!(fixture.continue_client(), query(sql));
    }
}

#[test]
fn what_the_server_refuses_to_close_is_not_closed_again_and_again() {
    let mut fixture = moved("SELECT xml '<a/>'", INT, &column("a", TEXT, 1));
    fixture.up(&query("DO ''"), 1000);
    fixture.down(
        &[answers(OWN), answers("1"), parameter(INT), column("a", INT, 1), answers("Z")].concat(),
        1000,
    );
    assert_eq!(fixture.continue_client(), [close("s"), sync()].concat());
    let Fixture { mut relay, follow: mut follower, mut parameters, mut statements, mut prepared, .. } =
        fixture;
    let session = Followed { follower: &mut follower, statements: &mut statements, prepared: &mut prepared };
    assert!(relay.process_server(&answers("EZ"), &mut parameters, Some(session)).is_err());
}

/// Only a command that may end the transaction would undo what is set for it.
#[test]
fn within_a_transaction_a_statement_with_another_meaning_is_prepared_behind_data_access() {
    let (text, use_it) = ("SELECT timestamptz '2020-01-01'", [execute("s"), sync()].concat());
    for (sql, is_prepared) in [
        ("SELECT 1", true),
        ("INSERT INTO t VALUES (1)", true),
        ("WITH a AS (SELECT 1) SELECT * FROM a", true),
        ("SELECT f()", false),
        ("COMMIT", false),
        ("ROLLBACK TO a", false),
        ("CALL p()", false),
    ] {
        let mut fixture = in_another_zone(text, b"T");
        let first = [parse("", sql), execute("")].concat();
        let sent = fixture.up(&[&first[..], &use_it].concat(), 1000);
        let rest = if is_prepared { [again_in_utc(text, "LOCAL"), flush()].concat() } else { use_it.clone() };
        assert_eq!(sent, [first, rest].concat(), "{sql}");
    }
    // A portal of an earlier batch.
    for portal in ["", "p"] {
        let mut fixture = in_another_zone(text, b"T");
        let mut first = parse("", "COMMIT");
        encode_bind(&mut first, portal, "", &[], ValueFormat::Text).expect("a portal");
        fixture.up(&[first, sync()].concat(), 1000);
        fixture.down(&[answers("12"), message(b'Z', b"T")].concat(), 1000);
        let mut batch = Vec::new();
        encode_execute(&mut batch, portal, 0).expect("a portal");
        batch.extend(use_it.clone());
        assert_eq!(fixture.up(&batch, 1000), batch, "{portal}");
    }
}

#[test]
fn a_close_behind_a_command_that_begins_a_copy_reaches_the_server() {
    let sql = "COPY t FROM STDIN";
    let batch = [parse("", sql), execute(""), sync()].concat();
    for (text, before) in [(query(sql), ""), (batch, "12")] {
        let mut fixture = Fixture::default();
        assert_eq!(fixture.up(&[text.clone(), close("s")].concat(), 1000), text);
        assert!(fixture.follow.is_waiting());
        fixture.down(&[answers(before), message(b'G', &[0, 0, 1, 0, 0])].concat(), 1000);
        assert_eq!(fixture.continue_client(), close("s"), "the server ends the session with an error");
    }
    // Nothing asks the server to answer the first one.
    let mut fixture = Fixture::default();
    assert_eq!(fixture.up(&[close("s"), close("s")].concat(), 1000), close("s"));
    assert!(!fixture.follow.is_waiting());
    // The text was another one: the client needs no connection for it.
    let mut fixture = Fixture::default();
    fixture.up(&[query("SELECT 1"), close("s")].concat(), 1000);
    fixture.down(&answers("CZ"), 1000);
    assert_eq!(fixture.continue_client(), b"");
    assert!(!fixture.follow.is_waiting());
}
