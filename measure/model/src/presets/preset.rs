//! A named run: its servers, its specification, and the study that it repeats.

use super::published::Published;
use super::study::{PublishedNumber, Study};
use crate::{Engine, ServerLevel, Size, Spec};

/// A named run, mostly the repetition of a published study.
#[derive(Debug)]
pub struct Preset {
    pub name: &'static str,
    /// Its question.
    pub about: &'static str,
    /// Publisher and date.
    pub source: &'static str,
    /// Levels of the servers that repeat it, the closest to the published one first.
    pub(super) servers: &'static [&'static str],
    /// How many of them, if the user names none.
    pub measures: Measures,
    /// Differences between the study and its repetition, one line each.
    pub deviations: &'static [&'static str],
    /// Explanations of the figures, one line each.
    pub explanation: &'static [&'static str],
    pub(super) spec: fn(&[ServerLevel], Size) -> Spec,
    /// Absent if it repeats no study.
    pub study: Option<Study>,
}

/// How many of its servers a preset measures if the user names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measures {
    EveryServer,
    /// The first one that is installed.
    OneServer,
}

impl Preset {
    pub fn servers(&self) -> Vec<ServerLevel> {
        self.servers.iter().filter_map(|level| level.parse().ok()).collect()
    }

    /// Whether its figures apply to `engine`: to engines with the protocol of the published one.
    pub fn is_of(&self, engine: Engine) -> bool {
        self.servers().first().is_some_and(|server| server.engine.shares_protocol(engine))
    }

    /// The specification that repeats it on `servers`.
    pub fn spec(&self, servers: &[ServerLevel], size: Size) -> Spec {
        Spec { name: self.name.to_owned(), size, ..(self.spec)(servers, size) }
    }

    /// Every number that its study published.
    pub fn numbers(&self) -> Vec<PublishedNumber> {
        self.study.as_ref().map(|study| (study.numbers)()).unwrap_or_default()
    }

    /// The compared ones as ratios.
    pub fn published(&self) -> Vec<Published> {
        let compared = self.numbers().into_iter().filter(|number| number.unlike.is_none());
        compared.filter_map(|number| number.place).collect()
    }
}
