//! What encryption of a server's files needs, beside the programs that do it.

use std::fs;

use ciphertoll_model::{Engine, ServerLevel};
use ciphertoll_record::scratch_root;
use nix::unistd::geteuid;

use super::places::{file_system, nearest};
use super::{Finding, Purpose};
use crate::at_rest::{find_plugins, fscrypt_missing, fuse_missing, kernel_cipher};
use crate::find::find;
use crate::programs::install;

/// File systems in user space and in the kernel, and a disk below the scratch directory.
pub(super) fn all() -> Vec<Finding> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let ciphers = fs::read_to_string("/proc/crypto").unwrap_or_default();
    vec![
        fuse(fuse_missing()),
        fscrypt(fscrypt_missing(), kernel_cipher()),
        aes(&cpu, &ciphers),
        memory(geteuid().is_root()),
        disk(file_system(&mounts, &nearest(&scratch_root())).as_deref()),
    ]
}

/// Servers that encrypt their own files: each has to bring the plugin that knows the keys.
pub(super) fn native() -> Vec<Finding> {
    [(Engine::MariaDb, "MariaDB's keys"), (Engine::MySql, "MySQL's keys")]
        .into_iter()
        .filter_map(|(engine, name)| {
            // That it is missing is told elsewhere.
            let build = find(&ServerLevel::of(engine)).ok()?;
            Some(match find_plugins(&build) {
                Ok(directory) => {
                    let seen = format!("{} has its plugin in {}", build.version, directory.display());
                    Finding::ok(Purpose::AtRest, name, seen)
                }
                Err(error) => Finding::no(Purpose::AtRest, name, error, cure_of(engine)),
            })
        })
        .collect()
}

fn cure_of(engine: Engine) -> String {
    match engine {
        Engine::MariaDb => install("mariadb-server"),
        _ => "a MySQL that has it: --server mysql=DIR; or at-rest=gocryptfs".to_owned(),
    }
}

fn fuse(missing: Option<(String, String)>) -> Finding {
    let (purpose, name) = (Purpose::AtRest, "FUSE");
    match missing {
        Some((seen, cure)) => Finding::no(purpose, name, seen, cure),
        None => Finding::ok(purpose, name, "/dev/fuse opens, and fusermount3 is here"),
    }
}

fn fscrypt(missing: Option<(String, String)>, cipher: Option<String>) -> Finding {
    let (purpose, name) = (Purpose::AtRest, "fscrypt");
    match (missing, cipher) {
        (Some((seen, cure)), _) => Finding::no(purpose, name, seen, cure),
        (None, Some(cipher)) => {
            Finding::ok(purpose, name, format!("the kernel's ext4 encrypts, by {cipher}"))
        }
        (None, None) => Finding::ok(purpose, name, "the kernel's ext4 encrypts"),
    }
}

/// Instructions for AES of the processor, which programs use, and whether the kernel uses them, too.
fn aes(cpu: &str, ciphers: &str) -> Finding {
    let (purpose, name) = (Purpose::AtRest, "AES");
    let features = |line: &&str| line.starts_with("flags") || line.starts_with("Features");
    let flags = cpu.lines().find(features).unwrap_or_default();
    if !flags.split_whitespace().any(|flag| flag == "aes") {
        let cure = "another machine, or a hypervisor that passes them on: encryption costs several times as much without";
        return Finding::limited(purpose, name, "the processor has no AES instructions", cure);
    }
    // What is built in says so at once, a module when it was first used.
    let has = |words: &[&str]| {
        let mut drivers = ciphers.lines().filter(|line| line.starts_with("driver") && line.contains("aes"));
        drivers.any(|line| words.iter().any(|word| line.contains(word)))
    };
    if has(&["aesni", "vaes", "-ce", "neon", "aes-lib", "p8_aes", "s390"]) {
        return Finding::ok(purpose, name, "instructions of the processor, used by the kernel, too");
    }
    let seen =
        "the processor has AES instructions, and the kernel names no cipher that uses them (/proc/crypto)";
    Finding::limited(
        purpose,
        name,
        seen,
        "for fscrypt: modprobe aesni_intel, or a kernel with CONFIG_CRYPTO_AES_NI_INTEL",
    )
}

fn memory(is_root: bool) -> Finding {
    let (purpose, name) = (Purpose::AtRest, "tmpfs");
    if is_root {
        return Finding::ok(purpose, name, "root may mount memory: --storage tmpfs");
    }
    Finding::no(purpose, name, "only root mounts memory for --storage tmpfs", "run it as root")
}

fn disk(kind: Option<&str>) -> Finding {
    let (purpose, name) = (Purpose::AtRest, "disk");
    match kind {
        Some("tmpfs" | "ramfs") => {
            let cure = "mount a disk on /var/tmp: what is read from memory costs no disk";
            Finding::limited(purpose, name, "the scratch directory is in memory", cure)
        }
        Some(kind) => Finding::ok(purpose, name, format!("the scratch directory is on {kind}")),
        None => Finding::limited(purpose, name, "the kernel does not tell", "mount /proc"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn memory_is_no_disk() {
        assert_eq!(disk(Some("ext4")).verdict, Verdict::Ok);
        assert!(matches!(disk(Some("tmpfs")).verdict, Verdict::Limited { .. }));
        assert!(matches!(disk(None).verdict, Verdict::Limited { .. }));
        assert_eq!(memory(true).verdict, Verdict::Ok);
        assert!(matches!(memory(false).verdict, Verdict::No { .. }));
    }

    #[test]
    fn instructions_count_where_they_are_and_where_they_are_used() {
        let (with, without) = ("processor : 0\nflags\t: fpu aes avx\n", "flags\t: fpu vaes_not avx\n");
        let used = "name : xts(aes)\ndriver : xts-aes-aesni\n";
        let unused = "name : xts(aes)\ndriver : xts(ecb(aes-fixed-time))\n";
        assert_eq!(aes(with, used).verdict, Verdict::Ok);
        assert_eq!(aes("Features\t: fp asimd aes\n", "driver : xts-aes-ce\n").verdict, Verdict::Ok);
        for (cpu, ciphers) in [(with, unused), (with, ""), (without, used), ("", "")] {
            assert!(matches!(aes(cpu, ciphers).verdict, Verdict::Limited { .. }), "{cpu} {ciphers}");
        }
    }

    #[test]
    fn what_fscrypt_lacks_is_told_with_its_cure() {
        let missing = ("xfs_io is missing".to_owned(), "install it".to_owned());
        let finding = fscrypt(Some(missing), None);
        assert_eq!(finding.verdict, Verdict::No { cure: "install it".to_owned() });
        let there = fscrypt(None, Some("xts-aes-aesni".to_owned()));
        assert_eq!((there.verdict, there.seen.contains("xts-aes-aesni")), (Verdict::Ok, true));
    }
}
