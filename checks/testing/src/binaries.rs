//! The test binaries of the workspace and the processes that run their tests.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

const LISTED: &str = ": test";
/// What `cargo run` tells this program about itself. Build scripts that read these variables, such as ring's, would be
/// run again, and all that depends on them would be built again.
const ABOUT_THIS_PROGRAM: [&str; 4] =
    ["CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "CARGO_CRATE_NAME", "CARGO_BIN_NAME"];
const ABOUT_THIS_PACKAGE: &str = "CARGO_PKG_";

/// A test binary that cargo has built.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TestBinary {
    crate_name: String,
    /// The name of the target: `cli` for `tests/cli`, or that of the crate for its unit tests.
    target: String,
    kind: TestKind,
    executable: PathBuf,
    /// The crate's directory, in which cargo runs its tests.
    directory: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TestKind {
    Unit,
    Integration,
}

/// A process that runs tests of a binary.
#[derive(Debug)]
pub(crate) struct TestProcess {
    pub(crate) crate_name: String,
    pub(crate) name: String,
    pub(crate) executable: PathBuf,
    pub(crate) directory: PathBuf,
    pub(crate) tests: Tests,
}

/// Tests of a binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tests {
    All,
    /// Those whose kind this is: they share servers (libtest-mimic, `[KIND] NAME`).
    OfKind(String),
    One(String),
}

impl TestBinary {
    /// `target` of `target/debug/deps/EXECUTABLE`.
    pub(crate) fn target_directory(&self) -> Option<&Path> {
        self.executable.ancestors().nth(3)
    }

    /// A message of cargo about a built test binary; `None` for all other messages.
    fn from_message(message: &Value) -> Option<Self> {
        let is_test = message["profile"]["test"].as_bool()?;
        let executable = message["executable"].as_str().filter(|_| is_test)?;
        let directory = Path::new(message["manifest_path"].as_str()?).parent()?;
        let is_integration = message["target"]["kind"].as_array()?.iter().any(|kind| kind == "test");
        Some(Self {
            crate_name: directory.file_name()?.to_str()?.to_owned(),
            target: message["target"]["name"].as_str()?.to_owned(),
            kind: if is_integration { TestKind::Integration } else { TestKind::Unit },
            executable: executable.into(),
            directory: directory.to_owned(),
        })
    }

    fn process(&self, tests: Tests) -> TestProcess {
        let part = match (&tests, self.kind) {
            (Tests::One(test), _) => format!("{}::{test}", self.target),
            (Tests::OfKind(kind), _) => format!("{}::[{kind}]", self.target),
            (Tests::All, TestKind::Integration) => self.target.clone(),
            (Tests::All, TestKind::Unit) => format!("{} (unit tests)", self.target),
        };
        TestProcess {
            crate_name: self.crate_name.clone(),
            name: format!("{}: {part}", self.crate_name),
            executable: self.executable.clone(),
            directory: self.directory.clone(),
            tests,
        }
    }
}

impl TestProcess {
    /// Whether this is a binary that runs its cases itself.
    pub(crate) fn has_many_cases(&self) -> bool {
        !matches!(self.tests, Tests::One(_))
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.directory).env("CARGO_MANIFEST_DIR", &self.directory).env("CARGO", cargo());
        command.stdin(Stdio::null());
        match &self.tests {
            Tests::All => {}
            // The runner has enough processes at a time.
            Tests::OfKind(kind) => drop(command.args(["--test-threads", "1", &format!("[{kind}]")])),
            // The output of a test goes to its log, passed or not: it may say what was skipped.
            Tests::One(test) => drop(command.args(["--exact", "--nocapture", test])),
        }
        command
    }
}

