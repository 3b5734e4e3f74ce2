//! The response of a hostile server to a command, read at once and in portions, with the same result.
//!
//! Input: one byte that is not used, one byte for the portion size, then the response.

use ciphertoll_wire::postgres::{
    CopyInReader, Error, PostgresPrepareReader, PostgresResponseReader, PostgresRowsReader, Response,
};

const LIMIT_BYTES: usize = 1 << 16;

pub fn run(data: &[u8]) {
    let &[_, size, ref bytes @ ..] = data else { return };
    let size = usize::from(size).max(1);

    let new = PostgresResponseReader::new;
    let (mut whole, mut portions) = (new(), new());
    let counted = whole.step(&mut &*bytes);
    assert_eq!(counted, feed(bytes, size, |input| portions.step(input)));

    let new = || PostgresRowsReader::new(LIMIT_BYTES);
    let (mut whole, mut portions) = (new(), new());
    let collected = whole.step(&mut &*bytes);
    assert_eq!(collected, feed(bytes, size, |input| portions.step(input)));
    assert_eq!(whole.notices(), portions.notices());
    if let (Ok(Response::Done(rows)), Ok(Response::Done(summary))) = (&collected, &counted) {
        // Counts the data of COPY, which are not rows.
        assert!(summary.rows >= rows.len() as u64 && summary.notices >= whole.notices().len() as u64);
    }

    let new = PostgresPrepareReader::new;
    let (mut whole, mut portions) = (new(), new());
    assert_eq!(whole.step(&mut &*bytes), feed(bytes, size, |input| portions.step(input)));

    let new = CopyInReader::new;
    let (mut whole, mut portions) = (new(), new());
    assert_eq!(whole.step(&mut &*bytes), feed(bytes, size, |input| portions.step(input)));
}

fn feed<T>(
    bytes: &[u8],
    size: usize,
    mut step: impl FnMut(&mut &[u8]) -> Result<Response<T>, Error>,
) -> Result<Response<T>, Error> {
    let mut received = Vec::new();
    for portion in bytes.chunks(size) {
        received.extend_from_slice(portion);
        let mut input = received.as_slice();
        match step(&mut input)? {
            Response::NeedInput => {
                let unread = input.len();
                received.drain(..received.len() - unread);
            }
            done @ Response::Done(_) => return Ok(done),
        }
    }
    Ok(Response::NeedInput)
}
