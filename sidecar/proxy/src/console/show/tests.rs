use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::config::Config;
use crate::console::table::Cell;

const URL: &str = "postgres://app@db.example:5433/shop?sslmode=disable";

fn facts() -> Facts {
    facts_of(URL, "")
}

fn facts_of(url: &str, more: &str) -> Facts {
    let text = format!(
        "listen = [\"unix:/run/x/.s.PGSQL.6433\", \"tcp:127.0.0.1:6432\"]\nadmin = \"unix:/run/x/admin\"\n\
                server = \"{url}\"\n[console]\nadmin-users = [\"app\"]\n[[user]]\nname = \"reports\"\n{more}"
    );
    let resolved = Config::from_toml(&text).unwrap().resolve().unwrap();
    Facts::of(&resolved.settings, resolved.log)
}

fn client(number: u32, state: ClientState, now: Instant) -> ClientView {
    ClientView {
        number,
        index: number as usize,
        login: (state != ClientState::LoggingIn).then(|| ("app".to_owned(), "shop".to_owned())),
        replication: None,
        state,
        peer: Some(Peer::Process { uid: 1, pid: 77 }),
        connected: now,
        since: now.checked_sub(Duration::from_millis(2_500)).unwrap(),
        server: None,
        tls: String::new(),
        application_name: String::new(),
    }
}

fn server(number: u32, state: ServerState, now: Instant) -> ServerView {
    ServerView {
        number,
        index: number as usize,
        host: None,
        user: "app".to_owned(),
        database: "shop".to_owned(),
        replication: None,
        state,
        opened: now,
        client: None,
        must_close: false,
        process: Some(4242),
        tls: "TLSv1.3/X".to_owned(),
        application_name: String::new(),
    }
}

fn snapshot() -> Snapshot {
    let now = Instant::now();
    let clients = [
        ClientState::Active,
        ClientState::Parked,
        ClientState::Waiting,
        ClientState::LoggingIn,
        ClientState::Leaving,
    ];
    let servers = [ServerState::Active, ServerState::Idle, ServerState::Opening, ServerState::Resetting];
    Snapshot {
        facts: Arc::new(facts()),
        operations: Arc::default(),
        clients: clients.into_iter().zip(1..).map(|(state, number)| client(number, state, now)).collect(),
        servers: servers.into_iter().zip(1..).map(|(state, number)| server(number, state, now)).collect(),
        sessions: vec![(99, now)],
        now,
    }
}

fn value(table: &ConsoleTable, row: usize, column: &str) -> Cell {
    let at = table.columns.iter().position(|(name, _)| *name == column).unwrap_or_else(|| panic!("{column}"));
    table.rows[row][at].clone()
}

#[test]
fn a_pool_counts_clients_and_connections_by_pgbouncers_states() {
    let table = snapshot().pools();
    for (column, expected) in [
        ("cl_active", 2),
        ("cl_waiting", 1),
        ("sv_active", 1),
        ("sv_idle", 1),
        ("sv_login", 1),
        ("sv_tested", 1),
        ("maxwait", 2),
        ("maxwait_us", 500_000),
    ] {
        assert_eq!(value(&table, 0, column), Cell::Number(expected), "{column}");
    }
    assert_eq!(value(&table, 0, "pool_mode"), "session".into());
    assert_eq!(
        (value(&table, 1, "database"), value(&table, 1, "cl_active")),
        (CONSOLE.into(), Cell::Number(1))
    );
}

#[test]
fn clients_that_have_not_logged_in_or_are_leaving_are_among_the_sockets_only() {
    let table = snapshot().clients();
    let states: Vec<Cell> = (0..table.rows.len()).map(|row| value(&table, row, "state")).collect();
    assert_eq!(states, ["active", "idle", "waiting", "active"].map(Cell::from));
    assert_eq!(
        (value(&table, 2, "wait"), value(&table, 2, "wait_us")),
        (Cell::Number(2), Cell::Number(500_000))
    );
    assert_eq!((value(&table, 0, "addr"), value(&table, 0, "port")), ("unix".into(), Cell::Number(6433)));
    assert_eq!(value(&table, 0, "remote_pid"), Cell::Number(77));
    assert_eq!(value(&table, 3, "id"), Cell::Number(99));
    let all = snapshot().sockets(Sockets::All);
    assert!((0..all.rows.len()).any(|row| value(&all, row, "state") == "cl_login".into()));
    let active = snapshot().sockets(Sockets::Active);
    let states: Vec<Cell> = (0..active.rows.len()).map(|row| value(&active, row, "state")).collect();
    assert_eq!(states, ["cl_active", "sv_active"].map(Cell::from));
}

