//! What a plan is carried out on: the lab with its real servers, or a mock that runs the whole
//! pipeline in tests.

use ciphertoll_lab::{Counters, SyncTimes};
use ciphertoll_model::{
    Arm, Cell, Environment, Event, ExitCode, Leg, LegCount, LinkKind, Plan, Timing, TrialPace, TrialResult,
    VoidReason,
};

/// Brings a treatment up, runs one trial, takes it down.
pub trait Bench {
    /// Clears what killed runs left behind: first of all, and where nothing else is left to do.
    fn sweep(&mut self, emit: &mut Emit<'_>) -> Result<(), BenchError>;

    /// Does what takes long before the clock starts: servers found, templates built, servers up.
    /// Says by events what it did, and which cells cannot be measured and why.
    fn prepare(&mut self, plan: &Plan, emit: &mut Emit<'_>) -> Result<Environment, BenchError>;

    /// Times the cryptographic primitives that connects among `cells` rest on, and says by an event what they take;
    /// once in a run, before the first block.
    fn time_primitives(&mut self, cells: &[&Cell], emit: &mut Emit<'_>) -> Result<(), BenchError>;

    /// Does what is done once in a block, before its first trial: puts in order what the block before has left, where that
    /// takes too long to be done before every trial.
    fn begin_block(&mut self, emit: &mut Emit<'_>) -> Result<(), BenchError>;

    /// Brings the cell's treatment up. What is up already costs nothing.
    fn up(&mut self, cell: &Cell, emit: &mut Emit<'_>) -> Result<(), TrialError>;

    /// Runs one trial of what is up.
    fn trial(&mut self, request: &TrialRequest<'_>) -> Result<Measured, TrialError>;

    /// Takes everything down.
    fn down(&mut self) -> Result<(), BenchError>;
}

/// Takes events as they happen.
pub type Emit<'a> = dyn FnMut(Event) + 'a;

/// One trial.
#[derive(Clone, Copy, Debug)]
pub struct TrialRequest<'a> {
    /// What is measured.
    pub cell: &'a Cell,
    /// Which copy of it; the two are treated alike, but for the truth experiment.
    pub arm: Arm,
    /// When operations begin; a share of a capacity is a rate by now.
    pub pace: TrialPace,
    /// Warm-up and window.
    pub timing: Timing,
    /// Seed of the keys that are read.
    pub seed: u64,
    /// Most operations a second that clients begin in a closed loop.
    pub max_per_s: Option<u32>,
    /// The statement of the workload `query`.
    pub query: Option<&'a str>,
}

/// What a trial measured, before it is judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// What the load process saw.
    pub load: TrialResult,
    /// What the server used in the window; none where it is not on this machine, for all we know.
    pub server: Option<ServerUse>,
    /// What the machine did in the window.
    pub machine: MachineUse,
    /// CPU time of those between client and server.
    pub middle_cpu_ns: u64,
    /// Peak resident memory of the one process between them, in the window; absent where there is none, or more.
    pub middle_rss_peak_bytes: Option<u64>,
    /// What a tunnel was seen to do; none where there was none.
    pub tunnel: Option<TunnelUse>,
    /// What a proxy was seen to do; none where there was none.
    pub proxy: Option<ProxyUse>,
    /// How many processors each side had to itself, where they were kept apart.
    pub apart: Option<ProcessorsApart>,
    /// What a made link has carried; none where there was none.
    pub link: Option<LinkUse>,
}

/// What a tunnel was seen to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelUse {
    /// What its ends agreed on.
    pub leg: Leg,
    /// How long it took to set up, before the trial.
    pub set_up_ns: u64,
    /// Whose CPU time it took.
    pub cpu: TunnelCpu,
    /// Bytes that its client's end has sent in the dark, in the trial.
    pub sent_bytes: u64,
}

/// What a proxy was seen to do, mostly by the server behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyUse {
    /// What its connections to the server have agreed on, and how many have.
    pub legs: Vec<LegCount>,
    /// How long it took until a client had got through it, before the trial.
    pub set_up_ns: u64,
    /// Connections that came to the server since the proxy was started; absent where the server does not count them.
    pub connections: Option<u64>,
    /// Those of them that were not encrypted; absent where the server does not count them: then all that stood in the end
    /// are among the legs.
    pub in_the_clear: Option<u64>,
    /// Statements or transactions that came to the server since then; absent where the server does not count them.
    pub requests: Option<u64>,
    /// Server connections that it may have at once.
    pub pool_size: u64,
}

/// Whose CPU time a tunnel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelCpu {
    /// Its processes': it is known.
    OfEnds,
    /// The kernel's, which tells nobody how much of it.
    OfTheKernel,
}

/// What a made link has carried, both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkUse {
    /// The round trip that it was made for.
    pub rtt_ns: u64,
    /// How it was made: not every kind delays TCP's handshake.
    pub by: LinkKind,
    /// Packets.
    pub packets: u64,
    /// Those that it dropped for want of room; what gets lost by its nature is not among them.
    pub dropped: u64,
    /// How late it sent them on: mean.
    pub late_ns_mean: u64,
    /// CPU time of its process in the window; absent where its clock could not be read.
    pub cpu_ns: Option<u64>,
}

/// How many processors each side had to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessorsApart {
    /// The load process.
    pub client: usize,
    /// The server.
    pub server: usize,
}

/// What a server used in the window, and what it counted in the whole trial.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerUse {
    /// User and system CPU, ended threads included.
    pub cpu_ns: u64,
    /// Peak resident memory; absent where the kernel does not tell.
    pub rss_peak_bytes: Option<u64>,
    /// What it counted from before the trial's first connection until after its last.
    pub counted: Counters,
    /// How long a sync took where its files are, before the block's first trial; absent where it was not timed.
    pub syncs: Option<SyncTimes>,
}

/// What the machine did in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MachineUse {
    /// CPU time that was not idle, all processors, steal excluded.
    pub busy_ns: u64,
    /// CPU time that the hypervisor gave to others.
    pub steal_ns: u64,
    /// Sockets in `TIME_WAIT` when the window closed.
    pub time_wait_sockets: u64,
}

/// Why a trial yielded nothing.
#[derive(Debug)]
pub enum TrialError {
    /// This trial is void; the next may go well.
    Void(VoidReason),
    /// The user has had enough.
    Interrupted,
    /// Going on is pointless.
    Fatal(BenchError),
}

/// Why a bench cannot go on, in one line, with the exit code that says whose fault it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BenchError {
    /// The line.
    pub message: String,
    /// Whose fault.
    pub exit_code: ExitCode,
}
