//! Today's lines, kept: what version 1 wrote must stay readable, and is what version 1 still writes.

use std::collections::BTreeMap;

use ciphertoll_model::{
    Arm, AtRest, CellId, ConnectedHost, CpuPart, CryptoInstruction, Ending, Environment, Event, Flag,
    HostRole, HostUse, HostsUse, KeyExchangeTime, Leg, LegCount, LinkKind, LookDecision, Metric, Observation,
    Profile, ProfiledRole, SCHEMA_VERSION, SignatureTime, Skipped, TimestampedEvent, VoidReason,
};

const GOLDEN: &str = include_str!("../golden/events-v1.jsonl");

const FIRST_MS: u64 = 1_795_226_156_758;

fn cell() -> CellId {
    CellId("mariadb/tls1.3-p256/native/per-connect/native/local/none/connect/1/10000".to_owned())
}

fn environment() -> Environment {
    Environment {
        cpu_model: "AMD EPYC".to_owned(),
        cpus: 2,
        crypto_instructions: CryptoInstruction::ALL.to_vec(),
        memory_bytes: 25_276_510_208,
        kernel: "6.18.44".to_owned(),
        os: "Debian GNU/Linux 12 (bookworm)".to_owned(),
        tls_library: "OpenSSL 3.0.19 27 Jan 2026".to_owned(),
        cpu_accounting: "process CPU-time clocks".to_owned(),
    }
}

fn legs() -> Vec<LegCount> {
    let plain = Leg {
        from: "client".to_owned(),
        to: "server".to_owned(),
        tls_version: None,
        suite: None,
        group: None,
        key: None,
        resumed: None,
        chain: None,
        hello_retry: None,
        auth: None,
        library: None,
        compressor: None,
        signature: None,
        library_version: None,
        unused_shares: Vec::new(),
    };
    let encrypted = Leg {
        tls_version: Some("tls1.3".to_owned()),
        suite: Some("TLS_AES_256_GCM_SHA384".to_owned()),
        group: Some("x25519".to_owned()),
        key: Some("p256".to_owned()),
        resumed: Some(false),
        hello_retry: Some(false),
        library: Some("openssl".to_owned()),
        ..plain.clone()
    };
    [plain, encrypted].map(|leg| LegCount { leg, connections: 5_078, handshake: None }).to_vec()
}

fn observation() -> Observation {
    // What was not there yet when the file was written.
    let later = [
        Metric::PhaseNsReady,
        Metric::PhaseNsDns,
        Metric::StatementsPerS,
        Metric::ServiceNsMean,
        Metric::ServiceNsP50,
        Metric::ServiceNsP95,
        Metric::ServiceNsP99,
        Metric::ScheduleLagNsP99,
        Metric::CpuUsPerOpMiddle,
        Metric::SetUpNs,
        Metric::RssBytesMiddle,
        Metric::PagesReadPerOperation,
        Metric::PagesWrittenPerOperation,
        Metric::PageCrossingsPerOperation,
        Metric::WalBytesPerOperation,
        Metric::FullPageImagesPerOperation,
        Metric::WalSyncsPerOperation,
        Metric::CheckpointsBegun,
        Metric::CheckpointsCompleted,
        Metric::CheckpointAgeBytes,
        Metric::FsyncNsP50,
        Metric::FsyncNsP99,
    ];
    let first = Metric::ALL.iter().filter(|metric| !later.contains(metric));
    let metrics = first.enumerate().map(|(index, metric)| (*metric, index as f64 + 0.25));
    Observation {
        metrics: metrics.collect(),
        operations: 2_212,
        window_ns: 250_000_000,
        legs: legs(),
        flags: vec![
            Flag::Unsteady { second_half_ratio: 0.5 },
            Flag::CpuElsewhere { share: -0.125 },
            Flag::DelayedAck,
        ],
        absent: BTreeMap::new(),
        hosts: None,
    }
}

