//! Processes of clients: joined to pairs, named on the first screen, read from documents.

use ciphertoll_observe::{ClientProcess, Observation, first_screen};
use serde_json::json;

use crate::hostile::sample;

fn process(name: &str, connections: u64) -> ClientProcess {
    ClientProcess { name: name.to_owned(), container: None, unit: None, connections }
}

/// The sample without processes.
fn unnamed() -> Observation {
    let mut observation = sample();
    observation.pairs.iter_mut().for_each(|pair| pair.processes.clear());
    observation
}

#[test]
fn processes_join_the_pair_of_their_addresses() {
    let mut observation = unnamed();
    let mapped = "::ffff:10.0.0.7".parse().unwrap();
    observation.add_processes([
        ("10.0.0.7".parse().unwrap(), "10.0.0.5:5432".parse().unwrap(), process("cron", 1)),
        (mapped, "[::ffff:10.0.0.5]:5432".parse().unwrap(), process("php-fpm", 2)),
        ("fd00::17".parse().unwrap(), "[fd00::5]:5433".parse().unwrap(), process("java", 3)),
        // No packet of these was seen.
        ("10.0.0.7".parse().unwrap(), "10.0.0.5:5433".parse().unwrap(), process("psql", 4)),
        ("10.0.0.77".parse().unwrap(), "10.0.0.5:5432".parse().unwrap(), process("psql", 4)),
    ]);
    let names: Vec<Vec<_>> = observation
        .pairs
        .iter()
        .map(|pair| pair.processes.iter().map(|process| &process.name[..]).collect())
        .collect();
    assert_eq!(names, [vec!["php-fpm", "cron"], vec![], vec![], vec!["java"]]);
}

#[test]
fn the_first_screen_names_two_processes_of_a_pair() {
    let screen = first_screen(&sample());
    let line =
        "10.0.0.7 (php-fpm in 3f2a91c0d7e1, php in cron.service and 1 more) → 10.0.0.5:5432 (postgres): ";
    assert!(screen.contains(line), "{screen}");
    assert!(screen.contains("\napp2.example → 10.0.0.6:3306 "), "{screen}");
    let without = first_screen(&unnamed());
    assert!(without.contains("\n10.0.0.7 → 10.0.0.5:5432 "), "{without}");
    assert_eq!(screen.lines().count(), without.lines().count());
}

#[test]
fn documents_of_others_have_few_processes_with_printable_names() {
    let mut document = serde_json::to_value(unnamed()).unwrap();
    assert!(document["pairs"][0].get("processes").is_none());
    assert_eq!(Observation::from_json(&document.to_string()).unwrap(), unnamed());
    let hostile = json!({ "name": "a\u{1b}[31m\nb", "container": "\u{202e}", "connections": 5 });
    document["pairs"][0]["processes"] = json!(vec![hostile; 1_000]);
    let read = Observation::from_json(&document.to_string()).unwrap();
    let processes = &read.pairs[0].processes;
    assert_eq!((processes.len(), &processes[0].name[..]), (20, "a?[31m?b"));
    assert_eq!(processes[0].container.as_deref(), Some("?"));
    document["pairs"][0]["processes"] = json!([{ "name": "a", "connections": u64::MAX }]);
    assert!(Observation::from_json(&document.to_string()).is_err());
}
