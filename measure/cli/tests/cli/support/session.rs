//! A run that is under way: its events as they come, its processes as its ledger has them.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ciphertoll_record::{ProcessIdentity, scratch_root};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::host::{TIME_LIMIT, until};
use super::{LOAD, ciphertoll, is, is_noise, text};

/// The name of the file, below a run's scratch directory, that says what the run did to the machine.
const LEDGER: &str = "ledger.jsonl";

/// What a process may take to end that was killed; longer only on a machine without a processor for it.
const DYING: Duration = Duration::from_millis(300);

/// A run of the program, killed when dropped.
pub(crate) struct Session {
    child: Child,
    identity: ProcessIdentity,
    stdout: JoinHandle<String>,
    lines: Receiver<String>,
    /// Lines that have come and were not gone on to yet.
    ahead: VecDeque<String>,
    stderr: Vec<String>,
    events: Vec<Value>,
    scratch: Option<PathBuf>,
    /// The ledger when it was last read: it is removed at the end of the run.
    noted: Vec<Noted>,
}

/// A run that is over.
pub(crate) struct Finished {
    /// The exit code; none where a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    /// Every line of stderr, events included.
    pub stderr: Vec<String>,
    pub events: Vec<Value>,
}

/// A process as a ledger names it.
#[derive(Clone, Debug)]
pub(crate) struct Noted {
    pub identity: ProcessIdentity,
    pub what: String,
}

/// What is done to a process of a run in mid-trial.
pub(crate) struct Attack {
    pub process: ProcessIdentity,
    pub signal: Signal,
    /// What is to void the trial.
    pub gate: &'static str,
    /// The least that a trial takes: its warm-up and its window.
    pub trial: Duration,
}

impl Session {
    /// Starts `run` with events on stderr; its record goes below `runs`.
    pub(crate) fn start(runs: &Path, arguments: &[&str]) -> Self {
        Self::begin("run", runs, arguments)
    }

    /// Starts `resume` of the newest run below `runs`, with events on stderr.
    pub(crate) fn resume(runs: &Path) -> Self {
        Self::begin("resume", runs, &[])
    }

    fn begin(command: &str, runs: &Path, arguments: &[&str]) -> Self {
        let fixed = [command, "--progress", "json", "--json", "--run-dir", text(runs)];
        Self::spawn(ciphertoll(&[&fixed, arguments].concat()))
    }

    /// Starts a command that becomes the program with these options.
    pub(crate) fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let identity = ProcessIdentity::of(child.id().cast_signed()).expect("a child not yet reaped");
        let stdout = read_all(child.stdout.take().expect("stdout is piped"));
        let lines = read_lines(child.stderr.take().expect("stderr is piped"));
        Self {
            child,
            identity,
            stdout,
            lines,
            ahead: VecDeque::new(),
            stderr: vec![],
            events: vec![],
            scratch: None,
            noted: Vec::new(),
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.identity.pid
    }