fn before_the_blocks() -> Vec<Event> {
    let settings = BTreeMap::from([("port".to_owned(), "30993".to_owned())]);
    let server_ready = |tls_library| Event::ServerReady {
        server: "mariadb".to_owned(),
        version: "10.11.19-MariaDB".to_owned(),
        tls_library,
        settings: settings.clone(),
        elapsed_ms: 1_351,
    };
    vec![
        Event::RunStarted { schema_version: 1, tool_version: "0.1.0".to_owned() },
        Event::Preparing { what: "starting MariaDB 10.11.19".to_owned() },
        server_ready(Some("OpenSSL 3.0.19 27 Jan 2026".to_owned())),
        server_ready(None),
        Event::EnvironmentSeen { environment: environment() },
        Event::CellSkipped {
            skipped: Skipped { id: cell().0, server: None, reason: "no server".to_owned() },
        },
    ]
}

fn blocks() -> Vec<Event> {
    let reasons = [
        VoidReason::Negotiated { planned: "tls1.3".to_owned(), observed: "tls1.2".to_owned() },
        VoidReason::OperationErrors { count: 3, message: "the server closed the connection".to_owned() },
        VoidReason::LoadFailed { message: "killed by signal 9".to_owned() },
        VoidReason::ServerDied { message: "killed by signal 11".to_owned() },
        VoidReason::BufferMisses { count: 17 },
        VoidReason::Steal { percent: 4.5 },
        VoidReason::PortsExhausted { percent: 81.0 },
        VoidReason::NoOperations,
    ];
    let voided = reasons.map(|reason| Event::TrialVoided {
        block: 1,
        cell: cell(),
        arm: Arm::Main,
        attempt: 1,
        reason,
    });
    let (cell, observation) = (cell(), Box::new(observation()));
    let mut events = vec![
        Event::BlockStarted { block: 1 },
        Event::TrialStarted { block: 1, cell: cell.clone(), arm: Arm::Repeat, attempt: 2 },
        Event::TrialFinished { block: 1, cell, arm: Arm::Main, observation },
    ];
    events.extend(voided);
    events.push(Event::BlockFinished { block: 1 });
    events
}

fn afterwards() -> Vec<Event> {
    let decisions =
        [LookDecision::GoOn, LookDecision::StopPrecise, LookDecision::StopPlanned, LookDecision::StopBudget];
    let endings = [Ending::Complete, Ending::Interrupted, Ending::Terminated, Ending::Failed];
    let mut events = decisions.map(|decision| Event::Looked { blocks: 6, decision }).to_vec();
    events.push(Event::Warned { message: "the disk is slow".to_owned() });
    events.extend(endings.map(|ending| Event::Finished { ending }));
    events
}

/// Added to version 1 when drivers, authentications and paces were.
fn added() -> Vec<Event> {
    let reasons = [
        VoidReason::Authenticated { planned: "md5".to_owned(), observed: "scram-4096".to_owned() },
        VoidReason::Overload { unfinished: 12 },
        VoidReason::ScheduleLag { lag_ns_p99: 2_000_000, service_ns_p50: 90_000 },
        VoidReason::ClientSaturated { client_percent: 97.0, server_percent: 41.0 },
    ];
    let voided = reasons.map(|reason| Event::TrialVoided {
        block: 1,
        cell: cell(),
        arm: Arm::Main,
        attempt: 1,
        reason,
    });
    let resumed = Event::RunResumed { tool_version: "0.1.0".to_owned() };
    [vec![Event::CapacityFound { cell: cell(), per_s: 1_234.5 }], voided.to_vec(), vec![resumed]].concat()
}

/// Added when connects were divided further.
fn primitives() -> Event {
    let signature = SignatureTime { sign_ns: 1_482_000, verify_ns: 41_000 };
    Event::PrimitivesMeasured {
        signatures: [("rsa2048".to_owned(), signature)].into(),
        key_exchanges: [("x25519".to_owned(), KeyExchangeTime { agree_ns: 63_000 })].into(),
    }
}

