//! The view model: everything a report says, as sentences and tables, before layout.

pub(crate) mod absent;
pub(crate) mod advice;
pub(crate) mod at_rest;
pub(crate) mod caveats;
pub(crate) mod certainty;
pub(crate) mod connect_cost;
pub(crate) mod crossings;
pub(crate) mod decision;
mod documents;
pub(crate) mod headline;
pub(crate) mod hosts;
pub(crate) mod key_exchange;
pub(crate) mod levels;
pub(crate) mod matrix;
pub(crate) mod negotiated;
pub(crate) mod phases;
pub(crate) mod plan;
pub(crate) mod profile;
pub(crate) mod published;
pub(crate) mod repeat;
pub(crate) mod round_trips;
mod skipped;
mod stratum;
mod table;
mod text;
pub(crate) mod verdicts;

pub(crate) use skipped::{by_reason, unlike};
pub(crate) use stratum::{StratumView, certain_ratio, is_plain_load, level, strata};
pub(crate) use table::{Column, ColumnKind, Overflow, Section, Table, TableEntry};
pub(crate) use text::{Sentence, SentenceGroup, Tone, capital, clean};

use crate::RunReport;

/// The evidence for the answer.
pub(crate) fn sections(report: &RunReport<'_>, strata: &[StratumView<'_>]) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for stratum in strata {
        sections.extend(levels::section(stratum));
        sections.extend(phases::section(stratum));
        sections.extend(crossings::section(stratum));
    }
    sections.extend(key_exchange::section(report, strata));
    sections.extend(connect_cost::sections(report));
    sections.extend(profile::sections(report, strata));
    sections.extend(round_trips::sections(report));
    sections.extend(published::sections(report));
    sections.extend(hosts::section(report));
    sections.extend(negotiated::section(strata));
    sections.extend(caveats::sections(report, strata));
    sections
}
