//! gocryptfs under a server's files: an encrypting file system in user space, mounted in the scratch directory for as long
//! as the server is there.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_record::{Effect, is_mounted, unmount};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use openssl::rand::rand_bytes;

use crate::accounting::CpuMeter;
use crate::control::RETRY_AFTER;
use crate::error::Error;
use crate::exec::Provisions;
use crate::files::{self, PRIVATE_DIRECTORY, PRIVATE_FILE};
use crate::hex::hex;
use crate::lab::Lab;
use crate::programs;
use crate::spawn::{Child, Launch};
use crate::user::RunAs;

use super::Sites;

const PROGRAM: &str = "gocryptfs";
/// What unmounts for who is not root; gocryptfs itself calls it to mount.
const FUSERMOUNT: &str = "fusermount3";
/// Who opens it can serve a file system.
const FUSE: &str = "/dev/fuse";
/// What its log says once it serves.
const READY: &str = "mounted and ready";
const PASSWORD_BYTES: usize = 32;
/// Making the file system's configuration takes as long as its key derivation.
const INIT_LIMIT: Duration = Duration::from_mins(1);
const MOUNT_LIMIT: Duration = Duration::from_mins(1);
/// Nobody uses it any more when it is told to go.
const UNMOUNT_GRACE: Duration = Duration::from_secs(5);

/// A mounted file system. Unmounted when dropped, whoever still has files in it.
#[derive(Debug)]
pub(crate) struct Gocryptfs {
    process: Child,
    clear: PathBuf,
}

impl Gocryptfs {
    /// Makes an empty file system with a fresh key and mounts it where only `lab`'s server user comes by.
    ///
    /// Where that is another user, everybody would be let in who comes by. Told so by gocryptfs's own option, it would
    /// change who it is for each file that it makes, which goes wrong where several are made at the same time: it is the
    /// kernel that is told.
    pub(crate) fn mount(lab: &Lab, sites: Sites<'_>, processors: Option<&[u16]>) -> Result<Self, Error> {
        let program = programs::find(&[PROGRAM], PROGRAM)?;
        programs::find(&[FUSERMOUNT], "fuse3")?;
        if let Some((seen, cure)) = fuse_missing() {
            return Err(Error::AtRestUnavailable(format!("{PROGRAM}: {seen}: {cure}")));
        }
        files::make_directory(sites.gate, PRIVATE_DIRECTORY, lab.run_as)?;
        for directory in [sites.cipher, sites.clear] {
            files::make_directory(directory, PRIVATE_DIRECTORY, RunAs::Ourselves)?;
        }
        let ground = Ground { lab, sites, program, processors };
        let mut random = [0; PASSWORD_BYTES];
        rand_bytes(&mut random)?;
        files::write(&ground.password(), hex(&random).as_bytes(), PRIVATE_FILE, RunAs::Ourselves)?;
        ground.init()?;
        lab.scratch.ledger().note(&Effect::Mount { path: sites.clear.to_owned() })?;
        let own: &[&str] =
            if lab.run_as.other().is_some() { &["-fg", "-ko", "allow_other"] } else { &["-fg"] };
        let process = ground.spawn(own, &[sites.cipher, sites.clear])?;
        let mut layer = Self { process, clear: sites.clear.to_owned() };
        layer.wait_until_mounted()?;
        // Nobody else comes this far; it is the server that looks at whose it is.
        files::give(sites.clear, lab.run_as)?;
        Ok(layer)
    }

    fn wait_until_mounted(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + MOUNT_LIMIT;
        // Before it says so, it still looks at what it has mounted, and a change that comes first waits for that for ever.
        while !(self.process.said().contains(READY) && is_mounted(&self.clear)?) {
            self.process.check()?;
            if Instant::now() >= deadline {
                return Err(self.process.too_slow(MOUNT_LIMIT, "nothing is mounted".to_owned()));
            }
            thread::sleep(RETRY_AFTER);
        }
        Ok(())
    }

    /// Fails if its process has ended or been stopped, or if it is not mounted any more.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        self.process.check()?;
        if is_mounted(&self.clear)? {
            return Ok(());
        }
        Err(Error::NotEncrypted(format!("{PROGRAM} is not mounted any more")))
    }

    /// What its process takes.
    pub(crate) fn cpu_meter(&self) -> CpuMeter {
        CpuMeter::of_process(self.process.pid())
    }

    /// Its process.
    pub(crate) fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Unmounts it, and says so if that fails; dropping does the same in silence.
    pub(crate) fn unmount(&mut self) -> Result<(), Error> {
        // It unmounts itself then, unless somebody has files open.
        if self.process.ended().is_none() {
            let _ = kill(Pid::from_raw(self.process.pid()), Signal::SIGTERM);
            self.process.wait(UNMOUNT_GRACE)?;
        }
        // First, as one that waits for itself could not be killed.
        unmount(&self.clear)?;
        self.process.stop(Duration::ZERO).map(|_| ())
    }
}

/// What of this machine is in the way of file systems in user space, and what would change that; none where nothing is.
pub(crate) fn fuse_missing() -> Option<(String, String)> {
    let Err(error) = File::options().read(true).write(true).open(FUSE) else {
        let missing = programs::search(FUSERMOUNT).is_none();
        let seen = || format!("{FUSE} opens; {FUSERMOUNT} is missing, which mounts and unmounts");
        return missing.then(|| (seen(), programs::install("fuse3")));
    };
    let cure = match error.kind() {
        // Where udev makes it, it is everybody's.
        ErrorKind::PermissionDenied => format!("chmod 0666 {FUSE}, as root; or run it as root"),
        _ => format!("modprobe fuse; of a container: --device {FUSE}"),
    };
    Some((format!("{FUSE} cannot be opened: {error}"), cure))
}

/// What it takes to run gocryptfs.
struct Ground<'a> {
    lab: &'a Lab,
    sites: Sites<'a>,
    program: PathBuf,
    processors: Option<&'a [u16]>,
}

impl Ground<'_> {
    fn password(&self) -> PathBuf {
        self.sites.beside.join("gocryptfs-password")
    }

    fn spawn(&self, own: &[&str], paths: &[&Path]) -> Result<Child, Error> {
        let password = self.password();
        let all = ["-nosyslog", "-passfile"].into_iter().chain(own.iter().copied()).map(ToOwned::to_owned);
        let mut arguments: Vec<String> = all.collect();
        arguments.insert(2, password.display().to_string());
        arguments.extend(paths.iter().map(|path| path.display().to_string()));
        let launch = Launch {
            what: PROGRAM.to_owned(),
            program: self.program.clone(),
            arguments,
            environment: BTreeMap::new(),
            directory: self.sites.beside.to_owned(),
            run_as: RunAs::Ourselves,
            processors: self.processors.map(<[u16]>::to_vec),
            namespace: None,
            provisions: Provisions::default(),
            log: self.sites.beside.join("gocryptfs.log"),
        };
        Child::spawn(&self.lab.scratch, &self.lab.helper, &launch)
    }

    fn init(&self) -> Result<(), Error> {
        // The password is random, so that deriving a key of it need not be slow.
        let own = ["-init", "-q", "-scryptn", "10"];
        let mut making = self.spawn(&own, &[self.sites.cipher])?;
        match making.wait(INIT_LIMIT)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(making.died(status)),
            None => Err(making.too_slow(INIT_LIMIT, "still making its configuration".to_owned())),
        }
    }
}

impl Drop for Gocryptfs {
    fn drop(&mut self) {
        // What cannot be unmounted now, the sweep of a later run finds in the ledger.
        let _ = self.unmount();
    }
}
