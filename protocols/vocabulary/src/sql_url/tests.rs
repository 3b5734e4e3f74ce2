use super::*;

fn parse(rest: &str) -> Result<SqlUrl, SqlUrlError> {
    SqlUrl::parse(&format!("postgres://{rest}"), SqlFamily::Postgres)
}

fn mysql(rest: &str) -> Result<SqlUrl, SqlUrlError> {
    SqlUrl::parse(&format!("mysql://{rest}"), SqlFamily::MySql)
}

fn host(host: &str, port: u16) -> SqlPlace {
    SqlPlace::Host { host: host.to_owned(), port }
}

fn socket(path: &str) -> SqlPlace {
    SqlPlace::Socket(path.into())
}

#[test]
fn the_place_is_that_of_the_servers_own_clients() {
    for (url, place) in [
        ("a@h", host("h", 5432)),
        ("a@h:6000/db", host("h", 6000)),
        ("a@h:/db", host("h", 5432)),
        ("a@[::1]:6000", host("::1", 6000)),
        ("a@/db?host=h", host("h", 5432)),
        ("a@/db?host=h&port=6000", host("h", 6000)),
        ("a@:6000/db?host=h", host("h", 6000)),
        ("a@/db?host=::1", host("::1", 5432)),
        ("a@%2Frun%2Fpg/db", socket("/run/pg/.s.PGSQL.5432")),
        ("a@%2Frun%2Fpg:6000/db", socket("/run/pg/.s.PGSQL.6000")),
        ("a@/db?host=/run/pg", socket("/run/pg/.s.PGSQL.5432")),
        ("a@/db?host=/run/pg&port=6000", socket("/run/pg/.s.PGSQL.6000")),
        ("a@localhost:1/db?host=%2Frun%2Fa+b", socket("/run/a+b/.s.PGSQL.1")),
    ] {
        assert_eq!(parse(url).map(|url| url.place), Ok(place), "{url}");
    }
    for (url, place) in [
        ("a@h", host("h", 3306)),
        ("a@%2Frun%2Fmysqld.sock/db", socket("/run/mysqld.sock")),
        ("a@/db?socket=/run/mysqld.sock", socket("/run/mysqld.sock")),
        ("a@localhost/db?socket=/run/mysqld.sock", socket("/run/mysqld.sock")),
    ] {
        assert_eq!(mysql(url).map(|url| url.place), Ok(place), "{url}");
    }
}

#[test]
fn a_place_that_is_not_one_host_is_refused() {
    for url in ["a@h1,h2/db", "a@h1:1,h2:2/db", "a@h1%2Ch2/db", "a@/db?host=h1,h2", "a@h/db?port=1,2"] {
        assert_eq!(parse(url), Err(SqlUrlError::SeveralHosts), "{url}");
    }
    for url in [
        "a@h!",
        "a@%40abstract",
        "a@h%20x",
        "a@[::1",
        "a@[h]",
        "a@::1",
        "a@/?host=run/pg",
        "a@[::1]x",
        "a@h:1:2",
    ] {
        assert_eq!(parse(url), Err(SqlUrlError::Host), "{url}");
    }
    for url in ["a@h:0", "a@h:65536", "a@h:+1", "a@h:x", "a@h/?port=0", "a@h/?port="] {
        assert_eq!(parse(url), Err(SqlUrlError::Port), "{url}");
    }
    for (url, option) in [
        ("a@h/?host=h2", "host"),
        ("a@%2Frun/?host=/run", "host"),
        ("a@h/?host=/run&host=/run", "host"),
        ("a@h:1/?port=1", "port"),
    ] {
        assert_eq!(parse(url), Err(SqlUrlError::Twice(option)), "{url}");
    }
    assert_eq!(parse("a@/db"), Err(SqlUrlError::NoHost));
    assert_eq!(parse("a@h/?host="), Err(SqlUrlError::Empty("host")));
    assert_eq!(mysql("a@/db"), Err(SqlUrlError::NoHost));
    assert_eq!(mysql("a@/db?socket="), Err(SqlUrlError::Empty("socket")));
    // MySQL's clients have no such options of a URL.
    assert_eq!(mysql("a@h/?port=1").map(|url| url.options.len()), Ok(1));
}

