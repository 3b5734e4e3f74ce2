//! Checks for encryption at rest, in addition to its programs.

use std::fs;

use ciphertoll_model::{Engine, ServerLevel};
use nix::unistd::geteuid;

use super::directories::{configured_root, file_system, nearest};
use super::finding::{CheckPurpose, Finding};
use crate::at_rest::{fscrypt, gocryptfs, native};
use crate::servers::engines;
use crate::servers::find::find;

pub(super) fn all() -> Vec<Finding> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let ciphers = fs::read_to_string("/proc/crypto").unwrap_or_default();
    vec![
        check_fuse(gocryptfs::find_obstacle()),
        check_fscrypt(fscrypt::find_obstacle(), fscrypt::kernel_cipher()),
        aes(&cpu, &ciphers),
        memory(geteuid().is_root()),
        disk(file_system(&mounts, &nearest(&configured_root())).as_deref()),
    ]
}

/// The key management plugins of servers that encrypt their own files.
pub(super) fn plugins() -> Vec<Finding> {
    [(Engine::MariaDb, "MariaDB's keys"), (Engine::MySql, "MySQL's keys")]
        .into_iter()
        .filter_map(|(engine, name)| {
            // Another check reports a missing server.
            let build = find(&ServerLevel::of(engine)).ok()?;
            let encryption = engines::native_encryption(engine).ok()?;
            Some(match native::find_plugins(encryption, &build) {
                Ok(directory) => {
                    let seen = format!("{} has its plugin in {}", build.version, directory.display());
                    Finding::ok(CheckPurpose::AtRest, name, seen)
                }
                Err(error) => Finding::no(CheckPurpose::AtRest, name, error, encryption.doctor_advice()),
            })
        })
        .collect()
}

fn check_fuse(missing: Option<(String, String)>) -> Finding {
    let (purpose, name) = (CheckPurpose::AtRest, "FUSE");
    match missing {
        Some((seen, cure)) => Finding::no(purpose, name, seen, cure),
        None => Finding::ok(purpose, name, "/dev/fuse opens, and fusermount3 is installed"),
    }
}

fn check_fscrypt(missing: Option<(String, String)>, cipher: Option<String>) -> Finding {
    let (purpose, name) = (CheckPurpose::AtRest, "fscrypt");
    match (missing, cipher) {
        (Some((seen, cure)), _) => Finding::no(purpose, name, seen, cure),
        (None, Some(cipher)) => {
            Finding::ok(purpose, name, format!("the kernel's ext4 encrypts with {cipher}"))
        }
        (None, None) => Finding::ok(purpose, name, "the kernel's ext4 encrypts"),
    }
}

/// Checks for AES instructions of the processor, and whether the kernel uses them.
fn aes(cpu: &str, ciphers: &str) -> Finding {
    let (purpose, name) = (CheckPurpose::AtRest, "AES");
    let features = |line: &&str| line.starts_with("flags") || line.starts_with("Features");
    let flags = cpu.lines().find(features).unwrap_or_default();
    if !flags.split_whitespace().any(|flag| flag == "aes") {
        let cure = "use another machine, or configure the hypervisor to expose them: encryption without them costs several times as much";
        return Finding::limited(purpose, name, "the processor has no AES instructions", cure);
    }
    // Built-in ciphers are always listed, modules after their first use.
    let has = |words: &[&str]| {
        let mut drivers = ciphers.lines().filter(|line| line.starts_with("driver") && line.contains("aes"));
        drivers.any(|line| words.iter().any(|word| line.contains(word)))
    };
    if has(&["aesni", "vaes", "-ce", "neon", "aes-lib", "p8_aes", "s390"]) {
        return Finding::ok(purpose, name, "the processor has AES instructions, and the kernel uses them");
    }
    let seen =
        "the processor has AES instructions, but the kernel lists no cipher that uses them (/proc/crypto)";
    Finding::limited(
        purpose,
        name,
        seen,
        "for fscrypt: modprobe aesni_intel, or use a kernel with CONFIG_CRYPTO_AES_NI_INTEL",
    )
}

fn memory(is_root: bool) -> Finding {
    let (purpose, name) = (CheckPurpose::AtRest, "tmpfs");
    if is_root {
        return Finding::ok(purpose, name, "root may mount a tmpfs: --storage tmpfs");
    }
    Finding::no(purpose, name, "only root may mount a tmpfs for --storage tmpfs", "run ciphertoll as root")
}

fn disk(kind: Option<&str>) -> Finding {
    let (purpose, name) = (CheckPurpose::AtRest, "disk");
    match kind {
        Some("tmpfs" | "ramfs") => {
            let cure = "use --scratch-dir with a directory on a disk: otherwise, measurements do not include the disk";
            Finding::limited(purpose, name, "the scratch directory is on a tmpfs", cure)
        }
        Some(kind) => Finding::ok(purpose, name, format!("the scratch directory is on {kind}")),
        None => Finding::limited(purpose, name, "the file system is unknown", "mount /proc"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::CheckOutcome;
    use super::*;

    #[test]
    fn a_tmpfs_is_not_a_disk() {
        assert_eq!(disk(Some("ext4")).verdict, CheckOutcome::Ok);
        assert!(matches!(disk(Some("tmpfs")).verdict, CheckOutcome::Limited { .. }));
        assert!(matches!(disk(None).verdict, CheckOutcome::Limited { .. }));
        assert_eq!(memory(true).verdict, CheckOutcome::Ok);
        assert!(matches!(memory(false).verdict, CheckOutcome::No { .. }));
    }

    #[test]
    fn aes_instructions_must_exist_and_be_used() {
        let (with, without) = ("processor : 0\nflags\t: fpu aes avx\n", "flags\t: fpu vaes_not avx\n");
        let used = "name : xts(aes)\ndriver : xts-aes-aesni\n";
        let unused = "name : xts(aes)\ndriver : xts(ecb(aes-fixed-time))\n";
        assert_eq!(aes(with, used).verdict, CheckOutcome::Ok);
        assert_eq!(aes("Features\t: fp asimd aes\n", "driver : xts-aes-ce\n").verdict, CheckOutcome::Ok);
        for (cpu, ciphers) in [(with, unused), (with, ""), (without, used), ("", "")] {
            assert!(matches!(aes(cpu, ciphers).verdict, CheckOutcome::Limited { .. }), "{cpu} {ciphers}");
        }
    }

    #[test]
    fn the_obstacle_of_fscrypt_has_a_cure() {
        let missing = ("xfs_io is missing".to_owned(), "install it".to_owned());
        let finding = check_fscrypt(Some(missing), None);
        assert_eq!(finding.verdict, CheckOutcome::No { cure: "install it".to_owned() });
        let there = check_fscrypt(None, Some("xts-aes-aesni".to_owned()));
        assert_eq!((there.verdict, there.seen.contains("xts-aes-aesni")), (CheckOutcome::Ok, true));
    }
}
