use ciphertoll_wire::postgres::server::{
    Startup, read_startup, write_parameter_status, write_ready_for_query,
};
use ciphertoll_wire::postgres::startup::encode_startup;

use super::*;
use crate::postgres::startup_request::StartupParameters;
use crate::protocol::{HandshakeStep, ProtocolHandshake};
use crate::settings::{
    AllowedUids, ClientAccess, Limits, ReplicationAccess, ScramIterations, UnixAuth, UpstreamTlsLibrary,
};

fn settings(users: &[(&str, &str)]) -> Settings {
    let user = |(name, password): &(&str, &str)| DatabaseUser {
        name: (*name).to_owned(),
        database: Some("shop".to_owned()),
        password: Secret::new(password.as_bytes().to_vec()),
        command: None,
    };
    Settings {
        listen: vec!["unix:/x".parse().unwrap()],
        server: "postgres://a@127.0.0.1/shop?sslmode=disable".parse().unwrap(),
        groups: Vec::new(),
        tls_library: UpstreamTlsLibrary::default(),
        users: users.iter().map(user).collect(),
        allowed_uids: AllowedUids::All,
        unix_auth: UnixAuth::Peer,
        tls: None,
        iterations: ScramIterations { by_unix: 1, by_tcp: CredentialStore::DEFAULT_ITERATIONS },
        pooling: Pooling::Transaction,
        reset: ResetPolicy::Always,
        access: ClientAccess { replication: ReplicationAccess::Allowed, ..ClientAccess::default() },
        threads: std::num::NonZeroUsize::MIN,
        limits: Limits::default(),
        console: None,
        watch_files: std::time::Duration::ZERO,
    }
}

fn postgres(users: &[(&str, &str)]) -> Postgres {
    Postgres::from_settings(&settings(users)).unwrap()
}

fn key(user: &str, database: &str) -> PostgresKey {
    PostgresKey::new(user, database)
}

