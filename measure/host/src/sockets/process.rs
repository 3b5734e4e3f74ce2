//! The process that samples, and the end of the one that asks it.
//!
//! A line of its input asks for the counts, and the end ends it. Its output is one JSON document.

use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::counts::SeenClient;
use super::sampler::SocketSampler;
use crate::accounting;
use crate::companion::{Companion, end_with_parent, is_readable};
use crate::privileges;

/// The hidden command that must call [`run_sockets_process`].
pub const SOCKETS_COMMAND: &str = "__sockets";

const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
/// A pause is so many times as long as the sample before it, which takes at most 1 % of a processor then. The kernel looks through
/// its whole hash table for each sample, which takes 3 ms with 262,144 entries, whatever the number of connections.
const PAUSE_PER_SAMPLE: u32 = 100;
/// After longer ones there is no last sample: the answer would come too late.
const LONGEST_LAST_SAMPLE: Duration = Duration::from_secs(1);
const LONGEST_ANSWER: Duration = Duration::from_secs(5);
/// As many clients as are counted, each with the longest names, take less.
const MOST_ANSWER_BYTES: usize = 4 << 20;

/// Samples sockets until it is asked what it has seen. `ports` is its argument.
pub fn run_sockets_process(ports: &str) -> io::Result<()> {
    let ports: Result<Vec<u16>, _> = ports.split(',').map(str::parse).collect();
    let ports = ports.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    privileges::keep_reading()?;
    // It would end by its input, too, but only after a sample.
    end_with_parent()?;
    privileges::confine_to_reading()?;
    let mut sampler = SocketSampler::new(Path::new("/proc"), ports);
    let mut asking = io::stdin();
    let took = loop {
        let begun = Instant::now();
        sampler.sample();
        let took = begun.elapsed();
        match is_readable(&asking, pause_after(took)) {
            Ok(true) => break took,
            // Signals are meant for the observer.
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            Ok(false) | Err(_) => {}
        }
    };
    let is_asked = asking.read(&mut [0])? > 0;
    if !is_asked {
        return Ok(());
    }
    if took < LONGEST_LAST_SAMPLE {
        sampler.sample();
    }
    let answer = SeenClients { clients: sampler.clients(), cpu_time: accounting::own_cpu_time()? };
    let mut output = io::stdout();
    output.write_all(&serde_json::to_vec(&answer)?)?;
    output.flush()
}

fn pause_after(took: Duration) -> Duration {
    took.saturating_mul(PAUSE_PER_SAMPLE).max(SHORTEST_PAUSE)
}

/// What the process has seen.
#[derive(Debug, Serialize, Deserialize)]
pub struct SeenClients {
    pub clients: Vec<SeenClient>,
    /// Its own.
    pub cpu_time: Duration,
}

/// The process that samples, while this one observes.
#[derive(Debug)]
pub struct SocketsProcess(Companion);

impl SocketsProcess {
    /// Starts it, as a hidden command of `program`.
    pub fn start(program: &Path, ports: impl IntoIterator<Item = u16>) -> io::Result<Self> {
        let mut ports: Vec<u16> = ports.into_iter().collect();
        ports.sort_unstable();
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        Companion::start(program, &[SOCKETS_COMMAND, &ports.join(",")]).map(Self)
    }

    /// Asks what it has seen, which [`take`](Self::take) reads: it samples once more.
    pub fn ask(&mut self) -> io::Result<()> {
        self.0.send(b"\n")
    }

    /// What it has seen. Fails if it does not answer within five seconds.
    pub fn take(self) -> io::Result<SeenClients> {
        Ok(serde_json::from_slice(&self.0.answer(MOST_ANSWER_BYTES, LONGEST_ANSWER)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::counts::MOST_CLIENTS;
    use super::super::owner::SocketOwner;
    use super::*;

    #[test]
    fn sampling_takes_a_hundredth_of_the_time() {
        assert_eq!(pause_after(Duration::from_millis(1)), SHORTEST_PAUSE);
        assert_eq!(pause_after(Duration::from_millis(100)), Duration::from_secs(10));
        assert_eq!(pause_after(Duration::MAX), Duration::MAX);
    }

    #[test]
    fn the_longest_answer_is_within_the_bound() {
        let address = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        let longest = SeenClient {
            client: address.parse().unwrap(),
            server: format!("[{address}]:65535").parse().unwrap(),
            // Only the quotation mark and the backslash take two bytes.
            owner: SocketOwner::new(&[b'"'; 100], &format!("0::/{}.service", "\\".repeat(92))),
            connections: 200_000,
        };
        assert!(longest.owner.unit.is_some());
        let bytes = serde_json::to_vec(&longest).unwrap().len() + 1;
        assert!(bytes * MOST_CLIENTS + 100 <= MOST_ANSWER_BYTES, "{bytes}");
    }
}
