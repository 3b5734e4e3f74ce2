//! What is written is read back, whatever it says.

use std::collections::BTreeMap;
use std::fmt::Debug;

use ciphertoll_model::{
    Absence, AddressFamily, Arm, Auth, Branch, CellId, Compressor, ConnectedHost, Ctx, DocumentsLogin, Draw,
    Ending, Endpoint, Engine, Environment, ErrorCount, ErrorKind, Event, FailureOrigin, Flag, Group,
    HandshakeSize, HostRole, HostUse, HostsUse, Identity, KeyExchangeTime, KeyShare, LatencySummary, Leg,
    LegCount, LoadMessage, LoginMechanism, LookDecision, Metric, Namespace, Observation, Phase,
    ReadPreference, Resumption, Script, ScriptStatement, ScriptStep, SecurityLevel, SignatureTime, Skipped,
    StatementProtocol, Suite, TimestampedEvent, TlsLibrary, TlsParameters, TlsSpec, TlsStart, TlsVersion,
    TrialOperation, TrialPace, TrialResult, TrialSpec, TrialStart, Verification, VoidReason,
};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::levels;

fn round_trip<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) -> Result<(), TestCaseError> {
    let line = serde_json::to_string(value).unwrap();
    prop_assert!(!line.contains('\n'), "a record has a line for each event");
    prop_assert_eq!(&serde_json::from_str::<T>(&line).unwrap(), value);
    Ok(())
}

/// A measured number: never infinite, and JSON has no NaN. It comes back to the last bit (`float_roundtrip`).
fn number() -> impl Strategy<Value = f64> {
    prop::num::f64::NORMAL | prop::num::f64::ZERO
}

fn arm() -> impl Strategy<Value = Arm> {
    select(vec![Arm::Main, Arm::Repeat])
}

fn leg() -> impl Strategy<Value = LegCount> {
    let texts = (any::<String>(), any::<String>(), option::of(any::<String>()), option::of(any::<String>()));
    let rest =
        (option::of(any::<String>()), option::of(any::<bool>()), option::of(any::<bool>()), any::<u64>());
    (texts, rest).prop_map(|((from, to, tls_version, suite), (group, resumed, hello_retry, connections))| {
        let share = KeyShare { group: "x25519mlkem768".to_owned(), bytes: 1_216 };
        let size = HandshakeSize {
            read_bytes: connections,
            written_bytes: 1_621,
            first_flight_bytes: connections,
            segments: resumed.map(u64::from),
        };
        LegCount {
            leg: Leg {
                from,
                to,
                tls_version,
                suite,
                key: group.clone(),
                auth: group.clone(),
                library: group.clone(),
                compressor: group.clone(),
                group,
                resumed,
                chain: resumed.map(u8::from),
                hello_retry,
                signature: resumed.map(|_| "mldsa65".to_owned()),
                library_version: None,
                unused_shares: Vec::from_iter(hello_retry.map(|_| share)),
            },
            connections,
            handshake: hello_retry.map(|_| size),
        }
    })
}

fn flag() -> impl Strategy<Value = Flag> {
    prop_oneof![
        number().prop_map(|second_half_ratio| Flag::Unsteady { second_half_ratio }),
        number().prop_map(|share| Flag::CpuElsewhere { share }),
        number().prop_map(|share| Flag::CpuOverlap { share }),
        Just(Flag::DelayedAck),
    ]
}

fn observation() -> impl Strategy<Value = Observation> {
    let metrics = prop::collection::btree_map(select(Metric::ALL.to_vec()), number(), 0..6);
    let legs = prop::collection::vec(leg(), 0..3);
    let flags = prop::collection::vec(flag(), 0..3);
    (metrics, any::<u64>(), any::<u64>(), legs, flags).prop_map(
        |(metrics, operations, window_ns, legs, flags)| Observation {
            metrics,
            operations,
            window_ns,
            legs,
            flags,
            absent: BTreeMap::from([(Metric::LatencyNsP95, Absence::ServerElsewhere)]),
            hosts: (operations % 2 == 1).then(|| Box::new(hosts_use(operations))),
        },
    )
}

