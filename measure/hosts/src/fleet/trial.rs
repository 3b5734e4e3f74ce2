//! One trial on all hosts: started on each, begun together, and summed up.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use ciphertoll_load::{ResultSum, monotonic_now_ns};
use ciphertoll_model::{
    ErrorCount, ErrorKind, FailureOrigin, LatencySummary, LoadMessage, TrialPace, TrialResult, TrialSpec,
};

use super::{Fleet, Incoming, POLL_INTERVAL};
use crate::clock::{ClockOffset, HostWindow, WindowOverlap};
use crate::error::HostError;
use crate::protocol::{FromHost, HostTrial, MAX_FILE_BYTES, MachineWindow, ToHost, TrialFiles};
use crate::secret::SecretBytes;
use crate::share::parts;

/// Time for the clients of a host to connect, a little more than a load process gives itself.
const SET_UP_LIMIT: Duration = Duration::from_secs(30);
/// Time from the command to begin until the warm-up begins, besides the round trips.
const LEAD: Duration = Duration::from_millis(20);
/// Time for each host's command to be written.
const LEAD_PER_HOST: Duration = Duration::from_micros(100);
/// Time beyond the window before a host counts as stuck.
const GRACE: Duration = Duration::from_secs(10);

/// What a trial tells while it runs, on the thread that waits for it.
pub trait TrialWatch {
    fn is_interrupted(&self) -> bool;
    fn window_opens(&mut self);
    fn window_closes(&mut self);
}

/// The measurements of all hosts together.
#[derive(Debug)]
pub struct TrialOutcome {
    /// The sum of all load processes.
    pub total: TrialResult,
    pub hosts: Vec<HostResult>,
    pub overlap: WindowOverlap,
}

/// The measurements of one host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostResult {
    pub host: String,
    pub clients: u16,
    pub operations: u64,
    pub window_ns: u64,
    pub client_cpu_ns: u64,
    pub client_rss_peak_bytes: u64,
    pub latency: LatencySummary,
    pub service: Option<LatencySummary>,
    pub schedule_lag: Option<LatencySummary>,
    pub unfinished: u64,
    pub errors: Vec<ErrorCount>,
    pub machine: MachineWindow,
    pub usable_ports: Option<u64>,
    pub processors: u16,
    pub boot_id: String,
    pub offset: ClockOffset,
    /// How long after the first host's window this one's opened.
    pub opened_after_ns: u64,
}

/// Why a trial on hosts yielded nothing.
#[derive(Debug)]
pub enum TrialFailure {
    Interrupted,
    /// The host was lost. It may be reached again.
    Lost {
        host: String,
        reason: String,
    },
    /// The load process of a host failed.
    Load {
        host: String,
        reason: String,
        fault: FailureOrigin,
        kind: ErrorKind,
    },
    /// The run cannot continue.
    Fatal(HostError),
}

impl From<HostError> for TrialFailure {
    fn from(error: HostError) -> Self {
        Self::Fatal(error)
    }
}

/// What is known of one host during a trial.
#[derive(Default)]
struct Progress {
    is_ready: bool,
    window: Option<HostWindow>,
    machine: Option<MachineWindow>,
    /// Without its histograms, which are added to the sum at once.
    result: Option<TrialResult>,
}

impl Fleet {
    /// Runs a trial on the first hosts, as many as have a client. All of them must be connected.
    pub fn run(
        &mut self,
        whole: &TrialSpec,
        watch: &mut dyn TrialWatch,
    ) -> Result<TrialOutcome, TrialFailure> {
        let machines: Vec<_> = self.members.iter().map(|member| member.machine()).collect();
        let specs = parts(whole, &machines);
        let number = self.trials;
        self.trials += 1;
        let outcome = self.run_parts(number, whole, &specs, watch);
        if outcome.is_err() {
            for host in 0..specs.len() {
                let _ = self.send(host, &ToHost::Abort { trial: number });
            }
        }
        outcome
    }

