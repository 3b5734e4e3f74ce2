use super::*;

const TRACKED: Capabilities = Capabilities::SESSION_TRACK.with(Capabilities::DEPRECATE_EOF);
/// With autocommit.
const OK: OkPacket = OkPacket { affected_rows: 0, last_insert_id: 0, status: 2, warnings: 0 };
const CHANGED: OkPacket = OkPacket { affected_rows: 0, last_insert_id: 0, status: 0x4002, warnings: 0 };

fn after(kinds_and_texts: &[(u8, &[u8])], limit: Remains, capabilities: Capabilities) -> Remains {
    let mut observer = RemainsObserver::up_to(limit);
    for (kind, text) in kinds_and_texts {
        observer.begin_command(*kind);
        observer.payload(&[&[*kind], *text].concat(), true, capabilities);
    }
    observer.remains()
}

#[test]
fn only_pings_and_plain_texts_need_no_reset() {
    let limit = Remains::StateOfRoutines;
    let none = Capabilities::default();
    assert_eq!(after(&[], limit, none), Remains::Nothing);
    assert_eq!(after(&[(COM_PING, b""), (COM_QUERY, b"SELECT 1")], limit, none), Remains::Nothing);
    assert_eq!(after(&[(COM_QUERY, b"SELECT * FROM t")], limit, none), Remains::StateOfRoutines);
    assert_eq!(after(&[(COM_QUERY, b"SELECT * FROM t")], Remains::Nothing, none), Remains::Anything);
    // COM_INIT_DB, COM_STMT_PREPARE, COM_STMT_CLOSE, COM_SET_OPTION, COM_RESET_CONNECTION.
    for kind in [0x02, 0x16, 0x19, 0x1b, 0x1f] {
        assert_eq!(after(&[(kind, b"SELECT 1")], limit, none), Remains::Anything, "{kind}");
    }
    assert_eq!(RemainsObserver::default().remains(), Remains::Anything);
}

#[test]
fn query_attributes_need_a_reset() {
    let capabilities = Capabilities::QUERY_ATTRIBUTES;
    let limit = Remains::StateOfRoutines;
    assert_eq!(after(&[(COM_QUERY, b"\0\x01SELECT 1")], limit, capabilities), Remains::Nothing);
    assert_eq!(after(&[(COM_QUERY, b"\x01\x01SELECT 1")], limit, capabilities), Remains::Anything);
    assert_eq!(after(&[(COM_QUERY, b"SELECT 1")], limit, capabilities), Remains::Anything);
}

#[test]
fn a_text_that_is_not_known_needs_a_reset() {
    let mut observer = RemainsObserver::up_to(Remains::Nothing);
    observer.begin_command(COM_QUERY);
    assert_eq!(observer.remains(), Remains::Anything);
    observer.payload(b"\x03SEL", false, Capabilities::default());
    assert_eq!(observer.remains(), Remains::Anything);
    observer.payload(b"ECT 1", true, Capabilities::default());
    assert_eq!(observer.remains(), Remains::Nothing);
    // Another command was sent in place of this one.
    observer.begin_command(COM_QUERY);
    observer.begin_command(COM_PING);
    assert_eq!(observer.remains(), Remains::Anything);
}

#[test]
fn what_the_server_reports_needs_a_reset() {
    let remains = |ok: OkPacket, rest: &[u8], capabilities| {
        let mut payload = Vec::new();
        ok.encode(&mut payload);
        payload.extend_from_slice(rest);
        let mut observer = RemainsObserver::up_to(Remains::Nothing);
        observer.record_ok(ok, &payload, capabilities);
        observer.remains()
    };
    assert_eq!(remains(OK, b"", TRACKED), Remains::Nothing);
    // Without autocommit something of a transaction may be left that is not reported.
    assert_eq!(remains(OkPacket::default(), b"", TRACKED), Remains::Anything);
    assert_eq!(remains(OkPacket { warnings: 1, ..OK }, b"", TRACKED), Remains::Anything);
    assert_eq!(remains(OkPacket { last_insert_id: 1, ..OK }, b"", TRACKED), Remains::Anything);
    // The state of the transaction, as MySQL reports it after a BEGIN.
    let of_transaction = b"\0\x0b\x05\x09\x08T_______";
    assert_eq!(remains(CHANGED, of_transaction, TRACKED), Remains::Nothing);
    assert_eq!(remains(CHANGED, of_transaction, Capabilities::DEPRECATE_EOF), Remains::Anything);
    let of_session = b"\0\x0f\x05\x09\x08T_______\x02\x02\x011";
    assert_eq!(remains(CHANGED, of_session, TRACKED), Remains::Anything);
    for end in 0..of_transaction.len() {
        assert_eq!(remains(CHANGED, &of_transaction[..end], TRACKED), Remains::Anything, "{end}");
    }
}
