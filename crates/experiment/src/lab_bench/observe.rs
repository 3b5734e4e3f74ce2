//! One trial as the coordinator sees it: messages from the load process, clocks at the window's edges.

use std::time::Duration;

use ciphertoll_lab::accounting::Ports;
use ciphertoll_lab::{CpuMeter, MemoryPeak, Sample, SampleDifference, Server};
use ciphertoll_load::LoadProcess;
use ciphertoll_model::{LoadMessage, TrialResult, VoidReason};

use super::failure::load_failed;
use crate::bench::{MachineUse, Measured, ServerUse, TrialError};
use crate::interrupt::Interrupt;

/// How often a wait for the load process looks for Ctrl-C.
const PATIENCE: Duration = Duration::from_millis(50);

/// Where a server's CPU and memory are read.
pub(super) struct Clocks {
    cpu: CpuMeter,
    /// Absent where the server is many processes: the sum of their peaks is nobody's peak.
    memory: Option<i32>,
}

impl Clocks {
    pub(super) fn of(server: &Server) -> Self {
        Self { cpu: server.cpu_meter(), memory: server.memory_pid() }
    }
}

/// Waits for the trial, takes the server's and the machine's clocks at both edges of the window.
pub(super) fn observe(
    mut load: LoadProcess,
    clocks: &Clocks,
    interrupt: &Interrupt,
) -> Result<Measured, TrialError> {
    let mut opened = None;
    let mut window = None;
    loop {
        if interrupt.ending().is_some() {
            return Err(TrialError::Interrupted);
        }
        match load.next_message(PATIENCE).map_err(load_failed)? {
            None | Some(LoadMessage::Samples { .. }) => {}
            Some(LoadMessage::WindowOpened) => {
                clocks.memory.map(MemoryPeak::begin);
                opened = Sample::take(&clocks.cpu).ok();
            }
            Some(LoadMessage::WindowClosed) => {
                window = opened.and_then(|opened| close_window(clocks, &opened));
            }
            Some(LoadMessage::Finished(result)) => return measured(*result, window.as_ref()),
            Some(LoadMessage::Failed { message, .. }) => {
                return Err(TrialError::Void(VoidReason::LoadFailed { message }));
            }
        }
    }
}

/// What server and machine used between the edges.
struct Window {
    used: SampleDifference,
    rss_peak_bytes: Option<u64>,
    time_wait_sockets: u64,
}

fn close_window(clocks: &Clocks, opened: &Sample) -> Option<Window> {
    let used = Sample::take(&clocks.cpu).ok()?.since(opened);
    Some(Window {
        used,
        rss_peak_bytes: clocks.memory.and_then(|pid| MemoryPeak::read_bytes(pid).ok()),
        time_wait_sockets: Ports::read().map_or(0, |ports| u64::from(ports.in_time_wait)),
    })
}

fn measured(load: TrialResult, window: Option<&Window>) -> Result<Measured, TrialError> {
    let Some(&Window { used, rss_peak_bytes, time_wait_sockets }) = window else {
        let message = "its CPU could not be read over the whole window".to_owned();
        return Err(TrialError::Void(VoidReason::ServerDied { message }));
    };
    // The samples are taken when the coordinator wakes, a little late on a busy machine.
    let stretch = load.window_ns as f64 / (used.elapsed.as_nanos() as f64).max(1.0);
    let in_window = |nanos: u64| (nanos as f64 * stretch) as u64;
    let server = ServerUse { cpu_ns: in_window(used.server_cpu_ns), rss_peak_bytes, buffer_misses: 0 };
    let machine = MachineUse {
        busy_ns: in_window(used.machine_busy_ns),
        steal_ns: in_window(used.machine_steal_ns),
        time_wait_sockets,
    };
    Ok(Measured { load, server, machine, apart: None })
}
