//! A clock that is stepped for the processes of one run: libfaketime reads the offset from a file. The machine's clock is
//! not changed, and monotonic clocks run on, as they do when a clock is stepped.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::matrix::Target;

/// One day back, before the certificates of the run were made.
pub(super) const STEP: &str = "-1d";
pub(super) const LIBRARY: &str = "faketime/libfaketime.so.1";
const EXECUTABLE: u32 = 0o755;
const ALL_MAY_READ: u32 = 0o644;

/// The path of libfaketime, if it is installed.
pub(super) fn library() -> Option<PathBuf> {
    let parents = fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    parents.map(|parent| parent.join(LIBRARY)).find(|library| library.is_file())
}

/// A directory with the offset and the programs that read it.
pub(super) struct SteppedClock {
    directory: PathBuf,
    library: PathBuf,
    target: Target,
}

impl SteppedClock {
    /// The path of the directory is the same each time, because the templates of servers depend on their programs.
    pub(super) fn prepare(directory: &Path, program: &Path, target: Target) -> Result<Self> {
        let library = library().context("libfaketime is not installed")?;
        let clock = Self { directory: directory.join(target.server()), library, target };
        let _ = fs::remove_dir_all(&clock.directory);
        for part in ["own", "sbin"] {
            fs::create_dir_all(clock.directory.join(part)).context("cannot make a directory")?;
        }
        clock.set("+0")?;
        match target {
            Target::MariaDb => clock.wrap_server("/usr/sbin/mariadbd", "mariadbd")?,
            Target::Postgres => clock.wrap_server(&newest_postgres()?, "postgres")?,
            Target::Ssh => clock.wrap("own/ssh", Path::new("/usr/bin/ssh"))?,
            Target::OpenVpn => clock.wrap("own/openvpn", Path::new("/usr/sbin/openvpn"))?,
            Target::Sidecar => {
                clock.wrap("own/ciphertoll-proxy", &program.with_file_name("ciphertoll-proxy"))?;
            }
            Target::WireGuard | Target::DelayLine | Target::Load | Target::Coordinator => {}
        }
        Ok(clock)
    }

    /// Sets the offset of all clocks.
    pub(super) fn set(&self, offset: &str) -> Result<()> {
        let file = self.offset_file();
        fs::write(&file, format!("{offset}\n")).context("cannot write the clock's offset")?;
        // Servers run as another user.
        fs::set_permissions(&file, fs::Permissions::from_mode(ALL_MAY_READ)).context("cannot set a mode")
    }

    fn offset_file(&self) -> PathBuf {
        self.directory.join("offset")
    }

    fn environment(&self) -> [(&'static str, String); 5] {
        [
            ("LD_PRELOAD", self.library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.offset_file().display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            // Otherwise a killed process leaves a semaphore.
            ("FAKETIME_DISABLE_SHM", "1".to_owned()),
        ]
    }

    /// Where the run finds the program with the stepped clock.
    pub(super) fn apply(&self, command: &mut Command, program: &Path) -> Result<()> {
        match self.target {
            Target::Coordinator => {
                command.envs(self.environment());
            }
            Target::Ssh | Target::OpenVpn => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                let own = self.directory.join("own");
                let all = std::iter::once(own).chain(std::env::split_paths(&path));
                command.env("PATH", std::env::join_paths(all).context("cannot extend PATH")?);
            }
            _ => {}
        }
        // A coordinator looks for the sidecar in its own directory.
        if self.target == Target::Sidecar {
            let own = self.directory.join("own/ciphertoll");
            fs::hard_link(program, &own)
                .or_else(|_| fs::copy(program, &own).map(drop))
                .context("cannot copy ciphertoll")?;
        }
        Ok(())
    }

    /// The program to run instead of `program`.
    pub(super) fn program(&self, program: &Path) -> PathBuf {
        let own = self.directory.join("own/ciphertoll");
        if self.target == Target::Sidecar { own } else { program.to_owned() }
    }

    /// The level of `--server`.
    pub(super) fn server(&self) -> String {
        match self.target {
            Target::MariaDb | Target::Postgres => {
                format!("{}={}", self.target.server(), self.directory.display())
            }
            _ => self.target.server().to_owned(),
        }
    }

    /// A directory in which the server's other programs and files are found, too.
    fn wrap_server(&self, program: &str, name: &str) -> Result<()> {
        let program = Path::new(program);
        let installed = program.parent().and_then(Path::parent).context("a program without a directory")?;
        for part in ["bin", "share", "lib"] {
            let _ = symlink(installed.join(part), self.directory.join(part));
        }
        self.wrap(&format!("sbin/{name}"), program)
    }

    /// A script that becomes `program` with the stepped clock.
    fn wrap(&self, name: &str, program: &Path) -> Result<()> {
        let variables = self.environment().map(|(name, value)| format!("export {name}='{value}'\n")).concat();
        let script = self.directory.join(name);
        let text = format!("#!/bin/sh\n{variables}exec '{}' \"$@\"\n", program.display());
        fs::write(&script, text).context("cannot write a script")?;
        fs::set_permissions(&script, fs::Permissions::from_mode(EXECUTABLE)).context("cannot set a mode")
    }
}

fn newest_postgres() -> Result<String> {
    let level = ciphertoll_model::ServerLevel::of(ciphertoll_model::Engine::Postgres);
    Ok(ciphertoll_lab::find(&level)?.server_program.display().to_string())
}
