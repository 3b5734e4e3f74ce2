//! fscrypt under a server's files: ext4 encrypts what lies in one directory, in the kernel. Its file system is in a file of
//! the scratch directory, as that one's own may be of another kind, and its own to leave as it is.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ciphertoll_record::{Effect, is_mounted, unmount};
use nix::unistd::{geteuid, syncfs};
use openssl::rand::rand_bytes;

use crate::error::{Context, Error};
use crate::exec::Provisions;
use crate::files::{self, PRIVATE_DIRECTORY, PRIVATE_FILE};
use crate::lab::Lab;
use crate::programs;
use crate::spawn::{Child, Launch};
use crate::storage;
use crate::user::RunAs;

use super::Sites;

/// The directory of the file system that is encrypted, and all in it: ext4 has its own files beside.
pub(crate) const FILES: &str = "files";
/// What brings the programs.
const PACKAGES: &str = "e2fsprogs mount xfsprogs";
const MAKE: &str = "mkfs.ext4";
const MOUNT: &str = "mount";
/// The program of XFS's that speaks to any file system; of what asks the kernel for a policy with a key, it is the one
/// that each distribution has and that writes nothing elsewhere.
const POLICY: &str = "xfs_io";
const CONTENTS: &str = "AES-256-XTS";
const NAMES: &str = "AES-256-CTS";
/// Names of all lengths below 32 bytes look alike.
const PADDED_TO_32: &str = "3";
/// The most that the kernel takes: it derives each file's own from it.
const KEY_BYTES: usize = 64;
const IDENTIFIER_DIGITS: usize = 32;
/// A file of this size has but few blocks until it is written to.
const MAKE_LIMIT: Duration = Duration::from_mins(1);
const MOUNT_LIMIT: Duration = Duration::from_mins(1);
/// Where ext4 says what it can.
const FEATURE: &str = "/sys/fs/ext4/features/encryption";
const LOOP_CONTROL: &str = "/dev/loop-control";
const CIPHERS: &str = "/proc/crypto";

/// A mounted file system with an encrypted directory. Unmounted when dropped, whoever still has files in it; its key is in
/// the kernel's memory only, and goes with it.
#[derive(Debug)]
pub(crate) struct Fscrypt {
    clear: PathBuf,
    /// What the kernel calls the key.
    identifier: String,
    program: PathBuf,
}

impl Fscrypt {
    /// Makes an empty file system of `bytes` with a fresh key and mounts it where only `lab`'s server user comes by.
    ///
    /// The device that makes a disk of a file goes with the mount, by the kernel's own doing: also where this process is
    /// killed in between, so that the mount is all there is to be undone.
    pub(crate) fn mount(lab: &Lab, sites: Sites<'_>, bytes: u64) -> Result<Self, Error> {
        if let Some((seen, cure)) = fscrypt_missing() {
            return Err(Error::AtRestUnavailable(format!("fscrypt: {seen}: {cure}")));
        }
        let [make, mount, program] = [(MAKE, "e2fsprogs"), (MOUNT, "mount"), (POLICY, "xfsprogs")]
            .map(|(program, package)| programs::find(&[program], package));
        let program = program?;
        files::make_directory(sites.gate, PRIVATE_DIRECTORY, lab.run_as)?;
        for directory in [sites.cipher, sites.clear] {
            files::make_directory(directory, PRIVATE_DIRECTORY, RunAs::Ourselves)?;
        }
        storage::check_room(sites.cipher, bytes)?;
        let image = sites.cipher.join("image");
        files::write(&image, &[], PRIVATE_FILE, RunAs::Ourselves)?;
        let file = File::options().write(true).open(&image).context("open", &image)?;
        file.set_len(bytes).context("make", &image)?;
        let image = image.display().to_string();
        // What is lazy would be written in mid-trial; of a new file it need not be written at all.
        let lazy = "lazy_itable_init=1,lazy_journal_init=1,nodiscard";
        let own = ["-q", "-F", "-O", "encrypt", "-b", "4096", "-i", "65536", "-m", "0", "-E", lazy, &image];
        run(lab, sites, make?, &own, MAKE_LIMIT)?;
        lab.scratch.ledger().note(&Effect::Mount { path: sites.clear.to_owned() })?;
        // From here on, what goes wrong unmounts it.
        let mut layer = Self { clear: sites.clear.to_owned(), identifier: String::new(), program };
        let clear = layer.clear.display().to_string();
        let own = ["-t", "ext4", "-o", "loop,nosuid,nodev,noinit_itable", &image, &clear];
        run(lab, sites, mount?, &own, MOUNT_LIMIT)?;
        layer.encrypt(lab.run_as)?;
        Ok(layer)
    }

