//! Runs through proxies: what they are called, and that what is cheaper is said to be.

use ciphertoll_model::{Ending, Event, Leg, LegCount, Metric, Path, Spec, Workload};
use ciphertoll_report::{Style, html, terminal};
use ciphertoll_stats::Verdict;

use crate::fixture::{Run, estimate, leg, measured, ratio_of};

const SIDECAR: &str = "proxy";
const BOUNCER: &str = "pgbouncer+front=tcp+tls=1.3-rsa2048+mode=transaction";

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

/// Connects and reads through two proxies, beside plain and TLS.
fn proxied() -> Run {
    let spec = format!(
        "[[grid]]\nserver = [\"postgres\"]\npath = [\"plain\", \"tls1.3-p256\", \"{SIDECAR}\", \"{BOUNCER}\"]\n\
         workload = [\"connect\", \"point-select\"]\nclients = [1]\n"
    );
    let mut run = measured(&Spec::from_toml(&spec).unwrap(), 10);
    for (name, version) in [(SIDECAR, "ciphertoll-proxy 0.1.0"), (BOUNCER, "PgBouncer 1.18.0")] {
        let (version, leg) = (version.to_owned(), behind(name).leg);
        run.push(Event::ProxyTried { path: path(name), version, leg, elapsed_ms: 31 });
    }
    for (name, ratio) in [("tls1.3-p256", 1.53), (SIDECAR, 0.061), (BOUNCER, 0.047)] {
        let connect = run.comparison(Workload::Connect, path(name));
        ratio_of(connect, Metric::LatencyNsMean, ratio, 0.04, Some(Verdict::Differs));
        connect.cell.metrics.insert(Metric::LatencyNsMean, estimate(197_000.0 * ratio, 0.04));
        ratio_of(connect, Metric::CpuUsPerOpTotal, ratio * 1.1, 0.04, Some(Verdict::Differs));
    }
    for (name, ratio) in [("tls1.3-p256", 0.85), (SIDECAR, 0.62), (BOUNCER, 0.64)] {
        let select = run.comparison(Workload::PointSelect, path(name));
        ratio_of(select, Metric::RatePerS, ratio, 0.03, Some(Verdict::Differs));
        ratio_of(select, Metric::CpuUsPerOpTotal, 1.0 / ratio, 0.03, Some(Verdict::Differs));
    }
    for name in [SIDECAR, BOUNCER] {
        for workload in [Workload::Connect, Workload::PointSelect] {
            let cell = run.cell(workload, path(name));
            cell.legs = vec![leg(path(name), 9_120), behind(name)];
            cell.metrics.insert(Metric::CpuUsPerOpMiddle, estimate(52.0, 0.03));
            cell.metrics.insert(Metric::SetUpNs, estimate(31e6, 0.1));
        }
    }
    run.end(Ending::Complete);
    run
}

/// What the server tells of the proxy's own connections.
fn behind(name: &str) -> LegCount {
    let proxy = path(name).as_proxy().unwrap();
    let leg = Leg {
        from: proxy.program.label().to_owned(),
        to: "server".to_owned(),
        tls_version: Some("tls1.3".to_owned()),
        suite: Some("TLS_AES_256_GCM_SHA384".to_owned()),
        key: Some(proxy.key.label().to_owned()),
        library: Some(proxy.program.display_name().to_owned()),
        ..Leg::default()
    };
    LegCount { leg, connections: 2, handshake: None }
}

#[test]
fn a_run_through_proxies() {
    insta::assert_snapshot!(terminal(&proxied().report(), Style::Plain, 100));
}

/// What is switched on is TLS: a proxy is how it is paid for.
#[test]
fn advice_is_about_tls() {
    let page = html(&proxied().report());
    assert!(page.contains("TLS 1.3 with a P-256 certificate"), "{page}");
}
