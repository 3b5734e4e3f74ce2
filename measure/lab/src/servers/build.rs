//! An installed or fetched server.

use std::path::PathBuf;

use ciphertoll_model::Engine;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    pub engine: Engine,
    /// As the program reports it: `10.11.19`.
    pub version: String,
    pub server_program: PathBuf,
    /// Creates an empty data directory; the server program itself, if it does that.
    pub install_program: PathBuf,
    /// The installation prefix: `/usr`.
    pub base_directory: PathBuf,
}

impl Build {
    /// `MariaDB 10.11.19`
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.engine.display_name(), self.version)
    }
}

/// The numbers of `10.11.19`, for comparison; 0 for a part that is not a number.
pub(crate) fn version_numbers(version: &str) -> Vec<u32> {
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert!(version_numbers("10.11.2") > version_numbers("10.6.19"));
        assert!(version_numbers("11.4.1") > version_numbers("10.11.19"));
    }
}
