//! Time samples: an HDR histogram and their exact sum.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ciphertoll_model::LatencySummary;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};

/// Longer times are recorded as this.
pub const HISTOGRAM_MAX_NS: u64 = 60_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

#[derive(Clone, Debug)]
pub(crate) struct Times {
    histogram: Histogram<u64>,
    sum_ns: u64,
}

impl Times {
    pub(crate) fn new() -> Self {
        // The bounds are constants that the library accepts.
        let histogram = Histogram::new_with_max(HISTOGRAM_MAX_NS, SIGNIFICANT_DIGITS)
            .unwrap_or_else(|_| unreachable!("three digits up to a minute is a valid histogram"));
        Self { histogram, sum_ns: 0 }
    }

    #[inline]
    pub(crate) fn record(&mut self, nanos: u64) {
        // Samples of external drivers may be of any size.
        self.sum_ns = self.sum_ns.saturating_add(nanos);
        self.histogram.saturating_record(nanos);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        // Adding cannot fail, as both have the same bounds.
        let _ = self.histogram.add(&other.histogram);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// Adds the samples that another process encoded and summarised; `None` if the two do not fit together.
    pub(crate) fn add(&mut self, base64: &str, summary: &LatencySummary) -> Option<()> {
        let added = self.add_samples(base64)?;
        self.sum_ns = self.sum_ns.saturating_add(summary.sum_ns);
        (added == summary.count).then_some(())
    }

    /// The same without their exact sum: how many there are.
    pub(crate) fn add_samples(&mut self, base64: &str) -> Option<u64> {
        let histogram = decode_histogram(base64)?;
        self.histogram.add(&histogram).ok()?;
        Some(histogram.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.histogram.is_empty()
    }

    pub(crate) fn summary(&self) -> LatencySummary {
        let quantile = |q| self.histogram.value_at_quantile(q);
        LatencySummary {
            count: self.histogram.len(),
            sum_ns: self.sum_ns,
            p50_ns: quantile(0.50),
            p95_ns: quantile(0.95),
            p99_ns: quantile(0.99),
            max_ns: self.histogram.max(),
        }
    }

    pub(crate) fn encode(&self) -> String {
        let mut bytes = Vec::new();
        match V2Serializer::new().serialize(&self.histogram, &mut bytes) {
            Ok(_) => STANDARD.encode(&bytes),
            Err(_) => String::new(),
        }
    }
}

/// Decodes a histogram from a record or an external driver.
pub fn decode_histogram(base64: &str) -> Option<Histogram<u64>> {
    let bytes = STANDARD.decode(base64.trim()).ok()?;
    Deserializer::new().deserialize(&mut bytes.as_slice()).ok()
}