fn hosts_use(number: u64) -> HostsUse {
    let use_of = |host: &str| HostUse {
        host: host.to_owned(),
        clients: 3,
        operations: number,
        client_cpu_ns: number,
        client_rss_peak_bytes: 1,
        schedule_lag_ns_p99: (number % 4 == 1).then_some(number),
        machine_busy_ns: number,
        machine_steal_ns: 0,
        processors: 64,
        clock_ahead_ns: number.cast_signed(),
        clock_uncertainty_ns: number,
        opened_after_ns: number,
    };
    let hosts = ["a", "b"].map(use_of).to_vec();
    HostsUse { overlap: 0.995, overlap_uncertainty: 0.001, hosts }
}

fn void_reason() -> impl Strategy<Value = VoidReason> {
    prop_oneof![
        (any::<String>(), any::<String>())
            .prop_map(|(planned, observed)| VoidReason::Negotiated { planned, observed }),
        (any::<u64>(), any::<String>())
            .prop_map(|(count, message)| VoidReason::OperationErrors { count, message }),
        (any::<String>(), any::<String>())
            .prop_map(|(planned, observed)| VoidReason::Authenticated { planned, observed }),
        any::<String>().prop_map(|message| VoidReason::LoadFailed { message }),
        any::<String>().prop_map(|message| VoidReason::ServerDied { message }),
        any::<u64>().prop_map(|count| VoidReason::BufferMisses { count }),
        number().prop_map(|percent| VoidReason::Steal { percent }),
        number().prop_map(|percent| VoidReason::PortsExhausted { percent }),
        any::<String>().prop_map(|message| VoidReason::Link { message }),
        any::<String>().prop_map(|message| VoidReason::Proxy { message }),
        any::<String>().prop_map(|message| VoidReason::AtRest { message }),
        Just(VoidReason::NoOperations),
        number().prop_map(|percent| VoidReason::WindowsApart { percent, uncertainty_percent: percent }),
        (any::<String>(), any::<String>(), number()).prop_map(|(host, message, percent)| {
            let lost = VoidReason::HostLost { message };
            let reason = Box::new(if percent > 0.0 { lost } else { VoidReason::HostBusy { percent } });
            VoidReason::OnHost { host, reason }
        }),
    ]
}

fn host(environment: Environment) -> ConnectedHost {
    ConnectedHost {
        name: environment.os,
        node: Some("node-1".to_owned()),
        role: if environment.cpus.is_multiple_of(2) { HostRole::Load } else { HostRole::Server },
        tool_version: "0.1.0".to_owned(),
        architecture: "x86_64".to_owned(),
        kernel: environment.kernel,
        cpu_model: environment.cpu_model,
        processors: environment.cpus,
        tls_library: environment.tls_library,
        cpu_accounting: environment.cpu_accounting,
    }
}

fn environment() -> impl Strategy<Value = Environment> {
    (any::<String>(), any::<u16>(), any::<u64>()).prop_map(|(text, cpus, memory_bytes)| Environment {
        cpu_model: text.clone(),
        cpus,
        crypto_instructions: ciphertoll_model::CryptoInstruction::ALL.to_vec(),
        memory_bytes,
        kernel: text.clone(),
        os: text.clone(),
        tls_library: text.clone(),
        cpu_accounting: text,
    })
}

fn server_ready() -> impl Strategy<Value = Event> {
    let settings = prop::collection::btree_map(any::<String>(), any::<String>(), 0..3);
    (any::<String>(), option::of(any::<String>()), settings, any::<u64>()).prop_map(
        |(text, tls_library, settings, elapsed_ms)| Event::ServerReady {
            server: text.clone(),
            version: text,
            tls_library,
            settings,
            elapsed_ms,
        },
    )
}

fn primitives_measured() -> impl Strategy<Value = Event> {
    let signature = any::<[u64; 2]>().prop_map(|[sign_ns, verify_ns]| SignatureTime { sign_ns, verify_ns });
    let agreement = any::<u64>().prop_map(|agree_ns| KeyExchangeTime { agree_ns });
    let signatures = prop::collection::btree_map(any::<String>(), signature, 0..3);
    let key_exchanges = prop::collection::btree_map(any::<String>(), agreement, 0..3);
    (signatures, key_exchanges)
        .prop_map(|(signatures, key_exchanges)| Event::PrimitivesMeasured { signatures, key_exchanges })
}

