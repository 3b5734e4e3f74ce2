//! Traffic through the relay, split anywhere.

use ciphertoll_wire::postgres::relay::{ConnectionState, InternalCommand, PostgresRelay};
use ciphertoll_wire::postgres::server::write_message;
use ciphertoll_wire::postgres::{Error, Parameters, Response};
use ciphertoll_wire::relay::Goodbye;
use proptest::prelude::*;

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
