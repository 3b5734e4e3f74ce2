//! Parsing of document database URLs.

use super::*;
use crate::factor::ServerUrl;
use ciphertoll_vocabulary::Identity;

fn parse(text: &str) -> Result<ServerUrl, UrlError> {
    text.parse()
}

fn documents(text: &str) -> DocumentsUrl {
    *parse(text).unwrap().documents.unwrap()
}

fn host(name: &str, port: u16) -> UrlHost {
    UrlHost { name: name.to_owned(), port }
}

#[test]
fn a_url_has_address_and_login() {
    let url =
        parse("mongodb://a%40b@db.example:27018/shop?authMechanism=SCRAM-SHA-1&TLSCAFile=/ca.pem").unwrap();
    assert_eq!(
        (url.engine(), url.user.as_str(), url.database.as_deref()),
        (Engine::MongoDb, "a@b", Some("shop"))
    );
    assert_eq!(url.place, UrlPlace::Host { host: "db.example".to_owned(), port: 27018 });
    let demand = TlsDemand::Always(Verification::Full);
    assert_eq!((url.tls.demand, url.tls.ca_file.clone()), (demand, Some("/ca.pem".into())));
    let DocumentsUrl { hosts, replica_set, connection, login } = *url.documents.unwrap();
    assert_eq!((hosts, replica_set), (vec![host("db.example", 27018)], None));
    assert_eq!(connection, SetConnection::Direct);
    let (mechanism, read_preference) = (LoginMechanism::ScramSha1, ReadPreference::Primary);
    assert_eq!(login, DocumentsLogin { auth_source: "shop".to_owned(), mechanism, read_preference });
}

#[test]
fn the_authentication_database_is_given_or_implied() {
    let of = |text: &str| documents(text).login;
    assert_eq!(of("mongodb://a@h").auth_source, "admin");
    assert_eq!(of("mongodb://a@h/?authSource=people").auth_source, "people");
    assert_eq!(of("mongodb://a@h/shop?authSource=people").auth_source, "people");
    let nobody = of("mongodb://h/shop");
    assert_eq!(
        (nobody.mechanism, parse("mongodb://h/shop").unwrap().user),
        (LoginMechanism::None, String::new())
    );
    assert_eq!(of("mongodb://a@h").mechanism, LoginMechanism::Negotiated);
    let by_certificate =
        parse("mongodb://h/?authMechanism=MONGODB-X509&tlsCertificateKeyFile=/me.pem").unwrap();
    let Identity { certificate_file, key_file } = by_certificate.tls.identity.unwrap();
    assert_eq!([certificate_file, key_file], ["/me.pem", "/me.pem"].map(std::path::PathBuf::from));
    assert_eq!(parse("mongodb://h/?authMechanism=MONGODB-X509"), Err(UrlError::NoCertificate));
    assert_eq!(parse("mongodb://h/?authMechanism=SCRAM-SHA-1"), Err(UrlError::NoUser("mongodb".to_owned())));
}

#[test]
fn several_hosts_are_a_replica_set() {
    let several = documents("mongodb://a@h1,h2:2,[::1]:3,[fe80::1]/?readPreference=nearest");
    let expected = [host("h1", 27017), host("h2", 2), host("::1", 3), host("fe80::1", 27017)];
    assert_eq!((several.hosts.as_slice(), several.connection), (&expected[..], SetConnection::Discovered));
    assert_eq!(several.login.read_preference, ReadPreference::Nearest);
    let of = |text: &str| documents(text).connection;
    assert_eq!(of("mongodb://h"), SetConnection::Direct);
    assert_eq!(of("mongodb://h/?replicaSet=rs0"), SetConnection::Discovered);
    assert_eq!(of("mongodb://h/?replicaSet=rs0&directConnection=true"), SetConnection::Direct);
    assert_eq!(of("mongodb://h?directConnection=false"), SetConnection::Discovered);
    assert_eq!(parse("mongodb://h1,h2/?directConnection=true"), Err(UrlError::DirectToMany));
    let many = format!("mongodb://{}", vec!["h"; MAX_HOSTS + 1].join(","));
    assert_eq!(parse(&many), Err(UrlError::TooManyHosts { limit: MAX_HOSTS }));
}

#[test]
fn a_socket_is_a_percent_encoded_host() {
    let url = parse("mongodb://a@%2Ftmp%2Fmongodb-27017.sock/shop").unwrap();
    assert_eq!(url.place, UrlPlace::Socket("/tmp/mongodb-27017.sock".into()));
    assert_eq!(parse("mongodb://a@%2Ftmp%2Fx.sock,h"), Err(UrlError::Host));
}