/// Added when there were tunnels.
fn tunnel_tried() -> Event {
    let leg = Leg {
        from: "ssh".to_owned(),
        to: "sshd".to_owned(),
        suite: Some("aes256-ctr".to_owned()),
        key: Some("ssh-ed25519".to_owned()),
        library: Some("OpenSSH".to_owned()),
        ..Leg::default()
    };
    let path = "ssh-aes256-ctr+N".parse().unwrap();
    Event::TunnelTried { path, version: "OpenSSH_9.2p1".to_owned(), leg, elapsed_ms: 212 }
}

/// Added when there were proxies.
fn proxies() -> Vec<Event> {
    let leg = Leg {
        from: "pgbouncer".to_owned(),
        to: "server".to_owned(),
        tls_version: Some("tls1.3".to_owned()),
        suite: Some("TLS_AES_256_GCM_SHA384".to_owned()),
        key: Some("rsa2048".to_owned()),
        library: Some("PgBouncer".to_owned()),
        ..Leg::default()
    };
    let path = "pgbouncer+tls=1.3-rsa2048".parse().unwrap();
    let reason = VoidReason::Proxy { message: "it does not pool".to_owned() };
    vec![
        Event::ProxyTried { path, version: "PgBouncer 1.18.0".to_owned(), leg, elapsed_ms: 31 },
        Event::TrialVoided { block: 1, cell: cell(), arm: Arm::Main, attempt: 1, reason },
    ]
}

/// Added when files were encrypted.
fn at_rest() -> Vec<Event> {
    let (server, at_rest) = ("mariadb".to_owned(), AtRest::Native);
    let reason = VoidReason::AtRest { message: "sbtest/sbtest1 is not encrypted".to_owned() };
    vec![
        Event::AtRestProven {
            server,
            at_rest,
            files: 214,
            bytes: 118_000_000,
            files_with_marker: 0,
            kernel_cipher: None,
        },
        Event::TrialVoided { block: 1, cell: cell(), arm: Arm::Main, attempt: 1, reason },
    ]
}

/// Added when links were made.
fn link_made() -> Event {
    Event::LinkMade {
        link: "44.6ms+loss=1%".parse().unwrap(),
        overhead_ns: 83_000,
        round_trip_ns_p50: 44_612_000,
        congestion_control: "cubic".to_owned(),
        by: LinkKind::Tun,
        mtu_bytes: 1_500,
    }
}

/// Added when clients ran on other machines.
fn on_hosts() -> Vec<Event> {
    let host = ConnectedHost {
        name: "load1".to_owned(),
        node: None,
        role: HostRole::Load,
        tool_version: "0.1.0".to_owned(),
        architecture: "aarch64".to_owned(),
        kernel: "6.12.5".to_owned(),
        cpu_model: "Neoverse-V2".to_owned(),
        processors: 64,
        tls_library: "OpenSSL 3.0.17 1 Jul 2025".to_owned(),
        cpu_accounting: "process CPU-time clocks".to_owned(),
    };
    let used = HostUse {
        host: "load1".to_owned(),
        clients: 4,
        operations: 2_212,
        client_cpu_ns: 110_000_000,
        client_rss_peak_bytes: 9_000_000,
        schedule_lag_ns_p99: None,
        machine_busy_ns: 130_000_000,
        machine_steal_ns: 0,
        processors: 64,
        clock_ahead_ns: -3_600_000_000_000,
        clock_uncertainty_ns: 110_000,
        opened_after_ns: 40_000,
    };
    let hosts = HostsUse { overlap: 0.9998, overlap_uncertainty: 0.0009, hosts: vec![used] };
    let observation = Box::new(Observation { hosts: Some(Box::new(hosts)), ..observation() });
    let lost = Box::new(VoidReason::HostLost { message: "exit code 255".to_owned() });
    let reason = VoidReason::OnHost { host: "load1".to_owned(), reason: lost };
    vec![
        Event::HostConnected { host },
        Event::TrialFinished { block: 2, cell: cell(), arm: Arm::Main, observation },
        Event::TrialVoided { block: 2, cell: cell(), arm: Arm::Main, attempt: 1, reason },
    ]
}

