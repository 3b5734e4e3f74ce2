use super::*;

fn parse(text: &str) -> Result<ServerUrl, UrlError> {
    text.parse()
}

#[test]
fn a_url_names_address_database_and_encryption() {
    let tls = |verification, file: Option<&str>| UpstreamEncryption::Tls {
        verification,
        anchors: file.map_or(TrustAnchors::System, |file| TrustAnchors::File(file.into())),
        identity: None,
    };
    // Without a mode, certificate and name are verified; a CA file implies verification.
    let (full, authority) = (Verification::Full, Verification::Authority);
    let plain = || UpstreamEncryption::None;
    for (url, address, database, encryption) in [
        ("postgres://a@db.example/shop", "db.example:5432", Some("shop"), tls(full, None)),
        (
            "postgresql://a@[::1]:6000?sslrootcert=/ca.pem",
            "[::1]:6000",
            Some("a"),
            tls(full, Some("/ca.pem")),
        ),
        ("postgres://a@h/?sslmode=disable", "h:5432", Some("a"), plain()),
        ("postgres://a@h:1/?host=/run/pg&sslmode=disable", "unix:/run/pg/.s.PGSQL.1", Some("a"), plain()),
        ("mysql://a@db.example/?ssl-ca=/ca.pem", "db.example:3306", None, tls(full, Some("/ca.pem"))),
        ("mariadb://a@db.example/?ssl-ca=/ca.pem", "db.example:3306", None, tls(full, Some("/ca.pem"))),
        ("mysql://a@h/?ssl-mode=REQUIRED&ssl-ca=/ca.pem", "h:3306", None, tls(authority, Some("/ca.pem"))),
        ("mysql://a@h:1/shop?ssl-mode=DISABLED&socket=/run/x", "unix:/run/x", Some("shop"), plain()),
        // libpq's other ways to name a socket.
        ("postgres://a@%2Frun%2Fpg/?sslmode=disable", "unix:/run/pg/.s.PGSQL.5432", Some("a"), plain()),
        (
            "postgres://a@/d?host=/run/pg&port=6&sslmode=disable",
            "unix:/run/pg/.s.PGSQL.6",
            Some("d"),
            plain(),
        ),
        ("postgres://a@/d?host=db.example&port=6", "db.example:6", Some("d"), tls(full, None)),
        // A file's name has a +, and no space.
        ("postgres://a@h?sslrootcert=/a+b.pem", "h:5432", Some("a"), tls(full, Some("/a+b.pem"))),
        ("postgres://a@h?sslrootcert=system", "h:5432", Some("a"), tls(full, None)),
        ("postgres://a@h?sslrootcert=system&sslmode=verify-full", "h:5432", Some("a"), tls(full, None)),
        ("postgres://a@h?sslrootcert=./system", "h:5432", Some("a"), tls(full, Some("./system"))),
        // MySQL's clients know no such word.
        ("mysql://a@h?ssl-ca=system", "h:3306", None, tls(full, Some("system"))),
    ] {
        let parsed = parse(url).unwrap();
        assert_eq!((parsed.address.to_string().as_str(), parsed.database.as_deref()), (address, database));
        assert_eq!((parsed.user.as_str(), parsed.encryption), ("a", encryption), "{url}");
    }
    assert_eq!(parse("postgres://a%40b@h").unwrap().user, "a@b");
}

#[test]
fn plaintext_must_be_requested_explicitly() {
    let protocol = ProtocolKind::Postgres;
    assert_eq!(parse("postgres://a@h/?host=/run/pg"), Err(UrlError::SocketNeedsDisable(protocol)));
    let (postgres, mysql) = ("postgres://a@h/?sslmode", "mysql://a@h/?ssl-mode");
    for (url, mode, protocol) in [
        (postgres, "prefer", protocol),
        (postgres, "allow", protocol),
        (postgres, "", protocol),
        (postgres, "Disable", protocol),
        (mysql, "PREFERRED", ProtocolKind::MySql),
        (mysql, "disabled", ProtocolKind::MySql),
        (mysql, "", ProtocolKind::MySql),
    ] {
        assert_eq!(parse(&format!("{url}={mode}")), Err(UrlError::Mode { mode: mode.to_owned(), protocol }));
    }
}

