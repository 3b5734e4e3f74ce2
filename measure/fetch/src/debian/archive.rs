//! Debian's archive through `apt-get`, with lists and settings of our own: the machine's packages are neither read nor
//! changed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use ciphertoll_host::files::{self, PRIVATE_DIRECTORY};
use ciphertoll_host::user::RunAs;
use ciphertoll_model::DebianRelease;
use ciphertoll_record::Context;
use nix::unistd::geteuid;

use super::package::{self, Package};

use crate::client::{self, ClientProgram, FetchClient};
use crate::error::FetchError;
use crate::job::FetchJob;

pub(crate) const APT: ClientProgram = ClientProgram { name: "apt-get", version: "", package: "apt" };

/// The keys that sign Debian's archive.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const KEYRING_PACKAGE: &str = "debian-archive-keyring";
/// The address of Debian's archive, for machines whose own package sources do not name it.
pub(super) const MIRROR_VARIABLE: &str = "CIPHERTOLL_DEBIAN_MIRROR";
const OS_RELEASE: &str = "/etc/os-release";
/// Refuse what is not signed, whatever the machine's settings say; use no lists but those of packages.
const STRICT: [&str; 8] = [
    "APT::Get::AllowUnauthenticated=false",
    "Acquire::AllowInsecureRepositories=false",
    "Acquire::AllowWeakRepositories=false",
    "Acquire::AllowDowngradeToInsecureRepositories=false",
    "Acquire::Languages=none",
    "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
    "Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false",
    "APT::Install-Recommends=false",
];

/// One release of Debian's archive.
pub(super) struct PrivateArchive {
    client: FetchClient,
    root: PathBuf,
    release: DebianRelease,
}

impl PrivateArchive {
    pub(super) fn open(
        job: &FetchJob<'_, '_>,
        client: FetchClient,
        release: DebianRelease,
    ) -> Result<Self, FetchError> {
        if !Path::new(KEYRING).is_file() {
            return Err(ciphertoll_host::Error::ProgramMissing {
                program: KEYRING,
                how_to_get: format!(
                    "it has the keys that sign {}: install the package {KEYRING_PACKAGE}",
                    release.display_name()
                ),
            }
            .into());
        }
        File::create(job.log()).context("make", &job.log())?;
        let root = job.downloads.join(release.label());
        for part in ["", "lists", "lists/partial", "archives", "archives/partial"] {
            let path = root.join(part);
            if !path.is_dir() {
                files::make_directory(&path, PRIVATE_DIRECTORY, RunAs::Ourselves)?;
            }
        }
        let mirror = mirror(&client, job)?;
        let source = format!("deb [signed-by={KEYRING}] {mirror} {} main\n", release.suite());
        // No package counts as installed, so that all libraries are fetched.
        for (file, text) in [("sources.list", source.as_str()), ("status", "")] {
            fs::write(root.join(file), text).context("write", &root.join(file))?;
        }
        Ok(Self { client, root, release })
    }

    /// Fetches the package lists, unless they are current.
    pub(super) fn update(&self, job: &FetchJob<'_, '_>) -> Result<(), FetchError> {
        self.run(job, self.command(&self.root).arg("update")).map(drop)
    }

    /// The named packages, and the packages with libraries that they need.
    pub(super) fn select(
        &self,
        job: &FetchJob<'_, '_>,
        named: &[&str],
    ) -> Result<(Vec<Package>, Vec<Package>), FetchError> {
        let mut command = self.command(&self.root);
        command.args(["install", "--print-uris", "--yes"]).args(named).arg(package::RELOCATING);
        let listed = self.run(job, &mut command)?;
        let all: Vec<Package> = listed.lines().filter_map(Package::parse).collect();
        let (own, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|package| named.contains(&package.name.as_str()));
        let found: BTreeSet<&str> = own.iter().map(|package| package.name.as_str()).collect();
        if let Some(missing) = named.iter().find(|name| !found.contains(**name)) {
            let said = format!("{} has no package {missing}", self.release.display_name());
            return Err(unusable(job, &said));
        }
        Ok((own, others.into_iter().filter(Package::is_library).collect()))
    }

    /// Downloads into `directory`. Complete files of an interrupted download are kept.
    pub(super) fn download(
        &self,
        job: &FetchJob<'_, '_>,
        packages: &[&Package],
        directory: &Path,
    ) -> Result<(), FetchError> {
        if !directory.is_dir() {
            files::make_directory(directory, PRIVATE_DIRECTORY, RunAs::Ourselves)?;
        }
        let mut command = self.command(directory);
        command.arg("download").args(packages.iter().map(|package| package.selection()));
        self.run(job, &mut command).map(drop)
    }

    fn command(&self, directory: &Path) -> Command {
        let mut command = self.client.command(directory);
        let root = self.root.display();
        let mut options: Vec<String> = STRICT.map(str::to_owned).into();
        options.extend([
            format!("Dir::State={root}"),
            format!("Dir::State::Lists={root}/lists"),
            format!("Dir::State::status={root}/status"),
            format!("Dir::Cache={root}"),
            format!("Dir::Etc::SourceList={root}/sources.list"),
            "Dir::Etc::SourceParts=-".to_owned(),
            "Dir::Etc::Preferences=-".to_owned(),
            "Dir::Etc::PreferencesParts=-".to_owned(),
        ]);
        if geteuid().is_root() {
            // apt's own user could not read our private directories.
            options.push("APT::Sandbox::User=root".to_owned());
        }
        command.arg("--quiet").env("LC_ALL", "C");
        for option in options {
            command.args(["-o", &option]);
        }
        command
    }

