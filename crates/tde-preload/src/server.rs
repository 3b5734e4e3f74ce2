//! What the server's own variables say: settings that would move plaintext past this library.

#![expect(unsafe_code, reason = "the server exports its variables to extensions, and so to this library")]

use std::ffi::CStr;

use libc::{c_char, c_int, c_void};

/// `DSM_IMPL_MMAP`.
const DYNAMIC_SHARED_MEMORY_BY_FILES: c_int = 4;

/// What the server exports under a name.
fn exported(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a string of C; the loader answers with an address or with none.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// Whether an archive module is set. It reads the log through this library, and writes what it read to an archive that
/// this library does not know.
fn has_archive_library() -> bool {
    let Some(variable) = exported(c"XLogArchiveLibrary") else { return false };
    // SAFETY: `char *XLogArchiveLibrary` since version 15, which has the name: null or a string of C. PostgreSQL's
    // processes have one thread, and so nobody changes it meanwhile.
    let text = unsafe { *variable.cast::<*const c_char>() };
    // SAFETY: as above.
    !text.is_null() && !unsafe { CStr::from_ptr(text) }.is_empty()
}

/// A setting with which this server may not start.
pub(crate) fn refused_setting() -> Option<&'static [u8]> {
    if has_archive_library() {
        return Some(
            b"archive_library would write a plaintext archive: use archive_command, which copies ciphertext",
        );
    }
    let shared_memory = exported(c"dynamic_shared_memory_type")?;
    // SAFETY: an `int` in every version that has the name; see above for threads.
    let shared_memory = unsafe { *shared_memory.cast::<c_int>() };
    (shared_memory == DYNAMIC_SHARED_MEMORY_BY_FILES).then_some(
        b"dynamic_shared_memory_type=mmap would write rows in plaintext to pg_dynshmem: use posix or sysv"
            .as_slice(),
    )
}

/// Whether this process is the archiver and has got an archive module since the server started.
pub(crate) fn is_archive_module() -> bool {
    if !has_archive_library() {
        return false;
    }
    let (Some(kind), Some(describe)) = (exported(c"MyBackendType"), exported(c"GetBackendTypeDesc")) else {
        // A version that says it in another way: no process may read the log as an archive module would.
        return true;
    };
    // SAFETY: `const char *GetBackendTypeDesc(BackendType)` since version 10; an enumeration is an `int`. The function
    // reads its argument and answers with a constant string of C.
    let description = unsafe {
        let describe: extern "C" fn(c_int) -> *const c_char = std::mem::transmute(describe);
        CStr::from_ptr(describe(*kind.cast::<c_int>()))
    };
    description == c"archiver"
}

/// Whether this is a file that a server makes for `BASE_BACKUP (TARGET 'server')`: a tar archive outside of the cluster,
/// which nothing else in a server makes in this way.
pub(crate) fn is_backup_target(path: &[u8], flags: c_int) -> bool {
    let makes = libc::O_CREAT | libc::O_EXCL;
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    flags & makes == makes && name.windows(4).any(|part| part == b".tar")
}
