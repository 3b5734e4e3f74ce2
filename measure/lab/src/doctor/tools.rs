//! Checks for external programs: their versions, and the packages that provide them.

use std::path::Path;

use ciphertoll_fetch::table::fetched_program;
use ciphertoll_host::programs::{SIDECAR, how_to_install, search, version_of};
use ciphertoll_model::{ProxyProgram, ProxyProtocol, ProxySource};

use super::finding::CheckPurpose::{self, AtRest, Drivers, Measure, Tunnels};
use super::finding::Finding;
use crate::middle::proxy::running::sidecar_program;

pub(super) struct Tool {
    pub(super) name: &'static str,
    pub(super) purpose: CheckPurpose,
    /// Alternative program names; `name` if empty.
    programs: &'static [&'static str],
    /// Arguments that print its version.
    version: &'static [&'static str],
    source: PackageSource,
    what_for: &'static str,
}

#[derive(Clone, Copy)]
enum PackageSource {
    /// A package of Debian and Ubuntu.
    Package(&'static str),
    /// Advice for a program that Debian or Ubuntu does not package.
    Elsewhere(&'static str),
}

impl PackageSource {
    fn cure(self) -> String {
        match self {
            Self::Package(package) => how_to_install(package),
            Self::Elsewhere(cure) => cure.to_owned(),
        }
    }

    fn cure_by_reinstallation(self) -> String {
        match self {
            Self::Package(package) => how_to_install(&format!("--reinstall {package}")),
            Self::Elsewhere(cure) => cure.to_owned(),
        }
    }
}

const NETWORK_TOOLS: [Tool; 9] = [
    Tool::of("mvn", Measure, &["-B", "-Dstyle.color=never", "-v"], "maven", "fetches servers"),
    Tool::of("openssl", Measure, &["version"], "openssl", "shows certificates and speeds of ciphers"),
    Tool::of("ssh", Tunnels, &["-V"], "openssh-client", "SSH tunnels"),
    Tool::of("sshd", Tunnels, &["-V"], "openssh-server", "SSH tunnels"),
    Tool::of("openvpn", Tunnels, &["--version"], "openvpn", "OpenVPN tunnels"),
    Tool::of("wg", Tunnels, &["--version"], "wireguard-tools", "sets up WireGuard"),
    Tool::of("wireguard-go", Tunnels, &["--version"], "wireguard-go", "WireGuard without kernel support"),
    Tool {
        programs: &["stunnel4", "stunnel"],
        ..Tool::of("stunnel", Tunnels, &["-version"], "stunnel4", "TLS in front of a server")
    },
    Tool::of("haproxy", Tunnels, &["-v"], "haproxy", "TLS in front of a server"),
];

/// What comes after the proxies.
const OTHER_TOOLS: [Tool; 3] = [
    Tool::of("gocryptfs", AtRest, &["-version"], "gocryptfs", "encrypts the files of a server"),
    Tool::of("cc", Drivers, &["--version"], "gcc", "compiles drivers written in C"),
    Tool::of("go", Drivers, &["version"], "golang-go", "compiles drivers written in Go"),
];

pub(super) fn tools() -> Vec<Tool> {
    let proxies = ProxyProgram::all().into_iter().filter_map(Tool::of_proxy);
    NETWORK_TOOLS.into_iter().chain(proxies).chain(OTHER_TOOLS).collect()
}

impl Tool {
    /// `None` for the sidecar, which is not installed by a package of its own.
    fn of_proxy(program: ProxyProgram) -> Option<Self> {
        let definition = program.definition();
        let source = match definition.source {
            ProxySource::Own => return None,
            ProxySource::Package(package) => PackageSource::Package(package),
            ProxySource::Elsewhere(advice) => PackageSource::Elsewhere(advice),
        };
        let what_for = match definition.protocol {
            ProxyProtocol::Sql => "pools connections",
            ProxyProtocol::Postgres => "pools connections to PostgreSQL",
            ProxyProtocol::MySql | ProxyProtocol::MySqlOnly => "pools connections to MariaDB and MySQL",
        };
        Some(Self { source, ..Self::of(definition.label, Tunnels, &["--version"], "", what_for) })
    }

    const fn of(
        name: &'static str,
        purpose: CheckPurpose,
        version: &'static [&'static str],
        package: &'static str,
        what_for: &'static str,
    ) -> Self {
        Self { name, purpose, programs: &[], version, source: PackageSource::Package(package), what_for }
    }

    /// Searches the program and runs it for its version. Files that it writes go to `directory`.
    pub(super) fn check(&self, directory: &Path) -> Finding {
        let Self { name, purpose, source, what_for, .. } = *self;
        let programs = if self.programs.is_empty() { &[name] } else { self.programs };
        let Some(program) =
            programs.iter().find_map(|program| search(program).or_else(|| fetched_program(program)))
        else {
            return Finding::no(purpose, name, format!("not found; {what_for}"), source.cure());
        };
        match version_of(&program, self.version, directory) {
            Ok(version) => Finding::ok(purpose, name, format!("{version}; {what_for}")),
            Err(reason) => {
                let seen = format!("{} does not report its version: {reason}", program.display());
                Finding::limited(purpose, name, seen, source.cure_by_reinstallation())
            }
        }
    }
}

/// The sidecar, which belongs in the directory of this program.
pub(super) fn sidecar() -> Finding {
    const WHAT_FOR: &str = "pools encrypted connections";
    match sidecar_program() {
        Ok(program) => match version_of(&program, &["--version"], Path::new("/")) {
            Ok(version) => Finding::ok(Tunnels, SIDECAR, format!("{version}; {WHAT_FOR}")),
            Err(reason) => {
                let seen = format!("{} does not report its version: {reason}", program.display());
                Finding::limited(Tunnels, SIDECAR, seen, "rebuild it")
            }
        },
        Err(missing) => Finding::no(Tunnels, SIDECAR, format!("not found; {WHAT_FOR}"), missing),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::CheckOutcome;
    use super::*;

    /// Uses Debian's package lists, if they are available.
    #[test]
    fn recommended_packages_exist() {
        let known = |package: &str| {
            let output = std::process::Command::new("apt-cache").args(["show", package]).output();
            output.is_ok_and(|output| output.status.success())
        };
        if !known("openssl") {
            ciphertoll_testing::not_for_all("apt-cache has no package lists");
            return;
        }
        for tool in &tools() {
            match tool.source {
                PackageSource::Package(package) => assert!(known(package), "{}: {package}", tool.name),
                PackageSource::Elsewhere(cure) => assert!(!cure.contains("apt-get"), "{}: {cure}", tool.name),
            }
        }
    }

    #[test]
    fn the_finding_for_a_missing_program_names_its_package() {
        let missing = Tool::of("no-such-tool", AtRest, &["-v"], "no-such-package", "nothing");
        let finding = missing.check(Path::new("/nonexistent"));
        assert_eq!(finding.verdict, CheckOutcome::No { cure: how_to_install("no-such-package") });
        let silent = Tool::of("true", AtRest, &[], "coreutils", "nothing");
        assert!(matches!(silent.check(Path::new("/nonexistent")).verdict, CheckOutcome::Limited { .. }));
    }
}
