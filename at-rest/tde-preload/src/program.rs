//! Detects the program that loaded this library.

#![expect(unsafe_code, reason = "looks up symbols of the program")]

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;

/// How a program uses encrypted files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramRole {
    /// The server. It does not pass the keys on to programs that it starts.
    Server,
    /// A tool that reads or writes a cluster's files.
    Tool,
    /// A program that accesses some of a cluster's files and starts servers, which also need the keys.
    Launcher,
    /// `pg_basebackup`, whose result is an encrypted cluster.
    Backup,
    /// A program that copies a cluster's files as ciphertext, and only reads `pg_control`.
    Copier,
    /// A tool that would damage an encrypted cluster, or write plaintext elsewhere.
    Unsupported(&'static str),
    /// A program that does not access a cluster's files, such as a shell or a client.
    Other,
}

impl ProgramRole {
    pub(crate) fn running() -> Self {
        let path = fs::read_link("/proc/self/exe").unwrap_or_default();
        let name = path.file_name().map(OsStr::as_bytes).unwrap_or_default();
        // A server may have another name.
        let name = if is_server() { b"postgres" } else { name };
        // Without it, a program gets no keys that it would get with some arguments only.
        Self::of(name, &command_line().unwrap_or_default())
    }

    fn of(name: &[u8], command_line: &[u8]) -> Self {
        let unsupported = ["pg_combinebackup", "pg_receivewal", "pg_rewind", "pg_upgrade"];
        if let Some(tool) = unsupported.into_iter().find(|tool| tool.as_bytes() == name) {
            return Self::Unsupported(tool);
        }
        // initdb and pg_ctl call servers like this before a cluster exists.
        if only_prints_information(command_line) {
            return Self::Other;
        }
        match name {
            b"postgres" | b"postmaster" => Self::Server,
            b"initdb" | b"pg_ctl" => Self::Launcher,
            b"pg_checksums" | b"pg_controldata" | b"pg_waldump" | b"pg_resetwal" | b"pg_verifybackup" => {
                Self::Tool
            }
            b"pg_basebackup" => Self::Backup,
            b"pgbackrest" if reads_control(command_line) => Self::Copier,
            _ => Self::Other,
        }
    }
}

/// Whether this command of pgBackRest reads `pg_control`. `restore` and the processes that copy files (`backup:local`) must
/// copy its ciphertext instead.
fn reads_control(command_line: &[u8]) -> bool {
    let mut arguments = command_line.split(|&byte| byte == 0).skip(1);
    let command = arguments.find(|argument| !argument.starts_with(b"-")).unwrap_or_default();
    matches!(
        command,
        b"archive-get" | b"archive-get:async" | b"backup" | b"check" | b"stanza-create" | b"stanza-upgrade"
    )
}

/// Whether this program exports the main function of a PostgreSQL server, which every server does for its extensions.
fn is_server() -> bool {
    // SAFETY: a C string; the address is not used.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"PostmasterMain".as_ptr()) }.is_null()
}

/// Whether the program only prints its version or its help.
fn only_prints_information(command_line: &[u8]) -> bool {
    let first = command_line.split(|&byte| byte == 0).nth(1).unwrap_or_default();
    matches!(first, b"-V" | b"--version" | b"-?" | b"--help" | b"--describe-config")
}

/// This program's name and arguments, each followed by a NUL. The whole: a part could hide a target of a base backup.
pub(crate) fn command_line() -> io::Result<Vec<u8>> {
    fs::read("/proc/self/cmdline")
}
