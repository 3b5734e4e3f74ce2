//! A real FerretDB: started, used over every path, restarted and removed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use ciphertoll_lab::{ClientAccount, Error, LoadCounts, Server, Tables};
use ciphertoll_model::{Auth, Endpoint, Engine, Path, SecurityLevel, ServerKey, ServerLevel, ycsb};
use ciphertoll_net::blocking::Client;
use ciphertoll_record::{ProcessEnd, ProcessIdentity};
use ciphertoll_testing::missing;

use crate::common::QueryText;
use crate::fixture::{Fixture, Way, connect, connect_as, scale};
use crate::test_client::TestClient;

const DOCUMENTS: u32 = 1_700;
const AUTH: &str = "scram-15000";

/// The installed FerretDB; prints a reason to skip if there is none.
fn fixture() -> Option<Fixture> {
    let level = ServerLevel::of(Engine::FerretDb);
    match ciphertoll_lab::find(&level) {
        Ok(_) => Fixture::of(&level),
        Err(error) => {
            missing(&error);
            None
        }
    }
}

fn tables() -> Tables {
    Tables { ycsb: Some(scale(DOCUMENTS)), ..Tables::default() }
}

fn auth(text: &str) -> Auth {
    text.parse().unwrap()
}

/// The server's number of documents.
fn count(client: &mut Client) -> String {
    let answer = client.query_text(r#"{"count": "usertable"}"#).unwrap().unwrap();
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    answer["n"].to_string()
}

fn document(client: &mut Client, key: &str) -> serde_json::Value {
    let command = format!(r#"{{"find": "usertable", "filter": {{"_id": "{key}"}}, "limit": 1}}"#);
    serde_json::from_str(&client.query_text(&command).unwrap().unwrap()).unwrap()
}

fn process(server: &Server) -> ProcessIdentity {
    ProcessIdentity::of(server.pid()).unwrap()
}

#[test]
fn documents_are_readable_over_every_transport() {
    let Some(fixture) = fixture() else { return };
    let mut server = fixture.start(&tables(), None).unwrap();
    assert_eq!(server.version(), fixture.build.version);
    assert!(server.tls_library().unwrap().contains("crypto/tls"), "{:?}", server.tls_library());
    assert_eq!((server.database(), server.user()), ("ycsb", "ciphertoll"));
    assert_eq!(server.settings()["handler"], "sqlite");
    assert_ne!(server.settings()["mongodb-version"], server.version());
    server.prewarm().unwrap();
    assert_eq!(server.buffer_misses().unwrap(), None);
    for name in [AUTH, "scram-sha1"] {
        server.prepare_auth(auth(name)).unwrap();
        for way in [Way::Unix, Way::Plain, Way::Tls] {
            let mut client = connect(&server, auth(name), way).unwrap();
            assert_eq!(count(&mut client), "1700", "{name} {way:?}");
            let first = document(&mut client, "user6284781860667377211");
            assert_eq!(first["field9"].as_str().unwrap().len(), 100);
            client.close().unwrap();
        }
    }
    let requests = server.connection_counts().unwrap().requests.unwrap();
    connect(&server, auth(AUTH), Way::Plain).unwrap().close().unwrap();
    assert!(server.connection_counts().unwrap().requests.unwrap() > requests);
}

#[test]
fn documents_are_loaded_into_a_running_server() {
    let Some(fixture) = fixture() else { return };
    let server = fixture.start(&Tables::default(), None).unwrap();
    for documents in [DOCUMENTS, 3] {
        server.drop_documents().unwrap();
        let loaded = server.load_documents(scale(documents), &mut |_| (), &|| false).unwrap();
        let documents = u64::from(documents);
        assert_eq!(loaded, LoadCounts { sent: documents, inserted: documents });
        let mut client = connect(&server, auth(AUTH), Way::Unix).unwrap();
        assert_eq!(count(&mut client), documents.to_string());
        client.close().unwrap();
    }
}

/// All documents, as text.
fn all(server: &Server) -> BTreeSet<String> {
    let mut client = connect(server, auth(AUTH), Way::Unix).unwrap();
    let rows = client.query(r#"{"find": "usertable"}"#).unwrap();
    let count = rows.len();
    let text = |row: Vec<Option<Vec<u8>>>| String::from_utf8(row[0].clone().unwrap()).unwrap();
    let all: BTreeSet<String> = rows.into_iter().map(text).collect();
    assert_eq!(all.len(), count, "none is there twice");
    client.close().unwrap();
    all
}

#[test]
fn an_interrupted_load_is_continued() {
    // The maximum of a single reply.
    const RECORDS: u32 = 12_000;
    const HALF_WAY: u64 = 1_500;
    let Some(fixture) = fixture() else { return };
    let server = fixture.start(&Tables::default(), None).unwrap();
    let load = |stop: &dyn Fn() -> bool, said: &mut Vec<String>| {
        server.load_documents(scale(RECORDS), &mut |what| said.push(what.to_owned()), stop)
    };
    let client = RefCell::new(connect(&server, auth(AUTH), Way::Unix).unwrap());
    let find = format!(r#"{{"find":"usertable","filter":{{"_id":"{}"}},"limit":1}}"#, ycsb::key(HALF_WAY));
    let is_half_way = || client.borrow_mut().query_text(&find).is_ok_and(|found| found.is_some());
    let interrupted = load(&is_half_way, &mut Vec::new());
    assert!(matches!(interrupted, Err(Error::Interrupted)), "{interrupted:?}");
    let before = all(&server);
    assert!(before.len() > HALF_WAY as usize && before.len() < RECORDS as usize, "{}", before.len());

    let mut said = Vec::new();
    let rest = load(&|| false, &mut said).unwrap();
    assert!(
        said[0].ends_with(&format!("continuing after {} of {RECORDS} documents", before.len())),
        "{said:?}"
    );
    assert!(rest.sent < u64::from(RECORDS) && rest.sent >= (RECORDS as usize - before.len()) as u64);
    let after = all(&server);
    assert!(before.is_subset(&after) && after.len() == RECORDS as usize);
    assert_eq!(load(&|| false, &mut Vec::new()).unwrap().sent, 0, "all is there");

    // A collection that is not the beginning of a load is replaced.
    let foreign = r#"{"insert":"usertable","documents":[{"_id":"somebody's"}]}"#;
    client.borrow_mut().execute(foreign).unwrap();
    assert_eq!(load(&|| false, &mut Vec::new()).unwrap().sent, u64::from(RECORDS));
    assert_eq!(all(&server), after);
}

#[test]
fn inserted_records_are_removed() {
    let Some(fixture) = fixture() else { return };
    let server = fixture.start(&tables(), None).unwrap();
    let before = all(&server);
    let mut client = connect(&server, auth(AUTH), Way::Unix).unwrap();
    let firsts = [1, 2].map(|seed| ycsb::first_insert(seed, 0));
    for (first, records) in firsts.into_iter().zip([3, 700]) {
        // A failed insert.
        let numbers = (0..records).filter(|number| *number != 1);
        let documents: Vec<String> =
            numbers.map(|number| format!(r#"{{"_id":"{}"}}"#, ycsb::key(first + number))).collect();
        let insert = format!(r#"{{"insert":"usertable","documents":[{}]}}"#, documents.join(","));
        client.execute(&insert).unwrap();
    }
    assert_eq!(count(&mut client), (DOCUMENTS + 2 + 699).to_string());
    server.remove_inserted(&firsts).unwrap();
    assert_eq!(all(&server), before);
    server.remove_inserted(&[]).unwrap();
}

#[test]
fn every_supported_version_and_key_is_negotiated() {
    let Some(fixture) = fixture() else { return };
    let mut server = fixture.start_with(SecurityLevel::Weak, &[]).unwrap();
    for path in [
        "tls1.3-p256",
        "tls1.2-p256",
        "tls1.2-rsa2048",
        "tls1.3-rsa2048+chain=3",
        "tls1.3-ed25519",
        "tls1.3-p384",
        "tls1.2-rsa1024",
        "tls1.3-p256+suite=TLS_CHACHA20_POLY1305_SHA256",
        "tls1.2-rsa2048+suite=ECDHE-RSA-AES256-SHA",
        "tls1.3-p256+group=p521",
    ] {
        let test_client = TestClient::new(path, auth(AUTH));
        test_client.prepare(&mut server).unwrap_or_else(|error| panic!("{path}: {error}"));
        let client = test_client.connect(&server, |_| ()).unwrap_or_else(|error| panic!("{path}: {error}"));
        let agreed = client.negotiated().unwrap();
        let asked = path.parse::<Path>().unwrap().as_tls().unwrap();
        assert_eq!(agreed.version, asked.parameters.version.label(), "{path}");
        client.close().unwrap();
    }
}

#[test]
fn a_new_certificate_restarts_the_server_on_the_same_ports() {
    let Some(fixture) = fixture() else { return };
    let mut server = fixture.start(&tables(), None).unwrap();
    let (first, ports) = (process(&server), (server.tcp_endpoint(), server.tls_endpoint()));
    server.install_certificate(ServerKey::P256).unwrap();
    assert_eq!(process(&server), first, "it is in use already");
    server.install_certificate(ServerKey::Rsa2048).unwrap();
    let second = process(&server);
    assert_ne!(second, first);
    assert!(!first.is_alive() && server.is_alive());
    assert_eq!((server.tcp_endpoint(), server.tls_endpoint()), ports);
    assert_eq!(server.memory_pid(), Some(server.pid()));
    let mut client = connect(&server, auth(AUTH), Way::Tls).unwrap();
    assert_eq!(client.negotiated().unwrap().key, "rsa2048");
    assert_eq!(count(&mut client), "1700");
}

#[test]
fn invalid_logins_are_refused() {
    let Some(fixture) = fixture() else { return };
    let mut server = fixture.start(&Tables::default(), None).unwrap();
    let wrong = fixture.lab.scratch().path().join("wrong");
    fs::write(&wrong, "hunter2").unwrap();
    let account = server.account(auth(AUTH));
    for way in [Way::Unix, Way::Plain, Way::Tls] {
        let stranger = ClientAccount { password_file: wrong.clone(), ..account.clone() };
        assert!(connect_as(&server, stranger, way).is_err(), "{way:?}");
        let nobody = ClientAccount { user: "nobody".to_owned(), ..account.clone() };
        assert!(connect_as(&server, nobody, way).is_err(), "{way:?}");
        connect_as(&server, account.clone(), way).unwrap();
    }
    for refused in ["cert", "scram-4096", "md5", "native"] {
        let error = server.prepare_auth(auth(refused)).unwrap_err();
        assert!(matches!(error, Error::AuthUnavailable { .. }), "{error}");
        assert!(error.to_string().contains("FerretDB"), "{error}");
    }
    for refused in
        ["tls1.1-p256", "tls1.2-rsa2048+suite=AES256-SHA", "tls1.3-p256+direct", "tls1.2-p256+resume=id"]
    {
        let Ok(path) = refused.parse::<Path>() else { panic!("{refused}") };
        let error = server.prepare_tls(path.as_tls().unwrap()).unwrap_err();
        assert!(matches!(error, Error::TlsUnavailable(_)), "{refused}: {error}");
    }
}

#[test]
fn access_control_is_disabled_for_trust_only() {
    let Some(fixture) = fixture() else { return };
    let mut server = fixture.start(&tables(), None).unwrap();
    let works = |server: &Server, way| -> bool {
        let client = connect(server, Auth::Trust, way);
        client.is_ok_and(|mut client| client.execute(r#"{"count": "usertable"}"#).is_ok())
    };
    for _ in 0..2 {
        for way in [Way::Unix, Way::Plain, Way::Tls] {
            assert!(!works(&server, way), "{way:?}");
        }
        server.prepare_auth(Auth::Trust).unwrap();
        for way in [Way::Unix, Way::Plain, Way::Tls] {
            assert!(works(&server, way), "{way:?}");
        }
        server.prepare_auth(auth(AUTH)).unwrap();
        assert_eq!(count(&mut connect(&server, auth(AUTH), Way::Tls).unwrap()), "1700");
    }
}

#[test]
fn certificates_are_requested_only_if_required() {
    let Some(fixture) = fixture() else { return };
    let mut server = fixture.start(&Tables::default(), None).unwrap();
    let mutual = TestClient::new("tls1.3-p256+mtls", auth(AUTH));
    let without = TestClient::new("tls1.3-p256", auth(AUTH));
    for _ in 0..2 {
        mutual.prepare(&mut server).unwrap();
        mutual.connect(&server, |_| ()).unwrap();
        assert!(without.connect(&server, |_| ()).is_err());
        assert!(mutual.connect(&server, |settings| settings.identity = None).is_err());
        without.prepare(&mut server).unwrap();
        without.connect(&server, |_| ()).unwrap();
    }
}

#[test]
fn no_secret_is_in_arguments_logs_or_data() {
    let Some(fixture) = fixture() else { return };
    let mut server = fixture.start(&tables(), None).unwrap();
    server.prepare_auth(auth("scram-sha1")).unwrap();
    let password = fs::read_to_string(server.password_file()).unwrap();
    let arguments = fs::read_to_string(format!("/proc/{}/cmdline", server.pid())).unwrap();
    let log = fs::read_to_string(fixture.log()).unwrap();
    assert!(password.len() >= 24 && !arguments.contains(&password) && !log.contains(&password));
    let data = server.password_file().with_file_name("data");
    let told = std::process::Command::new("grep").args(["-rqF", &password]).arg(&data).status().unwrap();
    assert!(!told.success(), "the server stores the password");
    // Its account exists, so a restart needs no password.
    server.install_certificate(ServerKey::P384).unwrap();
    let environment = fs::read(format!("/proc/{}/environ", server.pid())).unwrap();
    assert!(!String::from_utf8_lossy(&environment).contains(&password));
}

#[test]
fn it_shuts_down_and_a_killed_one_is_reported() {
    let Some(fixture) = fixture() else { return };
    let server = fixture.start(&tables(), None).unwrap();
    let (identity, root) = (process(&server), server.ca_file().parent().unwrap().to_owned());
    assert_eq!(server.stop().unwrap(), ProcessEnd::Terminated);
    assert!(!identity.is_alive() && !root.exists());
    let mut server = fixture.start(&tables(), None).unwrap();
    let (pid, identity) = (nix::unistd::Pid::from_raw(server.pid()), process(&server));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    assert!(identity.wait(Duration::from_mins(1)).unwrap());
    assert!(matches!(server.check_survived(), Err(Error::Host(ciphertoll_host::Error::Died { .. }))));
    drop(server);
    // The template is unchanged.
    let server = fixture.start(&tables(), None).unwrap();
    assert_eq!(count(&mut connect(&server, auth(AUTH), Way::Plain).unwrap()), "1700");
}

#[test]
fn a_port_in_use_is_not_taken() {
    let Some(fixture) = fixture() else { return };
    let holder = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
    let taken = holder.local_addr().unwrap().port();
    let template = fixture.lab.template(&fixture.build, &Tables::default(), &mut |_| {}, &|| false).unwrap();
    let start = ciphertoll_lab::ServerStart { preferred_port: Some(taken), ..fixture.plain_start(&template) };
    let server = fixture.lab.start(&start).unwrap();
    let Endpoint::Tcp(address) = server.tcp_endpoint() else { panic!("a TCP endpoint") };
    assert_ne!(address.port(), taken);
}

#[test]
fn an_interrupted_load_leaves_no_template() {
    let Some(fixture) = fixture() else { return };
    let tables = Tables { ycsb: Some(scale(400_000)), ..Tables::default() };
    let loading = Cell::new(false);
    let mut progress = |what: &str| loading.set(loading.get() || what.contains("of 400000 documents"));
    let result = fixture.lab.template(&fixture.build, &tables, &mut progress, &|| loading.get());
    assert!(matches!(result, Err(Error::Interrupted)), "{result:?}");
    // An existing template would not be loaded.
    loading.set(false);
    let again = fixture.lab.template(&fixture.build, &tables, &mut |_| loading.set(true), &|| loading.get());
    assert!(matches!(again, Err(Error::Interrupted)), "{again:?}");
}
