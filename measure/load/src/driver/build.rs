//! Prepares a driver: compiles or installs it on first use, or finds its tool.

use std::env;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ciphertoll_model::TrialSpec;
use nix::unistd::geteuid;
use sha1::{Digest, Sha1};

use super::adapter::DRIVE_COMMAND;
use super::builtin;
use super::error::Error;
use super::file::{BuildMethod, BuildRecipe, DriverFile};
use super::find::{Driver, Origin, read};
use super::placeholder::{Placeholder, TextTemplate};
use super::python::{EnvironmentError, Python, add_sources, packages};
use super::tool::Task;

/// Nobody else may write to programs that we run.
const PRIVATE_DIRECTORY: u32 = 0o700;
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// The Python interpreter, searched in PATH.
const PYTHON: &str = "python3";
/// How much of a compiler's output is shown.
const MAX_REASON_CHARS: usize = 200;
/// Time for a program to end: joining its threads, writing its samples.
const PROGRAM_GRACE: Duration = Duration::from_secs(10);
/// A tool connects twice, and is started several times if it counts operations.
const TOOL_GRACE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub enum PreparedDriver {
    /// A program and its arguments.
    Program(Vec<String>),
    /// The name of a driver whose tool the adapter runs.
    Tool(String),
}

impl Driver {
    /// Prepares the driver. The first call compiles or installs into `cache`, which may take seconds.
    pub fn prepare(&self, cache: &Path) -> Result<PreparedDriver, Error> {
        match self.file() {
            DriverFile::Tool(_) => match self.missing() {
                Some(reason) => Err(self.lacks(&reason)),
                None => Ok(PreparedDriver::Tool(self.name().to_owned())),
            },
            DriverFile::Program(program) => {
                let make = |recipe| self.build(recipe, cache, &self.maker(recipe)?);
                let built = program.build.as_ref().map(make).transpose()?;
                Ok(PreparedDriver::Program(self.program(&program.command, built.as_deref())?))
            }
        }
    }

    /// What [`Self::prepare`] would install from a package index, and where: `pymongo 4.20.0 into …`. `None` if
    /// nothing.
    pub fn installs(&self, cache: &Path) -> Option<String> {
        let DriverFile::Program(program) = self.file() else { return None };
        let recipe = program.build.as_ref()?;
        let BuildMethod::Python { requirements } = &recipe.how else { return None };
        let sources = self.sources(recipe).ok()?;
        let place = self.place(cache, &self.maker(recipe).ok()?, &sources);
        let text = sources.iter().find(|(name, _)| name == requirements).map(|(_, text)| packages(text))?;
        (!place.is_dir()).then(|| format!("{} into {}", text.join(", "), place.display()))
    }

    /// What is missing on this machine, as far as this can be found without building.
    pub(super) fn missing(&self) -> Option<String> {
        let absent = |program: &str| match in_path(program) {
            Some(_) => None,
            None => Some(format!("{program} is not in PATH")),
        };
        match self.file() {
            DriverFile::Tool(tool) => absent(&tool.program),
            DriverFile::Program(program) => match &program.build.as_ref()?.how {
                BuildMethod::Shell(_) => absent("cc"),
                BuildMethod::Python { .. } => absent(PYTHON),
            },
        }
    }

    fn lacks(&self, reason: &str) -> Error {
        let needs = match self.file() {
            DriverFile::Tool(tool) => tool.needs.clone(),
            DriverFile::Program(program) => {
                program.build.as_ref().map_or_else(String::new, |recipe| recipe.needs.clone())
            }
        };
        Error::Missing { name: self.name().to_owned(), needs, reason: reason.to_owned() }
    }

    fn program(&self, command: &[TextTemplate], built: Option<&Path>) -> Result<Vec<String>, Error> {
        let built = built.map(|path| (Placeholder::Build, path.display().to_string()));
        let values = built.into_iter().collect();
        let parts = command.iter().map(|part| part.fill(&values)).collect::<Option<Vec<String>>>();
        let mut parts = parts.unwrap_or_default();
        let Some(first) = parts.first_mut() else {
            return Err(Error::File {
                name: self.name().to_owned(),
                reason: "`command` is empty".to_owned(),
            });
        };
        let beside = match self.origin() {
            Origin::Directory(directory) => Some(directory.join(&*first)).filter(|path| path.is_file()),
            Origin::BuiltIn => None,
        };
        match beside.or_else(|| in_path(first)) {
            Some(found) => *first = found.display().to_string(),
            None => {
                return Err(Error::Missing {
                    name: self.name().to_owned(),
                    needs: first.clone(),
                    reason: "it is neither next to the driver's file nor in PATH".to_owned(),
                });
            }
        }
        Ok(parts)
    }

