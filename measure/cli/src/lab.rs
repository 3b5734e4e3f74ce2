//! `lab`: runs the user's command against a private server, over a path and a link.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{self, Child, Command, ExitStatus};
use std::thread;
use std::time::Duration;

use ciphertoll_experiment::{
    Emit, Interrupt, LabTestbed, ReadyLab, ReadyTestbed, Testbed, TrialError, TrialRequest,
};
use ciphertoll_model::{
    Arm, Cell, Ending, Event, ExitCode, Grid, Link, LinkShape, Namespace, Plan, Settings, Spec, TrialPace,
    TrialSpec, Tunnel, VoidReason,
};
use ciphertoll_record::ProcessIdentity;

use crate::arguments::LabArguments;
use crate::environment::ClientEnvironment;
use crate::failure::Failure;
use crate::program::{program, watch_signals};
use crate::progress::tell;
use crate::{request, scratch};

/// The hidden command that [`within`] implements.
pub(crate) const WITHIN_COMMAND: &str = "__within";
/// Stands for the current network namespace.
const HERE: &str = "-";
/// The exit code of shells for a command that could not be started.
const NOT_STARTED: u8 = 127;
/// Shells add this to the number of the signal that killed a command.
const BY_SIGNAL: i32 = 128;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Starts the lab, runs the command in it, and stops the lab. Returns the command's exit code.
pub(crate) fn lab(arguments: &LabArguments) -> Result<u8, Failure> {
    let plan = plan(arguments)?;
    let Some(cell) = plan.cells.first() else {
        return Err(Failure::new(ExitCode::NothingRan, "nothing to start"));
    };
    let interrupt = watch_signals()?;
    let scratch_root = scratch::root(arguments.scratch_dir.as_deref(), scratch::used_for(&plan))?;
    let mut testbed = LabTestbed::new(program()?, interrupt.clone()).with_scratch_root(scratch_root);
    let skipped = RefCell::new(None);
    let mut emit = |event: Event| match event {
        Event::CellSkipped { skipped: cell } => *skipped.borrow_mut() = Some(cell.reason),
        Event::Warned { message } => tell(&format!("warning: {message}")),
        event if !arguments.quiet => progress_line(&event).iter().for_each(|line| tell(line)),
        _ => {}
    };
    testbed.sweep(&mut emit)?;
    let mut ready = testbed.prepare(&plan, &mut emit)?;
    let code = check_interrupt(&interrupt)
        .and_then(|()| match skipped.take() {
            Some(reason) => Err(Failure::new(ExitCode::NothingRan, reason)),
            None => start(&mut ready, &plan, cell, &mut emit),
        })
        .and_then(|client| {
            let environment = prepare_environment(&ready, &client)?;
            run_command(&client, &environment, &arguments.command, &interrupt)
        });
    let down = ready.down();
    let code = code?;
    down?;
    Ok(code)
}

/// A plan of one cell, without a comparison.
fn plan(arguments: &LabArguments) -> Result<Plan, Failure> {
    let LabArguments { server, path, auth, link, workload, scale, set, .. } = arguments;
    let server = match server {
        Some(server) => server.clone(),
        None => request::servers_here().swap_remove(0),
    };
    let joins_networks = path.as_tunnel().is_some_and(Tunnel::joins_networks);
    let shortest = if joins_networks { Link::Emulated(LinkShape::of_rtt_us(0)) } else { Link::Local };
    let mut grid = Grid {
        server: vec![server],
        path: vec![*path],
        auth: auth.map(|auth| vec![auth]),
        link: vec![link.unwrap_or(shortest)],
        ..Grid::default()
    };
    if let Some(workload) = workload {
        grid.workload = vec![*workload];
    }
    if let Some(scale) = scale {
        grid.scale = vec![*scale];
    }
    let mut settings = Settings::default();
    settings.extend(set.iter().cloned());
    let mut spec = Spec { name: "lab".to_owned(), grids: vec![grid], settings, ..Spec::quick(&[]) };
    request::fix_memory_size(&mut spec);
    Ok(Plan::new(&spec, 0)?)
}

/// Starts path and link. Returns the settings of a client.
fn start(ready: &mut ReadyLab, plan: &Plan, cell: &Cell, emit: &mut Emit<'_>) -> Result<TrialSpec, Failure> {
    ready.up(cell, emit).map_err(trial_failed)?;
    let request = TrialRequest {
        cell,
        arm: Arm::Main,
        pace: TrialPace::Closed,
        timing: plan.timing,
        seed: 0,
        max_per_s: None,
        query: None,
    };
    ready.client(&request).map_err(trial_failed)
}

