use super::*;
use crate::status::tests::example;

fn lines(metrics: &Metrics) -> Vec<String> {
    render(&[(metrics, &example())]).lines().map(ToOwned::to_owned).collect()
}

fn has(lines: &[String], line: &str) {
    assert!(lines.iter().any(|known| known == line), "{line} is missing in {lines:#?}");
}

#[test]
fn counters_are_shown() {
    let metrics = Metrics::default();
    metrics.sessions.add(3);
    metrics.refusals.increment("53300");
    metrics.refusals.increment("53300");
    metrics.closed("it is old");
    metrics.closed("the client left in the middle of a message");
    metrics.closed.increment("lost");
    metrics.pins.increment("LISTEN");
    metrics.steals.add(7);
    metrics.connect_failed(&Error::TimedOut { seconds: 1 });
    let lines = lines(&metrics);
    for line in [
        "ciphertoll_proxy_sessions_total 3",
        "ciphertoll_proxy_refusals_total{sqlstate=\"53300\"} 2",
        "ciphertoll_proxy_closed_total{reason=\"age\"} 1",
        "ciphertoll_proxy_closed_total{reason=\"unknown_state\"} 1",
        "ciphertoll_proxy_closed_total{reason=\"lost\"} 1",
        "ciphertoll_proxy_connect_failures_total{reason=\"timeout\"} 1",
        "ciphertoll_proxy_clients{state=\"queued\"} 2",
        "ciphertoll_proxy_pins_total{reason=\"LISTEN\"} 1",
        "ciphertoll_proxy_steals_total 7",
        "ciphertoll_proxy_server_connections{user=\"app\",database=\"a\\\"b\\\\\\n\",state=\"idle\"} 4",
        "ciphertoll_proxy_certificate_expiry_timestamp_seconds{file=\"/ca.pem\"} 1800000000",
        "ciphertoll_proxy_password_fetches_total{user=\"app\",result=\"failed\"} 1",
        "ciphertoll_proxy_password_expiry_timestamp_seconds{user=\"app\"} 1800000000",
    ] {
        has(&lines, line);
    }
    assert_eq!(metrics.closed.total(), 3);
}

#[test]
fn histogram_buckets_are_cumulative() {
    let metrics = Metrics::default();
    for millis in [0, 1, 2, 5_000, 60_000] {
        metrics.waits.add(Duration::from_millis(millis));
    }
    let lines = lines(&metrics);
    for (end, count) in [("0.001", 2), ("0.01", 3), ("0.1", 3), ("1", 3), ("10", 4), ("+Inf", 5)] {
        has(&lines, &format!("ciphertoll_proxy_queue_wait_seconds_bucket{{le=\"{end}\"}} {count}"));
    }
    has(&lines, "ciphertoll_proxy_queue_wait_seconds_sum 65.003");
    has(&lines, "ciphertoll_proxy_queue_wait_seconds_count 5");
}

#[test]
fn every_sample_belongs_to_one_documented_family() {
    let metrics = Metrics::default();
    metrics.refusals.increment("53300");
    let text = render(&[(&metrics, &example())]);
    let mut families: Vec<&str> = Vec::new();
    for line in text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let name = family.split(' ').next().unwrap();
            assert!(!families.contains(&name), "{name} twice");
            families.push(name);
        } else if !line.starts_with('#') {
            let family = families.last().copied().unwrap_or_default();
            assert!(line.starts_with(family), "{line} is not of {family}");
            let value = line.rsplit(' ').next().unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(families.len() >= 20, "{families:?}");
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sidecar/operations.md");
    let page = std::fs::read_to_string(page).unwrap();
    for family in families {
        let name = family.strip_prefix(PREFIX).unwrap();
        assert!(page.contains(&format!("`{name}`")), "{name} is not in docs/sidecar/operations.md");
    }
}

#[test]
fn the_number_of_labels_is_limited() {
    let metrics = Metrics::default();
    for number in 0..1_000 {
        metrics.refusals.increment(&format!("{number:05}"));
    }
    let counts = metrics.refusals.counts();
    assert_eq!((counts.len(), metrics.refusals.total()), (MAX_LABELS + 1, 1_000));
}

#[test]
fn samples_of_several_servers_have_its_name_and_stay_with_their_family() {
    let (one, other) = (Metrics::default(), Metrics::default());
    one.sessions.add(3);
    let named = |name: &str| Status { name: Some(name.to_owned()), ..example() };
    let text = render(&[(&one, &named("orders")), (&other, &named("users"))]);
    let sessions = "# TYPE ciphertoll_proxy_sessions_total counter\n\
        ciphertoll_proxy_sessions_total{server_name=\"orders\"} 3\n\
        ciphertoll_proxy_sessions_total{server_name=\"users\"} 0\n#";
    assert!(text.contains(sessions), "{text}");
    assert!(text.contains("clients{server_name=\"users\",state=\"queued\"} 2\n"), "{text}");
    assert!(text.contains("\nciphertoll_proxy_log_lines_dropped_total 0\n"), "{text}");
    assert_eq!(text.matches("# HELP ciphertoll_proxy_clients ").count(), 1);
}
