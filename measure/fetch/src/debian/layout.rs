//! Where a directory with packages of Debian has its loader and libraries.

/// The loader, relative to the root directory.
#[cfg(target_arch = "x86_64")]
pub const LOADER: &str = "usr/lib64/ld-linux-x86-64.so.2";
#[cfg(target_arch = "aarch64")]
pub const LOADER: &str = "usr/lib/ld-linux-aarch64.so.1";

/// The directory of the architecture's libraries.
#[cfg(target_arch = "x86_64")]
pub const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
#[cfg(target_arch = "aarch64")]
pub const LIBRARIES: &str = "usr/lib/aarch64-linux-gnu";
