//! The coordinator's end: starts a load process, hears when its window opens and closes.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::{LoadMessage, TrialSpec};

use crate::Error;
use crate::worker::SET_UP_LIMIT;

/// Time beyond set-up, warm-up and window before a load process counts as stuck.
const GRACE: Duration = Duration::from_secs(5);

/// A running load process. Killed when dropped.
pub struct LoadProcess {
    child: Child,
    lines: Receiver<String>,
    deadline: Instant,
}

impl LoadProcess {
    /// Starts `program __load` and hands it the trial.
    pub fn start(program: &Path, spec: &TrialSpec) -> Result<Self, Error> {
        let mut child = Command::new(program)
            .arg("__load")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Ctrl-C is the coordinator's to handle.
            .process_group(0)
            .spawn()
            .map_err(Error::io("cannot start the load process"))?;
        let lines = read_lines(child.stdout.take());
        let deadline = Instant::now()
            + SET_UP_LIMIT
            + Duration::from_nanos(spec.warm_up_ns)
            + Duration::from_nanos(spec.window_ns)
            + GRACE;
        let mut document = serde_json::to_string(spec)?;
        document.push('\n');
        let process = Self { child, lines, deadline };
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

    /// Waits for the next message, at most `patience`. `None`: nothing yet.
    pub fn next_message(&mut self, patience: Duration) -> Result<Option<LoadMessage>, Error> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => match serde_json::from_str(&line).map_err(Error::Message)? {
                LoadMessage::Failed { fault, message } => Err(Error::Reported { fault, message }),
                message => Ok(Some(message)),
            },
            Err(RecvTimeoutError::Timeout) if Instant::now() < self.deadline => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(Error::Overdue { seconds: GRACE.as_secs() }),
            Err(RecvTimeoutError::Disconnected) => Err(Error::NoResult(self.how_it_ended())),
        }
    }

    fn how_it_ended(&mut self) -> String {
        match self.child.wait() {
            Ok(status) => match status.signal() {
                Some(signal) => format!("killed by signal {signal}"),
                None => format!("exit code {}", status.code().unwrap_or_default()),
            },
            Err(error) => error.to_string(),
        }
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
fn read_lines(stdout: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    if let Some(stdout) = stdout {
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
    }
    lines
}
