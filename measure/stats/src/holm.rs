//! The correction for multiple comparisons in one stratum.

/// Adjusts p values so that the chance of any false alarm among all of them is at most the level that each is read at. Keeps
/// the order of the input.
///
/// Reference: Holm, *A simple sequentially rejective multiple test procedure*, Scandinavian
/// Journal of Statistics 6 (1979). Assumes nothing of how the tests depend on one another.
/// Minimum n: 1.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut ascending: Vec<usize> = (0..p_values.len()).collect();
    ascending.sort_by(|&left, &right| p_values[left].total_cmp(&p_values[right]));
    let mut adjusted = vec![0.0; p_values.len()];
    let mut largest = 0.0_f64;
    for (rank, index) in ascending.into_iter().enumerate() {
        let untested = (p_values.len() - rank) as f64;
        // Adjusted p values never decrease.
        largest = largest.max((p_values[index] * untested).min(1.0));
        adjusted[index] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn adjusts_as_r_does() {
        // R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (ours, expected) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((ours - expected).abs() < 1e-12, "{adjusted:?}");
        }
    }

    #[test]
    fn one_test_is_not_adjusted_and_none_is_none() {
        assert_eq!(holm(&[0.2]), [0.2]);
        assert!(holm(&[]).is_empty());
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
    }

    proptest! {
        #[test]
        fn is_monotone_and_never_below_the_raw_p(p_values in prop::collection::vec(0.0..=1.0_f64, 1..12)) {
            let adjusted = holm(&p_values);
            for (left, &raw_left) in p_values.iter().enumerate() {
                prop_assert!(adjusted[left] >= raw_left && adjusted[left] <= 1.0);
                for (right, &raw_right) in p_values.iter().enumerate() {
                    prop_assert!(raw_left > raw_right || adjusted[left] <= adjusted[right]);
                }
            }
        }
    }
}
