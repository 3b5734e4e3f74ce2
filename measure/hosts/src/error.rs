//! Why a host cannot be used.

use std::io;
use std::path::PathBuf;

use ciphertoll_model::ExitCode;

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

/// Pods of a Kubernetes cluster cannot be created or reached.
#[derive(Debug, thiserror::Error)]
pub enum KubernetesError {
    #[error(transparent)]
    Kubectl(#[from] KubectlError),
    #[error("a load host in {place} cannot start: {reason}")]
    Failed { place: String, reason: String },
    #[error("a load host in {place} was not ready within {seconds} s: {reason}")]
    NotReady { place: String, seconds: u64, reason: String },
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Ledger(#[from] ciphertoll_record::Error),
}

/// `kubectl` did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum KubectlError {
    #[error("kubectl is not installed, but k8s: needs it")]
    Missing,
    #[error("kubectl cannot {action} in {place}: {reason}")]
    Failed { action: &'static str, place: String, reason: String },
}

impl From<KubernetesError> for HostError {
    fn from(error: KubernetesError) -> Self {
        match error {
            KubernetesError::Interrupted => Self::Interrupted,
            error => Self::Kubernetes(error),
        }
    }
}

impl HostError {
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
