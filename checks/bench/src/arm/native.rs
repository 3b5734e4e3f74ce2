//! ciphertoll's own load process, or that of a driver, as a run starts it.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use ciphertoll_lab::Server;
use ciphertoll_load::LoadProcess;
use ciphertoll_load::driver::Task;
use ciphertoll_model::{
    Clients, LoadMessage, StatementProtocol, TlsParameters, TlsSpec, TrialOperation as TrialWork, TrialPace,
    TrialResult, TrialSpec,
};

use super::kinds::{BenchArm, Generator, OperationKind, Route, Sample, WARM_UP_S};
use crate::setup::BenchSetup;

const TIME_LIMIT: Duration = Duration::from_secs(1);
const US_PER_NS: f64 = 1e-3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowEvent {
    Opened,
    Closed,
}

pub(super) fn run(arm: &BenchArm, setup: &BenchSetup<'_>) -> Result<Sample> {
    let meter = setup.server.cpu_meter();
    let mut readings_ns = Vec::new();
    let result = trial(arm, setup, TrialPace::Closed, setup.seconds, |_| {
        readings_ns.push(meter.read_ns()?);
        Ok(())
    })?;
    let operations = result.operations as f64;
    let per_operation_us = |ns: u64| ns as f64 * US_PER_NS / operations;
    let server_cpu_ns = match readings_ns[..] {
        [opened, closed] => Some(closed.saturating_sub(opened)),
        _ => None,
    };
    Ok(Sample {
        rate_per_s: operations / Duration::from_nanos(result.window_ns).as_secs_f64(),
        cpu_us_per_op: per_operation_us(result.client_cpu_ns),
        server_cpu_us_per_op: server_cpu_ns.map(per_operation_us),
        mean_us: per_operation_us(result.latency.sum_ns),
        p95_us: Some(result.latency.p95_ns as f64 * US_PER_NS),
    })
}

/// Runs one trial and calls `at` when its window opens and closes. Fails if any operation failed, because the peers would
/// stop at an error.
pub fn trial(
    arm: &BenchArm,
    setup: &BenchSetup<'_>,
    trial_pace: TrialPace,
    seconds: f64,
    mut at: impl FnMut(WindowEvent) -> Result<()>,
) -> Result<TrialResult> {
    let mut load = start(arm, setup, &spec(arm, setup, trial_pace, seconds)?)?;
    let result = loop {
        match load.next_message(TIME_LIMIT)? {
            Some(LoadMessage::WindowOpened) => at(WindowEvent::Opened)?,
            Some(LoadMessage::WindowClosed) => at(WindowEvent::Closed)?,
            Some(LoadMessage::Finished(result)) => break *result,
            _ => {}
        }
    };
    if let Some(error) = result.errors.first() {
        bail!("an operation failed: {}", error.message);
    }
    if result.operations == 0 {
        bail!("no operation ended in the window");
    }
    Ok(result)
}

fn start(arm: &BenchArm, setup: &BenchSetup<'_>, spec: &TrialSpec) -> Result<LoadProcess> {
    if arm.generator != Generator::Pymongo {
        return Ok(LoadProcess::start(&setup.program, spec)?);
    }
    let driver = setup.tools.pymongo.as_ref().context("pymongo is not installed")?;
    let task = Task { workload: arm.work.workload(), scale: setup.scale(arm.work) };
    let command = driver.command(&setup.program, &task);
    Ok(LoadProcess::start_command(command, spec, driver.grace(spec))?)
}

fn spec(arm: &BenchArm, setup: &BenchSetup<'_>, trial_pace: TrialPace, seconds: f64) -> Result<TrialSpec> {
    let server = setup.server;
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u16);
    let nanos = |seconds: f64| Duration::from_secs_f64(seconds).as_nanos() as u64;
    let account = server.account(arm.auth);
    Ok(TrialSpec {
        engine: server.engine(),
        auth: arm.auth,
        endpoint: setup.endpoint(arm.route),
        user: account.user,
        password_file: account.password_file,
        database: Some(server.database().to_owned()),
        startup: Vec::new(),
        documents: None,
        tls: tls(arm.route, server),
        work: trial_work(arm.work, setup),
        pace: trial_pace,
        clients: Clients::new(arm.work.clients()).context("number of clients")?,
        threads: arm.work.clients().min(processors),
        warm_up_ns: nanos(WARM_UP_S),
        window_ns: nanos(seconds),
        seed: 1,
        compressor: None,
        first_insert: None,
        max_per_s: None,
        processors: None,
        namespace: None,
        injected_delay_ns: 0,
        repeated_share: 0.0,
        start: ciphertoll_model::TrialStart::AtOnce,
    })
}

fn tls(route: Route, server: &Server) -> Option<TlsSpec> {
    let Route::Tls(version) = route else { return None };
    Some(TlsSpec::new(TlsParameters::new(version), Some(server.ca_file()), server.server_name()))
}

/// The workload's script, adapted to the peer: as text, or with a new connection per operation.
fn trial_work(work: OperationKind, setup: &BenchSetup<'_>) -> TrialWork {
    let operation = ciphertoll_load::work(setup.engine(), work.workload(), setup.scale(work), None);
    match (work, operation) {
        (OperationKind::ConnectSelect, TrialWork::Transactions(script)) => TrialWork::ConnectQuery(script),
        (OperationKind::SelectOnly(StatementProtocol::Text), TrialWork::Transactions(mut script)) => {
            for statement in &mut script.statements {
                statement.protocol = StatementProtocol::Text;
            }
            TrialWork::Transactions(script)
        }
        (_, operation) => operation,
    }
}
