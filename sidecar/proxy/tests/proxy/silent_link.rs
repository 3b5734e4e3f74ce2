//! A link to the primary that goes silent: the proxy is in a separate network namespace.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use ciphertoll_testing::missing;

use crate::Case;
use crate::cluster::Cluster;
use crate::fixture::{Fixture, PORT};
use crate::ledger::Ledger;
use crate::link::Link;

pub(crate) const CASES: [Case; 1] = [("a server whose link goes silent is left within health-time", silent)];

fn silent(fixture: &mut Fixture) {
    let Some(links) = Link::pair() else {
        return missing("virtual interfaces and network namespaces need root");
    };
    let addresses: Vec<_> = links.iter().map(|link| Some(link.address())).collect();
    let cluster = Cluster::start_at(fixture, &addresses);
    let [old, new] = &cluster.nodes[..] else { panic!("two servers") };
    old.execute("CREATE TABLE numbered (writer int, number int)");
    let (directory, listen): (PathBuf, String) = fixture.new_directory();
    let mut command = Command::new("unshare");
    let url = cluster.url("&target_session_attrs=read-write");
    command
        .arg("-n")
        .arg(env!("CARGO_BIN_EXE_ciphertoll-proxy"))
        .args([
            "--listen",
            &listen,
            "--server",
            &url,
            "--log",
            "debug",
            "--health-time",
            "1s",
            "--pool-size",
            "8",
        ])
        .args(fixture.mode_arguments());
    let mut proxy = fixture.proxy_by(&mut command, directory, PORT);
    for link in &links {
        link.connect(proxy.process.id());
    }
    let ledger = Ledger::written_during(
        || proxy.try_client(),
        |ledger| {
            links[0].cut();
            let began = Instant::now();
            new.promote();
            ledger.await_first("the link was cut", began);
            ledger.await_more("all writers are served");
            let rows = old.value("SELECT count(*) FROM numbered");
            links[0].restore();
            for _ in 0..5 {
                ledger.await_more("the new one is written to");
            }
            assert_eq!(old.value("SELECT count(*) FROM numbered"), rows);
        },
    );
    ledger.check(new.rows("SELECT writer || ' ' || number FROM numbered").expect("rows"));
    assert_eq!(proxy.process.count("event=failover"), 1);
}
