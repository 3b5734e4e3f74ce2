//! `tde convert`: an encrypted copy of a stopped cluster, or a plain copy of an encrypted one.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ciphertoll_experiment::Interrupt;
use ciphertoll_model::{Ending, ExitCode};
use ciphertoll_tde::convert::{
    Conversion, ConversionPhase, ConversionPlan, ConversionProgress, ConvertError, TablespaceMapping,
    VerificationCounts, has_journal,
};
use ciphertoll_tde::{CipherKind, EncryptionEngine, Kek, KeyError, KeyFile, Replace};
use clap::Args;
use indicatif::ProgressBar;
use nix::unistd::geteuid;

use super::exec::{UnlockedCluster, find_library, require_cipher};
use super::keys::{CIPHERS, ClusterArguments, KeyArguments, host};
use crate::arguments::choice;
use crate::failure::Failure;
use crate::output::print_document;
use crate::program::watch_signals;
use crate::progress::{bar, tell};

/// How often a line is printed if stderr is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of names printed of files that do not belong to PostgreSQL.
const MAX_NAMES: usize = 5;
const PROGRAM: &str = "pg_checksums";

const EXAMPLES: &str = "\
The source must be shut down cleanly (pg_ctl stop). It is not changed. If the command is
interrupted, run it again: it continues where it stopped. No server can start on the copy before
the copy is complete and verified.

Examples:
  ciphertoll tde convert -D plain --to sealed --key-file kek
  ciphertoll tde convert -D plain --to sealed --key-file kek --tablespace-mapping /srv/a=/srv/b
  ciphertoll tde convert --decrypt -D sealed --to plain --key-file kek";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct ConvertArguments {
    /// The data directory of the source
    #[arg(short = 'D', long, value_name = "DIR")]
    data: PathBuf,
    /// The data directory of the copy: a new or empty directory, or an interrupted conversion
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Make a plain copy of an encrypted cluster
    #[arg(long)]
    decrypt: bool,
    /// The key file of the encrypted cluster [default: next to its data directory]
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    #[command(flatten)]
    key: KeyArguments,
    /// The cipher: AES-256-XTS is the only one
    #[arg(long, value_parser = choice(&CIPHERS), conflicts_with = "decrypt")]
    cipher: Option<CipherKind>,
    /// The new directory of a tablespace; needed for each tablespace of the source
    #[arg(long = "tablespace-mapping", value_name = "OLD=NEW", value_parser = mapping)]
    mappings: Vec<TablespaceMapping>,
    /// The new WAL directory; needed if `pg_wal` of the source is a symbolic link
    #[arg(long, value_name = "DIR")]
    waldir: Option<PathBuf>,
    /// The directory of `pg_checksums`, which verifies the copy [default: an installed one of the same version]
    #[arg(long, value_name = "DIR")]
    bin: Option<PathBuf>,
    /// The library to preload into `pg_checksums` [default: the one in the directory of this program]
    #[arg(long, value_name = "FILE", conflicts_with = "decrypt")]
    library: Option<PathBuf>,
}

/// The keys of the encrypted cluster.
struct ClusterKeys {
    path: PathBuf,
    file: KeyFile,
    kek: Kek,
}

pub(super) fn convert(arguments: &ConvertArguments) -> Result<ExitCode, Failure> {
    check_programs(arguments)?;
    let (plan, keys) = if arguments.decrypt { decryption(arguments)? } else { encryption(arguments)? };
    let interrupt = watch_signals()?;
    let mut display = ConversionDisplay::new();
    let converted = run(&plan, &keys, &interrupt, &mut display);
    display.clear();
    let verified = converted.map_err(|error| failure(error, &interrupt, plan.target()))?;
    let checksums = check_with_postgresql(arguments, &plan, keys)?;
    print_document(&summary(arguments, &plan, verified, &checksums))
}

/// Checks --bin and --library before the conversion starts.
fn check_programs(arguments: &ConvertArguments) -> Result<(), Failure> {
    if let Some(directory) = &arguments.bin {
        let program = directory.join(PROGRAM);
        program.metadata().map_err(|error| host(&program, &error))?;
    }
    if let Some(library) = &arguments.library {
        find_library(Some(library))?;
    }
    Ok(())
}

fn decryption(arguments: &ConvertArguments) -> Result<(ConversionPlan, ClusterKeys), Failure> {
    let path = arguments.keys_of(&arguments.data)?;
    let file = KeyFile::load(&path)?;
    let keys = ClusterKeys { path, file, kek: arguments.key.read()? };
    let mut engine = keys.engine()?;
    require_cipher(&keys.path, &keys.file)?;
    let plan = arguments.plan(Some(&mut engine))?;
    Ok((plan, keys))
}

