//! Parsing of SQL server URLs.

use ciphertoll_vocabulary::SqlUrlError;

use super::*;

fn parse(text: &str) -> Result<ServerUrl, UrlError> {
    text.parse()
}

#[test]
fn a_url_has_address_and_login() {
    let url = parse("postgres://app@db.example:6432/shop?sslmode=verify-ca&sslrootcert=/ca.pem").unwrap();
    assert_eq!(
        (url.engine(), url.user.as_str(), url.database.as_deref()),
        (Engine::Postgres, "app", Some("shop"))
    );
    assert_eq!(url.place, UrlPlace::Host { host: "db.example".to_owned(), port: 6432 });
    assert_eq!(url.tls.verification(), Verification::Authority);
    assert_eq!(url.tls.ca_file, Some("/ca.pem".into()));
    let url = parse("mysql://a%40b@[::1]").unwrap();
    assert_eq!((url.user.as_str(), url.database), ("a@b", None));
    assert_eq!(url.place, UrlPlace::Host { host: "::1".to_owned(), port: 3306 });
    assert_eq!(url.tls, UrlTls::default());
}

#[test]
fn the_scheme_is_that_of_the_engine_that_answers() {
    let url = parse("mysql://a@h:3307/shop?ssl-mode=REQUIRED").unwrap();
    assert_eq!(url.engine(), Engine::MySql);
    let told = url.spoken_by(Engine::MariaDb);
    assert_eq!(told, parse("mariadb://a@h:3307/shop?ssl-mode=REQUIRED").unwrap());
    assert_eq!(told.spoken_by(Engine::MySql), url);
}

#[test]
fn sockets_are_given_as_in_each_engines_clients() {
    let url = parse("postgresql://app@localhost/shop?host=/run/postgresql").unwrap();
    assert_eq!(url.place, UrlPlace::Socket("/run/postgresql/.s.PGSQL.5432".into()));
    let url = parse("mariadb://app@localhost/shop?socket=/run/mysqld/mysqld.sock").unwrap();
    assert_eq!(url.place, UrlPlace::Socket("/run/mysqld/mysqld.sock".into()));
    for text in ["postgres://app@%2Frun%2Fpg:6/shop", "postgres://app@/shop?host=/run/pg&port=6"] {
        let url = parse(text).unwrap();
        assert_eq!(url.place, UrlPlace::Socket("/run/pg/.s.PGSQL.6".into()), "{text}");
        assert_eq!((url.database.as_deref(), url.to_string().as_str()), (Some("shop"), text));
    }
    let named = parse("postgres://app@/shop?host=db.example").unwrap();
    assert_eq!(named.place, UrlPlace::Host { host: "db.example".to_owned(), port: 5432 });
}

#[test]
fn several_hosts_are_each_a_url_of_their_own() {
    let url = parse("postgres://a@h1,[::1]:6000/db?target_session_attrs=read-write").unwrap();
    let hosts: Vec<String> = url.hosts.iter().map(ServerUrl::address).collect();
    assert_eq!(hosts, ["h1:5432", "[::1]:6000"]);
    assert_eq!(
        (url.place.clone(), url.target_session),
        (url.hosts[0].place.clone(), TargetSession::ReadWrite)
    );
    assert!(
        url.hosts.iter().all(|host| host.hosts.is_empty() && host.target_session == TargetSession::ReadWrite)
    );
    assert_eq!(url.to_string().parse(), Ok(url));
    let one = parse("postgres://a@h1/db").unwrap();
    assert_eq!((one.hosts.len(), one.target_session), (0, TargetSession::Any));
    assert!(parse("postgres://a@h1/db?target_session_attrs=master").is_err());
}

#[test]
fn what_is_not_one_server_is_refused() {
    let ports = Err(UrlError::Syntax(SqlUrlError::HostsAndPorts { hosts: 2, ports: 3 }));
    assert_eq!(parse("postgres://a@h1,h2/db?port=1,2,3"), ports);
    assert_eq!(parse("postgres://a@h1,/db"), Err(UrlError::NoHost));
    let many = format!("mysql://a@{}/db", ["h"; MAX_HOSTS + 1].join(","));
    assert_eq!(parse(&many), Err(UrlError::TooManyHosts { limit: MAX_HOSTS }));
    assert_eq!(parse("postgres://a@h/db#x"), Err(UrlError::Syntax(SqlUrlError::Fragment)));
    assert_eq!(parse("postgres://a@/db"), Err(UrlError::NoHost));
}

