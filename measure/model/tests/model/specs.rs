//! A specification prints as the TOML that asks for it again.

use ciphertoll_model::{
    Clients, CpuPinning, Engine, Grid, LoadHosts, Path, Plan, ServerLevel, Spec, Workload,
};
use proptest::option;
use proptest::prelude::*;

use crate::levels;

proptest! {
    #[test]
    fn toml_round_trip(spec in levels::spec(), baseline in option::of(levels::baseline())) {
        let spec = Spec { baseline, ..spec };
        prop_assert_eq!(Spec::from_toml(&spec.to_toml()), Ok(spec));
    }

    /// Servers with any label, version and directory, as long as their names differ.
    #[test]
    fn servers_in_toml(server in levels::server()) {
        let spec = Spec::quick(&[server]);
        prop_assert_eq!(Spec::from_toml(&spec.to_toml()), Ok(spec));
    }

    #[test]
    fn nothing_makes_the_reader_panic(text: String) {
        let _ = Spec::from_toml(&text);
    }
}

#[test]
fn the_least_one_can_write() {
    let spec = Spec::from_toml("[[grid]]").unwrap();
    assert_eq!(spec.grids, [Grid::default()]);
    assert_eq!(spec.name, "run");
    assert_eq!(spec.baseline, None);
}

/// A number needs no quotes: flags have none either.
#[test]
fn numbers_as_a_person_writes_them() {
    let bare = "trial-time = 2\nbudget = 0.5\n[[grid]]\nclients = [1, 8]\nscale = [10000]";
    let quoted =
        "trial-time = \"2s\"\nbudget = \"500ms\"\n[[grid]]\nclients = [\"1\", \"8\"]\nscale = [\"10000\"]";
    assert_eq!(Spec::from_toml(bare), Spec::from_toml(quoted));
    assert_eq!(Spec::from_toml(bare).unwrap().grids[0].clients[1], Clients::new(8).unwrap());
}

