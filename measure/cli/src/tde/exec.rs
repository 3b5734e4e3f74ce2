//! `tde exec`: runs a PostgreSQL program with the library preloaded, and proves that the library was loaded.
//!
//! The loader ignores a library that it cannot load, and drops it if the program is set-uid. Therefore setting
//! `LD_PRELOAD` proves nothing: the library reports over an inherited socket that it was loaded, and the cluster is
//! examined before and after.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::mpsc;
use std::thread;

use ciphertoll_model::ExitCode;
use ciphertoll_tde::cluster::{self, ClusterState};
use ciphertoll_tde::handshake::{HANDSHAKE_FD, HandshakeMessage, HandshakeStatus, MESSAGE_BYTES};
use ciphertoll_tde::{EncryptionEngine, Kek, KeyError, KeyFile, PRELOAD_LIBRARY, find_preload_library};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, recv, shutdown, socketpair};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, getpgrp, tcgetpgrp};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::keys::{ClusterArguments, KeyArguments, host};
use crate::failure::Failure;
use crate::lab::exit_code_of;
use crate::progress::tell;

const FORWARDED: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
/// The terminal sends these to its whole foreground process group, which includes the program.
const FROM_TERMINAL: [i32; 2] = [SIGINT, SIGQUIT];
const SET_ID: u32 = 0o6000;

/// A cluster and its unwrapped keys.
pub(super) struct UnlockedCluster {
    data: PathBuf,
    keys: PathBuf,
    engine: EncryptionEngine,
    kek: Kek,
}

/// Returns the program's exit code. Fails if the program ran without the library.
pub(super) fn exec(
    cluster: &ClusterArguments,
    key: &KeyArguments,
    library: Option<&Path>,
    command: &[OsString],
) -> Result<u8, Failure> {
    let library = find_library(library)?;
    let Some((name, arguments)) = command.split_first() else {
        return Err(Failure::usage("no command to run"));
    };
    let mut command = Command::new(find_program(name)?);
    command.args(arguments);
    let (data, keys) = (cluster.data()?, cluster.keys()?);
    let file = KeyFile::load(&keys)?;
    UnlockedCluster::new(data, keys, &file, key.read()?)?.run(command, name, library)
}

/// Returns `library`, or that of this program.
pub(super) fn find_library(library: Option<&Path>) -> Result<PathBuf, Failure> {
    let library = library.map_or_else(bundled_library, |path| Ok(path.to_owned()))?;
    let library = fs::canonicalize(&library).map_err(|error| host(&library, &error))?;
    File::open(&library).map_err(|error| host(&library, &error))?;
    Ok(library)
}

fn ran_unprotected(line: String) -> Failure {
    Failure::new(ExitCode::HostResource, line)
}

/// Returns the program's path. Refuses set-uid and set-gid programs, for which the loader drops the library.
fn find_program(name: &OsStr) -> Result<PathBuf, Failure> {
    let not_found = || host(Path::new(name), &io::ErrorKind::NotFound.into());
    let is_program = |metadata: &Metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
    let found = |path: PathBuf| fs::metadata(&path).ok().filter(is_program).map(|metadata| (path, metadata));
    let (path, metadata) = if name.as_encoded_bytes().contains(&b'/') {
        found(name.into()).ok_or_else(not_found)?
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .find_map(|directory| found(directory.join(name)))
            .ok_or_else(not_found)?
    };
    if metadata.mode() & SET_ID != 0 {
        return Err(Failure::usage(format!(
            "{} is set-uid or set-gid: the loader would drop the library; use runuser or setpriv to change the user",
            path.display()
        )));
    }
    Ok(path)
}

impl UnlockedCluster {
    /// Checks keys and cluster here, where an error is one line on stderr and not an entry in a server's log.
    pub(super) fn new(data: PathBuf, keys: PathBuf, file: &KeyFile, kek: Kek) -> Result<Self, Failure> {
        let unwrapped = file.unwrap(&kek)?;
        require_cipher(&keys, file)?;
        let engine = EncryptionEngine::new(unwrapped)?;
        let mut cluster = Self { data, keys, engine, kek };
        let state = cluster.examine()?;
        state.refusal(&cluster.data).map_or(Ok(cluster), |why| Err(Failure::usage(why)))
    }

