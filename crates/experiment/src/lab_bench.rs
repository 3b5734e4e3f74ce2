//! The real bench: private servers of the lab, a load process per trial.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ciphertoll_lab::accounting::Ports;
use ciphertoll_lab::{CpuMeter, Lab, MemoryPeak, Sample, SampleDifference, Server, Start, Template};
use ciphertoll_load::LoadProcess;
use ciphertoll_model::{
    Arm, Cell, Clients, Ctx, Environment, Event, ExitCode, Fault, LoadMessage, Path, Plan, Scale, ServerKey,
    ServerLevel, Skipped, Statement, TlsSpec, TrialResult, TrialSpec, VoidReason, Workload,
};
use ciphertoll_record::{Effect, ProcessIdentity};

use crate::bench::{Bench, BenchError, Emit, MachineUse, Measured, ServerUse, TrialError, TrialRequest};
use crate::interrupt::Interrupt;

/// How often a wait for the load process looks for Ctrl-C.
const PATIENCE: Duration = Duration::from_millis(50);
/// The table that sysbench's point selects read, too.
const TABLE: &str = "sbtest1";

/// The real bench.
pub struct LabBench {
    program: PathBuf,
    logs: PathBuf,
    interrupt: Interrupt,
    injection: Option<Injection>,
    lab: Option<Lab>,
    instances: Vec<Instance>,
}

/// A known effect: `delay` of CPU burnt inside each operation of one arm. The truth experiment must
/// find it again.
#[derive(Clone, Copy, Debug)]
pub struct Injection {
    /// Which arm.
    pub arm: Arm,
    /// How much.
    pub delay: Duration,
}

/// A server that is kept up for the whole run.
struct Instance {
    level: ServerLevel,
    scale: Scale,
    name: String,
    build: ciphertoll_lab::Build,
    template: Template,
    server: Server,
}

impl LabBench {
    /// A bench whose children are started through `program`'s hidden commands; servers' logs go to
    /// `logs`.
    pub fn new(program: PathBuf, logs: PathBuf, interrupt: Interrupt) -> Self {
        Self { program, logs, interrupt, injection: None, lab: None, instances: Vec::new() }
    }

    /// The same with a known effect in one arm.
    #[must_use]
    pub fn with_injection(mut self, injection: Injection) -> Self {
        self.injection = Some(injection);
        self
    }

    fn instance(&mut self, cell: &Cell) -> Result<&mut Instance, TrialError> {
        self.instances
            .iter_mut()
            .find(|instance| instance.level == cell.treatment.server && instance.scale == cell.scale)
            .ok_or_else(|| TrialError::Fatal(internal(format!("no server was started for {cell}"))))
    }

    fn start_instance(
        &self,
        lab: &Lab,
        level: &ServerLevel,
        scale: Scale,
        emit: &mut Emit<'_>,
    ) -> Result<Instance, ciphertoll_lab::Error> {
        let began = Instant::now();
        let build = ciphertoll_lab::find(level)?;
        let template =
            lab.template(&build, scale, &mut |what| emit(Event::Preparing { what: what.to_owned() }))?;
        let name = format!("s{}", self.instances.len() + 1);
        emit(Event::Preparing {
            what: format!("starting {} {}", level.engine.display_name(), build.version),
        });
        let server = lab.start(&self.start(&build, &template, &name, level))?;
        server.prewarm()?;
        emit(ready(level, &server, began));
        Ok(Instance { level: level.clone(), scale, name, build, template, server })
    }

    fn start<'a>(
        &self,
        build: &'a ciphertoll_lab::Build,
        template: &'a Template,
        name: &'a str,
        level: &ServerLevel,
    ) -> Start<'a> {
        let log = self.logs.join(format!("{}-{name}.log", level.short_name()));
        Start { build, template, name, key: ServerKey::P256, log, preferred_port: None }
    }

    /// The machine, and what its servers' CPU was read from.
    fn environment(&self) -> Environment {
        let clocks: BTreeSet<&str> =
            self.instances.iter().map(|instance| instance.server.cpu_meter().label()).collect();
        let mut environment = ciphertoll_lab::environment::environment();
        if !clocks.is_empty() {
            environment.cpu_accounting = clocks.into_iter().collect::<Vec<_>>().join(" and ");
        }
        environment
    }

    /// A server that died in a voided trial is started afresh for the next.
    fn revive(&mut self, cell: &Cell, emit: &mut Emit<'_>) -> Result<(), TrialError> {
        let instance = self.instance(cell)?;
        let Err(died) = instance.server.check_alive() else { return Ok(()) };
        emit(Event::Warned { message: format!("starting the server afresh: {died}") });
        let at = self
            .instances
            .iter()
            .position(|instance| instance.level == cell.treatment.server && instance.scale == cell.scale);
        let Some((at, lab)) = at.zip(self.lab.as_ref()) else { return Ok(()) };
        let dead = self.instances.swap_remove(at);
        let Instance { level, scale, name, build, template, server } = dead;
        drop(server);
        let began = Instant::now();
        let server = lab.start(&self.start(&build, &template, &name, &level)).map_err(fatal)?;
        server.prewarm().map_err(fatal)?;
        emit(ready(&level, &server, began));
        self.instances.push(Instance { level, scale, name, build, template, server });
        Ok(())
    }
}

