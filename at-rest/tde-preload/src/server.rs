//! Reads the server's settings, to refuse those that would write plaintext.

#![expect(unsafe_code, reason = "reads variables that the server exports to extensions")]

use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ciphertoll_tde::ClearFile;
use libc::{c_char, c_int, c_void};

use crate::raw;

/// `DSM_IMPL_MMAP`.
const DYNAMIC_SHARED_MEMORY_BY_FILES: c_int = 4;
/// `IOMETHOD_SYNC` and `IOMETHOD_WORKER`, which read and write through the C library.
const IO_METHODS: std::ops::RangeInclusive<c_int> = 0..=1;
/// The only target of a base backup that gets no plaintext from this server: the client encrypts it, or uses TLS.
const CLIENT: &[u8] = b"client";

fn exported(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a C string; returns an address or null.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

pub(crate) const ARCHIVE_LIBRARY: &[u8] =
    b"archive_library would archive plaintext: use archive_command, which copies ciphertext";

/// Whether an archive module is set. It would read plaintext WAL through this library and write it to an unencrypted
/// archive.
fn has_archive_library() -> bool {
    let Some(variable) = exported(c"XLogArchiveLibrary") else { return false };
    // SAFETY: `char *XLogArchiveLibrary` since version 15: null or a C string. PostgreSQL processes have one thread, so
    // it does not change meanwhile.
    let text = unsafe { *variable.cast::<*const c_char>() };
    // SAFETY: as above.
    !text.is_null() && !unsafe { CStr::from_ptr(text) }.is_empty()
}

/// Why the server must not start with its settings.
pub(crate) fn refused_setting() -> Option<&'static [u8]> {
    if has_archive_library() {
        return Some(ARCHIVE_LIBRARY);
    }
    // SAFETY: `int`s in every version that exports them; see above for threads.
    let number = |name| exported(name).map(|number| unsafe { *number.cast::<c_int>() });
    if number(c"dynamic_shared_memory_type") == Some(DYNAMIC_SHARED_MEMORY_BY_FILES) {
        return Some(
            b"dynamic_shared_memory_type=mmap would write plaintext rows to pg_dynshmem: use posix or sysv",
        );
    }
    // Since version 18.
    if number(c"io_method").is_some_and(|method| !IO_METHODS.contains(&method)) {
        return Some(
            b"io_method=io_uring would pass plaintext to the kernel without this library: use io_method=worker or \
              io_method=sync",
        );
    }
    None
}

/// The variables of a WAL sender: whether this process is one, and its command.
struct WalSender {
    is_one: usize,
    command: usize,
}

fn wal_sender() -> &'static WalSender {
    static SENDER: OnceLock<WalSender> = OnceLock::new();
    SENDER.get_or_init(|| {
        let address = |name| exported(name).map_or(0, <*mut c_void>::expose_provenance);
        WalSender { is_one: address(c"am_walsender"), command: address(c"debug_query_string") }
    })
}

/// Whether this process sends WAL or base backups.
pub(crate) fn is_wal_sender() -> bool {
    let flag = wal_sender().is_one;
    // SAFETY: `bool am_walsender`, which is one byte.
    flag != 0 && unsafe { *std::ptr::with_exposed_provenance::<u8>(flag) } != 0
}

/// Whether this process runs a base backup whose target is not its client. A module may add such targets at any time; they
/// get the pages in plaintext.
pub(crate) fn is_backup_for_others() -> bool {
    if !is_wal_sender() {
        return false;
    }
    let sender = wal_sender();
    if sender.command == 0 {
        // An unknown version, whose command cannot be seen.
        return true;
    }
    // SAFETY: `const char *debug_query_string`: null or a C string, which lives while the command runs.
    let command = unsafe { *std::ptr::with_exposed_provenance::<*const c_char>(sender.command) };
    // SAFETY: as above.
    !command.is_null() && has_other_target(unsafe { CStr::from_ptr(command) }.to_bytes())
}

