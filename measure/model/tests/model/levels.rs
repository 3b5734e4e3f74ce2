//! Arbitrary levels, grids and specifications.

use std::path::PathBuf;

use ciphertoll_model::duration::Span;
use ciphertoll_model::{
    AtRest, Auth, Baseline, Clients, CpuPinning, Ctx, Driver, Engine, Grid, Group, LatenessLimit, Link, Pace,
    Path, PoolMode, Prepare, Profiling, Proxy, ProxyFront, ProxyProgram, Scale, ScaleLevel, ServerKey,
    ServerLevel, Setting, Settings, Size, Spec, StealLimit, Storage, TlsPath, TlsVersion, Tunnel, Workload,
};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

pub(crate) const DAY_MS: u64 = 86_400_000;

/// Any server that can be written.
pub(crate) fn server() -> impl Strategy<Value = ServerLevel> {
    let label = option::of("[A-Za-z0-9._-]{1,12}");
    let version = option::of("[0-9]{1,3}(\\.[0-9]{1,3}){0,3}");
    let directory = option::of(any::<String>().prop_filter("no directory", |text| !text.is_empty()));
    // What looks like a URL is one.
    let directory =
        directory.prop_filter("a URL", |text| text.as_ref().is_none_or(|text| !text.contains("://")));
    let private = (label, version, directory).prop_map(|(label, version, directory)| ServerLevel {
        label,
        version,
        directory: directory.map(PathBuf::from),
        ..ServerLevel::of(Engine::MariaDb)
    });
    let there = (
        "[A-Za-z0-9._-]{1,12}",
        select(vec![
            "postgres://a@h/b?sslmode=require",
            "mysql://a@[::1]:1",
            "mongodb://a@h,[::1]:2/?tls=true",
        ]),
    )
        .prop_map(|(name, url)| ServerLevel::at(&name, url.parse().unwrap()).unwrap());
    prop_oneof![3 => private, 1 => there]
}

/// Servers that tell themselves apart.
fn named_server() -> impl Strategy<Value = ServerLevel> {
    select(vec!["mariadb", "mariadb-10.11", "old:mariadb-10.11=/opt/old", "new:mariadb=/opt/new"])
        .prop_map(|text| text.parse().unwrap())
}

pub(crate) fn path() -> impl Strategy<Value = Path> {
    // What joins two networks is nothing for one machine's loopback.
    let possible = |path: &Path| {
        path.as_tls().and_then(TlsPath::impossible).is_none()
            && !path.as_tunnel().is_some_and(Tunnel::joins_networks)
            && path.as_proxy().is_none_or(|proxy| proxy.impossible(Engine::MariaDb).is_none())
    };
    select(Path::all().into_iter().filter(possible).collect::<Vec<_>>())
}

/// Any proxy that can be written.
pub(crate) fn proxy() -> impl Strategy<Value = Path> {
    let parts = (
        select(ProxyProgram::all()),
        select(ProxyFront::ALL.to_vec()),
        select(TlsVersion::ALL.to_vec()),
        select(ServerKey::ALL.to_vec()),
        option::of(select(Group::ALL.to_vec())),
        select(PoolMode::ALL.to_vec()),
    );
    parts.prop_map(|(program, front, version, key, group, mode)| {
        // ProxySQL has a mode of its own, which is not written.
        let mode = if program.label() == "proxysql" { PoolMode::Session } else { mode };
        Path::Proxy(Proxy { program, front, version, key, group, mode })
    })
}

pub(crate) fn baseline() -> impl Strategy<Value = Baseline> {
    prop_oneof![
        server().prop_map(Baseline::Server),
        path().prop_map(Baseline::Path),
        proxy().prop_map(Baseline::Path),
        select(Auth::ALL.to_vec()).prop_map(Baseline::Auth),
        select(Ctx::ALL.to_vec()).prop_map(Baseline::Ctx),
        select(AtRest::ALL.to_vec()).prop_map(Baseline::AtRest),
    ]
}

pub(crate) fn clients() -> impl Strategy<Value = Clients> {
    (1..=Clients::MAX).prop_map(|count| Clients::new(count).unwrap())
}

pub(crate) fn scale() -> impl Strategy<Value = Scale> {
    (1..=Scale::MAX).prop_map(|rows| Scale::new(rows).unwrap())
}

pub(crate) fn scale_level() -> impl Strategy<Value = ScaleLevel> {
    let relative = (1..=10_000_000_u32, select(vec!["cache", "mem"])).prop_map(|(ten_thousandths, whole)| {
        format!("{}.{:04}{whole}", ten_thousandths / 10_000, ten_thousandths % 10_000).parse().unwrap()
    });
    prop_oneof![scale().prop_map(ScaleLevel::Rows), relative]
}

pub(crate) fn span() -> impl Strategy<Value = Span> {
    let millis = prop_oneof![
        1..=DAY_MS,
        (1..=86_400_u64).prop_map(|s| s * 1_000),
        (1..=1_440_u64).prop_map(|m| m * 60_000)
    ];
    millis.prop_map(Span::from_millis)
}

fn size() -> impl Strategy<Value = Size> {
    select(vec![Size::Quick, Size::Smoke, Size::Small, Size::Standard, Size::Full])
}

pub(crate) fn pace() -> impl Strategy<Value = Pace> {
    select(vec!["closed", "500/s", "50%"]).prop_map(|pace| pace.parse().unwrap())
}

