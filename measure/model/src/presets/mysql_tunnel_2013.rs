//! What TLS and SSH tunnels cost MySQL's connects in 2013, with keys of 4096 bits, over Ethernet.

use crate::{Grid, Link, LinkShape, Metric, Path, ServerKey, ServerLevel, Size, Spec, TlsVersion, Workload};

use crate::presets::preset::{Measures, Preset, Published, ratio, tls_of_2013};
use crate::presets::table::{FigureRow, Table};

const CONNECTS: &str = include_str!("../../data/mysql-tunnel-2013-connect.csv");

pub(crate) const PRESET: Preset = Preset {
    name: "mysql-tunnel-2013",
    about: "what SSH tunnels cost MySQL's connects compared with TLS, with keys of 4096 bits",
    source: "MySQL Performance Blog, 18 November 2013: Percona Server 5.6.13, two machines on gigabit Ethernet",
    servers: &["mysql-8.0", "mariadb"],
    measures: Measures::EveryServer,
    deviations: &[
        "published: a Perl client on another machine; here: ciphertoll's own client over an emulated link of 0.2 ms",
        "published: TLS 1.0 with DHE-RSA-AES256-SHA; here: TLS 1.2 with the same cipher",
        "the tunnel is open before clients connect in both. Not published: whether it had a session; here: it has one, because \
         without it (+N) every connect would wait 40 ms for an acknowledgement",
        "published: client and server on separate machines; here: they share the processors with both ends of the tunnel",
    ],
    explanation: &[
        "a connect through an open tunnel exchanges no keys: its cost is two more processes on the way of each byte, and the \
         tunnel's own key exchange happens once, at set-up",
    ],
    spec,
    published,
};

/// The path of a name in the table.
fn as_then(path: &str) -> Option<Path> {
    match path {
        "tls" => tls_of_2013("4096"),
        other => other.parse().ok(),
    }
}

/// The approximate delay of Ethernet switches and cards.
fn link() -> Link {
    const RTT_US: u32 = 200;
    Link::Emulated(LinkShape::of_rtt_us(RTT_US))
}

fn spec(servers: &[ServerLevel], size: Size) -> Spec {
    let then = ["plain", "tls", "ssh-aes256-cbc", "ssh-aes256-ctr"].into_iter().filter_map(as_then);
    let modern = [Path::tls(TlsVersion::Tls13, ServerKey::P256)];
    let tunnels = ["ssh-aes256-gcm", "ssh-chacha20-poly1305", "wireguard", "openvpn-aes256-gcm", "stunnel"];
    let modern = modern.into_iter().chain(tunnels.into_iter().filter_map(as_then));
    let grid = Grid {
        server: servers.to_vec(),
        path: then.chain(modern.filter(|_| size != Size::Smoke)).collect(),
        workload: vec![Workload::Connect],
        link: vec![link()],
        ..Grid::default()
    };
    Spec { size, grids: vec![grid], ..Spec::quick(&[]) }
}

fn published() -> Vec<Published> {
    let table = Table::parse(CONNECTS);
    let plain = table.rows().find(|row| row.text("path") == "plain");
    let of = |row: FigureRow<'_>| {
        let rate = |row: FigureRow<'_>| row.mean_and_sd("connects_per_s");
        let (ratio, path) = (ratio(rate(row)?, rate(plain?)?), as_then(row.text("path"))?);
        Some(Published { link: link(), ..Published::new(Workload::Connect, path, Metric::RatePerS, ratio) })
    };
    table.rows().filter(|row| row.text("path") != "plain").filter_map(of).collect()
}
