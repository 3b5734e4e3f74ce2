//! A clock that is stepped for the processes of one run, by a preloaded library (`peers/stepped_clock.c`) that reads the
//! offset from a file. The machine's clock is not changed.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::target::Target;
use crate::peers_directory;

/// One day back, before the certificates of the run were made, in seconds.
pub(super) const STEP_S: i64 = -86_400;
pub(super) const LIBRARY: &str = "stepped_clock.so";
const EXECUTABLE: u32 = 0o755;
const ALL_MAY_READ: u32 = 0o644;

/// The compiled library, if it is there.
pub(super) fn library() -> Option<PathBuf> {
    peers_directory().ok().map(|directory| directory.join(LIBRARY)).filter(|library| library.is_file())
}

/// A directory with the offset and the programs that read it.
pub(super) struct SteppedClock {
    directory: PathBuf,
    target: Target,
}

impl SteppedClock {
    /// The path of the directory is the same each time, because the templates of servers depend on their programs.
    pub(super) fn prepare(directory: &Path, program: &Path, target: Target) -> Result<Self> {
        let compiled = library().context("run scripts/build-peers first")?;
        let clock = Self { directory: directory.join(target.server()), target };
        let _ = fs::remove_dir_all(&clock.directory);
        for part in ["own", "sbin"] {
            fs::create_dir_all(clock.directory.join(part)).context("cannot make a directory")?;
        }
        // Servers run as another user, who may not see the original.
        fs::copy(compiled, clock.library()).context("cannot copy the library")?;
        fs::write(clock.offset_file(), 0_i64.to_ne_bytes()).context("cannot write the clock's offset")?;
        fs::set_permissions(clock.offset_file(), fs::Permissions::from_mode(ALL_MAY_READ))
            .context("cannot set a mode")?;
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

    /// Sets the offset of all clocks. The file is mapped, so it is never shorter.
    pub(super) fn set(&self, offset_s: i64) -> Result<()> {
        let file = OpenOptions::new().write(true).open(self.offset_file());
        let file = file.context("cannot open the clock's offset")?;
        file.write_all_at(&offset_s.to_ne_bytes(), 0).context("cannot write the clock's offset")
    }

    fn library(&self) -> PathBuf {
        self.directory.join(LIBRARY)
    }

    fn offset_file(&self) -> PathBuf {
        self.directory.join("offset")
    }

    fn environment(&self) -> [(&'static str, String); 2] {
        [
            ("LD_PRELOAD", self.library().display().to_string()),
            ("STEPPED_CLOCK", self.offset_file().display().to_string()),
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
            let _ = fs::remove_file(&own);
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
