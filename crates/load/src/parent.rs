//! The coordinator's end: starts a load process, hears when its window opens and closes.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::{LatencySummary, LoadMessage, TrialPace, TrialResult, TrialSpec};

use crate::Error;
use crate::schedule::overtime;
use crate::times::Times;
use crate::worker::SET_UP_LIMIT;

/// Time beyond set-up, warm-up and window before a load process counts as stuck.
const GRACE: Duration = Duration::from_secs(5);

/// No message is longer; a million samples are not.
const MAX_LINE_BYTES: usize = 16 << 20;

/// Lines that wait to be read; more wait in the pipe.
const LINES: usize = 4;

/// As much is quoted of what a load process complained about.
const MAX_COMPLAINT_BYTES: u64 = 400;

/// A process that has ended has said all: its pipe need only be read to the end.
const COMPLAINT_PATIENCE: Duration = Duration::from_secs(5);

/// A running load process. Killed when dropped.
pub struct LoadProcess {
    child: Child,
    lines: Receiver<Line>,
    complaint: Receiver<String>,
    deadline: Instant,
    grace: Duration,
    samples: Times,
}

type Line = Result<Vec<u8>, Error>;

impl LoadProcess {
    /// Starts `program __load` and hands it the trial.
    pub fn start(program: &Path, spec: &TrialSpec) -> Result<Self, Error> {
        let mut command = Command::new(program);
        command.arg("__load");
        Self::start_command(command, spec, GRACE)
    }

    /// Starts any program that reads a [`TrialSpec`] from stdin, one line of JSON, and writes [`LoadMessage`]s to
    /// stdout, each a line. It counts as stuck when it is still running `grace` after the window should have closed
    /// and, in an open loop, what was due in it has had its time.
    pub fn start_command(mut command: Command, spec: &TrialSpec, grace: Duration) -> Result<Self, Error> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is the coordinator's to handle.
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
        let deadline =
            Instant::now() + SET_UP_LIMIT + Duration::from_nanos(spec.warm_up_ns) + window + overtime + grace;
        let mut document = serde_json::to_string(spec)?;
        document.push('\n');
        let process = Self { child, lines, complaint, deadline, grace, samples: Times::new() };
        // A process that died at once is told by its missing messages, not by the broken pipe.
        if let Some(mut stdin) = process.child.stdin.as_ref() {
            let _ = stdin.write_all(document.as_bytes());
        }
        Ok(process)
    }

    /// Its process id, for the ledger.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next message, at most `patience`. `None`: nothing yet. Samples are kept, and become the
    /// result's times where it has none of its own.
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
                message @ (LoadMessage::WindowOpened | LoadMessage::WindowClosed) => {
                    return Ok(Some(message));
                }
            }
        }
    }

    /// The result, with its times made from the samples where it has none.
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
        // A process that it left behind may have inherited stderr and keep it open.
        if let Ok(complaint) = self.complaint.recv_timeout(COMPLAINT_PATIENCE) {
            how.push_str("; it said: ");
            how.push_str(&complaint);
        }
        how
    }
}

impl Drop for LoadProcess {
    fn drop(&mut self) {
        // Usually it has ended by itself; killing an ended child that was not reaped is harmless.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A thread, because a pipe has no read with a deadline.
fn read_lines(stdout: Option<impl Read + Send + 'static>) -> Receiver<Line> {
    let (sender, lines) = mpsc::sync_channel(LINES);
    if let Some(stdout) = stdout {
        thread::spawn(move || send_lines(BufReader::new(stdout), &sender));
    }
    lines
}

fn send_lines(mut stdout: impl BufRead, lines: &SyncSender<Line>) {
    loop {
        let mut line = Vec::new();
        let line = match stdout.by_ref().take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if line.len() > MAX_LINE_BYTES => Err(Error::LineTooLong { limit_bytes: MAX_LINE_BYTES }),
            Ok(_) => Ok(line),
        };
        let is_last = line.is_err();
        if lines.send(line).is_err() || is_last {
            return;
        }
    }
}

/// The last line that says anything, once the pipe has ended; nothing where there is none.
fn read_complaint(stderr: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, complaint) = mpsc::channel();
    if let Some(stderr) = stderr {
        thread::spawn(move || {
            let last = last_line(BufReader::new(stderr));
            if !last.is_empty() {
                // Nobody listens where the trial went well.
                let _ = sender.send(last);
            }
        });
    }
    complaint
}

/// The last line that says anything, made printable. What is longer than a message is taken in pieces.
fn last_line(mut stderr: impl BufRead) -> String {
    let mut last = String::new();
    loop {
        let mut line = Vec::new();
        match stderr.by_ref().take(MAX_COMPLAINT_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return last,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        let printable: String = text.trim().chars().filter(|character| !character.is_control()).collect();
        if !printable.is_empty() {
            last = printable;
        }
    }
}
