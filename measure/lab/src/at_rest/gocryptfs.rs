//! gocryptfs: an encrypting file system in user space, mounted in the scratch directory while the server exists.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_host::accounting::CpuMeter;
use ciphertoll_host::files::{self, PRIVATE_FILE};
use ciphertoll_host::hex::hex;
use ciphertoll_host::programs;
use ciphertoll_host::spawn::Child;
use ciphertoll_host::user::RunAs;
use ciphertoll_record::{Effect, is_mounted, unmount};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use openssl::rand::rand_bytes;

use super::mount::{EncryptedMount, MountPaths};
use crate::error::Error;
use crate::workspace::Workspace;

const PROGRAM: &str = "gocryptfs";
/// Mounts and unmounts for users other than root; gocryptfs calls it.
const FUSERMOUNT: &str = "fusermount3";
/// A process that can open it can serve a file system.
const FUSE: &str = "/dev/fuse";
/// Logged once the file system is usable.
const READY: &str = "mounted and ready";
const PASSWORD_BYTES: usize = 32;
/// The creation derives a key, which is slow by design.
const INIT_LIMIT: Duration = Duration::from_mins(1);
const MOUNT_LIMIT: Duration = Duration::from_mins(1);
const CHECK_INTERVAL: Duration = Duration::from_millis(3);
const UNMOUNT_GRACE: Duration = Duration::from_secs(5);

/// Unmounted on drop, even if files in it are open.
#[derive(Debug)]
pub(crate) struct Gocryptfs {
    process: Child,
    clear: PathBuf,
}

impl Gocryptfs {
    /// Creates an empty file system with a new key, and mounts it below a directory that only the server's user can enter.
    ///
    /// If that is another user, the kernel option `allow_other` gives access. With gocryptfs's own option `-allow_other`,
    /// gocryptfs would switch its user id for each new file, which fails when files are created concurrently.
    pub(crate) fn mount(
        workspace: &Workspace,
        paths: MountPaths<'_>,
        processors: Option<&[u16]>,
    ) -> Result<Self, Error> {
        let program = programs::find(&[PROGRAM], PROGRAM)?;
        programs::find(&[FUSERMOUNT], "fuse3")?;
        if let Some((problem, advice)) = find_obstacle() {
            return Err(Error::AtRestUnavailable(format!("{PROGRAM}: {problem}: {advice}")));
        }
        paths.make_directories(workspace.run_as)?;
        let password = paths.auxiliary.join("gocryptfs-password");
        let mut random = [0; PASSWORD_BYTES];
        rand_bytes(&mut random)?;
        files::write(&password, hex(&random).as_bytes(), PRIVATE_FILE, RunAs::Ourselves)?;
        let spawn = |own: &[&str], directories: &[&Path]| {
            let mut arguments = vec!["-nosyslog".to_owned(), "-passfile".to_owned()];
            arguments.push(password.display().to_string());
            arguments.extend(own.iter().map(|&argument| argument.to_owned()));
            arguments.extend(directories.iter().map(|path| path.display().to_string()));
            paths.spawn(workspace, PROGRAM, program.clone(), arguments, processors)
        };
        // A random password needs no slow key derivation.
        spawn(&["-init", "-q", "-scryptn", "10"], &[paths.cipher])?.finish(INIT_LIMIT)?;
        workspace.scratch.ledger().note(&Effect::Mount { path: paths.clear.to_owned() })?;
        let own: &[&str] =
            if workspace.run_as.other().is_some() { &["-fg", "-ko", "allow_other"] } else { &["-fg"] };
        let process = spawn(own, &[paths.cipher, paths.clear])?;
        let mut mounted = Self { process, clear: paths.clear.to_owned() };
        mounted.wait_until_mounted()?;
        // For servers that check the owner of their data directory.
        files::set_owner(paths.clear, workspace.run_as)?;
        Ok(mounted)
    }

    fn wait_until_mounted(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + MOUNT_LIMIT;
        // Before this message, gocryptfs inspects its own mount; a concurrent change would block for ever.
        while !(self.process.output().contains(READY) && is_mounted(&self.clear)?) {
            self.process.check()?;
            if Instant::now() >= deadline {
                return Err(self.process.too_slow(MOUNT_LIMIT, "nothing is mounted".to_owned()).into());
            }
            thread::sleep(CHECK_INTERVAL);
        }
        Ok(())
    }
}

/// A reason why FUSE does not work on this machine, and advice; `None` if it works.
pub(crate) fn find_obstacle() -> Option<(String, String)> {
    let Err(error) = File::options().read(true).write(true).open(FUSE) else {
        let missing = programs::search(FUSERMOUNT).is_none();
        let problem = || format!("{FUSERMOUNT}, which mounts and unmounts, is missing");
        return missing.then(|| (problem(), programs::how_to_install("fuse3")));
    };
    let advice = match error.kind() {
        // udev's default is 0666.
        ErrorKind::PermissionDenied => format!("chmod 0666 {FUSE}, as root; or run ciphertoll as root"),
        _ => format!("modprobe fuse; in a container: --device {FUSE}"),
    };
    Some((format!("cannot open {FUSE}: {error}"), advice))
}

impl EncryptedMount for Gocryptfs {
    /// Fails if its process has ended or is stopped, or if it is no longer mounted.
    fn check(&mut self) -> Result<(), Error> {
        self.process.check()?;
        if is_mounted(&self.clear)? {
            return Ok(());
        }
        Err(Error::NotEncrypted(format!("{PROGRAM} is no longer mounted")))
    }

    fn cpu_meter(&self) -> Option<CpuMeter> {
        Some(CpuMeter::Process { pid: self.process.pid() })
    }

    fn unmount(&mut self) -> Result<(), Error> {
        // On SIGTERM it unmounts itself, unless files are open.
        if self.process.ended().is_none() {
            let _ = kill(Pid::from_raw(self.process.pid()), Signal::SIGTERM);
            self.process.wait(UNMOUNT_GRACE)?;
        }
        // Before killing the process: a process that waits for its own mount cannot be killed.
        unmount(&self.clear)?;
        Ok(self.process.stop(Duration::ZERO).map(|_| ())?)
    }
}

impl Drop for Gocryptfs {
    fn drop(&mut self) {
        // If this fails, the sweep of a later run unmounts what is in the ledger.
        let _ = self.unmount();
    }
}