impl Bench for LabBench {
    fn prepare(&mut self, plan: &Plan, emit: &mut Emit<'_>) -> Result<Environment, BenchError> {
        sweep(emit)?;
        let lab = Lab::open(self.program.clone()).map_err(bench_error)?;
        let mut last_failure = None;
        for (level, scale) in wanted_instances(plan) {
            if self.interrupt.ending().is_some() {
                break;
            }
            match self.start_instance(&lab, &level, scale, emit) {
                Ok(instance) => self.instances.push(instance),
                Err(error) if concerns_one_server(&error) => {
                    skip_cells(plan, &level, scale, &error, emit);
                    last_failure = Some(error);
                }
                Err(error) => return Err(bench_error(error)),
            }
        }
        self.lab = Some(lab);
        match last_failure {
            Some(error) if self.instances.is_empty() => Err(bench_error(error)),
            _ => Ok(self.environment()),
        }
    }

    fn up(&mut self, cell: &Cell, emit: &mut Emit<'_>) -> Result<(), TrialError> {
        self.revive(cell, emit)?;
        let server = &mut self.instance(cell)?.server;
        server.prepare_auth(cell.treatment.auth).map_err(|error| control_failed(server, error))?;
        let Some(tls) = cell.treatment.path.as_tls() else { return Ok(()) };
        server.install_certificate(tls.key).map_err(|error| control_failed(server, error))
    }

    fn trial(&mut self, request: &TrialRequest<'_>) -> Result<Measured, TrialError> {
        let injected_delay =
            self.injection.filter(|injection| injection.arm == request.arm).map(|injection| injection.delay);
        let program = self.program.clone();
        let interrupt = self.interrupt.clone();
        let instance = self.instance(request.cell)?;
        let spec = trial_spec(request, &instance.server, injected_delay.unwrap_or_default());
        let clocks = Clocks::of(&instance.server);
        let misses_before =
            instance.server.buffer_misses().map_err(|error| control_failed(&mut instance.server, error))?;
        let load = LoadProcess::start(&program, &spec).map_err(load_failed)?;
        let lab = self.lab.as_ref().ok_or_else(|| TrialError::Fatal(internal("no lab".to_owned())))?;
        note_in_ledger(lab, &load, &program).map_err(|error| fatal(error.into()))?;
        let measured = observe(load, &clocks, &interrupt);
        let server = &mut self.instance(request.cell)?.server;
        let survived = match &measured {
            Ok(measured) if measured.load.errors.is_empty() => server.check_alive(),
            Err(TrialError::Interrupted) => return measured,
            Ok(_) | Err(_) => server.check_survived(),
        };
        match (measured, survived) {
            (_, Err(died)) => Err(server_died(&died)),
            (Err(error), Ok(())) => Err(error),
            (Ok(mut measured), Ok(())) => {
                let misses = server.buffer_misses().map_err(|error| control_failed(server, error))?;
                measured.server.buffer_misses = misses.saturating_sub(misses_before);
                Ok(measured)
            }
        }
    }

    fn down(&mut self) -> Result<(), BenchError> {
        let mut first_failure = None;
        for instance in self.instances.drain(..) {
            if let Err(error) = instance.server.stop() {
                first_failure.get_or_insert(error);
            }
        }
        // Dropping the lab removes the scratch directory.
        self.lab = None;
        first_failure.map_or(Ok(()), |error| Err(bench_error(error)))
    }
}

/// Where a server's CPU and memory are read.
struct Clocks {
    cpu: CpuMeter,
    /// Absent where the server is many processes: the sum of their peaks is nobody's peak.
    memory: Option<i32>,
}

impl Clocks {
    fn of(server: &Server) -> Self {
        Self { cpu: server.cpu_meter(), memory: server.memory_pid() }
    }
}