#[test]
fn databases_are_those_of_the_settings_of_clients_and_of_operators() {
    let mut operations = Operations::default();
    operations.pause(&crate::operations::Scope::Database("old".to_owned())).unwrap();
    operations.set_disabled("shut", true).unwrap();
    let table = Snapshot { operations: Arc::new(operations), ..snapshot() }.databases();
    let names: Vec<Cell> = (0..table.rows.len()).map(|row| value(&table, row, "name")).collect();
    assert_eq!(names, ["old", "shop", "shut", CONSOLE].map(Cell::from));
    let flags = |row| (value(&table, row, "paused"), value(&table, row, "disabled"));
    assert_eq!(flags(0), (Cell::Number(1), Cell::Number(0)));
    assert_eq!(flags(2), (Cell::Number(0), Cell::Number(1)));
    assert_eq!(
        (value(&table, 1, "host"), value(&table, 1, "port")),
        ("db.example".into(), Cell::Number(5433))
    );
    assert_eq!(value(&table, 1, "current_connections"), Cell::Number(4));
}

#[test]
fn limits_of_users_and_databases_are_shown_as_pgbouncers() {
    let limits = "pool-size = 3\nmax-clients = 5\n[[database]]\nname = \"shop\"\npool-size = 4\n\
                  min-pool-size = 2\nmax-clients = 6\n[limits]\nquery-time = \"1500ms\"\n";
    let facts = Arc::new(facts_of(URL, limits));
    let shown = Snapshot { facts: facts.clone(), ..snapshot() };
    let (databases, users) = (shown.databases(), shown.users());
    let row = |table: &ConsoleTable, name: &str| {
        (0..table.rows.len()).find(|row| value(table, *row, "name") == name.into()).unwrap()
    };
    let (shop, reports, app) = (row(&databases, "shop"), row(&users, "reports"), row(&users, "app"));
    for (table, row, column, expected) in [
        (&databases, shop, "max_connections", 4),
        (&databases, shop, "min_pool_size", 2),
        (&databases, shop, "max_client_connections", 6),
        (&users, reports, "max_user_connections", 3),
        (&users, reports, "max_user_client_connections", 5),
        (&users, app, "max_user_connections", 0),
    ] {
        assert_eq!(value(table, row, column), Cell::Number(expected), "{column}");
    }
    let table = config(&facts);
    let query = (0..table.rows.len()).find(|row| value(&table, *row, "key") == "query_timeout".into());
    assert_eq!(value(&table, query.unwrap(), "value"), "1.5".into());
}

#[test]
fn a_connection_is_shown_with_the_host_that_it_is_to() {
    let facts = facts_of("postgres://app@one:1,two:2/shop?sslmode=disable&load_balance_hosts=random", "");
    let now = Instant::now();
    let to = |number, host| ServerView { host, ..server(number, ServerState::Idle, now) };
    let servers = vec![to(1, Some(1)), to(2, Some(0)), to(3, None)];
    let shown = Snapshot { facts: Arc::new(facts), servers, ..snapshot() };
    let table = shown.servers();
    let places: Vec<_> = (0..3).map(|row| (value(&table, row, "addr"), value(&table, row, "port"))).collect();
    assert_eq!(
        places,
        [("two".into(), Cell::Number(2)), ("one".into(), Cell::Number(1)), (Cell::Null, Cell::Null)]
    );
    let table = shown.databases();
    assert_eq!(value(&table, 0, "host"), "one:1,two:2".into());
    assert_eq!(value(&table, 0, "load_balance_hosts"), "random".into());
}

#[test]
fn every_table_has_the_columns_of_its_rows() {
    let snapshot = snapshot();
    let operations = Operations::default();
    for table in [
        snapshot.users(),
        snapshot.lists(1),
        snapshot.fds(),
        snapshot.servers(),
        config(&snapshot.facts),
        state(&operations),
        version(),
        memory(),
        dns_hosts(vec![KnownName { name: "db".to_owned(), ttl_s: 3, addresses: Vec::new() }]),
    ] {
        assert!(!table.rows.is_empty(), "{table:?}");
        for row in &table.rows {
            assert_eq!(row.len(), table.columns.len(), "{table:?}");
        }
    }
    for empty in [peers(), peer_pools(), dns_zones()] {
        assert!(empty.rows.is_empty() && !empty.columns.is_empty());
    }
}
