//! External programs: where they are installed, and which package provides them.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Error;

/// Directories of server programs, which are not on an ordinary user's PATH.
const SYSTEM_DIRECTORIES: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Advice for installing a package: a command if `apt-get` is installed, else the package's name.
pub fn how_to_install(package: &str) -> String {
    match search("apt-get") {
        Some(_) => format!("apt-get install {package}"),
        None => format!("install the Debian package {package}, or its equivalent"),
    }
}

/// Searches PATH and [`SYSTEM_DIRECTORIES`]. Relative entries of PATH are ignored: they would run a program of the
/// current directory.
pub fn search(program: &str) -> Option<PathBuf> {
    search_in(&env::var_os("PATH").unwrap_or_default(), program)
}

fn search_in(path: &OsStr, program: &str) -> Option<PathBuf> {
    const ANY_EXECUTE: u32 = 0o111;
    let on_path = env::split_paths(path).filter(|directory| directory.is_absolute());
    let mut candidates =
        on_path.chain(SYSTEM_DIRECTORIES.iter().map(PathBuf::from)).map(|directory| directory.join(program));
    candidates.find(|candidate| {
        fs::metadata(candidate)
            .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & ANY_EXECUTE != 0)
    })
}

/// The sidecar's program name.
pub const SIDECAR: &str = "ciphertoll-proxy";

/// Searches the sidecar in the directory of `program`, as both are built and installed together, then on PATH.
pub fn find_sidecar(program: &Path) -> Result<PathBuf, Error> {
    /// Cargo puts tests and examples into these subdirectories.
    const BELOW: [&str; 2] = ["deps", "examples"];
    let directory = program.parent().unwrap_or(Path::new("/"));
    let is_below = directory.file_name().is_some_and(|name| BELOW.iter().any(|below| name == *below));
    let beside = if is_below { directory.parent().unwrap_or(directory) } else { directory }.join(SIDECAR);
    if beside.is_file() {
        return Ok(beside);
    }
    find_or(SIDECAR, || {
        format!(
            "it is part of ciphertoll and belongs in the same directory: run `cargo build -p {SIDECAR}`, with --release \
             if ciphertoll was built with it"
        )
    })
}

/// Searches a program that no package of Debian provides.
pub fn find_or(program: &'static str, how_to_get: impl FnOnce() -> String) -> Result<PathBuf, Error> {
    search(program).ok_or_else(|| Error::ProgramMissing { program, how_to_get: how_to_get() })
}

/// The first of `programs` that is installed; the error names the package.
pub fn find(programs: &[&'static str], package: &str) -> Result<PathBuf, Error> {
    programs.iter().find_map(|program| search(program)).ok_or_else(|| Error::ProgramMissing {
        program: programs.first().copied().unwrap_or_default(),
        how_to_get: how_to_install(package),
    })
}

/// Runs a program with `arguments` and extracts its version. Files that it writes go to `directory`.
pub fn version_of(program: &Path, arguments: &[&str], directory: &Path) -> Result<String, String> {
    let mut command = Command::new(program);
    // Some programs write usage statistics, which must not go to the user's directories.
    command.env("XDG_CONFIG_HOME", directory).env("TMPDIR", directory).args(arguments).stdin(Stdio::null());
    let output = command.output();
    let output = output.map_err(|error| error.to_string())?;
    let texts = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    texts.iter().find_map(|text| version_in(text)).ok_or_else(|| output.status.to_string())
}

/// The first line that contains a number with a dot, without parts in parentheses.
fn version_in(text: &str) -> Option<String> {
    const LONGEST: usize = 48;
    let has_version = |line: &str| {
        let bytes = line.as_bytes();
        bytes
            .windows(3)
            .any(|three| three[0].is_ascii_digit() && three[1] == b'.' && three[2].is_ascii_digit())
    };
    let lines: Vec<String> = text.lines().map(|line| without_parentheses(&without_colours(line))).collect();
    let line = lines.iter().find(|line| has_version(line))?;
    let line = line.split([',', ';']).next().unwrap_or(line).trim_start_matches("[.] ");
    let line = line.split(" - ").next().unwrap_or(line);
    let short: String = line.chars().filter(|letter| !letter.is_control()).take(LONGEST).collect();
    Some(short.trim().to_owned())
}

/// Some programs print colours even without a terminal.
fn without_colours(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    // An escape sequence ends with its first letter.
    let rest =
        |part: &str| part.split_once(|end: char| end.is_ascii_alphabetic()).map(|(_, rest)| rest.to_owned());
    first + &parts.filter_map(rest).collect::<String>()
}

/// Removes build details, which are too long for a table.
fn without_parentheses(line: &str) -> String {
    let mut depth = 0_u32;
    let mut kept = String::new();
    for letter in line.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            letter if depth == 0 => kept.push(letter),
            _ => {}
        }
    }
    kept.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The numbers of `10.11.19`, for comparison; 0 for a part that is not a number.
