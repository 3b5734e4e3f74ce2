//! From how many queries per connection on one configuration costs less than another.

use super::sum::{Uncertain, WeightedSum};
use super::{CostModel, Load, MissingTerm, Profile, Role, SessionQueries};
use crate::estimate::Interval;
use crate::interval::{CONFIDENCE, critical_t};

/// Which of two configurations costs less CPU time, by the number of queries per connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BreakEven {
    /// One costs less at any number.
    Always(Side),
    /// They cost the same at `queries` per connection; `below` costs less with fewer. Without limits the interval is unbounded: the
    /// difference per query is not known to differ from 0.
    At { queries: f64, interval: Option<Interval>, below: Side },
    /// Neither is known to cost less.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    First,
    Second,
}

impl CostModel {
    /// Compares the CPU time of all roles in a session of `first` and of `second`.
    pub fn break_even(
        &self,
        first: &Profile,
        second: &Profile,
        load: &Load,
    ) -> Result<BreakEven, MissingTerm> {
        let difference = |queries: f64| -> Result<WeightedSum, MissingTerm> {
            let load = Load { queries: SessionQueries::of_mean(queries), ..*load };
            let cpu = |profile| self.session_cpu(profile, Role::Total, &load);
            Ok(cpu(first)? - &cpu(second)?)
        };
        // The concurrency depends on the number of queries, but little; it is that of the load.
        let one = difference(1.0)?;
        let per_query = difference(2.0)? - &one;
        Ok(self.crossing(&one, &per_query))
    }

    /// Where `one` + (q − 1) × `per_query` crosses 0: Fieller's interval.
    ///
    /// Reference: Fieller, *Some problems in interval estimation*, JRSS B 16 (1954).
    fn crossing(&self, one: &WeightedSum, per_query: &WeightedSum) -> BreakEven {
        let (a, b) = (self.means.value(one), self.means.value(per_query));
        let cheaper =
            |difference: &Uncertain| if difference.value < 0.0 { Side::First } else { Side::Second };
        let is_certain = |difference: &Uncertain| difference.value.abs() > difference.half_width();
        if !is_certain(&a) && !is_certain(&b) {
            return BreakEven::Unknown;
        }
        let queries = 1.0 - a.value / b.value;
        if !is_certain(&b) && is_certain(&a) && (queries < 1.0 || !queries.is_finite()) {
            return BreakEven::Always(cheaper(&a));
        }
        if queries <= 1.0 {
            // They differ per query, and not the other way round in the connect.
            return BreakEven::Always(cheaper(&b));
        }
        let covariance = self.means.covariance(one, per_query);
        BreakEven::At { queries, interval: fieller(&a, &b, covariance), below: cheaper(&a) }
    }
}

fn fieller(a: &Uncertain, b: &Uncertain, covariance: f64) -> Option<Interval> {
    let t_squared = critical_t(CONFIDENCE, a.degrees.min(b.degrees)).powi(2);
    // The roots of (a + x b)² = t² var(a + x b), with x = q − 1.
    let square = b.value.powi(2) - t_squared * b.variance;
    let linear = 2.0 * (a.value * b.value - t_squared * covariance);
    let constant = a.value.powi(2) - t_squared * a.variance;
    let discriminant = linear.powi(2) - 4.0 * square * constant;
    if square <= 0.0 || discriminant < 0.0 {
        return None;
    }
    let root = |sign: f64| (1.0 + (-linear + sign * discriminant.sqrt()) / (2.0 * square)).max(0.0);
    Some(Interval { low: root(-1.0), high: root(1.0) })
}