    /// Gives the kernel a key, and has it encrypt all that will be in the directory.
    fn encrypt(&mut self, owner: RunAs) -> Result<(), Error> {
        files::give(&self.clear, owner)?;
        let mut key = [0; KEY_BYTES];
        rand_bytes(&mut key)?;
        let said = self.ask(&["add_enckey"], &self.clear, &key)?;
        let identifier = said.split_whitespace().last().unwrap_or_default();
        let is_one =
            |text: &str| text.len() == IDENTIFIER_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_one(identifier) {
            return Err(Error::AtRestUnavailable(format!(
                "fscrypt: the kernel takes no key: {}",
                line(&said)
            )));
        }
        identifier.clone_into(&mut self.identifier);
        let files = self.clear.join(FILES);
        files::make_directory(&files, PRIVATE_DIRECTORY, RunAs::Ourselves)?;
        let policy = format!("set_encpolicy -v 2 -c {CONTENTS} -n {NAMES} -f {PADDED_TO_32} {identifier}");
        let said = self.ask(&[&policy], &files, &[])?;
        self.check().map_err(|error| {
            let said = line(&said);
            let why = if said.is_empty() { error.to_string() } else { said };
            Error::AtRestUnavailable(format!("fscrypt: the kernel takes no policy: {why}"))
        })?;
        // That it knows the ciphers is seen when they are used first.
        let first = files.join("first");
        let tried = fs::write(&first, CONTENTS).and_then(|()| fs::remove_file(&first));
        tried.map_err(|error| {
            Error::AtRestUnavailable(format!("fscrypt: the kernel has no {CONTENTS} or {NAMES}: {error}"))
        })?;
        files::give(&files, owner)
    }

    /// Fails if it is not mounted any more, or if its key or its policy is gone.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        if !is_mounted(&self.clear)? {
            return Err(Error::NotEncrypted("fscrypt: its file system is not mounted any more".to_owned()));
        }
        let status = format!("enckey_status {}", self.identifier);
        let said = self.ask(&["get_encpolicy", &status], &self.clear.join(FILES), &[])?;
        let wanted = [
            "Policy version: 2".to_owned(),
            format!("Master key identifier: {}", self.identifier),
            format!("({CONTENTS})"),
            "Present".to_owned(),
        ];
        match wanted.iter().find(|wanted| !said.contains(wanted.as_str())) {
            Some(missing) => {
                let said = line(&said);
                Err(Error::NotEncrypted(format!("fscrypt: no \"{missing}\" in what the kernel says: {said}")))
            }
            None => Ok(()),
        }
    }

    /// Has all that was written go to the file that it lies in.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        let directory = File::open(&self.clear).context("open", &self.clear)?;
        syncfs(&directory).map_err(std::io::Error::from).context("write out", &self.clear)
    }

    /// Unmounts it; its key goes with it.
    pub(crate) fn unmount(&mut self) -> Result<(), Error> {
        Ok(unmount(&self.clear)?)
    }

    /// What it is told of `path` by these commands, both of its voices.
    fn ask(&self, commands: &[&str], path: &Path, stdin: &[u8]) -> Result<String, Error> {
        let mut command = Command::new(&self.program);
        for text in commands {
            command.args(["-c", text]);
        }
        command.arg(path).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut asked = command.spawn().context("start", &self.program)?;
        if let Some(mut pipe) = asked.stdin.take() {
            // One that does not read says why not.
            let _ = pipe.write_all(stdin);
        }
        let output = asked.wait_with_output().context("ask", &self.program)?;
        let texts = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        Ok(texts.concat())
    }
}

