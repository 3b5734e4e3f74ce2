//! Everything that outlives a process: the run directory with its events, and the ledger of effects with which a later run
//! cleans up after a killed one.
//!
//! # Where to change what
//!
//! - what `runs` lists and removes; accepted scratch directories: `record::catalogue`, `cli::runs`;
//!   `record::scratch`, `host::scratch`

mod caller;
mod catalogue;
mod control_group;
mod disk;
pub mod error;
mod kubernetes_job;
pub mod ledger;
pub mod mount;
mod observation;
mod output;
pub mod process;
pub mod read;
pub mod run_dir;
pub mod scratch;

pub use caller::Caller;
pub use catalogue::{
    Catalogue, CatalogueEntry, Removable, RemovableRun, RunContents, RunState, Selection, find_removable,
    finish_removals, is_in_progress, list_runs, remove_run,
};
pub use control_group::remove_control_group;
pub use error::{Context, Error};
pub use kubernetes_job::{KubernetesJob, RUN_LABEL};
pub use ledger::{Effect, Ledger};
pub use mount::{is_mounted, unmount};
pub use observation::{ObservationDirectory, ObservationSummary, read_observation};
pub use output::{LimitedOutput, output_within};
pub use process::{ProcessEnd, ProcessIdentity};
pub use read::{Record, Tail, resolve, runs_newest_first};
pub use run_dir::{DEFAULT_RUNS, RunDirectory};
pub use scratch::{
    LONGEST_SOCKET_BELOW_ROOT, Left, MAX_SOCKET_BYTES, SCRATCH_DIRECTORY_VARIABLE, Scratch, ScratchUse,
    SweepReport, check_ours, check_scratch_directory, is_noexec, prepare_scratch_directory, scratch_root,
    scratch_root_below, sweep,
};
