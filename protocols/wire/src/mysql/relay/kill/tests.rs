use super::*;

fn scan_all(payload: &[u8], capabilities: Capabilities) -> KillScan {
    scan(Header { length: payload.len(), sequence: 0 }, payload, capabilities)
}

fn rewritten(payload: &[u8], capabilities: Capabilities) -> Option<(u32, Vec<u8>)> {
    let KillScan::Kill(command) = scan_all(payload, capabilities) else { return None };
    let mut out = Vec::new();
    command.encode(capabilities, |_| KillReplacement::Number(42), &mut out).unwrap();
    Some((command.statements[0].number, out[4..].to_vec()))
}

#[test]
fn only_the_connection_identifier_is_replaced() {
    for (text, expected) in [
        (&b"\x03KILL QUERY 2147483655"[..], &b"\x03KILL QUERY 42"[..]),
        (b"\x03kill 2147483655", b"\x03kill 42"),
        (b"\x03KILL CONNECTION  2147483655 ;", b"\x03KILL CONNECTION  42 ;"),
        (b"\x03Kill Hard Query 2147483655\n", b"\x03Kill Hard Query 42\n"),
        (b"\x0c\x07\0\0\x80", b"\x0c\x2a\0\0\0"),
    ] {
        let number = (1 << 31) + 7;
        assert_eq!(rewritten(text, Capabilities::default()), Some((number, expected.to_vec())), "{text:?}");
    }
    let attributes = Capabilities::QUERY_ATTRIBUTES;
    assert_eq!(rewritten(b"\x03\0\x01KILL 7", attributes), Some((7, b"\x03\0\x01KILL 42".to_vec())));
    assert_eq!(rewritten(b"\x03\x01\x01KILL 7", attributes), None);
}

#[test]
fn each_kill_of_a_multi_statement_is_replaced() {
    let text = b"\x03SELECT 'a''b'; KILL QUERY 70 ;/* KILL 5; */ kill 71; DO 1 -- KILL 6\n; KILL ID 7";
    let KillScan::Kill(command) = scan_all(text, Capabilities::default()) else {
        panic!("expected two KILLs")
    };
    let targets: Vec<_> = command.statements.iter().map(|kill| (kill.number, kill.target)).collect();
    assert_eq!(targets, [(70, KillTarget::Query), (71, KillTarget::Connection)]);
    let mut out = Vec::new();
    let replacement = |kill: &KillStatement| {
        if kill.number == 70 { KillReplacement::Number(7) } else { KillReplacement::Nothing }
    };
    command.encode(Capabilities::default(), replacement, &mut out).unwrap();
    let expected = b"\x03SELECT 'a''b'; KILL QUERY 7 ;/* KILL 5; */ DO 0; DO 1 -- KILL 6\n; KILL ID 7";
    assert_eq!(str::from_utf8(&out[4..]), str::from_utf8(expected));
    assert_eq!(command.text(), Some(&text[1..]));
    out.clear();
    let KillScan::Kill(command) = scan_all(b"\x0c\x07\0\0\0", Capabilities::QUERY_ATTRIBUTES) else {
        panic!("expected a KILL")
    };
    command.encode(Capabilities::QUERY_ATTRIBUTES, |_| KillReplacement::Nothing, &mut out).unwrap();
    assert_eq!(out[4..], *b"\x03\0\x01DO 0");
}

#[test]
fn other_statements_are_left_unchanged() {
    for text in [
        &b"\x03KILL QUERY ID 7"[..],
        b"\x03KILL",
        b"\x03KILL 7 8",
        b"\x03KILL USER 7",
        b"\x03KILL -7",
        b"\x03KILL 99999999999",
        b"\x03killer 7",
        b"\x03SELECT 7",
        b"\x03k",
        b"\x03",
        b"\x02KILL 7",
        b"\x0c\x07\0\0",
        b"\x03KILL \xff",
        b"\x03KILL 7 + 1",
        b"\x03SELECT 'KILL 7'",
        b"\x03SELECT '\\'; KILL 7; -- '",
        b"\x03SELECT \"\\\"; KILL 7; -- \"",
        b"\x03SELECT 1 /* ; KILL 7; */",
        b"\x03SELECT kill FROM t",
    ] {
        assert_eq!(scan_all(text, Capabilities::default()), KillScan::Other, "{text:?}");
    }
    let long = [&b"\x03KILL 7"[..], &[b' '; MAX_TEXT_BYTES]].concat();
    assert_eq!(scan_all(&long, Capabilities::default()), KillScan::Other);
}

#[test]
fn only_a_possible_kill_waits_for_more_input() {
    for capabilities in [Capabilities::default(), Capabilities::QUERY_ATTRIBUTES] {
        for payload in [&b"\x03\0\x01KILL QUERY 7"[..], b"\x03\0\x01SELECT 7", b"\x03KILL QUERY 7"] {
            let whole = scan_all(payload, capabilities);
            for cut in 1..payload.len() {
                let header = Header { length: payload.len(), sequence: 0 };
                match scan(header, &payload[..cut], capabilities) {
                    KillScan::Unfinished => {}
                    KillScan::Other => assert_eq!(whole, KillScan::Other, "{cut}"),
                    KillScan::Kill(kill) => panic!("{cut}: {kill:?}"),
                }
            }
        }
    }
}
