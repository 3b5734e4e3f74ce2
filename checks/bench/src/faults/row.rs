//! Carries out a pair of the matrix and checks what happened.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ciphertoll_model::{ExitCode, VoidReason};
use ciphertoll_record::{ProcessIdentity, SCRATCH_DIRECTORY_VARIABLE, unmount};
use serde_json::Value;

use super::clock::SteppedClock;
use super::disk::SmallDisk;
use super::injection::{InjectionMeans, inject};
use super::leftovers::leftovers;
use super::matrix::{Applicability, FullDisk, InjectedFault, Target, applicability};
use super::session::{Finished, Session};

/// Enough for two servers and their data.
const SCRATCH_SIZE: &str = "1500m";
/// Room for the plan and some trials.
const RUNS_SIZE: &str = "512k";
/// More than are needed, for trials that end before they are hit.
const BLOCKS: &str = "3";
const TRIAL_TIME: &str = "3s";
/// From the start of the load process to the fault.
const INTO_TRIAL: Duration = Duration::from_secs(1);
/// Words in a reason before the last lines of a log.
const LOG_FOLLOWS: &str = "; its log ends";

/// A row of the table.
pub struct Row {
    pub target: Target,
    pub fault: InjectedFault,
    /// What happened, or why the pair was not tested.
    pub happened: String,
    pub resumed: String,
    pub left: String,
    pub seconds: u64,
    /// How the pair violates the contract.
    pub violations: Vec<String>,
}

impl Row {
    pub fn heading() -> &'static str {
        "| process | fault | what happened | resume | left | s |\n| --- | --- | --- | --- | --- | ---: |"
    }

    pub fn line(&self) -> String {
        let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
        let line = format!(
            "| {} | {} | {} | {} | {} | {} |",
            self.target.label(),
            self.fault.label(),
            cell(&self.happened),
            cell(&self.resumed),
            cell(&self.left),
            self.seconds
        );
        self.violations.iter().fold(line, |line, violation| format!("{line}\n**VIOLATION**: {violation}"))
    }

    fn excluded(target: Target, fault: InjectedFault, reason: &str) -> Self {
        let [resumed, left] = ["–", "–"].map(ToOwned::to_owned);
        let happened = format!("not tested: {reason}");
        Self { target, fault, happened, resumed, left, seconds: 0, violations: Vec::new() }
    }
}

/// The directories of a pair, removed when dropped unless they are kept for a look at a violation.
struct Place {
    path: PathBuf,
    scratch: PathBuf,
    runs: PathBuf,
    disk: Option<SmallDisk>,
}

impl Place {
    fn make(below: &Path, target: Target, fault: InjectedFault) -> Result<Self> {
        // Short, because it is part of the paths of sockets.
        let path = below.join(format!("{}{}", target as u8, fault as u8));
        let (scratch, runs) = (path.join("s"), path.join("runs"));
        // An interrupted matrix has left its mount.
        for directory in [&scratch, &runs] {
            unmount(directory)?;
        }
        let _ = fs::remove_dir_all(&path);
        for directory in [&scratch, &runs] {
            fs::create_dir_all(directory).context("cannot make a directory")?;
        }
        let disk = match (fault, target.full_disk()) {
            (InjectedFault::DiskFull, FullDisk::Scratch) => Some(SmallDisk::mount(&scratch, SCRATCH_SIZE)?),
            (InjectedFault::DiskFull, FullDisk::Runs) => Some(SmallDisk::mount(&runs, RUNS_SIZE)?),
            _ => None,
        };
        Ok(Self { path, scratch, runs, disk })
    }
}

/// Runs the program below `place`, causes the fault in the middle of a trial, and resumes the run. A pair that cannot be
/// carried out violates the contract, too.
pub fn carry_out(program: &Path, place: &Path, target: Target, fault: InjectedFault) -> Row {
    if let Applicability::Excluded(reason) = applicability(target, fault) {
        return Row::excluded(target, fault, reason);
    }
    hit_and_resume(program, place, target, fault).unwrap_or_else(|error| {
        let mut row = Row::excluded(target, fault, "it could not be carried out");
        row.violations.push(format!("{error:#}"));
        row
    })
}

fn hit_and_resume(program: &Path, place: &Path, target: Target, fault: InjectedFault) -> Result<Row> {
    let began = Instant::now();
    let clock = match fault {
        InjectedFault::ClockStepped => Some(SteppedClock::prepare(&place.join("clock"), program, target)?),
        _ => None,
    };
    let at = Place::make(place, target, fault)?;
    let run = run_with_fault(program, &at, clock.as_ref(), target, fault)?;
    let mut checks = Checks { target, fault, violations: Vec::new() };
    let happened = checks.outcome(&run);
    let mut left = left_before_resume(&run, &at);
    let resumed = resume(program, &at, clock.as_ref())?;
    let resumed_text = checks.resumed(&resumed);
    left.extend(leftovers(&resumed, &at.scratch));
    left.extend(leftovers(&run, &at.scratch));
    left.dedup();
    if !left.is_empty() {
        checks.violations.push(format!("left: {}", left.join("; ")));
    }
    let violations = checks.violations;
    let path = at.path.clone();
    drop(at);
    if violations.is_empty() {
        fs::remove_dir_all(path).context("cannot remove a directory")?;
    }
    let left = if left.is_empty() { "nothing".to_owned() } else { format!("{} items", left.len()) };
    let seconds = began.elapsed().as_secs();
    Ok(Row { target, fault, happened, resumed: resumed_text, left, seconds, violations })
}

