//! The authors' conclusions, tested with the numbers here.

use ciphertoll_model::labelled;
use ciphertoll_model::presets::{Claim, Which};
use ciphertoll_stats::Interval;

use super::rows::{Span, StudyRow};
use crate::number::significant;

labelled! {
    /// Whether a conclusion holds on a server.
    pub(crate) enum Standing {
        Holds = "holds here",
        Fails = "does not hold here",
        NotTested = "not tested",
    }
}

/// Whether `claim` holds for the rows of one server, and why.
pub(super) fn judged(claim: Claim, rows: &[StudyRow<'_>]) -> (Standing, String) {
    match claim {
        Claim::NotTested(why) => (Standing::NotTested, why.to_owned()),
        Claim::Costs { which, least, most } => in_range(&costs(rows, which), least, most),
        Claim::Dearer { more, less } => above(&costs(rows, more), &costs(rows, less), "cost"),
        Claim::Alike { which, within } => alike(&costs(rows, which), within),
        Claim::Higher { more, less } => above(&levels(rows, more), &levels(rows, less), "value"),
    }
}

fn chosen<'r>(rows: &'r [StudyRow<'r>], which: Which) -> impl Iterator<Item = &'r StudyRow<'r>> {
    rows.iter().filter(move |row| row.compared().is_some_and(which))
}

fn costs(rows: &[StudyRow<'_>], which: Which) -> Vec<Span> {
    chosen(rows, which).filter_map(StudyRow::cost).collect()
}

fn levels(rows: &[StudyRow<'_>], which: Which) -> Vec<Span> {
    let span = |row: &StudyRow<'_>| {
        let Interval { low, high } = row.level?.interval()?;
        Some(Span { value: row.level?.value, low, high })
    };
    chosen(rows, which).filter_map(span).collect()
}

fn untested(why: &str) -> (Standing, String) {
    (Standing::NotTested, why.to_owned())
}

const NOT_IN_RUN: &str = "this run has no interval for it; a larger --size has more";
const TOO_WIDE: &str = "the intervals here are too wide to tell";

fn least(spans: &[Span], of: fn(&Span) -> f64) -> f64 {
    spans.iter().map(of).fold(f64::INFINITY, f64::min)
}

fn most(spans: &[Span], of: fn(&Span) -> f64) -> f64 {
    spans.iter().map(of).fold(f64::NEG_INFINITY, f64::max)
}

/// `1.5–2.1 ×`, or one number if both are printed alike.
fn range(spans: &[Span]) -> String {
    let [low, high] = [least(spans, |span| span.value), most(spans, |span| span.value)].map(significant);
    if low == high { format!("{low} ×") } else { format!("{low}–{high} ×") }
}

fn in_range(spans: &[Span], from: f64, to: f64) -> (Standing, String) {
    if spans.is_empty() {
        return untested(NOT_IN_RUN);
    }
    let costs = format!("cost here: {}", range(spans));
    if spans.iter().all(|span| span.low >= from && span.high <= to) {
        (Standing::Holds, costs)
    } else if spans.iter().any(|span| span.high < from || span.low > to) {
        (Standing::Fails, costs)
    } else {
        untested(&format!("{TOO_WIDE} ({costs})"))
    }
}

fn above(more: &[Span], less: &[Span], what: &str) -> (Standing, String) {
    if more.is_empty() || less.is_empty() {
        return untested(NOT_IN_RUN);
    }
    let times = least(more, |span| span.value) / most(less, |span| span.value);
    let reason =
        format!("the smallest {what} of the one is {} times the largest of the other", significant(times));
    if least(more, |span| span.low) > most(less, |span| span.high) {
        (Standing::Holds, reason)
    } else if least(more, |span| span.high) < most(less, |span| span.low) {
        (Standing::Fails, reason)
    } else {
        untested(&format!("{TOO_WIDE}: {reason}"))
    }
}

fn alike(spans: &[Span], within: f64) -> (Standing, String) {
    if spans.len() < 2 {
        return untested(NOT_IN_RUN);
    }
    let value = most(spans, |span| span.value) / least(spans, |span| span.value);
    let reason = format!("the largest cost is {} times the smallest", significant(value));
    if most(spans, |span| span.high) / least(spans, |span| span.low) <= within {
        (Standing::Holds, reason)
    } else if most(spans, |span| span.low) / least(spans, |span| span.high) > within {
        (Standing::Fails, reason)
    } else {
        untested(&format!("{TOO_WIDE}: {reason}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(limits: &[(f64, f64)]) -> Vec<Span> {
        let span = |&(low, high): &(f64, f64)| Span { value: f64::midpoint(low, high), low, high };
        limits.iter().map(span).collect()
    }

    #[test]
    fn a_claim_holds_fails_or_cannot_be_told() {
        let standing = |(standing, _): (Standing, String)| standing;
        let two = spans(&[(1.4, 1.6), (1.9, 2.1)]);
        assert_eq!(standing(in_range(&two, 1.0, 3.0)), Standing::Holds);
        assert_eq!(standing(in_range(&two, 1.7, 3.0)), Standing::Fails);
        assert_eq!(standing(in_range(&two, 1.5, 3.0)), Standing::NotTested);
        assert_eq!(standing(in_range(&[], 1.5, 3.0)), Standing::NotTested);
        assert_eq!(standing(above(&two[1..], &two[..1], "cost")), Standing::Holds);
        assert_eq!(standing(above(&two[..1], &two[1..], "cost")), Standing::Fails);
        assert_eq!(standing(above(&two, &spans(&[(1.5, 1.7)]), "cost")), Standing::NotTested);
        assert_eq!(standing(alike(&two, 1.6)), Standing::Holds);
        assert_eq!(standing(alike(&two, 1.1)), Standing::Fails);
        assert_eq!(standing(alike(&two, 1.4)), Standing::NotTested);
        assert_eq!(standing(alike(&two[..1], 1.4)), Standing::NotTested);
    }
}
