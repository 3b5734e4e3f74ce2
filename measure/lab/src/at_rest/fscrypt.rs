//! fscrypt: ext4 encrypts a directory in the kernel. The ext4 file system is in an image file in the scratch directory,
//! because that may be on a file system of another kind.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ciphertoll_host::files::{self, PRIVATE_DIRECTORY, PRIVATE_FILE};
use ciphertoll_host::programs;
use ciphertoll_host::storage;
use ciphertoll_host::user::RunAs;
use ciphertoll_record::Context;
use ciphertoll_record::{Effect, is_mounted, unmount};
use nix::unistd::{geteuid, syncfs};
use openssl::rand::rand_bytes;

use super::mount::{ENCRYPTED_DIRECTORY, EncryptedMount, MountPaths};
use crate::error::Error;
use crate::workspace::Workspace;

const PACKAGES: &str = "e2fsprogs mount xfsprogs";
const MAKE: &str = "mkfs.ext4";
const MOUNT: &str = "mount";
/// XFS's tool for any file system. Of the tools that set an encryption policy, every distribution has it, and it changes
/// nothing else on the machine.
const POLICY: &str = "xfs_io";
const CONTENTS: &str = "AES-256-XTS";
const NAMES: &str = "AES-256-CTS";
/// Pads encrypted names to 32 bytes, which hides shorter lengths.
const PADDED_TO_32: &str = "3";
/// The maximum; the kernel derives a key per file from it.
const KEY_BYTES: usize = 64;
const IDENTIFIER_DIGITS: usize = 32;
const PROGRAM_LIMIT: Duration = Duration::from_mins(1);
/// Exists if ext4 supports encryption.
const FEATURE: &str = "/sys/fs/ext4/features/encryption";
const LOOP_CONTROL: &str = "/dev/loop-control";
const CIPHERS: &str = "/proc/crypto";

/// A mounted file system with an encrypted directory. Unmounted on drop, even if files in it are open. Its key is in the
/// kernel's memory only and is removed with the mount.
#[derive(Debug)]
pub(crate) struct Fscrypt {
    clear: PathBuf,
    identifier: String,
    program: PathBuf,
}

impl Fscrypt {
    /// Creates an empty file system of `bytes` with a new key, and mounts it below a directory that only the server's user
    /// can enter.
    ///
    /// The kernel removes the loop device with the mount, even if this process is killed, so that the ledger needs an entry
    /// for the mount only.
    pub(crate) fn mount(workspace: &Workspace, paths: MountPaths<'_>, bytes: u64) -> Result<Self, Error> {
        if let Some((problem, advice)) = find_obstacle() {
            return Err(Error::AtRestUnavailable(format!("fscrypt: {problem}: {advice}")));
        }
        let [make, mount, program] = [(MAKE, "e2fsprogs"), (MOUNT, "mount"), (POLICY, "xfsprogs")]
            .map(|(program, package)| programs::find(&[program], package));
        let program = program?;
        let run = |program, arguments: &[&str]| {
            let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
            Ok::<_, Error>(
                paths.spawn(workspace, "fscrypt", program, arguments, None)?.finish(PROGRAM_LIMIT)?,
            )
        };
        paths.make_directories(workspace.run_as)?;
        storage::check_free_space(paths.cipher, bytes)?;
        let image = paths.cipher.join("image");
        files::write(&image, &[], PRIVATE_FILE, RunAs::Ourselves)?;
        let file = File::options().write(true).open(&image).context("open", &image)?;
        file.set_len(bytes).context("create", &image)?;
        let image = image.display().to_string();
        // Marks the tables as initialized: a new image file is zero, and a lazy initialization would write during a trial.
        let lazy = "lazy_itable_init=1,lazy_journal_init=1,nodiscard";
        let own = ["-q", "-F", "-O", "encrypt", "-b", "4096", "-i", "65536", "-m", "0", "-E", lazy, &image];
        run(make?, &own)?;
        workspace.scratch.ledger().note(&Effect::Mount { path: paths.clear.to_owned() })?;
        // From here on, an error unmounts it.
        let mut mounted = Self { clear: paths.clear.to_owned(), identifier: String::new(), program };
        let clear = mounted.clear.display().to_string();
        let own = ["-t", "ext4", "-o", "loop,nosuid,nodev,noinit_itable", &image, &clear];
        run(mount?, &own)?;
        mounted.encrypt(workspace.run_as)?;
        Ok(mounted)
    }

    /// Adds a key to the kernel and sets the encryption policy of the directory.
    fn encrypt(&mut self, owner: RunAs) -> Result<(), Error> {
        files::set_owner(&self.clear, owner)?;
        let mut key = [0; KEY_BYTES];
        rand_bytes(&mut key)?;
        let output = self.run_policy_tool(&["add_enckey"], &self.clear, &key)?;
        let identifier = output.split_whitespace().last().unwrap_or_default();
        let is_identifier =
            |text: &str| text.len() == IDENTIFIER_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_identifier(identifier) {
            return Err(Error::AtRestUnavailable(format!(
                "fscrypt: the kernel refuses the key: {}",
                join_lines(&output)
            )));
        }
        identifier.clone_into(&mut self.identifier);
        let files = self.clear.join(ENCRYPTED_DIRECTORY);
        files::make_directory(&files, PRIVATE_DIRECTORY, RunAs::Ourselves)?;
        let policy = format!("set_encpolicy -v 2 -c {CONTENTS} -n {NAMES} -f {PADDED_TO_32} {identifier}");
        let output = self.run_policy_tool(&[&policy], &files, &[])?;
        self.check().map_err(|error| {
            let output = join_lines(&output);
            let reason = if output.is_empty() { error.to_string() } else { output };
            Error::AtRestUnavailable(format!("fscrypt: the kernel refuses the encryption policy: {reason}"))
        })?;
        // The kernel reports missing ciphers on first use.
        let first = files.join("first");
        let tried = fs::write(&first, CONTENTS).and_then(|()| fs::remove_file(&first));
        tried.map_err(|error| {
            Error::AtRestUnavailable(format!("fscrypt: the kernel has no {CONTENTS} or {NAMES}: {error}"))
        })?;
        Ok(files::set_owner(&files, owner)?)
    }

