//! Checks for network namespaces, and for what long links and tunnels need in them. The probe leaves its own namespaces and
//! cannot return, so it must do nothing else afterwards.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, socket};
use nix::unistd::{getegid, geteuid};

use super::finding::{CheckPurpose, Finding};
use ciphertoll_link::netlink::{Netlink, VethPeer};

const NAMESPACE: &str = "namespace";
const LOOPBACK: &str = "loopback";
const VETH: &str = "veth";
const PACKET: &str = "AF_PACKET";
const TUN: &str = "/dev/net/tun";
const WIREGUARD: &str = "WireGuard";
const WITHIN: [(&str, CheckPurpose); 5] = [
    (LOOPBACK, CheckPurpose::LongLinks),
    (VETH, CheckPurpose::LongLinks),
    (PACKET, CheckPurpose::LongLinks),
    (TUN, CheckPurpose::Tunnels),
    (WIREGUARD, CheckPurpose::Tunnels),
];

struct StepFailure {
    step: &'static str,
    error: io::Error,
}

impl StepFailure {
    fn at(step: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self { step, error }
    }
}

pub(super) fn all() -> Vec<Finding> {
    let namespace = match enter() {
        Ok(seen) => Finding::ok(CheckPurpose::LongLinks, NAMESPACE, seen),
        Err(StepFailure { step, error }) => {
            let seen = format!("cannot create a network namespace: {step}: {error}");
            let cure = cure(read_setting);
            let cannot = |(name, purpose)| Finding::no(purpose, name, "not checked: no namespace", &cure);
            let first = Finding::no(CheckPurpose::LongLinks, NAMESPACE, seen, &cure);
            return std::iter::once(first).chain(WITHIN.into_iter().map(cannot)).collect();
        }
    };
    let tried = WITHIN.into_iter().map(|(name, purpose)| match attempt(name) {
        Ok(seen) => Finding::ok(purpose, name, seen),
        Err(failure) => refused(name, purpose, &failure),
    });
    std::iter::once(namespace).chain(tried).collect()
}

/// Enters a network namespace, as root or by a user namespace; returns a description.
fn enter() -> Result<&'static str, StepFailure> {
    let (user, group) = (geteuid(), getegid());
    if user.is_root() && unshare(CloneFlags::CLONE_NEWNET).is_ok() {
        return Ok("created as root");
    }
    let both = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET;
    unshare(both).map_err(io::Error::from).map_err(StepFailure::at("unshare"))?;
    // Maps ids to themselves: a server must not run as root.
    fs::write("/proc/self/setgroups", "deny").map_err(StepFailure::at("write setgroups"))?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1")).map_err(StepFailure::at("write uid_map"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
        .map_err(StepFailure::at("write gid_map"))?;
    Ok("created without root, in a user namespace")
}

fn attempt(name: &str) -> Result<&'static str, StepFailure> {
    let netlink = || Netlink::open().map_err(StepFailure::at("open netlink"));
    match name {
        LOOPBACK => {
            netlink()?.loopback_up().map_err(StepFailure::at("set it up"))?;
            connect_over_loopback().map_err(StepFailure::at("connect over it"))?;
            Ok("up; a connection over it succeeds")
        }
        VETH => {
            let peer = VethPeer { name: "ciphertoll1", namespace: None, hardware_address: None };
            netlink()?.add_veth("ciphertoll0", peer).map_err(StepFailure::at("create a pair"))?;
            Ok("a pair can be created")
        }
        PACKET => {
            receive_packets().map_err(StepFailure::at("open and read"))?;
            Ok("receives the packets of a connection")
        }
        TUN => {
            let opened = OpenOptions::new().read(true).write(true).open(TUN);
            opened.map_err(StepFailure::at("open"))?;
            Ok("opens for reading and writing")
        }
        _ => {
            netlink()?
                .add_plain("ciphertoll2", "wireguard")
                .map_err(StepFailure::at("create an interface"))?;
            Ok("supported by the kernel")
        }
    }
}

