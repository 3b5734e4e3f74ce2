//! Errors of a link.

use std::io;

use ciphertoll_model::LinkKind;

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine does not permit one.
    #[error("cannot make a long link: {step}: {source}; `ciphertoll doctor` suggests fixes")]
    Forbidden {
        /// The operation.
        step: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The link process could not be started or used.
    #[error("the link process: cannot {doing}: {source}")]
    Process {
        /// The operation.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// This kind of link cannot emulate what was asked for.
    #[error("a link by {kind}: {missing}")]
    Unsupported {
        kind: LinkKind,
        /// What it cannot do.
        missing: &'static str,
    },
    /// The process reported an error.
    #[error("{0}")]
    Failed(String),
    /// The process has ended or does not answer.
    #[error("the link is down: {0}")]
    Down(&'static str),
    /// The process wrote something that does not parse.
    #[error("cannot parse the link process's reply: {0}")]
    Unintelligible(#[from] serde_json::Error),
}

impl Error {
    pub(crate) fn at(step: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Forbidden { step, source }
    }

    /// The reason without the words that all errors share.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Forbidden { step, source } => format!("{step}: {source}"),
            other => other.to_string(),
        }
    }

    pub(crate) fn process(doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Process { doing, source }
    }
}
