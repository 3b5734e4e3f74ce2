//! The child's side of every start: a fresh process of our own binary, with one thread, that arranges itself and becomes
//! the program that it was asked for.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ciphertoll_model::Namespace;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, unshare};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Pid, getppid, setgid, setgroups, setuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set, set_capabilities,
};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::user::ServerUser;

/// The hidden command that must lead to [`run_exec_helper`].
pub const EXEC_COMMAND: &str = "__exec";

/// What a child may read and write beyond its owner: nothing.
const CHILD_UMASK: u32 = 0o077;

/// What the helper is told, as JSON in its one argument. Everybody can read it: no secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecRequest {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its whole environment.
    pub environment: BTreeMap<String, String>,
    /// Where it runs.
    pub directory: PathBuf,
    /// As whom it runs, where not as the caller.
    pub user: Option<ServerUser>,
    /// The processors that it keeps to; all, where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processors: Option<Vec<u16>>,
    /// The network that it joins; its caller's, where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// What it gets beside.
    #[serde(default)]
    pub provisions: Provisions,
    /// Who must still be the parent once the parent-death signal is armed.
    pub expected_parent: i32,
}

/// What a process gets beside what every one does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provisions {
    /// What it reads.
    pub stdin: Stdin,
    /// What it may do although it is not root.
    pub rights: Rights,
    /// A `/run` of its own, empty but for these directories; the machine's, where absent.
    pub run: Option<Vec<String>>,
    /// In whose shared memory it makes its segments.
    pub shared_memory: SharedMemory,
    /// Variables whose values are what these files hold: secrets, which are not among arguments. Read before root is
    /// given up.
    pub secrets: BTreeMap<String, PathBuf>,
}

/// What a process reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// Nothing.
    #[default]
    Empty,
    /// What ends when its parent does or stops it, and not before.
    Held,
    /// The one connection that is made to this address, which it writes to, too.
    Connection(SocketAddr),
}

/// In whose shared memory, System V's and POSIX's, a process makes its segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedMemory {
    /// The machine's: of a process that was killed they stay.
    #[default]
    Machines,
    /// Its own, and its children's: they go with the last of them, however it ends. The machine's all the same where we
    /// may not have any other.
    Own,
}

/// What a process may do although it is not root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rights {
    /// Nothing.
    #[default]
    None,
    /// What has to do with the network that it is in (`CAP_NET_ADMIN`).
    Network,
}

/// The child's side: becomes the program that `argument`, an [`ExecRequest`], asks for. Returns only
/// where that fails; the caller prints the error, which goes to the child's log, and exits.
pub fn run_exec_helper(argument: &str) -> Error {
    let request: ExecRequest = match serde_json::from_str(argument) {
        Ok(request) => request,
        Err(error) => {
            return Error::Exec { program: EXEC_COMMAND.into(), reason: format!("not a request: {error}") };
        }
    };
    let failed = |step: &str, error: io::Error| Error::Exec {
        program: request.program.clone(),
        reason: format!("{step}: {error}"),
    };
    // First, as who has given up root may not.
    if let Some(namespace) = &request.namespace
        && let Err(error) = ciphertoll_link::join(namespace)
    {
        return failed("join the link's network", error);
    }
    if let Some(directories) = &request.provisions.run
        && let Err(error) = have_own_run(directories)
    {
        return failed("have a /run of its own", error);
    }
    if request.provisions.shared_memory == SharedMemory::Own
        && let Err(error) = have_own_shared_memory()
        && error.kind() != io::ErrorKind::PermissionDenied
    {
        return failed("have shared memory of its own", error);
    }
    if let Some(processors) = &request.processors
        && let Err(errno) = keep_to(processors)
    {
        return failed(&format!("keep to the processors {processors:?}"), errno.into());
    }
    let secrets = match read_secrets(&request.provisions.secrets) {
        Ok(secrets) => secrets,
        Err(error) => return failed("read a secret", error),
    };
    if let Some(user) = request.user
        && let Err(errno) = become_user(user)
    {
        return failed("give up root", errno.into());
    }
    if request.provisions.rights == Rights::Network
        && let Err(error) = keep_rights(CapabilitySet::NET_ADMIN)
    {
        return failed("keep its rights", error);
    }
    umask(Mode::from_bits_truncate(CHILD_UMASK));
    // Armed after the change of user, which clears it.
    if let Err(errno) = prctl::set_pdeathsig(Signal::SIGKILL) {
        return failed("arm the parent-death signal", errno.into());
    }
    // Compared after arming: a parent that died before sends no signal any more.
    if getppid() != Pid::from_raw(request.expected_parent) {
        return failed("look at the parent", io::Error::other("it is gone"));
    }
    let mut command = Command::new(&request.program);
    command.args(&request.arguments).env_clear().envs(&request.environment).envs(secrets);
    command.current_dir(&request.directory);
    if let Stdin::Connection(address) = request.provisions.stdin {
        match connection(address) {
            Ok([reads, writes]) => command.stdin(reads).stdout(writes),
            Err(error) => return failed(&format!("be connected to on {address}"), error),
        };
    }
    failed("exec", command.exec())
}

fn read_secrets(files: &BTreeMap<String, PathBuf>) -> io::Result<Vec<(&String, OsString)>> {
    files.iter().map(|(name, file)| Ok((name, OsString::from_vec(fs::read(file)?)))).collect()
}

/// What is inherited by every thread and child that comes after.
fn keep_to(processors: &[u16]) -> nix::Result<()> {
    const OURSELVES: Pid = Pid::from_raw(0);
    let mut set = CpuSet::new();
    processors.iter().try_for_each(|&processor| set.set(usize::from(processor)))?;
    sched_setaffinity(OURSELVES, &set)
}

fn become_user(user: ServerUser) -> nix::Result<()> {
    setgroups(&[user.group_id()])?;
    setgid(user.group_id())?;
    setuid(user.user_id())
}

/// Mounts of its own, and in them an empty `/run`: what programs put there by custom is seen by nobody else, and is gone
/// with them.
fn have_own_run(directories: &[String]) -> io::Result<()> {
    const RUN: &str = "/run";
    unshare(CloneFlags::CLONE_NEWNS)?;
    have_own_mount(RUN, "mode=0755")?;
    directories.iter().try_for_each(|name| fs::create_dir(Path::new(RUN).join(name)))
}

/// Segments of System V's kind are in a namespace, those of POSIX's are files.
fn have_own_shared_memory() -> io::Result<()> {
    const POSIX: &str = "/dev/shm";
    unshare(CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWNS)?;
    if Path::new(POSIX).is_dir() { have_own_mount(POSIX, "mode=1777") } else { Ok(()) }
}

/// An empty file system in memory that nobody sees who is not in our mounts. What others unmount, such as another run its
/// servers' file systems, goes from here, too.
fn have_own_mount(directory: &str, mode: &str) -> io::Result<()> {
    const NONE: Option<&str> = None;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    Ok(mount(Some("tmpfs"), directory, Some("tmpfs"), flags, Some(mode))?)
}

/// What it may do now, whom it turns into may do, too.
fn keep_rights(rights: CapabilitySet) -> io::Result<()> {
    let CapabilitySets { effective, permitted, inheritable } = capabilities(None)?;
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: inheritable | rights })?;
    Ok(configure_capability_in_ambient_set(rights, true)?)
}

/// Nobody else is listened to once somebody has connected.
fn connection(address: SocketAddr) -> io::Result<[OwnedFd; 2]> {
    let (stream, _) = TcpListener::bind(address)?.accept()?;
    Ok([stream.try_clone()?.into(), stream.into()])
}
