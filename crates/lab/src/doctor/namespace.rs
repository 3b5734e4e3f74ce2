//! A network of one's own, and what long links and tunnels need in it. Leaves the probe's namespaces for
//! good: nothing else may be done in this process afterwards.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, socket};
use nix::unistd::{getegid, geteuid};

use super::{Finding, Purpose};
use ciphertoll_link::netlink::{Netlink, VethPeer};

const NAMESPACE: &str = "namespace";
const LOOPBACK: &str = "loopback";
const VETH: &str = "veth";
const PACKET: &str = "AF_PACKET";
const TUN: &str = "/dev/net/tun";
const WIREGUARD: &str = "WireGuard";
/// What is tried within a namespace.
const WITHIN: [(&str, Purpose); 5] = [
    (LOOPBACK, Purpose::LongLinks),
    (VETH, Purpose::LongLinks),
    (PACKET, Purpose::LongLinks),
    (TUN, Purpose::Tunnels),
    (WIREGUARD, Purpose::Tunnels),
];

/// A step that failed.
struct Failure {
    step: &'static str,
    error: io::Error,
}

impl Failure {
    fn at(step: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self { step, error }
    }
}

/// Makes a namespace and tries in it, one after the other, what needs one.
pub(super) fn all() -> Vec<Finding> {
    let namespace = match enter() {
        Ok(seen) => Finding::ok(Purpose::LongLinks, NAMESPACE, seen),
        Err(Failure { step, error }) => {
            let seen = format!("no network namespace: {step}: {error}");
            let cure = Settings::read().cure();
            let cannot = |(name, purpose)| Finding::no(purpose, name, "not tried: no namespace", &cure);
            let first = Finding::no(Purpose::LongLinks, NAMESPACE, seen, &cure);
            return std::iter::once(first).chain(WITHIN.into_iter().map(cannot)).collect();
        }
    };
    let tried = WITHIN.into_iter().map(|(name, purpose)| match attempt(name) {
        Ok(seen) => Finding::ok(purpose, name, seen),
        Err(failure) => refused(name, purpose, &failure),
    });
    std::iter::once(namespace).chain(tried).collect()
}

/// Enters a network namespace: root's own way, else by a user namespace; how, in words.
fn enter() -> Result<&'static str, Failure> {
    let (user, group) = (geteuid(), getegid());
    if user.is_root() && unshare(CloneFlags::CLONE_NEWNET).is_ok() {
        return Ok("made as root");
    }
    let both = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET;
    unshare(both).map_err(io::Error::from).map_err(Failure::at("unshare"))?;
    // Each to itself: a server may not see itself as root.
    fs::write("/proc/self/setgroups", "deny").map_err(Failure::at("write setgroups"))?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1")).map_err(Failure::at("write uid_map"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1")).map_err(Failure::at("write gid_map"))?;
    Ok("made without root, within a user namespace")
}

fn attempt(name: &str) -> Result<&'static str, Failure> {
    let netlink = || Netlink::open().map_err(Failure::at("open netlink"));
    match name {
        LOOPBACK => {
            netlink()?.loopback_up().map_err(Failure::at("take it up"))?;
            knock().map_err(Failure::at("connect over it"))?;
            Ok("up; a connect went over it")
        }
        VETH => {
            let peer = VethPeer { name: "ciphertoll1", namespace: None, hardware_address: None };
            netlink()?.add_veth("ciphertoll0", peer).map_err(Failure::at("make a pair"))?;
            Ok("a pair was made")
        }
        PACKET => {
            see_packets().map_err(Failure::at("open and read"))?;
            Ok("sees the packets of a connect")
        }
        TUN => {
            let opened = OpenOptions::new().read(true).write(true).open(TUN);
            opened.map_err(Failure::at("open"))?;
            Ok("opens for reading and writing")
        }
        _ => {
            netlink()?.add_plain("ciphertoll2", "wireguard").map_err(Failure::at("make an interface"))?;
            Ok("the kernel has it")
        }
    }
}

/// A connect over loopback, there and back.
fn knock() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    TcpStream::connect(listener.local_addr()?).map(drop)
}

