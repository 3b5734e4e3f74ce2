//! What is left when something is killed, full, forbidden or broken: nothing, and a line that says so.

mod broken;
mod descriptors;
mod full_disk;
mod killed;
mod secrets;
mod stopped;

/// The shortest run that has everything: a baseline and its repetition.
const ONE_CELL: [&str; 4] = ["--path", "plain", "--workload", "connect"];

/// [`ONE_CELL`] with `more`.
fn one_cell<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&ONE_CELL, more].concat()
}
