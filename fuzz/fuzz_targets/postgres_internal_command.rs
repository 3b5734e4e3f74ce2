//! Responses of a hostile server to internal commands of a pool, read at once and in portions, with the same result.
//!
//! Input: one byte that selects the command, one byte for the portion size, then the responses.
#![no_main]

use ciphertoll_wire::postgres::{relay::InternalCommand, Error, Parameters, Response, TransactionStatus};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let &[asked, size, ref bytes @ ..] = data else { return };
    let whole = run(asked, bytes, usize::MAX);
    // Without a command, there is no end.
    assert!(asked % 5 != 0 || !matches!(whole.0, Some(Ok(_))));
    assert_eq!(whole, run(asked, bytes, usize::from(size).max(1)));
});

type End = Option<Result<TransactionStatus, Error>>;

fn run(asked: u8, bytes: &[u8], size: usize) -> (End, Parameters) {
    let (mut out, mut parameters) = (Vec::new(), Parameters::default());
    let errand = match asked % 5 {
        0 => Ok(InternalCommand::nothing()),
        1 => InternalCommand::reset(TransactionStatus::Idle, &mut out),
        2 => InternalCommand::reset(TransactionStatus::InTransaction, &mut out),
        3 => InternalCommand::settings([("application_name", "x"), ("TimeZone", "UTC")], &mut out),
        _ => InternalCommand::take_over([("application_name", "x")], &mut out),
    };
    let mut errand = errand.expect("it can be written");
    let mut received = Vec::new();
    for portion in bytes.chunks(size) {
        received.extend_from_slice(portion);
        let mut input = received.as_slice();
        let response = errand.step(&mut input, &mut parameters);
        let unread = input.len();
        received.drain(..received.len() - unread);
        match response {
            Ok(Response::NeedInput) => {}
            Ok(Response::Done(status)) => return (Some(Ok(status)), parameters),
            Err(error) => return (Some(Err(error)), parameters),
        }
    }
    (None, parameters)
}
