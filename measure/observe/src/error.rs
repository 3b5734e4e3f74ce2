//! Errors of captures.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    #[error("cannot read the capture {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is not a capture: {reason}; use a pcap or pcapng file, for example of tcpdump -w", path.display())]
    NotACapture { path: PathBuf, reason: &'static str },
    /// What was read before it is valid.
    #[error("cannot read the capture {} beyond byte {offset}: {reason}; capture again or cut it there", path.display())]
    Damaged { path: PathBuf, offset: u64, reason: &'static str },
}
