//! What goes wrong with a link.

use std::io;

use ciphertoll_model::LinkKind;

/// Why there is no link, or none any more.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine does not let us make one.
    #[error("no long link can be made here: {step}: {source}; `ciphertoll doctor` says what would help")]
    Forbidden {
        /// What was tried.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The process that is the link could not be started or talked to.
    #[error("the link's process: {doing}: {source}")]
    Process {
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// It is of a kind that cannot be like that.
    #[error("a link by {kind} {lacks}")]
    Unlike {
        /// The kind.
        kind: LinkKind,
        /// What it cannot do.
        lacks: &'static str,
    },
    /// It said that it failed.
    #[error("{0}")]
    Failed(String),
    /// It has ended, or does not answer.
    #[error("the link is down: {0}")]
    Down(&'static str),
    /// What it says is not understood.
    #[error("the link's process said what is not understood: {0}")]
    Unintelligible(#[from] serde_json::Error),
}

impl Error {
    pub(crate) fn at(step: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Forbidden { step, source }
    }

    /// Without what is the same of all of them.
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