/// Up to three of each level, in any order, some of them twice.
pub(crate) fn grid() -> impl Strategy<Value = Grid> {
    let some = 1..=3_usize;
    let possible = |workload: &Workload| workload.impossible(Engine::MariaDb).is_none();
    let workloads: Vec<_> = Workload::ALL.into_iter().filter(possible).collect();
    let load = (
        prop::collection::vec(select(workloads), some.clone()),
        prop::collection::vec(select(vec![1, 8]).prop_map(|count| Clients::new(count).unwrap()), 1..=2),
        prop::collection::vec(select(vec!["10000", "7"]).prop_map(|rows| rows.parse().unwrap()), 1..=2),
        prop::collection::vec(pace(), 1..=2),
    );
    let treatment = (
        prop::collection::vec(named_server(), 1..=2),
        prop::collection::vec(path(), some.clone()),
        prop::collection::vec(select(Ctx::ALL.to_vec()), some),
    );
    (treatment, load).prop_map(|((server, path, ctx), (workload, clients, scale, pace))| Grid {
        server,
        path,
        auth: Some(vec![Auth::Native]),
        ctx,
        driver: vec![Driver::Native],
        link: vec![Link::Local],
        at_rest: vec![AtRest::None],
        workload,
        clients,
        scale,
        pace,
    })
}

/// Where something runs it.
fn query(grids: &[Grid]) -> Option<String> {
    let runs = grids.iter().any(|grid| grid.workload.contains(&Workload::Query));
    runs.then(|| "SELECT 1".to_owned())
}

/// Of the engines that the grids measure: others would not be taken.
fn settings(grids: &[Grid], value: &str) -> Settings {
    let mut settings = Settings::default();
    let servers = grids.iter().flat_map(|grid| &grid.server);
    settings.extend(servers.filter_map(|server| Setting::new(server.engine, "work.mem_1", value).ok()));
    settings
}

/// Any specification that can be planned; its baseline is the default one.
pub(crate) fn spec() -> impl Strategy<Value = Spec> {
    let limits = (option::of(1..=30_u32), option::of(span()), option::of(span()));
    let seed = option::of(any::<u64>());
    let grids = prop::collection::vec(grid(), 1..=2);
    (any::<String>(), size(), limits, seed, grids, option::of(any::<String>())).prop_map(
        |(name, size, (blocks, trial_time, budget), seed, grids, value)| Spec {
            name,
            size,
            blocks,
            trial_time,
            budget,
            seed,
            baseline: None,
            config: value.clone(),
            query: query(&grids),
            memory_bytes: blocks.map(u64::from),
            prepare: if seed.is_some() { Prepare::Yes } else { Prepare::No },
            max_rate: blocks,
            // Hosts skip cells, perhaps all of them.
            load_hosts: Vec::new(),
            server_host: None,
            settings: value.map(|value| settings(&grids, &value)).unwrap_or_default(),
            max_steal: if seed.is_some() { "9%".parse().expect("a limit") } else { StealLimit::default() },
            max_lateness: if seed.is_some() {
                "50%".parse().expect("a limit")
            } else {
                LatenessLimit::default()
            },
            storage: if seed.is_some() { Storage::Tmpfs } else { Storage::Disk },
            scratch_dir: blocks.map(|blocks| format!("/scratch/{blocks}").into()),
            pin: if seed.is_some() { CpuPinning::Auto } else { CpuPinning::Off },
            profile: if blocks.is_some() { Profiling::On } else { Profiling::Off },
            grids,
        },
    )
}

#[test]
fn each_engine_is_logged_in_to_in_its_own_ways() {
    let path: Path = "tls1.3-p256".parse().unwrap();
    let ways = |engine| {
        let possible = Auth::ALL.into_iter().filter(|auth| auth.impossible(engine, path).is_none());
        possible.map(|auth| auth.to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(ways(Engine::MariaDb), "trust native ed25519 parsec cert as-asked");
    assert_eq!(ways(Engine::MySql), "trust native caching-sha2 cert as-asked");
    assert_eq!(ways(Engine::Postgres), "trust scram-4096 scram-1 md5 cert as-asked");
    assert_eq!(ways(Engine::MongoDb), "trust scram-sha1 cert as-asked");
    assert_eq!(ways(Engine::FerretDb), "trust scram-sha1 as-asked");
    for engine in Engine::ALL {
        assert_eq!(Auth::default_of(engine).impossible(engine, Path::Plain), None, "{engine}");
    }
    let reason = |auth: Auth, engine| auth.impossible(engine, path).unwrap();
    let weak: Auth = "scram-1".parse().unwrap();
    assert_eq!(
        reason(weak, Engine::FerretDb),
        "FerretDB stores keys of 15000 iterations, which cannot be chosen: scram-15000"
    );
    assert_eq!(reason(weak, Engine::MongoDb), "MongoDB stores keys of no fewer than 5000 iterations");
    assert_eq!("scram-5000".parse::<Auth>().unwrap().impossible(Engine::MongoDb, path), None);
    assert_eq!(reason(Auth::Parsec, Engine::MySql), "MySQL has no parsec: it is MariaDB's");
    assert_eq!(
        reason(Auth::CachingSha2, Engine::MariaDb),
        "MariaDB has no caching_sha2_password: it is MySQL's"
    );
}
