//! What TLS cost MySQL's connects over two long links in 2013.

use crate::duration::Span;
use crate::{Grid, Link, Metric, Path, ServerKey, ServerLevel, Size, Spec, TlsVersion, Workload};

use crate::presets::preset::{Measures, Preset, Published, tls_of_2013};
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
        "published: a Perl client over the internet; here: ciphertoll's own client over emulated links with the same round \
         trips, without loss and jitter",
        "published: three builds of 5.6.13 with yaSSL or OpenSSL; here: newer servers with TLS 1.2 and DHE-RSA-AES256-SHA",
        "`connect-query` corresponds to the published connect, whose client sent a query after the login",
    ],
    explanation: &[
        "a plain connect and a query make 4 round trips, with TLS 1.2 they make 6: a third of the connects is lost to the link \
         alone, on any machine. That explains the 33 to 36 % of the short keys",
        "the larger losses of long keys are the server's signature, which matters more on the shorter link",
        "TLS 1.3 and resumed TLS 1.2 make 5 round trips instead of 6: a fifth is lost",
    ],
    spec,
    published,
};

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

fn published() -> Vec<Published> {
    const PERCENT: f64 = 100.0;
    let of = |row: FigureRow<'_>| {
        let lost = row.number("connect_throughput_loss_percent")? / PERCENT;
        let (path, ratio) = (tls_of_2013(row.text("rsa_bits"))?, (1.0 / (1.0 - lost), None));
        Some(Published {
            link: link(row.text("rtt_avg_ms"))?,
            of: Some(row.text("server")),
            ..Published::new(Workload::CONNECT_QUERY, path, Metric::LatencyNsMean, ratio)
        })
    };
    Table::parse(LOSSES).rows().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_its_build_and_its_link() {
        let first = &published()[0];
        assert_eq!((first.of, first.link.to_string().as_str()), (Some("mysql-5.6.13"), "170.126ms"));
    }
}
