//! Whether a quantity was flat: whether its growth, by a straight line through the samples, is within their noise.

use super::sample::SoakSample;

/// Growth within this multiple of the samples' standard deviation around the line is noise.
const SIGMAS: f64 = 3.0;
/// Growth of less than this share of the mean over the whole time is called flat in any case.
const NEGLIGIBLE: f64 = 0.03;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    pub mean: f64,
    /// Growth from the first to the last sample, by the line.
    pub growth: f64,
    pub noise: f64,
    pub is_flat: bool,
}

impl Trend {
    /// `None` with fewer than three samples.
    pub fn of(samples: &[(f64, f64)]) -> Option<Self> {
        if samples.len() < 3 {
            return None;
        }
        let count = samples.len() as f64;
        let mean_of = |value: fn(&(f64, f64)) -> f64| samples.iter().map(value).sum::<f64>() / count;
        let (mean_x, mean) = (mean_of(|sample| sample.0), mean_of(|sample| sample.1));
        let spread: f64 = samples.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        let covariance: f64 = samples.iter().map(|(x, y)| (x - mean_x) * (y - mean)).sum();
        let slope = if spread > 0.0 { covariance / spread } else { 0.0 };
        let residual = |&(x, y): &(f64, f64)| (y - mean - slope * (x - mean_x)).powi(2);
        let noise = (samples.iter().map(residual).sum::<f64>() / (count - 2.0)).sqrt();
        let growth = slope * (samples[samples.len() - 1].0 - samples[0].0);
        let is_flat = growth <= (SIGMAS * noise).max(NEGLIGIBLE * mean);
        Some(Self { mean, growth, noise, is_flat })
    }

    pub fn line(&self, what: &str, unit: &str) -> String {
        let Self { mean, growth, noise, is_flat } = self;
        let verdict = if *is_flat { "flat" } else { "GROWS" };
        format!(
            "{what}: {verdict} (mean {mean:.1}{unit}, growth {growth:+.2}{unit}, noise ±{noise:.2}{unit})"
        )
    }
}

/// The trends of memory in MB, descriptors and server connections.
pub fn trends(samples: &[SoakSample]) -> [(&'static str, &'static str, Option<Trend>); 3] {
    let of = |value: fn(&SoakSample) -> f64| {
        let points: Vec<(f64, f64)> =
            samples.iter().map(|sample| (sample.at.as_secs_f64(), value(sample))).collect();
        Trend::of(&points)
    };
    [
        ("RSS", " MB", of(|sample| sample.rss_bytes as f64 / 1e6)),
        ("descriptors", "", of(|sample| sample.descriptors as f64)),
        ("server connections", "", of(|sample| sample.server_connections as f64)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(value: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        (0..100).map(|step| (f64::from(step), value(f64::from(step)))).collect()
    }

    #[test]
    fn noise_is_flat_and_a_leak_is_not() {
        let noisy = Trend::of(&points(|x| 100.0 + 5.0 * (x * 1.7).sin())).unwrap();
        assert!(noisy.is_flat, "{noisy:?}");
        let leaking = Trend::of(&points(|x| 100.0 + 5.0 * (x * 1.7).sin() + x)).unwrap();
        assert!(!leaking.is_flat && (leaking.growth - 99.0).abs() < 5.0, "{leaking:?}");
        let slow = Trend::of(&points(|x| 100.0 + 0.02 * x)).unwrap();
        assert!(slow.is_flat, "2 % is negligible: {slow:?}");
        assert!(Trend::of(&points(|x| 100.0 - x)).unwrap().is_flat, "shrinking is no leak");
        assert_eq!(Trend::of(&[(0.0, 1.0), (1.0, 1.0)]), None);
    }
}
