use super::*;

fn sessions(engine: Engine, version: &str, kinds: &[(&str, &str, Option<u32>)]) {
    for (path, auth, count) in kinds {
        let peer = ServerProperties { engine, version, hello_retry: None, first_flight_bytes: None };
        let said = of_session(&peer, path.parse().unwrap(), auth.parse().unwrap());
        assert_eq!(said, *count, "{engine} {version} {path} {auth}");
    }
}

#[test]
fn mariadb() {
    sessions(
        Engine::MariaDb,
        "10.11.19-MariaDB-0+deb12u1",
        &[
            ("plain", "native", Some(2)),
            ("plain", "trust", Some(2)),
            ("plain", "ed25519", Some(3)),
            ("plain", "parsec", Some(4)),
            ("ssh-aes256-gcm", "native", Some(2)),
            ("ssh-aes256-gcm+N", "native", Some(3)),
            ("openvpn-none", "native", Some(2)),
            ("wireguard", "native", Some(2)),
            ("stunnel", "native", Some(4)),
            ("tls1.0-rsa2048", "native", Some(4)),
            ("tls1.1-rsa2048", "native", Some(4)),
            ("tls1.2-p256", "native", Some(4)),
            ("tls1.2-p256+mtls", "native", Some(4)),
            ("tls1.2-p256+resume", "native", Some(3)),
            ("tls1.2-p256+resume=id", "native", Some(3)),
            ("tls1.2-p256+eager", "native", Some(3)),
            ("tls1.2-p256+resume+eager", "native", Some(2)),
            ("tls1.3-p256", "native", Some(3)),
            ("tls1.3-p256", "cert", Some(3)),
            ("tls1.3-p256+resume", "native", Some(3)),
            ("tls1.3-rsa4096+chain=3", "native", Some(3)),
            ("tls1.3-p256+mtls", "native", Some(3)),
            ("tls1.3-p256+client=rustls", "native", Some(3)),
            ("tls1.3-p256+eager", "native", Some(2)),
            ("tls1.3-p256", "parsec", Some(5)),
            ("tls1.3-p256", "as-asked", None),
            ("tls1.3-p256+direct", "native", None),
            ("unix", "native", None),
        ],
    );
}

#[test]
fn mysql() {
    sessions(
        Engine::MySql,
        "8.0.33",
        &[
            ("plain", "caching-sha2", Some(2)),
            ("plain", "trust", Some(2)),
            ("plain", "native", Some(3)),
            ("tls1.2-p256", "caching-sha2", Some(4)),
            ("tls1.2-p256+resume", "caching-sha2", Some(3)),
            ("tls1.3-p256", "caching-sha2", Some(3)),
            ("tls1.3-p256", "native", Some(4)),
            ("tls1.3-p256+resume", "caching-sha2", Some(3)),
            ("tls1.3-p256+eager", "caching-sha2", Some(2)),
        ],
    );
    sessions(Engine::MySql, "9.7.0", &[("tls1.3-p256", "caching-sha2", Some(4))]);
}

#[test]
fn postgres_with_nist_curves_only() {
    let kinds = [
        ("plain", "trust", Some(1)),
        ("plain", "scram-4096", Some(3)),
        ("plain", "md5", Some(2)),
        ("ssh-aes256-gcm", "scram-4096", Some(4)),
        ("ssh-aes256-gcm+N", "scram-4096", Some(5)),
        ("openvpn-aes256-cbc", "scram-4096", Some(3)),
        ("wireguard", "scram-4096", Some(3)),
        ("stunnel", "scram-4096", Some(5)),
        ("tls1.2-p256", "trust", Some(4)),
        ("tls1.2-p256", "scram-4096", Some(6)),
        ("tls1.3-p256", "trust", Some(4)),
        ("tls1.3-p256", "scram-4096", Some(6)),
        ("tls1.3-p256+group=p256", "trust", Some(3)),
        ("tls1.3-p256+group=p256", "scram-4096", Some(5)),
    ];
    for version in ["15.18 (Debian 15.18-0+deb12u1)", "16.4", "17.0"] {
        sessions(Engine::Postgres, version, &kinds);
    }
    sessions(Engine::Postgres, "15.18", &[("tls1.3-p256+direct", "trust", None)]);
    sessions(Engine::Postgres, "15.18", &[("tls1.2-p256+resume", "trust", None)]);
    sessions(Engine::Postgres, "17.2", &[("tls1.3-p256+direct", "trust", Some(3))]);
}

