//! Numbers for readers: three significant digits, a fitting unit, an uncertainty.

use std::time::Duration;

use ciphertoll_model::{Metric, Unit};
use ciphertoll_stats::{Estimate, Interval};

/// Above this, ± is misleading (intervals of ratios are skewed), so the limits are shown.
pub(crate) const WIDEST_PLUS_MINUS: f64 = 0.3;

/// Whether the estimate can be printed: value and limits, if any, are finite.
pub(crate) fn is_certain(estimate: &Estimate) -> bool {
    [estimate.value, estimate.low(), estimate.high()].into_iter().all(f64::is_finite)
}

/// `612 µs`, `36.4 k/s`.
pub(crate) fn quantity(metric: Metric, value: f64) -> String {
    let (factor, unit) = scale(metric, value);
    format!("{}{unit}", significant(value / factor))
}

/// `±1.8 %`, or `102–640` in the unit of [`quantity`] if the interval is wide.
pub(crate) fn uncertainty(metric: Metric, estimate: &Estimate) -> String {
    let (factor, _) = scale(metric, estimate.value);
    uncertainty_in(factor, estimate)
}

/// The same for a value that is printed ÷ `factor`.
pub(crate) fn uncertainty_in(factor: f64, estimate: &Estimate) -> String {
    let Some(Interval { low, high }) = estimate.interval() else { return NO_INTERVAL.to_owned() };
    if half_width(estimate).is_some_and(|share| share <= WIDEST_PLUS_MINUS) {
        return larger_side(estimate);
    }
    format!("{}–{}", significant(low / factor), significant(high / factor))
}

/// `±64 %`: how far the farther limit is from the value.
pub(crate) fn larger_side(estimate: &Estimate) -> String {
    half_width(estimate).map_or_else(|| NO_INTERVAL.to_owned(), |share| format!("±{}", percent(share)))
}

/// The larger side of the interval ÷ the value.
fn half_width(estimate: &Estimate) -> Option<f64> {
    let (value, Interval { low, high }) = (estimate.value, estimate.interval()?);
    Some((high - value).max(value - low) / value.abs())
}

/// `612 µs ±1.8 %`, or `256 µs (102–640)`.
pub(crate) fn measured(metric: Metric, estimate: &Estimate) -> String {
    measured_in(scale(metric, estimate.value), estimate)
}

/// The same in a unit that others share, as [`scale`] gives it.
pub(crate) fn measured_in((factor, unit): (f64, &str), estimate: &Estimate) -> String {
    let value = significant(estimate.value / factor);
    let uncertainty = uncertainty_in(factor, estimate);
    if uncertainty.starts_with('±') {
        format!("{value}{unit} {uncertainty}")
    } else if estimate.interval().is_none() {
        format!("{value}{unit}, {}", no_interval(estimate))
    } else {
        format!("{value}{unit} ({uncertainty})")
    }
}

const NO_INTERVAL: &str = "no interval";

/// `no interval (2 blocks)`.
pub(crate) fn no_interval(estimate: &Estimate) -> String {
    format!("{NO_INTERVAL} ({})", plural(u64::from(estimate.blocks), "block"))
}

/// `3.11`, with as many decimals as its interval justifies.
pub(crate) fn ratio(estimate: &Estimate) -> String {
    fixed(estimate.value, decimals(estimate))
}

/// `2.93–3.30`.
pub(crate) fn ratio_interval(estimate: &Estimate) -> String {
    let decimals = decimals(estimate);
    match estimate.interval() {
        Some(Interval { low, high }) => format!("{}–{}", fixed(low, decimals), fixed(high, decimals)),
        None => NO_INTERVAL.to_owned(),
    }
}

/// `3.11 × (2.93–3.30)`, or `3.11 ×, no interval (2 blocks)`.
pub(crate) fn ratio_with_interval(estimate: &Estimate) -> String {
    match estimate.interval() {
        Some(_) => format!("{} × ({})", ratio(estimate), ratio_interval(estimate)),
        None => format!("{} ×, {}", ratio(estimate), no_interval(estimate)),
    }
}

