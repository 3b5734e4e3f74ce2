//! Shell scripts that stand in for the commands that print passwords.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The beginning of scripts that print another password each time: `$n` is the number of the run.
pub(crate) const COUNTED: &str = r#"set -e
cd "$(dirname "$0")"
n=$(( $(cat n 2>/dev/null || echo 0) + 1 ))
echo $n > n
secret=token-$n-$(od -An -N8 -tx8 /dev/urandom | tr -d ' ')
echo $secret >> secrets
"#;

/// Minutes for which passwords of 5 s are used under load; without it, a few shorter ones are.
const SOAK: &str = "CIPHERTOLL_TOKEN_MINUTES";

/// How long the load of a test with changing passwords lasts.
pub(crate) struct Duty {
    pub(crate) lifetime: &'static str,
    until: Option<Instant>,
    started: usize,
}

impl Duty {
    const RUNS: usize = 6;

    pub(crate) fn begin() -> Self {
        let minutes = std::env::var(SOAK).ok().map(|text| text.parse::<u64>().expect(SOAK));
        let until = minutes.map(|minutes| Instant::now() + Duration::from_mins(minutes));
        let lifetime =
            if until.is_some() { "password-lifetime = \"5s\"" } else { "password-lifetime = \"2s\"" };
        Self { lifetime, until, started: 0 }
    }

    /// Puts on load by `load` until several passwords have been used, or the time is over. `load` ends when its argument
    /// returns true.
    pub(crate) fn fulfil(&mut self, stand_in: &StandIn, mut load: impl FnMut(&(dyn Fn() -> bool + Sync))) {
        loop {
            self.started = stand_in.runs();
            load(&|| stand_in.runs() >= self.started + Self::RUNS);
            if self.until.is_none_or(|until| Instant::now() >= until) {
                return;
            }
        }
    }
}

pub(crate) struct StandIn {
    pub(crate) directory: TempDir,
}

impl StandIn {
    pub(crate) fn new(script: &str) -> Self {
        let stand_in = Self { directory: tempfile::tempdir().expect("a directory") };
        stand_in.write(script);
        stand_in
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Replaces the script at once.
    pub(crate) fn write(&self, script: &str) {
        fs::write(self.path("next"), script).expect("ours to write");
        fs::rename(self.path("next"), self.path("script")).expect("ours to replace");
    }

    /// A table of the configuration with a user whose password the script prints.
    pub(crate) fn user(&self, name: &str, more: &str) -> String {
        let script = self.path("script");
        let words = format!("[\"sh\", \"{}\", \"%u\", \"%h\", \"%p\", \"%d\"]", script.display());
        format!("[[user]]\nname = \"{name}\"\npassword-command = {words}\n{more}\n")
    }

    /// Whether it runs now.
    pub(crate) fn is_running(&self) -> bool {
        let script = self.path("script").display().to_string();
        let processes = fs::read_dir("/proc").expect("it is there").flatten();
        let lines = processes.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
        lines.into_iter().any(|line| line.contains(&script))
    }

    /// The number of runs.
    pub(crate) fn runs(&self) -> usize {
        fs::read_to_string(self.path("n")).map_or(0, |text| text.trim().parse().unwrap_or(0))
    }

    /// No password that the script has printed is in these lines.
    pub(crate) fn assert_no_secret_in(&self, lines: &[String]) {
        let secrets = fs::read_to_string(self.path("secrets")).unwrap_or_default();
        assert!(!secrets.is_empty(), "the script has printed nothing");
        for secret in secrets.lines() {
            let shown = lines.iter().find(|line| line.contains(secret));
            assert!(shown.is_none(), "{shown:?}");
        }
    }
}