    fn run_parts(
        &mut self,
        number: u64,
        whole: &TrialSpec,
        specs: &[TrialSpec],
        watch: &mut dyn TrialWatch,
    ) -> Result<TrialOutcome, TrialFailure> {
        let files = files_of(whole)?;
        for (host, spec) in specs.iter().enumerate() {
            let trial = HostTrial { number, spec: spec.clone(), files: files.clone() };
            self.send(host, &ToHost::Trial(Box::new(trial)))?;
        }
        let mut trial = Running { number, progress: Vec::new(), sum: ResultSum::default() };
        trial.progress.resize_with(specs.len(), Progress::default);
        let deadline = Instant::now() + SET_UP_LIMIT;
        self.wait(&mut trial, deadline, watch, |progress| progress.is_ready, "its clients were not ready")?;
        self.measure_offsets(&mut trial, watch)?;
        let begins_ns = self.begin(number, specs.len())?;
        self.await_edges(&mut trial, whole, begins_ns, watch)?;
        let deadline = Instant::now() + overtime(whole) + GRACE;
        let is_done = |progress: &Progress| progress.result.is_some();
        self.wait(&mut trial, deadline, watch, is_done, "its load process did not end in time")?;
        self.outcome(trial, specs)
    }

    /// Tells all hosts when to begin, each by its own clock: when by the coordinator's.
    fn begin(&mut self, trial: u64, hosts: usize) -> Result<u64, HostError> {
        let slowest = self.members[..hosts].iter().map(|member| member.offset.round_trip_ns).max();
        let slowest = Duration::from_nanos(slowest.unwrap_or_default());
        let lead = LEAD + LEAD_PER_HOST * hosts as u32 + slowest * 2;
        let begins_ns = monotonic_now_ns() + lead.as_nanos() as u64;
        for host in 0..hosts {
            let monotonic_ns = self.members[host].offset.to_host(begins_ns);
            self.send(host, &ToHost::BeginAt { trial, monotonic_ns })?;
        }
        Ok(begins_ns)
    }

    /// Passes the edges of the window on to `watch`, by the coordinator's own clock.
    fn await_edges(
        &mut self,
        trial: &mut Running,
        whole: &TrialSpec,
        begins_ns: u64,
        watch: &mut dyn TrialWatch,
    ) -> Result<(), TrialFailure> {
        let opens_ns = begins_ns + whole.warm_up_ns;
        let closes_ns = opens_ns + whole.window_ns;
        self.wait_until(trial, opens_ns, watch)?;
        watch.window_opens();
        self.wait_until(trial, closes_ns, watch)?;
        watch.window_closes();
        Ok(())
    }

    fn wait_until(
        &mut self,
        trial: &mut Running,
        moment_ns: u64,
        watch: &dyn TrialWatch,
    ) -> Result<(), TrialFailure> {
        let until = Instant::now() + Duration::from_nanos(moment_ns.saturating_sub(monotonic_now_ns()));
        while Instant::now() < until {
            if watch.is_interrupted() {
                return Err(TrialFailure::Interrupted);
            }
            for incoming in self.look(until)? {
                self.take(trial, incoming)?;
            }
        }
        Ok(())
    }

    /// Waits until `is_done` of every host.
    fn wait(
        &mut self,
        trial: &mut Running,
        deadline: Instant,
        watch: &dyn TrialWatch,
        is_done: impl Fn(&Progress) -> bool,
        complaint: &str,
    ) -> Result<(), TrialFailure> {
        loop {
            let Some(host) = trial.progress.iter().position(|progress| !is_done(progress)) else {
                return Ok(());
            };
            if watch.is_interrupted() {
                return Err(TrialFailure::Interrupted);
            }
            if Instant::now() >= deadline {
                let (host, reason) = (self.name(host).to_owned(), complaint.to_owned());
                let (fault, kind) = (FailureOrigin::Internal, ErrorKind::Other);
                return Err(TrialFailure::Load { host, reason, fault, kind });
            }
            for incoming in self.look(deadline.min(Instant::now() + POLL_INTERVAL))? {
                self.take(trial, incoming)?;
            }
        }
    }

    /// Closes the connection with a host, and says so.
    pub(super) fn lost(&mut self, host: usize, reason: String) -> TrialFailure {
        self.lose(host, reason.clone());
        TrialFailure::Lost { host: self.name(host).to_owned(), reason }
    }

