//! Which program this library was loaded into.

#![expect(unsafe_code, reason = "symbols of the program are looked up through the loader")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

/// As much of a command line as is looked at: the first arguments.
const COMMAND_LINE_BYTES: u64 = 65_536;

/// What a program is to encrypted files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramRole {
    /// The server: has the keys, and gives them to none of its children.
    Server,
    /// A tool that reads or writes a cluster's files itself.
    Tool,
    /// A program that reads or writes a few of a cluster's files, and starts servers that need the keys as well.
    Launcher,
    /// The one that writes a base backup, which becomes an encrypted cluster.
    Backup,
    /// A program that copies a cluster's files as they are on disk, and reads `pg_control` itself.
    Copier,
    /// A tool that would damage an encrypted cluster, or write its data elsewhere in clear.
    Unfit(&'static str),
    /// None that has to do with a cluster's files: shells, clients.
    Other,
}

impl ProgramRole {
    /// This one.
    pub(crate) fn running() -> Self {
        let Ok(path) = fs::read_link("/proc/self/exe") else { return Self::Other };
        let name = path.file_name().map(OsStr::as_bytes).unwrap_or_default();
        // A server is one under any name.
        let name = if is_server() { b"postgres" } else { name };
        Self::of(name, &command_line())
    }

    fn of(name: &[u8], command_line: &[u8]) -> Self {
        let unfit = ["pg_combinebackup", "pg_receivewal", "pg_rewind", "pg_upgrade"];
        if let Some(unfit) = unfit.into_iter().find(|unfit| unfit.as_bytes() == name) {
            return Self::Unfit(unfit);
        }
        // initdb and pg_ctl ask servers so, where there is no cluster yet.
        if asks(command_line) {
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

/// Whether this command of pgBackRest reads `pg_control`. The processes that it starts to copy files (`backup:local`) have
/// to copy that file as it is on disk, and so has `restore`.
fn reads_control(command_line: &[u8]) -> bool {
    let mut arguments = command_line.split(|&byte| byte == 0).skip(1);
    let command = arguments.find(|argument| !argument.starts_with(b"-")).unwrap_or_default();
    matches!(
        command,
        b"archive-get" | b"archive-get:async" | b"backup" | b"check" | b"stanza-create" | b"stanza-upgrade"
    )
}

/// Whether this program has the main function of a PostgreSQL server, which exports it to its extensions.
fn is_server() -> bool {
    // SAFETY: a string of C; the answer is compared and not followed.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"PostmasterMain".as_ptr()) }.is_null()
}

/// Whether a program is only to say something about itself.
fn asks(command_line: &[u8]) -> bool {
    let first = command_line.split(|&byte| byte == 0).nth(1).unwrap_or_default();
    matches!(first, b"-V" | b"--version" | b"-?" | b"--help" | b"--describe-config")
}

/// This program's name and arguments, a NUL after each.
pub(crate) fn command_line() -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open("/proc/self/cmdline") {
        // Less of it is looked at as if there were no more.
        drop(file.take(COMMAND_LINE_BYTES).read_to_end(&mut bytes));
    }
    bytes
}