fn command(program: &Path, at: &Place, clock: Option<&SteppedClock>, subcommand: &str) -> Result<Command> {
    let own = clock.map_or_else(|| program.to_owned(), |clock| clock.program(program));
    let mut command = Command::new(own);
    command.args([subcommand, "--progress", "json", "--json", "--run-dir"]).arg(&at.runs);
    command.env_remove(SCRATCH_DIRECTORY_VARIABLE).env_remove("CLICOLOR_FORCE");
    if let Some(clock) = clock {
        clock.apply(&mut command, program)?;
    }
    Ok(command)
}

fn run_with_fault(
    program: &Path,
    at: &Place,
    clock: Option<&SteppedClock>,
    target: Target,
    fault: InjectedFault,
) -> Result<Finished> {
    let mut command = command(program, at, clock, "run")?;
    let server = clock.map_or_else(|| target.server().to_owned(), SteppedClock::server);
    let path = target.path(fault);
    let paths = if path == "plain" { path.to_owned() } else { format!("plain,{path}") };
    command.arg("--scratch-dir").arg(&at.scratch).args(["--server", &server, "--path", &paths]);
    command.args(["--workload", target.workload(fault), "--clients", "2", "--seed", "1"]);
    command.args(["--blocks", BLOCKS, "--trial-time", TRIAL_TIME]);
    // Others use the machine: only the fault may void a trial.
    command.args(["--max-steal", "100%", "--max-lateness", "100%"]);
    command.args(target.link().iter().flat_map(|link| ["--link", link]));
    let mut session = Session::start(command, &at.scratch)?;
    let hit = loop {
        session.await_trial(path)?;
        let hit = match target.ledger_name() {
            None => ProcessIdentity::of(session.pid()).context("cannot find the coordinator")?,
            Some(name) => session.newest(name).with_context(|| format!("{name} is not in the ledger"))?,
        };
        thread::sleep(INTO_TRIAL);
        // On a busy machine the trial may be over.
        if hit.is_alive() {
            break hit;
        }
    };
    let is_coordinator = target == Target::Coordinator;
    let means = InjectionMeans { disk: at.disk.as_ref(), clock, is_coordinator };
    let injected = inject(fault, hit, &means)?;
    session.await_end_of_trial()?;
    session.look_at_ledger();
    // A disk stays full until the run has ended; other resources return after the trial.
    if let Some(disk) = at.disk.as_ref() {
        let finished = session.finish_while(|| disk.fill())?;
        injected.lift(&means)?;
        return Ok(finished);
    }
    injected.lift(&means)?;
    session.finish()
}

fn resume(program: &Path, at: &Place, clock: Option<&SteppedClock>) -> Result<Finished> {
    Session::start(command(program, at, clock, "resume")?, &at.scratch)?.finish()
}

/// Checks of one pair.
struct Checks {
    target: Target,
    fault: InjectedFault,
    violations: Vec<String>,
}

impl Checks {
    /// What the run did, in one line.
    fn outcome(&mut self, run: &Finished) -> String {
        if run.hung {
            self.violations.push(format!("the run hangs after: {}", last_event(run)));
            return "it hangs".to_owned();
        }
        if run.told.iter().any(|line| line.contains("panicked")) {
            self.violations.push(format!("it panics: {}", run.told.join(" ")));
        }
        let voided: Vec<String> = run.events.iter().filter_map(void_reason).collect();
        let voids = match voided.split_first() {
            None => String::new(),
            Some((first, [])) => format!("voided: {first}"),
            Some((first, others)) => format!("voided {} times: {first}", others.len() + 1),
        };
        match run.code {
            None => self.ended_by_signal(),
            Some(code) if is_done(code) && voids.is_empty() => {
                if !self.fault.may_be_unnoticed(self.target) {
                    self.violations.push("the run did not notice it".to_owned());
                }
                format!("no effect, exit code {code}")
            }
            Some(code) if is_done(code) => format!("{voids}; exit code {code}"),
            Some(code) => {
                let line = self.error_line(run, code);
                let first = if voids.is_empty() { String::new() } else { format!("{voids}; ") };
                format!("{first}exit code {code}: {line}")
            }
        }
    }