/// libpq from PostgreSQL 16 on: `weak sslmode "require" may not be used with sslrootcert=system (use "verify-full")`.
#[test]
fn the_systems_authorities_can_be_named_and_then_the_name_is_verified() {
    for mode in ["", "&sslmode=verify-full"] {
        let url = parse(&format!("postgres://a@h?sslrootcert=system{mode}")).unwrap();
        assert_eq!(url.tls.demand, TlsDemand::Always(Verification::Full), "{mode}");
        assert_eq!((url.tls.ca_file.as_ref(), url.files().len()), (None, 0), "{mode}");
    }
    let both = parse("postgres://a@h?sslrootcert=system&sslmode=compare").unwrap();
    assert_eq!((both.tls.demand, both.tls.verification()), (TlsDemand::Both, Verification::Full));
    for mode in ["require", "verify-ca"] {
        let refused = parse(&format!("postgres://a@h?sslrootcert=system&sslmode={mode}"));
        assert!(matches!(refused, Err(UrlError::AnyonesCertificate { .. })), "{mode}: {refused:?}");
    }
    let disabled = parse("postgres://a@h?sslrootcert=system&sslmode=disable");
    assert!(matches!(disabled, Err(UrlError::FileWithoutTls { .. })), "{disabled:?}");
    let twice = parse("postgres://a@h?sslrootcert=system&sslrootcert=/ca.pem");
    assert_eq!(twice, Err(UrlError::Twice { option: "sslrootcert" }));
    assert_eq!(parse("postgres://a@h?host=/run&sslrootcert=system"), Err(UrlError::TlsOverSocket));
    // MySQL's clients know no such word, and a path is a path.
    for text in ["mysql://a@h?ssl-ca=system", "postgres://a@h?sslrootcert=./system"] {
        assert!(parse(text).unwrap().tls.ca_file.is_some(), "{text}");
    }
}

/// Records of earlier versions have such URLs: they are parsed, and no run uses them.
#[test]
fn a_certificate_that_anyone_can_get_does_not_suffice() {
    for (text, advice) in [
        ("postgres://a@h?sslmode=verify-ca", "sslrootcert=FILE, or sslmode=verify-full"),
        ("mysql://a@h?ssl-mode=VERIFY_CA", "ssl-ca=FILE, or ssl-mode=VERIFY_IDENTITY"),
    ] {
        let refused = parse(text).unwrap().check_protection().unwrap_err().to_string();
        assert!(refused.ends_with(advice), "{refused}");
    }
    for text in [
        "postgres://a@h?sslmode=verify-ca&sslrootcert=/ca.pem",
        "postgres://a@h?sslmode=require",
        "postgres://a@h?sslmode=verify-full",
        "postgres://a@h?sslmode=compare",
        "mysql://a@h",
        // As in MongoDB's drivers.
        "mongodb://a@h/?tlsAllowInvalidHostnames=true",
    ] {
        assert_eq!(parse(text).unwrap().check_protection(), Ok(()), "{text}");
    }
}

