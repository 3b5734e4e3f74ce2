//! What coordinator and agent say to each other: one JSON document per line, over stdin and stdout.
//!
//! The agent begins with [`Hello`]. Then the coordinator speaks, and the agent answers, except that it forwards the
//! messages of its load process as they come. At the end of stdin the agent ends, whatever it was doing.

use std::io::{self, BufRead, Read, Write};

use ciphertoll_model::{ErrorKind, FailureOrigin, LoadMessage, TrialSpec};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::secret::SecretBytes;

/// Increased with every change that an older agent or coordinator would misunderstand.
pub const PROTOCOL_VERSION: u32 = 1;
/// No line is longer: a trial with its files, or a result with its histograms.
pub const MAX_LINE_BYTES: usize = 16 << 20;
/// A certificate file may hold a bundle of CAs.
pub const MAX_FILE_BYTES: usize = 4 << 20;

/// From the coordinator to the agent. No `Debug`: it carries secrets.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "message", content = "body")]
pub enum ToHost {
    /// Asks for a [`FromHost::Pong`].
    Ping {
        number: u64,
    },
    /// Starts a load process for this trial. It reports [`LoadMessage::Ready`] and waits.
    Trial(Box<HostTrial>),
    /// The warm-up begins at this moment of the host's `CLOCK_MONOTONIC`.
    BeginAt {
        trial: u64,
        monotonic_ns: u64,
    },
    /// Ends the load process, if it still runs.
    Abort {
        trial: u64,
    },
    /// Asks for a [`FromHost::ServerCpu`].
    ReadServerCpu {
        number: u64,
        port: u16,
    },
    Bye,
}

/// A trial of one host.
#[derive(Serialize, Deserialize)]
pub struct HostTrial {
    /// All messages about it carry this number, so that those of an aborted trial can be told apart.
    pub number: u64,
    /// Its paths are those of the coordinator; the agent writes the files below and replaces them.
    pub spec: TrialSpec,
    pub files: TrialFiles,
}

/// The contents of the files that a [`TrialSpec`] names.
#[derive(Clone, Serialize, Deserialize)]
pub struct TrialFiles {
    pub password: SecretBytes,
    pub ca: Option<SecretBytes>,
    pub certificate: Option<SecretBytes>,
    pub key: Option<SecretBytes>,
}

/// From the agent to the coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "message", content = "body")]
pub enum FromHost {
    Hello(Hello),
    /// When the ping was read and when this answer was written, by the host's `CLOCK_MONOTONIC`.
    Pong {
        number: u64,
        received_ns: u64,
        sent_ns: u64,
    },
    Load {
        trial: u64,
        message: LoadMessage,
    },
    /// The machine's use between the edges of the window. Follows [`LoadMessage::WindowClosed`].
    Window {
        trial: u64,
        machine: MachineWindow,
    },
    /// The trial has ended without a result.
    LoadEnded {
        trial: u64,
        /// One line.
        reason: String,
        fault: FailureOrigin,
        kind: ErrorKind,
    },
    ServerCpu {
        number: u64,
        /// When it was read, by the host's `CLOCK_MONOTONIC`.
        at_ns: u64,
        /// Absent if it could not be read: the process has ended, for example.
        cpu_ns: Option<u64>,
        /// What was read, in a few words.
        source: String,
        /// Differs if another process was read.
        instance: u64,
    },
    /// The agent ends. Unlike a broken connection, this is not repaired by a new one.
    Refused {
        reason: String,
    },
}

/// The agent's first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub protocol_version: u32,
    pub tool_version: String,
    /// As the kernel names it: `x86_64`.
    pub architecture: String,
    pub kernel: String,
    pub cpu_model: String,
    pub processors: u16,
    pub tls_library: String,
    /// Differs between machines, and equals between containers of one.
    pub boot_id: String,
}

/// The use of a host's machine in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineWindow {
    pub elapsed_ns: u64,
    /// Of the machine, whatever the host may use of it.
    pub processors: u16,
    /// CPU time of all processors that was not idle, without steal.
    pub busy_ns: u64,
    /// The part of it in which interrupts were handled, among them all packets.
    pub interrupts_ns: u64,
    pub steal_ns: u64,
    /// CPU time of the agent itself.
    pub agent_cpu_ns: u64,
    pub usable_ports: u32,
    pub time_wait_sockets: u32,
}

/// Writes one message as one line.
pub fn write_line(mut output: impl Write, message: &impl Serialize) -> io::Result<()> {
    output.write_all(&line(message)?)?;
    output.flush()
}

/// The line of one message.
pub(crate) fn line(message: &impl Serialize) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut line = Zeroizing::new(serde_json::to_vec(message)?);
    line.push(b'\n');
    Ok(line)
}

/// Reads one message; `None` at the end of the input. A longer line than [`MAX_LINE_BYTES`] is an error.
pub fn read_line<T: DeserializeOwned>(input: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Zeroizing::new(Vec::new());
    let read = input.by_ref().take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    if line.len() > MAX_LINE_BYTES {
        return Err(io::Error::other("a line is too long"));
    }
    // The error names a position, and no text that may be secret.
    let parsed = serde_json::from_slice(&line);
    parsed
        .map(Some)
        .map_err(|error| io::Error::other(format!("a line does not parse at column {}", error.column())))
}
