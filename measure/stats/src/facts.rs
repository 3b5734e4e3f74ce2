//! The events of a run, folded once: everything that reports, exit codes and a resumed run read besides the analysis.

use std::collections::{BTreeMap, BTreeSet};

use ciphertoll_model::{
    AtRest, CellId, ConnectedHost, Ending, Environment, Event, KeyExchangeTime, LinkShape, LookDecision,
    Path, Plan, Profile, SignatureTime, Skipped, TimestampedEvent,
};

use crate::assemble::Trials;
use crate::elapsed::Elapsed;
use crate::hosts::HostTotals;

/// A resumed run can repeat an event; unless said otherwise, the last one counts.
#[derive(Debug, Default)]
pub struct RunFacts<'a> {
    /// Version of ciphertoll that started the run.
    pub tool_version: Option<&'a str>,
    /// Absent if the run was killed.
    pub ending: Option<Ending>,
    pub environment: Option<&'a Environment>,
    /// Other machines that took part, each as it was connected last, in order of first appearance.
    pub hosts: Vec<&'a ConnectedHost>,
    /// What load hosts did, without calibration.
    pub host_totals: HostTotals<'a>,
    /// In order of first appearance, each as it was last started.
    pub servers: Vec<StartedServer<'a>>,
    /// Cells that were not measured, each once: those of the plan, then those found during the run.
    pub skipped: Vec<&'a Skipped>,
    /// Each message once.
    pub warnings: Vec<&'a str>,
    pub last_look: Option<LookDecision>,
    /// By the number of blocks.
    pub looks: BTreeMap<u32, LookDecision>,
    /// Completed blocks, calibration (0) included.
    pub blocks_done: BTreeSet<u32>,
    /// Capacities of baselines in a closed loop, per second.
    pub capacities: BTreeMap<&'a CellId, f64>,
    pub elapsed: Elapsed,
    /// Measured median round trip by link, ns.
    pub round_trip_ns_p50: BTreeMap<LinkShape, u64>,
    /// Primitives timed on this machine; absent in old records and for runs that time none.
    pub primitives: Option<PrimitiveTimes<'a>>,
    /// Where the CPU time of a cell goes.
    pub profiles: BTreeMap<&'a CellId, &'a Profile>,
    /// By server and level of encryption at rest.
    pub searched_files: BTreeMap<(&'a str, AtRest), SearchedFiles<'a>>,
    pub trials: Trials<'a>,
    /// Last non-empty version of the program of a tunnel or proxy.
    programs: Vec<(Path, &'a str)>,
}

/// A server as it was last started.
#[derive(Clone, Copy, Debug)]
pub struct StartedServer<'a> {
    /// Its name in cell ids.
    pub name: &'a str,
    pub version: &'a str,
    pub tls_library: Option<&'a str>,
    /// Settings that differ from the server's defaults.
    pub settings: &'a BTreeMap<String, String>,
}

/// Times of cryptographic primitives, by the label of the key or group.
#[derive(Clone, Copy, Debug)]
pub struct PrimitiveTimes<'a> {
    pub signatures: &'a BTreeMap<String, SignatureTime>,
    pub key_exchanges: &'a BTreeMap<String, KeyExchangeTime>,
}

/// The result of a search for known plaintext in all files of a server.
#[derive(Clone, Copy, Debug)]
pub struct SearchedFiles<'a> {
    pub server: &'a str,
    pub at_rest: AtRest,
    pub files: u64,
    pub bytes: u64,
    /// Files that contain the plaintext.
    pub files_with_marker: u64,
    /// Cipher of a kernel that encrypts, as the kernel names it.
    pub kernel_cipher: Option<&'a str>,
}

impl<'a> RunFacts<'a> {
    pub fn of(plan: &'a Plan, events: &'a [TimestampedEvent]) -> Self {
        let mut facts = Self { trials: Trials::new(plan), ..Self::default() };
        plan.skipped.iter().for_each(|skipped| facts.skip(skipped));
        for stamped in events {
            facts.elapsed.add(stamped);
            facts.trials.add(&stamped.event);
            facts.add(&stamped.event);
        }
        facts
    }

    /// The version of a server when it was last started.
    pub fn server_version(&self, server: &str) -> Option<&'a str> {
        self.servers.iter().find(|known| known.name == server).map(|known| known.version)
    }

    /// The version of the program of a tunnel or proxy; absent if the program does not report one.
    pub fn program_version(&self, path: Path) -> Option<&'a str> {
        self.programs.iter().find(|(of, _)| *of == path).map(|(_, version)| *version)
    }

    fn add(&mut self, event: &'a Event) {
        match event {
            Event::RunStarted { tool_version, .. } => {
                self.tool_version.get_or_insert(tool_version);
            }
            Event::EnvironmentSeen { environment } => self.environment = Some(environment),
            Event::HostConnected { host } => self.connect(host),
            Event::TrialFinished { block: 1.., observation, .. } => {
                if let Some(used) = &observation.hosts {
                    self.host_totals.add(used, observation.window_ns);
                }
            }
            Event::ServerReady { server, version, tls_library, settings, .. } => {
                let tls_library = tls_library.as_deref();
                self.start(StartedServer { name: server, version, tls_library, settings });
            }
            Event::CellSkipped { skipped } => self.skip(skipped),
            Event::PrimitivesMeasured { signatures, key_exchanges } => {
                self.primitives = Some(PrimitiveTimes { signatures, key_exchanges });
            }
            Event::Profiled { cell, profile } => {
                self.profiles.insert(cell, profile);
            }
            Event::LinkMade { link, round_trip_ns_p50, .. } => {
                self.round_trip_ns_p50.insert(*link, *round_trip_ns_p50);
            }
            Event::TunnelTried { path, version, .. } | Event::ProxyTried { path, version, .. } => {
                self.try_program(*path, version);
            }
            Event::AtRestProven { server, at_rest, files, bytes, files_with_marker, kernel_cipher } => {
                let found = SearchedFiles {
                    server,
                    at_rest: *at_rest,
                    files: *files,
                    bytes: *bytes,
                    files_with_marker: *files_with_marker,
                    kernel_cipher: kernel_cipher.as_deref(),
                };
                self.searched_files.insert((server.as_str(), *at_rest), found);
            }
            Event::Looked { blocks, decision } => {
                self.last_look = Some(*decision);
                self.looks.insert(*blocks, *decision);
            }
            Event::BlockFinished { block } => {
                self.blocks_done.insert(*block);
            }
            Event::CapacityFound { cell, per_s } => {
                self.capacities.insert(cell, *per_s);
            }
            Event::Warned { message } if !self.warnings.contains(&message.as_str()) => {
                self.warnings.push(message);
            }
            Event::Finished { ending } => self.ending = Some(*ending),
            _ => {}
        }
    }

    fn start(&mut self, server: StartedServer<'a>) {
        match self.servers.iter_mut().find(|known| known.name == server.name) {
            Some(known) => *known = server,
            None => self.servers.push(server),
        }
    }

    fn connect(&mut self, host: &'a ConnectedHost) {
        let is_same = |known: &&mut &ConnectedHost| known.name == host.name && known.role == host.role;
        match self.hosts.iter_mut().find(is_same) {
            Some(known) => *known = host,
            None => self.hosts.push(host),
        }
    }

    fn skip(&mut self, skipped: &'a Skipped) {
        if !self.skipped.contains(&skipped) {
            self.skipped.push(skipped);
        }
    }

    fn try_program(&mut self, path: Path, version: &'a str) {
        if !version.is_empty() {
            self.programs.retain(|(of, _)| *of != path);
            self.programs.push((path, version));
        }
    }
}