    /// Runs apt-get and returns its output, which goes to the log, too.
    fn run(&self, job: &FetchJob<'_, '_>, command: &mut Command) -> Result<String, FetchError> {
        let output = command.output().context("start", &self.client.program)?;
        let said = String::from_utf8_lossy(&output.stderr);
        job.append_to_log(&output.stdout)?;
        job.append_to_log(&output.stderr)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        // Warnings follow and precede errors.
        let reason = said.lines().find_map(|line| line.strip_prefix("E: "));
        Err(failed(job, &output.status.to_string(), reason.unwrap_or_else(|| client::last_line(&said))))
    }
}

fn failed(job: &FetchJob<'_, '_>, status: &str, said: &str) -> FetchError {
    FetchError::Download {
        step: "fetch",
        name: job.name,
        client: APT.name,
        status: status.to_owned(),
        said: client::printable(said),
        log: job.log(),
    }
}

fn unusable(job: &FetchJob<'_, '_>, reason: &str) -> FetchError {
    FetchError::PackageArchive { name: job.name, reason: client::printable(reason) }
}

/// The address of Debian's archive: from the environment, or the machine's own package sources.
fn mirror(client: &FetchClient, job: &FetchJob<'_, '_>) -> Result<String, FetchError> {
    if let Some(address) = std::env::var(MIRROR_VARIABLE).ok().filter(|address| !address.is_empty()) {
        return check_address(address, job);
    }
    let format = "$(REPO_URI) $(RELEASE) $(ORIGIN)";
    let output = |arguments: &[&str]| -> Result<String, FetchError> {
        let mut command = client.command(Path::new("/"));
        let output = command.args(arguments).output().context("start", &client.program)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let mut listed = output(&["indextargets", "--format", format, "Created-By: Packages"])?;
    // Without package lists, as in many containers, only the addresses of lists are known.
    listed.push_str(&sources_in(&output(&["--print-uris", "update"])?));
    let system = fs::read_to_string(OS_RELEASE).unwrap_or_default();
    match address_in(&listed, &system) {
        Some(address) => check_address(address, job),
        None => Err(unusable(
            job,
            &format!(
                "no package source of this machine is Debian's: set {MIRROR_VARIABLE} to the address of a mirror"
            ),
        )),
    }
}

/// Lines of `ADDRESS RELEASE -` from the addresses of lists, which are `'ADDRESS/dists/RELEASE/InRelease' …`.
fn sources_in(addresses: &str) -> String {
    let source = |line: &str| {
        let (address, _) = line.strip_prefix('\'')?.split_once("/InRelease' ")?;
        let (address, release) = address.split_once("/dists/")?;
        Some(format!("{address}/ {release} -\n"))
    };
    addresses.lines().filter_map(source).collect()
}

/// The address of Debian's main archive in lines of `ADDRESS RELEASE ORIGIN`. The origin is unknown until the machine's own
/// package lists were fetched; then the release must be the system's.
fn address_in(listed: &str, os_release: &str) -> Option<String> {
    let value = |name: &str| {
        let mut values = os_release.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        values.next().map(|value| value.trim_matches('"'))
    };
    let own_release = value("ID").filter(|id| *id == "debian").and_then(|_| value("VERSION_CODENAME"));
    listed.lines().find_map(|line| {
        let mut parts = line.split_ascii_whitespace();
        let (address, release, origin) = (parts.next()?, parts.next()?, parts.next()?);
        let is_main = !["-security", "/updates"].iter().any(|end| release.ends_with(end));
        let is_debian = origin == "Debian" || own_release == Some(release);
        (is_main && is_debian).then(|| address.to_owned())
    })
}

/// The address becomes part of a line in apt's format.
fn check_address(address: String, job: &FetchJob<'_, '_>) -> Result<String, FetchError> {
    let is_valid = address.contains(":/") && !address.contains(|c: char| c.is_whitespace() || c.is_control());
    if is_valid {
        return Ok(address);
    }
    Err(unusable(job, &format!("{address:?} is not an address of a package archive ({MIRROR_VARIABLE})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEBIAN: &str = "PRETTY_NAME=\"Debian GNU/Linux 12\"\nVERSION_CODENAME=bookworm\nID=debian\n";

    #[test]
    fn the_address_is_that_of_debians_main_archive() {
        let listed = "http://a.example/other/ nodistro Other\nhttp://b.example/debian-security/ bookworm-security Debian\n\
             http://c.example/debian/ bookworm Debian\n";
        assert_eq!(address_in(listed, "").as_deref(), Some("http://c.example/debian/"));
    }

    #[test]
    fn without_package_lists_the_release_must_be_the_systems() {
        let addresses = "'http://a.example/dists/nodistro/InRelease' a_InRelease 0 \n\
             'http://c.example/debian-security/dists/bookworm-security/InRelease' s_InRelease 0 \n\
             'http://c.example/debian/dists/bookworm/InRelease' c_InRelease 0 \n\
             'http://c.example/debian/dists/bookworm/main/binary-amd64/Packages.xz' c_Packages 0 \n";
        let listed = &sources_in(addresses);
        assert_eq!(address_in(listed, DEBIAN).as_deref(), Some("http://c.example/debian/"));
        let ubuntu = DEBIAN.replace("=debian", "=ubuntu");
        assert_eq!(address_in(listed, &ubuntu), None);
        assert_eq!(address_in("", DEBIAN), None);
    }
}
