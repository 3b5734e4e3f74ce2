//! The null experiment and the known effect, simulated: the interval holds the truth, the stopping rule included.

use ciphertoll_stats::{Coverage, Design, Noise, coverage};

const NULL: Design = Design {
    seed: 20_261_107,
    runs: 4_000,
    treatments: 1,
    authentications: 1,
    true_ratio: 1.0,
    trial_sd: 0.015,
    noise: Noise::Normal,
    drift_sd: 0.002,
    max_blocks: 6,
};

const SHAPES: [Noise; 3] = [Noise::Normal, Noise::StudentT3, Noise::Stalls];

#[track_caller]
fn assert_covers(design: &Design) -> Coverage {
    let seen = coverage(design);
    assert!((0.93..=0.97).contains(&seen.covered), "{design:?} {seen:?}");
    seen
}

#[test]
fn a_fixed_number_of_blocks_covers_at_every_shape_of_noise() {
    for noise in SHAPES {
        let seen = assert_covers(&Design { noise, ..NULL });
        assert!(seen.claimed < 0.05 && seen.repeat_claimed < 0.05, "{noise:?} {seen:?}");
        assert!((seen.mean_blocks - 6.0).abs() < f64::EPSILON);
    }
}

/// Scatter such that many runs reach the goal of ±2 % early by luck: where stopping costs most.
const EDGE: Design = Design { trial_sd: 0.02, ..NULL };

#[test]
fn stopping_on_precision_keeps_the_coverage() {
    for max_blocks in [10, 20] {
        for noise in [Noise::Normal, Noise::StudentT3] {
            let seen = assert_covers(&Design { treatments: 2, noise, max_blocks, ..EDGE });
            assert!(seen.claimed < 0.05, "{noise:?} {seen:?}");
            assert!(seen.mean_blocks < f64::from(max_blocks), "some runs must stop early: {seen:?}");
        }
    }
}

/// A single toll that stopped on its own luck would lose two points of coverage: the A/A arm, which
/// must be precise too, prevents it.
#[test]
fn a_single_toll_does_not_stop_on_luck() {
    for max_blocks in [10, 20] {
        assert_covers(&Design { max_blocks, ..EDGE });
    }
}

/// Every ratio of such a run is in the report: those of authentications are covered like those of paths.
#[test]
fn paths_and_authentications_are_all_covered() {
    for max_blocks in [10, 20] {
        for noise in [Noise::Normal, Noise::StudentT3] {
            let seen = assert_covers(&Design { authentications: 2, noise, max_blocks, ..EDGE });
            assert!(seen.claimed < 0.05, "{noise:?} {seen:?}");
        }
    }
    let paths_alone = assert_covers(&Design { max_blocks: 20, ..EDGE });
    let both = assert_covers(&Design { authentications: 2, max_blocks: 20, ..EDGE });
    assert!(both.mean_blocks > paths_alone.mean_blocks, "more must be precise: {both:?} {paths_alone:?}");
}

#[test]
fn a_known_effect_is_covered_and_seen() {
    let seen = assert_covers(&Design { true_ratio: 1.1, max_blocks: 10, ..NULL });
    // With the effect found, Holm tests the repeat at the full 5 %; stopping and 4,000 runs add a little.
    assert!(seen.claimed > 0.95 && seen.repeat_claimed < 0.07, "{seen:?}");
}

#[test]
fn drift_cancels_within_blocks() {
    let still = assert_covers(&Design { drift_sd: 0.0, ..NULL });
    let drifting = assert_covers(&Design { drift_sd: 0.02, ..NULL });
    assert!(drifting.claimed < 0.05 && drifting.differs <= drifting.claimed, "{still:?} {drifting:?}");
}

#[test]
fn the_same_design_gives_the_same_answer() {
    let design = Design { runs: 100, ..NULL };
    assert_eq!(coverage(&design), coverage(&design));
    assert_ne!(coverage(&design), coverage(&Design { seed: 2, ..design }));
}
