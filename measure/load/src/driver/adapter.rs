//! The hidden command `__drive`: speaks the protocol of `__load` and runs a tool to make the load.
//!
//! The tool runs twice, for the warm-up and for the window. It is started through `__drive NAME exec`, a separate
//! process that asks for SIGKILL at its parent's death and then becomes the tool, so that no tool outlives the
//! coordinator.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::{ErrorKind, LatencySummary, LoadMessage, TrialResult, TrialSpec};
use nix::sys::prctl;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::Signal;

use super::error::Error;
use super::file::{DriverFile, ToolFile};
use super::find::find;
use super::output::{ResultRule, ToolResult};
use super::placeholder::{Placeholder, Values};
use super::tool::{Invocation, Task, values};
use crate::process::{keep_to, read_spec, send};
use crate::usage::resident_peak_bytes;

/// The hidden command: `__drive NAME WORKLOAD ROWS`.
pub const DRIVE_COMMAND: &str = "__drive";
/// `__drive NAME exec PROGRAM ARGUMENTS…` becomes the program.
const EXEC: &str = "exec";

const MAX_PASSWORD_BYTES: u64 = 4 << 10;
/// How much of a tool's output is read, from the end.
const MAX_PRINTED_BYTES: u64 = 1 << 20;
/// How much of its logs is read: a line takes about 40 bytes.
const MAX_LOG_BYTES: u64 = 1 << 30;
const MAX_REASON_CHARS: usize = 200;
const SAMPLES_PER_MESSAGE: usize = 100_000;
/// Time for connecting and ending, in addition to the tool's own run time.
const GRACE: Duration = Duration::from_secs(20);
/// How often the tool's memory and its end are checked.
const POLL: Duration = Duration::from_millis(5);
/// A run this long suffices to estimate how many operations fill a window.
const CALIBRATED: Duration = Duration::from_millis(200);
const FIRST_OPERATIONS_PER_CLIENT: u64 = 25;
const MAX_CALIBRATIONS: u32 = 8;

/// Runs the hidden command with the arguments that follow it. Errors are reported on stdout, too; the exit status
/// only says whether there was one.
pub fn run_drive_process(arguments: &[OsString]) -> Result<(), Error> {
    // A load process without its coordinator serves nothing.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    if let [_, exec, program, rest @ ..] = arguments
        && exec == EXEC
    {
        let error = Command::new(program).args(rest).exec();
        return Err(Error::io("run", program)(error));
    }
    let mut stdout = io::stdout().lock();
    let result = drive(arguments, &mut stdout);
    if let Err(error) = &result {
        let (fault, message) = (error.fault(), error.to_string());
        let failed = LoadMessage::Failed { fault, message, kind: ErrorKind::Other };
        send(&mut stdout, &failed)?;
    }
    result
}

fn drive(arguments: &[OsString], messages: &mut impl Write) -> Result<(), Error> {
    let texts: Option<Vec<&str>> = arguments.iter().map(|argument| argument.to_str()).collect();
    let Some([name, workload, scale]) = texts.as_deref() else {
        return Err(Error::Trial(format!("usage: {DRIVE_COMMAND} DRIVER WORKLOAD ROWS")));
    };
    let driver = find(name)?;
    let DriverFile::Tool(file) = driver.file() else {
        return Err(Error::Trial(format!("driver {name} is a program, which needs no adapter")));
    };
    let spec = read_spec()?;
    run_adapter(name, file, &spec, &Task::parse(workload, scale)?, messages)
}

/// Runs the trial's load by the tool; sends all messages but a failure.
fn run_adapter(
    name: &str,
    file: &ToolFile,
    spec: &TrialSpec,
    task: &Task,
    messages: &mut impl Write,
) -> Result<(), Error> {
    keep_to(spec.processors.as_deref())?;
    let invocation = Invocation::of(file, spec, task)?;
    let mut place = TrialDirectory::make(spec)?;
    let password = read_password(&spec.password_file)?;
    place.values = values(spec, task, &place.path, &password)?;
    let tool = Tool { name, invocation: &invocation, password: &password };
    let (seconds, operations) = warm_up(&tool, &mut place, spec)?;

    let cpu_before_ns = children_cpu_ns()?;
    send(messages, &LoadMessage::WindowOpened)?;
    let rss_peak_bytes = tool.run(&mut place, seconds, operations)?;
    send(messages, &LoadMessage::WindowClosed)?;
    let cpu_ns = children_cpu_ns()?.saturating_sub(cpu_before_ns);
    let outcome = place.outcome(invocation.rule, operations)?;
    for samples in outcome.samples_ns.chunks(SAMPLES_PER_MESSAGE) {
        send(messages, &LoadMessage::Samples { latency_ns: samples.to_vec() })?;
    }
    let result = trial_result(&outcome, spec, cpu_ns, rss_peak_bytes);
    Ok(send(messages, &LoadMessage::Finished(Box::new(result)))?)
}

