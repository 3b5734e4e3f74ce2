//! Probes as processes: started together, waited for, killed when they take too long.

use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ciphertoll_record::ProcessIdentity;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::{Finding, PROBE_COMMAND, Probe};
use crate::files::PRIVATE_DIRECTORY;

/// Nothing that a probe does takes a second on an idle machine. On a busy one Java, and a compiler for each driver, all
/// together have taken more than five.
const LIMIT: Duration = Duration::from_secs(40);
/// Findings are a few lines.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// Runs every probe, each in a process of its own made of `helper`, our own binary. What fails is a finding.
/// To be called on the main thread, with whose end probes end.
pub fn examine(helper: &Path, probes: &[Probe]) -> Vec<Finding> {
    let workshop = match Workshop::make() {
        Ok(workshop) => workshop,
        Err(error) => {
            let seen = format!("cannot make a temporary directory: {error}");
            let failed =
                |probe: &Probe| failed(probe, &seen, "set TMPDIR to a directory that you may write to");
            return probes.iter().map(failed).collect();
        }
    };
    // Together: the machine has several processors, and most probes wait for a program's version.
    let running: Vec<_> =
        probes.iter().map(|probe| (probe, Running::start(helper, probe, &workshop))).collect();
    let findings = running.into_iter().flat_map(|(probe, running)| match running.and_then(Running::answer) {
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

/// Where probes that write do so; gone, with all that they left, when dropped.
struct Workshop(PathBuf);

impl Workshop {
    /// In the first place that takes it: a wrong TMPDIR keeps nobody from measuring.
    fn make() -> io::Result<Self> {
        let name = format!("ciphertoll-doctor-{:08x}", rand::random::<u32>());
        let make = |parent: PathBuf| {
            let path = parent.join(&name);
            DirBuilder::new().mode(PRIVATE_DIRECTORY).create(&path).map(|()| Self(path))
        };
        make(std::env::temp_dir()).or_else(|_| make("/tmp".into())).or_else(|_| make("/var/tmp".into()))
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        // Temporary files are cleared by the system, too.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A probe on its way; killed, with all that it started, when dropped.
struct Running {
    process: Child,
    began: Instant,
    ended: bool,
}

impl Running {
    fn start(helper: &Path, probe: &Probe, workshop: &Workshop) -> Result<Self, String> {
        let place = workshop.0.join(probe.name.replace(' ', "-"));
        DirBuilder::new().mode(PRIVATE_DIRECTORY).create(&place).map_err(|error| cannot_start(&error))?;
        let mut command = Command::new(helper);
        // A compiler that is killed leaves its temporary files, too.
        command.env("TMPDIR", &place).env("LC_ALL", "C");
        command.arg(PROBE_COMMAND).arg(&probe.name).arg(place).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let process = command.spawn().map_err(|error| cannot_start(&error))?;
        Ok(Self { process, began: Instant::now(), ended: false })
    }

    fn answer(mut self) -> Result<Vec<Finding>, String> {
        let Some(status) = self.wait()? else {
            return Err(format!("the check had not ended after {} s and was killed", LIMIT.as_secs()));
        };
        let mut answer = String::new();
        if let Some(stdout) = self.process.stdout.take() {
            let read = stdout.take(MAX_ANSWER_BYTES).read_to_string(&mut answer);
            read.map_err(|error| format!("the check's answer cannot be read: {error}"))?;
        }
        serde_json::from_str(&answer).map_err(|_| format!("the check ended without an answer ({status})"))
    }

    /// How it ended, if it did in time. Only then may its answer be read: nobody writes any more.
    fn wait(&mut self) -> Result<Option<ExitStatus>, String> {
        let cannot = |error: io::Error| format!("the check cannot be waited for: {error}");
        let identity = ProcessIdentity::of(self.process.id().cast_signed()).map_err(cannot)?;
        if !identity.wait(LIMIT.saturating_sub(self.began.elapsed())).map_err(cannot)? {
            return Ok(None);
        }
        self.end().map(Some).map_err(cannot)
    }

    /// Ends what is left of its group, and reaps it.
    fn end(&mut self) -> io::Result<ExitStatus> {
        // Until it is reaped its id, and the group's, cannot mean anybody else.
        let _ = killpg(Pid::from_raw(self.process.id().cast_signed()), Signal::SIGKILL);
        let status = self.process.wait()?;
        self.ended = true;
        Ok(status)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.end();
        }
    }
}

fn cannot_start(error: &io::Error) -> String {
    format!("the check cannot be started: {error}")
}

#[cfg(test)]
mod tests {
    use super::super::{Need, Purpose, Verdict};
    use super::*;

    fn examine_by(script: &str) -> Finding {
        let probe = Probe { name: "disk".to_owned(), purpose: Purpose::Drivers, need: Need::Always };
        let mut command = Command::new("/bin/sh");
        let process = command.args(["-c", script]).process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        match (Running { process, began: Instant::now(), ended: false }).answer() {
            Ok(mut findings) => findings.remove(0),
            Err(reason) => failed(&probe, &reason, "cure"),
        }
    }

    #[test]
    fn the_users_page_has_the_limit_that_is_in_force() {
        let page = include_str!("../../../../docs/doctor.md");
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
    fn a_probe_that_answers_is_heard() {
        let told = Finding::ok(Purpose::AtRest, "disk", "seen");
        assert_eq!(examine_by(&format!("echo '{}'", serde_json::to_string(&[&told]).unwrap())), told);
    }

    #[test]
    fn a_probe_that_dies_or_talks_nonsense_is_a_no() {
        for script in ["kill -SEGV $$", "exit 1", "echo nonsense"] {
            let finding = examine_by(script);
            assert_eq!(finding.verdict, Verdict::No { cure: "cure".to_owned() }, "{script}");
            assert_eq!(finding.need, Need::Always);
        }
    }

    #[test]
    fn a_program_that_cannot_be_started_is_a_no_for_each_probe() {
        let probes = super::super::probes();
        let findings = examine(Path::new("/nonexistent/ciphertoll"), &probes);
        assert_eq!(findings.len(), probes.len());
        assert!(findings.iter().all(Finding::is_no));
    }
}
