//! A load process of the agent: a thread forwards its messages and reads the machine's clocks at the window's edges.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ciphertoll_host::accounting::{MachineTimes, PortUsage};
use ciphertoll_load::{LoadProcess, StartSignal, process_cpu};
use ciphertoll_model::{LoadMessage, StartCommand, TrialSpec};
use ciphertoll_record::{Effect, ProcessIdentity, Scratch};
use nix::unistd::{SysconfVar, sysconf};

use super::files::PlacedFiles;
use super::message::{Input, NotStarted, ended};
use crate::protocol::{FromHost, MachineWindow};

/// How often the thread looks whether the trial was given up.
const TIME_LIMIT: Duration = Duration::from_millis(50);

/// Killed when dropped.
pub(super) struct RunningLoad {
    trial: u64,
    start: Option<StartSignal>,
    is_given_up: Arc<AtomicBool>,
    forwarder: Option<JoinHandle<()>>,
    _files: PlacedFiles,
}

impl RunningLoad {
    pub(super) fn start(
        program: &Path,
        spec: &TrialSpec,
        trial: u64,
        files: PlacedFiles,
        scratch: &Scratch,
        inputs: Sender<Input>,
    ) -> Result<Self, NotStarted> {
        let mut load = LoadProcess::start(program, spec)?;
        if let Ok(identity) = ProcessIdentity::of(load.pid().cast_signed()) {
            let (what, program) = ("load".to_owned(), program.to_owned());
            scratch.ledger().note(&Effect::Process { identity, what, program })?;
        }
        let start = load.take_start_signal();
        let is_given_up = Arc::new(AtomicBool::new(false));
        let watched = Arc::clone(&is_given_up);
        let forwarder = thread::spawn(move || forward(load, trial, &watched, &inputs));
        Ok(Self { trial, start, is_given_up, forwarder: Some(forwarder), _files: files })
    }

    pub(super) fn trial(&self) -> u64 {
        self.trial
    }

    pub(super) fn begin_at(&mut self, begin_at_ns: u64) {
        if let Some(start) = self.start.take() {
            start.send(StartCommand { begin_at_ns });
        }
    }
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        self.is_given_up.store(true, Ordering::Relaxed);
        if let Some(forwarder) = self.forwarder.take() {
            // It kills the process, if that still runs.
            let _ = forwarder.join();
        }
    }
}

/// Forwards messages until the load process has said its last one.
fn forward(mut load: LoadProcess, trial: u64, is_given_up: &AtomicBool, inputs: &Sender<Input>) {
    let mut opened = None;
    while !is_given_up.load(Ordering::Relaxed) {
        let message = match load.next_message(TIME_LIMIT) {
            Ok(None) => continue,
            Ok(Some(message)) => message,
            Err(error) => {
                let _ = inputs.send(Input::Load(ended(trial, &NotStarted::Load(error))));
                return;
            }
        };
        let edge = match &message {
            LoadMessage::WindowOpened => {
                opened = Edge::now();
                None
            }
            LoadMessage::WindowClosed => opened.take().and_then(|opened| opened.until_now(load.pid())),
            _ => None,
        };
        let is_last = matches!(message, LoadMessage::Finished(_));
        if inputs.send(Input::Load(FromHost::Load { trial, message })).is_err() {
            return;
        }
        if let Some(machine) = edge {
            let _ = inputs.send(Input::Load(FromHost::Window { trial, machine }));
        }
        if is_last {
            return;
        }
    }
}

/// The machine's clocks at an edge of the window.
struct Edge {
    at: Instant,
    machine: MachineTimes,
    agent_cpu: Duration,
}

fn online_processors() -> u16 {
    let online = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    online.and_then(|count| u16::try_from(count).ok()).unwrap_or(1)
}

impl Edge {
    fn now() -> Option<Self> {
        let machine = MachineTimes::read().ok()?;
        Some(Self { at: Instant::now(), machine, agent_cpu: process_cpu() })
    }

    fn until_now(&self, load_pid: u32) -> Option<MachineWindow> {
        let now = Self::now()?;
        let ports = PortUsage::read_of(load_pid.cast_signed()).ok();
        Some(MachineWindow {
            elapsed_ns: (now.at - self.at).as_nanos() as u64,
            processors: online_processors(),
            busy_ns: now.machine.busy_ns.saturating_sub(self.machine.busy_ns),
            interrupts_ns: now.machine.interrupts_ns.saturating_sub(self.machine.interrupts_ns),
            steal_ns: now.machine.steal_ns.saturating_sub(self.machine.steal_ns),
            agent_cpu_ns: now.agent_cpu.saturating_sub(self.agent_cpu).as_nanos() as u64,
            usable_ports: ports.map_or(0, |ports| ports.usable),
            time_wait_sockets: ports.map_or(0, |ports| ports.in_time_wait),
        })
    }
}
