//! Programs of others: where they are, what they say they are, and which package brings them.

use std::path::Path;

use super::{Finding, Purpose};
use crate::programs::{SIDECAR, install, search, version_of};
use crate::proxy::{mysqlrouter, proxysql};

/// A program that something needs.
pub(super) struct Tool {
    pub(super) name: &'static str,
    pub(super) purpose: Purpose,
    /// What it may be called.
    programs: &'static [&'static str],
    /// What makes it tell its version.
    version: &'static [&'static str],
    source: Source,
    /// What it is for.
    what_for: &'static str,
}

/// Where a program comes from.
#[derive(Clone, Copy)]
enum Source {
    /// A package of Debian and Ubuntu.
    Package(&'static str),
    /// Neither of them has it, or only one: what to do.
    Elsewhere(&'static str),
}

impl Source {
    fn cure(self) -> String {
        match self {
            Self::Package(package) => install(package),
            Self::Elsewhere(cure) => cure.to_owned(),
        }
    }

    fn cure_again(self) -> String {
        match self {
            Self::Package(package) => install(&format!("--reinstall {package}")),
            Self::Elsewhere(cure) => cure.to_owned(),
        }
    }
}

pub(super) const TOOLS: [Tool; 15] = [
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
    Tool {
        source: Source::Elsewhere(proxysql::HOW_TO_GET),
        ..Tool::of("proxysql", Purpose::Tunnels, &["--version"], "", "pools connections to MariaDB and MySQL")
    },
    Tool {
        source: Source::Elsewhere(mysqlrouter::HOW_TO_GET),
        ..Tool::of(
            "mysqlrouter",
            Purpose::Tunnels,
            &["--version"],
            "",
            "pools connections to MariaDB and MySQL",
        )
    },
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
        Self { name, purpose, programs: &[], version, source: Source::Package(package), what_for }
    }

    /// Looks for the program and asks it for its version; what it writes at that goes to `place`.
    pub(super) fn look(&self, place: &Path) -> Finding {
        let Self { name, purpose, source, what_for, .. } = *self;
        let programs = if self.programs.is_empty() { &[name] } else { self.programs };
        let Some(program) = programs.iter().find_map(|program| search(program)) else {
            return Finding::no(purpose, name, format!("not found; {what_for}"), source.cure());
        };
        match version_of(&program, self.version, place) {
            Ok(version) => Finding::ok(purpose, name, format!("{version}; {what_for}")),
            Err(reason) => {
                let seen = format!("{} does not tell its version: {reason}", program.display());
                Finding::limited(purpose, name, seen, source.cure_again())
            }
        }
    }
}

/// The sidecar, which belongs beside this program.
pub(super) fn sidecar() -> Finding {
    const WHAT_FOR: &str = "pools encrypted connections";
    match crate::proxy::sidecar() {
        Ok(program) => match version_of(&program, &["--version"], Path::new("/")) {
            Ok(version) => Finding::ok(Purpose::Tunnels, SIDECAR, format!("{version}; {WHAT_FOR}")),
            Err(reason) => {
                let seen = format!("{} does not tell its version: {reason}", program.display());
                Finding::limited(Purpose::Tunnels, SIDECAR, seen, "build it again")
            }
        },
        Err(missing) => Finding::no(Purpose::Tunnels, SIDECAR, format!("not found; {WHAT_FOR}"), missing),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    /// Debian's own list is asked, where it is here.
    #[test]
    fn every_package_that_is_advised_exists() {
        let known = |package: &str| {
            let output = std::process::Command::new("apt-cache").args(["show", package]).output();
            output.is_ok_and(|output| output.status.success())
        };
        if !known("openssl") {
            ciphertoll_skip::not_for_all("apt-cache knows no packages here");
            return;
        }
        for tool in &TOOLS {
            match tool.source {
                Source::Package(package) => assert!(known(package), "{}: {package}", tool.name),
                Source::Elsewhere(cure) => assert!(!cure.contains("apt-get"), "{}: {cure}", tool.name),
            }
        }
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
