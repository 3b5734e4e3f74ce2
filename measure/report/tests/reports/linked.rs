//! Runs over long links, as they would be if every connect took its protocol's round trips and some work.

use ciphertoll_model::{
    Ending, Event, Link, LinkShape, Metric, Path, Resumption, Spec, TlsVersion, Workload,
};
use ciphertoll_report::{Plot, Style, csv, html, markdown, terminal};
use ciphertoll_stats::CellAnalysis;

use crate::fixture::{Run, estimate, leg, measured};
use crate::html::{skeleton, text_of};

const PATHS: &str = "\"plain\", \"tls1.3-p256\", \"tls1.3-rsa4096\", \"tls1.2-p256\", \"tls1.2-p256+resume\"";

/// Two servers over nothing and over four links, and one link whose round trip is not one number.
pub(crate) fn linked() -> Run {
    let spec = format!(
        "[[grid]]\nserver = [\"mariadb\", \"postgres-15\"]\npath = [{PATHS}]\nlink = [\"local\", \"1ms\", \"10ms\", \
         \"45ms\", \"170ms\", \"45ms+loss=1%\"]\nworkload = [\"connect\"]\nclients = [1]\n"
    );
    over(&spec)
}

/// One link beside none.
fn near_and_far() -> Run {
    over(
        "[[grid]]\npath = [\"plain\", \"tls1.3-p256\", \"unix\"]\nlink = [\"local\", \"45ms\"]\n\
         workload = [\"connect\", \"connect-query\"]\nclients = [1]\n",
    )
}

fn over(spec: &str) -> Run {
    let mut run = measured(&Spec::from_toml(spec).unwrap(), 10);
    run.push(Event::ServerReady {
        server: "postgres-15".to_owned(),
        version: "15.18 (Debian 15.18-0+deb12u1)".to_owned(),
        tls_library: Some("OpenSSL 3.0.16".to_owned()),
        settings: std::collections::BTreeMap::new(),
        elapsed_ms: 900,
    });
    for link in
        run.plan.cells.iter().map(|cell| cell.treatment.link).collect::<std::collections::BTreeSet<_>>()
    {
        let Some(shape) = link.shape() else { continue };
        run.push(Event::LinkMade {
            link: shape,
            overhead_ns: 61_000,
            round_trip_ns_p50: shape.rtt_ns() + 16_000,
            congestion_control: "cubic".to_owned(),
            by: ciphertoll_model::LinkKind::Ring,
            mtu_bytes: 1500,
        });
    }
    for cell in run.cells() {
        fill(cell);
    }
    run.end(Ending::Complete);
    run
}

/// Work, and the number of round trips that were counted on the tested servers.
fn fill(cell: &mut CellAnalysis) {
    let treatment = &cell.cell.treatment;
    let is_postgres = treatment.server.short_name().starts_with("postgres");
    let (login, work_ns) = if is_postgres { (3.0, 4_100_000.0) } else { (2.0, 240_000.0) };
    let (path, rsa) = (treatment.path, treatment.path.to_string().contains("rsa4096"));
    let handshake = match path.as_tls() {
        None => 0.0,
        Some(tls) if tls.parameters.version == TlsVersion::Tls13 => 1.0,
        Some(tls) if tls.resumption == Resumption::Never => 2.0,
        Some(_) => 1.0,
    };
    // PostgreSQL is asked for TLS, and asks TLS 1.3 clients again.
    let asked = match path.as_tls() {
        Some(tls) if is_postgres => 1.0 + f64::from(u8::from(tls.parameters.version == TlsVersion::Tls13)),
        _ => 0.0,
    };
    let query = f64::from(u8::from(cell.cell.workload == Workload::CONNECT_QUERY));
    let connect = 1.0 + login + handshake + asked + query;
    let trips = if cell.cell.workload == Workload::FirstQuery { 1.0 } else { connect };
    let crypto_ns = if rsa { 5_600_000.0 } else { 210_000.0 * handshake };
    let rtt_ns = treatment.link.shape().map_or(0.0, |shape| shape.rtt_ns() as f64);
    let noise_ns = 12_000.0 + rtt_ns * 0.0004 + work_ns * 0.01;
    let time_ns = trips * rtt_ns + work_ns + crypto_ns;
    cell.metrics.insert(Metric::LatencyNsMean, estimate(time_ns, noise_ns / time_ns));
    let mut seen = leg(path, 900);
    seen.leg.hello_retry =
        path.as_tls().map(|tls| is_postgres && tls.parameters.version == TlsVersion::Tls13);
    cell.legs = vec![seen];
}

fn part_of(text: &str) -> String {
    let from = text.find("Connect time by round trip").unwrap();
    text[from..].split("Negotiated on").next().unwrap().to_owned()
}

#[test]
fn connects_against_round_trips_at_100() {
    insta::assert_snapshot!(part_of(&terminal(&linked().report(), Style::Plain, 100)));
}

#[test]
fn connects_against_round_trips_at_80() {
    insta::assert_snapshot!(part_of(&terminal(&linked().report(), Style::Plain, 80)));
}

#[test]
fn a_comment_holds_connects_against_round_trips() {
    let text = markdown(&near_and_far().report());
    let from = text.find("**Connect time by round trip").unwrap();
    insta::assert_snapshot!(text[from..].split("<details>").next().unwrap());
}

#[test]
fn times_and_round_trips_for_a_spreadsheet() {
    insta::assert_snapshot!(csv(&linked().report(), Plot::Rtt).replace('\r', ""));
}

