//! Gives up rights that are no longer needed.

use std::io;

use nix::sys::prctl;
use nix::unistd::{Gid, Uid, geteuid, setgid, setgroups, setuid};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

/// The user and group `nobody`.
const NOBODY: u32 = 65_534;

/// Becomes `nobody` if this is root, and keeps no capability and no way to get one. Descriptors stay open. To be called before
/// another thread starts.
pub fn give_up() -> io::Result<()> {
    prctl::set_no_new_privs()?;
    if geteuid().is_root() {
        setgroups(&[])?;
        setgid(Gid::from_raw(NOBODY))?;
        setuid(Uid::from_raw(NOBODY))?;
    }
    let none = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}
