use ciphertoll_hosts::ClockOffset;
use ciphertoll_hosts::protocol::MachineWindow;
use ciphertoll_model::LatencySummary;

use super::*;

const S: u64 = 1_000_000_000;

fn host(name: &str) -> HostResult {
    HostResult {
        host: name.to_owned(),
        clients: 2,
        operations: 1_000,
        window_ns: S,
        client_cpu_ns: S / 2,
        client_rss_peak_bytes: 1 << 20,
        latency: LatencySummary { p50_ns: 100_000, count: 1_000, ..LatencySummary::default() },
        service: None,
        schedule_lag: None,
        unfinished: 0,
        errors: Vec::new(),
        machine: MachineWindow {
            elapsed_ns: S,
            busy_ns: S / 2,
            processors: 4,
            usable_ports: 28_000,
            ..MachineWindow::default()
        },
        usable_ports: Some(28_000),
        processors: 4,
        boot_id: name.to_owned(),
        offset: ClockOffset::default(),
        opened_after_ns: 0,
    }
}

fn reason_of(hosts: Vec<HostResult>, share: f64, shared: &[&str]) -> Option<String> {
    let used = HostsMeasured {
        overlap: WindowOverlap { share, uncertainty: 0.001 },
        hosts,
        shared_boot_ids: shared.iter().map(|&id| id.to_owned()).collect(),
    };
    let limit: StealLimit = "3%".parse().unwrap();
    check(Some(&used), limit).err().map(|reason| reason.to_string())
}

#[test]
fn windows_must_overlap() {
    assert_eq!(reason_of(vec![host("a"), host("b")], 0.98, &[]), None);
    let said = reason_of(vec![host("a"), host("b")], 0.979, &[]).unwrap();
    assert_eq!(said, "the windows of the load hosts overlapped by 97.9 % (± 0.1 %)");
}

#[test]
fn a_busy_host_is_named_unless_the_server_shares_its_machine() {
    let mut busy = host("b");
    busy.machine.busy_ns = S + S / 10;
    let hosts = vec![host("a"), busy];
    let said = reason_of(hosts.clone(), 1.0, &[]).unwrap();
    assert_eq!(said, "host b: other processes used 15 % of its processors");
    assert_eq!(reason_of(hosts.clone(), 1.0, &["b"]), None);
    // Interrupts are those of the clients' packets, and a second host on the same machine is no stranger.
    let mut interrupted = hosts.clone();
    interrupted[1].machine.interrupts_ns = S / 2;
    assert_eq!(reason_of(interrupted, 1.0, &[]), None);
    let mut together = hosts;
    together[0].boot_id = "b".to_owned();
    together[0].machine = together[1].machine;
    assert_eq!(reason_of(together, 1.0, &[]), None);
}

#[test]
fn a_slow_host_and_one_without_ports_are_named() {
    let mut slow = host("a");
    slow.schedule_lag = Some(LatencySummary { p99_ns: 5_000_000, ..slow.latency });
    slow.service = Some(slow.latency);
    let said = reason_of(vec![slow, host("b")], 1.0, &[]).unwrap();
    assert!(said.starts_with("host a: the load process did not keep its schedule"), "{said}");
    let mut full = host("b");
    full.machine.time_wait_sockets = 27_000;
    let said = reason_of(vec![host("a"), full], 1.0, &[]).unwrap();
    assert_eq!(said, "host b: 96 % of the local ports were in TIME_WAIT");
    let mut stolen = host("b");
    stolen.machine.steal_ns = S;
    let said = reason_of(vec![host("a"), stolen], 1.0, &[]).unwrap();
    assert!(said.starts_with("host b: the hypervisor took 66.7 %"), "{said}");
}