pub fn version_numbers(version: &str) -> Vec<u32> {
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sidecar_is_found_in_the_directory_of_the_program() {
        let place = tempfile::tempdir().unwrap();
        let sidecar = place.path().join(SIDECAR);
        fs::write(&sidecar, "").unwrap();
        for program in ["ciphertoll", "examples/exec_helper", "deps/lab-1234"] {
            assert_eq!(find_sidecar(&place.path().join(program)).unwrap(), sidecar, "{program}");
        }
        let elsewhere = find_sidecar(&place.path().join("bin/ciphertoll"));
        assert!(
            elsewhere.is_err_and(|error| error.to_string().contains("cargo build -p ciphertoll-proxy"))
                || search(SIDECAR).is_some()
        );
    }

    #[test]
    fn only_executables_in_absolute_directories_are_found() {
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("no-such-tool");
        fs::write(&program, "").unwrap();
        assert_eq!(search_in(place.path().as_os_str(), "no-such-tool"), None);
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(search_in(place.path().as_os_str(), "no-such-tool"), Some(program));
        assert_eq!(search_in(OsStr::new(".:"), "Cargo.toml"), None);
    }

    #[test]
    fn versions_are_extracted_from_output_of_programs() {
        for (said, version) in [
            ("OpenSSL 3.0.17 1 Jul 2025 (Library: OpenSSL 3.0.17 1 Jul 2025)\n", "OpenSSL 3.0.17 1 Jul 2025"),
            ("OpenSSH_9.2p1 Debian-2+deb12u7, OpenSSL 3.0.17 1 Jul 2025\n", "OpenSSH_9.2p1 Debian-2+deb12u7"),
            (
                "unknown option -- V\nOpenSSH_8.9p1 Ubuntu-3, OpenSSL 3.0.2\nusage: sshd\n",
                "OpenSSH_8.9p1 Ubuntu-3",
            ),
            (
                "HAProxy version 2.6.12-1+deb12u2 2025/04/22 - https://haproxy.org/\n",
                "HAProxy version 2.6.12-1+deb12u2 2025/04/22",
            ),
            (
                "[.] stunnel 5.68 on x86_64-pc-linux-gnu platform\n",
                "stunnel 5.68 on x86_64-pc-linux-gnu platform",
            ),
            ("cc (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright\n", "cc 12.2.0"),
            ("\x1b[1mApache Maven 3.8.7\x1b[m\nMaven home: /usr\n", "Apache Maven 3.8.7"),
            ("gocryptfs v1.8.0 (dirty); go-fuse v2.1.0; 2023\n", "gocryptfs v1.8.0"),
        ] {
            assert_eq!(version_in(said).as_deref(), Some(version));
        }
        assert_eq!(version_in("usage: 12 options\n"), None);
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(version_numbers("10.11.2") > version_numbers("10.6.19"));
        assert!(version_numbers("11.4.1") > version_numbers("10.11.19"));
    }
}
