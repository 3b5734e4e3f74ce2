//! The gates of pooling proxies.

use ciphertoll_experiment::{Measured, ProxyUse};
use ciphertoll_model::{Cell, Engine, Metric, VoidReason, Workload};

use super::{judged, sound_on, void};

/// A cell of `PostgreSQL` through a proxy, and what a sound trial of it measures.
fn pooled(path: &str, workload: Workload) -> (Cell, Measured) {
    sound_on(Engine::Postgres, path.parse().expect("a path"), workload)
}

fn proxy(measured: &mut Measured) -> &mut ProxyUse {
    measured.proxy.as_mut().expect("the mock has one")
}

#[test]
fn a_sound_trial_through_a_proxy_passes_and_tells_of_it() {
    for workload in [Workload::Connect, Workload::CONNECT_QUERY, Workload::PointSelect] {
        let (cell, mut measured) = pooled("proxy", workload);
        measured.middle_cpu_ns = 300_000_000;
        measured.middle_rss_peak_bytes = Some(4 << 20);
        let observation = judged(&cell, &measured).expect("passes");
        assert_eq!(observation.legs.len(), 2, "the client's, and the proxy's own");
        for metric in [Metric::SetUpNs, Metric::CpuUsPerOpMiddle, Metric::RssBytesMiddle] {
            assert!(observation.metrics[&metric] > 0.0, "{metric}");
        }
    }
}

#[test]
fn a_proxy_that_does_not_pool_or_does_not_encrypt_is_void() {
    type Change = fn(&mut Measured);
    let changes: [(&str, Change); 5] = [
        ("there was none", |measured| measured.proxy = None),
        ("it does not pool", |measured| {
            let operations = measured.load.operations;
            proxy(measured).connections = Some(operations);
        }),
        ("3 of its connections to the server were not encrypted", |measured| {
            proxy(measured).in_the_clear = Some(3);
        }),
        ("no connection from it", |measured| proxy(measured).legs.clear()),
        ("the server counted 12 requests", |measured| proxy(measured).requests = Some(12)),
    ];
    for (words, change) in changes {
        let (cell, mut measured) = pooled("pgbouncer", Workload::CONNECT_QUERY);
        change(&mut measured);
        let reason = void(&cell, &measured);
        assert!(matches!(reason, VoidReason::Proxy { .. }) && reason.to_string().contains(words), "{reason}");
    }
    // Counts that the server does not report are ignored, and so are requests of a load that sends none.
    let (cell, mut measured) = pooled("pgbouncer", Workload::CONNECT_QUERY);
    let unknown = proxy(&mut measured);
    (unknown.connections, unknown.in_the_clear, unknown.requests) = (None, None, None);
    assert!(judged(&cell, &measured).is_ok());
    let (cell, mut measured) = pooled("pgbouncer", Workload::Connect);
    proxy(&mut measured).requests = Some(0);
    assert!(judged(&cell, &measured).is_ok());
}

#[test]
fn another_version_or_key_behind_a_proxy_is_void() {
    type Change = fn(&mut ciphertoll_model::Leg);
    let changes: [Change; 3] = [
        |leg| leg.tls_version = Some("tls1.2".to_owned()),
        |leg| leg.tls_version = None,
        |leg| leg.key = Some("rsa2048".to_owned()),
    ];
    for change in changes {
        let (cell, mut measured) = pooled("proxy", Workload::Connect);
        change(&mut proxy(&mut measured).legs[0].leg);
        assert!(matches!(void(&cell, &measured), VoidReason::Negotiated { .. }));
    }
    let (cell, measured) = pooled("pgbouncer+tls=1.2-rsa2048", Workload::Connect);
    assert!(judged(&cell, &measured).is_ok());
}

#[test]
fn another_group_behind_a_proxy_is_void() {
    for (path, group, is_sound) in [
        ("proxy+group=x25519mlkem768", Some("x25519mlkem768"), true),
        ("proxy+group=x25519mlkem768", Some("p256"), false),
        ("proxy+group=x25519mlkem768", Some("p256,x25519mlkem768"), false),
        ("proxy+group=x25519mlkem768", None, false),
        ("proxy", Some("p256"), true),
        ("proxy", None, true),
    ] {
        let (cell, mut measured) = pooled(path, Workload::Connect);
        proxy(&mut measured).legs[0].leg.group = group.map(ToOwned::to_owned);
        let judged = judged(&cell, &measured);
        assert_eq!(judged.is_ok(), is_sound, "{path} {group:?}");
        assert!(is_sound || matches!(judged, Err(VoidReason::Negotiated { .. })), "{path} {group:?}");
    }
}

#[test]
fn in_front_of_a_proxy_a_client_is_let_in_as_its_front_says() {
    for (path, sound, wrong) in
        [("proxy", "trust", "scram-4096"), ("pgbouncer+front=tcp", "scram-4096", "trust")]
    {
        let (cell, mut measured) = pooled(path, Workload::Connect);
        measured.load.legs[0].leg.auth = Some(sound.to_owned());
        assert!(judged(&cell, &measured).is_ok(), "{path}");
        measured.load.legs[0].leg.auth = Some(wrong.to_owned());
        assert!(matches!(void(&cell, &measured), VoidReason::Authenticated { .. }), "{path}");
        measured.load.legs[0].leg.tls_version = Some("tls1.3".to_owned());
        assert!(matches!(void(&cell, &measured), VoidReason::Negotiated { .. }), "in the clear in front");
    }
}
