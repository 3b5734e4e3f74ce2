//! `tde exec`: runs a program of PostgreSQL under the library, and proves that it was.
//!
//! The loader ignores a library that it cannot load, and drops it where the program is set-uid. So nothing here relies on
//! the environment: each program says over an inherited socket that it has the library, and the cluster is examined before
//! and after.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::mpsc;
use std::thread;

use ciphertoll_model::ExitCode;
use ciphertoll_tde::cluster::{self, Condition};
use ciphertoll_tde::handshake::{HANDSHAKE_FD, MESSAGE_BYTES, Message, Said};
use ciphertoll_tde::{Engine, Format, Kek, KeyFile, PRELOAD_LIBRARY, Replace};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, recv, shutdown, socketpair};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, getpgrp, tcgetpgrp};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::{ClusterArguments, KeyArguments, host, refused};
use crate::failure::Failure;
use crate::progress::tell;

const FORWARDED: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
/// What a terminal sends to every process in its foreground group, and so to the program as well.
const FROM_TERMINAL: [i32; 2] = [SIGINT, SIGQUIT];
/// What shells add to the number of a signal that ended a command.
const BY_SIGNAL: i32 = 128;
const SET_ID: u32 = 0o6000;

/// A cluster and its keys, before the program runs.
pub(super) struct Prepared {
    data: PathBuf,
    keys: PathBuf,
    format: Format,
    engine: Engine,
    kek: Kek,
}

/// Runs the program and answers as it did, unless what it did was not done under the library.
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
    let mut command = Command::new(find(name)?);
    command.args(arguments);
    let (data, keys) = (cluster.data()?, cluster.keys()?);
    let file = KeyFile::load(&keys).map_err(|error| refused(&error))?;
    Prepared::new(data, keys, &file, key.read()?)?.run(command, name, library)
}

/// The library that was named, or the one beside this program.
pub(super) fn find_library(library: Option<&Path>) -> Result<PathBuf, Failure> {
    let library = library.map_or_else(beside, |path| Ok(path.to_owned()))?;
    let library = fs::canonicalize(&library).map_err(|error| host(&library, &error))?;
    File::open(&library).map_err(|error| host(&library, &error))?;
    Ok(library)
}

fn unprotected(line: String) -> Failure {
    Failure::new(ExitCode::HostResource, line)
}

/// The program's path. One that is set-uid or set-gid is refused: the loader drops the library there.
fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    let not_found = || host(Path::new(name), &io::ErrorKind::NotFound.into());
    let is_program = |metadata: &Metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
    let found = |path: PathBuf| fs::metadata(&path).ok().filter(is_program).map(|metadata| (path, metadata));
    let (path, metadata) = if name.as_encoded_bytes().contains(&b'/') {
        found(name.into()).ok_or_else(not_found)?
    } else {
        let places = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&places).find_map(|place| found(place.join(name))).ok_or_else(not_found)?
    };
    if metadata.mode() & SET_ID != 0 {
        return Err(Failure::usage(format!(
            "{} is set-uid or set-gid: the loader would drop the library; use runuser or setpriv to change the user",
            path.display()
        )));
    }
    Ok(path)
}

impl Prepared {
    /// Says what is wrong here, where it is one line, and not by a server in its log.
    pub(super) fn new(data: PathBuf, keys: PathBuf, file: &KeyFile, kek: Kek) -> Result<Self, Failure> {
        let unwrapped = file.unwrap(&kek).map_err(|error| refused(&error))?;
        require_cipher(&keys, file)?;
        let engine = Engine::new(unwrapped).map_err(|error| refused(&error))?;
        let mut prepared = Self { data, keys, format: file.format(), engine, kek };
        let condition = prepared.examine()?;
        match condition {
            Condition::Unsealed(_) if prepared.format == Format::MayBeUnsealed => {
                upgrade(&mut prepared, file)?;
            }
            _ => {
                if let Some(why) = condition.refusal(&prepared.data, prepared.format) {
                    return Err(Failure::usage(why));
                }
            }
        }
        Ok(prepared)
    }

    /// Runs a program under the library. Answers its exit code if what it did was done there.
    pub(super) fn run(mut self, mut command: Command, name: &OsStr, library: PathBuf) -> Result<u8, Failure> {
        let was_empty = is_empty(&self.data);
        command.env("LD_PRELOAD", preloaded(library));
        command.env("CIPHERTOLL_TDE_DATA", &self.data).env("CIPHERTOLL_TDE_KEYS", &self.keys);
        command.env_remove("CIPHERTOLL_TDE_KEK_FILE").env_remove("CIPHERTOLL_TDE_KEK_COMMAND");
        let descriptor = in_memory(&self.kek).map_err(|error| host(Path::new("a file in memory"), &error))?;
        command.env("CIPHERTOLL_TDE_KEK_FD", descriptor.as_raw_fd().to_string());
        let (status, messages, process) = run(&mut command, name)?;
        drop(descriptor);
        let code = status.code().unwrap_or_else(|| BY_SIGNAL + status.signal().unwrap_or_default());
        tell_refusals(&messages);
        check(&mut self, was_empty)?;
        let is_loaded = |message: &Message| message.process == process && message.said == Said::Loaded;
        if !messages.iter().any(is_loaded) {
            return Err(unprotected(format!(
                "{} ran without the library, which the loader could not load into it: it had no keys",
                name.display()
            )));
        }
        Ok(u8::try_from(code).unwrap_or(u8::MAX))
    }

