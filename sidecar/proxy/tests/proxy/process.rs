//! A proxy process and its log.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::say;

/// Far longer than anything here takes.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// Killed when dropped.
pub(crate) struct Process {
    child: Child,
    /// Locked, so that threads can share the proxy.
    lines: Mutex<Receiver<String>>,
    pub(crate) log: Vec<String>,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the proxy starts");
        let stderr = BufReader::new(child.stderr.take().expect("it was asked for"));
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines: Mutex::new(lines), log: Vec::new() }
    }

    /// The next line of the log that contains `expected`.
    pub(crate) fn await_line(&mut self, expected: &str) -> String {
        let until = Instant::now() + LONG;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.get_mut().expect("no panic").recv_timeout(left) else {
                panic!("no line with {expected:?} came: {:#?}", self.log)
            };
            self.log.push(line.clone());
            if line.contains(expected) {
                return line;
            }
        }
    }

    /// The number of lines so far that contain `expected`.
    pub(crate) fn count(&mut self, expected: &str) -> usize {
        self.read_on();
        self.log.iter().filter(|line| line.contains(expected)).count()
    }

    /// Adds the lines written so far to the log.
    pub(crate) fn read_on(&mut self) {
        self.log.extend(self.lines.get_mut().expect("no panic").try_iter());
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is ours").is_none()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("the proxy is there");
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is ours") {
                return status;
            }
            assert!(Instant::now() < until, "the proxy does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let rest: Vec<String> =
            self.lines.get_mut().map(|lines| lines.try_iter().collect()).unwrap_or_default();
        self.log.extend(rest);
        if thread::panicking() {
            say(&format!("the proxy's log: {:#?}", self.log));
        }
    }
}

/// The port in a line of the log.
pub(crate) fn port_in(line: &str) -> Option<u16> {
    let (_, address) = line.split_once("at=tcp:127.0.0.1:")?;
    let digits: String = address.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}
