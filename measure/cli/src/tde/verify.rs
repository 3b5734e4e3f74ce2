//! `tde verify`: checks that everything in a data directory is encrypted.

use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ciphertoll_experiment::Interrupt;
use ciphertoll_model::{Ending, ExitCode};
use ciphertoll_tde::verify::{
    FindingKind, VerifyCounts, VerifyEnd, VerifyFinding, VerifyOptions, VerifyPosition, VerifyProgress,
    VerifyResult,
};
use ciphertoll_tde::{EncryptionEngine, KeyFile};
use clap::Args;
use serde_json::{Value, json};

use super::convert::ConversionDisplay;
use super::exec::require_cipher;
use super::keys::{ClusterArguments, KeyArguments, host};
use crate::failure::Failure;
use crate::output::print_document;
use crate::program::watch_signals;
use crate::progress::tell;

/// How often the state is stored.
const STATE_INTERVAL: Duration = Duration::from_secs(1);
/// How long a throttled verification sleeps before it looks for signals.
const NAP: Duration = Duration::from_millis(50);
const STATE_VERSION: u64 = 1;
const BYTES_PER_MB: u64 = 1_000_000;

const EXAMPLES: &str = "\
Every page, WAL page and file that must be encrypted is read as it is on disk. It must be
ciphertext of its own place, or zeros. What is not is printed with its file and its offset, and
the exit code is 10. Files that PostgreSQL does not write are printed too: they are plaintext.
The server may run, and the directory may be a base backup. Nothing is written to it.

Examples:
  ciphertoll tde verify -D data --key-file kek
  ciphertoll tde verify -D data --key-file kek --max-rate 50 --state data.verify
  ciphertoll tde verify -D data --key-file kek --allow-plaintext serverlog --json";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct VerifyArguments {
    #[command(flatten)]
    cluster: ClusterArguments,
    #[command(flatten)]
    key: KeyArguments,
    /// Read at most this many megabytes per second
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..))]
    max_rate: Option<u64>,
    /// Store progress in this file, outside the data directory; if it exists, continue from there
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// A file or directory that may be plaintext, such as that of a server log (repeatable)
    #[arg(long, value_name = "PATH")]
    allow_plaintext: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn verify(arguments: &VerifyArguments) -> Result<ExitCode, Failure> {
    let (data, keys) = (arguments.cluster.data()?, arguments.cluster.keys()?);
    let data = fs::canonicalize(&data).map_err(|error| host(&data, &error))?;
    let file = KeyFile::load(&keys)?;
    let mut engine = EncryptionEngine::new(file.unwrap(&arguments.key.read()?)?)?;
    require_cipher(&keys, &file)?;
    let state = arguments.state.as_ref().map(|path| StateFile::new(path, &data, &file)).transpose()?;
    let start = state.as_ref().map(StateFile::load).transpose()?.flatten();
    if let Some((position, _)) = &start {
        tell(&format!("continuing at {}", position.path.display()));
    }
    let options = VerifyOptions { allowed: arguments.allow_plaintext.clone(), start };
    let interrupt = watch_signals()?;
    let mut watcher = Watcher::new(arguments, &interrupt, state.as_ref());
    let verified =
        ciphertoll_tde::verify::verify(&data, &mut engine, &options, &mut |progress| watcher.watch(progress));
    watcher.display.clear();
    let (end, result) = verified?;
    if let Some(failure) = watcher.failure.take() {
        return Err(failure);
    }
    if end == VerifyEnd::Interrupted {
        return Err(interrupted(&interrupt, watcher.percent, state.is_some()));
    }
    if let Some(state) = &state {
        state.remove()?;
    }
    let document = if arguments.json {
        serde_json::to_string_pretty(&document(&data, &result))?
    } else {
        text(&data, &result)
    };
    print_document(&document)?;
    Ok(if result.findings.is_empty() { ExitCode::Done } else { ExitCode::NotEncrypted })
}

