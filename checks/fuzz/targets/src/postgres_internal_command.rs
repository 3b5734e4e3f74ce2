//! Responses of a hostile server to internal commands of a pool, read at once and in portions, with the same result.
//!
//! Input: one byte that selects the command, one byte for the portion size, then the responses.

use ciphertoll_wire::postgres::{
    Error, Parameters, Response, TransactionStatus,
    relay::{InternalCommand, PipelinedCommit, TimeLimit},
};

pub fn run(data: &[u8]) {
    let &[asked, size, ref bytes @ ..] = data else { return };
    let whole = read_in_portions(asked, bytes, usize::MAX);
    // `nothing` never completes.
    assert!(asked % 5 != 0 || !matches!(whole.0, Some(Ok(_))));
    assert_eq!(whole, read_in_portions(asked, bytes, usize::from(size).max(1)));
}

type End = Option<Result<TransactionStatus, Error>>;

fn read_in_portions(asked: u8, bytes: &[u8], size: usize) -> (End, Parameters) {
    let (mut out, mut parameters) = (Vec::new(), Parameters::default());
    let command = match asked % 5 {
        0 => Ok(InternalCommand::nothing()),
        1 => InternalCommand::reset(TransactionStatus::Idle, TimeLimit::Long, &mut out),
        2 => InternalCommand::reset(TransactionStatus::InTransaction, TimeLimit::MayBeShort, &mut out),
        3 => InternalCommand::settings([("application_name", "x"), ("TimeZone", "UTC")], &mut out),
        _ => InternalCommand::take_over([("application_name", "x")], PipelinedCommit::AtOnce, &mut out),
    };
    let mut command = command.expect("it can be written");
    let mut received = Vec::new();
    for portion in bytes.chunks(size) {
        received.extend_from_slice(portion);
        let mut input = received.as_slice();
        let response = command.step(&mut input, &mut parameters);
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