    fn maker<'a>(&self, recipe: &'a BuildRecipe) -> Result<Builder<'a>, Error> {
        match &recipe.how {
            BuildMethod::Shell(command) => Ok(Builder::Shell(command)),
            BuildMethod::Python { requirements } => {
                let program =
                    in_path(PYTHON).ok_or_else(|| self.lacks(&format!("{PYTHON} is not in PATH")))?;
                let python = Python::at(program).map_err(|obstacle| self.hindered(obstacle))?;
                Ok(Builder::Python(python, requirements))
            }
        }
    }

    fn place(&self, cache: &Path, maker: &Builder<'_>, sources: &[(String, String)]) -> PathBuf {
        cache.join("drivers").join(format!("{}-{}", self.name(), key(maker.identity(), sources)))
    }

    fn build(&self, recipe: &BuildRecipe, cache: &Path, maker: &Builder<'_>) -> Result<PathBuf, Error> {
        let sources = self.sources(recipe)?;
        let directory = cache.join("drivers");
        make_private(&directory)?;
        let built = self.place(cache, maker, &sources);
        if built.exists() {
            return Ok(built);
        }
        let place = directory.join(format!(".{}-{}", self.name(), std::process::id()));
        let made = self.make(maker, &sources, &place).and_then(|made| match fs::rename(&made, &built) {
            Ok(()) => Ok(built.clone()),
            // Two runs that build at the same time produce the same; the first one stays.
            Err(_) if built.exists() => Ok(built.clone()),
            Err(error) => Err(Error::io("put in place", &built)(error)),
        });
        // Leftovers are harmless.
        let _ = fs::remove_dir_all(&place);
        made
    }

    fn sources(&self, recipe: &BuildRecipe) -> Result<Vec<(String, String)>, Error> {
        let text = |name: &String| match self.origin() {
            Origin::Directory(directory) => read(&directory.join(name)),
            Origin::BuiltIn => builtin::source(name).map(ToOwned::to_owned).ok_or_else(|| Error::File {
                name: self.name().to_owned(),
                reason: format!("there is no source {name}"),
            }),
        };
        recipe.sources.iter().map(|name| Ok((name.clone(), text(name)?))).collect()
    }

    /// Builds in `place`, which no other process knows; returns the result's directory.
    fn make(
        &self,
        maker: &Builder<'_>,
        sources: &[(String, String)],
        place: &Path,
    ) -> Result<PathBuf, Error> {
        let _ = fs::remove_dir_all(place);
        DirBuilder::new().mode(PRIVATE_DIRECTORY).create(place).map_err(Error::io("make", place))?;
        add_sources(place, sources)?;
        let output = place.join("built");
        match maker {
            Builder::Shell(command) => self.compile(command, place, &output)?,
            Builder::Python(python, requirements) => {
                let made = python.make(&output, &place.join(requirements));
                made.map_err(|obstacle| self.hindered(obstacle))?;
                add_sources(&output, sources)?;
            }
        }
        Ok(output)
    }

    fn compile(&self, command: &str, place: &Path, output: &Path) -> Result<(), Error> {
        let compiler = Command::new("sh")
            .args(["-eu", "-c", command])
            .env("OUTPUT", output)
            .env("LC_ALL", "C")
            .current_dir(place)
            .stdin(Stdio::null())
            .output()
            .map_err(Error::io("run", "sh"))?;
        if compiler.status.success() && output.is_file() {
            return Ok(());
        }
        Err(self.lacks(&first_complaint(&String::from_utf8_lossy(&compiler.stderr))))
    }

    fn hindered(&self, obstacle: EnvironmentError) -> Error {
        match obstacle {
            EnvironmentError::Missing(reason) => self.lacks(&reason),
            EnvironmentError::Own(error) => error,
        }
    }
}

/// How a program is built from its sources.
enum Builder<'a> {
    Shell(&'a str),
    /// This Python, with the packages of this requirements file.
    Python(Python, &'a str),
}

impl Builder<'_> {
    /// Distinguishes programs that must be built separately.
    fn identity(&self) -> &str {
        match self {
            Self::Shell(command) => command,
            Self::Python(python, _) => python.identity(),
        }
    }
}

impl PreparedDriver {
    /// The command for a trial: a program that speaks the protocol of `__load`. `exe` is ciphertoll itself, which is
    /// the adapter of tools.
    pub fn command(&self, exe: &Path, task: &Task) -> Command {
        match self {
            Self::Program(parts) => {
                let mut command = Command::new(&parts[0]);
                command.args(&parts[1..]);
                command
            }
            Self::Tool(driver) => {
                let mut command = Command::new(exe);
                command.arg(DRIVE_COMMAND).arg(driver).args(task.arguments());
                command
            }
        }
    }

    /// How long after the window the driver may still run: a tool's warm-up and window last whole seconds.
    pub fn grace(&self, spec: &TrialSpec) -> Duration {
        match self {
            Self::Program(_) => PROGRAM_GRACE,
            Self::Tool(_) => {
                let told = Duration::from_nanos(spec.warm_up_ns.saturating_add(spec.window_ns));
                TOOL_GRACE + told / 2
            }
        }
    }
}

fn make_private(directory: &Path) -> Result<(), Error> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(PRIVATE_DIRECTORY);
    builder.create(directory).map_err(Error::io("make", directory))?;
    let metadata = fs::metadata(directory).map_err(Error::io("look at", directory))?;
    if metadata.uid() == geteuid().as_raw() && metadata.mode() & WRITABLE_BY_OTHERS == 0 {
        return Ok(());
    }
    let others = std::io::Error::other("other users can write to it, and programs are run from there");
    Err(Error::io("use", directory)(others))
}

/// A hash of everything that distinguishes one program from another.
fn key(maker: &str, sources: &[(String, String)]) -> String {
    let mut digest = Sha1::new();
    let parts = sources.iter().flat_map(|(name, text)| [name.as_str(), text.as_str()]);
    for part in [maker, env::consts::ARCH].into_iter().chain(parts) {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    let digest = digest.finalize();
    let first = digest.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    format!("{first:016x}")
}

/// The line with the reason: a compiler's first error, else the first line.
fn first_complaint(words: &str) -> String {
    let lines = || words.lines().map(str::trim).filter(|line| !line.is_empty());
    let error = lines().find(|line| line.contains("error") || line.contains("not found"));
    let line = error.or_else(|| lines().next()).unwrap_or("its build produced nothing");
    line.chars().take(MAX_REASON_CHARS).collect()
}

/// Finds a program in PATH; a path is returned as it is.
pub(super) fn in_path(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_file());
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|directory| directory.join(program)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests;