fn interrupted(interrupt: &Interrupt, percent: u64, is_stored: bool) -> Failure {
    let code = match interrupt.ending() {
        Some(Ending::Terminated) => ExitCode::Terminated,
        _ => ExitCode::Interrupted,
    };
    let next = if is_stored {
        "run the same command again to continue"
    } else {
        "--state FILE would make it resumable"
    };
    Failure::new(code, format!("interrupted: {percent} % verified; {next}"))
}

/// Shows progress, keeps the rate, and stores the state.
struct Watcher<'a> {
    display: ConversionDisplay,
    interrupt: &'a Interrupt,
    state: Option<&'a StateFile>,
    stored: Instant,
    /// Bytes per second.
    rate: Option<u64>,
    started: Instant,
    read: u64,
    percent: u64,
    failure: Option<Failure>,
}

impl<'a> Watcher<'a> {
    fn new(arguments: &VerifyArguments, interrupt: &'a Interrupt, state: Option<&'a StateFile>) -> Self {
        let now = Instant::now();
        Self {
            display: ConversionDisplay::new(),
            interrupt,
            state,
            stored: now,
            rate: arguments.max_rate.map(|rate| rate.saturating_mul(BYTES_PER_MB)),
            started: now,
            read: 0,
            percent: 0,
            failure: None,
        }
    }

    fn watch(&mut self, progress: &VerifyProgress<'_>) -> ControlFlow<()> {
        self.read += progress.read;
        self.percent = 100 * progress.bytes / progress.of.max(1);
        self.display.show_bytes("verifying", progress.bytes, progress.of);
        self.wait();
        let is_ending = self.interrupt.ending().is_some();
        if let Some(state) = self.state
            && (is_ending || self.stored.elapsed() >= STATE_INTERVAL)
        {
            self.stored = Instant::now();
            if let Err(failure) = state.store(&progress.position, progress.result) {
                self.failure = Some(failure);
                return ControlFlow::Break(());
            }
        }
        if is_ending { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Sleeps until the average rate is low enough.
    fn wait(&self) {
        let Some(rate) = self.rate else { return };
        let due = Duration::from_secs_f64(self.read as f64 / rate as f64);
        while self.interrupt.ending().is_none() {
            let left = due.saturating_sub(self.started.elapsed());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(NAP));
        }
    }
}

/// The file in which an interrupted verification stores how far it has come.
struct StateFile {
    path: PathBuf,
    /// What is verified: the data directory and its keys.
    subject: Value,
}

impl StateFile {
    fn new(path: &Path, data: &Path, keys: &KeyFile) -> Result<Self, Failure> {
        let path = std::path::absolute(path).map_err(|error| host(path, &error))?;
        if path.starts_with(data) {
            return Err(Failure::usage(format!(
                "{}: the state must be outside the data directory",
                path.display()
            )));
        }
        let cluster: Vec<u64> = keys.cluster().iter().map(|&byte| u64::from(byte)).collect();
        let subject = json!({ "version": STATE_VERSION, "data": data.to_string_lossy(), "cluster": cluster });
        Ok(Self { path, subject })
    }

    fn load(&self) -> Result<Option<(VerifyPosition, VerifyResult)>, Failure> {
        let text = match fs::read_to_string(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| host(&self.path, &error))?,
        };
        let damaged = |why: &str| {
            Failure::usage(format!("{}: {why}; remove it to start from the beginning", self.path.display()))
        };
        let state: Value = serde_json::from_str(&text).map_err(|_| damaged("not a state of tde verify"))?;
        if state["subject"] != self.subject {
            return Err(damaged("the state of another verification"));
        }
        parse(&state).map(Some).ok_or_else(|| damaged("not a state of tde verify"))
    }