/// `1.8 %`, from a share.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let decimals = usize::from(percent < 9.95 && (percent - percent.round()).abs() > 0.049);
    match percent {
        ..0.1 => "0.1 %".to_owned(),
        _ => format!("{percent:.decimals$} %"),
    }
}

/// The size of a difference in either direction: `27 %`, or `a factor of 2.4` from a doubling on, because readers misread
/// 144 %.
pub(crate) fn effect(share: f64) -> String {
    if share < FACTORS_FROM { percent(share) } else { format!("a factor of {}", factor(share)) }
}

/// From this share on a difference is printed as a factor: 100 % is a doubling.
const FACTORS_FROM: f64 = 0.995;

/// `2.4`, from a share of 1.4.
fn factor(share: f64) -> String {
    let factor = 1.0 + share;
    let decimals = usize::from(factor < 9.95 && (factor - factor.round()).abs() > 0.049);
    fixed(factor, decimals)
}

/// `12 345`, with plain spaces: not every terminal's font has thin ones.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(" ")
}

/// `85 s`, `12 min`, `1 h 50 min`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().round() as u64;
    match seconds {
        0..=180 => format!("{seconds} s"),
        181..=5_400 => format!("{} min", (seconds + 30) / 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// `1 block`, `6 blocks`.
pub(crate) fn plural(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", self::count(count))
}

/// Three significant digits, never in exponents.
pub fn significant(value: f64) -> String {
    if value.is_infinite() {
        return "∞".to_owned();
    }
    let magnitude = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    // 999.6 rounds up into the next magnitude.
    let magnitude = if value.abs() >= 10f64.powi(magnitude + 1) * 0.9995 { magnitude + 1 } else { magnitude };
    fixed(value, (2 - magnitude).clamp(0, 6) as usize)
}

fn fixed(value: f64, decimals: usize) -> String {
    format!("{value:.decimals$}")
}

/// A divisor that makes `value` easy to read, and the unit of the quotient.
pub(crate) fn scale(metric: Metric, value: f64) -> (f64, &'static str) {
    // 999.6 µs would print as 1000 µs, so units change a little early.
    const FULL: f64 = 0.9995;
    let at_least = |limit: f64| value >= limit * FULL;
    match metric.unit() {
        Unit::PerSecond if at_least(1e6) => (1e6, " M/s"),
        Unit::PerSecond if at_least(1e3) => (1e3, " k/s"),
        Unit::PerSecond => (1.0, " /s"),
        Unit::Nanoseconds if at_least(1e9) => (1e9, " s"),
        Unit::Nanoseconds if at_least(1e6) => (1e6, " ms"),
        Unit::Nanoseconds => (1e3, " µs"),
        Unit::CpuMicroseconds if at_least(1e6) => (1e6, " s"),
        Unit::CpuMicroseconds if at_least(1e3) => (1e3, " ms"),
        Unit::CpuMicroseconds => (1.0, " µs"),
        Unit::Bytes if at_least(1024f64.powi(3)) => (1024f64.powi(3), " GiB"),
        Unit::Bytes if metric.may_be_zero() && !at_least(1024f64.powi(2)) => match value {
            ..1024.0 => (1.0, " B"),
            _ => (1024.0, " KiB"),
        },
        Unit::Bytes => (1024f64.powi(2), " MiB"),
        Unit::Count => (1.0, ""),
    }
}

/// Two decimals below 10, or three if the interval is so narrow that its limits would look alike, or two say too little.
fn decimals(estimate: &Estimate) -> usize {
    match estimate.value {
        ..0.0995 if estimate.interval().is_none() => 3,
        ..9.995 if estimate.interval().is_some_and(|Interval { low, high }| high - low < 0.02) => 3,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(value: f64, ci_low: f64, ci_high: f64) -> Estimate {
        Estimate::new(value, Interval { low: ci_low, high: ci_high }, 6)
    }

    #[test]
    fn without_an_interval_the_value_says_so() {
        let few = Estimate::new(2.06, Interval { low: 0.0, high: 15_215_149.5 }, 2);
        assert_eq!(ratio_with_interval(&few), "2.06 ×, no interval (2 blocks)");
        let less = Estimate::new(0.0122, Interval { low: 0.0, high: 15_215_149.5 }, 2);
        assert_eq!(ratio_with_interval(&less), "0.012 ×, no interval (2 blocks)");
        assert_eq!(measured(Metric::LatencyNsMean, &few), "0.00206 µs, no interval (2 blocks)");
        assert_eq!(
            (ratio_interval(&few), uncertainty(Metric::LatencyNsMean, &few).as_str()),
            ("no interval".to_owned(), "no interval")
        );
    }

    #[test]
    fn quantities_have_three_digits_and_a_fitting_unit() {
        let time = |nanoseconds| quantity(Metric::LatencyNsMean, nanoseconds);
        assert_eq!(time(612_345.0), "612 µs");
        assert_eq!(time(61_234.0), "61.2 µs");
        assert_eq!(time(812.0), "0.812 µs");
        assert_eq!(time(999_400.0), "999 µs");
        assert_eq!(time(999_600.0), "1.00 ms");
        assert_eq!(time(2.5e9), "2.50 s");
        assert_eq!(quantity(Metric::RatePerS, 36_412.0), "36.4 k/s");
        assert_eq!(quantity(Metric::CpuUsPerOpTotal, 5_120.0), "5.12 ms");
        assert_eq!(quantity(Metric::RssBytesServer, 104_857_600.0), "100 MiB");
        assert_eq!(significant(f64::INFINITY), "∞", "the upper limit of a rate whose cost may be 0");
    }

    #[test]
    fn wide_intervals_show_their_limits() {
        assert_eq!(uncertainty(Metric::LatencyNsMean, &estimate(200_000.0, 196_000.0, 204_000.0)), "±2 %");
        assert_eq!(uncertainty(Metric::LatencyNsMean, &estimate(200_000.0, 196_500.0, 203_600.0)), "±1.8 %");
        assert_eq!(uncertainty(Metric::LatencyNsMean, &estimate(256_000.0, 102_000.0, 640_000.0)), "102–640");
        assert_eq!(uncertainty(Metric::LatencyNsMean, &estimate(200_000.0, 199_990.0, 200_010.0)), "±0.1 %");
    }

    #[test]
    fn measured_values_carry_their_uncertainty() {
        let narrow = estimate(612_000.0, 601_000.0, 623_000.0);
        assert_eq!(measured(Metric::LatencyNsMean, &narrow), "612 µs ±1.8 %");
        assert_eq!(measured_in((1e6, " ms"), &narrow), "0.612 ms ±1.8 %");
        let wide = estimate(256_000.0, 102_000.0, 640_000.0);
        assert_eq!(measured(Metric::LatencyNsMean, &wide), "256 µs (102–640)");
    }

    #[test]
    fn ratios_carry_the_decimals_of_their_interval() {
        let wide = estimate(3.106, 2.934, 3.298);
        assert_eq!((ratio(&wide), ratio_interval(&wide)), ("3.11".to_owned(), "2.93–3.30".to_owned()));
        let narrow = estimate(1.0041, 1.0012, 1.0069);
        assert_eq!((ratio(&narrow), ratio_interval(&narrow)), ("1.004".to_owned(), "1.001–1.007".to_owned()));
        assert_eq!(ratio(&estimate(44.44, 40.0, 50.0)), "44.4");
    }

    #[test]
    fn shares_counts_and_durations_read_easily() {
        assert_eq!([0.03, 0.018, 0.1, 0.123, 0.0002].map(percent), ["3 %", "1.8 %", "10 %", "12 %", "0.1 %"]);
        assert_eq!([7, 1_234, 12_345_678].map(count), ["7", "1 234", "12 345 678"]);
        assert_eq!(
            [85, 720, 6_600].map(|s| duration(Duration::from_secs(s))),
            ["85 s", "12 min", "1 h 50 min"]
        );
        assert_eq!([1, 6].map(|blocks| plural(blocks, "block")), ["1 block", "6 blocks"]);
    }
}