#[test]
fn real_urls_are_accepted() {
    let seconds = |text: &str| parse(text).unwrap().connect_timeout.map(|limit| limit.as_secs_f64());
    let pooled = "mongodb://a@h/?retryWrites=true&w=majority&appName=x&maxPoolSize=9&connectTimeoutMS=1500";
    assert_eq!(seconds(&pooled.replace("w=majority&", "")), Some(1.5));
    assert!(matches!(parse(pooled), Err(UrlError::Option { option, .. }) if option == "w"));
    assert_eq!(seconds("mysql://a@h/?connect-timeout=2500&compression=DISABLED"), Some(2.5));
    assert_eq!(seconds("postgres://a@h/?connect_timeout=0"), None);
    assert!(parse("postgres://a@h/?connect_timeout=x").is_err());
    assert!(parse("postgres://a@h/?options=a&options=b").is_err(), "options appears twice");
    let text = "postgres://a@h/?application_name=x%20y&options=-cgeqo%3Doff&keepalives_idle=9&gssencmode=prefer\
                &channel_binding=prefer&target_session_attrs=any&client_encoding=UTF8&connect_timeout=7";
    let url = parse(text).unwrap();
    let sent = [("application_name", "x y"), ("options", "-cgeqo=off")];
    assert_eq!(url.startup, sent.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(seconds(text), Some(7.0));
}

/// Options of libpq and of MySQL's clients that would protect more, or less, than what is supported.
#[test]
fn no_option_is_ignored() {
    for option in [
        "sslnegotiation",
        "channel_binding",
        "require_auth",
        "ssl_min_protocol_version",
        "ssl_max_protocol_version",
        "sslcrl",
        "sslcrldir",
        "sslpassword",
        "sslcertmode",
        "requiressl",
        "ssl",
        "gssencmode",
        "hostaddr",
        "service",
        "SSLMODE",
        "ssl-mode",
    ] {
        let url = parse(&format!("postgres://a@h?{option}=x"));
        assert!(matches!(url, Err(UrlError::Option { .. } | UrlError::Value { .. })), "{option}");
    }
    for option in [
        "ssl-verify-server-cert",
        "ssl_mode",
        "ssl-capath",
        "ssl-crl",
        "ssl-cipher",
        "ssl",
        "tls-version",
        "sslmode",
        "SSL-MODE",
        "host",
        "port",
    ] {
        let url = parse(&format!("mysql://a@h?{option}=x"));
        assert!(matches!(url, Err(UrlError::Option { .. })), "{option}");
    }
}

#[test]
fn tls_modes_are_parsed_or_refused() {
    let of = |text: &str| parse(text).map(|url| url.tls.demand);
    let url = |mode: &str| format!("mysql://a@h/?ssl-mode={mode}");
    assert_eq!(of(&url("DISABLED")), Ok(TlsDemand::Never));
    assert_eq!(of(&url("required")), Ok(TlsDemand::Always(Verification::Off)));
    assert_eq!(of(&url("VERIFY_IDENTITY")), Ok(TlsDemand::Always(Verification::Full)));
    for mode in ["prefer", "allow", "PREFERRED", ""] {
        assert!(matches!(of(&url(mode)), Err(UrlError::Value { .. })), "{mode}");
    }
    assert_eq!(of("postgres://a@h/?sslcert=/c"), Err(UrlError::HalfAnIdentity));
    assert!(matches!(of("postgres://a@h/?ssl-ca=/c"), Err(UrlError::Option { .. })));
    assert!(matches!(of("postgres://a@h/?password=x"), Err(UrlError::Option { .. })));
}

#[test]
fn naming_a_file_for_tls_requests_tls() {
    for (scheme, options) in ServerUrl::file_options().filter(|(scheme, _)| scheme.contains("sql")) {
        let (mode, off, compare, require) = match scheme {
            "postgresql" => ("sslmode", "disable", "compare", "require"),
            _ => ("ssl-mode", "DISABLED", "COMPARE", "REQUIRED"),
        };
        let of = |text: &str| parse(&format!("{scheme}://a@h/?{text}"));
        let demand = |text: &str| of(text).map(|url| url.tls.demand);
        let all: Vec<String> = options.iter().map(|option| format!("{}=/{0}", option.name)).collect();
        let all = all.join("&");
        let url = of(&all).unwrap();
        assert_eq!(url.tls.demand, TlsDemand::Always(Verification::Full));
        let named: Vec<String> = url.files().iter().map(|(_, path)| path.display().to_string()).collect();
        let expected: Vec<String> = options.iter().map(|option| format!("/{}", option.name)).collect();
        assert_eq!(named, expected, "each option names its own file");
        assert_eq!(demand(&format!("{all}&{mode}={compare}")), Ok(TlsDemand::Both));
        // As in libpq if a CA file is named.
        let authority = TlsDemand::Always(Verification::Authority);
        assert_eq!(demand(&format!("{all}&{mode}={require}")), Ok(authority));
        for option in options {
            let name = option.name;
            assert!(matches!(of(&format!("{name}=")), Err(UrlError::Value { .. })), "{name}");
            assert_eq!(of(&format!("{all}&{name}=/g")), Err(UrlError::Twice { option: name }));
            let unused = of(&format!("{mode}={off}&{name}=/f"));
            assert!(matches!(unused, Err(UrlError::FileWithoutTls { .. })), "{name}: {unused:?}");
        }
        let twice = of(&format!("{mode}={require}&{mode}={off}"));
        assert!(matches!(twice, Err(UrlError::Twice { .. })), "{twice:?}");
    }
}

#[test]
fn tls_is_refused_over_a_unix_socket() {
    for mode in ["sslmode=require", "sslmode=verify-full", "sslmode=compare", "sslrootcert=/ca.pem"] {
        let url = parse(&format!("postgres://a@localhost/?host=/run&{mode}"));
        assert_eq!(url, Err(UrlError::TlsOverSocket), "{mode}");
    }
    let socket = parse("postgres://a@localhost/?host=/run&sslmode=disable").unwrap();
    assert_eq!(socket.tls.demand, TlsDemand::Never);
}

#[test]
fn a_password_is_removed_and_never_kept() {
    let (text, password) = ServerUrl::split_password("postgres://app:s%3Acret@h/db?sslmode=require");
    assert_eq!((text.as_str(), password.as_deref()), ("postgres://app@h/db?sslmode=require", Some("s:cret")));
    assert_eq!(parse(&text).unwrap().to_string(), text);
    let refused = parse("postgres://app:secret@h/db").unwrap_err();
    assert_eq!(refused, UrlError::Password);
    assert!(!refused.to_string().contains("secret"));
    // As it was written, also where a URL library would write it in another way.
    let (text, password) = ServerUrl::split_password("postgres://app:p@ss#@h/../a?sslrootcert=/a b");
    assert_eq!(
        (text.as_str(), password.as_deref()),
        ("postgres://app@h/../a?sslrootcert=/a b", Some("p@ss#"))
    );
    let (text, password) = ServerUrl::split_password("not a url");
    assert_eq!((text.as_str(), password), ("not a url", None));
}

#[test]
fn errors_name_what_is_missing() {
    assert_eq!(parse("localhost"), Err(UrlError::Shape));
    assert!(matches!(parse("oracle://a@h"), Err(UrlError::Scheme { scheme }) if scheme == "oracle"));
    assert!(matches!(parse("postgres://h/db"), Err(UrlError::NoUser(_))));
    assert_eq!(parse("postgres://a@h/%ff"), Err(UrlError::Syntax(SqlUrlError::NoText("database"))));
}

#[test]
fn an_error_names_every_scheme() {
    let all = SCHEMES.iter().map(|(scheme, ..)| *scheme).chain([documents::scheme()]);
    let all: Vec<String> = all.map(|scheme| format!("{scheme}://")).collect();
    assert_eq!(parts::SCHEMES, all.join(", "));
}