/// A raw socket that a connect's packets come to.
fn see_packets() -> io::Result<()> {
    const LONGEST_PACKET: usize = 2048;
    let every = SockProtocol::EthAll;
    let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, every)?;
    knock()?;
    let mut packet = [0; LONGEST_PACKET];
    // Loopback delivers before a connect returns.
    recv(socket.as_raw_fd(), &mut packet, MsgFlags::MSG_DONTWAIT)?;
    Ok(())
}

fn refused(name: &str, purpose: Purpose, Failure { step, error }: &Failure) -> Finding {
    let unsupported = error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32);
    let no_family = error.raw_os_error() == Some(Errno::EAFNOSUPPORT as i32);
    let cure = match (name, error.kind()) {
        (TUN, ErrorKind::NotFound) => "modprobe tun; of a container: --device /dev/net/tun".to_owned(),
        (TUN, ErrorKind::PermissionDenied) => format!("chmod 0666 {TUN}"),
        (TUN, _) => "modprobe tun; of a container: allow the device c 10:200 rwm".to_owned(),
        (WIREGUARD, _) if unsupported => {
            "modprobe wireguard (Linux 5.6 or later), or wireguard-go".to_owned()
        }
        (VETH, _) if unsupported => "modprobe veth".to_owned(),
        (PACKET, _) if no_family => "modprobe af_packet".to_owned(),
        _ => Settings::read().cure(),
    };
    let seen = match (name, unsupported) {
        (VETH | WIREGUARD, true) => "the kernel has none".to_owned(),
        _ => format!("{step}: {error}"),
    };
    Finding::no(purpose, name, seen, cure)
}

/// What distributions forbid user namespaces by.
struct Settings {
    /// Debian's.
    unprivileged_clone: Option<String>,
    /// The kernel's own.
    most: Option<String>,
    /// Ubuntu's.
    apparmor: Option<String>,
}

impl Settings {
    fn read() -> Self {
        let read = |path| fs::read_to_string(path).ok();
        Self {
            unprivileged_clone: read("/proc/sys/kernel/unprivileged_userns_clone"),
            most: read("/proc/sys/user/max_user_namespaces"),
            apparmor: read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
        }
    }

    fn cure(&self) -> String {
        let is = |setting: &Option<String>, value| setting.as_deref().map(str::trim) == Some(value);
        let command = if is(&self.unprivileged_clone, "0") {
            "sysctl -w kernel.unprivileged_userns_clone=1"
        } else if is(&self.most, "0") {
            "sysctl -w user.max_user_namespaces=10000"
        } else if is(&self.apparmor, "1") {
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        } else {
            "of a container: --security-opt seccomp=unconfined, or --cap-add SYS_ADMIN --cap-add NET_ADMIN"
        };
        command.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn the_setting_that_forbids_namespaces_is_the_cure() {
        let cure = |clone: Option<&str>, most: &str, apparmor: Option<&str>| {
            let own = |text: &str| text.to_owned();
            let settings = Settings {
                unprivileged_clone: clone.map(own),
                most: Some(own(most)),
                apparmor: apparmor.map(own),
            };
            settings.cure()
        };
        assert!(cure(Some("0\n"), "1\n", None).ends_with("userns_clone=1"));
        assert!(cure(Some("1\n"), "0\n", None).contains("max_user_namespaces"));
        assert!(cure(None, "7823\n", Some("1\n")).contains("apparmor"));
        assert!(cure(None, "7823\n", Some("0\n")).contains("container"));
    }

    #[test]
    fn what_the_kernel_lacks_is_told_from_what_it_forbids() {
        let cure = |name, errno: Errno| {
            let failure = Failure { step: "make", error: errno.into() };
            match refused(name, Purpose::Tunnels, &failure).verdict {
                Verdict::No { cure } => cure,
                other => panic!("a failure is a no: {other:?}"),
            }
        };
        assert!(cure(WIREGUARD, Errno::EOPNOTSUPP).contains("modprobe wireguard"));
        assert_eq!(cure(VETH, Errno::EOPNOTSUPP), "modprobe veth");
        assert_eq!(cure(PACKET, Errno::EAFNOSUPPORT), "modprobe af_packet");
        assert!(cure(TUN, Errno::ENOENT).contains("--device"));
        assert!(cure(TUN, Errno::EACCES).starts_with("chmod"));
        assert!(!cure(VETH, Errno::EPERM).contains("modprobe"));
    }
}
