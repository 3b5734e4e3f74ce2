//! CPU time per operation by part: a bar for each path.

use ciphertoll_model::{CpuPart, Metric};

use super::bars::{self, BarNames, BarPart, StackedBar};
use super::figure::{Figure, TOTAL_WHISKER, highest, pictures, whiskers};
use crate::number::{percent, quantity, scale};
use crate::view::profile::{self, CpuShares};
use crate::view::{StratumView, level};

const TOTAL: Metric = Metric::CpuUsPerOpTotal;

/// Of the configurations that were sampled: computed shares are not the whole.
pub(super) fn figure(stratum: &StratumView<'_>, id: &str) -> Option<Figure> {
    if stratum.plan.factor.is_some() {
        return None;
    }
    let all = profile::of(stratum.report);
    let found: Vec<&CpuShares<'_>> =
        profile::in_stratum(stratum, &all).into_iter().filter(|found| found.profile.is_some()).collect();
    let numbers = profile::table(stratum, &found)?;
    let unit = scale(TOTAL, highest(stratum, &[TOTAL]));
    let bars: Vec<StackedBar<'_>> = found.iter().filter_map(|found| bar(stratum, found)).collect();
    if bars.is_empty() {
        return None;
    }
    let is_seen = |part: &CpuPart| found.iter().any(|found| found.shares.contains_key(part));
    let seen: Vec<CpuPart> = CpuPart::ALL.into_iter().filter(is_seen).collect();
    let heading = "CPU time by part".to_owned();
    let words = |found: &&CpuShares<'_>| format!("{}: {}", stratum.row_label(found.cell), found.words());
    let words: Vec<String> = found.iter().map(words).collect();
    let description =
        format!("Stacked bars, one for each path, of the parts of the CPU time. {}", words.join(" "));
    let id = format!("{id}-profile");
    let pictures = pictures(&id, &format!("{heading}, {}", stratum.name()), &description, |drawing| {
        bars::draw(drawing, &bars, unit, BarNames::Left);
        drawing.key(seen.iter().map(|part| {
            let (class, _, is_hatched) = look(*part);
            bars::swatch(class, profile::title(*part), is_hatched)
        }));
    });
    let totals = bars.iter().map(|bar| bar.total);
    Some(Figure {
        pictures,
        id,
        heading,
        reading: format!(
            "CPU time per operation of all roles, divided by the samples of a further trial; {}.",
            whiskers(totals, TOTAL_WHISKER)
        ),
        numbers,
        notes: Vec::new(),
    })
}

fn bar<'a>(stratum: &StratumView<'a>, found: &CpuShares<'a>) -> Option<StackedBar<'a>> {
    let total = level(found.cell, TOTAL)?;
    let part = |(part, share): (&CpuPart, &f64)| {
        let (class, name, is_hatched) = look(*part);
        let size = total.value * share;
        let tooltip = format!("{}: {}, {}", profile::title(*part), percent(*share), quantity(TOTAL, size));
        BarPart { size, class, names: vec![name.to_owned(), percent(*share)], tooltip, is_hatched }
    };
    let parts = found.shares.iter().map(part).collect();
    Some(StackedBar { label: stratum.row_label(found.cell), total, parts })
}

/// Class, short name, and whether it is hatched, because another part has its colour.
fn look(part: CpuPart) -> (&'static str, &'static str, bool) {
    match part {
        CpuPart::TlsContext => ("phase-context", "context", false),
        CpuPart::Certificates => ("cost-signature", "certificates", true),
        CpuPart::Signature => ("cost-signature", "signature", false),
        CpuPart::KeyExchange => ("cost-exchange", "key exchange", false),
        CpuPart::Handshake => ("phase-handshake", "handshake", false),
        CpuPart::Records => ("phase-request", "records", false),
        CpuPart::Passwords => ("phase-auth", "passwords", false),
        CpuPart::Processes => ("phase-query", "processes", false),
        CpuPart::Session => ("phase-query", "session", true),
        CpuPart::Network => ("phase-net", "network", false),
        CpuPart::Switches => ("phase-net", "scheduling", true),
        CpuPart::Other => ("phase-ready", "other", false),
    }
}
