//! A link to the primary that goes silent: the proxy is in a separate network namespace.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use ciphertoll_testing::missing;

use crate::Case;
use crate::cluster::{Cluster, free_port};
use crate::fixture::{Fixture, PORT};
use crate::ledger::Ledger;

pub(crate) const CASES: [Case; 1] = [("a server whose link goes silent is left within health-time", silent)];

/// A pair of virtual interfaces: one of this machine, one of the proxy. Removed when dropped.
struct Link {
    number: usize,
    name: String,
    network: String,
}

impl Link {
    /// `None` if this user or this kernel cannot make one.
    fn make(number: usize) -> Option<Self> {
        let port = usize::from(free_port());
        let name = format!("toll{port}");
        // A part of the block for tests between networks (RFC 2544).
        let network = format!("198.{}.{}", 18 + port % 2, port / 2 % 250);
        let link = Self { number, name, network };
        let made = ip(&["link", "add", &link.name, "type", "veth", "peer", "name", &link.peer()]);
        let made = made && ip(&["addr", "add", &format!("{}/30", link.address()), "dev", &link.name]);
        (made && ip(&["link", "set", &link.name, "up"])).then_some(link)
    }

    fn peer(&self) -> String {
        format!("{}p", self.name)
    }

    fn address(&self) -> String {
        format!("{}.{}", self.network, 4 * self.number + 1)
    }

    /// Moves the peer into the namespace of this process.
    fn connect(&self, process: u32) {
        let process = process.to_string();
        let address = format!("{}.{}/30", self.network, 4 * self.number + 2);
        assert!(ip(&["link", "set", &self.peer(), "netns", &process]));
        for arguments in
            [&["addr", "add", &address, "dev", &self.peer()][..], &["link", "set", &self.peer(), "up"]]
        {
            let inside = [&["-t", &process, "-n", "ip"], arguments].concat();
            assert!(succeeds("nsenter", &inside), "{arguments:?}");
        }
    }

    fn set(&self, state: &str) {
        assert!(ip(&["link", "set", &self.name, state]));
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The end of the namespace may have removed it.
        let _ = ip(&["link", "del", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> bool {
    succeeds("ip", arguments)
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn silent(fixture: &mut Fixture) {
    let links: Vec<Link> = (0..2).filter_map(Link::make).collect();
    if links.len() < 2 || !succeeds("unshare", &["-n", "true"]) {
        return missing("virtual interfaces and network namespaces need root");
    }
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
            "2s",
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
            links[0].set("down");
            let began = Instant::now();
            new.promote();
            ledger.await_first("the link was cut", began);
            ledger.await_more("all writers are served");
            links[0].set("up");
            let rows = old.value("SELECT count(*) FROM numbered");
            for _ in 0..5 {
                ledger.await_more("the new one is written to");
            }
            assert_eq!(old.value("SELECT count(*) FROM numbered"), rows);
        },
    );
    ledger.check(new.rows("SELECT writer || ' ' || number FROM numbered").expect("rows"));
    assert_eq!(proxy.process.count("event=failover"), 1);
}
