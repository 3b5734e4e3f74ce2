//! What TLS and SSH tunnels cost MySQL's connects in 2013, with keys of 4096 bits, over Ethernet.

use crate::{Grid, Link, LinkShape, Metric, Path, ServerKey, ServerLevel, Size, Spec, TlsVersion, Workload};

use crate::presets::preset::{Measures, Preset};
use crate::presets::published::{Published, ratio, tls_of_2013};
use crate::presets::study::{Claim, Conclusion, PublishedNumber, Study};
use crate::presets::table::{FigureRow, Table};

const CONNECTS: &str = include_str!("../../data/mysql-tunnel-2013-connect.csv");

pub(crate) const PRESET: Preset = Preset {
    name: "mysql-tunnel-2013",
    about: "what SSH tunnels cost MySQL's connects compared with TLS, with keys of 4096 bits",
    source: "MySQL Performance Blog, 18 November 2013: Percona Server 5.6.13, two machines on gigabit Ethernet",
    servers: &["mysql-8.0", "mariadb"],
    measures: Measures::EveryServer,
    deviations: &[
        "published: a Perl client on an i3-550, 100 connects in each of 10 runs; here: ciphertoll's own client over an emulated link \
         of 0.2 ms",
        "published: a TLS version that the post does not name, with DHE-RSA-AES256-SHA; here: TLS 1.2 with the same cipher",
        "the tunnel is open before clients connect in both. Not published: whether it had a session; here: it has one, because \
         without it (+N) every connect would wait 40 ms for an acknowledgement",
        "published: client and server on separate machines; here: they share the processors with both ends of the tunnel",
    ],
    explanation: &[
        "a connect through an open tunnel exchanges no keys: its cost is two more processes on the way of each byte, and the \
         tunnel's own key exchange happens once, at set-up",
    ],
    spec,
    study: Some(Study {
        sentences: [
            "Ernie Souhrada of Percona published it in the MySQL Performance Blog on 18 November 2013, as the second part of \
             mysql-tls-2013",
            "Percona Server 5.6.13 ran on an i7-2600K (32 GB), and the Perl client on an i3-550 (16 GB), both in one VLAN of gigabit \
             Ethernet",
            "He asked whether an SSH tunnel with the same primitives is cheaper than TLS in MySQL, with keys of 4096 bits, for a client \
             that only connects",
            "Of 1,001 connects per second in plaintext, 22 were left with TLS and 477 and 482 through the tunnel with AES-256 in CBC and \
             CTR mode",
            "He advised encryption outside of MySQL, such as a tunnel that is open already, where connections are not kept open",
        ],
        conclusions: CONCLUSIONS,
        numbers,
    }),
};

const CONCLUSIONS: &[Conclusion] = &[
    Conclusion {
        said: "connects through an open SSH tunnel are far cheaper than with TLS in MySQL",
        claim: Claim::Dearer { more: |one| one.path.as_tls().is_some(), less: is_tunnel },
    },
    Conclusion {
        said: "the tunnel costs about half of the connects (1.5 to 3 ×)",
        claim: Claim::Costs { which: is_tunnel, least: 1.5, most: 3.0 },
    },
    Conclusion {
        said: "AES in CTR mode is hardly faster than in CBC mode (within 10 %)",
        claim: Claim::Alike { which: is_tunnel, within: 1.1 },
    },
    Conclusion {
        said: "plaintext is the fastest",
        claim: Claim::Costs { which: |_| true, least: 1.0, most: f64::INFINITY },
    },
    Conclusion {
        said: "a VPN in hardware would be faster still",
        claim: Claim::NotTested("the author had none, and neither has this machine"),
    },
];

fn is_tunnel(one: &Published) -> bool {
    one.path.as_tunnel().is_some()
}

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

fn numbers() -> Vec<PublishedNumber> {
    let table = Table::parse(CONNECTS);
    let plain = table.rows().find(|row| row.text("path") == "plain");
    let of = |row: FigureRow<'_>| {
        let rate = |row: FigureRow<'_>| row.mean_and_sd("connects_per_s");
        let (ratio, path) = (ratio(rate(row)?, rate(plain?)?), as_then(row.text("path"))?);
        let place =
            Published { link: link(), ..Published::new(Workload::Connect, path, Metric::RatePerS, ratio) };
        let key = row.text("rsa_bits");
        let key = if key.is_empty() { String::new() } else { format!(", RSA-{key}") };
        let printed = row.printed("connects_per_s", "connects/s");
        let subject = format!("connects, {}{key}", row.text("path"));
        Some(PublishedNumber::new(subject, printed, place, path == Path::Plain))
    };
    table.rows().filter_map(of).collect()
}
