//! Statements that a connection lacks and that it can no longer be given, or whose meaning is that of their next use.

use crate::followed::{
    INT, TEXT, answers, close, column, describe, execute, moved, parse, query, sync, tag, typed_parse,
};
use crate::prepared_again::in_another_zone;

/// The client can neither use it, nor prepare another one of its name before it has closed it.
#[test]
fn the_name_of_a_lost_statement_stays_in_use() {
    let text = "SELECT xml '<a/>'";
    let (use_it, other) = ([execute("s"), sync()].concat(), [parse("s", "SELECT 2"), sync()].concat());
    let set = [parse("", "SELECT"), execute(""), parse("", "SET xmloption = document"), execute(""), sync()];
    let mut fixture = moved(text, INT, &column("a", TEXT, 1));
    fixture.up(&set.concat(), 1000);
    fixture.down(&answers("12C12CZ"), 1000);
    fixture.follow.settle();
    assert_eq!(fixture.up(&use_it, 1000), use_it, "the server says that there is none");
    fixture.down(&answers("EZ"), 1000);
    let stand_in = typed_parse("s", "", INT);
    let described = [parse("s", "SELECT 2"), describe("s"), sync()].concat();
    assert_eq!(fixture.up(&other, 1000), [&stand_in[..], &described].concat());
    assert_eq!(
        fixture.down(&answers("1EZ"), 1000),
        answers("EZ"),
        "the server refuses a name that is in use"
    );
    // What has the name now is not executed in its place.
    assert_eq!(fixture.up(&use_it, 1000), [&close("s")[..], &use_it].concat());
    assert_eq!(fixture.down(&answers("3EZ"), 1000), answers("EZ"));
    let again = [close("s"), other].concat();
    assert_eq!(fixture.up(&again, 1000), [&close("s")[..], &described].concat());
    fixture.down(&answers("31tnZ"), 1000);
    assert_eq!(fixture.up(&use_it, 1000), use_it);
}

/// The server reads the constants of its statements with the settings of their next use. So it does with those that the
/// connection lacks, behind commands of the same batch, too.
#[test]
fn statements_are_read_with_the_present_settings_behind_discard_plans() {
    let (text, discard) = ("SELECT timestamptz '2020-01-01'", query("DISCARD PLANS"));
    let executed = [parse("", "SELECT"), execute("")].concat();
    for (before, answer) in [(Vec::new(), ""), (executed, "12C")] {
        let mut fixture = in_another_zone(text, b"I");
        let sent = [&before[..], &discard].concat();
        assert_eq!(fixture.up(&sent, 1000), sent, "nothing is prepared first");
        fixture.down(&[answers(answer), tag("DISCARD PLANS"), answers("Z")].concat(), 1000);
        assert!(fixture.follow.settle().is_some_and(|effects| effects.pin.is_some()));
        let use_it = [execute("s"), sync()].concat();
        let sent = fixture.up(&use_it, 1000);
        let again = typed_parse("s", text, INT);
        assert!(sent.starts_with(&again), "without a change of settings: {sent:?}");
    }
}
