//! Where reports say the CPU time goes.

use ciphertoll_model::{CpuPart, Event, Profile, ProfiledRole, Profiling};
use ciphertoll_report::{Document, Style, html, markdown, summary, terminal};

use crate::fixture::{Run, keys};

/// Connects of a run that was profiled.
fn profiled(client: &[(CpuPart, u64)], server: &[(CpuPart, u64)]) -> Run {
    let mut run = keys();
    run.plan.profile = Profiling::On;
    let roles = [(ProfiledRole::Client, client), (ProfiledRole::Server, server)];
    let roles = roles.into_iter().map(|(role, parts)| (role, parts.iter().copied().collect()));
    let profile = Profile { samples_per_s: 499, roles: roles.collect() };
    for cell in run.plan.cells.iter().map(ciphertoll_model::Cell::id).collect::<Vec<_>>() {
        run.push(Event::Profiled { cell, profile: profile.clone() });
    }
    run
}

fn contexts() -> Run {
    let client = [(CpuPart::TlsContext, 420), (CpuPart::Certificates, 100), (CpuPart::Network, 80)];
    profiled(&client, &[(CpuPart::Signature, 250), (CpuPart::Network, 100), (CpuPart::Other, 50)])
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_first_screen_names_the_largest_part_and_what_removes_it() {
    let run = contexts();
    let text = words(&summary(&run.report(), Style::Plain, 80));
    let sentence = "CPU time of a TLS 1.3 connect on MariaDB 10.11.14: 42 % TLS contexts and CA files, 25 % handshake \
                    signature, 18 % kernel network. One TLS context for all connections removes the TLS contexts \
                    and CA files; so does the sidecar.";
    assert!(text.contains(sentence), "{text}");
    assert!(summary(&run.report(), Style::Plain, 80).lines().count() <= 25);
    let page = html(&run.report());
    let answer = page.split_once("id=\"answer\"").unwrap().1.split_once("</section>").unwrap().0;
    assert!(
        answer.contains("CPU time of a TLS\u{a0}1.3 connect")
            || answer.contains("CPU time of a TLS 1.3 connect")
    );
    assert!(page.contains("-profile\""), "the page has a chart");
}

#[test]
fn all_formats_have_the_shares_by_role() {
    let run = contexts();
    for text in [terminal(&run.report(), Style::Plain, 110), markdown(&run.report())] {
        assert!(text.contains("CPU time by part"), "{text}");
        assert!(text.contains("tls1.3-rsa4096, client") && text.contains("tls1.3-rsa4096, server"), "{text}");
        let method = "1 000 samples or more each, so that a share of 20 % is uncertain by 2.5 points";
        assert!(words(&text).contains(method), "{text}");
    }
    for cell in Document::from(&run.report()).cells {
        let profile = cell.cpu_profile.expect("a profile");
        assert!((profile.shares.values().sum::<f64>() - 1.0).abs() < 1e-9, "{profile:?}");
        assert_eq!(profile.samples[&ProfiledRole::Server][&CpuPart::Signature], 250);
    }
}

/// Nothing removes the kernel's network, and RSA can be replaced.
#[test]
fn a_cure_is_named_only_where_there_is_one() {
    let network = [(CpuPart::Network, 900)];
    let text = terminal(&profiled(&network, &network).report(), Style::Plain, 110);
    assert!(!text.contains("removes the kernel"), "{text}");
    let signature = [(CpuPart::Signature, 900)];
    let text = words(&terminal(&profiled(&signature, &signature).report(), Style::Plain, 110));
    assert!(text.contains("tls1.3-rsa4096: 100 % handshake signature. A P-256 certificate makes"), "{text}");
    assert!(text.contains("tls1.3-p256: 100 % handshake signature. The sidecar or another"), "{text}");
}

#[test]
fn without_samples_the_primitives_give_a_part() {
    let mut run = keys();
    run.plan.profile = Profiling::On;
    let text = words(&summary(&run.report(), Style::Plain, 100));
    assert!(text.contains("(computed; the rest is not known)"), "{text}");
    let shares = |run: &Run| -> Vec<f64> {
        let cells = Document::from(&run.report()).cells.into_iter();
        cells.filter_map(|cell| Some(cell.cpu_profile?.shares.values().sum())).collect()
    };
    assert!(shares(&run).iter().all(|share| (0.01..0.999).contains(share)), "{:?}", shares(&run));
    run.plan.profile = Profiling::Off;
    assert!(shares(&run).is_empty(), "nobody asked for it");
}

#[test]
fn a_few_samples_say_nothing() {
    let run = profiled(&[(CpuPart::Network, 20)], &[(CpuPart::Other, 20)]);
    assert!(!terminal(&run.report(), Style::Plain, 100).contains("CPU time by part"));
}
