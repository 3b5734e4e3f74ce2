//! The TLS library of a server program, read from the program file.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use memchr::memmem;

/// `OpenSSL 3.0.19`, or `OpenSSL 3` if the file of a shared library is not found. `None` if the program names no known
/// library; then only the running server can report it.
pub(crate) fn linked_tls_library(program: &Path) -> Option<String> {
    let named = tls_library_in(&read(program)?)?;
    Some(shared_openssl(program).filter(|exact| exact.starts_with(&named)).unwrap_or(named))
}

/// The version in the `libcrypto` that the program's loader finds.
fn shared_openssl(program: &Path) -> Option<String> {
    const LIBRARY: &str = "libcrypto.so";
    // The program is not run: its loader lists the libraries.
    let output =
        Command::new(program).env("LD_TRACE_LOADED_OBJECTS", "1").stdin(Stdio::null()).output().ok()?;
    let listed = String::from_utf8_lossy(&output.stdout);
    let line = listed.lines().find(|line| line.trim_start().starts_with(LIBRARY))?;
    let file = line.split_once(" => ")?.1.split(" (0x").next()?;
    let version = digits_after(&read(Path::new(file))?, "OpenSSL ")?;
    Some(format!("OpenSSL {version}"))
}

/// `Go 1.26.8 crypto/tls`
pub(crate) fn go_tls_library(program: &Path) -> Option<String> {
    go_version_in(&read(program)?).map(|version| format!("Go {version} crypto/tls"))
}

fn read(program: &Path) -> Option<Vec<u8>> {
    /// Without debug symbols, no server is larger.
    const MAX_BYTES: u64 = 256 << 20;
    let mut bytes = Vec::new();
    File::open(program).ok()?.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// A program contains the file name of a shared library, and the version string of a static one.
fn tls_library_in(program: &[u8]) -> Option<String> {
    const SHARED_OPENSSL: &str = "libssl.so.";
    if let Some(version) = digits_after(program, SHARED_OPENSSL) {
        return Some(format!("OpenSSL {version}"));
    }
    if let Some(version) =
        digits_after(program, "wolfSSL ").or_else(|| digits_after(program, "libwolfssl.so."))
    {
        return Some(format!("wolfSSL {version}"));
    }
    digits_after(program, "OpenSSL ").map(|version| format!("OpenSSL {version}"))
}

/// Reads Go's build information: a magic number, a header, and the version with its length before it.
fn go_version_in(program: &[u8]) -> Option<String> {
    const MAGIC: &[u8] = b"\xff Go buildinf:";
    const HEADER_BYTES: usize = 32;
    const PREFIX: &str = "go1.";
    memmem::find_iter(program, MAGIC).find_map(|start| {
        let (length, text) = program.get(start + HEADER_BYTES..)?.split_first()?;
        let version = std::str::from_utf8(text.get(..usize::from(*length))?).ok()?;
        let version = version.split_ascii_whitespace().next()?;
        version.starts_with(PREFIX).then(|| version.trim_start_matches("go").to_owned())
    })
}

/// The number, possibly with dots, after the first `name` that a number follows.
fn digits_after(program: &[u8], name: &str) -> Option<String> {
    const LONGEST: usize = 12;
    let name = name.as_bytes();
    let after = memmem::find_iter(program, name).map(|start| &program[start + name.len()..]);
    after.into_iter().find_map(|rest| {
        let part = |byte: &&u8| byte.is_ascii_digit() || **byte == b'.';
        let number: String =
            rest.iter().take(LONGEST).take_while(part).map(|byte| char::from(*byte)).collect();
        number
            .starts_with(|first: char| first.is_ascii_digit())
            .then(|| number.trim_end_matches('.').to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tls_library_is_read_from_the_program() {
        let of = |text: &str| tls_library_in(text.as_bytes());
        assert_eq!(of("\0libz.so.1\0libssl.so.3\0OpenSSL 3.0.2 15 Mar 2022").as_deref(), Some("OpenSSL 3"));
        assert_eq!(of("libssl.so.1.1\0").as_deref(), Some("OpenSSL 1.1"));
        assert_eq!(of("wolfSSL error\0wolfSSL 5.7.2\0OpenSSL 1.1").as_deref(), Some("wolfSSL 5.7.2"));
        assert_eq!(of("needs OpenSSL or\0OpenSSL 3.0.2 15").as_deref(), Some("OpenSSL 3.0.2"));
        assert_eq!(of("libssl.so.x OpenSSL").as_deref(), None);
        let go =
            [b"OpenSSL 1\xff Go buildinf:\x08\x02" as &[u8], &[0; 16], b"\x08go1.26.8", b"\0mod"].concat();
        assert_eq!(go_version_in(&go).as_deref(), Some("1.26.8"));
        assert_eq!(go_version_in(&go[..go.len() - 6]), None);
    }
}
