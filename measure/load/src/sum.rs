//! The sum of the results of several load processes that ran one trial together.

use std::collections::BTreeMap;

use ciphertoll_model::{ErrorCount, Leg, LegCount, TrialResult};

use crate::Error;
use crate::times::Times;

/// The sum of the results of load processes. Histograms add up exactly, so percentiles are those of all samples. Needs
/// the memory of a few histograms, however many results are added.
pub struct ResultSum {
    total: TrialResult,
    latency: Times,
    service: Option<Times>,
    schedule_lag: Option<Times>,
    tcp_connect: Times,
    legs: BTreeMap<Leg, LegCount>,
    errors: BTreeMap<String, ErrorCount>,
    added: usize,
}

impl Default for ResultSum {
    fn default() -> Self {
        Self {
            total: TrialResult::default(),
            latency: Times::new(),
            service: None,
            schedule_lag: None,
            tcp_connect: Times::new(),
            legs: BTreeMap::new(),
            errors: BTreeMap::new(),
            added: 0,
        }
    }
}

impl ResultSum {
    /// Adds the result of a load process that started when told. Fails if its histograms cannot be read.
    pub fn add(&mut self, result: &TrialResult) -> Result<(), Error> {
        let unreadable = || Error::Unfit("a load process sent an unreadable histogram");
        let further = result.further_histograms.as_deref().cloned().unwrap_or_default();
        self.latency.add(&result.histogram_base64, &result.latency).ok_or_else(unreadable)?;
        for (own, theirs, base64) in [
            (&mut self.service, &result.service, &further.service_base64),
            (&mut self.schedule_lag, &result.schedule_lag, &further.schedule_lag_base64),
        ] {
            let Some(theirs) = theirs else { continue };
            let own = own.get_or_insert_with(Times::new);
            if theirs.count > 0 {
                own.add(base64, theirs).ok_or_else(unreadable)?;
            }
        }
        if !further.tcp_connect_base64.is_empty() {
            self.tcp_connect.add_samples(&further.tcp_connect_base64).ok_or_else(unreadable)?;
        }
        self.count(result);
        Ok(())
    }

    fn count(&mut self, result: &TrialResult) {
        let total = &mut self.total;
        total.operations += result.operations;
        for (own, theirs) in total.operations_by_half.iter_mut().zip(result.operations_by_half) {
            *own += theirs;
        }
        // Unknown in the sum if it is unknown of one.
        let is_first = self.added == 0;
        total.operations_in_all = sum(is_first, total.operations_in_all, result.operations_in_all);
        total.statements = sum(is_first, total.statements, result.statements);
        total.retries += result.retries;
        total.unfinished += result.unfinished;
        total.window_ns = total.window_ns.max(result.window_ns);
        total.client_cpu_ns += result.client_cpu_ns;
        total.client_rss_peak_bytes += result.client_rss_peak_bytes;
        for (phase, sum_ns) in &result.phase_sums_ns {
            *total.phase_sums_ns.entry(*phase).or_default() += sum_ns;
        }
        for leg in &result.legs {
            match self.legs.get_mut(&leg.leg) {
                Some(own) => own.add(leg),
                None => drop(self.legs.insert(leg.leg.clone(), leg.clone())),
            }
        }
        for error in &result.errors {
            let own = self.errors.entry(error.message.clone());
            own.or_insert_with(|| ErrorCount { count: 0, ..error.clone() }).count += error.count;
        }
        self.added += 1;
    }

    /// The result of all clients together. The numbers of ports are those of each host, and have no sum.
    pub fn result(self) -> TrialResult {
        let tcp_connect = self.tcp_connect.summary();
        TrialResult {
            errors: self.errors.into_values().collect(),
            latency: self.latency.summary(),
            service: self.service.as_ref().map(Times::summary),
            schedule_lag: self.schedule_lag.as_ref().map(Times::summary),
            histogram_base64: self.latency.encode(),
            legs: self.legs.into_values().collect(),
            tcp_connect_ns_p50: (tcp_connect.count > 0).then_some(tcp_connect.p50_ns),
            usable_ports: None,
            further_histograms: None,
            ..self.total
        }
    }
}

fn sum(is_first: bool, own: Option<u64>, theirs: Option<u64>) -> Option<u64> {
    if is_first { theirs } else { Some(own? + theirs?) }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use ciphertoll_model::TrialPace;

    use super::*;
    use crate::operation::{DueOperation, Operation};
    use crate::recorder::Recorder;
    use crate::window::MeasurementWindow;

    const OPEN: TrialPace = TrialPace::Open { per_s: 1.0 };

    fn window() -> MeasurementWindow {
        MeasurementWindow::starting_at(Instant::now(), Duration::ZERO, Duration::from_secs(1))
    }

    /// A recorder with operations of these many microseconds, which began 5 µs late.
    fn recorder(window: MeasurementWindow, micros: impl IntoIterator<Item = u64>) -> Recorder {
        let mut recorder = Recorder::new(window, OPEN);
        for took in micros {
            let (began, lag) = (window.opens + Duration::from_micros(5), Duration::from_micros(5));
            let ended = began + Duration::from_micros(took);
            let due = DueOperation { client: 0, intended: window.opens, lag };
            recorder.open(&Operation { began, ended, statements: 2, retries: 0 }, &due);
        }
        recorder
    }

    fn result(recorder: &Recorder) -> TrialResult {
        let further = Some(Box::new(recorder.further_histograms()));
        TrialResult { further_histograms: further, client_cpu_ns: 7, ..recorder.result() }
    }

    #[test]
    fn the_sum_of_parts_is_the_result_of_the_whole() {
        let window = window();
        let [first, second] = [recorder(window, 1..=900), recorder(window, 500..=2_000)];
        let mut sum = ResultSum::default();
        for part in [&first, &second] {
            sum.add(&result(part)).unwrap();
        }
        let summed = sum.result();
        let mut whole = recorder(window, 1..=900);
        whole.merge(second);
        let whole = TrialResult { client_cpu_ns: 14, ..whole.result() };
        assert_eq!(summed, whole);
        assert_eq!((summed.operations, summed.statements), (2_401, Some(4_802)));
        assert_eq!(summed.latency.count, 2_401);
    }

    #[test]
    fn an_unreadable_histogram_is_refused() {
        let mut part = result(&recorder(window(), 1..=9));
        part.histogram_base64 = "AAAA".to_owned();
        assert!(ResultSum::default().add(&part).is_err());
        let mut part = result(&recorder(window(), 1..=9));
        part.further_histograms = None;
        assert!(ResultSum::default().add(&part).is_err());
    }

    #[test]
    fn a_process_without_operations_adds_nothing() {
        let mut sum = ResultSum::default();
        sum.add(&result(&recorder(window(), 1..=9))).unwrap();
        sum.add(&result(&recorder(window(), []))).unwrap();
        let summed = sum.result();
        assert_eq!((summed.operations, summed.latency.count), (9, 9));
    }
}