    /// Goes on to the next event that `wanted` wants; those before it are kept, too.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        while let Some(line) = self.next_line() {
            if let Some(event) = self.take(line)
                && wanted(&event)
            {
                return event;
            }
        }
        panic!("the run ended before {what}: {}", self.story());
    }

    /// Goes on until a trial of `block` has begun and its load process runs.
    #[track_caller]
    pub(crate) fn wait_for_load(&mut self, block: u32) -> ProcessIdentity {
        loop {
            self.wait_for("a trial", |event| is(event, "trial_started") && event["block"] == block);
            // A trial may be voided before it has any.
            if let Some(load) = self.load() {
                return load;
            }
        }
    }

    /// The events so far.
    pub(crate) fn events(&self) -> &[Value] {
        &self.events
    }

    /// The load process of the trial that began last. None where the trial was over without one, or the run was over
    /// before the test looked.
    pub(crate) fn load(&mut self) -> Option<ProcessIdentity> {
        let earlier = self.events.iter().filter(|event| ends_a_trial(event)).count();
        until("the load process in the ledger", || {
            // In this order: what the trial had is in the ledger by its end.
            let over = self.is_over();
            let noted = self.processes();
            let loads: Vec<&Noted> = noted.iter().filter(|noted| noted.what == LOAD).collect();
            match loads.last() {
                // No earlier trial had more than one, and each was gone before the next began.
                Some(load) if loads.len() > earlier || load.identity.is_alive() => Some(Some(load.identity)),
                _ if over || !self.scratch().join(LEDGER).exists() => Some(None),
                _ => None,
            }
        })
    }

    /// Whether noise left the run without this cell, which is here otherwise.
    pub(crate) fn lost_to_noise(&self, skipped: &Value) -> bool {
        let of_cell = |event: &&Value| is(event, "trial_voided") && event["cell"] == skipped["skipped"]["id"];
        self.events.iter().rfind(of_cell).is_some_and(is_noise)
    }

    /// Whether noise left the run without a cell of this path.
    pub(crate) fn lost_path_to_noise(&self, path: &str) -> bool {
        let of_path = |id: &Value| id.as_str().is_some_and(|id| id.contains(&format!("/{path}/")));
        let skipped = self.events.iter().filter(|event| is(event, "cell_skipped"));
        skipped.filter(|event| of_path(&event["skipped"]["id"])).any(|event| self.lost_to_noise(event))
    }

    /// Whether the trial that began last has ended, or the run.
    fn is_over(&mut self) -> bool {
        self.ahead.extend(self.lines.try_iter());
        let read = |line: &String| serde_json::from_str::<Value>(line).ok();
        self.ahead.iter().filter_map(read).any(|event| ends_a_trial(&event) || is(&event, "finished"))
    }

    /// Goes on to the next trial that is `wanted`, after calibration and not tried before.
    #[track_caller]
    pub(crate) fn next_trial(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        self.wait_for("a trial to attack", |event| {
            is(event, "trial_started") && event["block"] != 0 && event["attempt"] == 1 && wanted(event)
        })
    }

    /// Attacks what `chosen` finds in the first trial that is `wanted` and not over before that: the event that voids the
    /// trial for it, and how many trials were missed.
    #[track_caller]
    pub(crate) fn attack_one(
        &mut self,
        wanted: impl Fn(&Value) -> bool,
        chosen: impl Fn(&mut Self) -> Attack,
    ) -> (Value, usize) {
        let mut missed = 0;
        loop {
            let begun = self.next_trial(&wanted);
            match self.attack(&begun, &chosen) {
                Some(voided) => return (voided, missed),
                None => missed += 1,
            }
        }
    }

    /// Attacks what `chosen` finds while the trial that has `begun` is on its way, and goes on to the trial's end: the event
    /// that voids it for that. None where the trial was over before, or something else voided it, which on a busy machine
    /// may be noticed first: then another must be attacked.
    #[track_caller]
    pub(crate) fn attack(&mut self, begun: &Value, chosen: impl Fn(&mut Self) -> Attack) -> Option<Value> {
        self.load()?;
        let Attack { process, signal, gate, trial } = chosen(self);
        if self.is_over() || !process.is_alive() {
            return None;
        }
        let sent = kill(Pid::from_raw(process.pid), signal).is_ok();
        let at = Duration::from_millis(begun["at_unix_ms"].as_u64().expect("a time"));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
        let in_time = sent && now + DYING < at + trial;
        let end = self.wait_for("the trial's end", ends_a_trial);
        assert!(!in_time || is(&end, "trial_voided"), "{signal} in mid-trial voids nothing: {end}");
        Some(end).filter(|end| end["reason"]["gate"] == gate)
    }

    /// The server that was started last.
    #[track_caller]
    pub(crate) fn server(&mut self) -> ProcessIdentity {
        let noted = self.processes();
        let is_server =
            |noted: &&Noted| ["MariaDB", "FerretDB"].iter().any(|name| noted.what.starts_with(name));
        let server = noted.iter().rev().find(is_server);
        server.expect("a server in the ledger").identity
    }

    /// Every process that the ledger names so far, oldest first.
    pub(crate) fn processes(&mut self) -> Vec<Noted> {
        let Ok(ledger) = fs::read_to_string(self.scratch().join(LEDGER)) else { return self.noted.clone() };
        let whole = &ledger[..ledger.rfind('\n').map_or(0, |end| end + 1)];
        let effects = whole.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
        let processes = effects.filter(|effect| effect["effect"] == "process");
        let noted = processes.map(|effect| Noted {
            identity: serde_json::from_value(effect.clone()).expect("a process id and its start time"),
            what: effect["what"].as_str().unwrap_or_default().to_owned(),
        });
        self.noted = noted.collect();
        self.noted.clone()
    }

    /// Identities of every process that the ledger names so far.
    pub(crate) fn identities(&mut self) -> Vec<ProcessIdentity> {
        self.processes().into_iter().map(|noted| noted.identity).collect()
    }

    /// The run's own scratch directory, among those of everybody: the one whose ledger it has open.
    #[track_caller]
    pub(crate) fn scratch(&mut self) -> &Path {
        let pid = self.pid();
        self.scratch.get_or_insert_with(|| until("the run's scratch directory", || open_ledger(pid)))
    }

    /// Stops the program wherever it is, looks at what its ledger names, and kills it. Nothing is there to be
    /// seen where it had made no scratch directory yet, or had cleared it.
    pub(crate) fn kill_where_it_is(&mut self) -> Option<(PathBuf, Vec<ProcessIdentity>)> {
        self.signal(Signal::SIGSTOP);
        let scratch = open_ledger(self.pid());
        self.scratch.clone_from(&scratch);
        let seen = scratch.map(|scratch| (scratch, self.identities()));
        self.signal(Signal::SIGKILL);
        seen
    }

    /// Sends the program a signal; it was not reaped yet, so that its id is certainly its own.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("signal our own child");
    }

    /// Waits for the end.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Finished {
        while let Some(line) = self.next_line() {
            self.take(line);
        }
        let ended = self.identity.wait(TIME_LIMIT).expect("wait for the program");
        assert!(ended, "the program hangs after closing stderr");
        let code = self.child.wait().expect("reap the program").code();
        let stdout = std::mem::replace(&mut self.stdout, thread::spawn(String::new));
        Finished {
            code,
            stdout: stdout.join().expect("read stdout"),
            stderr: std::mem::take(&mut self.stderr),
            events: std::mem::take(&mut self.events),
        }
    }

    fn take(&mut self, line: String) -> Option<Value> {
        let event =
            line.starts_with('{').then(|| serde_json::from_str::<Value>(&line).expect("a whole event"));
        self.stderr.push(line);
        self.events.extend(event.clone());
        event
    }

    /// What it said so far, short enough to be read where a test has failed: of a trial that has ended, only that.
    fn story(&self) -> String {
        let events = self.events.iter().map(|event| match event["event"].as_str() {
            Some("trial_finished") => format!("trial_finished {} {}", event["block"], event["cell"]),
            _ => event.to_string(),
        });
        let rest = self.stderr.iter().filter(|line| !line.starts_with('{')).cloned();
        events.chain(rest).collect::<Vec<String>>().join("\n")
    }

    #[track_caller]
    fn next_line(&mut self) -> Option<String> {
        if let Some(line) = self.ahead.pop_front() {
            return Some(line);
        }
        match self.lines.recv_timeout(TIME_LIMIT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                panic!("nothing more within {TIME_LIMIT:?} after: {}", self.story())
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A failed test leaves nothing running; SIGTERM first, so that the run clears up itself.
        let _ = self.identity.end(TIME_LIMIT / 4);
        let _ = self.child.wait();
    }
}