    pub(super) fn take(&mut self, trial: &mut Running, incoming: Incoming) -> Result<(), TrialFailure> {
        let (host, message) = match incoming {
            Incoming::Said { host, message, .. } => (host, message),
            // A host without a part of this trial is missed when it has one.
            Incoming::Lost { host, .. } if host >= trial.progress.len() => return Ok(()),
            Incoming::Lost { host, reason } => return Err(self.lost(host, reason)),
        };
        if let FromHost::Refused { reason } = message {
            return Err(self.lost(host, reason));
        }
        let offset = self.members[host].offset;
        let Some(progress) = trial.progress.get_mut(host) else { return Ok(()) };
        match message {
            FromHost::Load { trial: of, message } if of == trial.number => match message {
                LoadMessage::Ready => progress.is_ready = true,
                LoadMessage::Begun { opens_at_ns, closes_at_ns } => {
                    progress.window = Some(offset.window(opens_at_ns, closes_at_ns));
                }
                LoadMessage::Finished(mut result) => {
                    let unreadable = |error: ciphertoll_load::Error| TrialFailure::Load {
                        host: self.members[host].transport.name().to_owned(),
                        reason: error.to_string(),
                        fault: FailureOrigin::Internal,
                        kind: ErrorKind::Other,
                    };
                    trial.sum.add(&result).map_err(unreadable)?;
                    result.histogram_base64 = String::new();
                    result.further_histograms = None;
                    progress.result = Some(*result);
                }
                _ => {}
            },
            FromHost::Window { trial: of, machine } if of == trial.number => progress.machine = Some(machine),
            FromHost::LoadEnded { trial: of, reason, fault, kind } if of == trial.number => {
                return Err(TrialFailure::Load { host: self.name(host).to_owned(), reason, fault, kind });
            }
            // Of an earlier trial, or a late pong.
            _ => {}
        }
        Ok(())
    }

    fn outcome(&self, trial: Running, specs: &[TrialSpec]) -> Result<TrialOutcome, TrialFailure> {
        let windows: Option<Vec<HostWindow>> =
            trial.progress.iter().map(|progress| progress.window).collect();
        let windows = windows.unwrap_or_default();
        let first_ns = windows.iter().map(|window| window.opens_ns).min().unwrap_or_default();
        let incomplete = |host: usize| TrialFailure::Load {
            host: self.name(host).to_owned(),
            reason: "it did not report its window".to_owned(),
            fault: FailureOrigin::Internal,
            kind: ErrorKind::Other,
        };
        let overlap = WindowOverlap::of(&windows).ok_or_else(|| incomplete(0))?;
        let mut hosts = Vec::with_capacity(specs.len());
        for (host, progress) in trial.progress.into_iter().enumerate() {
            let (Some(result), Some(machine)) = (progress.result, progress.machine) else {
                return Err(incomplete(host));
            };
            let member = &self.members[host];
            let facts = member.facts.as_ref();
            hosts.push(HostResult {
                host: self.name(host).to_owned(),
                clients: specs[host].clients.count(),
                operations: result.operations,
                window_ns: result.window_ns,
                client_cpu_ns: result.client_cpu_ns,
                client_rss_peak_bytes: result.client_rss_peak_bytes,
                latency: result.latency,
                service: result.service,
                schedule_lag: result.schedule_lag,
                unfinished: result.unfinished,
                errors: result.errors,
                machine,
                usable_ports: result.usable_ports,
                processors: facts.map_or(1, |facts| facts.hello.processors),
                boot_id: facts.map_or_else(String::new, |facts| facts.hello.boot_id.clone()),
                offset: member.offset,
                opened_after_ns: (windows[host].opens_ns - first_ns).unsigned_abs(),
            });
        }
        Ok(TrialOutcome { total: trial.sum.result(), hosts, overlap })
    }
}

/// A trial that is under way.
pub(super) struct Running {
    number: u64,
    progress: Vec<Progress>,
    sum: ResultSum,
}

impl Running {
    pub(super) fn hosts(&self) -> usize {
        self.progress.len()
    }
}

/// How long after the window an open loop continues at most.
fn overtime(spec: &TrialSpec) -> Duration {
    match spec.pace {
        TrialPace::Closed => Duration::ZERO,
        TrialPace::Open { .. } => ciphertoll_load::overtime(Duration::from_nanos(spec.window_ns)),
    }
}

/// The contents of the files that the specification names.
fn files_of(spec: &TrialSpec) -> Result<TrialFiles, HostError> {
    let tls = spec.tls.as_ref();
    let identity = tls.and_then(|tls| tls.identity.as_ref());
    Ok(TrialFiles {
        password: read(&spec.password_file)?,
        ca: tls.and_then(|tls| tls.ca_file.as_deref()).map(read).transpose()?,
        certificate: identity.map(|identity| read(&identity.certificate_file)).transpose()?,
        key: identity.map(|identity| read(&identity.key_file)).transpose()?,
    })
}

fn read(path: &Path) -> Result<SecretBytes, HostError> {
    let failed = |source| HostError::File { path: path.to_owned(), source };
    let mut content = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut content).map_err(failed)?;
    if content.len() > MAX_FILE_BYTES {
        return Err(HostError::FileTooLarge { path: path.to_owned(), limit: MAX_FILE_BYTES });
    }
    Ok(SecretBytes::new(content))
}
