//! Every fuzz target on the committed inputs and on changed copies of them.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use ciphertoll_fuzz_targets::{ALL, FuzzTarget};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// Changed copies of each input. libFuzzer tries far more in `make test-full`.
const COPIES: usize = 128;
/// A fixed seed: a change never fails because of inputs that it did not introduce.
const SEED: u64 = 1;

fn seeds() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../seeds")
}

fn inputs_of(target: &FuzzTarget) -> Vec<Vec<u8>> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(seeds().join(target.name)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// Cuts, flips, removes or repeats some bytes.
fn changed(input: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..random.random_range(1..=4) {
        if bytes.is_empty() {
            break;
        }
        let at = random.random_range(0..bytes.len());
        match random.random_range(0..5) {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 1 << random.random_range(0..8),
            2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.random_range(0..5)],
            3 => drop(bytes.remove(at)),
            _ => {
                let end = (at + random.random_range(1..=16)).min(bytes.len());
                bytes.splice(at..at, input.get(at..end).unwrap_or_default().to_vec());
            }
        }
    }
    bytes
}

#[test]
fn no_committed_input_and_no_changed_copy_breaks_a_promise() {
    let mut random = StdRng::seed_from_u64(SEED);
    for target in &ALL {
        let inputs = inputs_of(target);
        assert!(!inputs.is_empty(), "{} has no inputs", target.name);
        let copies: Vec<Vec<u8>> = inputs
            .iter()
            .flat_map(|input| vec![input; COPIES])
            .map(|input| changed(input, &mut random))
            .collect();
        for input in inputs.iter().chain(&copies) {
            let run = target.run;
            let passed = catch_unwind(|| run(input)).is_ok();
            assert!(passed, "{} panics on {}", target.name, input.escape_ascii());
        }
    }
}

#[test]
fn every_target_is_given_to_libfuzzer_and_has_inputs() {
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml")).unwrap();
    for target in &ALL {
        assert!(
            manifest.contains(&format!("name = \"{}\"", target.name)),
            "{} is in checks/fuzz/Cargo.toml",
            target.name
        );
    }
    let directories = fs::read_dir(seeds()).unwrap().count();
    assert_eq!(directories, ALL.len(), "a directory of inputs for each target");
}
