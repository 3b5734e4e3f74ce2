//! The child's side of every start: a fresh single-threaded process of our own binary, which sets up its environment and
//! then executes the requested program.

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

/// The hidden command that must call [`run_exec_helper`].
pub const EXEC_COMMAND: &str = "__exec";

/// Files that a child creates are private to its user.
const CHILD_UMASK: u32 = 0o077;

/// The helper's one argument, as JSON. Every user can read it, so it must not contain secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecRequest {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// The complete environment; nothing is inherited.
    pub environment: BTreeMap<String, String>,
    pub directory: PathBuf,
    /// The user to switch to, if not the caller.
    pub user: Option<ServerUser>,
    /// CPU affinity; all processors if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processors: Option<Vec<u16>>,
    /// The network namespace to join; the caller's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    #[serde(default)]
    pub provisions: Provisions,
    /// The process that must still be the parent once the parent-death signal is armed.
    pub expected_parent: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provisions {
    pub stdin: Stdin,
    pub rights: Rights,
    /// Mounts a private `/run` that contains only these directories; the machine's `/run` if absent.
    pub run: Option<Vec<String>>,
    pub shared_memory: SharedMemory,
    /// Environment variables whose values are read from files, because secrets must not be among the arguments. The files
    /// are read before root is given up.
    pub secrets: BTreeMap<String, PathBuf>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    #[default]
    Empty,
    /// A pipe that stays open until the parent ends or stops the process.
    Held,
    /// The first connection to this address, as standard input and output.
    Connection(SocketAddr),
}

/// Where a process creates shared memory of System V and POSIX.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedMemory {
    /// In the machine's namespace: segments of a killed process remain.
    #[default]
    Machines,
    /// In a private namespace that ends with its last process. Without the right to create one, in the machine's.
    Own,
}

/// Privileges of a process that is not root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rights {
    #[default]
    None,
    /// Configure its network namespace (`CAP_NET_ADMIN`).
    Network,
}

/// Executes the program that `argument`, an [`ExecRequest`] in JSON, requests. Returns only on failure; the caller prints
/// the error, which goes to the child's log, and exits.
pub fn run_exec_helper(argument: &str) -> Error {
    let request: ExecRequest = match serde_json::from_str(argument) {
        Ok(request) => request,
        Err(error) => {
            return Error::Exec { program: EXEC_COMMAND.into(), reason: format!("not a request: {error}") };
        }
    };
    let (step, error) = match prepare(&request) {
        Ok(mut command) => ("exec".to_owned(), command.exec()),
        Err(failed) => failed,
    };
    Error::Exec { program: request.program, reason: format!("{step}: {error}") }
}

/// Changes this process into the requested environment. An error names the step that failed.
fn prepare(request: &ExecRequest) -> Result<Command, (String, io::Error)> {
    fn at<E: Into<io::Error>>(step: &str) -> impl FnOnce(E) -> (String, io::Error) {
        move |error| (step.to_owned(), error.into())
    }
    let Provisions { stdin, rights, run, shared_memory, secrets } = &request.provisions;
    // First: joining a namespace needs the privileges that are given up later.
    if let Some(namespace) = &request.namespace {
        ciphertoll_link::join(namespace).map_err(at("join the link's network"))?;
    }
    if let Some(directories) = run {
        mount_private_run(directories).map_err(at("mount a private /run"))?;
    }
    if *shared_memory == SharedMemory::Own
        && let Err(error) = unshare_shared_memory()
        && error.kind() != io::ErrorKind::PermissionDenied
    {
        return Err(at("create a namespace for shared memory")(error));
    }
    if let Some(processors) = &request.processors {
        set_affinity(processors).map_err(at(&format!("set the CPU affinity to {processors:?}")))?;
    }
    let secrets = read_secrets(secrets).map_err(at("read a secret"))?;
    if let Some(user) = request.user {
        become_user(user).map_err(at("give up root"))?;
    }
    if *rights == Rights::Network {
        keep_rights(CapabilitySet::NET_ADMIN).map_err(at("keep its capabilities"))?;
    }
    umask(Mode::from_bits_truncate(CHILD_UMASK));
    // After the change of user, which clears the signal.
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(at("arm the parent-death signal"))?;
    // After arming: a parent that died earlier sends no signal.
    if getppid() != Pid::from_raw(request.expected_parent) {
        return Err(at("check the parent process")(io::Error::other("it has ended")));
    }
    let mut command = Command::new(&request.program);
    command.args(&request.arguments).env_clear().envs(&request.environment).envs(secrets);
    command.current_dir(&request.directory);
    if let Stdin::Connection(address) = *stdin {
        let accepted = connection(address).map_err(at(&format!("accept a connection on {address}")));
        let [reads, writes] = accepted?;
        command.stdin(reads).stdout(writes);
    }
    Ok(command)
}

fn read_secrets(files: &BTreeMap<String, PathBuf>) -> io::Result<Vec<(&String, OsString)>> {
    files.iter().map(|(name, file)| Ok((name, OsString::from_vec(fs::read(file)?)))).collect()
}

/// Every later thread and child inherits the affinity.
fn set_affinity(processors: &[u16]) -> nix::Result<()> {
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

/// Mounts an empty `/run` in a private mount namespace: what programs put there is invisible to others and is removed
/// with the namespace.
fn mount_private_run(directories: &[String]) -> io::Result<()> {
    const RUN: &str = "/run";
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount_private_tmpfs(RUN, "mode=0755")?;
    directories.iter().try_for_each(|name| fs::create_dir(Path::new(RUN).join(name)))
}

/// System V shared memory belongs to an IPC namespace; POSIX shared memory consists of files.
fn unshare_shared_memory() -> io::Result<()> {
    const POSIX: &str = "/dev/shm";
    unshare(CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWNS)?;
    if Path::new(POSIX).is_dir() { mount_private_tmpfs(POSIX, "mode=1777") } else { Ok(()) }
}

/// Mounts an empty tmpfs that is visible in our mount namespace only. `MS_SLAVE` makes unmounts of others, such as of
/// another run's file systems, take effect here too.
fn mount_private_tmpfs(directory: &str, mode: &str) -> io::Result<()> {
    const NONE: Option<&str> = None;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    Ok(mount(Some("tmpfs"), directory, Some("tmpfs"), flags, Some(mode))?)
}

/// Passes capabilities on to the executed program.
fn keep_rights(rights: CapabilitySet) -> io::Result<()> {
    let CapabilitySets { effective, permitted, inheritable } = capabilities(None)?;
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: inheritable | rights })?;
    Ok(configure_capability_in_ambient_set(rights, true)?)
}

/// Accepts one connection and closes the listener.
fn connection(address: SocketAddr) -> io::Result<[OwnedFd; 2]> {
    let (stream, _) = TcpListener::bind(address)?.accept()?;
    Ok([stream.try_clone()?.into(), stream.into()])
}
