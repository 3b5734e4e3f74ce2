//! The CPU of a server on its own machine, read by an agent there at the edges of the window.

use std::time::{Duration, Instant};

use crate::error::HostError;
use crate::fleet::{Fleet, HostFacts};
use crate::protocol::{FromHost, ToHost};
use crate::transport::{Bootstrap, HostTransport};

/// A host that does not answer for this long is lost.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// The connection with the host of a server.
pub struct ServerMeter {
    fleet: Fleet,
    numbers: u64,
    /// The readings of the current window.
    asked: Vec<u64>,
}

/// A server's CPU time in the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerCpu {
    pub cpu_ns: u64,
    /// What was read, in a few words.
    pub source: String,
}

#[derive(Clone)]
struct Reading {
    at_ns: u64,
    cpu_ns: Option<u64>,
    source: String,
    instance: u64,
}

impl ServerMeter {
    pub fn new(transport: Box<dyn HostTransport>, bootstrap: Bootstrap) -> Result<Self, HostError> {
        Ok(Self { fleet: Fleet::new(vec![transport], bootstrap)?, numbers: 0, asked: Vec::new() })
    }

    /// Connects the host unless it is connected. Returns it if it was connected now; `None` if `is_interrupted` ended that
    /// early.
    pub fn connect(
        &mut self,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<HostFacts>>, HostError> {
        self.asked.clear();
        self.fleet.connect(is_interrupted)
    }

    pub fn facts(&self) -> Option<&HostFacts> {
        self.fleet.facts().next()
    }

    pub fn pids(&self) -> impl Iterator<Item = (&str, u32)> {
        self.fleet.pids()
    }

    /// Asks for a reading at an edge of the window, and does not wait for it.
    pub fn ask(&mut self, port: u16) -> Result<(), HostError> {
        let number = self.numbers;
        self.numbers += 1;
        self.asked.push(number);
        self.fleet.send(0, &ToHost::ReadServerCpu { number, port })
    }

    /// The CPU time between the two readings, scaled from the time between them to the window.
    pub fn used(&mut self, window_ns: u64) -> Result<ServerCpu, HostError> {
        let readings = self.answers()?;
        let [opened, closed] = &readings[..] else {
            return Err(self.fleet.unreachable_host("its clock was not read at both edges of the window"));
        };
        between(opened, closed, window_ns).ok_or_else(|| {
            self.fleet.unreachable_host("the server's CPU time could not be read in the window")
        })
    }

    /// What is read for the server on this port, in a few words.
    pub fn source(&mut self, port: u16) -> Result<String, HostError> {
        self.asked.clear();
        self.ask(port)?;
        let reading = self.answers()?.pop();
        reading.map(|reading| reading.source).ok_or_else(|| self.fleet.unreachable_host("no answer"))
    }

    /// The answers to everything that was asked, in that order.
    fn answers(&mut self) -> Result<Vec<Reading>, HostError> {
        let asked = std::mem::take(&mut self.asked);
        let mut readings: Vec<Option<Reading>> = vec![None; asked.len()];
        let deadline = Instant::now() + ANSWER_LIMIT;
        while readings.iter().any(Option::is_none) {
            if Instant::now() >= deadline {
                return Err(self.fleet.unreachable_host("no answer in time"));
            }
            for message in self.fleet.messages(deadline)? {
                let FromHost::ServerCpu { number, at_ns, cpu_ns, source, instance } = message else {
                    continue;
                };
                if let Some(at) = asked.iter().position(|asked| *asked == number) {
                    readings[at] = Some(Reading { at_ns, cpu_ns, source, instance });
                }
            }
        }
        Ok(readings.into_iter().flatten().collect())
    }
}

fn between(opened: &Reading, closed: &Reading, window_ns: u64) -> Option<ServerCpu> {
    if opened.instance != closed.instance || opened.source != closed.source {
        return None;
    }
    let elapsed_ns = closed.at_ns.checked_sub(opened.at_ns).filter(|&elapsed_ns| elapsed_ns > 0)?;
    let used_ns = closed.cpu_ns?.checked_sub(opened.cpu_ns?)?;
    let cpu_ns = (used_ns as f64 * window_ns as f64 / elapsed_ns as f64) as u64;
    Some(ServerCpu { cpu_ns, source: closed.source.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at_ns: u64, cpu_ns: u64, instance: u64) -> Reading {
        Reading { at_ns, cpu_ns: Some(cpu_ns), source: "cgroup cpu.stat of postgres".to_owned(), instance }
    }

    #[test]
    fn readings_are_scaled_to_the_window() {
        let used = between(&reading(1_000, 50, 7), &reading(3_000, 250, 7), 1_000).map(|used| used.cpu_ns);
        assert_eq!(used, Some(100));
    }

    #[test]
    fn readings_of_two_processes_have_no_difference() {
        assert_eq!(between(&reading(1_000, 50, 7), &reading(3_000, 250, 8), 1_000), None);
        assert_eq!(between(&reading(1_000, 50, 7), &reading(1_000, 250, 7), 1_000), None);
    }

    #[test]
    fn a_reading_that_failed_is_not_zero() {
        let failed = Reading { cpu_ns: None, ..reading(3_000, 0, 7) };
        assert_eq!(between(&reading(1_000, 50, 7), &failed, 1_000), None);
        assert_eq!(between(&failed, &reading(5_000, 50, 7), 1_000), None);
    }
}
