//! Gives up rights that are no longer needed, and system calls.

use std::collections::BTreeMap;
use std::io;

use nix::errno::Errno;
use nix::libc;
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, geteuid, setgid, setgroups, setuid};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};

/// The user and group `nobody`.
const NOBODY: u32 = 65_534;

/// Becomes `nobody` if this is root, and keeps no capability and no way to get one. Descriptors stay open. To be called before
/// another thread starts.
pub fn give_up() -> io::Result<()> {
    prctl::set_no_new_privs()?;
    if geteuid().is_root() {
        become_nobody()?;
    }
    keep(CapabilitySet::empty())
}

/// Keeps the rights to read all of `/proc` and nothing else, and becomes `nobody` if root has them. Without them, it sees the
/// processes of its own user, and stays this user. To be called before another thread starts.
pub fn keep_reading() -> io::Result<()> {
    prctl::set_no_new_privs()?;
    // To see what descriptors of other users' processes are, and to list them.
    let wanted = CapabilitySet::SYS_PTRACE | CapabilitySet::DAC_READ_SEARCH;
    let kept = capabilities(None)?.permitted & wanted;
    if kept == wanted && geteuid().is_root() {
        prctl::set_keepcaps(true)?;
        become_nobody()?;
    }
    keep(kept)
}

fn become_nobody() -> io::Result<()> {
    // In a container, root may not have the right to, or the user may not exist. Then it remains root, without rights.
    for outcome in [setgroups(&[]), setgid(Gid::from_raw(NOBODY)), setuid(Uid::from_raw(NOBODY))] {
        if !matches!(outcome, Ok(()) | Err(Errno::EPERM | Errno::EINVAL)) {
            outcome?;
        }
    }
    Ok(())
}

fn keep(kept: CapabilitySet) -> io::Result<()> {
    let inheritable = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })?)
}

/// System calls of a process that reads and writes what is open, waits, and manages its own memory.
const CALLS: [libc::c_long; 38] = [
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    // Of a file that is open: to unlock the record.
    libc::SYS_flock,
    libc::SYS_close,
    libc::SYS_ppoll,
    libc::SYS_recvfrom,
    libc::SYS_getsockopt,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrusage,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_geteuid,
    libc::SYS_getuid,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_set_robust_list,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// More system calls of a process that reads files and directories by name.
const READING_CALLS: [libc::c_long; 4] =
    [libc::SYS_readlinkat, libc::SYS_getdents64, libc::SYS_newfstatat, libc::SYS_statx];

/// What a confined process can open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Openable {
    Nothing,
    /// Files and directories, to be read.
    ForReading,
}

/// From here on, no thread of this process can open, connect, start, trace or load anything: such calls fail with `EPERM`.
/// What is open can be read and written. It cannot be undone, nor escaped by a child: the process can start none.
pub fn confine() -> io::Result<()> {
    apply(Openable::Nothing)
}

/// The same, but files can be opened to be read.
pub fn confine_to_reading() -> io::Result<()> {
    apply(Openable::ForReading)
}

fn apply(openable: Openable) -> io::Result<()> {
    let program = confinement(openable).map_err(|error| io::Error::other(format!("seccomp: {error}")))?;
    apply_filter_all_threads(&program).map_err(|error| io::Error::other(format!("seccomp: {error}")))
}

fn confinement(openable: Openable) -> Result<BpfProgram, seccompiler::BackendError> {
    let equals =
        |argument, value| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
    let lacks = |argument, bits: u64| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bits), 0)
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        CALLS.into_iter().map(|call| (call, Vec::new())).collect();
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_poll, Vec::new());
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        // No memory becomes code.
        rules.insert(call, vec![SeccompRule::new(vec![lacks(2, libc::PROT_EXEC as u64)?])?]);
    }
    let terminal = [libc::TCGETS, libc::TIOCGWINSZ].map(|request| equals(1, request));
    let terminal: Result<Vec<_>, _> =
        terminal.into_iter().map(|condition| SeccompRule::new(vec![condition?])).collect();
    rules.insert(libc::SYS_ioctl, terminal?);
    if openable == Openable::ForReading {
        rules.extend(READING_CALLS.map(|call| (call, Vec::new())));
        #[cfg(target_arch = "x86_64")]
        rules.insert(libc::SYS_readlink, Vec::new());
        let writing = libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;
        rules.insert(libc::SYS_openat, vec![SeccompRule::new(vec![lacks(2, writing as u64)?])?]);
    }
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture)?.try_into()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::process::Command;
    use std::{fs, thread};

    use super::*;

    #[test]
    fn a_thread_that_may_read_opens_files_and_directories_and_writes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("read");
        fs::write(&path, "text").unwrap();
        std::os::unix::fs::symlink("socket:[1]", directory.path().join("link")).unwrap();
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = server.local_addr().unwrap();
        let own = path.clone();
        let confined = thread::spawn(move || {
            seccompiler::apply_filter(&confinement(Openable::ForReading).unwrap()).unwrap();
            assert_eq!(fs::read_to_string(&own).unwrap(), "text");
            let entries = fs::read_dir(own.parent().unwrap()).unwrap();
            assert_eq!(entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok()).count(), 1);
            let refused = [
                File::options().write(true).open(&own).err(),
                File::options().append(true).open(&own).err(),
                File::options().read(true).write(true).open(&own).err(),
                File::create(own.with_extension("new")).err(),
                fs::remove_file(&own).err(),
                TcpStream::connect(address).err(),
                Command::new("true").spawn().err(),
            ];
            refused.map(|error| error.and_then(|error| error.raw_os_error()))
        });
        assert_eq!(confined.join().unwrap(), [Some(libc::EPERM); 7]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
    }

    #[test]
    fn a_confined_thread_uses_what_is_open_and_opens_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("written");
        let mut file = File::create(&path).unwrap();
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = server.local_addr().unwrap();
        let own = path.clone();
        // Only this thread: the filter cannot be removed again.
        let confined = thread::spawn(move || {
            seccompiler::apply_filter(&confinement(Openable::Nothing).unwrap()).unwrap();
            let memory = vec![7_u8; 32 << 20];
            file.write_all(&memory[..1000]).unwrap();
            file.sync_all().unwrap();
            let refused = [
                File::open(&own).err(),
                File::create(own.with_extension("new")).err(),
                fs::remove_file(&own).err(),
                TcpStream::connect(address).err(),
                Command::new("true").spawn().err(),
            ];
            refused.map(|error| error.and_then(|error| error.raw_os_error()))
        });
        assert_eq!(confined.join().unwrap(), [Some(libc::EPERM); 5]);
        assert_eq!(fs::read(&path).unwrap(), [7; 1000]);
    }
}