/// Runs the tool before the window; returns how long the window's run takes, and how many operations.
fn warm_up(tool: &Tool<'_>, place: &mut TrialDirectory, spec: &TrialSpec) -> Result<(u64, u64), Error> {
    let whole_seconds = |ns: u64| ns.div_ceil(1_000_000_000).max(1);
    let window_s = whole_seconds(spec.window_ns);
    if !tool.invocation.counts_operations() {
        if spec.warm_up_ns > 0 {
            tool.run(place, whole_seconds(spec.warm_up_ns), 0)?;
        }
        return Ok((window_s, 0));
    }
    let clients = u64::from(spec.clients.count());
    let mut operations = clients * FIRST_OPERATIONS_PER_CLIENT;
    let enough = CALIBRATED.max(Duration::from_nanos(spec.warm_up_ns).min(Duration::from_secs(1)));
    let mut per_s = 0.0;
    for _ in 0..MAX_CALIBRATIONS {
        tool.run(place, window_s, operations)?;
        let took_ns = place.outcome(tool.invocation.rule, operations)?.window_ns.max(1_000_000);
        per_s = operations as f64 * 1e9 / took_ns as f64;
        if u128::from(took_ns) >= enough.as_nanos() {
            break;
        }
        operations *= 4;
    }
    let in_window = (per_s * spec.window_ns as f64 * 1e-9) as u64;
    Ok((window_s, in_window.div_ceil(clients).max(1) * clients))
}

struct Tool<'a> {
    name: &'a str,
    invocation: &'a Invocation<'a>,
    password: &'a str,
}

impl Tool<'_> {
    /// Returns the tool's peak resident memory.
    fn run(&self, place: &mut TrialDirectory, seconds: u64, operations: u64) -> Result<u64, Error> {
        place.clear()?;
        place.values.insert(Placeholder::Seconds, seconds.to_string());
        place.values.insert(Placeholder::Operations, operations.to_string());
        for (name, text) in self.invocation.files(&place.values) {
            place.create(name)?.write_all(text.as_bytes()).map_err(Error::io("write", &place.path))?;
        }
        let exe = std::env::current_exe().map_err(Error::io("find", "ciphertoll's own program"))?;
        let mut command = Command::new(exe);
        command.args([DRIVE_COMMAND, self.name, EXEC, self.invocation.program]);
        command.args(self.invocation.arguments(&place.values));
        // The user's own settings must not affect a trial.
        command.env_clear().env("LC_ALL", "C").env("HOME", &place.path);
        for kept in ["PATH", "LD_LIBRARY_PATH"] {
            command.envs(std::env::var_os(kept).map(|value| (kept, value)));
        }
        command.envs(self.invocation.environment(&place.values));
        command.current_dir(&place.path).stdin(Stdio::null());
        command.stdout(place.create(PRINTED)?).stderr(place.create(COMPLAINTS)?);
        let child = command.spawn().map_err(Error::io("run", self.invocation.program))?;
        let deadline = Instant::now() + Duration::from_secs(seconds) * 2 + GRACE;
        let (status, rss_peak_bytes) = self.wait(child, deadline)?;
        if status.success() { Ok(rss_peak_bytes) } else { Err(self.failed(place, status)) }
    }

    fn wait(&self, mut child: Child, deadline: Instant) -> Result<(ExitStatus, u64), Error> {
        let mut rss_peak_bytes = 0;
        loop {
            if let Some(status) = child.try_wait().map_err(Error::io("wait for", self.invocation.program))? {
                return Ok((status, rss_peak_bytes));
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                let reason = "was still running long after it should have ended".to_owned();
                return Err(Error::Tool { tool: self.invocation.program.to_owned(), reason });
            }
            rss_peak_bytes = rss_peak_bytes.max(resident_peak_bytes(child.id()));
            thread::sleep(POLL);
        }
    }

    /// The last line of its complaints, without its password, which must not reach the record.
    fn failed(&self, place: &TrialDirectory, status: ExitStatus) -> Error {
        let words = [COMPLAINTS, PRINTED].map(|name| read_end(&place.path.join(name)).unwrap_or_default());
        let last = words.iter().find_map(|text| text.lines().rev().find(|line| !line.trim().is_empty()));
        let line = last.map_or_else(|| status.to_string(), |line| line.trim().to_owned());
        let line = if self.password.is_empty() { line } else { line.replace(self.password, "…") };
        let reason = line.chars().take(MAX_REASON_CHARS).collect();
        Error::Tool { tool: self.invocation.program.to_owned(), reason }
    }
}