#[test]
fn postgres_18() {
    sessions(
        Engine::Postgres,
        "18.1",
        &[
            ("plain", "trust", Some(1)),
            ("plain", "scram-4096", Some(3)),
            ("plain", "md5", Some(2)),
            ("tls1.2-p256", "trust", Some(4)),
            ("tls1.2-p256", "scram-4096", Some(6)),
            ("tls1.3-p256", "trust", Some(3)),
            ("tls1.3-p256", "cert", Some(3)),
            ("tls1.3-p256", "scram-4096", Some(5)),
            ("tls1.3-p256", "scram-4096+plus", Some(5)),
            ("tls1.3-p256+direct", "trust", Some(2)),
            ("tls1.3-p256+direct", "scram-4096", Some(4)),
            ("tls1.3-p256+eager", "trust", Some(2)),
            ("tls1.3-p256+eager", "scram-4096", Some(4)),
            ("tls1.2-p256+eager", "trust", Some(3)),
            ("tls1.2-p256+eager", "scram-4096", Some(5)),
        ],
    );
}

#[test]
fn ferretdb() {
    let kinds = [
        ("plain", "trust", Some(1)),
        ("plain", "scram-15000", Some(4)),
        ("plain", "scram-sha1", Some(4)),
        ("tls1.2-p256", "scram-15000", Some(6)),
        ("tls1.3-p256", "trust", Some(2)),
        ("tls1.3-p256", "scram-15000", Some(5)),
        ("tls1.3-p256+resume", "scram-15000", None),
        ("wireguard", "scram-15000", None),
        ("unix", "scram-15000", None),
    ];
    sessions(Engine::FerretDb, "1.24.2", &kinds);
    sessions(Engine::FerretDb, "2.5.0", &[("plain", "scram-15000", None)]);
    sessions(Engine::MongoDb, "8.0.4", &[("plain", "scram-15000", None)]);
}

#[test]
fn observations_take_precedence_and_unknown_cases_are_none() {
    let tls13 = "tls1.3-p256".parse().unwrap();
    let of = |version, hello_retry| {
        let peer =
            ServerProperties { engine: Engine::MariaDb, version, hello_retry, first_flight_bytes: None };
        of_session(&peer, tls13, Auth::Native)
    };
    assert_eq!(of("10.11.19", Some(true)), Some(4));
    assert_eq!((of("99.1", None), of("99.1", Some(false))), (None, Some(3)));
    assert_eq!((of("10.1.1", None), of("", None), of("ünknown", None)), (None, None, None));
}

/// As measured with MariaDB 11.8: 10 400 bytes with one certificate, 15 968 with two, 21 558 with three.
#[test]
fn a_flight_beyond_the_initial_window_costs_a_round_trip() {
    let of = |path: &str, first_flight_bytes| {
        let peer = ServerProperties {
            engine: Engine::MariaDb,
            version: "11.8.9",
            hello_retry: Some(false),
            first_flight_bytes,
        };
        of_session(&peer, path.parse().unwrap(), Auth::Native)
    };
    for (path, bytes, count) in [
        ("tls1.3-mldsa65", None, Some(3)),
        ("tls1.3-mldsa65", Some(10_400), Some(3)),
        ("tls1.3-mldsa65", Some(14_480), Some(3)),
        ("tls1.3-mldsa65+chain=2", Some(15_968), Some(4)),
        ("tls1.3-mldsa65+chain=3", Some(21_558), Some(4)),
        ("tls1.3-mldsa65+chain=10", Some(60_000), Some(5)),
        ("tls1.3-mldsa65+chain=2", None, None),
        ("tls1.3-mldsa65+chain=2+resume", None, Some(3)),
        ("tls1.3-p256+chain=10", None, Some(3)),
    ] {
        assert_eq!(of(path, bytes), count, "{path} {bytes:?}");
    }
}

#[test]
fn no_chain_costs_a_round_trip() {
    let kinds = [
        ("tls1.3-p256+chain=10", "native", Some(3)),
        ("tls1.3-rsa4096+chain=10", "native", Some(3)),
        ("tls1.2-rsa4096+chain=10", "native", Some(4)),
    ];
    sessions(Engine::MariaDb, "10.11.19", &kinds);
}

#[test]
fn an_operation_is_a_connect_or_statement_or_both() {
    let text = "[[grid]]\npath = [\"plain\"]\nworkload = [\"connect\", \"connect-query\", \"first-query\", \
                \"point-select\", \"bulk-read\"]\nclients = [1]\n";
    let plan = crate::Plan::new(&crate::Spec::from_toml(text).unwrap(), 1).unwrap();
    let peer = ServerProperties {
        engine: Engine::MariaDb,
        version: "10.11.19",
        hello_retry: None,
        first_flight_bytes: None,
    };
    let totals: Vec<(String, Option<u32>)> = plan
        .cells
        .iter()
        .map(|cell| (cell.workload.to_string(), of_operation(&peer, cell).map(RoundTrips::total)))
        .collect();
    let expected = [
        ("connect", Some(3)),
        ("connect-query", Some(4)),
        ("first-query", Some(1)),
        ("point-select", Some(1)),
        ("bulk-read+bytes=16k", None),
    ];
    assert_eq!(totals, expected.map(|(name, total)| (name.to_owned(), total)));
}
