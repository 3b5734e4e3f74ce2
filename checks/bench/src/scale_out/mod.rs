//! What the coordinator costs with many load hosts: real connections, pipes and messages, with agents that measure
//! nothing and answer with made-up results.

pub mod mock_agent;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ciphertoll_hosts::{Bootstrap, Fleet, HostError, HostTransport, TrialFailure, TrialWatch};
use ciphertoll_load::process_cpu;
use ciphertoll_model::{Auth, Clients, Endpoint, Engine, TrialOperation, TrialPace, TrialSpec, TrialStart};

use self::mock_agent::MOCK_AGENT_COMMAND;

/// The cost of one trial.
#[derive(Clone, Copy, Debug)]
pub struct TrialCost {
    pub wall: Duration,
    /// User and system CPU time of this process, without the agents'.
    pub cpu: Duration,
    pub operations: u64,
    /// The overlap of the windows, as a share.
    pub overlap: f64,
    /// The largest uncertainty of a clock's offset.
    pub uncertainty: Duration,
}

/// The simulated hosts, connected.
pub struct Simulation {
    fleet: Fleet,
    spec: TrialSpec,
    /// The CPU time and the time that connecting took.
    pub connecting: (Duration, Duration),
}

struct MockTransport {
    name: String,
    program: PathBuf,
    number: usize,
}

impl HostTransport for MockTransport {
    fn name(&self) -> &str {
        &self.name
    }

    fn command(&mut self, _: &dyn Fn() -> bool) -> Result<Command, HostError> {
        let mut command = Command::new(&self.program);
        command.arg(MOCK_AGENT_COMMAND).arg(self.number.to_string());
        Ok(command)
    }
}

struct Unwatched;

impl TrialWatch for Unwatched {
    fn is_interrupted(&self) -> bool {
        false
    }
    fn window_opens(&mut self) {}
    fn window_closes(&mut self) {}
}

impl Simulation {
    /// Starts and connects `hosts` agents; `program` is this one.
    pub fn start(program: &Path, hosts: usize, password_file: PathBuf, window: Duration) -> Result<Self> {
        let transport = |number| {
            let (name, program) = (format!("host{number}"), program.to_owned());
            Box::new(MockTransport { name, program, number }) as Box<dyn HostTransport>
        };
        let bootstrap = Bootstrap::of(program)?;
        let (began, cpu) = (Instant::now(), process_cpu());
        let mut fleet = Fleet::new((0..hosts).map(transport).collect(), bootstrap)?;
        fleet.connect(&|| false)?;
        let connecting = (process_cpu().saturating_sub(cpu), began.elapsed());
        Ok(Self { fleet, spec: spec(hosts, password_file, window)?, connecting })
    }

    pub fn trial(&mut self) -> Result<TrialCost> {
        let (began, cpu) = (Instant::now(), process_cpu());
        let outcome = self.fleet.run(&self.spec, &mut Unwatched).map_err(|failure| failed(&failure))?;
        Ok(TrialCost {
            wall: began.elapsed(),
            cpu: process_cpu().saturating_sub(cpu),
            operations: outcome.total.operations,
            overlap: outcome.overlap.share,
            uncertainty: Duration::from_nanos(
                outcome.hosts.iter().map(|host| host.offset.uncertainty_ns).max().unwrap_or_default(),
            ),
        })
    }
}

fn failed(failure: &TrialFailure) -> anyhow::Error {
    anyhow::anyhow!("the trial failed: {failure:?}")
}

/// Eight clients on each host, as many as there may be.
fn spec(hosts: usize, password_file: PathBuf, window: Duration) -> Result<TrialSpec> {
    let clients = (hosts * 8).min(usize::from(Clients::MAX));
    Ok(TrialSpec {
        engine: Engine::Postgres,
        auth: Auth::AsAsked,
        endpoint: Endpoint::Tcp(([127, 0, 0, 1], 1).into()),
        user: "simulated".to_owned(),
        password_file,
        database: None,
        startup: Vec::new(),
        documents: None,
        tls: None,
        compressor: None,
        work: TrialOperation::Connect,
        pace: TrialPace::Open { per_s: 100_000.0 },
        clients: Clients::new(clients as u16).context("a number of clients")?,
        threads: 1,
        warm_up_ns: window.as_nanos() as u64 / 4,
        window_ns: window.as_nanos() as u64,
        seed: 1,
        first_insert: None,
        max_per_s: None,
        processors: None,
        namespace: None,
        injected_delay_ns: 0,
        repeated_share: 0.0,
        start: TrialStart::AtOnce,
    })
}
