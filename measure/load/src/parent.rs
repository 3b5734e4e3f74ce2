//! The coordinator's side: starts a load process and receives its messages.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::{
    LatencySummary, LoadMessage, StartCommand, TrialPace, TrialResult, TrialSpec, TrialStart,
};

use crate::Error;
use crate::schedule::overtime;
use crate::times::Times;
use crate::worker::SET_UP_LIMIT;

/// Time beyond set-up, warm-up and window before a load process counts as stuck.
const GRACE: Duration = Duration::from_secs(5);

/// Time that a load process which starts when told may be kept waiting.
const START_TIME_LIMIT: Duration = Duration::from_mins(2);

/// No message is longer, not even one with a million samples.
const MAX_LINE_BYTES: usize = 16 << 20;

/// Lines buffered before reading pauses.
const LINES: usize = 4;

/// How much of a load process's complaint is quoted.
const MAX_COMPLAINT_BYTES: u64 = 400;

/// Time for reading the rest of an ended process's pipe.
const COMPLAINT_TIME_LIMIT: Duration = Duration::from_secs(5);

/// A running load process; killed when dropped.
pub struct LoadProcess {
    child: Child,
    lines: Receiver<Line>,
    complaint: Receiver<String>,
    deadline: Instant,
    grace: Duration,
    samples: Times,
}

type Line = Result<Vec<u8>, Error>;

/// Tells a load process that starts when told to begin. Dropping it instead ends that process.
#[derive(Debug)]
pub struct StartSignal(ChildStdin);

impl StartSignal {
    /// If the process is gone, its missing messages say so.
    pub fn send(mut self, command: StartCommand) {
        let mut line = serde_json::to_string(&command).unwrap_or_default();
        line.push('\n');
        let _ = self.0.write_all(line.as_bytes());
    }
}

impl LoadProcess {
    /// Starts `program __load` and sends it the trial.
    pub fn start(program: &Path, spec: &TrialSpec) -> Result<Self, Error> {
        let mut command = Command::new(program);
        command.arg("__load");
        Self::start_command(command, spec, GRACE)
    }

    /// Starts any program that reads a [`TrialSpec`] from stdin, one line of JSON, and writes [`LoadMessage`]s to
    /// stdout, one per line. It counts as stuck if it still runs `grace` after the window should have closed, plus
    /// the overtime of an open loop.
    pub fn start_command(mut command: Command, spec: &TrialSpec, grace: Duration) -> Result<Self, Error> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // The coordinator handles Ctrl-C.
            .process_group(0)
            .spawn()
            .map_err(Error::io("cannot start the load process"))?;
        let lines = read_lines(child.stdout.take());
        let complaint = read_complaint(child.stderr.take());
        let window = Duration::from_nanos(spec.window_ns);
        let overtime = match spec.pace {
            TrialPace::Closed => Duration::ZERO,
            TrialPace::Open { .. } => overtime(window),
        };
        let waiting = match spec.start {
            TrialStart::AtOnce => Duration::ZERO,
            TrialStart::WhenTold => START_TIME_LIMIT,
        };
        let warm_up = Duration::from_nanos(spec.warm_up_ns);
        let deadline = Instant::now() + SET_UP_LIMIT + waiting + warm_up + window + overtime + grace;
        let mut document = serde_json::to_string(spec)?;
        document.push('\n');
        let process = Self { child, lines, complaint, deadline, grace, samples: Times::new() };
        // If the process died at once, its missing messages say so, not the broken pipe.
        if let Some(mut stdin) = process.child.stdin.as_ref() {
            let _ = stdin.write_all(document.as_bytes());
        }
        Ok(process)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The means to start it; only once, and only of a process that starts when told.
    pub fn take_start_signal(&mut self) -> Option<StartSignal> {
        self.child.stdin.take().map(StartSignal)
    }

