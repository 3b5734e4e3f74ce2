//! `run`: what was asked becomes a plan, the plan a run, the run a record, the record a report.

use std::path::{Path, PathBuf};

use ciphertoll_experiment::{BenchError, Interrupt, LabBench, Run, Sink};
use ciphertoll_model::{Arm, Ending, Event, ExitCode, Plan, Spec, Stamped};
use ciphertoll_record::{Record, RunDirectory};
use jiff::Timestamp;

use crate::arguments::{PlanFormat, ProgressFormat, ReportFormat, RunArguments};
use crate::failure::Failure;
use crate::progress::{Progress, tell};
use crate::{print_document, report, request};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const SIGNALS: [i32; 2] = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];

pub(crate) fn run(arguments: &RunArguments) -> Result<ExitCode, Failure> {
    let spec = request::spec(arguments)?;
    let plan = Plan::new(&spec, request::seed(&spec)?)?;
    if arguments.dry_run {
        return print_document(&match arguments.format {
            PlanFormat::Table => ciphertoll_report::dry_run(&plan),
            PlanFormat::Toml => Spec { seed: Some(plan.seed), ..spec }.to_toml(),
        });
    }
    let interrupt = watch_signals()?;
    let run = carry_out(arguments, &spec, &plan, &interrupt)?;
    let format = if arguments.json { ReportFormat::Json } else { ReportFormat::Terminal };
    // From the record and not from memory: what is printed now is what any later report prints, to the byte.
    report::print(&Record::open(&run.directory)?, format)?;
    if arguments.tells_in_words() {
        tell(&format!("recorded in {}", run.directory.display()));
    }
    Ok(exit_code(&plan, &run.events))
}

/// A run that was carried out, to its end or not.
struct Ran {
    directory: PathBuf,
    events: Vec<Stamped>,
}

fn carry_out(
    arguments: &RunArguments,
    spec: &Spec,
    plan: &Plan,
    interrupt: &Interrupt,
) -> Result<Ran, Failure> {
    if arguments.tells_in_words() {
        tell(ciphertoll_report::plan_summary(plan).trim_end());
    }
    let directory = RunDirectory::create(&arguments.run_dir, spec, plan, Timestamp::now())?;
    let path = directory.path().to_owned();
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(ExitCode::HostResource, format!("cannot find this program: {error}"))
    })?;
    let mut bench = LabBench::new(program, path.join("logs"), interrupt.clone());
    let format = if arguments.quiet { ProgressFormat::None } else { arguments.progress };
    let mut sink = Recording { directory, progress: Progress::new(format, plan) };
    let carried = Run::new(plan, &mut bench, &mut sink, interrupt).carry_out(VERSION);
    sink.progress.finish();
    let events = carried.map_err(|error| failed(&error, &path))?;
    Ok(Ran { directory: path, events })
}

/// Events go to the record first, then to the display: what is shown is recorded.
struct Recording {
    directory: RunDirectory,
    progress: Progress,
}

impl Sink for Recording {
    fn event(&mut self, event: &Event) -> Result<Stamped, BenchError> {
        let stamped = self.directory.append(event).map_err(unrecorded)?;
        self.progress.event(&stamped);
        Ok(stamped)
    }

    fn histogram(&mut self, block: u32, cell: usize, arm: Arm, base64: &str) -> Result<(), BenchError> {
        let arm = match arm {
            Arm::Main => "main",
            Arm::Repeat => "repeat",
        };
        let name = format!("block-{block:02}-cell-{cell:03}-{arm}.hdr64");
        self.directory.store_histogram(&name, base64).map_err(unrecorded)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "is handed to map_err as it is")]
fn unrecorded(error: ciphertoll_record::Error) -> BenchError {
    BenchError { message: error.to_string(), exit_code: error.exit_code() }
}

/// What was measured before the failure is kept; the line says where.
fn failed(error: &BenchError, directory: &Path) -> Failure {
    Failure::new(error.exit_code, format!("{} (record: {})", error.message, directory.display()))
}

fn watch_signals() -> Result<Interrupt, Failure> {
    let interrupt = Interrupt::default();
    for signal in SIGNALS {
        signal_hook::flag::register_usize(signal, interrupt.flag(), signal as usize)
            .map_err(|error| Failure::new(ExitCode::Internal, format!("cannot watch signals: {error}")))?;
    }
    Ok(interrupt)
}

/// What the process answers: how the run ended, and whether every cell was measured.
fn exit_code(plan: &Plan, events: &[Stamped]) -> ExitCode {
    let ending = events.iter().rev().find_map(|stamped| match stamped.event {
        Event::Finished { ending } => Some(ending),
        _ => None,
    });
    match ending {
        Some(Ending::Interrupted) => return ExitCode::Interrupted,
        Some(Ending::Terminated) => return ExitCode::Terminated,
        Some(Ending::Complete) => {}
        Some(Ending::Failed) | None => return ExitCode::Internal,
    }
    let analysis = ciphertoll_stats::analyse(plan, events);
    let used = analysis.cells.iter().filter(|cell| cell.blocks_used > 0).count();
    match used {
        0 => ExitCode::NothingRan,
        used if used < plan.cells.len() => ExitCode::DoneInPart,
        _ => ExitCode::Done,
    }
}
