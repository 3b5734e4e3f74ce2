//! Maps values to coordinates and chooses round ticks.

/// The spacing of values on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    /// Equal differences, equal distances.
    Linear,
    /// Equal ratios, equal distances.
    Log,
}

/// Maps values to coordinates along one axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    growth: Growth,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    pub(crate) label: String,
}

impl Scale {
    /// Maps `low` to `from` and `high` to `to`.
    pub(crate) fn linear((low, high): (f64, f64), (from, to): (f64, f64)) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        Self { growth: Growth::Linear, low, high, from, to }
    }

    /// The logarithmic mapping of positive values.
    pub(crate) fn log((low, high): (f64, f64), (from, to): (f64, f64)) -> Self {
        let low = low.max(f64::MIN_POSITIVE);
        let high = if high > low { high } else { low * 2.0 };
        Self { growth: Growth::Log, low, high, from, to }
    }

    /// The coordinate of a value, clamped to the axis.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let share = match self.growth {
            Growth::Linear => (value - self.low) / (self.high - self.low),
            Growth::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    pub(crate) fn range(&self) -> (f64, f64) {
        (self.from, self.to)
    }

    /// Round values within the axis, at most about `most`.
    pub(crate) fn ticks(&self, most: usize) -> Vec<Tick> {
        let values = match self.growth {
            Growth::Linear => even(self.low, self.high, most),
            Growth::Log => uneven(self.low, self.high, most),
        };
        values.into_iter().map(|value| Tick { value, label: label(value) }).collect()
    }
}

/// Multiples of 1, 2 or 5 times a power of ten.
fn even(low: f64, high: f64, most: usize) -> Vec<f64> {
    let smallest = (high - low) / most.max(1) as f64;
    let power = 10f64.powf(smallest.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= smallest);
    let step = step.unwrap_or(10.0 * power);
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|multiple| multiple as f64 * step).collect()
}

/// Round ratios, with the coarsest set of leading digits that gives enough ticks.
fn uneven(low: f64, high: f64, most: usize) -> Vec<f64> {
    const FEWEST: usize = 3;
    /// Below this ratio of its ends an axis is nearly linear.
    const NARROW: f64 = 4.0;
    const DIGITS: [&[f64]; 5] = [
        &[1.0],
        &[1.0, 3.0],
        &[1.0, 2.0, 5.0],
        &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
        &[1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0],
    ];
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let of = |digits: &[f64]| -> Vec<f64> {
        let decades = (first..=last).map(|power| 10f64.powi(power));
        let all = decades.flat_map(|decade| digits.iter().map(move |digit| digit * decade));
        all.filter(|value| (low * (1.0 - 1e-9)..=high * (1.0 + 1e-9)).contains(value)).collect()
    };
    let most = most.max(FEWEST);
    let enough = |values: &Vec<f64>| (FEWEST..=most).contains(&values.len());
    if let Some(values) = DIGITS.into_iter().map(of).find(enough) {
        return values;
    }
    if high / low > NARROW {
        return DIGITS.into_iter().map(of).find(|values| values.len() >= 2).unwrap_or_default();
    }
    let mut evenly = (most - 1..=2 * most).map(|most| even(low, high, most));
    evenly.find(|values| values.len() >= FEWEST).unwrap_or_else(|| even(low, high, most))
}

/// With as many decimals as needed, at most six.
fn label(value: f64) -> String {
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale, most: usize) -> Vec<String> {
        scale.ticks(most).into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn even_ticks_are_round_and_few() {
        assert_eq!(labels(Scale::linear((0.0, 0.612), (0.0, 1.0)), 5), ["0", "0.2", "0.4", "0.6"]);
        assert_eq!(labels(Scale::linear((0.0, 36.4), (0.0, 1.0)), 5), ["0", "10", "20", "30"]);
        assert_eq!(labels(Scale::linear((0.985, 1.021), (0.0, 1.0)), 4), ["0.99", "1", "1.01", "1.02"]);
    }

    #[test]
    fn ticks_of_ratios_are_round_and_named_from_near_and_far() {
        assert_eq!(labels(Scale::log((0.85, 3.4), (0.0, 1.0)), 6), ["1", "1.5", "2", "3"]);
        assert_eq!(labels(Scale::log((0.11, 22.0), (0.0, 1.0)), 6), ["0.3", "1", "3", "10"]);
        assert_eq!(labels(Scale::log((0.01, 90.0), (0.0, 1.0)), 6), ["0.01", "0.1", "1", "10"]);
        assert_eq!(labels(Scale::log((10.9, 12.8), (0.0, 1.0)), 4), ["11", "11.5", "12", "12.5"]);
        assert_eq!(labels(Scale::log((0.96, 1.05), (0.0, 1.0)), 6), ["0.96", "0.98", "1", "1.02", "1.04"]);
    }

    #[test]
    fn places_are_proportional_and_stay_within_the_axis() {
        let linear = Scale::linear((0.0, 10.0), (100.0, 200.0));
        assert_eq!([0.0, 5.0, 10.0, 99.0].map(|value| linear.at(value) as i64), [100, 150, 200, 200]);
        let log = Scale::log((1.0, 100.0), (0.0, 100.0));
        assert_eq!([1.0, 10.0, 100.0, 0.1].map(|value| log.at(value).round() as i64), [0, 50, 100, 0]);
    }
}
