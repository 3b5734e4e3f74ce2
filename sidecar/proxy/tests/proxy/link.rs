//! Links that a test can cut: to a process in a network namespace.

use std::fs;
use std::process::{Command, Stdio};

use crate::cluster::free_port;

/// A pair of virtual interfaces: one of this machine, one of the proxy. Removed when dropped.
pub(crate) struct Link {
    number: usize,
    name: String,
    network: String,
    /// The hardware address.
    hardware: String,
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
        let hardware = fs::read_to_string(format!("/sys/class/net/{name}/address")).ok()?.trim().to_owned();
        let link = Self { number, name, network, hardware };
        let made = ip(&["addr", "add", &format!("{}/30", link.address()), "dev", &link.name]);
        (made && ip(&["link", "set", &link.name, "up"])).then_some(link)
    }

    fn peer(&self) -> String {
        format!("{}p", self.name)
    }

    pub(crate) fn address(&self) -> String {
        format!("{}.{}", self.network, 4 * self.number + 1)
    }

    fn far_address(&self) -> String {
        format!("{}.{}", self.network, 4 * self.number + 2)
    }

    /// Moves the peer into the namespace of this process.
    pub(crate) fn connect(&self, process: u32) {
        let process = process.to_string();
        let address = format!("{}/30", self.far_address());
        assert!(ip(&["link", "set", &self.peer(), "netns", &process]));
        let (own, peer) = (self.address(), self.peer());
        for arguments in [
            &["addr", "add", &address, "dev", &peer][..],
            &["link", "set", &peer, "up"],
            // Otherwise the kernel would keep packets until the other side answers again, although their sockets are closed.
            &["neigh", "replace", &own, "lladdr", &self.hardware, "dev", &peer, "nud", "permanent"],
        ] {
            let inside = [&["-t", &process, "-n", "ip"], arguments].concat();
            assert!(succeeds("nsenter", &inside), "{arguments:?}");
        }
    }

    /// From now on all packets are lost, as on a network far away: they leave either side, and the other one does not take
    /// them, because they are for another hardware address.
    pub(crate) fn cut(&self) {
        let of_nobody = "02:00:00:00:00:01";
        assert!(ip(&["link", "set", &self.name, "address", of_nobody]));
        let (name, far) = (&self.name, self.far_address());
        assert!(ip(&["neigh", "replace", &far, "lladdr", of_nobody, "dev", name, "nud", "permanent"]));
    }

    pub(crate) fn restore(&self) {
        assert!(ip(&["link", "set", &self.name, "address", &self.hardware]));
        let far = self.far_address();
        // The change of the address may have removed it.
        let _ = ip(&["neigh", "del", &far, "dev", &self.name]);
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
