//! Arbitrary bytes as a capture file, read at once and in portions, with the same frames. Streams get their segments, and an
//! observer of connections gets the frames.
//!
//! Input: one byte for the portion size, then the file.

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::SocketAddr;

use ciphertoll_observe::{Capture, Content, Piece, Ports, SourceEnd, Stream, Watch, first_screen, segment};
use ciphertoll_wire::passive::{AccountNames, DatabaseProtocol};

struct Portions<'a> {
    bytes: &'a [u8],
    size: usize,
}

impl Read for Portions<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.size.min(buffer.len());
        self.bytes.read(&mut buffer[..size])
    }
}

#[derive(Default)]
struct Direction {
    stream: Stream,
    captured: usize,
    emitted: usize,
}

/// What the two readings must have in common.
#[derive(Default, PartialEq, Debug)]
struct Reading {
    frames: Vec<(u64, u32, Vec<u8>)>,
    is_truncated: bool,
    kernel_drops: u64,
    error: Option<String>,
}

pub fn run(data: &[u8]) {
    let Some((&size, bytes)) = data.split_first() else { return };
    let whole = read(bytes);
    let portions = read(Portions { bytes, size: usize::from(size).max(1) });
    assert_eq!(whole, portions);
}

fn read(reader: impl Read) -> Reading {
    let mut reading = Reading::default();
    let mut capture = match Capture::from_reader("input", reader) {
        Ok(capture) => capture,
        Err(error) => return Reading { error: Some(error.to_string()), ..reading },
    };
    let ports = Ports::from_iter([
        (5432, Some(DatabaseProtocol::Postgres)),
        (3306, Some(DatabaseProtocol::MySql)),
        (27017, Some(DatabaseProtocol::MongoDb)),
        (6432, None),
    ]);
    let mut watch = Watch::new(ports, AccountNames::Read);
    let mut directions: HashMap<(SocketAddr, SocketAddr), Direction> = HashMap::new();
    loop {
        let frame = match capture.next_frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(error) => {
                reading.error = Some(error.to_string());
                break;
            }
        };
        reading.frames.push((frame.time_ns, frame.wire_bytes, frame.data.to_vec()));
        watch.frame(&frame);
        let Ok(segment) = segment(&frame) else { continue };
        assert!(segment.payload.len() <= segment.payload_bytes as usize);
        let Direction { stream, captured, emitted } =
            directions.entry((segment.source, segment.destination)).or_default();
        *captured += segment.payload.len();
        stream.push(&segment, &mut |piece| *emitted += bytes_of(piece));
        if let Some(sequence) = segment.acknowledgement {
            let peer = directions.entry((segment.destination, segment.source)).or_default();
            peer.stream.acknowledged(sequence, segment.time_ns, &mut |piece| peer.emitted += bytes_of(piece));
        }
    }
    let observation = watch.finish(SourceEnd { name: "input".to_owned(), dropped: 0, truncated: false });
    assert!(first_screen(&observation).lines().count() <= 25);
    for Direction { mut stream, captured, mut emitted } in directions.into_values() {
        stream.finish(0, &mut |piece| emitted += bytes_of(piece));
        assert!(emitted <= captured);
    }
    Reading { is_truncated: capture.is_truncated(), kernel_drops: capture.kernel_drops(), ..reading }
}

/// The bytes of a piece, which must not be empty.
fn bytes_of(piece: Piece<'_>) -> usize {
    match piece.content {
        Content::Bytes(bytes) => {
            assert!(!bytes.is_empty());
            bytes.len()
        }
        Content::Missing(count) => {
            assert_ne!(count, 0);
            0
        }
    }
}