/// libpq from PostgreSQL 16 on: `weak sslmode "require" may not be used with sslrootcert=system (use "verify-full")`. It
/// refuses `verify-ca` without a CA file, as MySQL's clients refuse `VERIFY_CA`.
#[test]
fn a_certificate_that_anyone_can_get_does_not_suffice() {
    let (postgres, mysql) = (ProtocolKind::Postgres, ProtocolKind::MySql);
    for (url, mode, protocol) in [
        ("postgres://a@h?sslmode=require&sslrootcert=system", "sslmode=require", postgres),
        ("postgres://a@h?sslrootcert=system&sslmode=verify-ca", "sslmode=verify-ca", postgres),
        ("postgres://a@h?sslmode=verify-ca", "sslmode=verify-ca", postgres),
        ("mysql://a@h?ssl-mode=VERIFY_CA", "ssl-mode=VERIFY_CA", mysql),
    ] {
        let mode = mode.to_owned();
        assert_eq!(parse(url), Err(UrlError::AnyonesCertificate { mode, protocol }), "{url}");
    }
    let error = parse("postgres://a@h?sslmode=verify-ca").unwrap_err().to_string();
    assert_eq!(
        error,
        "sslmode=verify-ca does not verify the host name, and needs a CA of your own: write sslrootcert=FILE, or \
         sslmode=verify-full"
    );
    let disabled = parse("postgres://a@h?sslmode=disable&sslrootcert=system");
    assert_eq!(disabled, Err(UrlError::FileWithoutTls { option: "sslrootcert", protocol: postgres }));
}

/// Options of libpq and of MySQL's clients that would protect more, or less, than what is supported.
#[test]
fn no_option_is_ignored() {
    for name in [
        "sslnegotiation",
        "channel_binding",
        "require_auth",
        "ssl_min_protocol_version",
        "ssl_max_protocol_version",
        "sslcrl",
        "sslcrldir",
        "sslpassword",
        "sslcertmode",
        "sslsni",
        "sslcompression",
        "requiressl",
        "ssl",
        "gssencmode",
        "hostaddr",
        "service",
        "passfile",
        "target-session-attrs",
        "load-balance-hosts",
        "options",
        "SSLMODE",
        "ssl-mode",
    ] {
        let url = parse(&format!("postgres://a@h?{name}=x"));
        assert_eq!(url, Err(UrlError::Option { name: name.to_owned(), protocol: ProtocolKind::Postgres }));
    }
    for name in [
        "ssl-verify-server-cert",
        "ssl_mode",
        "ssl-capath",
        "ssl-crl",
        "ssl-crlpath",
        "ssl-cipher",
        "ssl-fp",
        "ssl",
        "tls-version",
        "tls-ciphersuites",
        "sslmode",
        "get-server-public-key",
        "SSL-MODE",
        "host",
        "port",
    ] {
        let url = parse(&format!("mysql://a@h?{name}=x"));
        assert_eq!(url, Err(UrlError::Option { name: name.to_owned(), protocol: ProtocolKind::MySql }));
    }
}

#[test]
fn a_socket_or_several_hosts_are_not_taken_for_a_name() {
    let label = |url: &str| parse(url).map(|url| url.label());
    assert_eq!(label("postgres://a@h1,h2/?sslmode=disable").as_deref(), Ok("h1:5432,h2:5432"));
    let socket = Err(UrlError::SocketNeedsDisable(ProtocolKind::Postgres));
    assert_eq!(parse("postgres://a@%2Frun%2Fpg"), socket);
    assert_eq!(parse("postgres://a@h/db#x"), Err(UrlError::Syntax(SqlUrlError::Fragment)));
}

