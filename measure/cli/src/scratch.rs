//! The directory of scratch files: the user's choice, or the default.

use std::path::{Path, PathBuf};

use ciphertoll_model::{AtRest, Plan, Spec};
use ciphertoll_record::{ScratchUse, scratch_root};

use crate::failure::Failure;

/// Checks the directory that the user has chosen, if any; returns the root of scratch directories.
pub(crate) fn root(directory: Option<&Path>, used_for: ScratchUse) -> Result<PathBuf, Failure> {
    match directory {
        Some(directory) => Ok(ciphertoll_host::scratch::prepare_scratch_root(directory, used_for)?),
        None => Ok(scratch_root()),
    }
}

pub(crate) fn used_for(plan: &Plan) -> ScratchUse {
    let has_library = plan.cells.iter().any(|cell| matches!(cell.treatment.at_rest, AtRest::Tde(_)));
    if has_library { ScratchUse::Code } else { ScratchUse::Data }
}

/// Writes the choice into the specification, as an absolute path, because it may be resumed in another directory.
pub(crate) fn choose(spec: &mut Spec, chosen: Option<&PathBuf>) -> Result<(), Failure> {
    let Some(directory) = chosen.or(spec.scratch_dir.as_ref()) else { return Ok(()) };
    let absolute = std::path::absolute(directory)
        .map_err(|error| Failure::usage(format!("--scratch-dir {}: {error}", directory.display())))?;
    spec.scratch_dir = Some(absolute);
    Ok(())
}
