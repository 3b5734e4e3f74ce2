//! How this program gets to a host: a shell command there looks for a copy with the right SHA-256, receives one over
//! stdin if there is none, and becomes the agent.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::HostError;
use crate::agent::HOST_COMMAND;

/// What the shell command says before anything else, then `present` or `absent`. What login shells print before it is
/// skipped.
const MARKER: &str = "ciphertoll-bootstrap";
const PRESENT: &str = "present";
const ABSENT: &str = "absent";
/// A copy that no run has used for this long is removed when another one is received.
const KEPT_DAYS: u32 = 30;

/// This program as it is copied to hosts: its size and SHA-256.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    program: PathBuf,
    sha256: String,
    bytes: u64,
}

/// What the shell command found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announcement {
    Present,
    Absent,
}

/// Reads the line with the marker; `None` if it is another line.
pub(crate) fn announcement(line: &[u8]) -> Option<Announcement> {
    let line = std::str::from_utf8(line).ok()?.trim();
    match line.strip_prefix(MARKER)?.trim() {
        PRESENT => Some(Announcement::Present),
        ABSENT => Some(Announcement::Absent),
        _ => None,
    }
}

impl Bootstrap {
    pub fn of(program: &Path) -> Result<Self, HostError> {
        let failed = |source| HostError::File { path: program.to_owned(), source };
        let mut file = File::open(program).map_err(failed)?;
        let (mut hash, mut bytes) = (Sha256::new(), 0);
        let mut buffer = vec![0; 1 << 16];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => {
                    hash.update(&buffer[..read]);
                    bytes += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(Self { program: program.to_owned(), sha256: ciphertoll_host::hex::hex(&hash.finalize()), bytes })
    }

    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The program's bytes, for hosts without a copy.
    pub(crate) fn content(&self) -> Result<Arc<Vec<u8>>, HostError> {
        let content = std::fs::read(&self.program);
        content.map(Arc::new).map_err(|source| HostError::File { path: self.program.clone(), source })
    }

    /// A script for `sh -c`, on one line and without single quotes, so that every login shell passes it on when it is
    /// put between single quotes. Its first argument, if any, is a path at which the program may be, too: that of this
    /// machine, which a container or a namespace may share.
    ///
    /// A copy is trusted by its SHA-256 only, each time. A new one gets its name only once it is complete.
    pub(crate) fn script(&self) -> String {
        let Self { sha256, bytes, .. } = self;
        format!(
            "s={sha256}; \
             ok() {{ [ -x \"$1\" ] && [ \"$(sha256sum <\"$1\" 2>/dev/null | cut -c1-64)\" = $s ]; }}; \
             if [ -n \"$1\" ] && ok \"$1\"; then echo {MARKER} {PRESENT}; exec \"$1\" {HOST_COMMAND}; fi; \
             umask 077; d=${{XDG_CACHE_HOME:-$HOME/.cache}}/ciphertoll/hosts; f=$d/ciphertoll-$s; \
             if ok \"$f\"; then echo {MARKER} {PRESENT}; touch \"$f\" 2>/dev/null; \
             else mkdir -p \"$d\" || exit 1; \
             find \"$d\" \\( -name \"ciphertoll-*\" -o -name \"receiving-*\" \\) -mtime +{KEPT_DAYS} -exec rm -f {{}} + 2>/dev/null; \
             t=$(mktemp \"$d/receiving-XXXXXX\") || exit 1; trap \"rm -f \\\"$t\\\"\" EXIT; \
             echo {MARKER} {ABSENT}; head -c {bytes} >\"$t\" && chmod 700 \"$t\" || exit 1; \
             ok \"$t\" || {{ echo \"the copy of ciphertoll in $d is incomplete\" >&2; exit 1; }}; \
             mv -f \"$t\" \"$f\" || exit 1; trap - EXIT; \
             fi; exec \"$f\" {HOST_COMMAND}"
        )
    }
}

#[cfg(test)]
mod tests;
