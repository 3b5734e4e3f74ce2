//! Histograms as text: every sample comes back, and what is none does no harm.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ciphertoll_load::{HISTOGRAM_MAX_NS, decode_histogram};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2Serializer};
use proptest::prelude::*;

fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(histogram, &mut bytes).unwrap();
    STANDARD.encode(bytes)
}

proptest! {
    #[test]
    fn round_trip(samples in prop::collection::vec(1..=HISTOGRAM_MAX_NS, 0..200)) {
        let mut histogram = Histogram::new_with_max(HISTOGRAM_MAX_NS, 3).unwrap();
        for sample in samples {
            histogram.saturating_record(sample);
        }
        let text = encode(&histogram);
        prop_assert_eq!(decode_histogram(&text).unwrap(), histogram.clone());
        // A file ends with a newline.
        prop_assert_eq!(decode_histogram(&format!("{text}\n")).unwrap(), histogram);
    }

    #[test]
    fn garbage_is_none(text: String, bytes: Vec<u8>) {
        prop_assert!(decode_histogram(&text).is_none());
        prop_assert!(decode_histogram(&STANDARD.encode(bytes)).is_none());
    }

    #[test]
    fn a_torn_one_is_none(samples in prop::collection::vec(1..=HISTOGRAM_MAX_NS, 1..20), share in 0.0..1.0_f64) {
        let mut histogram = Histogram::new_with_max(HISTOGRAM_MAX_NS, 3).unwrap();
        for sample in samples {
            histogram.saturating_record(sample);
        }
        let text = encode(&histogram);
        let torn = &text[..(text.len() as f64 * share) as usize];
        prop_assert!(decode_histogram(torn).is_none(), "{} of {} characters were taken", torn.len(), text.len());
    }
}