/// Added when CPU time was profiled.
fn profiled() -> Event {
    let parts = [(CpuPart::TlsContext, 240), (CpuPart::Other, 17)].into();
    let profile = Profile { samples_per_s: 499, roles: [(ProfiledRole::Client, parts)].into() };
    Event::Profiled { cell: cell(), profile }
}

/// One of each kind.
fn written() -> Vec<TimestampedEvent> {
    let events = [
        before_the_blocks(),
        blocks(),
        afterwards(),
        added(),
        vec![primitives(), link_made(), tunnel_tried()],
        proxies(),
        at_rest(),
        on_hosts(),
        vec![profiled()],
    ]
    .concat();
    (FIRST_MS..).zip(events).map(|(at_unix_ms, event)| TimestampedEvent { at_unix_ms, event }).collect()
}

/// A new kind of event does not compile here until it has a line in the golden file.
fn kind(event: &Event) -> usize {
    match event {
        Event::RunStarted { .. } => 0,
        Event::EnvironmentSeen { .. } => 1,
        Event::Preparing { .. } => 2,
        Event::ServerReady { .. } => 3,
        Event::CellSkipped { .. } => 4,
        Event::BlockStarted { .. } => 5,
        Event::TrialStarted { .. } => 6,
        Event::TrialFinished { .. } => 7,
        Event::TrialVoided { .. } => 8,
        Event::BlockFinished { .. } => 9,
        Event::Looked { .. } => 10,
        Event::Warned { .. } => 11,
        Event::Finished { .. } => 12,
        Event::CapacityFound { .. } => 13,
        Event::RunResumed { .. } => 14,
        Event::PrimitivesMeasured { .. } => 15,
        Event::LinkMade { .. } => 16,
        Event::TunnelTried { .. } => 17,
        Event::ProxyTried { .. } => 18,
        Event::AtRestProven { .. } => 19,
        Event::HostConnected { .. } => 20,
        Event::Profiled { .. } => 21,
    }
}

#[test]
fn lines_of_version_1_are_read() {
    let read: Vec<TimestampedEvent> =
        GOLDEN.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read, written());
    let mut kinds: Vec<usize> = read.iter().map(|line| kind(&line.event)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds, (0..=21).collect::<Vec<_>>());
}

/// A line that changes needs another version and a file of its own; this one stays.
#[test]
fn lines_are_written_as_version_1_wrote_them() {
    assert_eq!(SCHEMA_VERSION, 1);
    let lines: String = written().iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect();
    assert_eq!(lines, GOLDEN);
}

/// Links were made before there was a choice of how, and their records said nothing of packets.
#[test]
fn links_of_earlier_records_are_read() {
    let line = r#"{"at_unix_ms":1,"event":"link_made","link":"5ms","overhead_ns":1,"round_trip_ns_p50":2,"congestion_control":"reno"}"#;
    let read: TimestampedEvent = serde_json::from_str(line).unwrap();
    let Event::LinkMade { by, mtu_bytes, .. } = read.event else { panic!("{read:?}") };
    assert_eq!((by, mtu_bytes), (LinkKind::Ring, 1_500));
}

/// An older reader meets what a newer writer added.
#[test]
fn unknown_fields_are_passed_over() {
    let line = r#"{"at_unix_ms":1,"event":"block_started","block":3,"mood":"calm"}"#;
    let expected = TimestampedEvent { at_unix_ms: 1, event: Event::BlockStarted { block: 3 } };
    assert_eq!(serde_json::from_str::<TimestampedEvent>(line).unwrap(), expected);
}
