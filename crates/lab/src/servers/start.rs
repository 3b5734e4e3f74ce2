//! The arguments of a server's start.

use std::path::PathBuf;

use ciphertoll_model::{SecurityLevel, ServerKey};

use crate::servers::build::Build;
use crate::servers::template::DataTemplate;

pub struct ServerStart<'a> {
    pub build: &'a Build,
    pub template: &'a DataTemplate,
    /// Unique in the run; short, because it is part of a socket's path.
    pub name: &'a str,
    /// Key of the first certificate.
    pub key: ServerKey,
    pub log: PathBuf,
    /// Tried before any other port.
    pub preferred_port: Option<u16>,
    /// CPU affinity, as [`crate::split_processors`] returns it; all processors if absent.
    pub processors: Option<Vec<u16>>,
    /// Whether the server accepts keys that its OpenSSL refuses by default.
    pub strength: SecurityLevel,
}
