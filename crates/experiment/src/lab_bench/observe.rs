//! One trial as the coordinator sees it: messages from the load process, clocks at the window's edges.

use std::time::Duration;

use ciphertoll_lab::accounting::PortUsage;
use ciphertoll_lab::{CpuMeter, MemoryPeak, Sample, SampleDifference, Server};
use ciphertoll_load::LoadProcess;
use ciphertoll_model::{LoadMessage, TrialResult, VoidReason};

use super::failure::load_failed;
use super::link_is_down;
use super::links::Links;
use super::proxies::Proxies;
use crate::bench::{MachineUse, Measured, ServerUse, TrialError};
use crate::interrupt::Interrupt;

/// How often a wait for the load process looks for Ctrl-C.
const PATIENCE: Duration = Duration::from_millis(50);

/// Where a server's CPU and memory are read.
pub(super) struct Clocks {
    /// Absent where the server is not ours.
    cpu: Option<CpuMeter>,
    /// Absent where the server is many processes: the sum of their peaks is nobody's peak.
    memory: Option<i32>,
    /// Of those between client and server.
    middle: Vec<CpuMeter>,
    /// Absent where they are not one process.
    middle_memory: Option<i32>,
}

impl Clocks {
    pub(super) fn of(server: &Server) -> Self {
        Self {
            cpu: Some(server.cpu_meter()),
            memory: server.memory_pid(),
            middle: Vec::new(),
            middle_memory: None,
        }
    }

    /// The same, and those of a tunnel's ends or of a proxy; `memory` is the process whose memory is theirs.
    pub(super) fn with_middle(self, middle: Vec<CpuMeter>, memory: Option<i32>) -> Self {
        Self { middle, middle_memory: memory, ..self }
    }

    /// Those of the machine only.
    pub(super) fn of_machine() -> Self {
        Self { cpu: None, memory: None, middle: Vec::new(), middle_memory: None }
    }
}

/// Why there is nothing to observe.
pub(super) enum Unobserved {
    /// The server takes no more connections.
    NoRoom {
        /// What it said.
        message: String,
    },
    /// As any other trial may fail.
    Failed(TrialError),
}

impl Unobserved {
    fn of(error: ciphertoll_load::Error) -> Self {
        if error.is_too_many_connections() {
            return Self::NoRoom { message: error.to_string() };
        }
        Self::Failed(load_failed(error))
    }
}

impl From<TrialError> for Unobserved {
    fn from(error: TrialError) -> Self {
        Self::Failed(error)
    }
}

impl From<Unobserved> for TrialError {
    /// A private server that has no room may have some in the next trial.
    fn from(unobserved: Unobserved) -> Self {
        match unobserved {
            Unobserved::NoRoom { message } => Self::Void(VoidReason::LoadFailed { message }),
            Unobserved::Failed(error) => error,
        }
    }
}

/// What of ours is between clients and server, and wants to know when the window opens.
pub(super) struct Between<'a> {
    pub(super) links: &'a mut Links,
    pub(super) proxies: &'a mut Proxies,
}

/// Waits for the trial, takes the server's, the machine's and the link's clocks at both edges of the window. A link that
/// goes down ends the trial: what is said over it would be waited for in vain.
pub(super) fn observe(
    mut load: LoadProcess,
    clocks: &Clocks,
    mut between: Option<Between<'_>>,
    interrupt: &Interrupt,
) -> Result<Measured, Unobserved> {
    let pid = load.pid().cast_signed();
    let mut opened = None;
    let mut window = None;
    loop {
        if interrupt.ending().is_some() {
            return Err(TrialError::Interrupted.into());
        }
        if between.as_mut().is_some_and(|between| between.links.is_down()) {
            return Err(link_is_down().into());
        }
        match load.next_message(PATIENCE).map_err(Unobserved::of)? {
            None | Some(LoadMessage::Samples { .. }) => {}
            Some(LoadMessage::WindowOpened) => {
                clocks.memory.map(MemoryPeak::begin);
                clocks.middle_memory.map(MemoryPeak::begin);
                opened = Sample::take(clocks.cpu.as_ref(), &clocks.middle).ok();
                if let Some(between) = &mut between {
                    between.links.open_window();
                    between.proxies.look();
                }
            }
            Some(LoadMessage::WindowClosed) => {
                window = opened.and_then(|opened| close_window(clocks, &opened, pid));
                if let Some(between) = &mut between {
                    between.links.close_window();
                }
            }
            Some(LoadMessage::Finished(result)) => return Ok(measured(*result, window.as_ref())?),
            Some(LoadMessage::Failed { message, .. }) => {
                return Err(TrialError::Void(VoidReason::LoadFailed { message }).into());
            }
        }
    }
}

/// Whose clocks were read.
#[derive(Clone, Copy)]
enum Whose {
    /// The server is elsewhere.
    Machine,
    ServerAndMachine,
}

/// What server and machine used between the edges.
struct Window {
    used: SampleDifference,
    whose: Whose,
    rss_peak_bytes: Option<u64>,
    middle_rss_peak_bytes: Option<u64>,
    time_wait_sockets: u64,
}

fn close_window(clocks: &Clocks, opened: &Sample, load: i32) -> Option<Window> {
    let used = Sample::take(clocks.cpu.as_ref(), &clocks.middle).ok()?.since(opened);
    Some(Window {
        used,
        whose: if clocks.cpu.is_some() { Whose::ServerAndMachine } else { Whose::Machine },
        rss_peak_bytes: clocks.memory.and_then(|pid| MemoryPeak::read_bytes(pid).ok()),
        middle_rss_peak_bytes: clocks.middle_memory.and_then(|pid| MemoryPeak::read_bytes(pid).ok()),
        time_wait_sockets: PortUsage::read_of(load).map_or(0, |ports| u64::from(ports.in_time_wait)),
    })
}

fn measured(load: TrialResult, window: Option<&Window>) -> Result<Measured, TrialError> {
    let Some(&Window { used, whose, rss_peak_bytes, middle_rss_peak_bytes, time_wait_sockets }) = window
    else {
        let message = "its CPU could not be read over the whole window".to_owned();
        return Err(TrialError::Void(VoidReason::ServerDied { message }));
    };
    // The samples are taken when the coordinator wakes, a little late on a busy machine.
    let stretch = load.window_ns as f64 / (used.elapsed.as_nanos() as f64).max(1.0);
    let in_window = |nanos: u64| (nanos as f64 * stretch) as u64;
    let server = match whose {
        Whose::Machine => None,
        Whose::ServerAndMachine => {
            let cpu_ns = in_window(used.server_cpu_ns);
            Some(ServerUse { cpu_ns, rss_peak_bytes, ..ServerUse::default() })
        }
    };
    let machine = MachineUse {
        busy_ns: in_window(used.machine_busy_ns),
        steal_ns: in_window(used.machine_steal_ns),
        time_wait_sockets,
    };
    // Which tunnel or proxy it was, and whether any, is known to whoever has set it up.
    Ok(Measured {
        load,
        server,
        machine,
        middle_cpu_ns: in_window(used.middle_cpu_ns),
        middle_rss_peak_bytes,
        tunnel: None,
        proxy: None,
        apart: None,
        link: None,
    })
}
