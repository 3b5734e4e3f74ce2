//! Samples of running processes, taken by Linux `perf`.
//!
//! `perf` is attached before it counts, and is told by its control pipe when to begin and when to stop: attaching takes
//! longer than a short window. Processes and threads that start later are sampled too. Libraries of distributions have no
//! frame pointers, so that `perf` copies a part of the stack and unwinds it afterwards. A stack can contain a password: the
//! copies are in memory only, and go with this process.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ciphertoll_host::exec::Provisions;
use ciphertoll_host::programs::{find, how_to_install, search};
use ciphertoll_host::spawn::{Child, Launch};
use ciphertoll_host::user::RunAs;
use ciphertoll_record::Context;
use nix::fcntl::OFlag;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::error::Error;
use crate::workspace::Workspace;

const PERF: &str = "perf";
const PACKAGE: &str = "linux-perf";
/// Samples per second of CPU time.
pub const SAMPLES_PER_S: u32 = 499;
/// The part of the stack that is copied with each sample.
const STACK_BYTES: u32 = 8_192;
/// The deepest frame that is printed.
const DEEPEST: &str = "96";
/// `perf` reads the symbols of the kernel when it starts.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(2);
const STOP_GRACE: Duration = Duration::from_secs(10);
/// Unwinding takes about a millisecond for each sample.
const PRINT_LIMIT: Duration = Duration::from_mins(2);
/// A few thousand samples are some megabytes.
const MOST_TEXT_BYTES: u64 = 256 << 20;
const PRIVATE: u32 = 0o700;

/// Why this machine takes no samples.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {cure}")]
pub struct PerfUnusable {
    pub(crate) reason: String,
    pub(crate) cure: String,
}

/// Checks that this machine permits samples of user and kernel.
pub fn check_perf() -> Result<(), PerfUnusable> {
    let Some(program) = search(PERF) else {
        return Err(PerfUnusable { reason: "perf not found".to_owned(), cure: how_to_install(PACKAGE) });
    };
    let mut command = Command::new(program);
    command.args(["record", "-q", "-o", "/dev/null", "-e", "cpu-clock:k", "-F", "99", "--", "true"]);
    command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(PerfUnusable {
            reason: "perf may not sample the kernel".to_owned(),
            cure: "run as root, or sysctl kernel.perf_event_paranoid=1".to_owned(),
        }),
        Err(error) => {
            let cure = how_to_install(&format!("--reinstall {PACKAGE}"));
            Err(PerfUnusable { reason: format!("perf does not start: {error}"), cure })
        }
    }
}

/// A `perf` that is attached to processes. Its files are removed when it is dropped.
pub struct Profiler {
    child: Child,
    control: File,
    answers: File,
    files: ProfileFiles,
    workspace: Workspace,
}

/// Its files, by their role in a run.
struct ProfileFiles {
    directory: PathBuf,
    role: &'static str,
    /// What `perf record` writes, in memory.
    stacks: File,
}

impl Profiler {
    /// Attaches to `processes`, and returns when it is ready. An error if one of them has started a thread meanwhile:
    /// `perf` may have missed it. Call on the coordinator's main thread.
    pub(crate) fn attach(
        workspace: &Workspace,
        role: &'static str,
        processes: &[i32],
    ) -> Result<Self, Error> {
        let files = ProfileFiles::create(workspace, role)?;
        let [control, answers] = [files.pipe("control")?, files.pipe("answers")?];
        let threads = threads_of_all(processes);
        let ids: Vec<String> = processes.iter().map(i32::to_string).collect();
        let mut arguments: Vec<String> =
            ["record", "--no-buildid", "--no-buildid-cache", "--delay=-1", "-e", "cpu-clock"]
                .map(str::to_owned)
                .into();
        arguments.extend([
            format!("--freq={SAMPLES_PER_S}"),
            format!("--call-graph=dwarf,{STACK_BYTES}"),
            format!("--control=fifo:{role}.control,{role}.answers"),
            format!("--output={}", files.stacks_path()),
            format!("--pid={}", ids.join(",")),
        ]);
        let child = files.spawn(workspace, arguments, "log")?;
        let mut attached = Self { child, control, answers, files, workspace: workspace.clone() };
        // It does nothing; the answer says that everything is attached.
        attached.tell("disable")?;
        if !threads_of_all(processes).is_subset(&threads) {
            return Err(Error::ThreadsStarted { role });
        }
        Ok(attached)
    }

    /// Begins to sample.
    pub fn begin(&mut self) -> Result<(), Error> {
        self.tell("enable")
    }

    /// Stops sampling. `perf` ends with the last of its processes, which is no error.
    pub fn pause(&mut self) -> Result<(), Error> {
        match self.tell("disable") {
            Err(_) if self.child.ended().is_some_and(|status| status.success()) => Ok(()),
            told => told,
        }
    }

