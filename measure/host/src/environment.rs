//! Properties of this machine that influence the cost of encryption.

use std::fs;
use std::path::Path;

use ciphertoll_model::{CryptoInstruction, Environment};
use nix::sys::utsname::uname;

use crate::accounting::CPU_ACCOUNTING;
use crate::cgroup;

pub const MEMINFO: &str = "/proc/meminfo";

/// Describes this machine. A property that cannot be read is "unknown", never an error.
pub fn environment() -> Environment {
    let cpuinfo = read("/proc/cpuinfo");
    Environment {
        cpu_model: cpu_model(&cpuinfo),
        cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u16),
        crypto_instructions: crypto_instructions(&cpuinfo),
        memory_bytes: meminfo_bytes(&read(MEMINFO), "MemTotal").unwrap_or_default(),
        kernel: uname().map_or_else(|_| unknown(), |names| names.release().to_string_lossy().into_owned()),
        os: os_name(&read("/etc/os-release")),
        tls_library: openssl::version::version().to_owned(),
        cpu_accounting: CPU_ACCOUNTING.to_owned(),
    }
}

/// The memory of the machine, or the limit of our control group if it is lower; `None` if neither can be read.
pub fn usable_memory_bytes() -> Option<u64> {
    let machine = meminfo_bytes(&read(MEMINFO), "MemTotal")?;
    Some(cgroup::memory_limit_bytes().map_or(machine, |limit| limit.min(machine)))
}

/// The kernel gives names of x86 processors, and numbers of Arm processors.
fn cpu_model(cpuinfo: &str) -> String {
    if let Some(name) = field(cpuinfo, "model name") {
        return name.to_owned();
    }
    match (field(cpuinfo, "CPU implementer"), field(cpuinfo, "CPU part")) {
        (Some(implementer), Some(part)) => format!("{} {implementer}/{part}", std::env::consts::ARCH),
        _ => unknown(),
    }
}

fn crypto_instructions(cpuinfo: &str) -> Vec<CryptoInstruction> {
    let flags = field(cpuinfo, "flags").or_else(|| field(cpuinfo, "Features")).unwrap_or_default();
    let has = |name: &str| flags.split_ascii_whitespace().any(|flag| flag == name);
    CryptoInstruction::ALL.into_iter().filter(|instruction| has(instruction.label())).collect()
}

/// A size in the text of [`MEMINFO`].
pub fn meminfo_bytes(meminfo: &str, name: &str) -> Option<u64> {
    let kibibytes: u64 = field(meminfo, name)?.strip_suffix(" kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

fn os_name(os_release: &str) -> String {
    let name = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(unknown, |name| name.trim_matches(['"', '\'']).to_owned())
}

/// The value of the first line `NAME : VALUE`.
fn field<'text>(text: &'text str, name: &str) -> Option<&'text str> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(path)).unwrap_or_default()
}

fn unknown() -> String {
    "unknown".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpuinfo_of_x86_and_arm_is_parsed() {
        let x86 = "processor\t: 0\nmodel name\t: Xeon\nflags\t\t: fpu aes vaes sha_ni\n";
        assert_eq!(cpu_model(x86), "Xeon");
        let expected = [CryptoInstruction::Aes, CryptoInstruction::Vaes, CryptoInstruction::ShaNi];
        assert_eq!(crypto_instructions(x86), expected);
        let arm = "processor\t: 0\nFeatures\t: fp aes pmull\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert!(cpu_model(arm).ends_with("0x41/0xd0c"));
        assert_eq!(crypto_instructions(arm), [CryptoInstruction::Aes]);
    }

    #[test]
    fn memory_sizes_are_parsed() {
        let text = "MemTotal: 9 kB\nMemAvailable:    2048 kB\n";
        assert_eq!(meminfo_bytes(text, "MemAvailable"), Some(2 << 20));
        assert_eq!(meminfo_bytes("MemTotal: 9 kB\n", "MemAvailable"), None);
    }

    #[test]
    fn this_machine_has_processors_and_memory() {
        let environment = environment();
        assert!(environment.cpus >= 1 && environment.memory_bytes > 1 << 26);
        assert!(environment.tls_library.starts_with("OpenSSL"), "{}", environment.tls_library);
        assert_ne!(environment.kernel, "unknown");
        assert!(usable_memory_bytes().is_some_and(|bytes| bytes <= environment.memory_bytes));
    }

    #[test]
    fn quotes_around_the_os_name_are_removed() {
        assert_eq!(os_name("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"), "Debian GNU/Linux 12");
        assert_eq!(os_name(""), "unknown");
    }
}