fn trial_event() -> impl Strategy<Value = Event> {
    let cell = any::<String>().prop_map(CellId);
    (any::<u32>(), cell, arm(), any::<u32>(), observation(), void_reason()).prop_flat_map(
        |(block, cell, arm, attempt, observation, reason)| {
            let observation = Box::new(observation);
            select(vec![
                Event::TrialStarted { block, cell: cell.clone(), arm, attempt },
                Event::TrialFinished { block, cell: cell.clone(), arm, observation },
                Event::TrialVoided { block, cell, arm, attempt, reason },
            ])
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let decisions =
        [LookDecision::GoOn, LookDecision::StopPrecise, LookDecision::StopPlanned, LookDecision::StopBudget];
    let endings = [Ending::Complete, Ending::Interrupted, Ending::Terminated, Ending::Failed];
    prop_oneof![
        (any::<u32>(), any::<String>())
            .prop_map(|(schema_version, tool_version)| Event::RunStarted { schema_version, tool_version }),
        any::<String>().prop_map(|tool_version| Event::RunResumed { tool_version }),
        environment().prop_map(|environment| Event::EnvironmentSeen { environment }),
        environment().prop_map(|environment| Event::HostConnected { host: host(environment) }),
        any::<String>().prop_map(|what| Event::Preparing { what }),
        server_ready(),
        primitives_measured(),
        (any::<String>(), any::<u32>())
            .prop_map(|(id, per_s)| Event::CapacityFound { cell: CellId(id), per_s: f64::from(per_s) / 8.0 }),
        (any::<String>(), any::<String>())
            .prop_map(|(id, reason)| Event::CellSkipped { skipped: Skipped { id, server: None, reason } }),
        any::<u32>().prop_map(|block| Event::BlockStarted { block }),
        trial_event(),
        any::<u32>().prop_map(|block| Event::BlockFinished { block }),
        (any::<u32>(), select(decisions.to_vec()))
            .prop_map(|(blocks, decision)| Event::Looked { blocks, decision }),
        any::<String>().prop_map(|message| Event::Warned { message }),
        select(endings.to_vec()).prop_map(|ending| Event::Finished { ending }),
    ]
}

fn draw() -> impl Strategy<Value = Draw> {
    prop_oneof![
        any::<[i64; 2]>().prop_map(|[first, last]| Draw::Uniform { first, last }),
        any::<[i64; 2]>().prop_map(|[first, last]| Draw::Special { first, last }),
        (any::<u16>(), any::<i64>()).prop_map(|(of, by)| Draw::Offset { of: usize::from(of), by }),
        any::<u8>().prop_map(|groups| Draw::DigitGroups { groups }),
        any::<[i64; 2]>().prop_map(|[first, last]| Draw::ScrambledZipfian { first, last }),
        Just(Draw::Insert),
        any::<i64>().prop_map(|loaded| Draw::Latest { loaded }),
        any::<u16>().prop_map(|of| Draw::YcsbKey { of: usize::from(of) }),
        any::<u16>().prop_map(|bytes| Draw::Printable { bytes }),
    ]
}

fn script() -> impl Strategy<Value = Script> {
    let protocols = select(vec![StatementProtocol::Text, StatementProtocol::Prepared]);
    let statements = prop::collection::vec(
        (any::<String>(), protocols).prop_map(|(sql, protocol)| ScriptStatement { sql, protocol }),
        0..3,
    );
    let steps = prop::collection::vec(
        (0..9_usize, prop::collection::vec(0..9_usize, 0..3))
            .prop_map(|(statement, parameters)| ScriptStep { statement, parameters }),
        0..3,
    );
    let branches = (any::<u32>(), steps.clone(), any::<u64>())
        .prop_map(|(weight, steps, min_row_bytes)| Branch { weight, steps, min_row_bytes });
    let branches = prop::collection::vec(branches, 0..3);
    let retry_on = prop::collection::vec(any::<String>(), 0..2);
    (statements, prop::collection::vec(draw(), 0..4), steps, branches, retry_on).prop_map(
        |(statements, variables, steps, branches, retry_on)| Script {
            statements,
            variables,
            steps,
            branches,
            retry_on,
            ..Script::default()
        },
    )
}

fn work() -> impl Strategy<Value = TrialOperation> {
    prop_oneof![
        Just(TrialOperation::Connect),
        script().prop_map(TrialOperation::ConnectQuery),
        script().prop_map(TrialOperation::FirstQuery),
        script().prop_map(TrialOperation::Transactions),
    ]
}

fn pace() -> impl Strategy<Value = TrialPace> {
    prop_oneof![Just(TrialPace::Closed), (0.1..1e6_f64).prop_map(|per_s| TrialPace::Open { per_s })]
}

fn tls() -> impl Strategy<Value = TlsSpec> {
    let choices = (any::<[bool; 4]>(), any::<String>(), select(Ctx::ALL.to_vec()));
    choices.prop_map(|([new, direct, rustls, shown], text, ctx)| TlsSpec {
        parameters: TlsParameters {
            version: if new { TlsVersion::Tls13 } else { TlsVersion::Tls12 },
            suite: direct.then(|| Suite::from_label("AES256-SHA").unwrap()),
            group: new.then_some(Group::X25519MlKem768),
            library: if rustls { TlsLibrary::Rustls } else { TlsLibrary::OpenSsl },
        },
        ca_file: shown.then(|| text.clone().into()),
        verification: if new { Verification::Full } else { Verification::Authority },
        server_name: text.clone(),
        ctx,
        start: if direct { TlsStart::Direct } else { TlsStart::Requested },
        resumption: if direct { Resumption::BySessionId } else { Resumption::Always },
        security_level: if shown { SecurityLevel::Weak } else { SecurityLevel::Obsolete },
        identity: shown.then(|| Identity { certificate_file: text.clone().into(), key_file: text.into() }),
    })
}

fn trial_spec() -> impl Strategy<Value = TrialSpec> {
    let endpoint = prop_oneof![
        any::<std::net::SocketAddr>()
            .prop_filter("a scope is not written", |address| {
                address.is_ipv4() || address.to_string().parse() == Ok(*address)
            })
            .prop_map(Endpoint::Tcp),
        any::<String>().prop_map(|path| Endpoint::Unix(path.into())),
        (any::<String>(), any::<u16>()).prop_map(|(host, port)| Endpoint::Host {
            host,
            port,
            family: AddressFamily::V6
        }),
    ];
    let texts = (any::<String>(), option::of(any::<String>()));
    let load = (work(), pace(), levels::clients(), any::<u16>());
    let processors = option::of(any::<Vec<u16>>());
    let numbers = any::<[u64; 4]>();
    (endpoint, texts, option::of(tls()), load, numbers, processors).prop_map(
        |(endpoint, (user, database), tls, (work, pace, clients, threads), numbers, processors)| TrialSpec {
            compressor: tls.as_ref().map(|_| Compressor::Zlib),
            first_insert: processors.as_ref().map(|_| 1 << 40),
            engine: Engine::ALL[threads as usize % Engine::ALL.len()],
            auth: Auth::ALL[threads as usize % Auth::ALL.len()],
            endpoint,
            password_file: user.clone().into(),
            user,
            startup: Vec::new(),
            documents: database.clone().map(|auth_source| DocumentsLogin {
                auth_source,
                mechanism: LoginMechanism::X509,
                read_preference: ReadPreference::ALL[threads as usize % ReadPreference::ALL.len()],
            }),
            database,
            tls,
            work,
            pace,
            clients,
            threads,
            warm_up_ns: numbers[0],
            window_ns: numbers[1],
            seed: numbers[2],
            max_per_s: (threads % 2 == 1).then_some(20.0),
            namespace: (threads % 3 == 1).then(|| Namespace { user: None, network: "/proc/1/ns/net".into() }),
            processors,
            injected_delay_ns: 0,
            repeated_share: f64::from(threads % 4) / 4.0,
            start: if threads % 2 == 0 { TrialStart::AtOnce } else { TrialStart::WhenTold },
        },
    )
}

fn summary(numbers: [u64; 7]) -> LatencySummary {
    LatencySummary {
        count: numbers[0],
        sum_ns: numbers[4],
        p50_ns: numbers[1],
        p95_ns: numbers[2],
        p99_ns: numbers[3],
        max_ns: numbers[5],
    }
}

fn trial_result() -> impl Strategy<Value = TrialResult> {
    let phases = prop::collection::vec(any::<u64>(), 0..=Phase::ALL.len());
    let errors = prop::collection::vec((any::<String>(), any::<u64>(), error_kind()), 0..3);
    let legs = prop::collection::vec(leg(), 0..3);
    (any::<[u64; 7]>(), phases, errors, any::<String>(), legs, option::of(any::<u64>())).prop_map(
        |(numbers, phases, errors, histogram_base64, legs, usable_ports)| TrialResult {
            operations: numbers[0],
            operations_in_all: usable_ports,
            operations_by_half: [numbers[1], numbers[2]],
            window_ns: numbers[3],
            errors: errors
                .into_iter()
                .map(|(message, count, kind)| ErrorCount { message, count, kind })
                .collect(),
            statements: usable_ports,
            retries: numbers[4],
            unfinished: numbers[5],
            latency: summary(numbers),
            service: usable_ports.map(|_| summary(numbers)),
            schedule_lag: usable_ports.map(|_| summary(numbers)),
            phase_sums_ns: Phase::ALL.into_iter().zip(phases).collect::<BTreeMap<_, _>>(),
            histogram_base64,
            legs,
            client_cpu_ns: numbers[5],
            client_rss_peak_bytes: numbers[6],
            tcp_connect_ns_p50: usable_ports,
            usable_ports,
            further_histograms: usable_ports.map(|_| Box::default()),
        },
    )
}

fn load_message() -> impl Strategy<Value = LoadMessage> {
    let faults = [FailureOrigin::Server, FailureOrigin::Tls, FailureOrigin::Host, FailureOrigin::Internal];
    prop_oneof![
        Just(LoadMessage::Ready),
        any::<[u64; 2]>()
            .prop_map(|[opens_at_ns, closes_at_ns]| LoadMessage::Begun { opens_at_ns, closes_at_ns }),
        Just(LoadMessage::WindowOpened),
        Just(LoadMessage::WindowClosed),
        any::<Vec<u64>>().prop_map(|latency_ns| LoadMessage::Samples { latency_ns }),
        trial_result().prop_map(|result| LoadMessage::Finished(Box::new(result))),
        (select(faults.to_vec()), any::<String>(), error_kind())
            .prop_map(|(fault, message, kind)| LoadMessage::Failed { fault, message, kind }),
    ]
}

fn error_kind() -> impl Strategy<Value = ErrorKind> {
    select(vec![ErrorKind::Other, ErrorKind::TooManyConnections])
}

/// Users' drivers, and records of before, know no kinds.
#[test]
fn errors_of_no_kind() {
    let count: ErrorCount = serde_json::from_str(r#"{"message":"why","count":2}"#).unwrap();
    assert_eq!(count, ErrorCount { message: "why".to_owned(), count: 2, kind: ErrorKind::Other });
    let line = r#"{"message":"failed","body":{"fault":"server","message":"why"}}"#;
    let failed: LoadMessage = serde_json::from_str(line).unwrap();
    let (fault, message) = (FailureOrigin::Server, "why".to_owned());
    assert_eq!(failed, LoadMessage::Failed { fault, message, kind: ErrorKind::Other });
}

proptest! {
    #[test]
    fn events(at_unix_ms: u64, event in event()) {
        round_trip(&TimestampedEvent { at_unix_ms, event })?;
    }

    #[test]
    fn trial_specs(spec in trial_spec()) {
        round_trip(&spec)?;
    }

    #[test]
    fn trial_results(result in trial_result()) {
        round_trip(&result)?;
    }

    #[test]
    fn load_messages(message in load_message()) {
        round_trip(&message)?;
    }
}
