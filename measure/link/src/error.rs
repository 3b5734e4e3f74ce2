//! Errors of a link.

use std::io;

use ciphertoll_model::LinkKind;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine does not permit one.
    #[error("cannot make a long link: {step}: {source}; `ciphertoll doctor` suggests fixes")]
    Forbidden { step: &'static str, source: io::Error },
    /// The link process could not be started or used.
    #[error("the link process: cannot {doing}: {source}")]
    Process { doing: &'static str, source: io::Error },
    #[error("a link by {kind}: {missing}")]
    Unsupported { kind: LinkKind, missing: &'static str },
    #[error("{0}")]
    Failed(String),
    #[error("the link is down: {0}")]
    Down(&'static str),
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
