//! Processes of probes: started together, and killed if they take too long.

use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ciphertoll_host::files::PRIVATE_DIRECTORY;
use ciphertoll_record::{ProcessIdentity, SCRATCH_DIRECTORY_VARIABLE};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::finding::{Finding, PROBE_COMMAND, Probe};

/// On an idle machine, every probe takes less than a second. On a busy one, Java and a compiler per driver together have
/// taken more than five.
const LIMIT: Duration = Duration::from_secs(40);
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// Runs each probe in a process of `helper`, our own binary, with `scratch_directory` as the directory of scratch files if it
/// is given. Failures are findings. Call on the main thread, because probes end with the thread that started them.
pub fn examine(helper: &Path, probes: &[Probe], scratch_directory: Option<&Path>) -> Vec<Finding> {
    let directory = match ProbeDirectory::create() {
        Ok(directory) => directory,
        Err(error) => {
            let seen = format!("cannot create a temporary directory: {error}");
            let failed =
                |probe: &Probe| failed(probe, &seen, "set TMPDIR to a directory that you may write to");
            return probes.iter().map(failed).collect();
        }
    };
    let start = |probe: &Probe| {
        let mut command = Command::new(helper);
        if let Some(scratch) = scratch_directory {
            command.env(SCRATCH_DIRECTORY_VARIABLE, scratch);
        }
        RunningProbe::start(command, probe, &directory)
    };
    // In parallel, because most probes wait for a program's version.
    let running: Vec<_> = probes.iter().map(|probe| (probe, start(probe))).collect();
    let findings =
        running.into_iter().flat_map(|(probe, running)| match running.and_then(RunningProbe::finish) {
            Ok(findings) => findings,
            Err(reason) => {
                vec![failed(probe, &reason, &format!("see `ciphertoll {PROBE_COMMAND} '{}'`", probe.name))]
            }
        });
    let mut findings: Vec<Finding> = findings.collect();
    findings.sort_by_key(|finding| finding.purpose);
    findings
}

fn failed(probe: &Probe, reason: &str, cure: &str) -> Finding {
    Finding::no(probe.purpose, &probe.name, reason, cure).needed(probe.need)
}

/// Parent of the probes' temporary directories; removed on drop.
struct ProbeDirectory(PathBuf);

impl ProbeDirectory {
    /// Tries standard directories after TMPDIR, because a wrong TMPDIR does not prevent measurements.
    fn create() -> io::Result<Self> {
        let name = format!("ciphertoll-doctor-{:08x}", rand::random::<u32>());
        let make = |parent: PathBuf| {
            let path = parent.join(&name);
            DirBuilder::new().mode(PRIVATE_DIRECTORY).create(&path).map(|()| Self(path))
        };
        make(std::env::temp_dir()).or_else(|_| make("/tmp".into())).or_else(|_| make("/var/tmp".into()))
    }
}

impl Drop for ProbeDirectory {
    fn drop(&mut self) {
        // If this fails, the system removes temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// On drop, the probe and its children are killed.
struct RunningProbe {
    process: Child,
    began: Instant,
    ended: bool,
}

impl RunningProbe {
    fn start(mut command: Command, probe: &Probe, parent: &ProbeDirectory) -> Result<Self, String> {
        let directory = parent.0.join(probe.name.replace(' ', "-"));
        DirBuilder::new().mode(PRIVATE_DIRECTORY).create(&directory).map_err(|error| cannot_start(&error))?;
        // A killed compiler leaves temporary files.
        command.env("TMPDIR", &directory).env("LC_ALL", "C");
        command.arg(PROBE_COMMAND).arg(&probe.name).arg(directory).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let process = command.spawn().map_err(|error| cannot_start(&error))?;
        Ok(Self { process, began: Instant::now(), ended: false })
    }

    fn finish(mut self) -> Result<Vec<Finding>, String> {
        let Some(status) = self.wait()? else {
            return Err(format!("the check did not end within {} s and was killed", LIMIT.as_secs()));
        };
        let mut answer = String::new();
        if let Some(stdout) = self.process.stdout.take() {
            let read = stdout.take(MAX_ANSWER_BYTES).read_to_string(&mut answer);
            read.map_err(|error| format!("cannot read the output of the check: {error}"))?;
        }
        serde_json::from_str(&answer).map_err(|_| format!("the check ended without output ({status})"))
    }

    /// The exit status, if it ended in time. Only then its output is complete.
    fn wait(&mut self) -> Result<Option<ExitStatus>, String> {
        let cannot = |error: io::Error| format!("cannot wait for the check: {error}");
        let identity = ProcessIdentity::of(self.process.id().cast_signed()).map_err(cannot)?;
        if !identity.wait(LIMIT.saturating_sub(self.began.elapsed())).map_err(cannot)? {
            return Ok(None);
        }
        self.end().map(Some).map_err(cannot)
    }

    /// Kills the remaining processes of its group, and reaps it.
    fn end(&mut self) -> io::Result<ExitStatus> {
        // Until the process is reaped, its id and its group's are not reused.
        let _ = killpg(Pid::from_raw(self.process.id().cast_signed()), Signal::SIGKILL);
        let status = self.process.wait()?;
        self.ended = true;
        Ok(status)
    }
}

impl Drop for RunningProbe {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.end();
        }
    }
}

fn cannot_start(error: &io::Error) -> String {
    format!("cannot start the check: {error}")
}

#[cfg(test)]
mod tests {
    use super::super::finding::{CheckOutcome, CheckPurpose, Need};
    use super::*;

    fn examine_by(script: &str) -> Finding {
        let probe = Probe { name: "disk".to_owned(), purpose: CheckPurpose::Drivers, need: Need::Always };
        let mut command = Command::new("/bin/sh");
        let process = command.args(["-c", script]).process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        match (RunningProbe { process, began: Instant::now(), ended: false }).finish() {
            Ok(mut findings) => findings.remove(0),
            Err(reason) => failed(&probe, &reason, "cure"),
        }
    }

    #[test]
    fn the_documentation_has_the_time_limit() {
        let page = include_str!("../../../../docs/measure/doctor.md");
        let words: Vec<&str> = page.split_whitespace().collect();
        let limit = LIMIT.as_secs().to_string();
        let said: Vec<&str> = words
            .windows(2)
            .filter(|pair| pair[1].starts_with('s') && pair[1].trim_end_matches([',', ':']) == "s")
            .map(|pair| pair[0])
            .collect();
        assert_eq!(said, [limit.as_str(); 2]);
    }

    #[test]
    fn findings_of_a_probe_are_read() {
        let finding = Finding::ok(CheckPurpose::AtRest, "disk", "seen");
        assert_eq!(examine_by(&format!("echo '{}'", serde_json::to_string(&[&finding]).unwrap())), finding);
    }

    #[test]
    fn a_probe_that_fails_is_a_no() {
        for script in ["kill -SEGV $$", "exit 1", "echo nonsense"] {
            let finding = examine_by(script);
            assert_eq!(finding.verdict, CheckOutcome::No { cure: "cure".to_owned() }, "{script}");
            assert_eq!(finding.need, Need::Always);
        }
    }

    #[test]
    fn a_helper_that_cannot_be_started_is_a_no_for_each_probe() {
        let probes = super::super::checks::probes();
        let findings = examine(Path::new("/nonexistent/ciphertoll"), &probes, None);
        assert_eq!(findings.len(), probes.len());
        assert!(findings.iter().all(Finding::is_no));
    }
}
