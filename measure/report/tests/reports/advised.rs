//! What `advise` says of a load.

use ciphertoll_model::{Resumption, TlsVersion};
use ciphertoll_report::{AdviceReport, CostReport, Style, advice, advice_json};
use ciphertoll_stats::advice::{ConnectionShares, Need, Optimize, TransportToday, Worth};
use ciphertoll_stats::cost::{Cores, CostModel, Load, SessionQueries};

use crate::what_if::calibrated;

const SHORT: Load = Load {
    connects_per_s: Some(20.0),
    queries: SessionQueries::of_mean(3.0),
    rtt_ns: 0.0,
    clients: None,
    row_bytes: 0,
    cores: Cores::Shared(2.0),
};

/// On a terminal of any width, the text without line breaks, of the first server; and its document.
fn advised(load: &Load, change: impl FnOnce(&mut AdviceReport<'_>)) -> (String, serde_json::Value) {
    let run = calibrated();
    let report = run.report();
    let model = CostModel::fit(&run.plan, &report.facts);
    let costs = CostReport { run: "calibrate", facts: &report.facts, model: &model, load };
    let (worth, optimize) = (Worth::default(), Optimize::Both);
    let mut asked = AdviceReport {
        costs,
        needs: &[],
        core_price: None,
        load_source: None,
        today: None,
        observed: &[],
        url: None,
        optimize,
        worth,
    };
    change(&mut asked);
    let text = advice(&asked, Style::Plain, 10_000);
    let first = text.split("\nPostgreSQL").next().unwrap().to_owned();
    let document: serde_json::Value = serde_json::from_str(&advice_json(&asked).unwrap()).unwrap();
    (first, document["servers"][0].clone())
}

#[test]
fn time_is_said_beside_cpu_time() {
    let far = Load { rtt_ns: 45e6, ..SHORT };
    let (text, document) = advised(&far, |_| {});
    let saved = text.lines().find(|line| line.starts_with("It saves")).unwrap();
    assert!(saved.contains("per connect at 45 ms") && saved.contains("cores ("), "{saved}");
    assert!(saved.contains("compared with tls1.3-p256"), "{saved}");
    assert!(text.contains("Rule (--optimize both): "), "{text}");
    let saving = document["choices"][1]["saving_connect_ns"]["value"].as_f64().unwrap();
    // Five round trips of a TLS connect, and none of the sidecar's.
    assert!((saving / 225e6 - 1.0).abs() < 0.05, "{document:#}");
}

#[test]
fn a_small_saving_is_left_alone() {
    let few = Load { connects_per_s: Some(3.4), ..SHORT };
    let thresholds = |report: &mut AdviceReport<'_>| report.worth = Worth { cores: 0.1, time_ns: 5e6 };
    let (text, document) = advised(&few, thresholds);
    assert!(text.contains("Leave it as it is if you use tls1.3-p256"), "{text}");
    assert!(text.contains("less than 0.1 cores and 5 ms per connect or query"), "{text}");
    assert_eq!(document["leave_as_it_is"], true);
    let busy = Load { connects_per_s: Some(300.0), ..SHORT };
    assert!(!advised(&busy, thresholds).0.contains("Leave it as it is"));
    let now = ConnectionShares { without_tls: Some(0.0), by_version: vec![(TlsVersion::Tls13, 1.0)] };
    let run = |report: &mut AdviceReport<'_>| {
        thresholds(report);
        report.today = Some(Box::leak(Box::new(now)));
    };
    assert!(advised(&few, run).0.contains("\nLeave it as it is, tls1.3-p256 ("));
}

#[test]
fn an_impossible_load_is_the_first_sentence() {
    let (text, document) = advised(&Load { connects_per_s: Some(1e6), ..SHORT }, |_| {});
    let first = text.lines().skip_while(|line| !line.contains("MariaDB")).nth(1).unwrap();
    assert!(first.starts_with("Impossible: even with proxy, 1000000 connects/s need "), "{first}");
    assert!(first.contains(" cores, and there are 2. At most "), "{first}");
    assert!(document["impossible_above_per_s"].as_f64().unwrap() < 1e6);
}

#[test]
fn locked_out_clients_are_counted_and_names_are_those_of_the_url() {
    let url = "mysql://ops@db.mine/orders?ssl-mode=VERIFY_IDENTITY&ssl-ca=/home/ops/ca.pem".parse().unwrap();
    let by_version = vec![(TlsVersion::Tls13, 0.3), (TlsVersion::Tls12, 0.3)];
    let today = ConnectionShares { without_tls: Some(0.4), by_version };
    let (text, document) = advised(&SHORT, |report| {
        report.needs = &[Need::EndToEnd];
        report.url = Some(Box::leak(Box::new(url)));
        report.today = Some(Box::leak(Box::new(today)));
    });
    let said = "These settings lock out clients without TLS (40 % of today's connections) and clients with a version older \
                than TLS 1.3 (30 % of today's connections).";
    assert!(text.contains(said), "{text}");
    assert!(text.contains("mysql://ops@db.mine:3306/orders?"), "{text}");
    assert!(!text.contains("db.example"), "{text}");
    assert_eq!(document["locked_out"][1]["clients"], "older_than");
    assert_eq!(document["locked_out"][1]["version"], "tls1.3");
    let (text, _) = advised(&SHORT, |_| {});
    assert!(text.contains("To count today's: ciphertoll advise calibrate --url NAME=URL"), "{text}");
}

#[test]
fn what_was_observed_is_compared_with_the_choice() {
    let busy = Load { connects_per_s: Some(300.0), ..SHORT };
    let tls = |version| TransportToday::Tls { version, key: None, resumption: Resumption::Never };
    let seen = [(tls(TlsVersion::Tls13), 90), (TransportToday::Plain, 10), (TransportToday::Other, 11)];
    let seen: &'static [_] = Box::leak(Box::new(seen));
    let (text, document) = advised(&busy, |report| report.observed = seen);
    let now = text.lines().find(|line| line.starts_with("Now, as ")).unwrap();
    assert!(
        now.contains("tls1.3-p256 (90 %) and plain (10 %), and 9.9 % of connections like these"),
        "{now}"
    );
    assert!(now.contains(" cores ") && now.contains(" would save ") && now.contains("per connect"), "{now}");
    let today = &document["today"];
    assert_eq!(today["paths"][0]["path"], "tls1.3-p256");
    let value = |name: &str| today[name]["value"].as_f64().unwrap();
    assert!(value("saved_cores") > 0.0 && value("saved_cores") < value("cores"), "{today:#}");
    assert!(advised(&busy, |_| {}).1.get("today").is_none());
}
