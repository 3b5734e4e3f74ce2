//! `run` makes a plan, measures it into a record, and reports the record. `resume` continues a record.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ciphertoll_experiment::{LabTestbed, Run, Sink, TestbedError};
use ciphertoll_lab::Passwords;
use ciphertoll_load::driver;
use ciphertoll_model::{
    Arm, Baseline, Cell, Driver, DriverName, Ending, Event, ExitCode, Limitations, Plan, Prepare, Refusal,
    ServerLevel, Spec, TimestampedEvent, Workload,
};
use ciphertoll_record::{Record, RunDirectory, scratch_root_below};
use ciphertoll_stats::RunFacts;
use jiff::Timestamp;

use crate::arguments::{
    OutputArguments, PlanFormat, ProgressFormat, ReportFormat, ResumeArguments, RunArguments,
};
use crate::ascii::on_screen;
use crate::failure::Failure;
use crate::output::print_document;
use crate::program::{program, watch_signals};
use crate::progress::{ProgressDisplay, tell};
use crate::request::{self, Request};
use crate::settings::check_settings;
use crate::{hosts, passwords, report, scratch};

const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) fn run(arguments: &RunArguments) -> Result<ExitCode, Failure> {
    let Request { mut spec, passwords, absent } = request::read(arguments)?;
    let seed = request::seed(&spec)?;
    if arguments.dry_run {
        let plan = plan(&spec, seed, &absent)?;
        return print_document(&match arguments.format {
            PlanFormat::Table => on_screen(&ciphertoll_report::dry_run(&plan)).into_owned(),
            PlanFormat::Toml => Spec { seed: Some(plan.seed), ..spec }.to_toml(),
        });
    }
    // Refuses a specification without a plan, or without a place for it, before it connects to any server.
    let used_for = scratch::used_for(&plan(&spec, seed, &absent)?);
    let scratch_root = scratch::root(spec.scratch_dir.as_deref(), used_for)?;
    hosts::check(&spec, &scratch_root)?;
    require_a_server(&spec)?;
    check_settings(&spec)?;
    let passwords = passwords::gather(request::servers(&spec), passwords)?;
    let refusals = [absent, log_in_to_servers(&mut spec, &passwords)?].concat();
    let plan = plan(&spec, seed, &refusals)?;
    if arguments.output.is_verbose() {
        tell(ciphertoll_report::plan_summary(&plan).trim_end());
    }
    let directory = RunDirectory::create(&arguments.run_dir, &spec, &plan, Timestamp::now())?;
    let means = Means { passwords, scratch_root };
    measure(&plan, directory, Vec::new(), means, &arguments.output)
}

/// Makes the plan. Fails if a driver is missing; skips cells that a driver cannot measure.
fn plan(spec: &Spec, seed: u64, refusals: &[Refusal]) -> Result<Plan, Failure> {
    let mut drivers: BTreeMap<&DriverName, driver::Driver> = BTreeMap::new();
    for level in spec.grids.iter().flat_map(|grid| &grid.driver) {
        if let Driver::Named(name) = level {
            let found = driver::find(name.as_str()).map_err(|error| Failure::usage(error.to_string()))?;
            drivers.insert(name, found);
        }
    }
    let obstacle = |cell: &Cell| match &cell.treatment.driver {
        Driver::Named(name) => drivers.get(name)?.impossible(&driver::DriverRequirements::of(cell)),
        Driver::Native => None,
    };
    let unlike = driver::unlike(spec);
    Ok(Plan::knowing(spec, seed, &Limitations { refusals, unlike: &unlike, obstacle: Some(&obstacle) })?)
}

/// Fails if no server is installed, because an empty record would become `latest`.
fn require_a_server(spec: &Spec) -> Result<(), Failure> {
    let mut missing = Vec::new();
    for server in request::servers(spec) {
        if server.url.is_some() {
            return Ok(());
        }
        match ciphertoll_lab::find(server) {
            Ok(_) => return Ok(()),
            Err(error) => missing.push((server, error)),
        }
    }
    let Some(((_, error), others)) = missing.split_first() else { return Ok(()) };
    let others: Vec<String> = others.iter().map(|(server, _)| server.to_string()).collect();
    let others = if others.is_empty() { String::new() } else { format!("; nor {} found", others.join(", ")) };
    Err(Failure::new(error.exit_code(), format!("{error}{others}")))
}

