//! Which processors this process may use, and a way to keep a client and a server apart on them.

use std::collections::BTreeSet;
use std::fs;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

/// Processors for a client and processors for a server, none in both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apart {
    /// The client's, ascending.
    pub client: Vec<u16>,
    /// The server's, ascending; where the halves are not equal, the larger.
    pub server: Vec<u16>,
}

/// Halves of the processors that this process may use; none where there is only one. The threads of one
/// core stay together, as one slows the other down, unless there is only one core.
pub fn processors_apart() -> Option<Apart> {
    const OURSELVES: Pid = Pid::from_raw(0);
    let allowed = sched_getaffinity(OURSELVES).ok()?;
    let usable: BTreeSet<u16> = (0..CpuSet::count())
        .filter(|&processor| allowed.is_set(processor).unwrap_or(false))
        .filter_map(|processor| u16::try_from(processor).ok())
        .collect();
    halves(&cores(&usable, siblings))
}

/// The hardware threads of the core that `processor` is one of, itself among them where the kernel tells.
pub(crate) fn siblings(processor: u16) -> BTreeSet<u16> {
    let path = format!("/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list");
    parse_list(&fs::read_to_string(path).unwrap_or_default())
}

/// `0-2,8`; what is not a number counts for nothing.
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

/// The usable processors by core, in the order of each core's first.
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

fn halves(cores: &[Vec<u16>]) -> Option<Apart> {
    if let [core] = cores {
        let (client, server) = core.split_at(core.len() / 2);
        return (!client.is_empty()).then(|| Apart { client: client.to_vec(), server: server.to_vec() });
    }
    let total: usize = cores.iter().map(Vec::len).sum();
    let client_processors =
        |cores_of_client: usize| -> usize { cores[..cores_of_client].iter().map(Vec::len).sum() };
    // The first of equals: the server gets the larger half.
    let cut = (1..cores.len()).min_by_key(|&cut| (2 * client_processors(cut)).abs_diff(total))?;
    let sorted = |cores: &[Vec<u16>]| {
        let processors: BTreeSet<u16> = cores.iter().flatten().copied().collect();
        processors.into_iter().collect()
    };
    Some(Apart { client: sorted(&cores[..cut]), server: sorted(&cores[cut..]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apart(
        usable: impl IntoIterator<Item = u16>,
        siblings: impl Fn(u16) -> BTreeSet<u16>,
    ) -> Option<Apart> {
        halves(&cores(&usable.into_iter().collect(), siblings))
    }

    fn halved(client: &[u16], server: &[u16]) -> Apart {
        Apart { client: client.to_vec(), server: server.to_vec() }
    }

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
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
    fn siblings_stay_together_unless_they_are_all_there_is() {
        // Thread n + 4 is the sibling of thread n.
        let siblings = |processor: u16| [processor % 4, processor % 4 + 4].into();
        assert_eq!(apart(0..8, siblings), Some(halved(&[0, 1, 4, 5], &[2, 3, 6, 7])));
        assert_eq!(apart([0, 4], siblings), Some(halved(&[0], &[4])));
        assert_eq!(apart([0, 1, 4], siblings), Some(halved(&[0, 4], &[1])));
        let unknown = |_| BTreeSet::new();
        assert_eq!(apart([0, 1], unknown), Some(halved(&[0], &[1])));
    }

    #[test]
    fn this_machines_halves_are_apart() {
        let Some(Apart { client, server }) = processors_apart() else {
            assert_eq!(std::thread::available_parallelism().map_or(1, usize::from), 1);
            return;
        };
        assert!(!client.is_empty() && !server.is_empty());
        assert!(client.iter().all(|processor| !server.contains(processor)));
    }
}
