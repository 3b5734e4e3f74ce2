//! Why a host cannot be used.

use std::io;
use std::path::PathBuf;

use ciphertoll_model::ExitCode;

use crate::transport::KubernetesError;

#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The host was not reached, or was lost and not reached again.
    #[error("host {host}: {reason}")]
    Unreachable { host: String, reason: String },
    #[error(
        "host {host} has ciphertoll {theirs} (protocol {their_protocol}), and this is {ours} (protocol {our_protocol}): use the same version on both"
    )]
    Version { host: String, theirs: String, their_protocol: u32, ours: String, our_protocol: u32 },
    #[error("cannot read {path} for the load hosts: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("{path} has more than {limit} bytes, too many for a load host")]
    FileTooLarge { path: PathBuf, limit: usize },
    /// An operation of this machine failed.
    #[error("{doing}: {source}")]
    Io { doing: &'static str, source: io::Error },
    #[error(transparent)]
    Kubernetes(KubernetesError),
    /// By the user, while waiting for a host.
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Record(#[from] ciphertoll_record::Error),
}

<<<<<<< HEAD
impl From<KubernetesError> for Error {
    fn from(error: KubernetesError) -> Self {
        match error {
            KubernetesError::Interrupted => Self::Interrupted,
            error => Self::Kubernetes(error),
        }
    }
}

impl Error {
=======
impl HostError {
>>>>>>> hosts
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }

    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Unreachable { .. }
            | Self::Io { .. }
            | Self::FileTooLarge { .. }
            | Self::File { .. }
            | Self::Kubernetes(_)
            | Self::Interrupted => ExitCode::HostResource,
            Self::Version { .. } => ExitCode::Usage,
            Self::Record(error) => error.exit_code(),
        }
    }
}
