//! The directory of scratch files that the user has chosen.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ciphertoll_record::Context;
use ciphertoll_record::{ScratchUse, prepare_scratch_directory};

use crate::error::Error;
use crate::user::{RunAs, ServerUser};

/// Checks `directory` and returns the root of scratch directories in it. Fails if the user that servers run as cannot
/// enter it. Creates nothing.
pub fn prepare_scratch_root(directory: &Path, used_for: ScratchUse) -> Result<PathBuf, Error> {
    let root = prepare_scratch_directory(directory, used_for)?;
    if let Some(user) = RunAs::choose()?.other() {
        for ancestor in root.ancestors().skip(1) {
            check_search(directory, ancestor, user)?;
        }
    }
    Ok(root)
}

/// Fails if `user` cannot enter `ancestor`, by its owner, group and mode.
fn check_search(directory: &Path, ancestor: &Path, user: ServerUser) -> Result<(), Error> {
    let metadata = fs::metadata(ancestor).context("look at", ancestor)?;
    let search = match metadata {
        _ if metadata.uid() == user.uid => 0o100,
        _ if metadata.gid() == user.gid => 0o010,
        _ => 0o001,
    };
    if metadata.mode() & search != 0 {
        return Ok(());
    }
    let reason = format!(
        "servers run as the user with the id {}, which cannot enter {}; run `chmod o+x {}`, or use another directory",
        user.uid,
        ancestor.display(),
        ancestor.display()
    );
    Err(ciphertoll_record::Error::ScratchUnusable { path: directory.to_owned(), reason }.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The server user owns nothing here, so it is one of the others.
    #[test]
    fn the_server_user_must_be_able_to_enter() {
        let place = tempfile::tempdir().unwrap();
        let nobody = ServerUser { uid: u32::MAX - 7, gid: u32::MAX - 7 };
        let set_mode = |mode| fs::set_permissions(place.path(), fs::Permissions::from_mode(mode)).unwrap();
        set_mode(0o711);
        check_search(place.path(), place.path(), nobody).unwrap();
        set_mode(0o700);
        let error = check_search(place.path(), place.path(), nobody).unwrap_err();
        assert!(error.to_string().contains("cannot enter"), "{error}");
        assert_eq!(error.exit_code(), ciphertoll_model::ExitCode::HostResource);
        let owner = fs::metadata(place.path()).unwrap();
        check_search(place.path(), place.path(), ServerUser { uid: owner.uid(), gid: owner.gid() }).unwrap();
    }
}