    /// Waits at most `patience` for the next message. Samples are kept for results without times of their own.
    pub fn next_message(&mut self, patience: Duration) -> Result<Option<LoadMessage>, Error> {
        let until = Instant::now() + patience;
        loop {
            let line = match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => line?,
                Err(RecvTimeoutError::Timeout) if Instant::now() < self.deadline => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Error::Overdue { seconds: self.grace.as_secs() });
                }
                Err(RecvTimeoutError::Disconnected) => return Err(Error::NoResult(self.how_it_ended())),
            };
            match serde_json::from_slice(&line).map_err(Error::Message)? {
                LoadMessage::Failed { fault, message, kind } => {
                    return Err(Error::Reported { fault, message, kind });
                }
                LoadMessage::Samples { latency_ns } => {
                    for nanos in latency_ns {
                        self.samples.record(nanos);
                    }
                }
                LoadMessage::Finished(result) => {
                    return Ok(Some(LoadMessage::Finished(Box::new(self.with_samples(*result)))));
                }
                message @ (LoadMessage::Ready
                | LoadMessage::Begun { .. }
                | LoadMessage::WindowOpened
                | LoadMessage::WindowClosed) => return Ok(Some(message)),
            }
        }
    }

    /// The result, with times computed from the samples if it has none.
    fn with_samples(&self, mut result: TrialResult) -> TrialResult {
        if result.latency == LatencySummary::default() && result.histogram_base64.is_empty() {
            result.latency = self.samples.summary();
            result.histogram_base64 = self.samples.encode();
        }
        result
    }

    fn how_it_ended(&mut self) -> String {
        let mut how = match self.child.wait() {
            Ok(status) => match status.signal() {
                Some(signal) => format!("killed by signal {signal}"),
                None => format!("exit code {}", status.code().unwrap_or_default()),
            },
            Err(error) => error.to_string(),
        };
        // A child that it left behind may have inherited stderr and keep it open.
        if let Ok(complaint) = self.complaint.recv_timeout(COMPLAINT_TIME_LIMIT) {
            how.push_str("; it said: ");
            how.push_str(&complaint);
        }
        how
    }
}

impl Drop for LoadProcess {
    fn drop(&mut self) {
        // Usually the process has ended; killing an unreaped child is harmless.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads in a thread, because a pipe cannot be read with a deadline.
fn read_lines(stdout: Option<impl Read + Send + 'static>) -> Receiver<Line> {
    let (sender, lines) = mpsc::sync_channel(LINES);
    let Some(stdout) = stdout else { return lines };
    thread::spawn(move || {
        let mut stdout = BufReader::new(stdout);
        loop {
            let mut line = Vec::new();
            let line = match stdout.by_ref().take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) if line.len() > MAX_LINE_BYTES => {
                    Err(Error::LineTooLong { limit_bytes: MAX_LINE_BYTES })
                }
                Ok(_) => Ok(line),
            };
            let is_last = line.is_err();
            if sender.send(line).is_err() || is_last {
                return;
            }
        }
    });
    lines
}

/// The last non-empty line, sent once the pipe has ended.
fn read_complaint(stderr: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, complaint) = mpsc::channel();
    if let Some(stderr) = stderr {
        thread::spawn(move || {
            let last = last_line(BufReader::new(stderr));
            if !last.is_empty() {
                // The receiver is gone if the trial succeeded.
                let _ = sender.send(last);
            }
        });
    }
    complaint
}

/// The last line that is neither empty nor a part of a stack trace, made printable; the last line if there is none. Long
/// lines are read in pieces.
fn last_line(mut stderr: impl BufRead) -> String {
    let (mut last, mut last_of_trace) = (String::new(), String::new());
    loop {
        let mut line = Vec::new();
        match stderr.by_ref().take(MAX_COMPLAINT_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return if last.is_empty() { last_of_trace } else { last },
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        let printable: String = text.trim().chars().filter(|character| !character.is_control()).collect();
        if printable.is_empty() {
            continue;
        }
        let kept = if is_of_trace(&printable) { &mut last_of_trace } else { &mut last };
        *kept = printable;
    }
}

/// Whether the line follows an error's message in a Rust program: a frame of the stack, its place, or a hint.
fn is_of_trace(line: &str) -> bool {
    let is_frame = line.split_once(": ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    is_frame || line == "stack backtrace:" || ["at ", "note: "].iter().any(|start| line.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_complaint_is_the_message_and_not_the_stack() {
        let message = "memory allocation of 4096 bytes failed";
        let trace = "stack backtrace:\n   0: std::alloc::rust_oom\n             at /rustc/alloc.rs:424:5\nnote: Some details\n";
        for rest in ["", "\n\n", "note: run with `RUST_BACKTRACE=1`\n", trace] {
            assert_eq!(last_line(format!("warning\n{message}\n{rest}").as_bytes()), message, "{rest}");
        }
        assert_eq!(last_line("note: only this\n".as_bytes()), "note: only this");
        assert_eq!(last_line("".as_bytes()), "");
    }
}