/// Logs in to each server at a URL and returns what it refuses, so that no baseline is planned which a server refuses.
/// Replaces each server in `spec` by its actual engine, and a replica set by the chosen member.
fn log_in_to_servers(spec: &mut Spec, passwords: &Passwords) -> Result<Vec<Refusal>, Failure> {
    let servers: Vec<ServerLevel> = spec.grids.iter().flat_map(|grid| &grid.server).cloned().collect();
    let mut refusals = Vec::new();
    let mut known: Vec<&ServerLevel> = Vec::new();
    for server in &servers {
        let Some(url) = server.url.as_deref().filter(|_| !known.contains(&server)) else { continue };
        known.push(server);
        match ciphertoll_lab::remote::probe(&server.short_name(), url, passwords) {
            Ok(found) => {
                if let Some(statement) = spec.query.as_deref().filter(|_| !prepares_tables(spec, server)) {
                    found.try_statement(&server.short_name(), passwords, statement)?;
                }
                refusals.extend(found.refusals);
                let name = server.short_name();
                if let Some(member) = &found.member {
                    tell(&format!("{name}: using replica-set member {member}"));
                }
                if let Some(host) = &found.host {
                    host.passed_over.iter().for_each(|why| tell(&format!("{name}: not using {why}")));
                    tell(&format!("{name}: using {}", host.url.address()));
                }
                if found.engine != server.engine {
                    tell(&format!("{name} is a {}, and is measured as such", found.engine.display_name()));
                }
                if found.url != *url {
                    rename(spec, server, &ServerLevel::at(&name, found.url)?);
                }
            }
            Err(error) if error.exit_code() == ExitCode::Usage => return Err(error.into()),
            Err(ciphertoll_lab::Error::WrongPassword { name, reason })
                if !passwords.contains_key(&name) && passwords::needs_password(url) =>
            {
                let sources = passwords::sources(&name, url);
                let line =
                    format!("no password found for {} at {name}; looked in {sources} ({reason})", url.user);
                if servers.iter().all(|other| other == server) {
                    return Err(Failure::new(ExitCode::ServerRefused, line));
                }
                tell(&line);
            }
            // The other servers can still be measured.
            Err(error) if servers.iter().any(|other| other != server) => tell(&error.to_string()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(refusals)
}

/// Whether the run creates tables on the server. A statement may need them, so it cannot be tried before.
fn prepares_tables(spec: &Spec, server: &ServerLevel) -> bool {
    let mut grids = spec.grids.iter().filter(|grid| grid.server.contains(server));
    let needs_tables = |workload: &Workload| workload.dataset(server.engine).is_some();
    spec.prepare == Prepare::Yes && grids.any(|grid| grid.workload.iter().any(needs_tables))
}

fn rename(spec: &mut Spec, from: &ServerLevel, to: &ServerLevel) {
    let servers = spec.grids.iter_mut().flat_map(|grid| &mut grid.server);
    servers.filter(|server| *server == from).for_each(|server| server.clone_from(to));
    if let Some(Baseline::Server(baseline)) = &mut spec.baseline
        && baseline == from
    {
        baseline.clone_from(to);
    }
}

/// Continues an interrupted run; shows the report of a complete one.
pub(crate) fn resume(arguments: &ResumeArguments) -> Result<ExitCode, Failure> {
    let path = ciphertoll_record::resolve(&arguments.record.run_dir, &arguments.record.run)?;
    let (directory, record) = RunDirectory::resume(&path)?;
    let Record { plan, events, spec, .. } = record;
    let facts = RunFacts::of(&plan, &events);
    let is_complete = facts.ending == Some(Ending::Complete);
    if arguments.output.is_verbose() {
        let blocks = facts.trials.blocks_completed();
        let what = if is_complete { "is complete" } else { "continues" };
        tell(&format!(
            "{} {what}: {blocks} of {} blocks are recorded",
            path.display(),
            plan.counted_blocks()
        ));
    }
    if is_complete {
        // A run that was killed after its last event has left files. The next run reports what cannot be removed.
        let recorded =
            spec.scratch_dir.as_deref().map_or_else(ciphertoll_record::scratch_root, scratch_root_below);
        let _ = ciphertoll_record::sweep(&recorded);
        show(&path, &arguments.output)?;
        return Ok(exit_code(&plan, &facts));
    }
    request::check_files(plan.servers())?;
    let recorded = spec.scratch_dir.as_deref();
    let chosen = arguments.scratch_dir.as_deref().or(recorded);
    let scratch_root = scratch::root(chosen, scratch::used_for(&plan))?;
    let recorded_root = recorded.map_or_else(ciphertoll_record::scratch_root, scratch_root_below);
    if recorded_root != scratch_root {
        // The interrupted run may have left files there. If the directory is gone, they are, too.
        let _ = ciphertoll_record::sweep(&recorded_root);
    }
    let passwords = passwords::gather(plan.servers(), Passwords::new())?;
    measure(&plan, directory, events, Means { passwords, scratch_root }, &arguments.output)
}

/// What a run needs in addition to its plan.
struct Means {
    passwords: Passwords,
    scratch_root: PathBuf,
}

/// Measures the trials that `events` lack, and shows the report.
fn measure(
    plan: &Plan,
    directory: RunDirectory,
    events: Vec<TimestampedEvent>,
    Means { passwords, scratch_root }: Means,
    output: &OutputArguments,
) -> Result<ExitCode, Failure> {
    let interrupt = watch_signals()?;
    let path = directory.path().to_owned();
    let testbed = LabTestbed::new(program()?, interrupt.clone()).with_logs(path.join("logs"));
    let mut testbed = testbed.with_passwords(passwords).with_scratch_root(scratch_root);
    let format = if output.quiet { ProgressFormat::None } else { output.progress };
    let mut sink = RecordingSink { directory, progress: ProgressDisplay::new(format, plan) };
    let outcome = Run::resuming(plan, &mut testbed, &mut sink, &interrupt, events).carry_out(VERSION);
    sink.progress.finish();
    let events = outcome.map_err(|error| failed(&error, &path))?;
    drop(sink);
    show(&path, output)?;
    let facts = RunFacts::of(plan, &events);
    if output.is_verbose() && matches!(facts.ending, Some(Ending::Interrupted | Ending::Terminated)) {
        tell(&format!("to continue: ciphertoll resume {}", path.display()));
    }
    Ok(exit_code(plan, &facts))
}

/// Reads the record from disk, so that the output is identical to that of any later `report`.
fn show(path: &Path, output: &OutputArguments) -> Result<(), Failure> {
    let format = match output {
        OutputArguments { json: true, .. } => ReportFormat::Json,
        OutputArguments { details: true, .. } => ReportFormat::Terminal,
        _ => ReportFormat::Summary,
    };
    report::print(&Record::open(path)?, format, output.price.core_price)?;
    if output.is_verbose() {
        tell(&format!("recorded in {}", path.display()));
    }
    Ok(())
}

/// Records each event before it is displayed.
struct RecordingSink {
    directory: RunDirectory,
    progress: ProgressDisplay,
}

impl Sink for RecordingSink {
    fn event(&mut self, event: &Event) -> Result<TimestampedEvent, TestbedError> {
        let stamped = self.directory.append(event).map_err(unrecorded)?;
        self.progress.event(&stamped);
        Ok(stamped)
    }

    fn histogram(&mut self, block: u32, cell: usize, arm: Arm, base64: &str) -> Result<(), TestbedError> {
        let arm = match arm {
            Arm::Main => "main",
            Arm::Repeat => "repeat",
        };
        let name = format!("block-{block:02}-cell-{cell:03}-{arm}.hdr64");
        self.directory.store_histogram(&name, base64).map_err(unrecorded)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "passed to map_err")]
fn unrecorded(error: ciphertoll_record::Error) -> TestbedError {
    TestbedError { message: error.to_string(), exit_code: error.exit_code() }
}

/// Names the record, which keeps what was measured before the failure.
fn failed(error: &TestbedError, directory: &Path) -> Failure {
    Failure::new(error.exit_code, format!("{} (record: {})", error.message, directory.display()))
}

fn exit_code(plan: &Plan, facts: &RunFacts<'_>) -> ExitCode {
    match facts.ending {
        Some(Ending::Interrupted) => return ExitCode::Interrupted,
        Some(Ending::Terminated) => return ExitCode::Terminated,
        Some(Ending::Complete) => {}
        Some(Ending::Failed) | None => return ExitCode::Internal,
    }
    let analysis = ciphertoll_stats::analyse_trials(plan, &facts.trials);
    let used = analysis.cells().iter().filter(|cell| cell.blocks_used > 0).count();
    match used {
        0 => ExitCode::NothingRan,
        used if used < plan.cells.len() => ExitCode::DoneInPart,
        _ => ExitCode::Done,
    }
}