    /// Stores the state atomically. Positions that JSON cannot express are left out: a later one will do.
    fn store(&self, position: &VerifyPosition, result: &VerifyResult) -> Result<(), Failure> {
        let Some(path) = position.path.to_str() else { return Ok(()) };
        let state = json!({
            "subject": self.subject,
            "path": path,
            "offset": position.offset,
            "counts": counts(&result.counts),
            "findings": findings(&result.findings),
        });
        let mut draft = self.path.as_os_str().to_owned();
        draft.push(".tmp");
        let draft = PathBuf::from(draft);
        let text = serde_json::to_string(&state)?;
        let mut options = fs::OpenOptions::new();
        let written = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&draft)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&draft, &self.path));
        written.map_err(|error| host(&self.path, &error))
    }

    fn remove(&self) -> Result<(), Failure> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(host(&self.path, &error)),
            _ => Ok(()),
        }
    }
}

fn counts(counts: &VerifyCounts) -> Value {
    let VerifyCounts { encrypted_files, plain_files, temporary_files, units, zeros, to_recover, bytes, gone } =
        counts;
    json!({
        "encrypted_files": encrypted_files,
        "plain_files": plain_files,
        "temporary_files": temporary_files,
        "units": units,
        "zeros": zeros,
        "to_recover": to_recover,
        "bytes": bytes,
        "gone": gone,
    })
}

fn findings(findings: &[VerifyFinding]) -> Value {
    let document = |finding: &VerifyFinding| {
        json!({
            "path": finding.path.to_string_lossy(),
            "offset": finding.offset,
            "bytes": finding.bytes,
            "kind": finding.kind.label(),
        })
    };
    findings.iter().map(document).collect()
}

fn parse(state: &Value) -> Option<(VerifyPosition, VerifyResult)> {
    let position = VerifyPosition { path: state["path"].as_str()?.into(), offset: state["offset"].as_u64()? };
    let count = |name: &str| state["counts"][name].as_u64();
    let counts = VerifyCounts {
        encrypted_files: count("encrypted_files")?,
        plain_files: count("plain_files")?,
        temporary_files: count("temporary_files")?,
        units: count("units")?,
        zeros: count("zeros")?,
        to_recover: count("to_recover")?,
        bytes: count("bytes")?,
        gone: count("gone")?,
    };
    let finding = |finding: &Value| {
        let kind = finding["kind"].as_str()?;
        Some(VerifyFinding {
            path: finding["path"].as_str()?.into(),
            offset: finding["offset"].as_u64()?,
            bytes: finding["bytes"].as_u64()?,
            kind: FindingKind::ALL.into_iter().find(|known| known.label() == kind)?,
        })
    };
    let findings = state["findings"].as_array()?.iter().map(finding).collect::<Option<_>>()?;
    Some((position, VerifyResult { counts, findings }))
}

fn document(data: &Path, result: &VerifyResult) -> Value {
    json!({
        "data": data.to_string_lossy(),
        "encrypted": result.findings.is_empty(),
        "counts": counts(&result.counts),
        "findings": findings(&result.findings),
    })
}

fn text(data: &Path, result: &VerifyResult) -> String {
    let VerifyCounts { encrypted_files, plain_files, temporary_files, units, zeros, to_recover, bytes, gone } =
        result.counts;
    let mut lines = Vec::new();
    let data = data.display();
    lines.push(match result.findings.len() {
        0 => format!("{data}: everything is encrypted"),
        1 => format!("{data}: not everything is encrypted: 1 finding"),
        count => format!("{data}: not everything is encrypted: {count} findings"),
    });
    for VerifyFinding { path, offset, bytes, kind } in &result.findings {
        lines.push(format!("{}, offset {offset}, {bytes} bytes: {}", path.display(), kind.meaning()));
    }
    lines.push(format!(
        "verified: {encrypted_files} files, {bytes} bytes: {units} units are ciphertext of their place, {zeros} are zeros"
    ));
    if to_recover > 0 {
        lines.push(format!("{to_recover} pages have wrong checksums, and recovery will replace them"));
    }
    if temporary_files > 0 {
        lines.push(format!(
            "{temporary_files} temporary files look like ciphertext; only the server has their key"
        ));
    }
    if gone > 0 {
        lines.push(format!("{gone} files were removed, renamed or truncated meanwhile"));
    }
    lines.push(format!("not encrypted: {plain_files} files, which PostgreSQL stores in plaintext"));
    lines.join("\n")
}
