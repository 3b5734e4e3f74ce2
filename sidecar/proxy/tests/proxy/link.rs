//! Links that a test can cut: to a process in a network namespace.

use std::process::{Command, Stdio};

use crate::cluster::free_port;

/// A pair of virtual interfaces: one of this machine, one of the proxy. Removed when dropped.
pub(crate) struct Link {
    number: usize,
    name: String,
    network: String,
}

impl Link {
    /// Two links; `None` if this user or this kernel cannot make them.
    pub(crate) fn pair() -> Option<[Self; 2]> {
        let links: Vec<Self> = (0..2).filter_map(Self::make).collect();
        if !succeeds("unshare", &["-n", "true"]) {
            return None;
        }
        links.try_into().ok()
    }

    fn make(number: usize) -> Option<Self> {
        let port = usize::from(free_port());
        let name = format!("toll{port}");
        // A part of the block for tests between networks (RFC 2544).
        let network = format!("198.{}.{}", 18 + port % 2, port / 2 % 250);
        if !ip(&["link", "add", &name, "type", "veth", "peer", "name", &format!("{name}p")]) {
            return None;
        }
        let link = Self { number, name, network };
        let made = ip(&["addr", "add", &format!("{}/30", link.address()), "dev", &link.name]);
        (made && ip(&["link", "set", &link.name, "up"])).then_some(link)
    }

    fn peer(&self) -> String {
        format!("{}p", self.name)
    }

    pub(crate) fn address(&self) -> String {
        format!("{}.{}", self.network, 4 * self.number + 1)
    }

    /// Moves the peer into the namespace of this process.
    pub(crate) fn connect(&self, process: u32) {
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

    /// `up` or `down`.
    pub(crate) fn set(&self, state: &str) {
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
