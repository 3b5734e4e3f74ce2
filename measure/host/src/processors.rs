//! The processors that this process may use, and a split of them between client and server.

use std::collections::BTreeSet;
use std::fs;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

/// Disjoint sets of processors for client and server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessorSplit {
    /// Ascending.
    pub client: Vec<u16>,
    /// Ascending; the larger half if the halves are not equal.
    pub server: Vec<u16>,
}

/// Splits the processors that this process may use into halves; `None` if there is only one. Hardware threads of a core
/// stay in the same half, because they slow each other down, unless there is only one core.
pub fn split_processors() -> Option<ProcessorSplit> {
    const OURSELVES: Pid = Pid::from_raw(0);
    let allowed = sched_getaffinity(OURSELVES).ok()?;
    let usable: BTreeSet<u16> = (0..CpuSet::count())
        .filter(|&processor| allowed.is_set(processor).unwrap_or(false))
        .filter_map(|processor| u16::try_from(processor).ok())
        .collect();
    halves(&cores(&usable, siblings))
}

/// The hardware threads of the core of `processor`, including itself; empty if the kernel does not report them.
pub fn siblings(processor: u16) -> BTreeSet<u16> {
    let path = format!("/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list");
    parse_list(&fs::read_to_string(path).unwrap_or_default())
}

/// Parses `0-2,8`; ignores what is not a number.
fn parse_list(text: &str) -> BTreeSet<u16> {
    let mut processors = BTreeSet::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u16>(), last.parse::<u16>()) {
            processors.extend(first..=last);
        }
    }
    processors
}

/// The usable processors grouped by core, ordered by each core's first processor.
fn cores(usable: &BTreeSet<u16>, siblings: impl Fn(u16) -> BTreeSet<u16>) -> Vec<Vec<u16>> {
    let mut left = usable.clone();
    let mut cores = Vec::new();
    while let Some(first) = left.pop_first() {
        let mut core = vec![first];
        core.extend(siblings(first).into_iter().filter(|processor| left.remove(processor)));
        cores.push(core);
    }
    cores
}

fn halves(cores: &[Vec<u16>]) -> Option<ProcessorSplit> {
    if let [core] = cores {
        let (client, server) = core.split_at(core.len() / 2);
        return (!client.is_empty())
            .then(|| ProcessorSplit { client: client.to_vec(), server: server.to_vec() });
    }
    let total: usize = cores.iter().map(Vec::len).sum();
    let client_processors =
        |cores_of_client: usize| -> usize { cores[..cores_of_client].iter().map(Vec::len).sum() };
    // `min_by_key` takes the first of equal cuts, so the server gets the larger half.
    let cut = (1..cores.len()).min_by_key(|&cut| (2 * client_processors(cut)).abs_diff(total))?;
    let sorted = |cores: &[Vec<u16>]| {
        let processors: BTreeSet<u16> = cores.iter().flatten().copied().collect();
        processors.into_iter().collect()
    };
    Some(ProcessorSplit { client: sorted(&cores[..cut]), server: sorted(&cores[cut..]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apart(
        usable: impl IntoIterator<Item = u16>,
        siblings: impl Fn(u16) -> BTreeSet<u16>,
    ) -> Option<ProcessorSplit> {
        halves(&cores(&usable.into_iter().collect(), siblings))
    }

    fn halved(client: &[u16], server: &[u16]) -> ProcessorSplit {
        ProcessorSplit { client: client.to_vec(), server: server.to_vec() }
    }

    #[test]
    fn processor_lists_of_the_kernel_are_parsed() {
        assert_eq!(parse_list("0-2,8\n"), [0, 1, 2, 8].into());
        assert_eq!(parse_list("7"), [7].into());
        assert_eq!(parse_list(""), [].into());
    }

    #[test]
    fn cores_without_siblings_are_halved() {
        let alone = |processor| [processor].into();
        assert_eq!(apart([0, 1], alone), Some(halved(&[0], &[1])));
        assert_eq!(apart([0, 3, 5], alone), Some(halved(&[0], &[3, 5])));
        assert_eq!(apart([4], alone), None);
        assert_eq!(apart([], alone), None);
    }

    #[test]
    fn siblings_stay_together_unless_there_is_one_core() {
        // Thread n + 4 is the sibling of thread n.
        let siblings = |processor: u16| [processor % 4, processor % 4 + 4].into();
        assert_eq!(apart(0..8, siblings), Some(halved(&[0, 1, 4, 5], &[2, 3, 6, 7])));
        assert_eq!(apart([0, 4], siblings), Some(halved(&[0], &[4])));
        assert_eq!(apart([0, 1, 4], siblings), Some(halved(&[0, 4], &[1])));
        let unknown = |_| BTreeSet::new();
        assert_eq!(apart([0, 1], unknown), Some(halved(&[0], &[1])));
    }

    #[test]
    fn the_halves_of_this_machine_are_disjoint() {
        let Some(ProcessorSplit { client, server }) = split_processors() else {
            assert_eq!(std::thread::available_parallelism().map_or(1, usize::from), 1);
            return;
        };
        assert!(!client.is_empty() && !server.is_empty());
        assert!(client.iter().all(|processor| !server.contains(processor)));
    }
}
