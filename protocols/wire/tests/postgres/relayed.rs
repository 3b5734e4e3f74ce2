//! Traffic through the relay, split anywhere.

use ciphertoll_wire::postgres::relay::{
    ConnectionState, FirstMessage, InternalCommand, PostgresRelay, first_message,
};
use ciphertoll_wire::postgres::server::write_message;
use ciphertoll_wire::postgres::{Error, Parameters, Response};
use ciphertoll_wire::relay::{Departure, Goodbye, Vacate};
use proptest::prelude::*;

use crate::followed::{Fixture, answers, close, execute, flush, parse, query, sync};

const FROM_CLIENT: &[u8] = b"QPBDECSHdcfXFp?";
const FROM_SERVER: &[u8] = b"ZZZSTDCEIN123ntsGHdcAVRK?";

/// Messages with valid headers and mostly meaningless payloads.
fn messages(kinds: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
    let payload =
        prop::sample::select(vec![&b""[..], b"I", b"T", b"E", b"x", b"a\0b\0", b"SERROR\0C12345\0\0"]);
    let messages = prop::collection::vec((prop::sample::select(kinds), payload), 0..12);
    messages.prop_map(|messages| {
        let mut bytes = Vec::new();
        for (kind, payload) in messages {
            write_message(&mut bytes, kind, payload).unwrap();
        }
        bytes
    })
}

/// Feeds `step` with the bytes it has not taken, and `piece` more each time. Returns the forwarded bytes up to an error.
fn feed(
    bytes: &[u8],
    piece: usize,
    mut step: impl FnMut(&[u8]) -> Result<Option<usize>, Error>,
) -> (Vec<u8>, bool) {
    let (mut passed, mut held) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        held.extend_from_slice(piece);
        match step(&held) {
            Ok(Some(bytes)) => passed.extend(held.drain(..bytes)),
            Ok(None) => return (passed, true),
            Err(_) => return (passed, false),
        }
    }
    (passed, true)
}

proptest! {
    #[test]
    fn what_passes_does_not_depend_on_how_it_is_cut(
        up in messages(FROM_CLIENT),
        down in messages(FROM_SERVER),
        piece in 1_usize..9,
    ) {
        let run = |piece: usize| {
            let (mut relay, mut parameters) = (PostgresRelay::new(), Parameters::default());
            let mut gone = false;
            let (sent, up_went_well) = feed(&up, piece, |held| {
                if gone {
                    return Ok(None);
                }
                let taken = relay.process_client(held, &Parameters::default(), None)?;
                gone = taken.goodbye == Goodbye::Said;
                Ok(Some(taken.pass_bytes))
            });
            let (answered, down_went_well) = feed(&down, piece, |held| {
                relay.process_server(held, &mut parameters, None).map(|bytes| Some(bytes.pass_bytes))
            });
            let is_clean = matches!(relay.connection_state(), ConnectionState::Clean(_));
            (sent, up_went_well, answered, down_went_well, is_clean, parameters)
        };
        let (sent, up_went_well, answered, down_went_well, is_clean, parameters) = run(piece);
        // Forwarded bytes are unchanged.
        prop_assert!(up.starts_with(&sent) && down.starts_with(&answered));
        let whole = run(usize::MAX);
        prop_assert_eq!((up_went_well, down_went_well), (whole.1, whole.3));
        if up_went_well && down_went_well {
            prop_assert_eq!((sent, answered, is_clean, parameters), (whole.0, whole.2, whole.4, whole.5));
        }
    }

    #[test]
    fn garbage_is_an_error_or_waits_for_more(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (mut relay, mut parameters) = (PostgresRelay::new(), Parameters::default());
        if let Ok(taken) = relay.process_client(&bytes, &parameters, None) {
            prop_assert!(taken.pass_bytes <= bytes.len());
        }
        if let Ok(taken) = PostgresRelay::new().process_server(&bytes, &mut parameters, None) {
            prop_assert!(taken.pass_bytes <= bytes.len());
        }
        let mut input = bytes.as_slice();
        let answer = InternalCommand::nothing().step(&mut input, &mut parameters);
        // Without a command there is no response, so it never completes.
        prop_assert!(!matches!(answer, Ok(Response::Done(_))));
    }
}

/// The server answers it together with what follows.
#[test]
fn a_close_needs_no_connection_until_something_follows() {
    let (last, flushed) = (close("s"), [close("s"), flush()].concat());
    for waits in [last.clone(), last.repeat(3), [&last[..], b"Q\0\0"].concat()] {
        assert_eq!(first_message(&waits), FirstMessage::Incomplete);
    }
    for (command, what) in [
        (flushed.clone(), "it is answered"),
        ([close("s"), sync()].concat(), "it is answered"),
        (last.repeat(3000), "it does not fit in a buffer"),
        (b"C\0\0\0\x05S".to_vec(), "it is refused"),
        (close("\u{e9}"), "it may be refused"),
    ] {
        assert_eq!(first_message(&command), FirstMessage::Command, "{what}");
    }

    let mut fixture = Fixture::default();
    let all = [query("SELECT 1"), last.clone()].concat();
    assert_eq!(fixture.up(&all, 1000), query("SELECT 1"), "the rest waits");
    assert_eq!(fixture.down(&answers("CZ"), 1000), answers("CZ"));
    assert_eq!(fixture.relay.departure(), Departure::Now);
    assert_eq!(fixture.up(&flush(), 1000), flushed);
    assert_eq!(fixture.relay.departure(), Departure::WhenClosed);
    assert_eq!(fixture.down(&answers("3"), 1000), answers("3"));
    assert_eq!(fixture.relay.departure(), Departure::Now, "no transaction is open");

    // Within a batch it is one of its messages.
    let batch = [parse("", "SELECT 1"), last.clone()].concat();
    assert!(fixture.up(&batch, 1000).ends_with(&last));
}

/// On another connection the client executes what it has prepared before.
#[test]
fn a_prepared_command_about_a_database_moves_with_its_client() {
    let mut fixture = Fixture::default();
    fixture.up(&[parse("d", "DROP DATABASE shop"), sync()].concat(), 1000);
    fixture.down(&answers("1tnZ"), 1000);
    fixture.moves();
    let use_it = [execute("d"), sync()].concat();
    assert!(!fixture.process_client(&use_it).insert.is_empty(), "it is prepared again");
    let bytes = fixture.process_client(&use_it);
    assert_eq!(bytes.pass_bytes, use_it.len());
    assert_eq!(bytes.exclusive, [Vacate::Database(b"shop".to_vec())]);
}
