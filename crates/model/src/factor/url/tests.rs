//! Parsing of SQL server URLs.

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
    let (text, password) = ServerUrl::split_password("not a url");
    assert_eq!((text.as_str(), password), ("not a url", None));
}

#[test]
fn errors_name_what_is_missing() {
    assert!(matches!(parse("localhost"), Err(UrlError::Shape(_))));
    assert!(matches!(parse("oracle://a@h"), Err(UrlError::Scheme { scheme }) if scheme == "oracle"));
    assert!(matches!(parse("postgres://h/db"), Err(UrlError::NoUser(_))));
    assert_eq!(parse("postgres://a@h/%ff"), Err(UrlError::NoText("database")));
}
