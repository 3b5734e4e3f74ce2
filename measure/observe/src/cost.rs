//! What a pair's connections cost, in words.

use crate::observation::{Estimated, PairCost, SidecarSaving};
use crate::words::counted;

/// Smaller costs and savings are not worth a word.
const MIN_CORES: f64 = 0.005;
const MIN_MS: f64 = 0.05;

impl PairCost {
    /// `about 0.9 cores, 0.6 of them for encryption; the sidecar would save 0.8 ±0.1 cores and 11 ±1 ms per connect`, or
    /// what is known of it.
    pub(crate) fn words(&self) -> Option<String> {
        let cores = amount(self.cores.as_ref()?.value, MIN_CORES);
        let encryption = self.encryption_cores.filter(|cores| cores.is_known() && cores.value >= MIN_CORES);
        let encryption = encryption.map(|cores| format!(", {} of them for encryption", short(cores.value)));
        let sidecar = self.sidecar.as_ref().map(|saving| format!("; the sidecar {}", saving.words()));
        let without = match self.without_began_before {
            0 => String::new(),
            before => format!("; {} that began before not counted", counted(before, "connection")),
        };
        Some(format!(
            "{cores} cores{}{}{without}",
            encryption.unwrap_or_default(),
            sidecar.unwrap_or_default()
        ))
    }
}

impl SidecarSaving {
    /// `would save 0.8 ±0.1 cores, and cost 0.2 ±0.1 ms per connect more`
    fn words(&self) -> String {
        let parts = [(self.cores, "cores", MIN_CORES), (self.connect_ms, "ms per connect", MIN_MS)];
        let known = parts.into_iter().filter_map(|(saving, unit, least)| {
            let saving = saving.filter(|saving| saving.is_known() && saving.value.abs() >= least)?;
            Some((saving.value > 0.0, format!("{} {unit}", saving.magnitude())))
        });
        let (saved, more): (Vec<_>, Vec<_>) = known.partition(|(is_saved, _)| *is_saved);
        let [saved, more] = [saved, more]
            .map(|parts| parts.into_iter().map(|(_, words)| words).collect::<Vec<_>>().join(" and "));
        match (saved.as_str(), more.as_str()) {
            ("", "") => "is not known to save anything".to_owned(),
            (saved, "") => format!("would save {saved}"),
            ("", more) => format!("would cost {more} more"),
            (saved, more) => format!("would save {saved}, and cost {more} more"),
        }
    }
}

impl Estimated {
    /// Whether the interval excludes 0.
    fn is_known(&self) -> bool {
        let limits = self.low.zip(self.high);
        limits.is_some_and(|(low, high)| (low > 0.0) == (high > 0.0) && low != 0.0 && high != 0.0)
    }

    /// `0.8 ±0.1`
    fn magnitude(&self) -> String {
        let half = self.low.zip(self.high).map(|(low, high)| (high - low) / 2.0);
        let half = half.map(|half| format!(" ±{}", short(half))).unwrap_or_default();
        format!("{}{half}", short(self.value.abs()))
    }
}

fn amount(value: f64, least: f64) -> String {
    if value < least { format!("less than {least}") } else { format!("about {}", short(value)) }
}

/// Two digits.
fn short(number: f64) -> String {
    match number {
        ..0.0995 => format!("{number:.3}"),
        ..1.0 => format!("{number:.2}"),
        ..10.0 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimated(value: f64, half: f64) -> Estimated {
        Estimated { value, low: Some(value - half), high: Some(value + half) }
    }

    #[test]
    fn the_words_say_only_what_is_known() {
        let cost = |cores, saved: Estimated, connect: Estimated| PairCost {
            run: "run".to_owned(),
            paths: Vec::new(),
            unknown_share: 0.0,
            without_began_before: 0,
            cores: Some(estimated(cores, 0.05)),
            encryption_cores: Some(estimated(0.6, 0.1)),
            sidecar: Some(SidecarSaving { cores: Some(saved), connect_ms: Some(connect) }),
            missing: Vec::new(),
        };
        let words = |cost: PairCost| cost.words().unwrap();
        assert_eq!(
            words(cost(0.9, estimated(0.8, 0.1), estimated(11.0, 1.0))),
            "about 0.90 cores, 0.60 of them for encryption; the sidecar would save 0.80 ±0.10 cores and 11 ±1.0 ms per connect"
        );
        assert!(
            words(cost(0.9, estimated(-0.2, 0.1), estimated(11.0, 1.0)))
                .ends_with("save 11 ±1.0 ms per connect, and cost 0.20 ±0.10 cores more")
        );
        assert!(
            words(cost(0.9, estimated(0.1, 0.2), estimated(0.01, 0.001)))
                .ends_with("not known to save anything")
        );
        let no_sidecar = PairCost {
            sidecar: None,
            encryption_cores: None,
            ..cost(0.001, estimated(0.0, 0.0), estimated(0.0, 0.0))
        };
        assert_eq!(words(no_sidecar.clone()), "less than 0.005 cores");
        let pooled = PairCost { without_began_before: 50, ..no_sidecar };
        assert_eq!(words(pooled), "less than 0.005 cores; 50 connections that began before not counted");
        let unsure = PairCost {
            encryption_cores: Some(estimated(0.6, 0.7)),
            ..cost(0.9, estimated(0.8, 0.1), estimated(11.0, 1.0))
        };
        assert!(!words(unsure).contains("encryption"));
    }
}
