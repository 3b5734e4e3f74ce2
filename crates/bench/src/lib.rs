//! Measures ciphertoll itself: its load generator beside its peers ([`comparison`] lists them, [`arm`]
//! runs one, [`interleave`] all in turn), whether it is light enough ([`goal`]), whether it tells the
//! same as they do ([`agreement`]), whether a pause of the server shows ([`stall`]); its verdicts
//! against known truths ([`truth`]); what it says of two runs against what was done to them ([`pairs`]); whether long
//! links are as long as they say ([`links`]); whether another client finds the same cost of encrypted files ([`at_rest`]); the sidecar beside other pools ([`pools`]); and how fast documents are
//! loaded ([`documents`]).

pub mod agreement;
pub mod arm;
pub mod at_rest;
pub mod comparison;
pub mod documents;
pub mod goal;
pub mod interleave;
pub mod links;
pub mod pairs;
pub mod pools;
pub mod real;
pub mod stall;
pub mod truth;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ciphertoll_lab::{Lab, Server, ServerStart, Tables};
use ciphertoll_model::{Engine, ServerKey, ServerLevel, Strength};

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

/// A private server of this engine with these tables, and a P-256 key, as every program here wants one.
pub fn start_server(lab: &Lab, engine: Engine, tables: &Tables) -> Result<Server> {
    let build = ciphertoll_lab::find(&ServerLevel::of(engine))?;
    let template = lab.template(&build, tables, &mut |_| (), &|| false)?;
    let log = lab.scratch().path().join("server.log");
    let start = ServerStart {
        build: &build,
        template: &template,
        name: "s1",
        key: ServerKey::P256,
        log,
        preferred_port: None,
        processors: None,
        strength: Strength::Default,
    };
    Ok(lab.start(&start)?)
}

/// Prints a line of what was found.
pub fn say(line: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{line}").context("cannot write to stdout")
}
