//! The pairs of the matrix: which process is hit by which fault, and with which run.

use super::clock;
pub use super::target::{FullDisk, InjectedFault, Target};

/// Whether a pair can be tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applicability {
    Applies,
    /// It makes no sense, or cannot be tested, for this reason.
    Excluded(&'static str),
}

const PRIVATE_NETWORK: &str = "it listens in a private network, where no other program can take its port";

/// Whether the pair can be tested on this machine.
pub fn applicability(target: Target, fault: InjectedFault) -> Applicability {
    use Applicability::Excluded;
    match (target, fault) {
        (Target::DelayLine | Target::Load, InjectedFault::DiskFull) => Excluded("it writes no file"),
        (Target::OpenVpn | Target::WireGuard, InjectedFault::PortTaken) => Excluded(PRIVATE_NETWORK),
        (Target::DelayLine | Target::Load | Target::Coordinator, InjectedFault::PortTaken) => {
            Excluded("it does not listen")
        }
        (Target::WireGuard, InjectedFault::ClockStepped) => {
            Excluded("it is a static program, whose clock can only be stepped with the machine's")
        }
        (Target::DelayLine | Target::Load, InjectedFault::ClockStepped) => {
            Excluded("stepped together with the coordinator's: it is the same program")
        }
        (_, InjectedFault::ClockStepped) if clock::library().is_none() => {
            Excluded("scripts/build-peers has not built the library")
        }
        (_, InjectedFault::DiskFull) if !nix::unistd::geteuid().is_root() => {
            Excluded("only root can mount a small file system")
        }
        _ => Applicability::Applies,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_can_be_killed_and_stopped() {
        for target in Target::ALL {
            for fault in [InjectedFault::Killed, InjectedFault::Stopped] {
                assert_eq!(applicability(target, fault), Applicability::Applies, "{target:?} {fault:?}");
            }
        }
    }

    #[test]
    fn labels_are_unique() {
        let mut labels: Vec<&str> = Target::ALL.into_iter().map(Target::label).collect();
        labels.extend(InjectedFault::ALL.into_iter().map(InjectedFault::label));
        let count = labels.len();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), count);
    }
}
