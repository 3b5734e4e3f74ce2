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
