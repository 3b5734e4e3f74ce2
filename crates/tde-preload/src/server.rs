//! Reads the server's settings, to refuse those that would write plaintext.

#![expect(unsafe_code, reason = "reads variables that the server exports to extensions")]

use std::ffi::CStr;

use libc::{c_char, c_int, c_void};

/// `DSM_IMPL_MMAP`.
const DYNAMIC_SHARED_MEMORY_BY_FILES: c_int = 4;

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
    let shared_memory = exported(c"dynamic_shared_memory_type")?;
    // SAFETY: an `int` in every version that exports it; see above for threads.
    let shared_memory = unsafe { *shared_memory.cast::<c_int>() };
    (shared_memory == DYNAMIC_SHARED_MEMORY_BY_FILES).then_some(
        b"dynamic_shared_memory_type=mmap would write plaintext rows to pg_dynshmem: use posix or sysv"
            .as_slice(),
    )
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
