//! Names of processes and control groups as Linux has them, and of others.

use super::*;

const ID64: &str = "3f2a91c0d7e14455aa00bb11cc22dd33ee44ff5566778899aabbccddeeff0011";
const OTHER: &str = "00ff91c0d7e14455aa00bb11cc22dd33ee44ff5566778899aabbccddeeff0022";

/// The container and the unit in a line of `/proc/PID/cgroup`.
fn place(cgroup: &str) -> (Option<String>, Option<String>) {
    let owner = SocketOwner::new(b"x\n", cgroup);
    (owner.container, owner.unit)
}

#[test]
fn containers_are_known_by_their_control_groups() {
    for path in [
        format!("0::/docker/{ID64}"),
        format!("0::/system.slice/docker-{ID64}.scope"),
        format!(
            "12:cpu,cpuacct:/docker/{ID64}\n1:name=systemd:/docker/{ID64}\n0::/system.slice/containerd.service"
        ),
        format!("0::/kubepods/burstable/pod1c4e0bdc-6d6f-4a53-8c4e-000000000000/{ID64}"),
        format!(
            "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1c4e.slice/cri-containerd-{ID64}.scope"
        ),
        format!("0::/system.slice/containerd.service/kubepods-burstable-pod1c4e.slice:cri-containerd:{ID64}"),
        format!("0::/kubepods.slice/kubepods-pod1c4e.slice/crio-{ID64}.scope/container"),
        format!("0::/machine.slice/libpod-{ID64}.scope/container"),
        format!("0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID64}.scope"),
        format!("0::/libpod_parent/libpod-{ID64}"),
        format!("0::/system.slice/nerdctl-{ID64}.scope"),
        format!("0::/ecs/0123456789abcdef/{ID64}"),
        format!("0::/docker/{OTHER}/kubelet.slice/kubelet-kubepods.slice/cri-containerd-{ID64}.scope"),
        format!("0::/../../docker-{ID64}.scope"),
    ] {
        assert_eq!(place(&path), (Some("3f2a91c0d7e1".to_owned()), None), "{path}");
    }
    for path in [
        "0::/lxc.payload.web-1",
        "0::/lxc/web-1",
        "5:memory:/lxc.payload/web-1",
        "0::/lxc.payload.web-1/init.scope",
    ] {
        assert_eq!(place(path), (Some("web-1".to_owned()), None), "{path}");
    }
}

#[test]
fn services_are_named_outside_of_containers() {
    for (path, unit) in [
        ("0::/system.slice/php-fpm.service", "php-fpm.service"),
        ("0::/system.slice/system-postgresql.slice/postgresql@15-main.service", "postgresql@15-main.service"),
        ("1:name=systemd:/system.slice/cron.service\n0::/", "cron.service"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-shop.service", "app-shop.service"),
        ("0::/system.slice/my\\x2dshop.service/workers", "my\\x2dshop.service"),
    ] {
        assert_eq!(place(path), (None, Some(unit.to_owned())), "{path}");
    }
}

#[test]
fn other_control_groups_name_nothing() {
    let short = &ID64[..63];
    for path in [
        String::new(),
        "0::/".to_owned(),
        "no line of the kernel".to_owned(),
        "0::/user.slice/user-1000.slice/session-3.scope".to_owned(),
        format!("0::/machine.slice/libpod-conmon-{ID64}.scope"),
        format!("0::/docker/{short}"),
        format!("0::/docker/{}", ID64.to_uppercase()),
        format!("0::/docker/{short}\u{e9}"),
        "0::/lxc.monitor.web-1".to_owned(),
        "0::/lxc/a\u{1b}[31m".to_owned(),
        "0::/system.slice/a\u{1b}[31m.service".to_owned(),
        format!("0::/system.slice/{}.service", "a".repeat(MOST_PLACE_BYTES)),
    ] {
        assert_eq!(place(&path), (None, None), "{path}");
    }
}

#[test]
fn names_are_printable_and_short() {
    let name = |comm: &[u8]| SocketOwner::new(comm, "").name;
    assert_eq!(name(b"php-fpm8.2\n"), "php-fpm8.2");
    assert_eq!(name(b"worker 1\n"), "worker 1");
    assert_eq!(name("größe\n".as_bytes()), "größe");
    assert_eq!(name(b"a\x1b[31m\nb\n"), "a?[31m?b");
    assert_eq!(name("a\u{202e}b".as_bytes()), "a?b");
    assert_eq!(name(b"\xff\xfe"), "??");
    assert_eq!(name(b"\n"), "?");
    assert_eq!(name(b"0123456789abcdefghij"), "0123456789abcdef");
}
