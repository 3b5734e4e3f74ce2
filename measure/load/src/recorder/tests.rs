use super::*;
use crate::times::decode_histogram;

const OPEN: TrialPace = TrialPace::Open { per_s: 1.0 };
const MICRO: Duration = Duration::from_micros(1);

fn window() -> MeasurementWindow {
    MeasurementWindow::starting_at(Instant::now(), Duration::from_secs(1), Duration::from_secs(2))
}

/// An operation of two statements with one retry.
fn operation(ended: Instant, took: Duration) -> Operation {
    Operation { began: ended.checked_sub(took).unwrap(), ended, statements: 2, retries: 1 }
}

/// Inspections are ciphertoll's work, not a client's.
#[test]
fn inspections_in_the_window_are_not_client_cpu() {
    let window = window();
    let (mut one, mut other) =
        (Recorder::new(window, TrialPace::Closed), Recorder::new(window, TrialPace::Closed));
    one.inspected(window.starts, MICRO);
    one.inspected(window.opens, 2 * MICRO);
    other.inspected(window.middle, 3 * MICRO);
    other.inspected(window.closes, 4 * MICRO);
    one.merge(other);
    assert_eq!(one.inspection(), 5 * MICRO);
}

#[test]
fn counts_only_what_ends_in_the_window_and_by_half() {
    let window = window();
    let mut recorder = Recorder::new(window, TrialPace::Closed);
    let took = 100 * MICRO;
    for ended in [
        window.opens.checked_sub(Duration::from_nanos(1)).unwrap(),
        window.opens,
        window.middle,
        window.middle,
        window.closes,
    ] {
        recorder.closed(&operation(ended, took));
    }
    let result = recorder.result();
    assert_eq!(result.operations_by_half, [1, 2]);
    assert_eq!(result.operations, 3);
    assert_eq!((result.statements, result.retries), (Some(6), 3));
    assert_eq!(result.latency.sum_ns, 300_000);
    assert_eq!((result.service, result.schedule_lag), (None, None));
    let histogram = decode_histogram(&result.histogram_base64).unwrap();
    assert_eq!(histogram.len(), 3);
}

/// In an open loop times belong to when an operation was due, counts to when it ended.
#[test]
fn an_open_loop_times_what_was_due_in_the_window() {
    let window = window();
    let mut recorder = Recorder::new(window, OPEN);
    let due = |intended| DueOperation { client: 0, intended, lag: 5 * MICRO };
    // Due in the warm-up, ended in the window: counted.
    let warm = window.opens.checked_sub(MICRO).unwrap();
    recorder.open(&operation(window.opens + MICRO, MICRO), &due(warm));
    // Due in the window, ended after it: timed from when it was due.
    recorder
        .open(&operation(window.closes, 20 * MICRO), &due(window.closes.checked_sub(70 * MICRO).unwrap()));
    // Both.
    recorder.open(&operation(window.middle + 30 * MICRO, 20 * MICRO), &due(window.middle));
    let result = recorder.result();
    assert_eq!(result.operations_by_half, [1, 1]);
    assert_eq!((result.latency.count, result.latency.sum_ns), (2, 100_000));
    let (service, lag) = (result.service.unwrap(), result.schedule_lag.unwrap());
    assert_eq!((service.count, service.sum_ns), (2, 40_000));
    assert_eq!((lag.count, lag.sum_ns), (2, 10_000));
}

/// Even after a storm of other errors, and through a merge.
#[test]
fn a_connection_limit_is_always_reported() {
    let full = Error::Connection(
        ciphertoll_wire::mysql::Error::Server {
            code: 1040,
            sql_state: "08004".to_owned(),
            message: "Too many connections".to_owned(),
        }
        .into(),
    );
    let mut recorder = Recorder::new(window(), TrialPace::Closed);
    for number in 0..2 * MAX_MESSAGES {
        recorder.error(&Error::Script(number.to_string()));
    }
    recorder.error(&full);
    let mut all = Recorder::new(window(), TrialPace::Closed);
    all.error(&full);
    all.merge(recorder);
    assert_eq!(all.failed_operations(), 2 * MAX_MESSAGES as u64 + 2);
    let result = all.result();
    let (full, other): (Vec<_>, Vec<_>) =
        result.errors.iter().partition(|error| error.kind == ErrorKind::TooManyConnections);
    assert_eq!((full.len(), full[0].count, other.len()), (1, 2, MAX_MESSAGES));
    assert!(full[0].message.contains("Too many connections"), "{:?}", full[0]);
}

#[test]
fn merging_threads_equals_recording_in_one() {
    let window = window();
    for pace in [TrialPace::Closed, OPEN] {
        let (mut one, mut two, mut both) =
            (Recorder::new(window, pace), Recorder::new(window, pace), Recorder::new(window, pace));
        for micros in 1..500_u32 {
            let operation = operation(window.opens + micros * MICRO, micros * micros * MICRO);
            let due = DueOperation { client: 0, intended: window.opens, lag: micros * MICRO };
            let recorder = if micros % 2 == 0 { &mut one } else { &mut two };
            for recorder in [recorder, &mut both] {
                match pace {
                    TrialPace::Closed => recorder.closed(&operation),
                    TrialPace::Open { .. } => recorder.open(&operation, &due),
                }
                recorder.unfinished(1);
            }
        }
        one.merge(two);
        assert_eq!(one.result(), both.result());
    }
}
