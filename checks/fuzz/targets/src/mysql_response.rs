//! The response of a hostile server to a command, read at once and in portions, with the same result.
//!
//! Input: one byte of options, one byte for the portion size, then the response.

use ciphertoll_wire::mysql::{
    Capabilities, Error, MySqlPrepareReader, MySqlResponseReader, MySqlRowsReader, Response, ResponseKind,
};

const LIMIT_BYTES: usize = 1 << 16;
const ROW_LIMIT_BYTES: usize = 1 << 10;

pub fn run(data: &[u8]) {
    let &[choices, size, ref bytes @ ..] = data else { return };
    let capabilities = if choices & 1 == 0 { Capabilities::DEPRECATE_EOF } else { Capabilities::default() };
    let kind = if choices & 2 == 0 { ResponseKind::Text } else { ResponseKind::Binary };
    let size = usize::from(size).max(1);

    // Some rows exceed this limit; none reaches the default limit.
    let row_limit = if choices & 4 == 0 { ROW_LIMIT_BYTES } else { usize::MAX };
    let new = || MySqlResponseReader::new(kind, capabilities).with_row_limit(row_limit);
    let (mut whole, mut portions) = (new(), new());
    let counted = whole.step(&mut &*bytes);
    assert_eq!(counted, feed(bytes, size, |input| portions.step(input)));

    let new = || MySqlRowsReader::new(capabilities, LIMIT_BYTES);
    let (mut whole, mut portions) = (new(), new());
    let collected = whole.step(&mut &*bytes);
    assert_eq!(collected, feed(bytes, size, |input| portions.step(input)));
    if let (ResponseKind::Text, usize::MAX, Ok(Response::Done(rows))) = (kind, row_limit, &collected) {
        assert!(matches!(&counted, Ok(Response::Done(summary)) if summary.rows == rows.len() as u64));
    }

    let new = || MySqlPrepareReader::new(capabilities);
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