    /// Runs a program with the library and returns its exit code. Fails if the library was not loaded.
    pub(super) fn run(mut self, mut command: Command, name: &OsStr, library: PathBuf) -> Result<u8, Failure> {
        let was_empty = is_empty(&self.data);
        command.env("LD_PRELOAD", preloaded(library));
        command.env("CIPHERTOLL_TDE_DATA", &self.data).env("CIPHERTOLL_TDE_KEYS", &self.keys);
        command.env_remove("CIPHERTOLL_TDE_KEK_FILE").env_remove("CIPHERTOLL_TDE_KEK_COMMAND");
        let descriptor = write_to_memfd(&self.kek).map_err(|error| host(Path::new("memfd"), &error))?;
        command.env("CIPHERTOLL_TDE_KEK_FD", descriptor.as_raw_fd().to_string());
        let (status, messages, process) = run(&mut command, name)?;
        drop(descriptor);
        print_refusals(&messages);
        check_result(&mut self, was_empty)?;
        let is_loaded = |message: &HandshakeMessage| {
            message.process == process && message.status == HandshakeStatus::Loaded
        };
        if !messages.iter().any(is_loaded) {
            return Err(ran_unprotected(format!(
                "{} ran without the library, because the loader could not load it; the program had no access to the keys",
                name.display()
            )));
        }
        Ok(exit_code_of(status))
    }

    fn examine(&mut self) -> Result<ClusterState, KeyError> {
        cluster::examine(&self.data, &mut self.engine)
    }
}

/// Refuses the null cipher, which is only for measurements.
pub(super) fn require_cipher(keys: &Path, file: &KeyFile) -> Result<(), Failure> {
    if file.cipher_kind().encrypts() {
        return Ok(());
    }
    let message = "its cipher is null, which does not encrypt and is only for measurements";
    Err(Failure::usage(format!("{}: {message}", keys.display())))
}

fn is_empty(data: &Path) -> bool {
    fs::read_dir(data)
        .map_or_else(|error| error.kind() == io::ErrorKind::NotFound, |mut entries| entries.next().is_none())
}

/// Checks that the cluster is encrypted and sealed. Empties a data directory that this command filled with plaintext.
fn check_result(unlocked: &mut UnlockedCluster, was_empty: bool) -> Result<(), Failure> {
    let state = unlocked.examine()?;
    let Some(why) = state.refusal(&unlocked.data) else { return Ok(()) };
    let is_clear = matches!(state, ClusterState::Plain | ClusterState::Unsealed(_));
    if !was_empty || !is_clear || cluster::running_server(&unlocked.data).is_some() {
        return Err(ran_unprotected(format!("{why}; the program ran without the library")));
    }
    let data = &unlocked.data;
    let linked = linked_directories(data);
    let entries = fs::read_dir(data).map_err(|error| host(data, &error))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_directory = path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
        let removed = if is_directory { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(|error| host(&path, &error))?;
    }
    Err(ran_unprotected(left_behind(&why, data, &linked)))
}

/// The directories to which links of a data directory lead: WAL and tablespaces.
fn linked_directories(data: &Path) -> Vec<PathBuf> {
    let entries =
        [data.to_owned(), data.join("pg_tblspc")].into_iter().filter_map(|path| fs::read_dir(path).ok());
    let links = entries.flatten().flatten().map(|entry| entry.path());
    let mut linked: Vec<_> =
        links.filter_map(|link| Some(link.parent()?.join(fs::read_link(&link).ok()?))).collect();
    linked.sort();
    linked
}

/// Says what was removed, and where plaintext may be left: what else is in those directories, is not known.
fn left_behind(why: &str, data: &Path, linked: &[PathBuf]) -> String {
    let removed = format!(
        "{why}, because the program ran without the library; the files that it created in {} were removed",
        data.display()
    );
    if linked.is_empty() {
        return removed;
    }
    let linked: Vec<_> = linked.iter().map(|path| path.display().to_string()).collect();
    format!("{removed}, but plaintext may be left in {}: remove what it wrote there", linked.join(", "))
}

