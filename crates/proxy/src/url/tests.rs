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

#[test]
fn errors_name_the_part_that_cannot_be_used() {
    assert!(matches!(parse("db.example"), Err(UrlError::Shape(_))));
    assert_eq!(parse("mongodb://a@h"), Err(UrlError::Scheme("mongodb".to_owned())));
    assert_eq!(parse("postgres://h/db"), Err(UrlError::NoUser));
    assert_eq!(parse("postgres://a@h/%ff"), Err(UrlError::NoText("database")));
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