#[test]
fn escapes_are_those_of_libpq() {
    let url = parse("a%40b@h/x%23y/z?a+b=c+d%26&e=f=g").unwrap();
    assert_eq!((url.user.as_str(), url.database.as_deref()), ("a@b", Some("x#y/z")));
    let option = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(url.options, [option("a+b", "c+d&"), option("e", "f=g")]);
    assert_eq!(parse("a@h//db").unwrap().database.as_deref(), Some("/db"));
    assert_eq!(parse("a@h/..").unwrap().database.as_deref(), Some(".."));
    for url in ["a@h/a%zz", "a@h/a%", "a@h/a%1"] {
        assert_eq!(parse(url), Err(SqlUrlError::Escape("database")), "{url}");
    }
    assert_eq!(parse("a@h/a%00"), Err(SqlUrlError::NoText("database")));
    assert_eq!(parse("%ff@h/a"), Err(SqlUrlError::NoText("user")));
}

#[test]
fn nothing_of_a_url_is_dropped() {
    for url in ["a@h#x", "a@h/db#x", "a@h/?x=y#z", "a#b@h"] {
        assert_eq!(parse(url), Err(SqlUrlError::Fragment), "{url}");
    }
    assert_eq!(parse("a@h/db?x"), Err(SqlUrlError::NoValue("x".to_owned())));
    assert_eq!(parse("a@h/d\tb"), Err(SqlUrlError::Control));
    assert_eq!(SqlUrl::parse("h", SqlFamily::Postgres), Err(SqlUrlError::NoScheme));
}

#[test]
fn a_password_is_refused_and_never_printed() {
    for url in ["a:hunter2@h", "a:hun@ter2@h", ":hunter2@h", "a:hunter2#@h"] {
        assert_eq!(parse(url), Err(SqlUrlError::Password), "{url}");
    }
    for url in ["a:hun/ter2@h/db", "a:hun?ter2@h"] {
        assert_eq!(parse(url), Err(SqlUrlError::Reserved), "{url}");
    }
    assert_eq!(parse("a:@h").map(|url| url.user), Ok("a".to_owned()));
}

#[test]
fn several_hosts_are_split_as_by_libpq() {
    let each = |family, url: &str| SqlUrl::of_each_host(&format!("x://{url}"), family);
    let postgres = |url| each(SqlFamily::Postgres, url);
    for (url, hosts) in [
        ("a@h1/db", &["a@h1/db"][..]),
        ("a@h1,h2:6000/db?x=1", &["a@h1/db?x=1", "a@h2:6000/db?x=1"]),
        ("a@[::1]:1,[::2]", &["a@[::1]:1", "a@[::2]"]),
        ("a@h1,h2/db?port=1,2", &["a@h1/db?port=1", "a@h2/db?port=2"]),
        ("a@h1,h2/db?port=6", &["a@h1/db?port=6", "a@h2/db?port=6"]),
        ("a@/db?host=h1,%2Frun%2Fpg&y=,", &["a@/db?host=h1&y=,", "a@/db?host=%2Frun%2Fpg&y=,"]),
        ("a@:6000/db?host=h1,h2", &["a@:6000/db?host=h1", "a@:6000/db?host=h2"]),
        ("a@/?host=h1,h2&port=1,2", &["a@/?host=h1&port=1", "a@/?host=h2&port=2"]),
    ] {
        let expected: Vec<String> = hosts.iter().map(|url| format!("x://{url}")).collect();
        assert_eq!(postgres(url), Ok(expected), "{url}");
    }
    assert_eq!(postgres("a@h1,h2?port=1,2,3"), Err(SqlUrlError::HostsAndPorts { hosts: 2, ports: 3 }));
    assert_eq!(postgres("a@h1,h2,h3?host=1,2"), Err(SqlUrlError::Twice("host")));
    let mysql = each(SqlFamily::MySql, "a@h1:1,h2?socket=/a,b").unwrap();
    assert_eq!(mysql, ["x://a@h1:1?socket=/a,b", "x://a@h2?socket=/a,b"]);
}
