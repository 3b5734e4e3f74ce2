//! Programs of others: where they are, what they say they are, and which package brings them.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Finding, Purpose};

/// Servers' programs are not on an ordinary user's PATH.
const SYSTEM_DIRECTORIES: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// A program that something needs.
pub(super) struct Tool {
    pub(super) name: &'static str,
    pub(super) purpose: Purpose,
    /// What it may be called.
    programs: &'static [&'static str],
    /// What makes it tell its version.
    version: &'static [&'static str],
    /// Debian's and Ubuntu's.
    package: &'static str,
    /// What it is for.
    what_for: &'static str,
}

pub(super) const TOOLS: [Tool; 13] = [
    Tool::of("mvn", Purpose::Measure, &["-B", "-Dstyle.color=never", "-v"], "maven", "fetches servers"),
    Tool::of(
        "openssl",
        Purpose::Measure,
        &["version"],
        "openssl",
        "shows certificates, names ciphers' speeds",
    ),
    Tool::of("ssh", Purpose::Tunnels, &["-V"], "openssh-client", "tunnels by SSH"),
    Tool::of("sshd", Purpose::Tunnels, &["-V"], "openssh-server", "tunnels by SSH"),
    Tool::of("openvpn", Purpose::Tunnels, &["--version"], "openvpn", "tunnels by OpenVPN"),
    Tool::of("wg", Purpose::Tunnels, &["--version"], "wireguard-tools", "sets up WireGuard"),
    Tool::of(
        "wireguard-go",
        Purpose::Tunnels,
        &["--version"],
        "wireguard-go",
        "WireGuard where the kernel has none",
    ),
    Tool {
        programs: &["stunnel4", "stunnel"],
        ..Tool::of("stunnel", Purpose::Tunnels, &["-version"], "stunnel4", "TLS in front of a server")
    },
    Tool::of("haproxy", Purpose::Tunnels, &["-v"], "haproxy", "TLS in front of a server"),
    Tool::of("pgbouncer", Purpose::Tunnels, &["--version"], "pgbouncer", "pools connections to PostgreSQL"),
    Tool::of("gocryptfs", Purpose::AtRest, &["-version"], "gocryptfs", "encrypts files below the server"),
    Tool::of("cc", Purpose::Drivers, &["--version"], "gcc", "compiles drivers written in C"),
    Tool::of("go", Purpose::Drivers, &["version"], "golang-go", "compiles drivers written in Go"),
];

impl Tool {
    const fn of(
        name: &'static str,
        purpose: Purpose,
        version: &'static [&'static str],
        package: &'static str,
        what_for: &'static str,
    ) -> Self {
        Self { name, purpose, programs: &[], version, package, what_for }
    }

    /// Looks for the program and asks it for its version; what it writes at that goes to `place`.
    pub(super) fn look(&self, place: &Path) -> Finding {
        let Self { name, purpose, package, what_for, .. } = *self;
        let programs = if self.programs.is_empty() { &[name] } else { self.programs };
        let Some(program) = programs.iter().find_map(|program| search(program)) else {
            return Finding::no(purpose, name, format!("not found; {what_for}"), install(package));
        };
        match self.version_of(&program, place) {
            Ok(version) => Finding::ok(purpose, name, format!("{version}; {what_for}")),
            Err(reason) => {
                let seen = format!("{} does not tell its version: {reason}", program.display());
                Finding::limited(purpose, name, seen, install(&format!("--reinstall {package}")))
            }
        }
    }

    fn version_of(&self, program: &Path, place: &Path) -> Result<String, String> {
        let mut command = Command::new(program);
        // Some count their starts, in files that are not ours to make.
        command.env("XDG_CONFIG_HOME", place).env("TMPDIR", place).args(self.version).stdin(Stdio::null());
        let output = command.output();
        let output = output.map_err(|error| error.to_string())?;
        let texts = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        texts.iter().find_map(|text| version_in(text)).ok_or_else(|| output.status.to_string())
    }
}

/// How a package is installed, where there is Debian's tool for it; else at least what to look for.
pub(super) fn install(package: &str) -> String {
    match search("apt-get") {
        Some(_) => format!("apt-get install {package}"),
        None => format!("install the package that Debian calls {package}"),
    }
}

/// Where a program is: on PATH, or where servers' programs are. A relative entry of PATH would run whatever
/// lies in the present directory.
pub(super) fn search(program: &str) -> Option<PathBuf> {
    const ANY_EXECUTE: u32 = 0o111;
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).filter(|directory| directory.is_absolute());
    let mut candidates =
        on_path.chain(SYSTEM_DIRECTORIES.iter().map(PathBuf::from)).map(|directory| directory.join(program));
    candidates.find(|candidate| {
        fs::metadata(candidate)
            .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & ANY_EXECUTE != 0)
    })
}

/// The first line with a number in it that has a dot, without what stands in parentheses.
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

/// Some colour what no terminal reads, even when told not to.
fn without_colours(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    // A sequence ends with its first letter.
    let rest =
        |part: &str| part.split_once(|end: char| end.is_ascii_alphabetic()).map(|(_, rest)| rest.to_owned());
    first + &parts.filter_map(rest).collect::<String>()
}

/// Who built it, and of what, is more than a table has room for.
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

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say() {
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
    fn a_program_that_is_missing_is_named_with_its_package() {
        let missing = Tool::of("no-such-tool", Purpose::AtRest, &["-v"], "no-such-package", "nothing");
        let finding = missing.look(Path::new("/nonexistent"));
        assert_eq!(finding.verdict, Verdict::No { cure: install("no-such-package") });
        let silent = Tool::of("true", Purpose::AtRest, &[], "coreutils", "nothing");
        assert!(matches!(silent.look(Path::new("/nonexistent")).verdict, Verdict::Limited { .. }));
    }
}