fn encryption(arguments: &ConvertArguments) -> Result<(ConversionPlan, ClusterKeys), Failure> {
    let plan = arguments.plan(None)?;
    let path = arguments.keys_of(&arguments.to)?;
    if path.starts_with(plan.target()) {
        return Err(Failure::usage(format!(
            "{} is inside the target; choose another key file with --keys",
            path.display()
        )));
    }
    let kek = arguments.key.read()?;
    let file = match KeyFile::load(&path) {
        Ok(file) => file,
        Err(KeyError::Missing(_)) if !has_journal(plan.target()) => {
            let file = KeyFile::create(arguments.cipher.unwrap_or(CipherKind::Aes256), &kek)?;
            file.store(&path, Replace::Never)?;
            file
        }
        Err(error) => return Err(error.into()),
    };
    let keys = ClusterKeys { path, file, kek };
    keys.engine()?;
    require_cipher(&keys.path, &keys.file)?;
    if geteuid().is_root() {
        // The server must be able to read it.
        let (user, group) = plan.owner();
        chown(&keys.path, Some(user), Some(group)).map_err(|error| host(&keys.path, &error))?;
    }
    Ok((plan, keys))
}

impl ConvertArguments {
    fn keys_of(&self, data: &Path) -> Result<PathBuf, Failure> {
        ClusterArguments { data: data.to_owned(), keys: self.keys.clone() }.keys()
    }

    fn plan(&self, engine: Option<&mut EncryptionEngine>) -> Result<ConversionPlan, Failure> {
        let plan = ConversionPlan::new(&self.data, &self.to, &self.mappings, self.waldir.as_deref(), engine);
        plan.map_err(|error| failure(error, &Interrupt::default(), &self.to))
    }
}

impl ClusterKeys {
    fn engine(&self) -> Result<EncryptionEngine, KeyError> {
        EncryptionEngine::new(self.file.unwrap(&self.kek)?)
    }

    /// Reads the key file from disk, as later programs will.
    fn stored_engine(&self) -> Result<EncryptionEngine, KeyError> {
        EncryptionEngine::new(KeyFile::load(&self.path)?.unwrap(&self.kek)?)
    }
}

