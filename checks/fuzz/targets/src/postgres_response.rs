//! The response of a hostile server to a command, read at once and in portions, with the same result.
//!
//! Input: one byte for the number of responses, one byte for the portion size, then the responses.

use ciphertoll_wire::postgres::{
    CopyInReader, CopyOutReader, Error, PostgresPrepareReader, PostgresResponseReader, PostgresRowsReader,
    Response,
};

const LIMIT_BYTES: usize = 1 << 16;

pub fn run(data: &[u8]) {
    let &[answers, size, ref bytes @ ..] = data else { return };
    let size = usize::from(size).max(1);

    let new = || PostgresResponseReader::pipelined(u32::from(answers % 4));
    let (mut whole, mut portions) = (new(), new());
    let several = whole.step(&mut &*bytes);
    assert_eq!(several, feed(bytes, size, |input| portions.step(input)));

    let counted = PostgresResponseReader::new().step(&mut &*bytes);
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

    let new = || (CopyOutReader::new(), Vec::new());
    let ((mut whole, mut at_once), (mut portions, mut in_portions)) = (new(), new());
    let copied = whole.step(&mut &*bytes, |piece| at_once.extend_from_slice(piece));
    let fed = feed(bytes, size, |input| portions.step(input, |piece| in_portions.extend_from_slice(piece)));
    assert_eq!((&copied, at_once), (&fed, in_portions));
}

fn feed<T>(
    bytes: &[u8],
    size: usize,
    mut step: impl FnMut(&mut &[u8]) -> Result<Response<T>, Error>,
) -> Result<Response<T>, Error> {
    let mut received = Vec::new();
    // Before any input, only a reader of no responses has ended.
    for portion in std::iter::once(&b""[..]).chain(bytes.chunks(size)) {
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