#[test]
fn a_page_shows_times_against_round_trips() {
    let page = html(&near_and_far().report());
    let from = page.find("<div id=\"round-trips\"").unwrap();
    let part = skeleton(page[from..].split_inclusive("</details>\n</div>").next().unwrap());
    insta::assert_snapshot!(text_of(&part));
}

#[test]
fn the_same_record_gives_the_same_bytes() {
    assert_eq!(html(&linked().report()), html(&linked().report()));
}

/// The interval of what is beyond is that of the time.
#[test]
fn what_is_beyond_adds_up() {
    let text = csv(&linked().report(), Plot::Rtt);
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let column = |name: &str| header.iter().position(|column| *column == name).unwrap();
    let mut count = 0;
    for row in lines {
        let number = |name: &str| row[column(name)].parse::<f64>().ok();
        let (Some(rtt), Some(trips)) = (number("rtt_ns"), number("round_trips")) else { continue };
        for end in ["", "_ci_low", "_ci_high"] {
            let time = number(&format!("latency_ns_mean{end}")).unwrap();
            let beyond = number(&format!("beyond_ns{end}")).unwrap();
            assert!((time - trips * rtt - beyond).abs() < 1.0, "{row:?}");
        }
        count += 1;
    }
    assert_eq!(count, 36, "nine paths over four links: PostgreSQL never resumes");
}

#[test]
fn without_a_long_link_nothing_is_held_against_it() {
    let run = over(
        "[[grid]]\npath = [\"plain\", \"tls1.3-p256\"]\nlink = [\"local\", \"45ms+loss=1%\"]\n\
                    workload = [\"connect\"]\nclients = [1]\n",
    );
    assert_eq!(csv(&run.report(), Plot::Rtt).lines().count(), 1);
    assert!(!html(&run.report()).contains("round-trips"));
}

#[test]
fn what_was_never_counted_is_no_guess() {
    let mut run = near_and_far();
    for event in &mut run.events {
        if let Event::ServerReady { version, .. } = &mut event.event {
            "99.1".clone_into(version);
        }
    }
    for cell in run.cells() {
        cell.legs.iter_mut().for_each(|count| count.leg.hello_retry = None);
    }
    let text = terminal(&run.report(), Style::Plain, 100);
    assert!(text.contains("Unknown number of round trips: tls1.3-p256."), "{text}");
    assert!(text.contains("plain takes 3 in all."), "{text}");
}

/// Half of the connects were asked for another group, half were not, so the number of round trips differs.
#[test]
fn connects_that_differ_have_no_one_number() {
    let mut run = near_and_far();
    for cell in run.cells() {
        if cell.cell.treatment.path.as_tls().is_some() {
            let mut again = cell.legs[0].clone();
            again.leg.hello_retry = Some(true);
            cell.legs.push(again);
        }
    }
    let text = terminal(&run.report(), Style::Plain, 100);
    assert!(text.contains("Unknown number of round trips: tls1.3-p256."), "{text}");
}

#[test]
fn a_round_trip_too_many_is_said() {
    let mut run = near_and_far();
    let far = Link::Emulated(LinkShape::of_rtt_us(45_000));
    for cell in run.cells() {
        if cell.cell.treatment.link == far && cell.cell.treatment.path == Path::Plain {
            let time = cell.metrics[&Metric::LatencyNsMean].value + 45e6;
            cell.metrics.insert(Metric::LatencyNsMean, estimate(time, 0.001));
        }
    }
    let text = terminal(&run.report(), Style::Plain, 100);
    assert!(text.contains("! plain over 45ms: about 1.00 round trips more than the known 3"), "{text}");
    assert!(!terminal(&near_and_far().report(), Style::Plain, 100).contains("! plain over"));
}

/// Means of few blocks have intervals that reach below 0, and logarithms do not.
#[test]
fn an_interval_that_reaches_below_0_bends_no_axis() {
    let mut run = near_and_far();
    for cell in run.cells() {
        if let Some(time) = cell.metrics.get_mut(&Metric::LatencyNsMean) {
            time.ci_low = Some(-time.value);
        }
    }
    let page = html(&run.report());
    assert!(!page.contains("NaN") && !page.contains("inf\""), "a coordinate is a number");
    let section = page.split_once("id=\"round-trips-1\"").unwrap().1.split("</svg>").next().unwrap();
    let ticks = section.matches("class=\"tick\"").count();
    assert!((6..12).contains(&ticks), "{ticks}");
    assert!(section.contains(">100</text>") && section.contains(">1</text>"), "{section}");
}

#[test]
fn long_names_stand_below() {
    let run = over(
        "[[grid]]\npath = [\"plain\", \"tls1.2-p256+resume+mtls+eager\", \"tls1.3-rsa2048+client=rustls\", \
         \"tls1.3-p256+mtls\"]\nlink = [\"0ms\", \"local\", \"0.2ms\", \"5ms\", \"6ms\"]\nworkload = [\"first-query\"]\n\
         clients = [1]\n",
    );
    let page = html(&run.report());
    let figure = page.split_once("<figure id=\"round-trips-1\"").unwrap().1.split("</svg>").next().unwrap();
    let below: Vec<&str> = figure.split("class=\"key\"").skip(1).collect();
    assert_eq!(below.len(), 4);
    assert!(below[1].contains("tls1.2-p256+resume+mtls+eager</text>"), "{}", below[1]);
}
