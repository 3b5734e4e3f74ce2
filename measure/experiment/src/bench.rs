//! What a plan is carried out on: the lab with its real servers, or a mock that runs the whole
//! pipeline in tests.

use ciphertoll_hosts::{HostResult, WindowOverlap};
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

    /// Called once per block before its first trial: restores what takes too long to restore before every trial.
    fn begin_block(&mut self, emit: &mut Emit<'_>) -> Result<(), BenchError>;

    /// Brings the cell's treatment up. A treatment that is up costs nothing.
    fn up(&mut self, cell: &Cell, emit: &mut Emit<'_>) -> Result<(), TrialError>;

    fn trial(&mut self, request: &TrialRequest<'_>) -> Result<Measured, TrialError>;

    fn down(&mut self) -> Result<(), BenchError>;
}

pub type Emit<'a> = dyn FnMut(Event) + 'a;

#[derive(Clone, Copy, Debug)]
pub struct TrialRequest<'a> {
    pub cell: &'a Cell,
    /// Which copy of the cell. Only the truth experiment treats the copies differently.
    pub arm: Arm,
    /// When operations begin. A share of the capacity is already a rate.
    pub pace: TrialPace,
    pub timing: Timing,
    pub seed: u64,
    pub max_per_s: Option<u32>,
    pub query: Option<&'a str>,
}

/// The measurement of a trial before the gates.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    pub load: TrialResult,
    /// The server's use in the window; absent for external servers.
    pub server: Option<ServerUse>,
    pub machine: MachineUse,
    /// CPU time of the tunnel or proxy.
    pub middle_cpu_ns: u64,
    /// Peak resident memory of the tunnel or proxy in the window; absent unless it is one process.
    pub middle_rss_peak_bytes: Option<u64>,
    pub tunnel: Option<TunnelUse>,
    pub proxy: Option<ProxyUse>,
    /// Absent if both sides share all processors.
    pub apart: Option<ProcessorsApart>,
    pub link: Option<LinkUse>,
    /// Absent if the clients ran on this machine.
    pub hosts: Option<HostsMeasured>,
    /// Whether the server runs on another machine.
    pub server_is_elsewhere: bool,
}

/// The measurements of each load host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostsMeasured {
    pub overlap: WindowOverlap,
    pub hosts: Vec<HostResult>,
    /// Machines that also run the server or the coordinator, whose CPU time is not foreign there.
    pub shared_boot_ids: Vec<String>,
}

/// The use of a tunnel by a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelUse {
    /// The parameters that its ends negotiated.
    pub leg: Leg,
    pub set_up_ns: u64,
    /// Whose CPU time it took.
    pub cpu: TunnelCpu,
    /// Encrypted bytes that its client end sent during the trial.
    pub sent_bytes: u64,
}

/// The use of a proxy by a trial, mostly as the server reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyUse {
    /// The negotiated parameters of its server connections, with the number of connections.
    pub legs: Vec<LegCount>,
    /// Time from its start to the first client query, before the trial.
    pub set_up_ns: u64,
    /// Connections to the server since the proxy was started; absent if the server does not count them.
    pub connections: Option<u64>,
    /// Unencrypted connections among them; absent if the server does not count them. In that case the legs contain all
    /// connections that were open at the end.
    pub in_the_clear: Option<u64>,
    /// Statements or transactions since then; absent if the server does not count them.
    pub requests: Option<u64>,
    /// The largest number of server connections.
    pub pool_size: u64,
}

/// Whose CPU time a tunnel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelCpu {
    /// Its processes take it, and it is known.
    OfEnds,
    /// The kernel takes it, and it is unknown.
    OfTheKernel,
}

/// The use of a link by a trial, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkUse {
    pub rtt_ns: u64,
    /// The kind of link: not every kind delays TCP's handshake.
    pub by: LinkKind,
    pub packets: u64,
    /// Packets dropped because its buffer was full, without the configured loss.
    pub dropped: u64,
    /// Mean delay beyond the configured one.
    pub late_ns_mean: u64,
    /// CPU time of its process in the window; absent if its clock could not be read.
    pub cpu_ns: Option<u64>,
}

/// The number of processors of each side, if they are separate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessorsApart {
    pub client: usize,
    pub server: usize,
}

/// A server's resource use in the window, and its counts over the whole trial.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerUse {
    /// User and system CPU, ended threads included.
    pub cpu_ns: u64,
    /// Peak resident memory; absent if the kernel does not report it.
    pub rss_peak_bytes: Option<u64>,
    /// Its counts from before the first connection of the trial until after the last.
    pub counted: Counters,
    /// Sync latency in its file system before the first trial of the block; absent if not timed.
    pub syncs: Option<SyncTimes>,
}

/// The machine's use in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MachineUse {
    /// CPU time that was not idle on all processors, without steal.
    pub busy_ns: u64,
    /// CPU time that the hypervisor gave to others.
    pub steal_ns: u64,
    /// Sockets in `TIME_WAIT` when the window closed.
    pub time_wait_sockets: u64,
}

/// Why a trial yielded nothing.
#[derive(Debug)]
pub enum TrialError {
    Void(VoidReason),
    Interrupted,
    Fatal(BenchError),
}

/// Why a bench cannot continue, in one line, with the exit code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BenchError {
    pub message: String,
    pub exit_code: ExitCode,
}