    fn examine(&mut self) -> Result<Condition, Failure> {
        cluster::examine(&self.data, &mut self.engine).map_err(|error| refused(&error))
    }
}

/// Refuses keys for measurements.
pub(super) fn require_cipher(keys: &Path, file: &KeyFile) -> Result<(), Failure> {
    if file.strength().encrypts() {
        return Ok(());
    }
    let message = "its cipher is null, which is for measuring: nothing would be encrypted";
    Err(Failure::usage(format!("{}: {message}", keys.display())))
}

/// Seals a cluster of an earlier version. From then on its key file says that it is.
fn upgrade(prepared: &mut Prepared, file: &KeyFile) -> Result<(), Failure> {
    cluster::seal(&prepared.data, &mut prepared.engine).map_err(|error| refused(&error))?;
    let sealed = file.in_format(Format::Sealed, &prepared.kek).map_err(|error| refused(&error))?;
    sealed.store(&prepared.keys, Replace::Atomically).map_err(|error| refused(&error))?;
    prepared.format = Format::Sealed;
    tell(&format!(
        "{}: sealed; an earlier version of ciphertoll encrypted it. Keep a copy of {}, which has changed",
        prepared.data.display(),
        prepared.keys.display()
    ));
    Ok(())
}

fn is_empty(data: &Path) -> bool {
    fs::read_dir(data)
        .map_or_else(|error| error.kind() == io::ErrorKind::NotFound, |mut entries| entries.next().is_none())
}

/// What is in the data directory now must be encrypted and sealed. What this command made and is not, is removed.
fn check(prepared: &mut Prepared, was_empty: bool) -> Result<(), Failure> {
    let condition = prepared.examine()?;
    let Some(why) = condition.refusal(&prepared.data, prepared.format) else { return Ok(()) };
    let is_clear = matches!(condition, Condition::Plain | Condition::Unsealed(_));
    if !was_empty || !is_clear || cluster::running_server(&prepared.data).is_some() {
        return Err(unprotected(format!("{why}; the program ran without the library")));
    }
    let data = &prepared.data;
    let entries = fs::read_dir(data).map_err(|error| host(data, &error))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_directory = path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
        let removed = if is_directory { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(|error| host(&path, &error))?;
    }
    Err(unprotected(format!(
        "{why}, since the program ran without the library; what it made there was removed"
    )))
}

/// What it said and what said it, and how it ended.
fn run(command: &mut Command, name: &OsStr) -> Result<(ExitStatus, Vec<Message>, u32), Failure> {
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
        // Not reaped yet, so that the process ID is certainly its own while signals are forwarded.
        let ended = waitid(Id::Pid(process), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        handle.close();
        drop(forwarding.join());
        // What was sent before is still received; servers that go on say nothing more.
        let stopped = shutdown(ours.as_raw_fd(), Shutdown::Both);
        ended.and(stopped).map_err(io::Error::from).and_then(|()| child.wait())
    });
    drop(sender);
    Ok((status.map_err(failed)?, messages.into_iter().collect(), child.id()))
}

fn receive(socket: &OwnedFd, messages: &mpsc::Sender<Message>) {
    let mut packet = [0; MESSAGE_BYTES];
    loop {
        match recv(socket.as_fd().as_raw_fd(), &mut packet, MsgFlags::empty()) {
            Err(nix::Error::EINTR) => {}
            Ok(0) | Err(_) => return,
            Ok(count) => {
                if let Some(message) = Message::decode(&packet[..count]) {
                    // The receiver outlives this thread.
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
        // It may have ended already.
        let _ = kill(process, signal);
    }
}

/// What programs said where nobody reads it: a server's standard error may be its log.
fn tell_refusals(messages: &[Message]) {
    let own = fs::metadata("/proc/self/fd/2").map(|metadata| (metadata.dev(), metadata.ino())).ok();
    for message in messages {
        if let Said::Refused { stderr, why } = &message.said
            && Some(*stderr) != own
        {
            tell(&format!("ciphertoll-tde: refused: {why}"));
        }
    }
}

/// A file that is nowhere but in memory, and that the program inherits.
fn in_memory(kek: &Kek) -> io::Result<File> {
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

fn beside() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe().map_err(|error| host(Path::new("this program"), &error))?;
    let library = program.with_file_name(PRELOAD_LIBRARY);
    if !library.exists() {
        let message = format!(
            "{} is missing: `cargo build -p ciphertoll-tde-preload` makes it, --library names another",
            library.display()
        );
        return Err(Failure::new(ExitCode::HostResource, message));
    }
    Ok(library)
}
