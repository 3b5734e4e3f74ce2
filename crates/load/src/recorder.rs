//! What a thread's clients saw: every sample in an HDR histogram, exact sums beside it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ciphertoll_model::{ErrorCount, LatencySummary, Leg, LegCount, Phase, TrialResult};
use ciphertoll_net::{Connected, PhaseTimes, tls};
use ciphertoll_wire::session::ServerInfo;
use ciphertoll_wire::{mysql, postgres};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};

use crate::window::{Moment, Window};

/// The longest time a histogram tells from longer ones: a minute.
pub const HISTOGRAM_MAX_NS: u64 = 60_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;
/// Distinct error messages kept; a storm of them says no more than its beginning.
const MAX_MESSAGES: usize = 16;

/// What connections agreed on, and how many of them.
#[derive(Default)]
pub(crate) struct Legs(Vec<(Agreed, u64)>);

/// What client and server agreed on.
#[derive(PartialEq)]
struct Agreed {
    /// `None`: no TLS.
    tls: Option<tls::Negotiated>,
    auth: AuthMethod,
}

/// What the server asked for. Compared on every connect, so that it is no text yet.
#[derive(Clone, Copy, PartialEq)]
enum AuthMethod {
    MySql(mysql::AuthMethod),
    Postgres(postgres::AuthMethod),
}

impl Legs {
    /// Counts a connection. All are counted, warm-up included: a gate looks at every one.
    pub(crate) fn count(&mut self, connected: &Connected) {
        let auth = match &connected.server {
            ServerInfo::MySql(server) => AuthMethod::MySql(server.auth),
            ServerInfo::Postgres(server) => AuthMethod::Postgres(server.auth),
        };
        self.add(Agreed { tls: connected.channel.negotiated(), auth }, 1);
    }

    fn add(&mut self, agreed: Agreed, connections: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == agreed) {
            Some((_, count)) => *count += connections,
            None => self.0.push((agreed, connections)),
        }
    }
}

impl AuthMethod {
    fn label(self) -> String {
        match self {
            Self::MySql(method) => method.label().to_owned(),
            Self::Postgres(method) => method.label(),
        }
    }
}

/// What a thread's clients saw.
pub(crate) struct Recorder {
    window: Window,
    histogram: Histogram<u64>,
    sum_ns: u64,
    operations_by_half: [u64; 2],
    phase_sums: [Duration; ciphertoll_net::Phase::ALL.len()],
    legs: Legs,
    failed_operations: u64,
    errors: BTreeMap<String, u64>,
}

impl Recorder {
    pub(crate) fn new(window: Window) -> Self {
        // The bounds are constants that the library takes.
        let histogram = Histogram::new_with_max(HISTOGRAM_MAX_NS, SIGNIFICANT_DIGITS)
            .unwrap_or_else(|_| unreachable!("three digits up to a minute is a valid histogram"));
        Self {
            window,
            histogram,
            sum_ns: 0,
            operations_by_half: [0; 2],
            phase_sums: Default::default(),
            legs: Legs::default(),
            failed_operations: 0,
            errors: BTreeMap::new(),
        }
    }

    /// Counts an operation that ended at `ended`, if that lies in the window.
    pub(crate) fn operation(&mut self, ended: Instant, took: Duration) {
        let half = match self.window.moment(ended) {
            Moment::FirstHalf => 0,
            Moment::SecondHalf => 1,
            Moment::WarmUp | Moment::Over => return,
        };
        self.operations_by_half[half] += 1;
        let nanos = took.as_nanos() as u64;
        self.sum_ns += nanos;
        self.histogram.saturating_record(nanos);
    }

    /// Counts a connect with its phases.
    pub(crate) fn connect(&mut self, ended: Instant, phases: &PhaseTimes) {
        if matches!(self.window.moment(ended), Moment::FirstHalf | Moment::SecondHalf) {
            for (sum, phase) in self.phase_sums.iter_mut().zip(ciphertoll_net::Phase::ALL) {
                *sum += phases.of(phase);
            }
        }
        self.operation(ended, phases.total());
    }

    /// Adds what the connections negotiated.
    pub(crate) fn legs(&mut self, legs: Legs) {
        for (leg, count) in legs.0 {
            self.legs.add(leg, count);
        }
    }

    pub(crate) fn error(&mut self, error: &ciphertoll_net::Error) {
        self.failed_operations += 1;
        let message = error.to_string();
        if self.errors.len() < MAX_MESSAGES || self.errors.contains_key(&message) {
            *self.errors.entry(message).or_default() += 1;
        }
    }

    /// Operations that failed so far.
    pub(crate) fn failed_operations(&self) -> u64 {
        self.failed_operations
    }

    /// Adds what another thread's clients saw.
    pub(crate) fn merge(&mut self, other: Self) {
        // Both have the same bounds, so that adding cannot fail.
        let _ = self.histogram.add(&other.histogram);
        self.sum_ns += other.sum_ns;
        for (mine, theirs) in self.operations_by_half.iter_mut().zip(other.operations_by_half) {
            *mine += theirs;
        }
        for (mine, theirs) in self.phase_sums.iter_mut().zip(other.phase_sums) {
            *mine += theirs;
        }
        self.legs(other.legs);
        self.failed_operations += other.failed_operations;
        for (message, count) in other.errors {
            *self.errors.entry(message).or_default() += count;
        }
    }