/// Waits for the trial, takes the server's and the machine's clocks at both edges of the window.
fn observe(mut load: LoadProcess, clocks: &Clocks, interrupt: &Interrupt) -> Result<Measured, TrialError> {
    let mut opened = None;
    let mut window = None;
    loop {
        if interrupt.ending().is_some() {
            return Err(TrialError::Interrupted);
        }
        match load.next_message(PATIENCE).map_err(load_failed)? {
            None => {}
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
    Ok(Measured { load, server, machine })
}

fn trial_spec(request: &TrialRequest<'_>, server: &Server, injected_delay: Duration) -> TrialSpec {
    let TrialRequest { cell, timing, seed, .. } = request;
    let tls = cell.treatment.path.as_tls().map(|tls| TlsSpec {
        version: tls.version,
        ca_file: server.ca_file(),
        server_name: server.server_name().to_owned(),
        ctx: cell.treatment.ctx.unwrap_or(Ctx::PerConnect),
    });
    let account = server.account(cell.treatment.auth);
    TrialSpec {
        engine: cell.treatment.server.engine,
        auth: cell.treatment.auth,
        endpoint: match cell.treatment.path {
            Path::Unix => server.unix_endpoint(),
            Path::Plain | Path::Tls(_) => server.tcp_endpoint(),
        },
        user: account.user,
        password_file: account.password_file,
        database: Some(server.database().to_owned()),
        tls,
        statement: match cell.workload {
            Workload::Connect => Statement::Connect,
            Workload::ConnectQuery => Statement::ConnectQuery,
            Workload::PointSelect => {
                Statement::PointSelect { table: TABLE.to_owned(), rows: cell.scale.rows() }
            }
        },
        clients: cell.clients,
        threads: threads(cell.clients),
        warm_up_ns: timing.warm_up.duration().as_nanos() as u64,
        window_ns: timing.window.duration().as_nanos() as u64,
        seed: *seed,
        injected_delay_ns: injected_delay.as_nanos() as u64,
    }
}

/// A thread per processor, as far as there are clients for them.
fn threads(clients: Clients) -> u16 {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u16);
    clients.count().min(processors)
}

/// One server for each level and scale.
fn wanted_instances(plan: &Plan) -> Vec<(ServerLevel, Scale)> {
    let mut wanted = Vec::new();
    for cell in &plan.cells {
        let instance = (cell.treatment.server.clone(), cell.scale);
        if !wanted.contains(&instance) {
            wanted.push(instance);
        }
    }
    wanted
}

/// A server that is missing or does not start is left out; the rest of the plan still runs.
fn concerns_one_server(error: &ciphertoll_lab::Error) -> bool {
    matches!(error.exit_code(), ExitCode::NothingRan | ExitCode::ServerRefused)
}

fn skip_cells(
    plan: &Plan,
    level: &ServerLevel,
    scale: Scale,
    error: &ciphertoll_lab::Error,
    emit: &mut Emit<'_>,
) {
    for cell in &plan.cells {
        if cell.treatment.server == *level && cell.scale == scale {
            let skipped = Skipped { id: cell.to_string(), reason: error.to_string() };
            emit(Event::CellSkipped { skipped });
        }
    }
}

/// Clears what killed runs left behind.
fn sweep(emit: &mut Emit<'_>) -> Result<(), BenchError> {
    let report = ciphertoll_record::sweep(&ciphertoll_record::scratch_root())
        .map_err(|error| bench_error(error.into()))?;
    if report.directories_removed > 0 {
        let message = format!(
            "cleared what killed runs left: {} directories, {} processes",
            report.directories_removed, report.processes_killed
        );
        emit(Event::Warned { message });
    }
    for left in report.left {
        let message = format!("a killed run's {} could not be cleared: {}", left.path.display(), left.reason);
        emit(Event::Warned { message });
    }
    Ok(())
}

fn ready(level: &ServerLevel, server: &Server, began: Instant) -> Event {
    Event::ServerReady {
        server: level.short_name(),
        version: server.version().to_owned(),
        tls_library: server.tls_library().map(ToOwned::to_owned),
        settings: server.settings().clone(),
        elapsed_ms: began.elapsed().as_millis() as u64,
    }
}

fn note_in_ledger(
    lab: &Lab,
    load: &LoadProcess,
    program: &std::path::Path,
) -> Result<(), ciphertoll_record::Error> {
    // One that has ended already has left nothing to undo.
    let Ok(identity) = ProcessIdentity::of(load.pid().cast_signed()) else { return Ok(()) };
    let effect = Effect::Process { identity, what: "load".to_owned(), program: program.to_owned() };
    lab.scratch().ledger().note(&effect)
}

/// A load that failed voids its trial; one that this machine cannot make ends the run.
#[expect(clippy::needless_pass_by_value, reason = "is handed to map_err as it is")]
fn load_failed(error: ciphertoll_load::Error) -> TrialError {
    match error.fault() {
        Fault::Server | Fault::Tls | Fault::Internal => {
            TrialError::Void(VoidReason::LoadFailed { message: error.to_string() })
        }
        Fault::Host => {
            TrialError::Fatal(BenchError { message: error.to_string(), exit_code: ExitCode::HostResource })
        }
    }
}

/// A control connection that failed because the server died voids the trial only.
fn control_failed(server: &mut Server, error: ciphertoll_lab::Error) -> TrialError {
    match server.check_survived() {
        Err(died) => server_died(&died),
        Ok(()) => fatal(error),
    }
}

fn server_died(died: &ciphertoll_lab::Error) -> TrialError {
    TrialError::Void(VoidReason::ServerDied { message: died.to_string() })
}

fn fatal(error: ciphertoll_lab::Error) -> TrialError {
    TrialError::Fatal(bench_error(error))
}

#[expect(clippy::needless_pass_by_value, reason = "is handed to map_err as it is")]
fn bench_error(error: ciphertoll_lab::Error) -> BenchError {
    BenchError { message: error.to_string(), exit_code: error.exit_code() }
}

fn internal(message: String) -> BenchError {
    BenchError { message, exit_code: ExitCode::Internal }
}
