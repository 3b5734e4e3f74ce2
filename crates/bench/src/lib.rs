//! Measures ciphertoll itself: its load generator beside its peers ([`comparison`] lists them, [`arm`]
//! runs one, [`interleave`] all in turn), whether it is light enough ([`goal`]), whether it tells the
//! same as they do ([`agreement`]), whether a pause of the server shows ([`stall`]); its verdicts
//! against known truths ([`truth`]); what it says of two runs against what was done to them ([`pairs`]); whether long
//! links are as long as they say ([`links`]); and the sidecar beside other pools ([`pools`]).

pub mod agreement;
pub mod arm;
pub mod comparison;
pub mod goal;
pub mod interleave;
pub mod links;
pub mod pairs;
pub mod pools;
pub mod real;
pub mod stall;
pub mod truth;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The `ciphertoll` program beside this one: both are built into one directory.
pub fn ciphertoll_program() -> Result<PathBuf> {
    let directory = own_directory()?;
    let program = directory.join("ciphertoll");
    if !program.is_file() {
        bail!("no {}: build it first (cargo build --release -p ciphertoll-cli)", program.display());
    }
    Ok(program)
}

/// Where the C peers were built: `target/peers`.
pub fn peers_directory() -> Result<PathBuf> {
    let directory = own_directory()?;
    let target = directory.parent().context("this program lies in no target directory")?;
    Ok(target.join("peers"))
}

fn own_directory() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program")?;
    Ok(own.parent().unwrap_or(Path::new(".")).to_owned())
}