const PRINTED: &str = "stdout";
const COMPLAINTS: &str = "stderr";

/// The private directory of one trial, removed when dropped. It is next to the password's file, so that a sweep finds
/// it after a crash.
struct TrialDirectory {
    path: PathBuf,
    values: Values,
}

impl TrialDirectory {
    fn make(spec: &TrialSpec) -> Result<Self, Error> {
        let parent = spec.password_file.parent().unwrap_or(Path::new("/"));
        let path = parent.join(format!("drive-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path).map_err(Error::io("make", &path))?;
        Ok(Self { path, values: Values::new() })
    }

    fn clear(&self) -> Result<(), Error> {
        let entries = fs::read_dir(&self.path).map_err(Error::io("look into", &self.path))?;
        for entry in entries.flatten().filter(|entry| entry.path().is_file()) {
            fs::remove_file(entry.path()).map_err(Error::io("remove", entry.path()))?;
        }
        Ok(())
    }

    fn create(&self, name: &str) -> Result<File, Error> {
        let path = self.path.join(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(&path).map_err(Error::io("make", &path))
    }

    fn outcome(&self, rule: &ResultRule, asked: u64) -> Result<ToolResult, Error> {
        match rule {
            ResultRule::Text(text) => text.read(&read_end(&self.path.join(PRINTED))?, asked),
            ResultRule::Log(log) => {
                let texts = self.logs(&log.files)?;
                log.read(texts.iter().map(String::as_str))
            }
        }
        .map_err(Error::Output)
    }

    fn logs(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let entries = fs::read_dir(&self.path).map_err(Error::io("look into", &self.path))?;
        let is_log = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(prefix))
        };
        let paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_log).collect();
        let bytes: u64 = paths.iter().filter_map(|path| Some(fs::metadata(path).ok()?.len())).sum();
        if bytes > MAX_LOG_BYTES {
            return Err(Error::Output("its log is larger than 1 GiB: choose a shorter window".to_owned()));
        }
        paths.iter().map(|path| fs::read_to_string(path).map_err(Error::io("read", path))).collect()
    }
}

impl Drop for TrialDirectory {
    fn drop(&mut self) {
        // If this fails, the directory is removed together with its parent.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn trial_result(outcome: &ToolResult, spec: &TrialSpec, cpu_ns: u64, rss_peak_bytes: u64) -> TrialResult {
    let clients = f64::from(spec.clients.count());
    // In a closed loop without pauses every client is always inside an operation.
    let sum_ns = outcome.sum_ns.unwrap_or(outcome.window_ns as f64 * clients);
    let summary = LatencySummary {
        count: outcome.operations,
        sum_ns: sum_ns as u64,
        p50_ns: outcome.p50_ns,
        p95_ns: outcome.p95_ns,
        p99_ns: outcome.p99_ns,
        max_ns: outcome.max_ns,
    };
    TrialResult {
        operations: outcome.operations,
        operations_by_half: outcome.by_half,
        statements: outcome.statements,
        retries: outcome.retries,
        window_ns: outcome.window_ns,
        latency: if outcome.samples_ns.is_empty() { summary } else { LatencySummary::default() },
        client_cpu_ns: cpu_ns,
        client_rss_peak_bytes: rss_peak_bytes,
        ..TrialResult::default()
    }
}

/// User and system CPU time of child processes that have ended.
fn children_cpu_ns() -> Result<u64, Error> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)
        .map_err(|error| Error::io("read the CPU time of", "the tool")(error.into()))?;
    let microseconds = [usage.user_time(), usage.system_time()]
        .iter()
        .map(|time| time.tv_sec() * 1_000_000 + time.tv_usec())
        .sum::<i64>();
    Ok(microseconds.unsigned_abs() * 1_000)
}

fn read_password(path: &Path) -> Result<String, Error> {
    let file = File::open(path).map_err(Error::io("read", path))?;
    let mut password = String::new();
    file.take(MAX_PASSWORD_BYTES).read_to_string(&mut password).map_err(Error::io("read", path))?;
    Ok(password)
}

/// The end of a text file; a character cut in the middle is replaced.
fn read_end(path: &Path) -> Result<String, Error> {
    let mut file = File::open(path).map_err(Error::io("read", path))?;
    let length = file.metadata().map_err(Error::io("read", path))?.len();
    let start = SeekFrom::Start(length.saturating_sub(MAX_PRINTED_BYTES));
    file.seek(start).map_err(Error::io("read", path))?;
    let mut bytes = Vec::new();
    file.take(MAX_PRINTED_BYTES).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