    /// Ends `perf` and returns what `perf script` prints: each sample with its stack.
    pub fn finish(mut self) -> Result<String, Error> {
        self.child.stop_by(Signal::SIGINT, STOP_GRACE)?;
        let mut arguments: Vec<String> =
            ["script", "--force", "--no-inline", "-F", "pid,ip,sym,dso"].map(str::to_owned).into();
        arguments.extend([format!("--max-stack={DEEPEST}"), format!("--input={}", self.files.stacks_path())]);
        self.files.spawn(&self.workspace, arguments, "text")?.finish(PRINT_LIMIT)?;
        let path = self.files.path("text");
        let mut text = Vec::new();
        let file = File::open(&path).context("open", &path)?;
        file.take(MOST_TEXT_BYTES).read_to_end(&mut text).context("read", &path)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Sends a command and waits for its confirmation.
    fn tell(&mut self, command: &str) -> Result<(), Error> {
        let path = self.files.path("control");
        self.control.write_all(format!("{command}\n").as_bytes()).context("write to", &path)?;
        let mut answer = Vec::new();
        let deadline = Instant::now() + ANSWER_LIMIT;
        while !answer.windows(3).any(|word| word == b"ack") {
            let mut buffer = [0; 64];
            match self.answers.read(&mut buffer) {
                Ok(count) => answer.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(POLL_INTERVAL),
                Err(error) => return Err(error).context("read", &self.files.path("answers"))?,
            }
            self.child.check()?;
            if Instant::now() > deadline {
                return Err(self.child.too_slow(ANSWER_LIMIT, format!("no answer to {command}")).into());
            }
        }
        Ok(())
    }
}

impl ProfileFiles {
    const SUFFIXES: [&str; 4] = ["control", "answers", "log", "text"];

    fn create(workspace: &Workspace, role: &'static str) -> Result<Self, Error> {
        const NAME: &str = "profile";
        let directory = workspace.scratch.path().join(NAME);
        if !directory.is_dir() {
            workspace.scratch.make_directory(NAME, PRIVATE)?;
        }
        let stacks = memfd_create("ciphertoll-profile", MFdFlags::MFD_CLOEXEC).map_err(Into::into);
        let stacks = stacks.context("create", Path::new("memfd"))?;
        Ok(Self { directory, role, stacks: stacks.into() })
    }

    /// For programs of the same user.
    fn stacks_path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.stacks.as_raw_fd())
    }

    fn path(&self, suffix: &str) -> PathBuf {
        self.directory.join(format!("{}.{suffix}", self.role))
    }

    /// Opened for both directions: neither end waits for the other, and none is ever closed.
    fn pipe(&self, suffix: &str) -> Result<File, Error> {
        let path = self.path(suffix);
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).map_err(Into::into).context("create", &path)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(OFlag::O_NONBLOCK.bits());
        Ok(options.open(&path).context("open", &path)?)
    }

    fn spawn(&self, workspace: &Workspace, arguments: Vec<String>, log: &str) -> Result<Child, Error> {
        workspace.spawn(&Launch {
            what: PERF.to_owned(),
            program: find(&[PERF], PACKAGE)?,
            arguments,
            environment: [].into(),
            directory: self.directory.clone(),
            run_as: RunAs::Ourselves,
            processors: None,
            namespace: None,
            provisions: Provisions::default(),
            log: self.path(log),
        })
    }
}

impl Drop for ProfileFiles {
    fn drop(&mut self) {
        // The scratch directory is removed at the end of the run.
        let remove = |suffix: &&str| fs::remove_file(self.path(suffix)).is_ok();
        let _ = Self::SUFFIXES.iter().filter(|suffix| remove(suffix)).count();
    }
}

/// `process` and all its descendants at this moment, at most a few hundred.
pub fn family_of(process: i32) -> Vec<i32> {
    const MOST: usize = 512;
    let mut family = vec![process];
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        family.extend(children_of(parent));
        family.truncate(MOST);
        next += 1;
    }
    family
}

fn threads_of_all(processes: &[i32]) -> BTreeSet<i32> {
    processes.iter().flat_map(|process| threads_of(*process)).collect()
}

/// The threads of `process` at this moment; none of a process that has ended.
fn threads_of(process: i32) -> Vec<i32> {
    let tasks = fs::read_dir(tasks_of(process)).into_iter().flatten();
    tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Each thread has children of its own.
fn children_of(process: i32) -> Vec<i32> {
    let text = |thread: i32| fs::read_to_string(tasks_of(process).join(thread.to_string()).join("children"));
    let texts: Vec<String> = threads_of(process).into_iter().filter_map(|thread| text(thread).ok()).collect();
    texts.iter().flat_map(|text| text.split_ascii_whitespace()).filter_map(|id| id.parse().ok()).collect()
}

fn tasks_of(process: i32) -> PathBuf {
    Path::new("/proc").join(process.to_string()).join("task")
}