#[test]
fn settings_are_a_table_for_each_engine() {
    let written = "[set.postgres]\nshared_buffers = \"1GB\"\nfsync = false\nmax_wal_size = 4096\n\
         [[grid]]\nserver = [\"postgres\"]\n";
    let spec = Spec::from_toml(written).unwrap();
    let said = "postgres.fsync=off, postgres.max_wal_size=4096, postgres.shared_buffers=1GB";
    assert_eq!(spec.settings.to_string(), said);
    assert_eq!(Spec::from_toml(&spec.to_toml()), Ok(spec.clone()));
    let plan = Plan::new(&spec, 1).unwrap();
    let recorded = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&recorded).unwrap(), plan);
    assert!(recorded.contains(r#""settings":{"postgres":{"fsync":"off","#), "{recorded}");
}

#[test]
fn settings_that_are_none_name_their_line() {
    for (table, said) in [
        ("[set.postgres]\nport = 1", "postgres.port is reserved"),
        ("[set.oracle]\na = 1", "unknown server \"oracle\""),
        ("[set.postgres]\nwork_mem = [1]", "text, a number, true or false"),
        ("[set.mariadb]\nsql_mode = \"a\\nb\"", "the value of mariadb.sql_mode contains '\\n'"),
    ] {
        let error = Spec::from_toml(&format!("{table}\n[[grid]]\n")).unwrap_err().to_string();
        assert!(error.contains(said) && error.starts_with("line "), "{error}");
    }
    let nobody = Spec::from_toml("[set.postgres]\nfsync = false\n[[grid]]\n").unwrap_err().to_string();
    assert_eq!(nobody, "postgres.fsync=off applies to no server: no postgres is measured");
}

#[test]
fn a_plan_without_settings_says_nothing_of_them() {
    let plan = Plan::new(&Spec::quick(&[ServerLevel::of(Engine::MariaDb)]), 1).unwrap();
    let recorded = serde_json::to_string(&plan).unwrap();
    assert!(!recorded.contains("settings"), "{recorded}");
    assert_eq!(serde_json::from_str::<Plan>(&recorded).unwrap(), plan);
}

#[test]
fn quick_measures_connects_and_reads() {
    let plan = Plan::new(&Spec::quick(&[ServerLevel::of(Engine::MariaDb)]), 1).unwrap();
    let ids: Vec<String> = plan.cells.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(ids.join("\n"), @r"
    mariadb/plain/native/-/native/local/none/connect/1/10000
    mariadb/tls1.3-p256/native/per-connect/native/local/none/connect/1/10000
    mariadb/tls1.2-p256/native/per-connect/native/local/none/connect/1/10000
    mariadb/plain/trust/-/native/local/none/connect/1/10000
    mariadb/plain/native/-/native/local/none/point-select/8/10000
    mariadb/tls1.3-p256/native/per-connect/native/local/none/point-select/8/10000
    mariadb/tls1.2-p256/native/per-connect/native/local/none/point-select/8/10000
    ");
    assert_eq!(plan.baseline.to_string(), "path=plain");
    assert_eq!(plan.counted_blocks(), 6);
    assert_eq!(plan.servers(), [&ServerLevel::of(Engine::MariaDb)]);
}

#[test]
fn quick_reads_documents_where_rows_are_none() {
    let servers = [Engine::Postgres, Engine::FerretDb].map(ServerLevel::of);
    let plan = Plan::new(&Spec::quick_with_sidecar(&servers[1..]), 1).unwrap();
    let ids: Vec<String> = plan.cells.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(ids.join("\n"), @r"
    ferretdb/plain/scram-15000/-/native/local/none/connect/1/100
    ferretdb/tls1.3-p256/scram-15000/per-connect/native/local/none/connect/1/100
    ferretdb/tls1.2-p256/scram-15000/per-connect/native/local/none/connect/1/100
    ferretdb/plain/trust/-/native/local/none/connect/1/100
    ferretdb/plain/scram-15000/-/native/local/none/find-one/8/100
    ferretdb/tls1.3-p256/scram-15000/per-connect/native/local/none/find-one/8/100
    ferretdb/tls1.2-p256/scram-15000/per-connect/native/local/none/find-one/8/100
    ");
    assert_eq!(plan.skipped, []);
    let mixed = Plan::new(&Spec::quick(&servers), 1).unwrap();
    assert_eq!((mixed.cells.len(), mixed.skipped.len()), (14, 0));
}

/// What cannot be read back is not printed, either: every error is one line.
#[test]
fn errors_have_one_line() {
    for text in
        ["[[grid]]\npath = [\n\"plian\"\n]", "name = 1\n[[grid]]", "what = 1", "[[grid]]\npth = []", "= ="]
    {
        let message = Spec::from_toml(text).unwrap_err().to_string();
        assert!(!message.contains('\n') && !message.is_empty(), "{message:?}");
    }
}

#[test]
fn a_grid_asks_for_every_combination_once() {
    let grid = Grid {
        path: vec![Path::Plain, Path::Unix, Path::Plain],
        workload: vec![Workload::Connect, Workload::PointSelect, Workload::Connect],
        ..Grid::default()
    };
    let spec = Spec { grids: vec![grid.clone(), grid], ..Spec::quick(&[]) };
    let plan = Plan::new(&spec, 1).unwrap();
    assert_eq!(plan.cells.len(), 4);
    assert_eq!(plan.skipped, []);
}

fn quick(engines: &[Engine]) -> (Spec, Plan) {
    let servers: Vec<ServerLevel> = engines.iter().copied().map(ServerLevel::of).collect();
    let spec = Spec::quick_with_sidecar(&servers);
    let plan = Plan::new(&spec, 1).unwrap();
    (spec, plan)
}

#[test]
fn a_quick_run_has_the_sidecar_beside() {
    let (spec, plan) = quick(&[Engine::MariaDb, Engine::Postgres]);
    let proxied: Vec<_> = plan.cells.iter().filter(|cell| cell.treatment.path.as_proxy().is_some()).collect();
    let mut found: Vec<_> =
        proxied.iter().map(|cell| (cell.treatment.server.engine, cell.workload)).collect();
    found.sort_by_key(|(engine, workload)| (workload.to_string(), engine.to_string()));
    let both = [Engine::MariaDb, Engine::Postgres];
    let expected =
        [Workload::Connect, Workload::PointSelect].map(|workload| both.map(|engine| (engine, workload)));
    assert_eq!(found, expected.concat());
    // Each is compared with plain.
    for cell in proxied {
        let at = plan.cells.iter().position(|other| other == cell).unwrap();
        assert_eq!(plan.cells[plan.baseline_of(at)].treatment.path, Path::Plain);
    }
    assert_eq!(Spec::from_toml(&spec.to_toml()), Ok(spec));
}

#[test]
fn a_quick_run_stays_quick() {
    const LIMIT: std::time::Duration = std::time::Duration::from_secs(165);
    for engines in [&[Engine::Postgres][..], &[Engine::MariaDb, Engine::Postgres], &[Engine::Postgres; 1]] {
        let (_, plan) = quick(engines);
        assert!(plan.expected_duration() <= LIMIT, "{engines:?}: {:?}", plan.expected_duration());
        assert_eq!(plan.servers().len(), engines.len());
    }
    // Whatever is too much is left out: TLS 1.2 first, then servers.
    let three: Vec<ServerLevel> =
        ["postgres-15", "postgres-17", "postgres-18"].map(|level| level.parse().unwrap()).to_vec();
    let plan = Plan::new(&Spec::quick_with_sidecar(&three), 1).unwrap();
    assert!(plan.expected_duration() <= LIMIT && plan.servers().len() < 3);
    assert!(plan.cells.iter().any(|cell| cell.treatment.path.as_proxy().is_some()));
}

const ON_HOSTS: &str = "load-hosts = [\"ssh:load1,app@load2\", \"exec:docker exec -i load3\"]\nserver-host = \"ssh:db\"\n\n\
                        [[grid]]\nserver = [\"there=postgres://app@db.example/shop\"]\npath = [\"plain\", \"unix\", \"tls1.3\"]\n";

#[test]
fn hosts_are_read_and_printed_and_planned() {
    let spec = Spec::from_toml(ON_HOSTS).unwrap();
    assert_eq!(spec.load_hosts.iter().map(LoadHosts::count).sum::<usize>(), 3);
    assert_eq!(Spec::from_toml(&spec.to_toml()), Ok(spec.clone()));
    let plan = Plan::new(&spec, 1).unwrap();
    assert_eq!((&plan.load_hosts, &plan.server_host), (&spec.load_hosts, &spec.server_host));
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    // Records of earlier versions have neither.
    let local = Plan::new(&Spec { load_hosts: vec![], server_host: None, ..spec }, 1).unwrap();
    assert!(!serde_json::to_string(&local).unwrap().contains("host\":"), "{local:?}");
}

#[test]
fn hosts_that_cannot_be_used_are_refused_in_one_line() {
    let error = |change: fn(&mut Spec)| {
        let mut spec = Spec::from_toml(ON_HOSTS).unwrap();
        change(&mut spec);
        spec.validate().unwrap_err().to_string()
    };
    let private = |spec: &mut Spec| spec.grids[0].server = vec!["mariadb".parse().unwrap()];
    let said = error(private);
    assert!(
        said.starts_with("load host ssh:load1,app@load2 cannot reach server mariadb: private servers"),
        "{said}"
    );
    let said = error(|spec| spec.load_hosts.push("ssh:load1".parse().unwrap()));
    assert_eq!(said, "load-hosts: host \"load1\" is listed twice");
    let said = error(|spec| spec.pin = CpuPinning::Auto);
    assert!(said.starts_with("pin = \"auto\""), "{said}");
    let said = error(|spec| {
        spec.load_hosts.clear();
        spec.grids[0].server = vec!["mariadb".parse().unwrap()];
    });
    assert!(said.starts_with("server-host reads the CPU of a server at a URL"), "{said}");
}

#[test]
fn what_needs_the_coordinators_machine_is_skipped_on_hosts() {
    let mut spec = Spec::from_toml(ON_HOSTS).unwrap();
    spec.load_hosts = vec!["exec:env".parse().unwrap()];
    spec.server_host = None;
    let skipped = |spec: &Spec, path: &str| {
        let server = vec!["postgres".parse().unwrap()];
        let path = vec!["plain".parse().unwrap(), path.parse().unwrap()];
        let grids = vec![Grid { server, path, ..Grid::default() }];
        let plan = Plan::new(&Spec { grids, ..spec.clone() }, 1).unwrap();
        plan.skipped.iter().map(|skipped| skipped.reason.clone()).collect::<Vec<_>>()
    };
    for (path, reason) in [
        ("unix", "load hosts have no unix socket of the server"),
        ("ssh-aes256-gcm", "a tunnel begins on this machine"),
        ("pgbouncer", "a proxy runs on this machine"),
        ("tls1.3-p256+client=openssl-3.5", "load hosts have no OpenSSL 3.5 of ciphertoll"),
    ] {
        let reasons = skipped(&spec, path);
        assert!(reasons.len() == 1 && reasons[0].starts_with(reason), "{path}: {reasons:?}");
    }
    assert_eq!(skipped(&spec, "tls1.3-p256+client=rustls"), Vec::<String>::new());
}