/// Whether a replication command is a base backup with another target than the client, or one that cannot be parsed.
fn has_other_target(command: &[u8]) -> bool {
    let mut rest = command;
    if !next_token(&mut rest).is_some_and(|(_, first)| first.eq_ignore_ascii_case(b"base_backup")) {
        return false;
    }
    loop {
        match next_token(&mut rest) {
            Some((ReplicationToken::Word, name)) if name.eq_ignore_ascii_case(b"target") => {
                if !matches!(next_token(&mut rest), Some((ReplicationToken::Word | ReplicationToken::Text, target)) if target == CLIENT)
                {
                    return true;
                }
            }
            Some((ReplicationToken::End, _)) => return false,
            Some(_) => {}
            None => return true,
        }
    }
}

/// A token of a replication command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplicationToken {
    /// A keyword, a number or an identifier, also a quoted one.
    Word,
    /// A string.
    Text,
    Punctuation,
    End,
}

/// The next token and its content. `None` if there is no valid one.
fn next_token<'a>(rest: &mut &'a [u8]) -> Option<(ReplicationToken, &'a [u8])> {
    let text = rest.trim_ascii_start();
    let Some(&first) = text.first() else { return Some((ReplicationToken::End, text)) };
    let (token, start, length, end) = match first {
        b'\'' | b'"' => {
            let inside = text.get(1..)?;
            let mut length = 0;
            loop {
                length += inside.get(length..)?.iter().position(|&byte| byte == first)?;
                if inside.get(length + 1) != Some(&first) {
                    break;
                }
                // A doubled quote stands for one.
                length += 2;
            }
            (
                if first == b'"' { ReplicationToken::Word } else { ReplicationToken::Text },
                1,
                length,
                length + 2,
            )
        }
        b'(' | b')' | b',' | b';' => (ReplicationToken::Punctuation, 0, 1, 1),
        _ => {
            let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || !byte.is_ascii();
            let length = text.iter().take_while(|byte| is_part(byte)).count();
            (ReplicationToken::Word, 0, Some(length).filter(|&length| length > 0)?, length)
        }
    };
    *rest = text.get(end..)?;
    Some((token, text.get(start..start + length)?))
}

/// Says that a file in the data directory is stored in plaintext, unless it is PostgreSQL's own; once, as long as the process
/// creates no other one.
pub(crate) fn report_unknown(below: &[u8]) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    let name = below.iter().fold(0xCBF2_9CE4_8422_2325, step);
    let is_log = || {
        let first = below.split(|&byte| byte == b'/').next().unwrap_or_default();
        log_directory().is_some_and(|logs| logs == first)
    };
    if ClearFile::of(below) == ClearFile::Other && !is_log() && LAST.swap(name, Ordering::Relaxed) != name {
        raw::print_error(&[
            b"ciphertoll-tde: warning: ",
            below,
            b" in the data directory is not a file of PostgreSQL: it is stored in plaintext\n",
        ]);
    }
}

/// The setting `log_directory`.
fn log_directory() -> Option<&'static [u8]> {
    let variable = exported(c"Log_directory")?;
    // SAFETY: `char *Log_directory`: null or a C string, which a later setting may free; the result is used at once.
    let text = unsafe { *variable.cast::<*const c_char>() };
    // SAFETY: as above.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Whether this process is the archiver, with an archive module that was set after the server started.
pub(crate) fn is_archive_module() -> bool {
    if !has_archive_library() {
        return false;
    }
    let (Some(kind), Some(describe)) = (exported(c"MyBackendType"), exported(c"GetBackendTypeDesc")) else {
        // An unknown version: assume that every process is an archive module.
        return true;
    };
    // SAFETY: `const char *GetBackendTypeDesc(BackendType)` since version 10; an enumeration is an `int`. The function
    // reads its argument and returns a constant C string.
    let description = unsafe {
        let describe: extern "C" fn(c_int) -> *const c_char = std::mem::transmute(describe);
        CStr::from_ptr(describe(*kind.cast::<c_int>()))
    };
    description == c"archiver"
}

/// Whether this is a file that a server creates for `BASE_BACKUP (TARGET 'server')`: a tar archive outside the cluster.
/// Nothing else in a server creates a file like this.
pub(crate) fn is_backup_target(path: &[u8], flags: c_int) -> bool {
    let makes = libc::O_CREAT | libc::O_EXCL;
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    flags & makes == makes && name.windows(4).any(|part| part == b".tar")
}