/// Returns how the program ended, the messages of its processes, and its process ID.
fn run(command: &mut Command, name: &OsStr) -> Result<(ExitStatus, Vec<HandshakeMessage>, u32), Failure> {
    let failed = |error: io::Error| host(Path::new(name), &error);
    let system = |error: nix::Error| failed(error.into());
    let (ours, theirs) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).map_err(system)?;
    fcntl(&theirs, FcntlArg::F_SETFD(FdFlag::empty())).map_err(system)?;
    command.env(HANDSHAKE_FD, theirs.as_raw_fd().to_string());
    let mut signals = Signals::new(FORWARDED).map_err(failed)?;
    let mut child = command.spawn().map_err(failed)?;
    drop(theirs);
    let process = Pid::from_raw(child.id().cast_signed());
    let handle = signals.handle();
    let (sender, messages) = mpsc::channel();
    let status = thread::scope(|scope| {
        scope.spawn(|| receive(&ours, &sender));
        let forwarding = scope.spawn(move || signals.forever().for_each(|signal| forward(signal, process)));
        // Does not reap the process yet, so that its ID cannot be reused while signals are forwarded.
        let ended = waitid(Id::Pid(process), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        handle.close();
        drop(forwarding.join());
        // Messages sent before are still received. Servers that keep running send no more.
        let stopped = shutdown(ours.as_raw_fd(), Shutdown::Both);
        ended.and(stopped).map_err(io::Error::from).and_then(|()| child.wait())
    });
    drop(sender);
    Ok((status.map_err(failed)?, messages.into_iter().collect(), child.id()))
}

fn receive(socket: &OwnedFd, messages: &mpsc::Sender<HandshakeMessage>) {
    let mut packet = [0; MESSAGE_BYTES];
    loop {
        match recv(socket.as_fd().as_raw_fd(), &mut packet, MsgFlags::empty()) {
            Err(nix::Error::EINTR) => {}
            Ok(0) | Err(_) => return,
            Ok(count) => {
                if let Some(message) = HandshakeMessage::decode(&packet[..count]) {
                    // Cannot fail: the receiver outlives this thread.
                    drop(messages.send(message));
                }
            }
        }
    }
}

fn forward(signal: i32, process: Pid) {
    let in_foreground = || tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp());
    if FROM_TERMINAL.contains(&signal) && in_foreground() {
        return;
    }
    if let Ok(signal) = Signal::try_from(signal) {
        // The process may have ended already.
        let _ = kill(process, signal);
    }
}

/// Prints refusals of programs whose standard error is not ours, such as servers with a log file.
fn print_refusals(messages: &[HandshakeMessage]) {
    let own = fs::metadata("/proc/self/fd/2").map(|metadata| (metadata.dev(), metadata.ino())).ok();
    for message in messages {
        if let HandshakeStatus::Refused { stderr, why } = &message.status
            && Some(*stderr) != own
        {
            tell(&format!("ciphertoll-tde: refused: {why}"));
        }
    }
}

/// Writes the key to a file in memory, which the program inherits.
fn write_to_memfd(kek: &Kek) -> io::Result<File> {
    let mut file = File::from(memfd_create("ciphertoll-tde", MFdFlags::empty())?);
    file.write_all(kek.text().as_bytes())?;
    file.rewind()?;
    Ok(file)
}

fn preloaded(library: PathBuf) -> OsString {
    let mut preload = library.into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    preload
}

fn bundled_library() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe().map_err(|error| host(Path::new("this program"), &error))?;
    find_preload_library(&program).ok_or_else(|| {
        let message = format!(
            "{PRELOAD_LIBRARY} of {} is missing: install the package ciphertoll-tde, build it with `cargo build -p \
             ciphertoll-tde-preload`, or name it with --library",
            program.display()
        );
        Failure::new(ExitCode::HostResource, message)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn directories_where_plaintext_may_be_left_are_named() {
        let place = tempfile::tempdir().expect("a directory");
        let data = place.path().join("data");
        fs::create_dir_all(data.join("pg_tblspc")).expect("a directory");
        assert!(left_behind("it is plain", &data, &linked_directories(&data)).ends_with("data were removed"));
        symlink("/srv/wal", data.join("pg_wal")).expect("a link");
        symlink("/srv/spaces/16400", data.join("pg_tblspc/16400")).expect("a link");
        let said = left_behind("it is plain", &data, &linked_directories(&data));
        assert!(
            said.ends_with(
                "plaintext may be left in /srv/spaces/16400, /srv/wal: remove what it wrote there"
            ),
            "{said}"
        );
    }
}