fn request(parameters: &[(&str, &str)]) -> Box<StartupRequest> {
    let mut bytes = Vec::new();
    encode_startup(&mut bytes, parameters).unwrap();
    match read_startup(&mut &bytes[..]).unwrap() {
        Some(Startup::Login(message)) => {
            StartupRequest::new(StartupParameters::read(&message).unwrap().into())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_fingerprint_changes_with_the_password() {
    let before = postgres(&[("a", "x"), ("b", "y")]);
    let after = postgres(&[("a", "x"), ("b", "z"), ("c", "")]);
    let fingerprints =
        |protocol: &Postgres| ["a", "b", "c"].map(|user| protocol.fingerprint(&key(user, "shop")));
    let ([a, b, none], [same, other, _]) = (fingerprints(&before), fingerprints(&after));
    assert_eq!((a, none), (same, None));
    assert_ne!(b, other);
    assert_ne!(a, b);
}

#[test]
fn the_size_of_temporary_buffers_is_set_where_no_client_had_temporary_tables() {
    let (protocol, mut backend) = (postgres(&[]), BackendState::of(Parameters::default()));
    let plain = request(&[("user", "app")]);
    let sized = request(&[("user", "app"), ("options", "-c temp_buffers=16MB")]);
    assert!(protocol.accepts(&backend, &sized));
    backend.may_have_temporary = true;
    assert!(protocol.accepts(&backend, &plain) && !protocol.accepts(&backend, &sized));
}

/// The time limit could cancel the reset, and the server would skip the next client's command.
#[test]
fn a_reset_under_a_short_time_limit_is_awaited() {
    let transaction = TransactionStatus::Idle;
    for (has_short_timeout, need) in [(false, ResetNeed::Pipelined), (true, ResetNeed::Awaited)] {
        let context = ResetContext { transaction, remains: Remains::Anything, has_short_timeout };
        assert_eq!(postgres(&[]).reset_need(context), need);
    }
}

#[test]
fn only_configured_users_are_logged_in_as() {
    let mut protocol = postgres(&[("a", "x"), ("b", "y")]);
    assert!(protocol.connect_plan(&key("b", "till")).is_some());
    assert!(protocol.connect_plan(&key("c", "shop")).is_none());
    assert_eq!(protocol.default_keys(), [key("a", "shop"), key("b", "shop")]);
    let mut key_of = |parameters: &[(&str, &str)]| protocol.pool_key(&request(parameters));
    assert_eq!(key_of(&[("user", "b")]), Ok(key("b", "shop")));
    assert_eq!(key_of(&[("user", "b"), ("database", "till")]), Ok(key("b", "till")));
    assert_eq!(key_of(&[("user", "c")]).unwrap_err().sqlstate, Refusal::WHO);
}

#[test]
fn learned_settings_and_keys_are_kept_unless_the_password_changes() {
    let mut protocol = postgres(&[("a", "x"), ("b", "y"), ("c", "z")]);
    for user in ["a", "b", "c"] {
        protocol.known_parameters.insert(key(user, "till"), Parameters::default());
    }
    let keys = Arc::clone(&protocol.accounts["a"].keys);
    protocol.reload(Postgres { pooling: Pooling::Session, ..postgres(&[("a", "x"), ("b", "other")]) });
    assert!(Arc::ptr_eq(&keys, &protocol.accounts["a"].keys));
    assert_eq!(protocol.known_parameters.keys().collect::<Vec<_>>(), [&key("a", "till")]);
    assert_eq!(protocol.pooling, Pooling::Transaction);
    let cancel_token = CancelToken { process_id: 1, secret: [0; 4] };
    let greeted = |protocol: &mut Postgres| {
        protocol.greet_early(&key("a", "till"), &mut request(&[("user", "a")]), cancel_token, &mut Vec::new())
    };
    assert!(greeted(&mut protocol));
    protocol.forget_learned();
    assert!(!greeted(&mut protocol));
}

/// The end of a login that needs no server connection; `None` if it needs one.
fn greet(protocol: &mut Postgres, parameters: &[(&str, &str)]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    encode_startup(&mut bytes, parameters).unwrap();
    let step = protocol.handshake(ClientAuth::Granted).step(&mut &bytes[..], &mut Vec::new());
    let HandshakeStep::Login(mut request) = step else { panic!("{step:?}") };
    let key = protocol.pool_key(&request).unwrap();
    let cancel_token = CancelToken { process_id: 1, secret: [0; 4] };
    let mut out = Vec::new();
    let is_greeted = protocol.greet_early(&key, &mut request, cancel_token, &mut out);
    is_greeted.then_some(out)
}

fn known(name: &str) -> Parameters {
    let mut parameters = Parameters::default();
    parameters.set(b"application_name", name.as_bytes()).unwrap();
    parameters
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn repeated_logins_are_answered_like_the_first() {
    let mut protocol = postgres(&[("a", "x"), ("b", "y")]);
    for (user, name) in [("a", "of a"), ("b", "of b")] {
        protocol.remember_parameters(key(user, "shop"), known(name));
    }
    let logins: [&[(&str, &str)]; 4] = [
        &[("user", "a")],
        &[("user", "b")],
        &[("user", "a"), ("application_name", "own")],
        &[("user", "b"), ("application_name", "own")],
    ];
    let greetings = logins.map(|login| greet(&mut protocol, login).unwrap());
    for (login, greeting) in logins.into_iter().zip(&greetings) {
        assert!(protocol.recent_logins.key(&request(login).parameters).is_none());
        assert_eq!(greet(&mut protocol, login).as_ref(), Some(greeting));
    }
    for (greeting, name) in greetings.iter().zip(["of a", "of b", "own", "own"]) {
        assert!(contains(greeting, name), "{name}");
    }
}

#[test]
fn changes_reach_logins_that_are_repeated() {
    let login = [("user", "a")];
    let mut protocol = postgres(&[("a", "x"), ("b", "y")]);
    assert_eq!(greet(&mut protocol, &login), None);
    protocol.remember_parameters(key("a", "shop"), known("before"));
    assert!(contains(&greet(&mut protocol, &login).unwrap(), "before"));
    protocol.learn((key("a", "shop"), Some(known("after"))));
    assert!(contains(&greet(&mut protocol, &login).unwrap(), "after"));
    // The user has another password.
    protocol.reload(postgres(&[("a", "other"), ("b", "y")]));
    assert_eq!(greet(&mut protocol, &login), None);
    // A login that is still in its handshake when its user is removed.
    protocol.remember_parameters(key("a", "shop"), known("again"));
    assert!(greet(&mut protocol, &login).is_some());
    let mut bytes = Vec::new();
    encode_startup(&mut bytes, &login).unwrap();
    let mut handshake = protocol.handshake(ClientAuth::Granted);
    protocol.reload(postgres(&[("b", "y")]));
    let HandshakeStep::Login(request) = handshake.step(&mut &bytes[..], &mut Vec::new()) else { panic!() };
    assert_eq!(protocol.pool_key(&request).unwrap_err().sqlstate, Refusal::WHO);
}

/// The server's configuration was changed, or its database is gone.
#[test]
fn what_is_known_of_a_database_does_not_outlive_it() {
    let (login, shop) = ([("user", "a")], key("a", "shop"));
    let mut protocol = postgres(&[("a", "x")]);
    protocol.remember_parameters(shop.clone(), known("before"));
    assert!(contains(&greet(&mut protocol, &login).unwrap(), "before"));
    let mut backend = BackendState::of(known("before"));
    let mut reset = protocol.ping(&mut backend, &mut Vec::new()).unwrap();
    let mut answer = b"I\0\0\0\x04".to_vec();
    write_parameter_status(&mut answer, b"application_name", b"after").unwrap();
    write_ready_for_query(&mut answer, TransactionStatus::Idle);
    let done = ProtocolCommand::step(&mut reset, &mut answer.as_slice(), &mut backend).unwrap();
    assert_eq!(done, Response::Done(CommandOutcome::Idle));
    assert!(protocol.learn_again(&shop, &mut backend) && !protocol.learn_again(&shop, &mut backend));
    assert!(contains(&greet(&mut protocol, &login).unwrap(), "after"));

    let mut other_worker = protocol.clone();
    assert!(protocol.forget(&shop) && !protocol.forget(&shop));
    other_worker.learn(protocol.learned(&shop).unwrap());
    for mut protocol in [protocol, other_worker] {
        assert_eq!(greet(&mut protocol, &login), None);
    }
}

#[test]
fn passwords_are_checked_where_credentials_exist() {
    let by_tcp = |users: &[(&str, &str)]| {
        Postgres::from_settings(&Settings {
            listen: vec!["tcp:127.0.0.1:0".parse().unwrap()],
            ..settings(users)
        })
    };
    let mut protocol = by_tcp(&[("a", "x")]).unwrap();
    assert!(protocol.by_tcp.is_some() && protocol.by_unix.is_none());
    assert!(matches!(by_tcp(&[("a", "x"), ("b", "")]), Err(StartError::NoPassword(user)) if user == "b"));
    // Without a credential to check, no client is accepted.
    let mut bytes = Vec::new();
    encode_startup(&mut bytes, &[("user", "a")]).unwrap();
    let step = protocol.handshake(ClientAuth::PasswordByUnix).step(&mut &bytes[..], &mut Vec::new());
    assert!(matches!(step, HandshakeStep::Refuse(_)), "{step:?}");
}
