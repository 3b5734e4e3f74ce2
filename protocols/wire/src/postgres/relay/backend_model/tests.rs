use super::*;

/// Runs messages of the client (their type bytes), then answers of the server, in turns. `e` is an error after data,
/// `f` one that the client's `CopyFail` has asked for.
fn run(turns: &[(&str, &str)]) -> BackendModel<()> {
    let mut model = BackendModel::default();
    for (sent, received) in turns {
        for kind in sent.bytes().filter_map(SentKind::of) {
            model.send(kind, ());
        }
        for kind in received.bytes() {
            match kind {
                kind::READY_FOR_QUERY => drop(model.receive_ready(TransactionStatus::Idle)),
                b'e' => drop(model.fail(CopyFailure::InData)),
                b'f' => drop(model.fail(CopyFailure::ByClient)),
                kind => drop(model.receive(kind)),
            }
        }
    }
    model
}

fn outlook(turns: &[(&str, &str)]) -> Outlook {
    run(turns).outlook()
}

#[test]
fn answers_belong_to_messages() {
    for (sent, received, expected) in [
        ("", "", Outlook::Clean),
        ("Q", "", Outlook::Owed),
        ("Q", "TDDC", Outlook::Owed),
        ("Q", "TDDCZ", Outlook::Clean),
        ("QQ", "CZ", Outlook::Owed),
        ("QQ", "CZEZ", Outlook::Clean),
        ("F", "VZ", Outlook::Clean),
        ("PBDES", "12TDC", Outlook::Owed),
        ("PBDES", "12TDCZ", Outlook::Clean),
        ("PBE", "12C", Outlook::Unfinished),
        ("PBEH", "12C", Outlook::Unfinished),
        ("H", "", Outlook::Clean),
        // A Close begins no transaction.
        ("CH", "3", Outlook::Clean),
        ("CH", "", Outlook::Unfinished),
        ("QCH", "CZ3", Outlook::Clean),
        ("CH", "E", Outlook::Unfinished),
        ("PCH", "13", Outlook::Unfinished),
        ("PSCH", "1Z3", Outlook::Clean),
        ("dcf", "", Outlook::Clean),
        // What comes unasked says nothing.
        ("Q", "NASTDCSZ", Outlook::Clean),
        ("Q", "CZZ", Outlook::Unknown(UNSOLICITED)),
        ("S", "1Z", Outlook::Unknown(UNSOLICITED)),
    ] {
        assert_eq!(outlook(&[(sent, received)]), expected, "{sent} {received}");
    }
}

#[test]
fn after_an_error_everything_up_to_a_sync_is_skipped() {
    for (sent, received, later, expected) in [
        ("PBES", "EZ", "", Outlook::Clean),
        ("PBE", "E", "", Outlook::Unfinished),
        ("PBE", "E", "BEQF", Outlook::Unfinished),
        ("PBE", "E", "BEQS", Outlook::Owed),
        // These are skipped, too.
        ("PQS", "EZ", "", Outlook::Clean),
        ("PFS", "EZ", "", Outlook::Clean),
        ("PQ", "E", "", Outlook::Unfinished),
        ("PBESPBES", "EZ", "", Outlook::Owed),
        // An error of a Sync, a Query or a function is followed by its own ReadyForQuery.
        ("PBES", "12CEZ", "", Outlook::Clean),
        ("QBES", "EZ", "", Outlook::Owed),
        ("FQ", "EZCZ", "", Outlook::Clean),
    ] {
        assert_eq!(outlook(&[(sent, received), (later, "")]), expected, "{sent} {received} {later}");
    }
}

#[test]
fn a_copy_reads_messages_up_to_its_end() {
    for (turns, expected) in [
        (&[("Q", "G")][..], Outlook::Unfinished),
        (&[("Q", "G"), ("ddc", "")], Outlook::Owed),
        (&[("Q", "G"), ("ddc", "CZ")], Outlook::Clean),
        (&[("Qdc", "GCZ")], Outlook::Clean),
        // A Sync in the data is ignored; then the batch has none.
        (&[("PBESdcS", "12GCZ")], Outlook::Clean),
        (&[("PBES", "12G"), ("dcS", "CZ")], Outlook::Clean),
        (&[("PBESdc", "12GC")], Outlook::Unfinished),
        (&[("PBES", "12G"), ("dSdSc", "C"), ("S", "Z")], Outlook::Clean),
        (&[("QdSdc", "GCZ")], Outlook::Clean),
        // Two copies in one text.
        (&[("Q", "G"), ("dcdc", "CGCZ")], Outlook::Clean),
        // What follows the end of the data is executed.
        (&[("PBES", "12G"), ("dcSQ", "CZ")], Outlook::Owed),
        // Data out.
        (&[("Q", "HddcCZ")], Outlook::Clean),
    ] {
        assert_eq!(outlook(turns), expected, "{turns:?}");
    }
}