impl Finished {
    /// What stderr says to a person: without events and the plan's two lines.
    pub(crate) fn told(&self) -> Vec<&str> {
        let plan = |line: &str| line.contains(" cell") && line.contains(" in ") && line.contains(" block");
        let private = |line: &str| line.starts_with("Starts private servers");
        let lines = self.stderr.iter().map(String::as_str);
        lines.filter(|line| !line.starts_with('{') && !plan(line) && !private(line)).collect()
    }

    /// The events of this name.
    pub(crate) fn named(&self, name: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| is(event, name)).collect()
    }

    /// The one trial that was voided by `gate`, on its first try. A hypervisor may void others by itself.
    #[track_caller]
    pub(crate) fn only_void(&self, gate: &str) -> &Value {
        let voided = self.named("trial_voided").into_iter().filter(|event| event["reason"]["gate"] == gate);
        let voided: Vec<&Value> = voided.collect();
        let [voided] = voided[..] else { panic!("one trial voided by {gate}: {:?}", self.told()) };
        assert_eq!(voided["attempt"], 1, "{voided}");
        voided
    }
}

fn ends_a_trial(event: &Value) -> bool {
    is(event, "trial_finished") || is(event, "trial_voided")
}

fn open_ledger(pid: i32) -> Option<PathBuf> {
    let root = scratch_root();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let targets = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    let ledger = targets.into_iter().find(|target| target.starts_with(&root) && target.ends_with(LEDGER))?;
    ledger.parent().map(Path::to_owned)
}

/// On a thread: a full pipe would stop the program.
fn read_all(mut stdout: ChildStdout) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).expect("UTF-8 on stdout");
        text
    })
}

/// On a thread: a pipe has no read with a deadline.
fn read_lines(stderr: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}