fn run(
    plan: &ConversionPlan,
    keys: &ClusterKeys,
    interrupt: &Interrupt,
    display: &mut ConversionDisplay,
) -> Result<VerificationCounts, ConvertError> {
    let mut engine = keys.engine()?;
    let mut conversion = Conversion::begin(plan, &mut engine)?;
    if conversion.resumed() > 0 {
        tell(&format!("continuing: {} files were converted before", conversion.resumed()));
    }
    let mut watch = |progress| {
        display.show(progress);
        if interrupt.ending().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    conversion.copy(&mut engine, &mut watch)?;
    let mut fresh = keys.stored_engine()?;
    let verified = conversion.verify(&mut fresh, &mut watch)?;
    conversion.finish(&mut fresh, verified)
}

fn failure(error: ConvertError, interrupt: &Interrupt, target: &Path) -> Failure {
    let code = match error {
        ConvertError::Key(error) => return error.into(),
        ConvertError::Refused(_) => ExitCode::Usage,
        ConvertError::Differs { .. } => ExitCode::HostResource,
        ConvertError::Interrupted => {
            let code = match interrupt.ending() {
                Some(Ending::Terminated) => ExitCode::Terminated,
                _ => ExitCode::Interrupted,
            };
            let target = target.display();
            let why = "is incomplete and cannot be started; run the same command again to continue";
            return Failure::new(code, format!("interrupted: {target} {why}"));
        }
    };
    Failure::new(code, error.to_string())
}

/// Runs `pg_checksums --check` on the copy. Returns a line for the summary.
fn check_with_postgresql(
    arguments: &ConvertArguments,
    plan: &ConversionPlan,
    keys: ClusterKeys,
) -> Result<String, Failure> {
    if !plan.has_page_checksums() {
        return Ok(format!("{PROGRAM}: not run, the cluster has no data checksums"));
    }
    let Some(program) = checksums_program(arguments, plan.major()) else {
        return Ok(format!(
            "{PROGRAM}: not run, no {PROGRAM} of version {} was found (give its directory with --bin)",
            plan.major()
        ));
    };
    let mut command = Command::new(&program);
    command.args(["--check", "-D"]).arg(plan.target()).stdin(Stdio::null()).stdout(Stdio::null());
    let is_clean = if arguments.decrypt {
        command.status().map_err(|error| host(&program, &error))?.success()
    } else {
        let library = match (&arguments.library, find_library(arguments.library.as_deref())) {
            (_, Ok(library)) => library,
            (Some(_), Err(failure)) => return Err(failure),
            (None, Err(_)) => {
                return Ok(format!(
                    "{PROGRAM}: not run, the library is not in the directory of this program (give it with --library)"
                ));
            }
        };
        let cluster = UnlockedCluster::new(plan.target().to_owned(), keys.path, &keys.file, keys.kek)?;
        cluster.run(command, program.as_os_str(), library)? == 0
    };
    if is_clean {
        return Ok(format!("{PROGRAM}: all checksums are valid"));
    }
    Err(Failure::usage(format!(
        "{} failed on {}: the copy equals {}, so pages damaged here are damaged there too",
        program.display(),
        plan.target().display(),
        plan.source().display()
    )))
}

fn checksums_program(arguments: &ConvertArguments, major: u32) -> Option<PathBuf> {
    if let Some(directory) = &arguments.bin {
        return Some(directory.join(PROGRAM));
    }
    let of_version = |version: &str| version.split('.').next() == Some(&major.to_string());
    ciphertoll_lab::installed(ciphertoll_model::Engine::Postgres)
        .into_iter()
        .filter(|build| of_version(&build.version))
        .map(|build| build.server_program.with_file_name(PROGRAM))
        .find(|program| program.exists())
}

fn summary(
    arguments: &ConvertArguments,
    plan: &ConversionPlan,
    verified: VerificationCounts,
    checksums: &str,
) -> String {
    let (source, target) = (plan.source().display(), plan.target().display());
    let VerificationCounts { files, encrypted, bytes, pages, samples } = verified;
    let mut lines = Vec::new();
    if arguments.decrypt {
        lines.push(format!("{target}: a plain copy of {source}"));
        lines.push(format!("verified: {files} files, {bytes} bytes: equal to the decrypted source"));
        lines.push(format!(
            "verified: {encrypted} files were encrypted: {pages} pages differ from their plaintext"
        ));
    } else {
        lines.push(format!("{target}: an encrypted copy of {source}, which is unchanged and not encrypted"));
        lines.push(format!("verified: {files} files, {bytes} bytes: decrypted, they equal the source"));
        lines.push(format!(
            "verified: {encrypted} files are encrypted: {pages} pages differ from their plaintext; none of {samples} plaintext \
             samples was found in its file"
        ));
    }
    lines.push(checksums.to_owned());
    let others = plan.others();
    if !others.is_empty() {
        let names: Vec<_> = others.iter().take(MAX_NAMES).map(|path| path.display().to_string()).collect();
        let more = if others.len() > MAX_NAMES { ", …" } else { "" };
        lines.push(format!(
            "copied unencrypted: {} files that do not belong to PostgreSQL: {}{more}",
            others.len(),
            names.join(", ")
        ));
    }
    lines.join("\n")
}

/// Parses `OLD=NEW` as `pg_basebackup` does: `\=` stands for `=` within a name.
fn mapping(text: &str) -> Result<TablespaceMapping, String> {
    let is_separator = |at: &usize| !text[..*at].ends_with('\\');
    let mut separators = text.match_indices('=').map(|(at, _)| at).filter(is_separator);
    let (Some(at), None) = (separators.next(), separators.next()) else {
        return Err("must be OLD=NEW; write \\= for a = in a name".to_owned());
    };
    let path = |name: &str| PathBuf::from(name.replace("\\=", "="));
    let (old, new) = (path(&text[..at]), path(&text[at + 1..]));
    if !old.is_absolute() || !new.is_absolute() {
        return Err("both directories must be absolute paths".to_owned());
    }
    Ok(TablespaceMapping { old, new })
}

/// Progress on stderr: a bar on a terminal, otherwise lines.
pub(super) enum ConversionDisplay {
    Bar(ProgressBar),
    Lines(Instant),
}

impl ConversionDisplay {
    pub(super) fn new() -> Self {
        if !io::stderr().is_terminal() {
            return Self::Lines(Instant::now());
        }
        Self::Bar(bar("{msg} {bar:24} {bytes} of {total_bytes}, {eta} left"))
    }

    fn show(&mut self, progress: ConversionProgress) {
        let doing = match progress.phase {
            ConversionPhase::Convert => "converting",
            ConversionPhase::Verify => "verifying ",
        };
        self.show_bytes(doing, progress.bytes, progress.of);
    }

    pub(super) fn show_bytes(&mut self, doing: &'static str, bytes: u64, of: u64) {
        match self {
            Self::Bar(bar) => {
                if bar.position() > bytes {
                    bar.reset_eta();
                }
                bar.set_message(doing);
                bar.set_length(of);
                bar.set_position(bytes);
            }
            Self::Lines(last) if last.elapsed() >= LINE_INTERVAL => {
                *last = Instant::now();
                let percent = 100 * bytes / of.max(1);
                tell(&format!("{}: {percent} % of {of} bytes", doing.trim_end()));
            }
            Self::Lines(_) => {}
        }
    }

    pub(super) fn clear(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