    /// Runs commands of the policy tool; returns its stdout and stderr.
    fn run_policy_tool(&self, commands: &[&str], path: &Path, stdin: &[u8]) -> Result<String, Error> {
        let mut command = Command::new(&self.program);
        for text in commands {
            command.args(["-c", text]);
        }
        command.arg(path).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().context("start", &self.program)?;
        if let Some(mut pipe) = process.stdin.take() {
            // A process that does not read reports the reason.
            let _ = pipe.write_all(stdin);
        }
        let output = process.wait_with_output().context("run", &self.program)?;
        let texts = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        Ok(texts.concat())
    }
}

impl EncryptedMount for Fscrypt {
    /// Fails if it is no longer mounted, or if its key or its policy is missing.
    fn check(&mut self) -> Result<(), Error> {
        if !is_mounted(&self.clear)? {
            return Err(Error::NotEncrypted("fscrypt: the file system is no longer mounted".to_owned()));
        }
        let status = format!("enckey_status {}", self.identifier);
        let directory = self.clear.join(ENCRYPTED_DIRECTORY);
        let output = self.run_policy_tool(&["get_encpolicy", &status], &directory, &[])?;
        let expected = [
            "Policy version: 2".to_owned(),
            format!("Master key identifier: {}", self.identifier),
            format!("({CONTENTS})"),
            "Present".to_owned(),
        ];
        match expected.iter().find(|text| !output.contains(text.as_str())) {
            Some(missing) => {
                let output = join_lines(&output);
                Err(Error::NotEncrypted(format!(
                    "fscrypt: the kernel does not report \"{missing}\": {output}"
                )))
            }
            None => Ok(()),
        }
    }

    fn sync(&self) -> Result<(), Error> {
        let directory = File::open(&self.clear).context("open", &self.clear)?;
        Ok(syncfs(&directory).map_err(std::io::Error::from).context("write out", &self.clear)?)
    }

    fn unmount(&mut self) -> Result<(), Error> {
        Ok(unmount(&self.clear)?)
    }

    fn kernel_cipher(&self) -> Option<String> {
        kernel_cipher()
    }
}

impl Drop for Fscrypt {
    fn drop(&mut self) {
        // If this fails, the sweep of a later run unmounts what is in the ledger.
        let _ = self.unmount();
    }
}

/// A reason why fscrypt does not work on this machine, and advice; `None` if it works.
pub(crate) fn find_obstacle() -> Option<(String, String)> {
    if !geteuid().is_root() {
        return Some(("only root may mount file systems".to_owned(), "run ciphertoll as root".to_owned()));
    }
    if !Path::new(FEATURE).exists() {
        let advice = "use a kernel with CONFIG_FS_ENCRYPTION, and run modprobe ext4";
        return Some((
            format!("the kernel's ext4 does not support encryption ({FEATURE} does not exist)"),
            advice.to_owned(),
        ));
    }
    if let Err(error) = File::options().read(true).write(true).open(LOOP_CONTROL) {
        let advice = format!("modprobe loop; in a container: --device {LOOP_CONTROL} and the right to mount");
        return Some((format!("cannot open {LOOP_CONTROL}: {error}"), advice));
    }
    let missing = [MAKE, MOUNT, POLICY].into_iter().find(|program| programs::search(program).is_none())?;
    Some((format!("{missing} is missing"), programs::how_to_install(PACKAGES)))
}

/// The kernel's preferred driver of `xts(aes)`; `None` before its first use.
pub(crate) fn kernel_cipher() -> Option<String> {
    preferred_driver(&fs::read_to_string(CIPHERS).ok()?, "xts(aes)")
}

fn preferred_driver(ciphers: &str, name: &str) -> Option<String> {
    let value = |entry: &str, key: &str| {
        let mut lines = entry.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(found, _)| found.trim() == key).map(|(_, value)| value.trim().to_owned())
    };
    let entries = ciphers.split("\n\n").filter(|entry| value(entry, "name").as_deref() == Some(name));
    let priority = |entry: &&str| value(entry, "priority").and_then(|text| text.parse::<u32>().ok());
    entries.max_by_key(priority).and_then(|entry| value(entry, "driver"))
}

fn join_lines(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_with_the_highest_priority_is_preferred() {
        let ciphers = "name         : xts(aes)\ndriver       : xts(ecb(aes-generic))\npriority     : 100\n\n\
                       name         : xts(aes)\ndriver       : xts-aes-aesni\npriority     : 401\n\n\
                       name         : cbc(aes)\ndriver       : cbc-aes-aesni\npriority     : 400\n\n";
        assert_eq!(preferred_driver(ciphers, "xts(aes)").as_deref(), Some("xts-aes-aesni"));
        assert_eq!(preferred_driver(ciphers, "adiantum(xchacha12,aes)"), None);
        assert_eq!(preferred_driver("", "xts(aes)"), None);
    }
}