impl Drop for Fscrypt {
    fn drop(&mut self) {
        // What cannot be unmounted now, the sweep of a later run finds in the ledger.
        let _ = self.unmount();
    }
}

/// What of this machine is in the way of fscrypt, and what would change that; none where nothing is.
pub(crate) fn fscrypt_missing() -> Option<(String, String)> {
    if !geteuid().is_root() {
        return Some(("only root mounts file systems".to_owned(), "run it as root".to_owned()));
    }
    if !Path::new(FEATURE).exists() {
        let cure = "a kernel with CONFIG_FS_ENCRYPTION, and modprobe ext4";
        return Some((
            format!("the kernel's ext4 encrypts nothing ({FEATURE} is not there)"),
            cure.to_owned(),
        ));
    }
    if let Err(error) = File::options().read(true).write(true).open(LOOP_CONTROL) {
        let cure = format!("modprobe loop; of a container: --device {LOOP_CONTROL} and the rights to mount");
        return Some((format!("{LOOP_CONTROL} cannot be opened: {error}"), cure));
    }
    let missing = [MAKE, MOUNT, POLICY].into_iter().find(|program| programs::search(program).is_none())?;
    Some((format!("{missing} is missing"), programs::install(PACKAGES)))
}

/// What the kernel encrypts with: the driver of `xts(aes)` that it prefers; none before it was used first.
pub(crate) fn kernel_cipher() -> Option<String> {
    preferred(&fs::read_to_string(CIPHERS).ok()?, "xts(aes)")
}

fn preferred(ciphers: &str, name: &str) -> Option<String> {
    let value = |entry: &str, key: &str| {
        let mut lines = entry.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(found, _)| found.trim() == key).map(|(_, value)| value.trim().to_owned())
    };
    let entries = ciphers.split("\n\n").filter(|entry| value(entry, "name").as_deref() == Some(name));
    let priority = |entry: &&str| value(entry, "priority").and_then(|text| text.parse::<u32>().ok());
    entries.max_by_key(priority).and_then(|entry| value(entry, "driver"))
}

fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Waits for a program that is in the ledger and cannot outlive us.
fn run(
    lab: &Lab,
    sites: Sites<'_>,
    program: PathBuf,
    arguments: &[&str],
    limit: Duration,
) -> Result<(), Error> {
    let launch = Launch {
        what: program.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        program,
        arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
        environment: BTreeMap::new(),
        directory: sites.beside.to_owned(),
        run_as: RunAs::Ourselves,
        processors: None,
        namespace: None,
        provisions: Provisions::default(),
        log: sites.beside.join("fscrypt.log"),
    };
    let mut child = Child::spawn(&lab.scratch, &lab.helper, &launch)?;
    match child.wait(limit)? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(child.died(status)),
        None => Err(child.too_slow(limit, "still at it".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cipher_is_the_one_that_the_kernel_prefers() {
        let ciphers = "name         : xts(aes)\ndriver       : xts(ecb(aes-generic))\npriority     : 100\n\n\
                       name         : xts(aes)\ndriver       : xts-aes-aesni\npriority     : 401\n\n\
                       name         : cbc(aes)\ndriver       : cbc-aes-aesni\npriority     : 400\n\n";
        assert_eq!(preferred(ciphers, "xts(aes)").as_deref(), Some("xts-aes-aesni"));
        assert_eq!(preferred(ciphers, "adiantum(xchacha12,aes)"), None);
        assert_eq!(preferred("", "xts(aes)"), None);
    }
}
