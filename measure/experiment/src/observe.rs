//! One trial as the coordinator sees it: messages from the load process, clocks at the start and end of the window.

use std::time::Duration;

use ciphertoll_host::accounting::{CpuMeter, MemoryPeak, PortUsage, Sample, SampleDifference};
use ciphertoll_lab::Server;
use ciphertoll_load::LoadProcess;
use ciphertoll_model::{LoadMessage, TrialResult, VoidReason};

use crate::failure::load_failed;
use crate::layer::{Layer, Route};
use crate::layers::server::ServerUse;
use crate::measured::{MachineUse, Measured};
use crate::trial::TrialError;

/// How often a wait for the load process checks for Ctrl-C.
const TIME_LIMIT: Duration = Duration::from_millis(50);

pub(crate) struct Clocks {
    /// Absent for external servers.
    cpu: Option<CpuMeter>,
    /// Absent for servers of several processes: the sum of their peaks is not a peak.
    memory: Option<i32>,
    /// Of tunnels and proxies.
    middle: Vec<CpuMeter>,
    /// Absent unless it is one process.
    middle_memory: Option<i32>,
}

impl Clocks {
    /// Whether the server runs on this machine.
    pub(crate) fn have_server(&self) -> bool {
        self.cpu.is_some()
    }

    pub(crate) fn of(server: &Server) -> Self {
        Self {
            cpu: Some(server.cpu_meter()),
            memory: server.memory_pid(),
            middle: Vec::new(),
            middle_memory: None,
        }
    }

    /// The same, and those of a tunnel's ends or of a proxy; `memory` is the process scope memory is theirs.
    pub(crate) fn with_middle(self, middle: Vec<CpuMeter>, memory: Option<i32>) -> Self {
        Self { middle, middle_memory: memory, ..self }
    }

    pub(crate) fn of_machine() -> Self {
        Self { cpu: None, memory: None, middle: Vec::new(), middle_memory: None }
    }
}

/// Why a trial yielded nothing.
pub(crate) enum Unobserved {
    /// The server accepts no more connections.
    NoRoom {
        message: String,
    },
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
    /// A full private server may have room in the next trial.
    fn from(unobserved: Unobserved) -> Self {
        match unobserved {
            Unobserved::NoRoom { message } => Self::Void(VoidReason::LoadFailed { message }),
            Unobserved::Failed(error) => error,
        }
    }
}

/// Waits for the trial and reads the meters of server and machine at the start and end of the window.
pub(crate) fn observe(
    mut load: LoadProcess,
    clocks: &Clocks,
    layers: &mut [Box<dyn Layer<Measured>>],
    route: &mut Route,
) -> Result<Measured, Unobserved> {
    let pid = load.pid().cast_signed();
    let mut opened = None;
    let mut window = None;
    loop {
        if route.site.interrupt.ending().is_some() {
            return Err(TrialError::Interrupted.into());
        }
        layers.iter_mut().try_for_each(|layer| layer.check(route))?;
        match load.next_message(TIME_LIMIT).map_err(Unobserved::of)? {
            // It starts at once.
            None | Some(LoadMessage::Samples { .. } | LoadMessage::Ready | LoadMessage::Begun { .. }) => {}
            Some(LoadMessage::WindowOpened) => {
                opened = open_window(clocks);
                for layer in layers.iter_mut() {
                    layer.window_opens(route);
                }
            }
            Some(LoadMessage::WindowClosed) => {
                window = opened.and_then(|opened| close_window(clocks, &opened, Some(pid)));
                for layer in layers.iter_mut() {
                    layer.window_closes(route);
                }
            }
            Some(LoadMessage::Finished(result)) => {
                let mut measured = measured(*result, window.as_ref())?;
                measured.server_is_elsewhere = !clocks.have_server();
                return Ok(measured);
            }
            Some(LoadMessage::Failed { message, .. }) => {
                return Err(TrialError::Void(VoidReason::LoadFailed { message }).into());
            }
        }
    }
}

/// Reads the clocks when the window opens.
pub(crate) fn open_window(clocks: &Clocks) -> Option<Sample> {
    clocks.memory.map(MemoryPeak::begin);
    clocks.middle_memory.map(MemoryPeak::begin);
    Sample::take(clocks.cpu.as_ref(), &clocks.middle).ok()
}

pub(crate) struct WindowUse {
    used: SampleDifference,
    /// Whether the server's clock was read; not for external servers.
    has_server: bool,
    rss_peak_bytes: Option<u64>,
    middle_rss_peak_bytes: Option<u64>,
    time_wait_sockets: u64,
}

/// `load` is the load process, if it runs on this machine.
pub(crate) fn close_window(clocks: &Clocks, opened: &Sample, load: Option<i32>) -> Option<WindowUse> {
    let used = Sample::take(clocks.cpu.as_ref(), &clocks.middle).ok()?.since(opened);
    Some(WindowUse {
        used,
        has_server: clocks.cpu.is_some(),
        rss_peak_bytes: clocks.memory.and_then(|pid| MemoryPeak::read_bytes(pid).ok()),
        middle_rss_peak_bytes: clocks.middle_memory.and_then(|pid| MemoryPeak::read_bytes(pid).ok()),
        time_wait_sockets: load
            .and_then(|load| PortUsage::read_of(load).ok())
            .map_or(0, |ports| u64::from(ports.in_time_wait)),
    })
}

pub(crate) fn measured(load: TrialResult, window: Option<&WindowUse>) -> Result<Measured, TrialError> {
    let Some(&WindowUse { used, has_server, rss_peak_bytes, middle_rss_peak_bytes, time_wait_sockets }) =
        window
    else {
        let message = "its CPU time could not be read over the whole window".to_owned();
        return Err(TrialError::Void(VoidReason::ServerDied { message }));
    };
    // On a busy machine the coordinator wakes late and the samples cover more than the window.
    let stretch = load.window_ns as f64 / (used.elapsed.as_nanos() as f64).max(1.0);
    let in_window = |nanos: u64| (nanos as f64 * stretch) as u64;
    let cpu_ns = in_window(used.server_cpu_ns);
    let server = has_server.then(|| ServerUse { cpu_ns, rss_peak_bytes, ..ServerUse::default() });
    let machine = MachineUse {
        busy_ns: in_window(used.machine_busy_ns),
        steal_ns: in_window(used.machine_steal_ns),
        time_wait_sockets,
    };
    // The layers add their records.
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
        hosts: None,
        server_is_elsewhere: false,
    })
}