    /// The trial's result; what the process as a whole used is the caller's to fill in.
    pub(crate) fn result(&self) -> TrialResult {
        let quantile = |q| self.histogram.value_at_quantile(q);
        TrialResult {
            operations: self.operations_by_half.iter().sum(),
            operations_by_half: self.operations_by_half,
            window_ns: self.window.length().as_nanos() as u64,
            errors: self
                .errors
                .iter()
                .map(|(message, count)| ErrorCount { message: message.clone(), count: *count })
                .collect(),
            latency: LatencySummary {
                count: self.histogram.len(),
                sum_ns: self.sum_ns,
                p50_ns: quantile(0.50),
                p95_ns: quantile(0.95),
                p99_ns: quantile(0.99),
                max_ns: self.histogram.max(),
            },
            phase_sums_ns: self.phase_sums(),
            histogram_base64: encode_histogram(&self.histogram),
            legs: self
                .legs
                .0
                .iter()
                .map(|(agreed, count)| LegCount { leg: leg_of(agreed), connections: *count })
                .collect(),
            client_cpu_ns: 0,
            client_rss_peak_bytes: 0,
            usable_ports: None,
        }
    }

    fn phase_sums(&self) -> BTreeMap<Phase, u64> {
        ciphertoll_net::Phase::ALL
            .into_iter()
            .zip(self.phase_sums)
            .filter(|(_, sum)| !sum.is_zero())
            .map(|(phase, sum)| (model_phase(phase), sum.as_nanos() as u64))
            .collect()
    }
}

/// Reads a histogram back from a record, or from an external driver.
pub fn decode_histogram(base64: &str) -> Option<Histogram<u64>> {
    let bytes = STANDARD.decode(base64.trim()).ok()?;
    Deserializer::new().deserialize(&mut bytes.as_slice()).ok()
}

fn encode_histogram(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    match V2Serializer::new().serialize(histogram, &mut bytes) {
        Ok(_) => STANDARD.encode(&bytes),
        Err(_) => String::new(),
    }
}

fn leg_of(agreed: &Agreed) -> Leg {
    let negotiated = agreed.tls.as_ref();
    Leg {
        from: "client".to_owned(),
        to: "server".to_owned(),
        tls_version: negotiated.map(|tls| tls.version.to_owned()),
        suite: negotiated.map(|tls| tls.suite.to_owned()),
        group: negotiated.and_then(|tls| tls.group.as_deref().map(ToOwned::to_owned)),
        key: negotiated.map(|tls| tls.key.clone().into_owned()),
        resumed: negotiated.map(|tls| tls.resumed),
        hello_retry: negotiated.map(|tls| tls.hello_retry),
        auth: Some(agreed.auth.label()),
        library: negotiated.map(|tls| tls.library.label().to_owned()),
    }
}

fn model_phase(phase: ciphertoll_net::Phase) -> Phase {
    match phase {
        ciphertoll_net::Phase::TcpConnect => Phase::TcpConnect,
        ciphertoll_net::Phase::ServerGreeting => Phase::ServerGreeting,
        ciphertoll_net::Phase::TlsContext => Phase::TlsContext,
        ciphertoll_net::Phase::TlsRequest => Phase::TlsRequest,
        ciphertoll_net::Phase::TlsHandshake => Phase::TlsHandshake,
        ciphertoll_net::Phase::Auth => Phase::Auth,
        ciphertoll_net::Phase::Ready => Phase::Ready,
        ciphertoll_net::Phase::FirstQuery => Phase::FirstQuery,
        ciphertoll_net::Phase::Close => Phase::Close,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> Window {
        Window::starting_at(Instant::now(), Duration::from_secs(1), Duration::from_secs(2))
    }

    #[test]
    fn counts_only_what_ends_in_the_window_and_by_half() {
        let window = window();
        let mut recorder = Recorder::new(window);
        let took = Duration::from_micros(100);
        recorder.operation(window.opens.checked_sub(Duration::from_nanos(1)).unwrap(), took);
        recorder.operation(window.opens, took);
        recorder.operation(window.middle, took);
        recorder.operation(window.middle, took);
        recorder.operation(window.closes, took);
        let result = recorder.result();
        assert_eq!(result.operations_by_half, [1, 2]);
        assert_eq!(result.operations, 3);
        assert_eq!(result.latency.sum_ns, 300_000);
        let histogram = decode_histogram(&result.histogram_base64).unwrap();
        assert_eq!(histogram.len(), 3);
    }

    #[test]
    fn merging_threads_equals_recording_in_one() {
        let window = window();
        let (mut one, mut two, mut both) =
            (Recorder::new(window), Recorder::new(window), Recorder::new(window));
        for micros in 1..500_u64 {
            let took = Duration::from_micros(micros * micros);
            let recorder = if micros % 2 == 0 { &mut one } else { &mut two };
            recorder.operation(window.opens, took);
            both.operation(window.opens, took);
        }
        one.merge(two);
        assert_eq!(one.result(), both.result());
    }
}
