//! The load process: reads a specification, runs one trial, writes messages.

use std::io::{self, BufRead, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ciphertoll_model::{
    LoadMessage, StartCommand, TrialOperation, TrialPace, TrialResult, TrialSpec, TrialStart, ycsb,
};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::recorder::Recorder;
use crate::usage::{monotonic_now_ns, process_cpu, resident_peak_bytes};
use crate::window::MeasurementWindow;
use crate::worker::{StartBarrier, ThreadAssignment, run};
use crate::ycsb::Inserts;
use crate::{Error, setup};

const MAX_SPEC_BYTES: u64 = 1 << 20;
/// Time for the threads to enter their loops before the warm-up begins.
const START_DELAY: Duration = Duration::from_millis(1);
/// How often a wait for the start command looks whether a thread has failed.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs the trial on stdin and reports on stdout. An error is reported there, too; the exit status only says whether
/// there was one.
pub fn run_load_process() -> Result<(), Error> {
    // A load process without its coordinator serves nothing.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    let mut stdout = io::stdout().lock();
    match run_trial(&mut stdout) {
        Ok(result) => send(&mut stdout, &LoadMessage::Finished(Box::new(result))),
        Err(error) => {
            let (fault, message, kind) = (error.fault(), error.to_string(), error.kind());
            let failed = LoadMessage::Failed { fault, message, kind };
            send(&mut stdout, &failed)?;
            Err(error)
        }
    }
}

fn run_trial(messages: &mut impl Write) -> Result<TrialResult, Error> {
    let spec = read_spec()?;
    if let Some(namespace) = &spec.namespace {
        ciphertoll_link::join(namespace).map_err(Error::io("cannot join the link's network"))?;
    }
    keep_to(spec.processors.as_deref())?;
    if let TrialPace::Open { per_s } = spec.pace
        && !(per_s.is_finite() && per_s > 0.0)
    {
        return Err(Error::Unfit("an open loop needs a positive rate"));
    }
    if spec.max_per_s.is_some_and(|per_s| !(per_s.is_finite() && per_s > 0.0)) {
        return Err(Error::Unfit("a limit needs a positive rate"));
    }
    let is_closed_churn = spec.pace == TrialPace::Closed && spec.work == TrialOperation::Connect;
    if spec.repeated_share != 0.0 && !is_closed_churn {
        return Err(Error::Unfit("only connects in a closed loop can repeat their work"));
    }
    let dialer = setup::dialer(&spec)?;
    setup::get_sessions(&spec, &dialer)?;
    let threads = usize::from(spec.threads.clamp(1, spec.clients.count()));
    let first_insert = spec.first_insert.unwrap_or_else(|| ycsb::first_insert(spec.seed, unix_ns()));
    let inserts = Arc::new(Inserts::from(first_insert));
    thread::scope(|scope| {
        let (ready, readiness) = mpsc::channel();
        let mut workers = Vec::new();
        let mut starts = Vec::new();
        for lane in 0..threads {
            let (start, window) = mpsc::channel();
            let line = StartBarrier { ready: ready.clone(), window };
            let clients = share(usize::from(spec.clients.count()), threads, lane);
            let inserts = Arc::clone(&inserts);
            let assignment =
                ThreadAssignment { spec: &spec, dialer: &dialer, lane: lane as u16, clients, inserts };
            workers.push(scope.spawn(move || run(&assignment, &line)));
            starts.push(start);
        }
        drop(ready);
        let used = measure(&spec, &readiness, starts, messages)?;
        let mut recorder = Recorder::new(used.window, spec.pace);
        for worker in workers {
            if let Some(theirs) = worker.join().map_err(|_| Error::Panicked)? {
                recorder.merge(theirs);
            }
        }
        let result = recorder.result();
        Ok(TrialResult {
            statements: result.statements.filter(|_| has_many_statements(&spec.work)),
            client_cpu_ns: used.cpu.saturating_sub(recorder.inspection()).as_nanos() as u64,
            client_rss_peak_bytes: resident_peak_bytes(std::process::id()),
            usable_ports: setup::usable_ports(&spec),
            further_histograms: (spec.start == TrialStart::WhenTold)
                .then(|| Box::new(recorder.further_histograms())),
            ..result
        })
    })
}

/// Pins this thread, and all threads that it starts, to these processors.
pub(crate) fn keep_to(processors: Option<&[u16]>) -> Result<(), Error> {
    let Some(processors) = processors else { return Ok(()) };
    let pinned = || {
        let mut set = CpuSet::new();
        processors.iter().try_for_each(|&processor| set.set(usize::from(processor)))?;
        sched_setaffinity(Pid::from_raw(0), &set)
    };
    pinned().map_err(|errno| Error::io("cannot pin to the requested processors")(errno.into()))
}

/// Whether an operation has several statements, so that their number is reported.
fn has_many_statements(work: &TrialOperation) -> bool {
    let TrialOperation::Transactions(script) = work else { return false };
    script.steps.len() > 1 || script.branches.iter().any(|branch| branch.steps.len() > 1)
}

struct WindowUsage {
    window: MeasurementWindow,
    cpu: Duration,
}

/// Opens and closes the window, and reads the process's CPU time at both edges.
fn measure(
    spec: &TrialSpec,
    readiness: &Receiver<Result<(), Error>>,
    starts: Vec<Sender<MeasurementWindow>>,
    messages: &mut impl Write,
) -> Result<WindowUsage, Error> {
    for _ in &starts {
        readiness.recv().map_err(|_| Error::Panicked)??;
    }
    let begins = match spec.start {
        TrialStart::AtOnce => Instant::now() + START_DELAY,
        TrialStart::WhenTold => {
            send(messages, &LoadMessage::Ready)?;
            wait_for_start(readiness)?
        }
    };
    let window = MeasurementWindow::starting_at(
        begins,
        Duration::from_nanos(spec.warm_up_ns),
        Duration::from_nanos(spec.window_ns),
    );
    if spec.start == TrialStart::WhenTold {
        let [opens_at_ns, closes_at_ns] = [window.opens, window.closes].map(monotonic_ns);
        send(messages, &LoadMessage::Begun { opens_at_ns, closes_at_ns })?;
    }
    for start in starts {
        start.send(window).map_err(|_| Error::Panicked)?;
    }
    wait_until(window.opens, readiness)?;
    let (opened, cpu_at_open) = (Instant::now(), process_cpu());
    send(messages, &LoadMessage::WindowOpened)?;
    wait_until(window.closes, readiness)?;
    let (closed, cpu_at_close) = (Instant::now(), process_cpu());
    send(messages, &LoadMessage::WindowClosed)?;
    // This thread wakes a little late on a busy machine, so the edges are read late.
    let stretch = window.length().as_secs_f64() / (closed - opened).as_secs_f64().max(f64::MIN_POSITIVE);
    let cpu = cpu_at_close.saturating_sub(cpu_at_open).mul_f64(stretch.min(1.0));
    Ok(WindowUsage { window, cpu })
}

/// Waits for the [`StartCommand`]; returns earlier if a thread fails. At the end of stdin there is no coordinator.
fn wait_for_start(readiness: &Receiver<Result<(), Error>>) -> Result<Instant, Error> {
    let (sender, command) = mpsc::channel();
    // A pipe cannot be read with a deadline.
    thread::spawn(move || sender.send(read_start()));
    loop {
        match command.recv_timeout(POLL_INTERVAL) {
            Ok(command) => return Ok(instant(command?.begin_at_ns)),
            Err(RecvTimeoutError::Disconnected) => return Err(Error::Panicked),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Ok(Err(error)) = readiness.try_recv() {
            return Err(error);
        }
    }
}

fn read_start() -> Result<StartCommand, Error> {
    let mut line = String::new();
    let mut stdin = io::stdin().lock().take(MAX_SPEC_BYTES);
    stdin.read_line(&mut line).map_err(Error::io("cannot read the start command"))?;
    Ok(serde_json::from_str(&line)?)
}

/// An instant of this process by `CLOCK_MONOTONIC`, which instants are on Linux, too, but do not tell.
fn monotonic_ns(instant: Instant) -> u64 {
    let (now, now_ns) = (Instant::now(), monotonic_now_ns());
    let ahead = instant.saturating_duration_since(now).as_nanos() as u64;
    let behind = now.saturating_duration_since(instant).as_nanos() as u64;
    (now_ns + ahead).saturating_sub(behind)
}

/// The inverse; now if the moment is over.
fn instant(monotonic_ns: u64) -> Instant {
    let (now, now_ns) = (Instant::now(), monotonic_now_ns());
    now + Duration::from_nanos(monotonic_ns.saturating_sub(now_ns))
}

/// Sleeps until `moment`; returns earlier if a thread fails or all have given up.
fn wait_until(moment: Instant, readiness: &Receiver<Result<(), Error>>) -> Result<(), Error> {
    match readiness.recv_timeout(moment.saturating_duration_since(Instant::now())) {
        Ok(Err(error)) => Err(error),
        Ok(Ok(())) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(()),
    }
}

pub(crate) fn read_spec() -> Result<TrialSpec, Error> {
    let mut line = String::new();
    let mut stdin = io::stdin().lock().take(MAX_SPEC_BYTES);
    stdin.read_line(&mut line).map_err(Error::io("cannot read the trial's specification"))?;
    Ok(serde_json::from_str(&line)?)
}

pub(crate) fn send(messages: &mut impl Write, message: &LoadMessage) -> Result<(), Error> {
    let mut line = serde_json::to_string(message)?;
    line.push('\n');
    messages.write_all(line.as_bytes()).map_err(Error::io("cannot report to the coordinator"))?;
    messages.flush().map_err(Error::io("cannot report to the coordinator"))
}

/// Real time; 0 before 1970.
fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// How many of `clients` thread `lane` has if they are distributed evenly.
fn share(clients: usize, threads: usize, lane: usize) -> usize {
    clients / threads + usize::from(lane < clients % threads)
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn every_client_has_one_thread() {
        for clients in 1..=256 {
            for threads in 1..=clients.min(9) {
                let total: usize = (0..threads).map(|lane| share(clients, threads, lane)).sum();
                assert_eq!(total, clients);
            }
        }
    }
}
