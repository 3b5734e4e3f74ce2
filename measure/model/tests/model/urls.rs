//! Servers at URLs: what the client alone can choose, and what is compared where plaintext is refused.

use std::net::Ipv6Addr;

use ciphertoll_model::{
    Auth, DocumentsLogin, Limitations, LoginMechanism, Plan, Prepare, ReadPreference, Refusal, Refused,
    SAFE_CONNECTS_PER_S, SAFE_OPERATIONS_PER_S, ServerLevel, ServerUrl, SetConnection, Spec, SpecError,
    TlsVersion, UrlError, UrlHost, Workload,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::prelude::*;
use proptest::sample::select;

fn server(url: &str) -> ServerLevel {
    format!("staging={url}").parse().unwrap()
}

fn quick(url: &str) -> Spec {
    Spec::quick_at(&[server(url)])
}

fn spec(toml: &str) -> Spec {
    Spec::from_toml(toml).unwrap()
}

fn reasons(plan: &Plan) -> Vec<&str> {
    plan.skipped.iter().map(|skipped| skipped.reason.as_str()).collect()
}

fn ids(plan: &Plan) -> Vec<String> {
    plan.cells.iter().map(ToString::to_string).collect()
}

#[test]
fn without_a_word_on_tls_both_are_measured_as_the_server_has_them() {
    let plan = Plan::new(&quick("postgres://app@db.example/shop"), 1).unwrap();
    assert_eq!(
        ids(&plan),
        [
            "staging/plain/as-asked/-/native/as-is/as-is/connect/1/10000",
            "staging/tls1.3/as-asked/per-connect/native/as-is/as-is/connect/1/10000",
            "staging/tls1.2/as-asked/per-connect/native/as-is/as-is/connect/1/10000",
            "staging/plain/as-asked/-/native/as-is/as-is/bulk-read+bytes=16k/4/10000",
            "staging/tls1.3/as-asked/per-connect/native/as-is/as-is/bulk-read+bytes=16k/4/10000",
            "staging/tls1.2/as-asked/per-connect/native/as-is/as-is/bulk-read+bytes=16k/4/10000",
        ]
    );
    assert_eq!(plan.skipped, []);
}

#[test]
fn a_url_that_asks_for_tls_gets_nothing_else() {
    let plan = Plan::new(&quick("postgres://app@db.example/shop?sslmode=verify-full"), 1).unwrap();
    assert!(plan.cells.iter().all(|cell| cell.treatment.path.as_tls().is_some()));
    assert!(reasons(&plan)[0].contains("requires TLS"), "{:?}", reasons(&plan));
    assert_eq!(plan.baseline.to_string(), "path=tls1.3");
    let plan = Plan::new(&quick("mysql://app@db.example/?ssl-mode=DISABLED"), 1).unwrap();
    assert!(plan.cells.iter().all(|cell| cell.treatment.path.as_tls().is_none()));
}

fn knowing(spec: &Spec, refusal: Refusal) -> Plan {
    Plan::knowing(spec, 1, &Limitations { refusals: &[refusal], ..Limitations::default() }).unwrap()
}

#[test]
fn where_plaintext_is_refused_the_first_tls_path_is_the_baseline() {
    let other = ServerLevel::at("other", "postgres://app@other.example".parse().unwrap()).unwrap();
    let spec = Spec::quick_at(&[server("mysql://app@db.example"), other]);
    let refusal = Refusal {
        server: "staging".to_owned(),
        what: Refused::Transport(None),
        reason: "it wants TLS".to_owned(),
    };
    let plan = knowing(&spec, refusal);
    assert_eq!(reasons(&plan), ["it wants TLS", "it wants TLS"]);
    let baselines: Vec<String> =
        plan.strata.iter().map(|stratum| plan.cells[stratum.baseline].treatment.path.to_string()).collect();
    assert_eq!(baselines, ["tls1.3", "tls1.3", "plain", "plain"]);
    assert!(plan.strata.iter().all(|stratum| !stratum.treatments.is_empty()));
}

#[test]
fn a_version_that_is_not_spoken_is_left_out() {
    let refusal = Refusal {
        server: "staging".to_owned(),
        what: Refused::Transport(Some(TlsVersion::Tls12)),
        reason: "too old".to_owned(),
    };
    let plan = knowing(&quick("mysql://app@db.example"), refusal);
    assert_eq!((plan.cells.len(), reasons(&plan)), (4, vec!["too old", "too old"]));
}

#[test]
fn a_server_that_is_not_here_is_left_out_where_another_one_is() {
    let spec = Spec::quick(&["mysql-8.0", "mariadb"].map(|level| level.parse().unwrap()));
    let reason = "no mysql-8.0 found; fetch it".to_owned();
    let absent = Refusal { server: "mysql-8.0".to_owned(), what: Refused::Everything, reason };
    let plan = knowing(&spec, absent);
    assert_eq!(plan.servers(), [&"mariadb".parse::<ServerLevel>().unwrap()]);
    assert_eq!(plan.skipped.len(), plan.cells.len());
    assert!(reasons(&plan).iter().all(|reason| reason.contains("fetch it")), "{:?}", reasons(&plan));
}

#[test]
fn what_only_the_server_could_choose_is_skipped_with_the_reason() {
    let plan = Plan::new(
        &spec(
            r#"
            [[grid]]
            server = ["staging=postgres://app@db.example"]
            path = ["plain", "tls1.3-p256", "unix"]
            auth = ["as-asked", "md5"]
            driver = ["native", "pgbench"]
            workload = ["connect"]
            "#,
        ),
        1,
    )
    .unwrap();
    assert_eq!(ids(&plan), ["staging/plain/as-asked/-/native/as-is/as-is/connect/1/10000"]);
    for part in [
        "cannot be chosen: write tls1.3",
        "for either TCP or a unix socket",
        "recorded, not chosen",
        "external drivers",
    ] {
        assert!(reasons(&plan).iter().any(|reason| reason.contains(part)), "{part}: {:?}", reasons(&plan));
    }
}

#[test]
fn a_private_server_is_told_how_to_ask() {
    let plan =
        Plan::new(&spec("[[grid]]\nserver = [\"postgres\"]\nauth = [\"as-asked\", \"trust\"]"), 1).unwrap();
    assert!(plan.cells.iter().all(|cell| cell.treatment.auth == Auth::Trust));
    let plan = Plan::new(&spec("[[grid]]\npath = [\"plain\", \"tls1.3\"]"), 1).unwrap();
    assert_eq!(plan.cells[1].treatment.path.to_string(), "tls1.3-p256");
}

#[test]
fn tables_are_made_only_where_that_was_asked_for() {
    let mut spec = quick("mysql://app@db.example");
    spec.grids.truncate(1);
    spec.grids[0].workload = vec![Workload::PointSelect, Workload::Connect];
    let plan = Plan::new(&spec, 1).unwrap();
    assert!(plan.cells.iter().all(|cell| cell.workload == Workload::Connect));
    assert!(reasons(&plan)[0].contains("--prepare"), "{:?}", reasons(&plan));
    spec.prepare = Prepare::Yes;
    assert_eq!(Plan::new(&spec, 1).unwrap().cells.len(), 6);
}

#[test]
fn connects_are_few_unless_more_are_asked_for() {
    let limits = |spec: &Spec| {
        let plan = Plan::new(spec, 1).unwrap();
        [0, 3].map(|cell| plan.rate_limit_per_s(&plan.cells[cell]))
    };
    let mut spec = quick("mysql://app@db.example");
    assert_eq!(limits(&spec), [Some(SAFE_CONNECTS_PER_S), Some(SAFE_OPERATIONS_PER_S)]);
    // 16 MiB of results each second.
    let mut long = spec.clone();
    long.grids[1].workload = vec!["bulk-read+bytes=256k".parse().unwrap()];
    assert_eq!(limits(&long)[1], Some(64));
    spec.max_rate = Some(500);
    assert_eq!(limits(&spec), [Some(500); 2]);
    spec = Spec { max_rate: Some(500), ..Spec::quick(&[ServerLevel::of(ciphertoll_model::Engine::MariaDb)]) };
    assert_eq!(limits(&spec), [None; 2]);
}

#[test]
fn a_statement_and_its_workload_belong_together() {
    let with = |query: Option<&str>, workload| {
        let mut spec = quick("mysql://app@db.example");
        spec.query = query.map(ToOwned::to_owned);
        spec.grids[0].workload = vec![workload];
        spec.validate()
    };
    assert_eq!(with(None, Workload::Query), Err(SpecError::NoQuery));
    assert_eq!(with(Some("SELECT 1"), Workload::Connect), Err(SpecError::UnusedQuery));
    assert_eq!(with(Some("SELECT 1"), Workload::Query), Ok(()));
}

#[test]
fn a_password_does_not_get_into_a_specification() {
    let toml = "[[grid]]\nserver = [\"staging=postgres://app:hunter2@db.example\"]";
    let error = Spec::from_toml(toml).unwrap_err().to_string();
    assert!(error.contains("password") && !error.contains("hunter2"), "{error}");
}

fn host_of_documents() -> impl Strategy<Value = UrlHost> {
    let name =
        prop_oneof!["[a-z][a-z0-9-]{0,8}(\\.[a-z]{1,4})?", any::<Ipv6Addr>().prop_map(|ip| ip.to_string())];
    (name, 1..=u16::MAX).prop_map(|(name, port)| UrlHost { name, port })
}

/// What is written, and what it says.
fn url_of_documents() -> impl Strategy<Value = (String, String, Vec<UrlHost>, String, DocumentsLogin)> {
    let parts = (
        any::<String>().prop_filter("a user", |user| !user.is_empty()),
        prop::collection::vec(host_of_documents(), 1..5),
        "[a-z]{0,5}",
        any::<String>().prop_filter("a value", |source| !source.is_empty()),
        select(ReadPreference::ALL.to_vec()),
        select(vec![
            ("", LoginMechanism::Negotiated),
            ("&authMechanism=SCRAM-SHA-256", LoginMechanism::ScramSha256),
            ("&authMechanism=SCRAM-SHA-1", LoginMechanism::ScramSha1),
        ]),
    );
    parts.prop_map(|(user, hosts, database, auth_source, read_preference, (option, mechanism))| {
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let listed = hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let text = format!(
            "mongodb://{}@{listed}/{database}?authSource={}&readPreference={}{option}",
            encoded(&user),
            encoded(&auth_source),
            read_preference.label(),
        );
        (text, user, hosts, database, DocumentsLogin { auth_source, mechanism, read_preference })
    })
}

proptest! {
    #[test]
    fn what_is_written_for_documents_is_read((text, user, hosts, database, login) in url_of_documents()) {
        let url: ServerUrl = text.parse().unwrap();
        prop_assert_eq!(url.to_string(), text);
        prop_assert_eq!(&url.user, &user);
        prop_assert_eq!(url.database.clone().unwrap_or_default(), database);
        let told = url.documents.clone().unwrap();
        prop_assert_eq!(&told.hosts, &hosts);
        prop_assert_eq!(&told.login, &login);
        let chosen = url.for_member(&hosts[hosts.len() - 1]).unwrap();
        prop_assert_eq!(&chosen.to_string().parse::<ServerUrl>().unwrap(), &chosen);
        let of_member = chosen.documents.unwrap();
        prop_assert_eq!(&of_member.hosts[..], &hosts[hosts.len() - 1..]);
        prop_assert_eq!((of_member.login, of_member.connection), (login, SetConnection::Direct));
    }

    /// Whatever is taken has no password, and prints as it was written.
    #[test]
    fn no_text_makes_the_parser_of_documents_panic(rest in "[a-c:@/?&=,%\\[\\]0-9.]{0,24}") {
        let text = format!("mongodb://{rest}");
        let (without, password) = ServerUrl::split_password(&text);
        prop_assert!(password.is_some() || without == text);
        if let Ok(url) = text.parse::<ServerUrl>() {
            prop_assert_eq!(password, None);
            prop_assert_eq!(url.to_string(), text);
        }
    }

    /// The same of SQL servers.
    #[test]
    fn no_text_makes_the_parser_of_sql_servers_panic(
        scheme in select(vec!["postgres", "mysql"]),
        rest in "[a-c:@/?&=,%#+\\[\\]0-9.]{0,24}|[a-c]{0,2}(:[a-c]?)?@[a-c,%/2F]{0,6}(:[0-9]{0,5})?(/[a%2/]{0,4})?(\\?(host|socket|port)=[/a%2F0-9]{0,5})?",
    ) {
        let text = format!("{scheme}://{rest}");
        let (without, password) = ServerUrl::split_password(&text);
        prop_assert!(password.is_some() || without == text);
        if let Ok(url) = text.parse::<ServerUrl>() {
            prop_assert_eq!(password, None);
            prop_assert_eq!(url.to_string(), text);
        }
    }

    /// The same of SQL servers.
    #[test]
    fn a_password_for_sql_servers_is_split_off(
        password in "[A-Z!#$%&'()*+:@/? ]{1,16}",
        tail in "(/db)?(\\?sslmode=require)?",
    ) {
        let encoded = utf8_percent_encode(&password, NON_ALPHANUMERIC).to_string();
        let text = format!("postgres://app:{encoded}@h:1{tail}");
        let (without, split) = ServerUrl::split_password(&text);
        prop_assert_eq!(split, Some(password));
        prop_assert_eq!(&without, &format!("postgres://app@h:1{tail}"));
        prop_assert!(without.parse::<ServerUrl>().is_ok());
        prop_assert_eq!(text.parse::<ServerUrl>(), Err(UrlError::Password));
    }

    /// However it is written out, a password leaves nothing of itself behind.
    #[test]
    fn a_password_for_documents_is_split_off(password in "[A-Z!#$%&'()*+:@/? ]{1,16}", tail in "(/db)?(\\?tls=true)?") {
        let encoded = utf8_percent_encode(&password, NON_ALPHANUMERIC).to_string();
        let text = format!("mongodb://app:{encoded}@h1:1,h2{tail}");
        let (without, split) = ServerUrl::split_password(&text);
        prop_assert_eq!(split, Some(password));
        prop_assert_eq!(&without, &format!("mongodb://app@h1:1,h2{tail}"));
        prop_assert!(without.parse::<ServerUrl>().is_ok());
        prop_assert_eq!(text.parse::<ServerUrl>(), Err(UrlError::Password));
    }
}

#[test]
fn documents_are_measured_by_connects_and_by_what_is_loaded_there() {
    let mut spec = quick("mongodb://app@db.example/?tls=true");
    let plan = Plan::new(&spec, 1).unwrap();
    assert!(plan.cells.iter().all(|cell| cell.workload == Workload::Connect), "{:?}", ids(&plan));
    assert_eq!(plan.cells.len(), 2);
    spec.grids[0].workload = vec![Workload::FindOne, Workload::Connect, Workload::PointSelect];
    let plan = Plan::new(&spec, 1).unwrap();
    for part in ["it reads documents that staging lacks: --prepare loads them", "needs SQL"] {
        assert!(reasons(&plan).iter().any(|reason| reason.contains(part)), "{part}: {:?}", reasons(&plan));
    }
    spec.prepare = Prepare::Yes;
    assert_eq!(Plan::new(&spec, 1).unwrap().cells.len(), 4);
}
