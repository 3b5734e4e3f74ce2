//! What TLS cost MySQL's connects over two long links in 2013.

use crate::duration::Span;
use crate::{Grid, Link, Metric, Path, ServerKey, ServerLevel, Size, Spec, TlsVersion, Workload};

use crate::presets::preset::{Measures, Preset};
use crate::presets::published::{Published, tls_of_2013};
use crate::presets::study::{Claim, Conclusion, PublishedNumber, Study};
use crate::presets::table::{FigureRow, Table};

const LOSSES: &str = include_str!("../../data/mysql-wan-2013-connect-loss.csv");

pub(crate) const PRESET: Preset = Preset {
    name: "mysql-wan-2013",
    about: "what TLS costs MySQL's connects over 44.6 and 170.1 ms, by RSA key length and server build",
    source: "MySQL Performance Blog, 18 November 2013: MySQL and Percona Server 5.6.13, within the US and from there to Europe",
    servers: &["mysql-8.0", "mariadb"],
    measures: Measures::EveryServer,
    deviations: &[
        "published: the share of connects per second that is lost; here: the ratio of latencies, so that a loss of 34.39 % is \
         1.52 × the latency",
        "published: a Perl client over the internet, whose round trips varied (the post prints the spread next to the means); here: \
         ciphertoll's own client over emulated links with the mean round trips, without loss and jitter",
        "published: client and server far apart, on EC2 instances in Oregon and Ireland (m1.xlarge, 4 vCPU) or a machine of the \
         author; here: both on this machine, and they share its processors",
        "published: three builds of 5.6.13: MySQL's, Percona Server's, and a statically linked Percona Server; here: newer servers \
         with OpenSSL, TLS 1.2 and DHE-RSA-AES256-SHA",
        "`connect-query` corresponds to the published connect, whose client sent a query after the login",
    ],
    explanation: &[
        "a plain connect and a query make 4 round trips, with TLS 1.2 they make 6: a third of the connects is lost to the link \
         alone, on any machine. That explains the 33 to 36 % of the short keys",
        "the larger losses of long keys are the server's signature, which matters more on the shorter link",
        "the author doubted the stock build's losses with 4096 bits, 51.85 and 71.66 %: the other builds lost 37 to 43 %",
        "TLS 1.3 and resumed TLS 1.2 make 5 round trips instead of 6: a fifth is lost",
    ],
    spec,
    study: Some(Study {
        sentences: [
            "Ernie Souhrada of Percona published it in the MySQL Performance Blog on 18 November 2013, in the same post as \
             mysql-tunnel-2013",
            "Three builds of 5.6.13 (MySQL's, Percona Server's, Percona Server linked statically) were reached over the internet, within \
             the US (44.6 ms) and from the US to Europe (170.1 ms)",
            "Readers of the first part had asked whether TLS costs as much when the network is slow, and whether the build matters",
            "TLS lost 33 to 38 % of the connects with keys of 1024 bits and, except with the stock build, also with longer keys over the \
             longer link; the stock build lost 52 and 72 % with 4096 bits",
            "He advised to keep connections open or to encrypt outside of MySQL, and not to take the stock build's numbers for certain",
        ],
        conclusions: CONCLUSIONS,
        numbers,
    }),
};

const CONCLUSIONS: &[Conclusion] = &[
    Conclusion {
        said: "over a long link TLS costs a third of the connects with short keys, not 97 % (1.4 to 1.7 × the time)",
        claim: Claim::Costs { which: |one| has_bits(one, "1024"), least: 1.4, most: 1.7 },
    },
    Conclusion {
        said: "over the longest link the key length hardly matters, except with the stock build (within 25 %)",
        claim: Claim::Alike { which: |one| is_us_eu(one) && one.of != Some(STOCK), within: 1.25 },
    },
    Conclusion {
        said: "keys of 4096 bits cost more over the shorter link",
        claim: Claim::Dearer {
            more: |one| has_bits(one, "4096") && !is_us_eu(one) && one.of != Some(STOCK),
            less: |one| has_bits(one, "4096") && is_us_eu(one) && one.of != Some(STOCK),
        },
    },
    Conclusion {
        said: "with 4096 bits the stock build of MySQL loses more than Percona Server, which the author doubted",
        claim: Claim::NotTested("here each server has one build, and all have OpenSSL"),
    },
];

/// The build whose figures the author doubted.
const STOCK: &str = "mysql-5.6.13";

fn has_bits(one: &Published, bits: &str) -> bool {
    tls_of_2013(bits).is_some_and(|path| path == one.path)
}

fn is_us_eu(one: &Published) -> bool {
    link("170.126").is_some_and(|link| link == one.link)
}

const RSA_BITS: [&str; 3] = ["1024", "2048", "4096"];

fn link(rtt_avg_ms: &str) -> Option<Link> {
    format!("{rtt_avg_ms}ms").parse().ok()
}

fn spec(servers: &[ServerLevel], size: Size) -> Spec {
    // An operation takes up to a second: trials are long enough for a mean.
    let (rsa_bits, links, trial_s): (&[&str], &[&str], u64) = match size {
        Size::Smoke => (&RSA_BITS[..1], &["44.648"], 1),
        Size::Quick | Size::Small => (&RSA_BITS, &["44.648", "170.126"], 4),
        Size::Standard => (&RSA_BITS, &["44.648", "170.126"], 8),
        Size::Full => (&RSA_BITS, &["44.648", "170.126"], 20),
    };
    let modern =
        [Path::tls(TlsVersion::Tls12, ServerKey::P256), Path::tls(TlsVersion::Tls13, ServerKey::P256)];
    let then = rsa_bits.iter().filter_map(|bits| tls_of_2013(bits));
    let grid = Grid {
        server: servers.to_vec(),
        path: [Path::Plain].into_iter().chain(then).chain(modern).collect(),
        workload: vec![Workload::CONNECT_QUERY],
        link: links.iter().filter_map(|rtt| link(rtt)).collect(),
        ..Grid::default()
    };
    let trial_time = Some(Span::from_millis(trial_s * 1_000));
    Spec { size, trial_time, grids: vec![grid], ..Spec::quick(&[]) }
}

fn numbers() -> Vec<PublishedNumber> {
    const PERCENT: f64 = 100.0;
    const COLUMN: &str = "connect_throughput_loss_percent";
    let of = |row: FigureRow<'_>| {
        let lost = row.number(COLUMN)? / PERCENT;
        let (path, ratio) = (tls_of_2013(row.text("rsa_bits"))?, (1.0 / (1.0 - lost), None));
        let place = Published {
            link: link(row.text("rtt_avg_ms"))?,
            of: Some(row.text("server")),
            ..Published::new(Workload::CONNECT_QUERY, path, Metric::LatencyNsMean, ratio)
        };
        let [server, route, rtt, bits] =
            ["server", "link", "rtt_avg_ms", "rsa_bits"].map(|column| row.text(column));
        let subject = format!("{server}, {route} ({rtt} ms), RSA-{bits}");
        let printed = format!("{} % of connects lost", row.text(COLUMN));
        Some(PublishedNumber::new(subject, printed, place, false))
    };
    Table::parse(LOSSES).rows().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_its_build_and_its_link() {
        let first = &PRESET.published()[0];
        assert_eq!((first.of, first.link.to_string().as_str()), (Some("mysql-5.6.13"), "170.126ms"));
    }
}
