use ciphertoll_wire::postgres::server::{Startup, read_startup};
use ciphertoll_wire::postgres::startup::encode_startup;

use super::*;

fn request(parameters: &[(&str, &str)]) -> Result<Box<StartupRequest>, Refusal> {
    let mut bytes = Vec::new();
    encode_startup(&mut bytes, parameters).unwrap();
    match read_startup(&mut &bytes[..]).unwrap() {
        Some(Startup::Login(message)) => {
            StartupParameters::read(&message).map(|parameters| StartupRequest::new(Arc::new(parameters)))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn settings_are_read_from_parameters_and_options() {
    let request = request(&[
        ("client_encoding", "UTF8"),
        ("user", "app"),
        ("options", r"-c search_path=a,\ b --statement-timeout=5 -cgeqo=off"),
        ("replication", "false"),
    ])
    .unwrap();
    let names = (request.parameters.user.as_str(), request.parameters.database.as_deref());
    assert_eq!(names, ("app", None));
    let mut known = Parameters::default();
    let expected =
        [("search_path", "a, b"), ("geqo", "off"), ("client_encoding", "UTF8"), ("statement_timeout", "5")];
    assert_eq!(request.differing(&known), expected);
    known.set(b"client_encoding", b"UTF8").unwrap();
    assert_eq!(request.differing(&known), [expected[0], expected[1], expected[3]]);
}

/// A role may not set what its user may, and a time limit cuts short what sets the others.
#[test]
fn settings_are_set_in_an_order_in_which_none_is_refused() {
    let mut request = request(&[("user", "app"), ("TimeZone", "UTC")]).unwrap();
    for (name, value) in [
        ("statement_timeout", "1ms"),
        ("role", "reader"),
        ("plan_cache_mode", "auto"),
        ("client_encoding", "UTF8"),
        ("log_duration", "on"),
        ("plan_cache_mode", "force_custom_plan"),
    ] {
        request.record_setting(name.as_bytes(), value.as_bytes()).unwrap();
    }
    let names: Vec<_> = request.differing(&Parameters::default()).into_iter().map(|(name, _)| name).collect();
    let last = ["role", "client_encoding", "statement_timeout"];
    assert_eq!(names, [&["TimeZone", "log_duration", "plan_cache_mode"][..], &last].concat());
}

fn parameters(pairs: &[(&str, &str)]) -> Parameters {
    let mut parameters = Parameters::default();
    for (name, value) in pairs {
        parameters.set(name.as_bytes(), value.as_bytes()).unwrap();
    }
    parameters
}

/// A `DateStyle` without an order keeps that of the connection, which may be another client's.
#[test]
fn settings_of_the_login_have_the_values_that_the_server_has_given_them() {
    let login = [
        ("user", "app"),
        ("DateStyle", "ISO"),
        ("client_encoding", "latin-1"),
        ("TimeZone", "utc"),
        ("work_mem", "5000"),
    ];
    let mut request = request(&login).unwrap();
    request.record_setting(b"TimeZone", b"Asia/Tokyo").unwrap();
    let base = [("DateStyle", "ISO, MDY"), ("client_encoding", "UTF8"), ("TimeZone", "Asia/Tokyo")];
    let message = request.parameters.message.clone();
    request.confirm_login(&parameters(&[base[0], ("client_encoding", "LATIN1"), base[2]]));
    assert_eq!(
        (request.value("datestyle"), request.value("TimeZone")),
        (Some("ISO, MDY"), Some("Asia/Tokyo"))
    );
    assert_eq!(request.parameters.message, message);
    let mut backend = BackendState::of(parameters(&base));
    backend.parameters.set(b"DateStyle", b"SQL, DMY").unwrap();
    let restored = request.restoring(&backend).unwrap();
    let restored: Vec<_> = pairs(&restored).collect();
    let expected = [("DateStyle", "ISO, MDY"), ("work_mem", "5000"), ("client_encoding", "LATIN1")];
    assert_eq!(restored, expected);
    request.clear_settings();
    assert_eq!(request.value("TimeZone"), Some("utc"), "it was not the server's answer to the login's value");
}

#[test]
fn a_setting_of_another_role_may_need_its_rights() {
    let names = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>();
    let mut request = request(&[("user", "app")]).unwrap();
    assert!(!request.may_need_role(&names(&["log_statement"])));
    assert!(!request.may_need_role(&names(&["Role", "search_path"])));
    assert!(request.may_need_role(&names(&["log_statement", "role"])));
    for (role, may_need) in [("boss", true), ("none", false)] {
        request.record_setting(b"role", role.as_bytes()).unwrap();
        assert_eq!(request.may_need_role(&names(&["log_statement"])), may_need);
        assert_eq!(request.may_need_role(&names(&["app.tenant", "work_mem"])), may_need);
        assert!(!request.may_need_role(&names(&["Work_Mem", "search_path"])));
    }
}

#[test]
fn the_user_of_a_session_is_that_of_its_login() {
    for more in [("Session_Authorization", "other"), ("options", "-c session-authorization=other")] {
        let request = request(&[("user", "app"), more, ("TimeZone", "UTC")]).unwrap();
        assert_eq!(request.differing(&Parameters::default()), [("TimeZone", "UTC")]);
    }
}

#[test]
fn former_names_are_those_of_the_same_settings() {
    let mut request = request(&[("user", "app"), ("options", "-c Sort-Mem=5MB")]).unwrap();
    assert_eq!(request.value("work_mem"), Some("5MB"));
    request.record_setting(b"sort_mem", b"7MB").unwrap();
    request.record_setting(b"vacuum_mem", b"8MB").unwrap();
    let set = [("work_mem", "7MB"), ("maintenance_work_mem", "8MB")];
    assert_eq!(request.differing(&Parameters::default()), set);
    request.record_setting(b"work_mem", b"5MB").unwrap();
    assert_eq!(request.value("work_mem"), Some("5MB"));
}

#[test]
fn a_client_acquires_a_connection_for_a_command_only() {
    let request = request(&[("user", "app")]).unwrap();
    for (input, expected) in [
        (&b""[..], FirstInput::Incomplete),
        (b"X", FirstInput::Terminate),
        (b"Q\0\0\0\x0dSELECT", FirstInput::Incomplete),
        (b"Q\0\0\0\x0dSELECT 1\0", FirstInput::Command),
        (b"H\0\0\0\x04Q", FirstInput::Ignored(5)),
        (b"d\0\0\0\x09a", FirstInput::Ignored(10)),
    ] {
        assert_eq!(request.first_input(input), expected);
    }
}

#[test]
fn a_time_limit_of_less_than_a_second_is_short() {
    for (value, is_short) in [
        ("1", true),
        ("999ms", true),
        (" 5 ms", true),
        ("0", false),
        ("1s", false),
        ("1000", false),
        ("", false),
        ("5min", false),
        // Other notations.
        ("0.001s", true),
        (".005s", true),
        ("600us", true),
        ("1500us", true),
        ("0x5", true),
        ("017", true),
        ("5e1", true),
    ] {
        let mut request = request(&[("user", "app")]).unwrap();
        request.record_setting(b"statement_timeout", value.as_bytes()).unwrap();
        assert_eq!(request.has_short_timeout(), is_short, "{value:?}");
    }
    for (value, may_end) in [("200ms", true), ("1h", true), ("0", false), ("", false)] {
        let mut request = request(&[("user", "app")]).unwrap();
        request.record_setting(b"idle_session_timeout", value.as_bytes()).unwrap();
        assert_eq!(request.has_short_timeout(), may_end, "{value:?}");
    }
}

/// libpq sends `options` behind `client_encoding`, lib/pq in front of it.
#[test]
fn a_parameter_of_its_own_wins_over_the_options() {
    let options = ("options", "-c client_encoding=SQL_ASCII -c geqo=on -c GEQO=off");
    for parameters in [[("client_encoding", "UTF8"), options], [options, ("Client_Encoding", "UTF8")]] {
        let request = request(&[&[("user", "app")], &parameters[..]].concat()).unwrap();
        let settings = request.parameters.settings.iter().map(|(name, value)| (&**name, &**value));
        let encoding = parameters.iter().find(|(name, _)| *name != "options").unwrap();
        assert_eq!(settings.collect::<Vec<_>>(), [("GEQO", "off"), *encoding]);
    }
}

#[test]
fn a_date_style_keeps_what_a_later_one_does_not_name() {
    for (latest_first, expected) in [
        (&["ISO", "German"][..], "ISO, DMY"),
        (&["ymd", "SQL, DMY"], "SQL, ymd"),
        (&["German", "ISO, MDY"], "German, DMY"),
        (&["ISO", "German, MDY"], "ISO, MDY"),
        (&["ISO, YMD", "SQL"], "ISO, YMD"),
        (&["ISO", "nonsense"], "ISO"),
    ] {
        let values: Vec<_> = latest_first.iter().map(|value| (*value).to_owned()).collect();
        assert_eq!(date_style(&values), expected);
    }
}

/// A later parameter of the startup message would replace the sidecar's own.
#[test]
fn options_of_a_replication_connection_cannot_name_another_user_or_database() {
    let read = |options: &str| {
        let mut bytes = Vec::new();
        let parameters = [("user", "app"), ("replication", "database"), ("options", options)];
        encode_startup(&mut bytes, &parameters).unwrap();
        match read_startup(&mut &bytes[..]).unwrap() {
            Some(Startup::Login(message)) => {
                StartupParameters::read_as(&message, ReplicationAccess::Allowed).map(|read| read.dedicated())
            }
            other => panic!("{other:?}"),
        }
    };
    for name in ["user", "USER", "database", "replication", "options", "_pq_.x"] {
        let refused = read(&format!("-c {name}=postgres")).unwrap_err();
        assert_eq!(refused.sqlstate, Refusal::NO_PARAMETER, "{name}");
    }
    let given = read("-c geqo=off").unwrap();
    let expected = [("replication", "database"), ("geqo", "off")];
    assert_eq!(given, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn requests_that_cannot_be_granted_are_refused() {
    let state = |parameters: &[(&str, &str)]| request(parameters).unwrap_err().sqlstate;
    assert_eq!(state(&[("database", "x")]), Refusal::WHO);
    for mode in ["false", "FALS", "f", "of", "off", "n", "no", "0"] {
        assert!(request(&[("user", "a"), ("replication", mode)]).is_ok(), "{mode}");
    }
    for mode in ["o", "true", "database", "1", "anything"] {
        assert_eq!(state(&[("user", "a"), ("replication", mode)]), Refusal::UNSUPPORTED);
    }
    for text in ["-W 5", "x", "-c", "-c x", "--", "-c=", "-c =1", "--=1"] {
        assert_eq!(state(&[("user", "a"), ("options", text)]), Refusal::UNSUPPORTED, "{text}");
    }
}

#[test]
fn the_name_of_an_application_may_have_any_bytes() {
    let message = |name: &str| {
        let mut bytes = Vec::new();
        encode_startup(&mut bytes, &[("user", "app"), (name, "caf!")]).unwrap();
        let at = bytes.iter().position(|byte| *byte == b'!').unwrap();
        bytes[at] = 0xe9;
        bytes
    };
    let read = |bytes: &[u8]| match read_startup(&mut &*bytes).unwrap() {
        Some(Startup::Login(message)) => StartupParameters::read(&message),
        other => panic!("{other:?}"),
    };
    let parameters = read(&message("application_name")).unwrap();
    assert_eq!(parameters.settings, [("application_name".to_owned(), "caf?".to_owned())]);
    assert_eq!(read(&message("app.name")).unwrap_err().sqlstate, Refusal::PROTOCOL);
}

#[test]
fn only_a_plain_application_name_cannot_fail() {
    let mut known = Parameters::default();
    assert!(!cannot_fail("application_name", "psql", &known));
    known.set(b"application_name", b"").unwrap();
    assert!(cannot_fail("application_name", "psql 15", &known));
    assert!(!cannot_fail("application_name", &"x".repeat(64), &known));
    assert!(!cannot_fail("application_name", "naïve", &known));
    assert!(!cannot_fail("TimeZone", "UTC", &known));
}
