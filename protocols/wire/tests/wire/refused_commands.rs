//! Commands that a relay refuses, forwards for the server to refuse, or replaces.

use ciphertoll_wire::mysql::command::encode_ping;
use ciphertoll_wire::mysql::relay::{MySqlRelay, RELAYED};
use ciphertoll_wire::mysql::{Capabilities, Error};

use crate::relayed::{AUTOCOMMIT, Writer, down, is_clean, message, query, up, written};

#[test]
fn an_unknown_command_is_refused_by_the_server() {
    let unknown = b"\x18\0\0\x01\xff\x17\x04#08S01Unknown command";
    let ok = Writer(RELAYED).ok(AUTOCOMMIT);
    let payloads = [&b""[..], b"\0", b"\x0b", b"\x0f", b"\x14abc", b"\x1d", b"\x22", b"\xfd\0", b"\xff"];
    for payload in payloads {
        let mut relay = MySqlRelay::new(RELAYED);
        up(&mut relay, &[message(payload), written(encode_ping)].concat(), 1);
        assert!(!is_clean(&relay));
        down(&mut relay, &[&unknown[..], &ok].concat(), 1);
        assert!(is_clean(&relay), "{payload:?}");
        // Any other response could be the start of another protocol.
        let mut relay = MySqlRelay::new(RELAYED);
        up(&mut relay, &message(payload), 1);
        assert!(relay.process_server(&ok).is_err(), "{payload:?}");
    }
}

#[test]
fn untrackable_commands_are_refused() {
    for (kind, command) in
        [(0x12, "COM_BINLOG_DUMP"), (0x15, "COM_REGISTER_SLAVE"), (0x1e, "COM_BINLOG_DUMP_GTID")]
    {
        let refused = MySqlRelay::new(RELAYED).process_client(&message(&[kind, 0, 0]));
        assert_eq!(refused, Err(Error::NotPooled { command }));
    }
    for bytes in [&b"\0\0\0\x01"[..], b"\x01\0\0\x01\x03", b"\x01\0\0\x01\x7f"] {
        assert!(
            matches!(MySqlRelay::new(RELAYED).process_client(bytes), Err(Error::Protocol { .. })),
            "{bytes:?}"
        );
    }
    for answer in [
        &b"\0\0\0\x01"[..],
        b"\x01\0\0\x01\0",
        b"\x02\0\0\x01\0\0",
        b"\x02\0\0\x01\x01\x02",
        b"\x03\0\0\x01\xfd\xff\xff",
        b"\x01\0\0\x01\xff",
    ] {
        let mut relay = MySqlRelay::new(RELAYED);
        up(&mut relay, &query("SELECT 1"), usize::MAX);
        assert!(relay.process_server(answer).is_err(), "{answer:?}");
    }
}

#[test]
fn what_a_text_with_a_kill_leaves_is_found() {
    let own = 1 << 31;
    for (text, reason) in
        [("SET ROLE r", Some("SET ROLE")), ("XA PREPARE 'x'", Some("XA PREPARE")), ("DO 1", None)]
    {
        let mut relay =
            MySqlRelay::new(RELAYED.without(Capabilities::QUERY_ATTRIBUTES)).with_own_numbers(own);
        let kill = query(&format!("{text}; KILL QUERY {own}"));
        assert!(relay.kill(&kill).is_some());
        relay.replace_kill(&kill).unwrap();
        assert_eq!(relay.ends_with_client(), reason);
    }
}
