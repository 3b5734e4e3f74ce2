//! A packet capture on a link.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child as Process, ChildStdout, Command, Stdio};

use ciphertoll_model::Namespace;

use crate::common;

/// The marker that is searched.
pub(crate) const MARKER: &str = "a-word-that-nobody-else-says";
/// The clients' end of the long link.
const LONG: &str = "wan0";

/// A running capture.
pub(crate) struct Capture {
    process: Process,
    says: BufReader<ChildStdout>,
}

impl Capture {
    pub(crate) fn begin(network: &Namespace) -> Self {
        let namespace = serde_json::to_string(network).expect("JSON");
        let mut command = Command::new(common::helper());
        command.args(["capture", &namespace, LONG, MARKER]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("the helper");
        let mut says = BufReader::new(process.stdout.take().expect("its output"));
        let mut line = String::new();
        says.read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        Self { process, says }
    }

    /// Captured bytes, and whether they contain the marker.
    pub(crate) fn end(mut self) -> (usize, bool) {
        drop(self.process.stdin.take());
        let mut said = String::new();
        self.says.read_to_string(&mut said).expect("what it has seen");
        self.process.wait().expect("its end");
        let (bytes, seen) = said.trim().split_once(' ').expect("two words");
        (bytes.parse().expect("a number"), seen.parse().expect("yes or no"))
    }
}
