//! Benchmarks and validation of ciphertoll itself.
//!
//! - Its load generator compared with other tools: [`comparison`] lists the comparisons, [`arm`] runs one tool,
//!   [`interleave`] alternates them, [`goal`] checks the goals, [`agreement`] compares the reported figures, [`stall`]
//!   checks that a pause of the server is visible.
//! - Its predictions compared with measurements: [`predictions`].
//! - Its verdicts compared with known effects: [`truth`] within a run, [`pairs`] between two runs.
//! - Emulated links: [`links`]. Encryption at rest, measured with another client: [`at_rest`].
//! - What a run does when its processes fail: [`faults`]. The sidecar under load for a long time: [`soak`].
//! - The sidecar compared with other pooling proxies: [`pools`]. Loading documents: [`documents`].
//! - Observing compared with a loop that only counts packets: [`observe`].
//! - The coordinator with many load hosts: [`scale_out`].
//!
//! # Where to change what
//!
//! - a fault or a process of the fault matrix; the soak of the sidecar: `bench::faults::matrix`,
//!   `bench::faults::injection`; `bench::soak`

pub mod agreement;
pub mod arm;
pub mod at_rest;
pub mod comparison;
pub mod documents;
pub mod faults;
pub mod goal;
pub mod interleave;
pub mod links;
pub mod observe;
pub mod pairs;
pub mod pools;
pub mod predictions;
pub mod real;
pub mod scale_out;
pub mod setup;
pub mod soak;
pub mod stall;
pub mod truth;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The `ciphertoll` program, which cargo builds into the directory of this program.
pub fn ciphertoll_program() -> Result<PathBuf> {
    let directory = own_directory()?;
    let program = directory.join("ciphertoll");
    if !program.is_file() {
        bail!("{} not found: build it first (cargo build --release -p ciphertoll-cli)", program.display());
    }
    Ok(program)
}

/// The directory of the compiled C loops: `target/peers`.
pub fn peers_directory() -> Result<PathBuf> {
    let directory = own_directory()?;
    let target = directory.parent().context("this program is not in a target directory")?;
    Ok(target.join("peers"))
}

fn own_directory() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this executable")?;
    Ok(own.parent().unwrap_or(Path::new(".")).to_owned())
}

/// How often to sample, and in which order.
#[derive(clap::Args)]
pub struct RoundArguments {
    /// Number of rounds, after a warm-up round
    #[arg(long, default_value_t = 7)]
    pub rounds: u32,
    /// Seed of the random order
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

pub fn print_line(line: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{line}").context("cannot write to stdout")
}