#[test]
fn errors_name_the_part_that_cannot_be_used() {
    assert_eq!(parse("db.example"), Err(UrlError::Shape));
    assert_eq!(parse("mongodb://a@h"), Err(UrlError::Scheme("mongodb".to_owned())));
    assert_eq!(parse("postgres://h/db"), Err(UrlError::NoUser));
    assert_eq!(parse("postgres://a@h/%ff"), Err(UrlError::Syntax(SqlUrlError::NoText("database"))));
    assert_eq!(parse("postgres://a@h/?sslcert=/c"), Err(UrlError::IncompleteIdentity));
    for protocol in [ProtocolKind::Postgres, ProtocolKind::MySql] {
        let scheme = if protocol == ProtocolKind::Postgres { "postgres" } else { "mysql" };
        for (option, _) in protocol.file_options() {
            let of = |options: String| parse(&format!("{scheme}://a@h/?{options}"));
            let all = protocol.file_options().map(|(name, _)| format!("{name}=/f")).join("&");
            assert_eq!(
                of(format!("{}&{all}", protocol.disabled())).map(drop),
                Err(UrlError::FileWithoutTls { option: protocol.file_options()[0].0, protocol })
            );
            assert_eq!(of(format!("{option}=")), Err(UrlError::NoFile(option)));
            assert_eq!(of(format!("{all}&{option}=/g")), Err(UrlError::Twice(option)));
        }
    }
    for (scheme, protocol) in [("postgres", ProtocolKind::Postgres), ("mysql", ProtocolKind::MySql)] {
        let error = UrlError::Option { name: "password".to_owned(), protocol };
        assert_eq!(parse(&format!("{scheme}://a@h/?password=x")), Err(error));
    }
    // Options of another server are unknown.
    assert!(matches!(parse("mysql://a@h/?sslmode=disable"), Err(UrlError::Option { .. })));
    assert!(matches!(parse("postgres://a@h/?ssl-ca=/ca.pem"), Err(UrlError::Option { .. })));
    let refused = parse("postgres://a:hunter2@h/db").unwrap_err();
    assert_eq!(refused, UrlError::Password);
    assert!(!refused.to_string().contains("hunter2"));
}

#[test]
fn several_hosts_have_ports_as_in_libpq() {
    let label = |url: &str| parse(url).map(|url| url.label());
    for (url, hosts) in [
        ("postgres://a@db1,db2:5433,db3/shop", "db1:5432,db2:5433,db3:5432"),
        ("postgres://a@/shop?host=db1,db2&port=5433", "db1:5433,db2:5433"),
        ("postgres://a@/shop?host=db1,db2&port=5433,5434", "db1:5433,db2:5434"),
        ("postgres://a@[::1],192.0.2.1:5433/shop", "[::1]:5432,192.0.2.1:5433"),
        ("mysql://a@db1,db2:3307/shop", "db1:3306,db2:3307"),
    ] {
        assert_eq!(label(url).as_deref(), Ok(hosts), "{url}");
    }
    let ports = SqlUrlError::HostsAndPorts { hosts: 2, ports: 3 };
    assert_eq!(label("postgres://a@/shop?host=db1,db2&port=1,2,3"), Err(UrlError::Syntax(ports)));
    assert_eq!(label("postgres://a@db1,db1/shop"), Err(UrlError::SameHost("db1:5432".to_owned())));
    assert_eq!(label("postgres://a@db1,/shop"), Err(UrlError::Syntax(SqlUrlError::NoHost)));
    let many = vec!["h"; MAX_HOSTS + 1].join(",");
    assert_eq!(label(&format!("postgres://a@{many}/shop")), Err(UrlError::TooManyHosts(MAX_HOSTS + 1)));
    let socket = "mysql://a@h1,h2/?socket=/run/x&ssl-mode=DISABLED";
    assert!(label(socket).is_err(), "{socket}");
}

#[test]
fn a_role_that_connections_need_has_libpqs_names() {
    for target in TargetSession::ALL {
        let label = target.label();
        let of = |scheme: &str, option: &str| parse(&format!("{scheme}://a@h1,h2/x?{option}={label}"));
        assert_eq!(of("postgres", "target_session_attrs").map(|url| url.target), Ok(target));
        assert_eq!(of("mariadb", "target-session-attrs").map(|url| url.target), Ok(target));
        assert!(of("mysql", "target_session_attrs").is_err());
    }
    let balance = |value: &str| parse(&format!("postgres://a@h/x?load_balance_hosts={value}"));
    assert_eq!(balance("random").map(|url| url.balance), Ok(LoadBalance::Random));
    let error = balance("yes").unwrap_err().to_string();
    assert_eq!(error, "load_balance_hosts cannot be \"yes\": write disable, random");
    let error = parse("postgres://a@h/x?target_session_attrs=master").unwrap_err().to_string();
    assert!(error.ends_with("write any, read-write, read-only, primary, standby, prefer-standby"), "{error}");
    let twice = parse("postgres://a@h/x?target_session_attrs=any&target_session_attrs=primary");
    assert_eq!(twice, Err(UrlError::Twice("target_session_attrs")));
    assert!(!parse("postgres://a@h/x?target_session_attrs=any").unwrap().is_watched());
}