/// Builds all test binaries of the workspace.
pub(crate) fn build() -> Result<Vec<TestBinary>> {
    let mut command = Command::new(cargo());
    command.args(["test", "--workspace", "--locked", "--no-run", "--message-format=json-render-diagnostics"]);
    let inherited = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in inherited
        .filter(|name| ABOUT_THIS_PROGRAM.contains(&name.as_str()) || name.starts_with(ABOUT_THIS_PACKAGE))
    {
        command.env_remove(name);
    }
    let built = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("run cargo")?;
    ensure!(built.status.success(), "the tests do not compile");
    let messages = String::from_utf8(built.stdout).context("cargo's messages")?;
    let messages = messages.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>();
    Ok(messages.context("cargo's messages")?.iter().filter_map(TestBinary::from_message).collect())
}

/// The processes for the tests whose names are chosen: one for each integration test, each kind of them, or the binary.
pub(crate) fn processes_of(
    binary: &TestBinary,
    is_chosen: impl Fn(&str) -> bool,
) -> Result<Vec<TestProcess>> {
    let listed = match binary.kind {
        TestKind::Unit => Vec::new(),
        TestKind::Integration => list(binary)?,
    };
    let mut processes: Vec<TestProcess> = Vec::new();
    let mut add = |tests: Tests| {
        let process = binary.process(tests);
        let is_new = !processes.iter().any(|known| known.name == process.name);
        let is_chosen = is_chosen(&process.name);
        if is_new && is_chosen {
            processes.push(process);
        }
        is_chosen
    };
    if listed.is_empty() {
        add(Tests::All);
    }
    for test in listed {
        let is_with_its_kind = kind_of(&test).is_some_and(|kind| add(Tests::OfKind(kind)));
        if !is_with_its_kind {
            add(Tests::One(test));
        }
    }
    Ok(processes)
}

/// The names that are listed; none for a harness that does not list.
fn list(binary: &TestBinary) -> Result<Vec<String>> {
    let mut command = binary.process(Tests::All).command();
    let output = command.args(["--list", "--format", "terse"]).output();
    let output = output.with_context(|| format!("list the tests of {}", binary.executable.display()))?;
    ensure!(output.status.success(), "{} does not list its tests", binary.executable.display());
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(listed).collect())
}

/// The kind in `[KIND] NAME`.
fn kind_of(test: &str) -> Option<String> {
    test.strip_prefix('[')?.split_once("] ").map(|(kind, _)| kind.to_owned())
}

fn listed(line: &str) -> Option<String> {
    line.strip_suffix(LISTED).map(ToOwned::to_owned)
}

/// The cargo that runs this program, so that tests use the same toolchain.
fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn artifact(kind: &str, is_test: bool) -> Value {
        json!({
            "reason": "compiler-artifact", "manifest_path": "/src/measure/cli/Cargo.toml",
            "target": { "kind": [kind], "name": "cli" }, "profile": { "test": is_test },
            "executable": "/src/target/debug/deps/cli-1a2b",
        })
    }

    #[test]
    fn test_binaries_are_found_among_cargos_messages() {
        let binary = TestBinary::from_message(&artifact("test", true)).unwrap();
        assert_eq!((binary.kind, binary.crate_name.as_str()), (TestKind::Integration, "cli"));
        assert_eq!(binary.target_directory(), Some(Path::new("/src/target")));
        assert_eq!(binary.process(Tests::One("a::b".into())).name, "cli: cli::a::b");
        assert_eq!(binary.process(Tests::All).name, "cli: cli");
        assert_eq!(binary.process(Tests::OfKind("postgres leaks".into())).name, "cli: cli::[postgres leaks]");
        let unit = TestBinary::from_message(&artifact("bin", true)).unwrap();
        assert_eq!(unit.process(Tests::All).name, "cli: cli (unit tests)");
        assert_eq!(TestBinary::from_message(&artifact("bin", false)), None);
        assert_eq!(TestBinary::from_message(&json!({ "reason": "build-finished", "success": true })), None);
    }

    #[test]
    fn libtests_list_is_read() {
        let list = "a::b: test\n\nc: benchmark\nd: test\n";
        assert_eq!(list.lines().filter_map(listed).collect::<Vec<_>>(), ["a::b", "d"]);
        assert_eq!(kind_of("[postgres leaks] no state remains").as_deref(), Some("postgres leaks"));
        assert_eq!(kind_of("a::b"), None);
    }
}