fn connect_over_loopback() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    TcpStream::connect(listener.local_addr()?).map(drop)
}

fn receive_packets() -> io::Result<()> {
    const LONGEST_PACKET: usize = 2048;
    let every = SockProtocol::EthAll;
    let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, every)?;
    connect_over_loopback()?;
    let mut packet = [0; LONGEST_PACKET];
    // Loopback delivers packets before connect returns.
    recv(socket.as_raw_fd(), &mut packet, MsgFlags::MSG_DONTWAIT)?;
    Ok(())
}

fn refused(name: &str, purpose: CheckPurpose, StepFailure { step, error }: &StepFailure) -> Finding {
    let unsupported = error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32);
    let no_family = error.raw_os_error() == Some(Errno::EAFNOSUPPORT as i32);
    let cure = match (name, error.kind()) {
        (TUN, ErrorKind::NotFound) => "modprobe tun; in a container: --device /dev/net/tun".to_owned(),
        (TUN, ErrorKind::PermissionDenied) => format!("chmod 0666 {TUN}"),
        (TUN, _) => "modprobe tun; in a container: permit the device c 10:200 rwm".to_owned(),
        (WIREGUARD, _) if unsupported => {
            "modprobe wireguard (Linux 5.6 or later), or install wireguard-go".to_owned()
        }
        (VETH, _) if unsupported => "modprobe veth".to_owned(),
        (PACKET, _) if no_family => "modprobe af_packet".to_owned(),
        _ => cure(read_setting),
    };
    let seen = match (name, unsupported) {
        (VETH | WIREGUARD, true) => "not supported by the kernel".to_owned(),
        _ => format!("{step}: {error}"),
    };
    Finding::no(purpose, name, seen, cure)
}

/// A command that permits namespaces; `setting` reads a file in `/proc/sys`.
fn cure(setting: impl Fn(&str) -> Option<String>) -> String {
    // Distributions disable user namespaces by these: Debian, the kernel's own, Ubuntu.
    const FORBIDDING: [(&str, &str, &str); 3] = [
        ("kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=10000"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ];
    let is_set =
        |(name, value, _): &&(&str, &str, &str)| setting(name).is_some_and(|text| text.trim() == *value);
    let command = FORBIDDING.iter().find(is_set).map_or(
        "in a container: --security-opt seccomp=unconfined, or --cap-add SYS_ADMIN --cap-add NET_ADMIN",
        |(_, _, command)| command,
    );
    command.to_owned()
}

fn read_setting(name: &str) -> Option<String> {
    fs::read_to_string(Path::new("/proc/sys").join(name)).ok()
}

#[cfg(test)]
mod tests {
    use super::super::finding::CheckOutcome;
    use super::*;

    #[test]
    fn the_setting_that_forbids_namespaces_is_the_cure() {
        let cure = |clone: Option<&str>, maximum: &str, apparmor: Option<&str>| {
            cure(|name| {
                let value = match name {
                    "kernel/unprivileged_userns_clone" => clone,
                    "user/max_user_namespaces" => Some(maximum),
                    _ => apparmor,
                };
                value.map(ToOwned::to_owned)
            })
        };
        assert!(cure(Some("0\n"), "1\n", None).ends_with("userns_clone=1"));
        assert!(cure(Some("1\n"), "0\n", None).contains("max_user_namespaces"));
        assert!(cure(None, "7823\n", Some("1\n")).contains("apparmor"));
        assert!(cure(None, "7823\n", Some("0\n")).contains("container"));
    }

    #[test]
    fn missing_modules_are_distinguished_from_missing_rights() {
        let cure = |name, errno: Errno| {
            let failure = StepFailure { step: "make", error: errno.into() };
            match refused(name, CheckPurpose::Tunnels, &failure).verdict {
                CheckOutcome::No { cure } => cure,
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