#[test]
fn a_failed_copy_may_have_ignored_a_sync() {
    for (turns, expected) in [
        // The error shows that the data were read, and so the Sync in front of them.
        (&[("PBES", "12G"), ("d", "e"), ("fS", "Z")][..], Outlook::Clean),
        (&[("PBESdcS", "12GeZ")], Outlook::Clean),
        (&[("PBES", "12G"), ("SSSd", "e"), ("S", "Z")], Outlook::Clean),
        // Otherwise another ReadyForQuery may come: the answer to a later message decides.
        (&[("PBES", "12GE"), ("fS", "Z")], Outlook::CleanUnlessMore),
        (&[("PBES", "12GE"), ("fS", "ZZ")], Outlook::Clean),
        (&[("PBES", "12GE"), ("fS", "Z"), ("CS", "3Z")], Outlook::Clean),
        (&[("PBES", "12GE"), ("fS", "Z"), ("CS", "Z3Z")], Outlook::Clean),
        (&[("PBES", "12G"), ("dSd", "e"), ("S", "Z")], Outlook::CleanUnlessMore),
        (&[("QS", "GEZ")], Outlook::CleanUnlessMore),
        (&[("QS", "GEZ"), ("Q", "ZCZ")], Outlook::Clean),
        // A command behind it may have been executed, or skipped.
        (&[("PBES", "12GE"), ("Q", "")], Outlook::Unknown(COPY_FAILED)),
    ] {
        assert_eq!(outlook(turns), expected, "{turns:?}");
    }
}

#[test]
fn a_copy_that_the_client_ends_has_read_everything_before() {
    for (turns, expected) in [
        // The Sync between data and CopyFail was ignored, so the next batch is skipped up to its own.
        (&[("PBEdSf", "12Gf")][..], Outlook::Unfinished),
        (&[("PBEdSf", "12Gf"), ("E", "")], Outlook::Unfinished),
        (&[("PBEdSf", "12Gf"), ("ES", "")], Outlook::Owed),
        (&[("PBEdSf", "12Gf"), ("ES", "Z")], Outlook::Clean),
        (&[("PBE", "12G"), ("SdSdSf", "f"), ("ES", "Z")], Outlook::Clean),
        (&[("PBESf", "12Gf"), ("S", "Z")], Outlook::Clean),
        // Of a simple query, what follows is executed.
        (&[("QdSfQ", "GfZ")], Outlook::Owed),
        (&[("QdSfQ", "GfZCZ")], Outlook::Clean),
    ] {
        assert_eq!(outlook(turns), expected, "{turns:?}");
    }
}

#[test]
fn the_sync_behind_failing_data_ends_its_batch() {
    for turns in [
        [("PBEd", "12G"), ("S", "eZ")],
        [("PBE", "12G"), ("dS", "eZ")],
        [("PBE", "12G"), ("dS", "EZ")],
        [("PBEdS", "12GeZ"), ("", "")],
    ] {
        assert_eq!(outlook(&turns), Outlook::Clean, "{turns:?}");
        let model = run(&turns);
        assert!(model.is_between_batches(), "{turns:?}");
    }
}

#[test]
fn memory_is_limited_and_data_are_not() {
    let mut model = run(&[("Q", "G")]);
    for _ in 0..10 * MAX_SENT {
        model.send(SentKind::CopyData, ());
        model.send(SentKind::Sync, ());
    }
    assert!(!model.is_full(), "a server that awaits data answers nothing");
    let mut model = BackendModel::default();
    for _ in 0..MAX_SENT {
        assert!(!model.is_full() && model.send(SentKind::Bind, ()));
    }
    assert!(model.is_full());
}
