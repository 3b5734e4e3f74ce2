//! This process: its path, and the signals that interrupt it.

use std::path::PathBuf;

use ciphertoll_experiment::Interrupt;
use ciphertoll_model::ExitCode;

use crate::failure::Failure;

const SIGNALS: [i32; 2] = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];

/// The path of this program, which starts all child processes.
pub(crate) fn program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| {
        Failure::new(ExitCode::HostResource, format!("cannot find the ciphertoll executable: {error}"))
    })
}

pub(crate) fn watch_signals() -> Result<Interrupt, Failure> {
    let interrupt = Interrupt::default();
    for signal in SIGNALS {
        signal_hook::flag::register_usize(signal, interrupt.flag(), signal as usize)
            .map_err(|error| Failure::new(ExitCode::Internal, format!("cannot handle signals: {error}")))?;
    }
    Ok(interrupt)
}