    /// Only a killed coordinator, or one that cannot allocate memory, ends by a signal.
    fn ended_by_signal(&mut self) -> String {
        let is_expected = self.target == Target::Coordinator
            && matches!(self.fault, InjectedFault::Killed | InjectedFault::MemoryLimit);
        if !is_expected {
            self.violations.push("a signal ended the run".to_owned());
        }
        "ended by a signal, and its children with it".to_owned()
    }

    fn error_line(&mut self, run: &Finished, code: i32) -> String {
        let known =
            [ExitCode::NothingRan, ExitCode::ServerRefused, ExitCode::RecordUnusable, ExitCode::HostResource];
        if !known.iter().any(|known| *known as i32 == code) {
            self.violations.push(format!("exit code {code} is not one for a fault"));
        }
        let lines: Vec<&str> =
            run.told.iter().map(String::as_str).filter(|line| line.starts_with("ciphertoll: ")).collect();
        if lines.len() != 1 {
            self.violations.push(format!(
                "{} error lines instead of one: {}",
                lines.len(),
                run.told.join(" / ")
            ));
        }
        let line = lines.join(" / ").replacen("ciphertoll: ", "", 1);
        // Where the record is differs each time.
        line.split(" (record: ").next().unwrap_or_default().to_owned()
    }

    fn resumed(&mut self, resumed: &Finished) -> String {
        let document: Value = serde_json::from_str(&resumed.stdout).unwrap_or_default();
        let is_complete = document["complete"] == true;
        match resumed.code {
            Some(code) if is_done(code) && is_complete => format!("complete, exit code {code}"),
            code => {
                let told = resumed.told.join(" / ");
                let hung = if resumed.hung { "it hangs" } else { "it does not complete the run" };
                self.violations.push(format!("resume: {hung}: exit code {code:?}: {told}"));
                hung.to_owned()
            }
        }
    }
}

/// A killed coordinator's files are removed by the next run; all else must be gone at once.
fn left_before_resume(run: &Finished, at: &Place) -> Vec<String> {
    let left = leftovers(run, &at.scratch);
    if run.code.is_some() {
        return left;
    }
    left.into_iter().filter(|left| left.starts_with("process")).collect()
}

/// Everything or a part was measured.
fn is_done(code: i32) -> bool {
    [ExitCode::Done, ExitCode::DoneInPart].iter().any(|done| *done as i32 == code)
}

fn void_reason(event: &Value) -> Option<String> {
    if event["event"] != "trial_voided" {
        return None;
    }
    let reason = serde_json::from_value::<VoidReason>(event["reason"].clone());
    let reason = reason.map_or_else(|_| event["reason"].to_string(), |reason| reason.to_string());
    // The end of a log is different each time.
    Some(reason.split(LOG_FOLLOWS).next().unwrap_or_default().to_owned())
}

fn last_event(run: &Finished) -> String {
    run.events.last().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    fn finished(code: Option<i32>, told: &[&str], events: Vec<Value>) -> Finished {
        Finished {
            code,
            hung: false,
            stdout: String::new(),
            told: told.iter().map(|line| (*line).to_owned()).collect(),
            events,
            processes: Vec::new(),
            networks: BTreeSet::new(),
            scratch_names: BTreeSet::new(),
        }
    }

    fn checked(target: Target, fault: InjectedFault, run: &Finished) -> (String, usize) {
        let mut checks = Checks { target, fault, violations: Vec::new() };
        let happened = checks.outcome(run);
        (happened, checks.violations.len())
    }

    #[test]
    fn a_void_and_one_error_line_keep_the_contract() {
        let reason = json!({"gate": "server_died", "message": "signal 9"});
        let voided = json!({"event": "trial_voided", "reason": reason});
        let run = finished(Some(0), &[], vec![voided.clone()]);
        let (happened, violations) = checked(Target::MariaDb, InjectedFault::Killed, &run);
        assert_eq!(
            (happened.as_str(), violations),
            ("voided: the server went away: signal 9; exit code 0", 0)
        );
        let run = finished(Some(9), &["ciphertoll: disk full"], Vec::new());
        assert_eq!(
            checked(Target::Ssh, InjectedFault::DiskFull, &run),
            ("exit code 9: disk full".to_owned(), 0)
        );
    }

    #[test]
    fn what_is_not_noticed_or_not_explained_is_a_violation() {
        let quiet = finished(Some(0), &[], Vec::new());
        assert_eq!(checked(Target::Sidecar, InjectedFault::Stopped, &quiet).1, 1);
        assert_eq!(checked(Target::Sidecar, InjectedFault::MemoryLimit, &quiet).1, 0);
        let two = finished(Some(9), &["ciphertoll: one", "ciphertoll: two"], Vec::new());
        assert_eq!(checked(Target::Ssh, InjectedFault::DiskFull, &two).1, 1);
        let internal = finished(Some(1), &["ciphertoll: bug"], Vec::new());
        assert_eq!(checked(Target::Ssh, InjectedFault::DiskFull, &internal).1, 1);
        assert_eq!(checked(Target::Load, InjectedFault::Killed, &finished(None, &[], Vec::new())).1, 1);
    }
}
