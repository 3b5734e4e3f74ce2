//! A published figure as a ratio, and the cell that repeats it.

use crate::{AtRest, Cell, Clients, Driver, Link, Metric, Path, Settings, Workload};

/// The cached share of the data is the same if the ratios differ by at most this factor: a scale is a whole number, and the
/// study's scales differ by a factor of ten.
const SAME_SHARE: f64 = 1.5;

/// A published ratio to the unencrypted baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    pub workload: Workload,
    pub clients: Clients,
    /// The closest path here.
    pub path: Path,
    /// The published driver, or native if it is not available here.
    pub driver: Driver,
    pub link: Link,
    /// The closest encryption at rest here.
    pub at_rest: AtRest,
    /// Tables ÷ server buffers; absent if the study has no figures by that.
    pub data_to_cache: Option<f64>,
    /// The published build, if several builds are compared with the same cell.
    pub of: Option<&'static str>,
    pub metric: Metric,
    /// Encrypted ÷ plain.
    pub ratio: f64,
    /// Its standard deviation, from those of numerator and denominator; absent if not published.
    pub ratio_sd: Option<f64>,
}

impl Published {
    /// A ratio of ciphertoll's own client, alone and on a local link, without encryption at rest.
    pub(super) fn new(workload: Workload, path: Path, metric: Metric, (ratio, ratio_sd): Figure) -> Self {
        Self {
            workload,
            clients: Clients::ONE,
            path,
            driver: Driver::Native,
            link: Link::Local,
            at_rest: AtRest::None,
            data_to_cache: None,
            of: None,
            metric,
            ratio,
            ratio_sd,
        }
    }

    /// Whether `cell` corresponds to it on a server with `settings`, whatever the engine.
    pub fn has_equal(&self, cell: &Cell, settings: &Settings) -> bool {
        let treatment = &cell.treatment;
        let is_same_share = |then: f64| {
            cell.data_to_cache(settings).is_some_and(|here| (here / then).ln().abs() <= SAME_SHARE.ln())
        };
        (self.workload, self.clients) == (cell.workload, cell.clients)
            && (self.path, &self.driver) == (treatment.path, &treatment.driver)
            && (self.link, self.at_rest) == (treatment.link, treatment.at_rest)
            && self.data_to_cache.is_none_or(is_same_share)
    }
}

/// A published mean and its standard deviation.
pub(super) type Figure = (f64, Option<f64>);

/// Mean and standard deviation of `a ÷ b` to first order, if both are independent.
pub(super) fn ratio(a: Figure, b: Figure) -> Figure {
    let mean = a.0 / b.0;
    let relative = |(mean, sd): Figure| sd.map(|sd| sd / mean);
    let sd = relative(a).zip(relative(b)).map(|(a, b)| mean * a.hypot(b));
    (mean, sd)
}

/// The closest path to MySQL's TLS in 2013.
pub(super) fn tls_of_2013(rsa_bits: &str) -> Option<Path> {
    format!("tls1.2-rsa{rsa_bits}+suite=DHE-RSA-AES256-SHA").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_carry_both_deviations() {
        let (mean, sd) = ratio((50.0, Some(3.0)), (100.0, Some(8.0)));
        assert!((mean - 0.5).abs() < 1e-12 && (sd.unwrap() - 0.05).abs() < 1e-12);
        assert_eq!(ratio((1.0, None), (2.0, Some(1.0))), (0.5, None));
    }
}