fn check_interrupt(interrupt: &Interrupt) -> Result<(), Failure> {
    let code = match interrupt.ending() {
        None => return Ok(()),
        Some(Ending::Terminated) => ExitCode::Terminated,
        Some(_) => ExitCode::Interrupted,
    };
    Err(Failure::new(code, "interrupted before the command was started"))
}

fn trial_failed(error: TrialError) -> Failure {
    match error {
        TrialError::Void(VoidReason::ServerDied { message }) => {
            Failure::new(ExitCode::ServerRefused, message)
        }
        TrialError::Void(reason) => Failure::new(ExitCode::HostResource, reason.to_string()),
        TrialError::Interrupted => Failure::new(ExitCode::Interrupted, "interrupted"),
        TrialError::Fatal(error) => error.into(),
    }
}

fn progress_line(event: &Event) -> Option<String> {
    match event {
        Event::ServerReady { server, version, .. } => Some(format!("{server} {version} is up")),
        Event::LinkMade { link, round_trip_ns_p50, .. } => {
            Some(format!("{link}: round trip {:.2} ms", *round_trip_ns_p50 as f64 * 1e-6))
        }
        Event::TunnelTried { path, version, elapsed_ms, .. }
        | Event::ProxyTried { path, version, elapsed_ms, .. } => {
            Some(format!("{path} ({version}): up in {:.2} s", *elapsed_ms as f64 * 1e-3))
        }
        Event::AtRestProven { server, at_rest, files, files_with_marker, .. } => Some(format!(
            "{server}, at-rest {at_rest}: test data found in {files_with_marker} of {files} files"
        )),
        _ => None,
    }
}

/// Returns the command's environment variables. Writes private files, which are removed with the lab.
fn prepare_environment(
    ready: &ReadyLab,
    client: &TrialSpec,
) -> Result<Vec<(&'static str, OsString)>, Failure> {
    let failed = |error: io::Error| {
        Failure::new(ExitCode::HostResource, format!("cannot write the client's configuration: {error}"))
    };
    let directory = ready.scratch().join("client");
    let password = fs::read_to_string(&client.password_file).map_err(failed)?;
    let environment = ClientEnvironment { client, password: &password, directory: &directory };
    DirBuilder::new().mode(0o700).create(&directory).map_err(failed)?;
    for (name, text) in environment.files() {
        write_private(&directory.join(name), &text).map_err(failed)?;
    }
    Ok(environment.variables())
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(text.as_bytes())
}

/// Runs the command in the foreground. The terminal sends Ctrl-C to it directly; SIGTERM is passed on.
fn run_command(
    client: &TrialSpec,
    environment: &[(&'static str, OsString)],
    command: &[OsString],
    interrupt: &Interrupt,
) -> Result<u8, Failure> {
    let namespace = match &client.namespace {
        None => HERE.to_owned(),
        Some(namespace) => serde_json::to_string(namespace)?,
    };
    let mut within = Command::new(program()?);
    within.arg(WITHIN_COMMAND).arg(namespace).args(command).envs(environment.iter().cloned());
    let status = within.spawn().and_then(|mut child| wait(&mut child, interrupt));
    let status = status
        .map_err(|error| Failure::new(ExitCode::Internal, format!("cannot start the command: {error}")))?;
    Ok(exit_code_of(status))
}

/// The exit code that a shell reports for a command that ended like this.
pub(crate) fn exit_code_of(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| BY_SIGNAL + status.signal().unwrap_or_default());
    u8::try_from(code).unwrap_or(u8::MAX)
}

fn wait(child: &mut Child, interrupt: &Interrupt) -> io::Result<ExitStatus> {
    const GRACE: Duration = Duration::from_secs(5);
    let identity = ProcessIdentity::of(child.id().cast_signed())?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if interrupt.ending() == Some(Ending::Terminated) {
            identity.end(GRACE)?;
            return child.wait();
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Joins a network namespace and replaces this process with the command; returns only if that fails.
#[expect(clippy::print_stderr, reason = "stderr of a command that could not be started")]
pub(crate) fn within(mut arguments: impl Iterator<Item = OsString>) -> process::ExitCode {
    let (namespace, program) = (arguments.next(), arguments.next());
    let (Some(namespace), Some(program)) = (namespace, program) else { return process::ExitCode::from(2) };
    if namespace != OsStr::new(HERE)
        && let Err(error) = enter(&namespace)
    {
        eprintln!("ciphertoll: cannot enter the lab's network: {error}");
        return process::ExitCode::from(NOT_STARTED);
    }
    let error = Command::new(&program).args(arguments).exec();
    eprintln!("ciphertoll: cannot start {}: {error}", program.display());
    process::ExitCode::from(NOT_STARTED)
}

fn enter(namespace: &OsStr) -> io::Result<()> {
    let namespace: Namespace = serde_json::from_str(&namespace.to_string_lossy())?;
    ciphertoll_link::join(&namespace)
}
