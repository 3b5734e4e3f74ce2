//! Frames of a capture file, read as a stream. Formats: pcap and pcapng, in both byte orders.
//!
//! The crate pcap-parser (0.17) is not used. It rejects time resolutions that are powers of 2, reads a time offset as
//! little-endian in any file, does not know obsolete packet blocks, and fails if the first read of a pipe is short.

mod fields;
mod input;
mod interface;
mod pcap;
mod pcapng;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use self::input::Input;
use self::pcap::Pcap;
use self::pcapng::Pcapng;
use crate::error::CaptureError;
use crate::frame::Frame;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A capture file. Memory use does not depend on the size of the file.
pub struct Capture<R> {
    input: Input<R>,
    format: CaptureFormat,
}

enum CaptureFormat {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

impl Capture<File> {
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let file = File::open(path);
        let file = file.map_err(|source| CaptureError::Unreadable { path: path.to_owned(), source })?;
        Self::from_reader(path, file)
    }
}

impl<R: Read> Capture<R> {
    /// Errors contain `name`, such as `standard input`. The reader does not need to be buffered.
    pub fn from_reader(name: impl Into<PathBuf>, reader: R) -> Result<Self, CaptureError> {
        let mut input = Input::new(name.into(), reader);
        if input.peek(1)?.is_none() {
            return Err(input.not_a_capture("it is empty"));
        }
        // The first block of a pcapng file is longer than this.
        let Some(header) = input.peek(pcap::HEADER_BYTES)? else {
            return Err(input.not_a_capture("it ends within the file header"));
        };
        if Pcapng::is_beginning(header) {
            return Ok(Self { input, format: CaptureFormat::Pcapng(Pcapng::new()) });
        }
        if let Some(pcap) = Pcap::parse(header) {
            input.take(pcap::HEADER_BYTES);
            return Ok(Self { input, format: CaptureFormat::Pcap(pcap) });
        }
        let is_compressed = header.starts_with(&GZIP) || header.starts_with(&ZSTD);
        let reason = if is_compressed { "it is compressed" } else { "it begins with other bytes" };
        Err(input.not_a_capture(reason))
    }

    /// Returns the next packet, or `None` at the end. A packet that is cut off by the end of the file is not an error:
    /// see [`is_truncated`](Self::is_truncated).
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, CaptureError> {
        match &mut self.format {
            CaptureFormat::Pcap(pcap) => pcap.next_frame(&mut self.input),
            CaptureFormat::Pcapng(pcapng) => pcapng.next_frame(&mut self.input),
        }
    }

    /// Whether the file ended within a packet or block; known at the end.
    pub fn is_truncated(&self) -> bool {
        self.input.is_truncated()
    }

    /// Packets dropped by the kernel and the interfaces, from the statistics read so far. Classic pcap has none.
    pub fn kernel_drops(&self) -> u64 {
        match &self.format {
            CaptureFormat::Pcap(_) => 0,
            CaptureFormat::Pcapng(pcapng) => pcapng.kernel_drops(),
        }
    }
}