#[test]
fn tls_options_are_parsed_or_refused() {
    let of = |options: &str| parse(&format!("mongodb://a@h/?{options}")).map(|url| url.tls.demand);
    let always = |verification| Ok(TlsDemand::Always(verification));
    assert_eq!([of("tls=false"), of("ssl=true")], [Ok(TlsDemand::Never), always(Verification::Full)]);
    assert_eq!(of("tlsAllowInvalidHostnames=true"), always(Verification::Authority));
    assert_eq!(of("tls=true&tlsInsecure=true"), always(Verification::Off));
    assert_eq!(of("tls=true&tlsAllowInvalidCertificates=true"), always(Verification::Off));
    assert_eq!(of("tls=true&tlsAllowInvalidCertificates=false"), always(Verification::Full));
    assert_eq!(of("tls=false&tlsInsecure=true"), Err(UrlError::NothingToVerify));
    assert_eq!(of("tls=compare&tlsCAFile=/ca.pem"), Ok(TlsDemand::Both));
    assert!(matches!(of("tls=compare&tlsAllowInvalidHostnames=true"), Err(UrlError::Value { .. })));
    for file in ["tlsCAFile", "tlsCertificateKeyFile"] {
        assert_eq!(of(&format!("{file}=/f")), always(Verification::Full), "a file for TLS asks for TLS");
        let unused = of(&format!("tls=false&{file}=/f"));
        assert!(
            matches!(unused, Err(UrlError::FileWithoutTls { option, .. }) if option == file),
            "{unused:?}"
        );
        assert_eq!(of(&format!("{file}=/f&{file}=/g")), Err(UrlError::Twice { option: file }));
        let over_socket = parse(&format!("mongodb://a@%2Ftmp%2Fx.sock/?{file}=/f"));
        assert_eq!(over_socket, Err(UrlError::TlsOverSocket));
    }
    let unread = of("tlsInsecure=true&tlsCAFile=/ca.pem");
    assert!(matches!(unread, Err(UrlError::AuthorityUnused { .. })), "{unread:?}");
    assert_eq!(of("tls=true&ssl=false"), Err(UrlError::Twice { option: "ssl" }));
    for wrong in ["tls=yes", "tls=", "tls", "readPreference=Nearest", "authMechanism=PLAIN", "tlsCAFile="] {
        assert!(matches!(of(wrong), Err(UrlError::Value { .. })), "{wrong}");
    }
    assert!(matches!(of("w=majority"), Err(UrlError::Option { .. })));
}

#[test]
fn a_password_is_removed_and_never_shown() {
    let cases = [
        ("mongodb://app:s%3Acret@h1:1,h2/db?tls=true", "mongodb://app@h1:1,h2/db?tls=true", "s:cret"),
        ("mongodb://app:s@cret@h", "mongodb://app@h", "s@cret"),
        ("mongodb+srv://app:secret@h", "mongodb+srv://app@h", "secret"),
        ("mongodb://app:@h", "mongodb://app@h", ""),
    ];
    for (text, without, password) in cases {
        let expected = (without.to_owned(), Some(password.to_owned()));
        assert_eq!(ServerUrl::split_password(text), expected, "{text}");
    }
    assert_eq!(ServerUrl::split_password("mongodb://app@h"), ("mongodb://app@h".to_owned(), None));
    // An error about an unescaped character must not print what follows it.
    let secrets = [
        "mongodb://app:sec/ret@h/db",
        "mongodb://app:sec?ret@h/db",
        "mongodb://app:sec:ret@h/db",
        "mongodb://app:sec@ret@h/db",
        "mongodb://app:secret@h/db",
        "mongodb+srv://app:secret@h/db",
        "mongodb://app:secret",
        "mongodb://app:%ff@h",
    ];
    for text in secrets {
        let refused = parse(text).unwrap_err().to_string();
        assert!(!refused.contains("sec") && !refused.contains("ret@"), "{refused}");
    }
    assert_eq!(parse("mongodb://app:sec/ret@h/db"), Err(UrlError::Reserved));
    assert_eq!(parse("mongodb://app:secret@h/db"), Err(UrlError::Password));
}

#[test]
fn engine_and_member_are_written_into_the_url() {
    let asked = parse("mongodb://a%40b@h1,h2/shop?replicaSet=rs0&readPreference=secondary&tls=true").unwrap();
    let chosen = asked.for_member(&host("::1", 27019)).unwrap();
    assert_eq!(
        chosen.to_string(),
        "mongodb://a%40b@[::1]:27019/shop?replicaSet=rs0&readPreference=secondary&tls=true&directConnection=true"
    );
    let told = chosen.documents.as_deref().unwrap();
    assert_eq!((told.connection, told.hosts.as_slice()), (SetConnection::Direct, &[host("::1", 27019)][..]));
    assert_eq!(chosen.for_member(&host("::1", 27019)).unwrap(), chosen);
    let ferretdb = chosen.spoken_by(Engine::FerretDb);
    assert_eq!(ferretdb.engine(), Engine::FerretDb);
    assert!(ferretdb.to_string().starts_with("ferretdb://a%40b@[::1]:27019/shop?"));
    assert_eq!(ferretdb, parse(&ferretdb.to_string()).unwrap());
    assert_eq!(ferretdb.spoken_by(Engine::MongoDb), chosen);
    assert_eq!(
        parse("mongodb://h?directConnection=false").unwrap().for_member(&host("g", 1)).unwrap().to_string(),
        "mongodb://g:1/?directConnection=true"
    );
}

#[test]
fn errors_name_what_is_missing_or_wrong() {
    assert_eq!(parse("mongodb+srv://a@h.example/?tls=true"), Err(UrlError::LookedUp));
    assert_eq!(
        [parse("mongodb://"), parse("mongodb://a@,h")],
        [Err(UrlError::NoHost), Err(UrlError::NoHost)]
    );
    for wrong in ["h:0", "h:65536", "h:x", "h:+1", "[::1", "[h]", "::1", "h h", "[::1]x", "h:"] {
        assert_eq!(parse(&format!("mongodb://a@{wrong}/")), Err(UrlError::Host), "{wrong}");
    }
    assert_eq!(parse("mongodb://a@h/sh.op"), Err(UrlError::Database));
    assert_eq!(parse("mongodb://a@h/%ff"), Err(UrlError::NoText("database")));
}
